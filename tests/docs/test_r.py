"""The page about R is one script; it is run where R is installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks_of

PAGE = ROOT / "docs" / "howto" / "r.md"


@pytest.mark.docs
@pytest.mark.skipif(shutil.which("Rscript") is None, reason="R is not installed")
def test_the_script_of_the_page_runs(tmp_path: Path) -> None:
    (tmp_path / "page.R").write_text("\n".join(block.text for block in blocks_of(PAGE) if block.language == "r"))
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": tools, "PYTHONPATH": str(ROOT / "src")}
    command = ["Rscript", "--vanilla", "page.R"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    assert "understudy: epsilon must be" in done.stdout
    assert "[1] 10000" in done.stdout
