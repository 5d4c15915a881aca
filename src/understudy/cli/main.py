"""Runs the command line and turns every error into one line and an exit code."""

import functools
import os
import sys
import warnings
from collections.abc import Callable

import typer

from understudy.cli.app import app
from understudy.cli.terminal import INTERRUPTED, Interrupted, catch_interrupts, printable
from understudy.errors import UnderstudyError, UnderstudyWarning

_click_errors = sys.modules[typer.BadParameter.__module__]
"""The errors of Click, which newer versions of typer bundle and older ones import."""


def run(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0, 1 (findings, internal error), 2 (refused) or 130 (interrupted)."""
    try:
        with catch_interrupts(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UnderstudyWarning)  # commands print notes and warnings themselves
            result = _command()(args=arguments, prog_name="understudy", standalone_mode=False)
        if result == INTERRUPTED:  # how the argument parser reports Ctrl-C
            raise KeyboardInterrupt
        return result if isinstance(result, int) else 0
    except Interrupted as error:
        return _fail(str(error), INTERRUPTED)
    except UnderstudyError as error:
        if os.environ.get("UNDERSTUDY_DEBUG") and isinstance(error.__cause__, Exception):
            raise
        return _fail(" ".join(str(error).split()))
    except KeyboardInterrupt:
        return _fail("interrupted; nothing was written.", INTERRUPTED)
    except Exception as error:
        return _fail_unexpected(error)


@functools.cache
def _command() -> Callable[..., object]:
    """The commands as the argument parser has them: made once, which takes longer than most refusals."""
    return typer.main.get_command(app)


def _fail_unexpected(error: Exception) -> int:
    """Errors of the argument parser, which are the user's, and errors inside Understudy."""
    is_help = isinstance(error, getattr(_click_errors, "NoArgsIsHelpError", ()))  # its message is the whole help
    if isinstance(error, _click_errors.ClickException):
        if is_help:
            print(error.format_message(), file=sys.stderr)
            return 2
        message = " ".join(error.format_message().split()).rstrip(".")
        command = getattr(getattr(error, "ctx", None), "command_path", "understudy")
        end = "" if message.endswith("?") else "."
        return _fail(f"{message}{end} Try '{command} --help'.")
    if isinstance(error, typer.Abort):
        return _fail("interrupted; nothing was written.", INTERRUPTED)
    if os.environ.get("UNDERSTUDY_DEBUG"):
        raise error
    # The text of an unexpected error may quote a value of the table: only its type is shown.
    return _fail(
        f"internal error ({type(error).__name__}). The message may contain private values, so it is not shown; "
        "set UNDERSTUDY_DEBUG=1 to see it. Please report this error.",
        1,
    )


def _fail(message: str, code: int = 2) -> int:
    print(f"understudy: {printable(message)}", file=sys.stderr)
    return code


def main() -> None:
    """Entry point of the `understudy` command."""
    code = run()
    sys.stdout.flush()
    sys.stderr.flush()
    # Without Python's teardown, in which DuckDB prints pages about objects that an error still holds.
    os._exit(code)
