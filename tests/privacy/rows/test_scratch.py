"""Codes in a scratch folder: the same counts and releases, and nothing left on the disk."""

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from tests.builders import Killed, kill_at, raises
from understudy.cli import run
from understudy.errors import ConfigError, TableError
from understudy.privacy.rows import scratch as scratch_module
from understudy.privacy.rows.batches import LocalBatches
from understudy.privacy.rows.codes import CodeStore, code_type
from understudy.privacy.rows.scratch import FOLDER, open_scratch
from understudy.run.failure import SpentError
from understudy.tables import stream

SCHEMA: dict[str, dict] = {
    "table": {"rows": 400},
    "columns": {
        "town": {"kind": "categorical"},
        "age": {"kind": "integer", "bounds": [0, 90]},
        "pay": {"kind": "real"},
    },
}


def people() -> pa.Table:
    draw = np.random.default_rng(0)
    town = draw.choice(["north", "south", "east"], 400, p=[0.5, 0.3, 0.2])
    return pa.table({"town": town, "age": draw.integers(18, 80, 400), "pay": draw.gamma(2.0, 9.0, 400)})


def folders(place: Path) -> list[Path]:
    return sorted(each for each in place.iterdir() if FOLDER.fullmatch(each.name))


# ------------------------------------------------------------------------------------------------------------- results


@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 299)), max_size=5), min_size=1, max_size=4))
def test_codes_of_a_file_are_those_of_memory(batches: list[list[tuple[int, int]]]) -> None:
    sizes = (3, 300)
    arrays = [np.array(batch, dtype=np.int32).reshape(-1, 2) for batch in batches]
    store = CodeStore(sizes)
    for each in arrays:
        store.append(each)
    with tempfile.TemporaryDirectory() as place, open_scratch(place) as scratch:
        assert scratch is not None
        scratch._reserve(sum(map(len, arrays)) + 1, 2, np.dtype(np.uint32))  # more rows, and wider ones, than come
        codes = LocalBatches(arrays, scratch).to_codes(sizes)
        whole = store.finish()
        np.testing.assert_array_equal(codes.array, whole)
        assert codes.array.dtype == code_type(sizes)
        assert all(codes.array[:, at].flags.c_contiguous for at in range(2)), "columns in one piece"
        kept = np.arange(len(whole)) % 2 == 0
        np.testing.assert_array_equal(codes.part(kept).array, whole[kept])
        np.testing.assert_array_equal(codes.only([1]).part(kept).array, whole[kept][:, [1]])
        np.testing.assert_array_equal(codes.only([1, 0]).array, whole[:, [1, 0]])


@pytest.mark.filterwarnings("ignore::understudy.UnderstudyWarning")
@pytest.mark.parametrize("unit", [{}, {"unit": "who", "max_rows_per_unit": 2}], ids=["rows", "units"])
def test_a_release_is_the_same(unit: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BATCH_ROWS", 70)
    table = people().append_column("who", pa.array([f"p{number // 3}" for number in range(400)]))
    schema = {"table": unit, "columns": SCHEMA["columns"] | {"who": {"kind": "id"}}}

    def release(scratch: Path | None) -> us.Release:
        return us.fit(table, "mst", epsilon=20, schema=schema, seed=1, scratch=scratch)

    kept, memory = release(tmp_path), release(None)
    assert kept.codec.to_dict() == memory.codec.to_dict()
    assert kept.sample_arrow(50, seed=2) == memory.sample_arrow(50, seed=2)
    assert list(tmp_path.iterdir()) == []
    assert (kept.statement.facts.kept_in, memory.statement.facts.kept_in) == ("scratch", "memory")


@pytest.mark.filterwarnings("ignore::understudy.UnderstudyWarning")
def test_a_resumed_run_gives_the_same_release(tmp_path: Path) -> None:
    method = "dpgan(steps=40, generator_widths=[8], critic_widths=[8], latent=4)"
    place, checkpoint = tmp_path / "scratch", tmp_path / "run.checkpoint"
    place.mkdir()

    def release(**options: object) -> us.Release:
        return us.fit(people(), method, epsilon=5, schema=SCHEMA, scratch=place, checkpoint=checkpoint, **options)  # type: ignore[arg-type]  # keywords of several types

    with pytest.raises(Killed):
        release(seed=3, progress=kill_at(0.3))
    assert list(place.iterdir()) == []
    resumed = release(seed=3, resume=True)
    whole = us.fit(people(), method, epsilon=5, schema=SCHEMA, seed=3)
    assert resumed.sample_arrow(20, seed=1) == whole.sample_arrow(20, seed=1)
    assert list(place.iterdir()) == []


# ----------------------------------------------------------------------------------------------------------- the folder


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    with open_scratch(tmp_path) as scratch:
        assert scratch is not None
        (folder,) = folders(tmp_path)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        scratch._reserve(10, 3, np.dtype(np.uint8))
        assert [file.name for file in folder.iterdir()] == ["lock"], "a file of codes has no name"
        for file in scratch._files:
            found = os.fstat(file.fileno())
            assert stat.S_IMODE(found.st_mode) == 0o600
            assert (found.st_size, found.st_nlink) == (30, 0)
    assert list(tmp_path.iterdir()) == []
    assert all(file.closed for file in scratch._files)


def test_errors_remove_it(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), open_scratch(tmp_path):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_living_runs_and_other_files_are_left_alone(tmp_path: Path) -> None:
    others = tmp_path / "understudy-12345678"
    others.mkdir()
    (others / "letter.txt").write_text("mine")
    (others / "lock").touch()
    (tmp_path / "understudy-notes").mkdir()
    (tmp_path / "understudy-abcdefgh").symlink_to(others)
    with open_scratch(tmp_path), open_scratch(tmp_path):
        assert len(folders(tmp_path)) == 4
    assert (others / "letter.txt").read_text() == "mine"
    assert {each.name for each in tmp_path.iterdir()} == {others.name, "understudy-notes", "understudy-abcdefgh"}


@pytest.mark.parametrize("make", [False, True])
def test_a_place_that_cannot_be_used_is_refused(make: bool, tmp_path: Path) -> None:
    place = tmp_path / "place"
    if make:
        place.touch()
    with raises(ConfigError, setting="scratch"):
        us.fit(people(), "mst", epsilon=1, schema=SCHEMA, scratch=place)


# --------------------------------------------------------------------------------------------------------------- faults

PROGRAM = """
    import os, signal, sys
    import pyarrow.parquet as pq
    import understudy as us
    from understudy.privacy.rows.scratch import CodeFile
    from understudy.tables import stream
    from tests.privacy.rows.test_scratch import SCHEMA

    stream.BATCH_ROWS = 50
    append = CodeFile.append

    def killed(self, codes):
        append(self, codes)
        if self._written > 100:
            os.kill(os.getpid(), signal.SIGKILL)

    CodeFile.append = killed
    us.fit(sys.argv[1], "mst", epsilon=1, schema=SCHEMA, scratch=sys.argv[2])
"""


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path: Path) -> None:
    source, place, temporary = tmp_path / "people.parquet", tmp_path / "scratch", tmp_path / "tmp"
    place.mkdir()
    temporary.mkdir()
    pq.write_table(people(), source)
    program = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(source), str(place)]
    killed = subprocess.run(program, env={**os.environ, "TMPDIR": str(temporary)}, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (left,) = folders(place)
    assert [file.name for file in left.iterdir()] == ["lock"], "no code of a row is left, not even now"
    assert list(temporary.iterdir()) == []
    with open_scratch(place):
        assert left not in folders(place)
    assert list(place.iterdir()) == []


def test_a_file_that_was_not_unlinked_in_time_is_removed_too(tmp_path: Path) -> None:
    left = tmp_path / "understudy-00000000"
    left.mkdir(mode=0o700)
    (left / "lock").touch()
    (left / "codes-1").write_bytes(b"12345")
    old, new = tmp_path / "understudy-00000001", tmp_path / "understudy-00000002"
    old.mkdir()  # its run was killed before its lock was there
    os.utime(old, (0, 0))
    new.mkdir()  # its run may be about to make the lock
    with open_scratch(tmp_path):
        assert left not in folders(tmp_path)
    assert list(tmp_path.iterdir()) == [new]


FULL = """
    import resource, sys
    import understudy as us
    from tests.privacy.rows.test_scratch import SCHEMA

    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    try:
        us.fit(sys.argv[1], "mst", epsilon=1, schema=SCHEMA, scratch=sys.argv[2])
    except Exception as error:
        sys.stdout.write(f"{type(error).__name__}: {error}")
"""


def test_a_full_disk_is_found_before_anything_is_charged(tmp_path: Path) -> None:
    source, place = tmp_path / "people.parquet", tmp_path / "scratch"
    place.mkdir()
    pq.write_table(people(), source)
    program = [sys.executable, "-c", textwrap.dedent(FULL), str(source), str(place)]
    environment = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    found = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    expected = f"TableError: The scratch folder {place} has no room for the codes of this table. Name a folder on a "
    assert found.stdout == f"{expected}larger disk.", found.stderr
    assert list(place.iterdir()) == []


def test_a_disk_that_fills_up_later_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with any failure after a charge, the whole cost counts as spent."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device: 12345 bytes")

    monkeypatch.setattr(scratch_module, "_write", full)
    with pytest.raises(SpentError) as caught:
        us.fit(people(), "mst", epsilon=1, schema=SCHEMA, scratch=tmp_path)
    assert "12345" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_error_before_the_charge_says_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, num_bytes: int) -> None:
        raise OSError(28, f"No space left on device: {num_bytes} bytes")

    monkeypatch.setattr(scratch_module, "_allocate", full)
    with pytest.raises(TableError, match="has no room for the codes") as caught:
        us.fit(people(), "mst", epsilon=1, schema=SCHEMA, scratch=tmp_path)
    assert not any(character.isdigit() for character in str(caught.value).replace(str(tmp_path), ""))


# ---------------------------------------------------------------------------------------------------- the command line


@pytest.mark.filterwarnings("ignore::understudy.UnderstudyWarning")
def test_the_command_takes_it_and_the_certificate_names_it(tmp_path: Path) -> None:
    source, place = tmp_path / "people.csv", tmp_path / "scratch"
    place.mkdir()
    source.write_text("town\n" + "north\nsouth\n" * 50)
    schema = tmp_path / "people.toml"
    schema.write_text('[columns.town]\nkind = "categorical"\ncategories = ["north", "south"]\n')
    options = ["--schema", str(schema), "--epsilon", "1", "--method", "independent", "--scratch", str(place)]
    assert run(["fit", str(source), "-o", str(tmp_path / "release"), *options]) == 0
    certificate = json.loads((tmp_path / "release" / "certificate.json").read_text())
    assert certificate["public"]["rows_kept_in"] == "scratch"
    text = (tmp_path / "release" / "CERTIFICATE.md").read_text()
    assert "kept in a scratch folder on this machine during the run and deleted" in text
    assert "refused because that folder had no room for them, which follows from the number of rows" in text
    assert list(place.iterdir()) == []


def test_a_locked_parent_does_not_stop_a_run(tmp_path: Path) -> None:
    """Anyone who can read a shared folder can lock it: nothing is removed then, and nothing waits."""
    left = tmp_path / "understudy-00000001"
    left.mkdir(mode=0o700)
    (left / "codes-1").write_bytes(b"private")
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        with open_scratch(tmp_path):
            assert left.exists()
    finally:
        os.close(handle)
    with open_scratch(tmp_path):
        assert not left.exists()
