"""Files and folders that are written whole or not at all."""

import contextlib
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from understudy.errors import TableError, UnderstudyError


def json_bytes(content: object) -> bytes:
    """Readable JSON, always the same for the same content."""
    return (json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if there is none, or not a whole one."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def require_free(path: Path, *, force: bool) -> None:
    """Checks that the folder exists and is writable, and that nothing is in the way."""
    folder = path.parent
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise TableError(f"The folder {folder} {what}, so {path.name} cannot be written there. Create it first.")
    if path.exists() and not force:
        raise TableError(f"{path} exists. Choose another name, or replace it with --force (force=True).")
    effective = os.access in os.supports_effective_ids
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=effective):
        raise TableError(
            f"You do not have permission to write to {folder}. Choose another folder, or change its permissions."
        )


def write_file(path: str | os.PathLike[str], content: bytes, *, force: bool = False, mode: int | None = None) -> None:
    """Writes a file. `mode`: who may read it."""
    with atomic_path(path, force=force) as part:
        part.touch()
        if mode is not None:
            part.chmod(mode)
        part.write_bytes(content)


@contextlib.contextmanager
def atomic_path(
    path: str | os.PathLike[str], *, force: bool = False, errors: tuple[type[Exception], ...] = ()
) -> Iterator[Path]:
    """A file to write to; it becomes `path` when the block succeeds, and is deleted if it raises.

    `errors` are those of a library that writes it.
    """
    path = Path(os.path.realpath(path))  # a link stays a link: what it points to is replaced
    if path.is_dir():
        raise TableError(f"{path} is a folder, expected a file name.")
    require_free(path, force=force)
    with explain_failure(path, *errors):
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
        try:
            part = folder / path.name
            yield part
            sync(part)
            if not force:
                _claim(path, part)
            os.replace(part, path)
            sync(path.parent)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _claim(path: Path, part: Path) -> None:
    """Makes the name belong to this file, unless another process was quicker: a rename would replace its file."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise TableError(f"{path} appeared while it was being written. Choose another name, or use --force.") from None
    except OSError:  # a file system without hard links: an empty file holds the name until the rename
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))


@contextlib.contextmanager
def atomic_folder(path: str | os.PathLike[str], *, force: bool = False, contents: Sequence[str] = ()) -> Iterator[Path]:
    """A folder to fill; it becomes `path` when the block succeeds, and is deleted if it raises.

    With `force` an existing folder is replaced, and is removed only after the new one is in place. It must be
    empty, or contain the first of `contents` and nothing but them: `--force` must not remove what others wrote.
    """
    path = Path(os.path.realpath(path))
    require_free_folder(path, force=force, contents=contents)
    with explain_failure(path):
        work = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
        try:
            new, old = work / "new", work / "old"
            new.mkdir()
            yield new
            for file in [*new.rglob("*"), new]:
                sync(file)
            if path.exists():
                require_free_folder(path, force=force, contents=contents)
                os.rename(path, old)
            try:
                os.rename(new, path)
            except BaseException:
                if old.exists():
                    os.rename(old, path)
                raise
            sync(path.parent)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def require_free_folder(path: str | os.PathLike[str], *, force: bool = False, contents: Sequence[str] = ()) -> None:
    """Raises early what `atomic_folder` would raise: call it before any budget is spent."""
    path = Path(os.path.realpath(path))
    require_free(path, force=force)
    if path.exists() and not path.is_dir():
        raise TableError(f"{path} is a file, expected the name of a folder. Choose another name.")
    present = {file.name for file in path.iterdir()} if path.is_dir() and contents else set()
    if present and contents[0] not in present:
        raise TableError(f"{path} is not empty and has no {contents[0]}, so it is not replaced. Choose another name.")
    if foreign := len(present - set(contents)):
        raise TableError(
            f"{path} also contains {foreign} file{'s' * (foreign > 1)} that Understudy did not write, so it is not "
            "replaced. Move what is yours, or choose another name."
        )


def sync(path: Path) -> None:
    """Waits until a file or folder is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def explain_failure(path: Path, *errors: type[Exception]) -> Iterator[None]:
    """Turns errors of the system and of the writing library into one-line errors."""
    try:
        yield
    except UnderstudyError:
        raise
    except Exception as error:
        if not isinstance(error, (OSError, *errors)):
            raise
        raise TableError(f"{path} cannot be written: {_reason(error)} Nothing was written.") from None


def _reason(error: Exception) -> str:
    said, code = str(error).lower(), getattr(error, "errno", None)
    if code in (errno.ENOSPC, errno.EDQUOT) or "no space left" in said or "is full" in said:
        return "the disk is full. Free some space, or choose another folder."
    if code in (errno.EACCES, errno.EPERM) or "permission denied" in said:
        return "you do not have permission to write there. Choose another folder, or change its permissions."
    if code == errno.EROFS or "read-only" in said or "readonly" in said:
        return "the file system is read-only. Choose another folder."
    if code == errno.ENAMETOOLONG:
        return "the name is too long. Choose a shorter one."
    if "lock" in said:
        return "it is open in another program. Close it first."
    return f"{os.strerror(code)}." if code else f"{type(error).__name__}."
