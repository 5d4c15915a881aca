"""What a run meets on a disk or machine that does not behave: nothing is lost, and the message says what to do."""

import errno
import fcntl
import os
import platform
from pathlib import Path

import pytest

from tests.builders import raises
from understudy.errors import ConfigError, TableError
from understudy.run import checkpoint, environment
from understudy.run.atomic import atomic_folder, write_file
from understudy.run.checkpoint import CheckpointError, require_place


def test_a_folder_is_put_back_if_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "release.json").write_text("old")
    rename, tried = os.rename, list[object]()

    def third_party(source: os.PathLike[str], target: os.PathLike[str]) -> None:
        tried.append(target)
        if len(tried) == 2:  # after the old folder was moved away
            raise OSError(errno.ENOSPC, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(os, "rename", third_party)
    with raises(TableError), atomic_folder(tmp_path / "out", force=True, contents=["release.json"]) as folder:
        (folder / "release.json").write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / "release.json").read_text() == "old"


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (errno.EROFS, "the file system is read-only. Choose another folder."),
        (errno.ENOSPC, "the disk is full. Free some space, or choose another folder."),
        (errno.EACCES, "you do not have permission to write there."),
    ],
)
def test_what_hinders_writing_is_said(code: int, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "replace", fail)
    with raises(TableError) as error:
        write_file(tmp_path / "table.csv", b"x", force=True)
    assert what in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_needs_a_folder(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with raises(CheckpointError, reason="exists"):
        require_place(tmp_path / "run", resume=False)


@pytest.mark.parametrize("text", ["often", "-1"])
def test_seconds_between_checkpoints_are_checked(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(checkpoint.SECONDS, text)
    with raises(ConfigError):
        checkpoint._seconds()


def test_a_file_system_without_locks_is_used_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    lock = checkpoint._lock(tmp_path)
    assert lock is not None
    checkpoint._unlock(lock)
    monkeypatch.setattr(fcntl, "flock", fail)
    assert checkpoint._lock(tmp_path) is None
    monkeypatch.setattr(checkpoint, "fcntl", None)
    assert checkpoint._lock(tmp_path) is None


def test_a_machine_without_a_list_of_processors_is_named_by_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", fail)
    assert environment._processor().startswith(platform.machine())
