"""Runs every script of the papers in small (`--profile smoke`), in one process: do they still work?

    python benchmarks/papers/smoke.py

Scripts on public tables are skipped where UNDERSTUDY_DATA names no folder. Nothing is written.
"""

import argparse
import contextlib
import io
import os
import runpy
import sys
import traceback
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
PAPERS = ROOT / "benchmarks" / "papers"
NEED_DATA = {"autogan/adult.py", "autogan/binary.py", "quail/as_published.py", "quail/tables.py"} | {
    f"pgb/{name}.py" for name in ("census1940", "census2010", "mnist", "populations", "titanic")
}


def scripts() -> list[str]:
    """Those that take a profile, by their paths in `benchmarks/papers`."""
    return sorted(
        path.relative_to(PAPERS).as_posix()
        for path in PAPERS.glob("*/*.py")
        if 'if __name__ == "__main__":' in (text := path.read_text(encoding="utf-8")) and "smoke" in text
    )


def run(script: str) -> str:
    """What came of it, in one word, or the error."""
    if script in NEED_DATA and not os.environ.get("UNDERSTUDY_DATA"):
        return "skipped: UNDERSTUDY_DATA is not set"
    arguments, path = sys.argv, [*sys.path]
    sys.argv = [str(PAPERS / script), "--profile", "smoke"]
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as ended:
        return f"failed: exit {ended.code}" if ended.code else "done"
    except Exception:
        return f"failed:\n{traceback.format_exc()}"
    finally:
        sys.argv, sys.path[:] = arguments, path
    return "done"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="these scripts, such as quail/splits.py")
    wanted, failed = parser.parse_args().only or scripts(), 0
    import jax

    jax.config.update(
        "jax_disable_most_optimizations", True
    )  # programs run once: compiling them takes most of the time
    for script in wanted:
        began = cpu_seconds()
        outcome = run(script)
        failed += outcome.startswith("failed")
        print(f"{script}: {outcome} ({cpu_seconds() - began:.0f} s of CPU)", flush=True)
    print(f"{len(wanted)} scripts, {failed} failed, {cpu_seconds():.0f} s of CPU")
    return int(failed > 0)


def cpu_seconds() -> float:
    """Of this process and those that it waited for: what other work on the machine changes little."""
    times = os.times()
    return times.user + times.children_user


if __name__ == "__main__":
    sys.exit(main())
