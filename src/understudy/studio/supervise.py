"""Runs one command of Understudy and notes how it ended: `python -m understudy.studio.supervise FOLDER LOCK...`.

It has a process group of its own, apart from the server. Each LOCK is the number of an open, locked file. It stays
locked as long as this process or the command lives, however either ends: that is how a server knows that a job runs.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from understudy.progress import PROGRESS_FILE
from understudy.studio.jobs import write_json


def supervise(folder: Path, locks: Sequence[int]) -> None:
    """Runs the command in job.json. A command that was killed leaves no outcome: the job is unfinished then."""
    write_json(folder / "process.json", {"group": os.getpgrp()})
    arguments = json.loads((folder / "job.json").read_bytes())["command"]
    with (folder / "log.txt").open("ab") as log:
        code = subprocess.run(
            [sys.executable, "-P", "-m", "understudy", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment(folder),
            pass_fds=locks,
            check=False,
        ).returncode
    if 0 <= code < 128:
        write_json(folder / "outcome.json", {"code": code})


def environment(folder: Path) -> dict[str, str]:
    """Without the switch for tracebacks: they may contain values of rows, and the page shows the log."""
    kept = {name: value for name, value in os.environ.items() if name != "UNDERSTUDY_DEBUG"}
    return {**kept, PROGRESS_FILE: str(folder / "progress.json")}


if __name__ == "__main__":
    supervise(Path(sys.argv[1]), [int(each) for each in sys.argv[2:]])
