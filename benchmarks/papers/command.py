"""How the scripts of the papers end."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from understudy.errors import TableError, UnderstudyError


def run_script(main: Callable[[], object]) -> None:
    """Runs `main`. Bad input, such as a missing table, ends a script with one line and exit code 2, Ctrl-C with 130."""
    try:
        main()
    except UnderstudyError as error:
        print(f"{Path(sys.argv[0]).name}: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(f"{Path(sys.argv[0]).name}: interrupted", file=sys.stderr)
        sys.exit(130)


def require_tables(names: Sequence[str]) -> None:
    """Raises an error that says which public tables are missing and how to get them."""
    from understudy.benchmark.tables import missing_source

    if missing := [why for name in names if (why := missing_source(name))]:
        raise TableError("; ".join(missing))
