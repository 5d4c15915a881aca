"""The process of a worker: reads tasks as JSON lines from standard input and answers with JSON lines.

    python -m understudy.benchmark.worker --cores 1 --folder RESULTS --environments DIR

It runs many tasks one after the other, so that imports, tables and compiled programs are shared, and exits with
its parent.
"""

import argparse
import contextlib
import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import TextIO


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs benchmark cells for 'understudy benchmark run'.")
    parser.add_argument("--cores", default="", help="the cores to use, such as 0,1")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--environments", type=Path, required=True)
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    end_with_parent()
    if options.cores and hasattr(os, "sched_setaffinity"):  # before any library counts the cores
        os.sched_setaffinity(0, {int(core) for core in options.cores.split(",")})
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing else may write between the answers
    _serve(sys.stdin, answers, options.folder, options.environments)


def _serve(tasks: TextIO, answers: TextIO, folder: Path, environments: Path) -> None:
    from understudy.benchmark.cells import Cell
    from understudy.benchmark.execution import Places, complete, fit_cells, run_cell, score_cell

    places = Places(folder, environments)
    places.scratch.mkdir(parents=True, exist_ok=True)
    _say(answers, {"ready": True})
    for line in tasks:
        task = json.loads(line)
        cells = [Cell.from_json(content) for content in task["cells"]]
        if task["stage"] == "fit":
            for cell, record in fit_cells(cells, places):
                _say(answers, {"key": cell.key, "part": record})
        else:
            stage = score_cell if task["stage"] == "score" else run_cell
            record = complete(stage(cells[0], places), engine=task["engine"], peak_mb=None)
            _say(answers, {"key": cells[0].key, "part": record})
        _say(answers, {"end": True})


def _say(answers: TextIO, content: dict[str, object]) -> None:
    try:
        line = json.dumps(content, allow_nan=False)
    except (TypeError, ValueError) as error:  # such as a score that is not finite
        from understudy.benchmark.execution import failed

        line = json.dumps({**content, "part": failed(error)})
    answers.write(line + "\n")
    answers.flush()


def end_with_parent() -> None:
    """Linux: the kernel ends this process when its parent dies, even by SIGKILL."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)


if __name__ == "__main__":
    main()
