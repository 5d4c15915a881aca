"""Draws the picture of the demo in the README from a real run.

python docs/make_images.py
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

IMAGES = Path(__file__).parent / "images"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", "from understudy.cli import main; main()", "demo", "-o", "understudy-demo"]
        shown = subprocess.run(
            command, cwd=folder, env={**os.environ, "COLUMNS": "84"}, capture_output=True, text=True, check=True
        ).stderr
    lines = [line for line in shown.splitlines() if not re.match(r"\s*\d+%", line)]  # the progress bar, as plain lines
    console = Console(record=True, width=84, file=open(os.devnull, "w"))  # noqa: SIM115  (lives as long as the script)
    console.print(Text("$ make demo", style="bold green"))
    for line in lines:
        console.print(Text(line))
    drawing = console.export_svg(title="understudy demo")
    # The drawing must not fetch fonts from elsewhere; any monospaced one will do.
    drawing = re.sub(r"@font-face \{.*?\}\s*", "", drawing, flags=re.DOTALL)
    (IMAGES / "demo.svg").write_text(drawing)


if __name__ == "__main__":
    main()
