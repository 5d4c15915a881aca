"""Jobs in processes of their own: what is finished, what is tried again, and what is left behind."""

import os
import time
from pathlib import Path

from benchmarks.papers.workers import Failure, Workers


def die(once: str) -> str:
    """Ends its process; the second time it works, where there is a file to remember that."""
    if once and os.path.exists(once):
        return "done"
    if once:
        Path(once).touch()
    os._exit(3)


def note(file: str, text: str) -> None:
    with open(file, "a") as out:
        out.write(text)


def test_a_dead_process_costs_no_result(tmp_path: Path) -> None:
    with Workers[str](1) as workers:
        workers.submit("twice", die, "")
        workers.submit("once", die, str(tmp_path / "tried"))
        workers.submit("error", divmod, 1, 0)
        workers.submit("sum", sum, (1, 2))
        found = dict(workers.finished())
    assert found["once"] == "done"
    assert found["sum"] == 3
    assert found["twice"] == Failure("its process ended with exit code 3, 2 times")
    assert found["error"].reason.startswith("ZeroDivisionError")


def test_urgent_jobs_run_first(tmp_path: Path) -> None:
    file = tmp_path / "order"
    with Workers[str](1) as workers:
        for text, urgency in (("c", 2), ("a", 0), ("d", 2), ("b", 1)):
            workers.submit(text, note, str(file), text, urgency=urgency)
        list(workers.finished())
    assert file.read_text() == "abcd"


def test_no_process_outlives_the_block() -> None:
    with Workers[str](1) as workers:
        workers.submit("long", time.sleep, 60)
        workers.pipes()  # starts it
        (process,) = workers._processes.values()
        assert process.is_alive()
    assert process.exitcode is not None
