"""Fitting from frames and files, the folder on disk, and what is refused when it was tampered with."""

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import understudy as us
from tests.builders import raises
from understudy.cli import run
from understudy.demo import demo_schema, demo_table
from understudy.notes import Level

GUARANTEE = us.Guarantee(2.0, 1e-6)


@pytest.fixture(scope="module")
def schema() -> us.Schema:
    return dataclasses.replace(demo_schema(), rows=600)


@pytest.fixture(scope="module")
def release(schema: us.Schema) -> us.Release:
    return us.fit(demo_table().slice(0, 600), "mst", GUARANTEE, schema=schema, seed=0)


@pytest.fixture(scope="module")
def folder(release: us.Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("releases") / "whole.release"
    release.save(place)
    return place


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(folder, tmp_path / "copy.release")


# --- Notes on estimated category lists ---


def test_notes_say_what_estimated_lists_and_bounds_lost() -> None:
    """In the plan, and after the run, as a warning where it is much; by public facts and estimates alone. Values of
    twice as many rows as are named are kept, those of half as many are not; noise is a sixth of it."""
    schema = us.Schema(columns=(us.Column(name="c", kind="categorical", nullable=False),), rows=1500)
    plan = us.plan(schema, "independent", GUARANTEE)
    (note,) = plan.notes
    assert "a value in fewer than about 38 rows becomes 'other'" in note.text
    table = pa.table({"c": ["much"] * (1500 - 76 - 19) + ["enough"] * 76 + ["little"] * 19})
    release = us.fit(table, "independent", GUARANTEE, schema=schema, seed=0)
    assert set(release.sample(2000, seed=0)["c"].to_pylist()) == {"much", "enough", "other"}
    (told,) = release.notes
    assert told.level is Level.WARNING
    assert told.text.startswith("Category lists were estimated privately. Values in fewer than about 38 rows became ")
    assert "values kept: c 2. To keep more, declare" in told.text
    (less,) = us.fit(table, "independent", us.Guarantee(4.0, 1e-6), schema=schema, seed=0).notes
    assert less.level is Level.INFO
    assert less.text.startswith("Category lists were estimated privately. ")
    listed = us.Column(name="c", kind="categorical", nullable=False, categories=("much", "enough", "little"))
    declared = us.fit(table, "independent", GUARANTEE, schema=us.Schema(columns=(listed,), rows=1500), seed=0)
    assert declared.notes == us.plan(declared.schema, "independent", GUARANTEE).notes == ()
    numbers = us.fit(pa.table({"n": list(range(500)) * 2}), "independent", us.Guarantee.not_private())
    (cut,) = numbers.notes
    assert cut.text.startswith("Bounds of numbers and dates were estimated privately: n 0 to ")


def test_an_unknown_sex_is_other_and_never_the_first_category() -> None:
    """Exact without noise. Closed lists have no "other": a null, or the first category where there is none."""
    table = pa.table({"sex": ["female", "male", "male", "intersex", None] * 20})
    shares = {}
    for closed, nullable in [(False, True), (False, False), (True, True), (True, False)]:
        listed = ("female", "male")
        column = us.Column(name="sex", kind="categorical", categories=listed, closed=closed, nullable=nullable)
        schema = us.Schema(columns=(column,), rows=100)
        release = us.fit(table, "independent", us.Guarantee.not_private(), schema=schema, seed=0)
        found = release.sample(20_000, seed=0)["sex"].to_pylist()
        shares[closed, nullable] = {value: round(found.count(value) / len(found), 1) for value in {*found}}
    assert shares[False, True] == {"female": 0.2, "male": 0.4, "other": 0.2, None: 0.2}
    assert shares[False, False] == {"female": 0.2, "male": 0.4, "other": 0.4}
    assert shares[True, True] == {"female": 0.2, "male": 0.4, None: 0.4}
    assert shares[True, False] == {"female": 0.6, "male": 0.4}


def test_a_weak_guarantee_is_called_weak_in_plan_run_and_certificate() -> None:
    table = pa.table({"sex": ["f", "m"] * 100})
    column = us.Column(name="sex", kind="categorical", categories=("f", "m"), closed=True)
    schema = us.Schema(columns=(column,), rows=200)
    for epsilon, is_weak in ((10.0, False), (20.0, True)):
        guarantee = us.Guarantee(epsilon)
        release = us.fit(table, "independent", guarantee, schema=schema, seed=0)
        texts = [str(note) for note in us.plan(schema, "independent", guarantee).notes]
        assert any(text.startswith("Warning: This is a weak guarantee.") for text in texts) == is_weak
        assert any(str(note).startswith("Warning: This is a weak guarantee.") for note in release.notes) == is_weak
        assert ("This is a weak guarantee." in release.certificate) == is_weak


def test_columns_that_lost_most_come_first() -> None:
    """Behind the target, which comes before all; and no more than eight."""
    names = [f"c{number}" for number in range(10)]
    table = pa.table({name: [f"v{row % (12 - at)}" for row in range(2000)] for at, name in enumerate(names)})
    (told,) = us.fit(table, "independent", us.Guarantee.not_private(), target="c0").notes
    assert "values kept: c0 12, c9 3, c8 4, c7 5, c6 6, c5 7, c4 8, c3 9 and 2 more. " in told.text


# --- Frames ---


def test_pandas_in_pandas_out() -> None:
    frame = pd.DataFrame(
        {
            "n": pd.array([1, 2, None] * 50, dtype="Int64"),
            "f": np.linspace(0, 1, 150).astype("float32"),
            "c": pd.Categorical(["b", "a", "b"] * 50),
            "t": pd.date_range("2020-01-01", periods=150, tz="Europe/Berlin"),
            "b": [True, False, True] * 50,
        }
    )
    fake = us.fit(frame, "independent", us.Guarantee.not_private()).sample(150, seed=0)
    assert isinstance(fake, pd.DataFrame)
    assert list(fake.columns) == list(frame.columns)
    for name in ("n", "f", "t"):
        assert fake[name].dtype == frame[name].dtype, name
    assert fake["b"].dtype == ("boolean" if fake["b"].hasnans else "bool")  # a drafted column is nullable
    assert isinstance(fake["c"].dtype, pd.CategoricalDtype)


def test_polars_in_polars_out() -> None:
    frame = pl.DataFrame(
        {
            "n": pl.Series([1, 2, None] * 50, dtype=pl.Int16),
            "e": pl.Series(["x", "y", "x"] * 50, dtype=pl.Enum(["x", "y", "z"])),
            "s": ["p", "q", None] * 50,
            "d": pl.date_range(pl.date(2020, 1, 1), pl.date(2020, 5, 29), eager=True),
        }
    )
    fake = us.fit(frame, "independent", us.Guarantee.not_private()).sample(40, seed=0)
    assert isinstance(fake, pl.DataFrame)
    assert fake.columns == frame.columns
    assert fake.height == 40
    assert [fake.schema[name] for name in "nsd"] == [frame.schema[name] for name in "nsd"]
    assert isinstance(fake.schema["e"], pl.Enum | pl.Categorical)


def test_arrow_in_arrow_out(release: us.Release) -> None:
    fake = release.sample(30, seed=0)
    assert isinstance(fake, pa.Table)
    assert fake.schema.types == demo_table().schema.types


@pytest.mark.parametrize("table", [5, {"a": [1]}, None, [1, 2], np.zeros((2, 2))])
def test_not_a_table(table: object) -> None:
    with pytest.raises(us.TableError, match="Expected a pandas, polars or pyarrow table"):
        us.fit(table, "mst", GUARANTEE)


@pytest.mark.parametrize("frame", [pd.DataFrame({"a": []}, dtype=object), pl.DataFrame({"a": []}), pa.table({"a": []})])
def test_no_rows_and_no_types(frame: pd.DataFrame) -> None:
    with raises(us.TableError, column="a"):
        us.fit(frame, "mst", GUARANTEE)


def test_frames_are_not_changed() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3] * 30, "b": list("xyz") * 30})
    before = frame.copy(deep=True)
    us.fit(frame, "independent", us.Guarantee.not_private())
    pd.testing.assert_frame_equal(frame, before)


# --- Arguments ---


def test_guarantee_has_to_be_given() -> None:
    with raises(us.ConfigError, setting="epsilon"):
        us.fit(demo_table())


def test_method_has_to_be_one() -> None:
    with raises(us.ConfigError, setting="method"):
        us.fit(demo_table(), 5, GUARANTEE)  # type: ignore[arg-type]  # a wrong type
    with raises(us.ConfigError, setting="method"):
        us.fit(demo_table(), "mts", GUARANTEE)


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, True, "7"])
def test_seed_has_to_be_one(release: us.Release, seed: int) -> None:
    with raises(us.ConfigError, setting="seed"):
        us.fit(demo_table(), "mst", GUARANTEE, seed=seed)
    with raises(us.ConfigError, setting="seed"):
        release.sample(5, seed=seed)


@pytest.mark.parametrize("num_rows", [0, -1, 1.5, True, "7"])
def test_number_of_rows_has_to_be_one(release: us.Release, num_rows: int) -> None:
    with raises(us.ConfigError, setting="num_rows"):
        release.sample(num_rows)


def test_any_whole_number_of_rows_will_do(release: us.Release) -> None:
    assert release.sample(np.int64(3), seed=0).num_rows == 3  # type: ignore[arg-type]  # not an `int` to mypy
    assert release.sample(1, seed=0).num_rows == 1


def test_nothing_to_model_is_refused() -> None:
    columns = (us.Column(name="a", kind="id"), us.Column(name="b", kind="text"))
    with pytest.raises(us.SchemaError, match="no column to model"):
        us.fit(pa.table({"a": [1], "b": ["x"]}), "mst", GUARANTEE, schema=us.Schema(columns=columns))


def test_one_column_is_enough() -> None:
    for method in ("independent", "mst", "aim"):
        release = us.fit(pa.table({"a": ["x", "y"] * 100}), method, us.Guarantee.not_private())
        assert set(release.sample(50, seed=0).column("a").to_pylist()) <= {"x", "y", "other", None}


@pytest.mark.slow
def test_auto_is_said_and_resolved(schema: us.Schema) -> None:
    plan = us.plan(schema, "auto", GUARANTEE)
    release = us.fit(demo_table().slice(0, 600), "auto", GUARANTEE, schema=schema, seed=0)
    assert plan.notes[0].text.startswith(f"auto: {release.statement.method}, because ")
    assert release.statement.queries == plan.queries


def test_delta_follows_from_the_declared_size(release: us.Release) -> None:
    """Never from the rows, which are 600 in both runs."""
    declared = dataclasses.replace(release.schema, rows=100_000)
    again = us.fit(demo_table().slice(0, 600), "independent", us.Guarantee(2.0), schema=declared, seed=0)
    assert again.statement.delta == 3.1e-08
    assert {rows: us.Guarantee(2.0).with_delta_for(rows).delta for rows in (600, None)} == {600: 1e-05, None: 1e-06}


def test_progress_is_reported() -> None:
    told: list[tuple[float, str]] = []
    us.fit(
        pa.table({"a": ["x", "y"] * 50, "b": [1, 2] * 50}),
        "mst",
        us.Guarantee.not_private(),
        progress=lambda share, words: told.append((share, words)),
    )
    shares = [share for share, _ in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert all(words for _, words in told)


# --- On disk ---


def test_existing_folder_is_kept(release: us.Release, copied: Path) -> None:
    before = {file.name: file.read_bytes() for file in copied.iterdir()}
    with pytest.raises(us.TableError):
        release.save(copied)
    assert {file.name: file.read_bytes() for file in copied.iterdir()} == before
    release.save(copied, force=True)
    assert us.Release.load(copied).statement == release.statement


def test_force_does_not_remove_other_folders(release: us.Release, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").write_text("years of work")
    with pytest.raises(us.TableError):
        release.save(home, force=True)
    assert (home / "thesis.tex").read_text() == "years of work"
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_loading_runs_no_code(folder: Path) -> None:
    """Readable JSON and plain arrays: nothing of pickle."""
    for file in folder.iterdir():
        assert b"pickle" not in file.read_bytes()
        if file.suffix == ".json":
            json.loads(file.read_text())
    header = (folder / "model.safetensors").read_bytes()
    assert json.loads(header[8 : 8 + int.from_bytes(header[:8], "little")])


def _flip(name: str, where: float) -> Callable[[Path], None]:
    def alter(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        place = int(where * (len(data) - 1))
        data[place] ^= 1
        (folder / name).write_bytes(data)

    return alter


def _edit(name: str, **changes: object) -> Callable[[Path], None]:
    """Changes fields of a JSON file, and makes the sums right again: a careful forger."""

    def alter(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        for key, value in changes.items():
            if value is ...:
                content.pop(key)
            else:
                content[key] = value
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        (folder / name).write_text(text)
        if name != "release.json":
            digest = hashlib.sha256(text.encode()).hexdigest()
            release = json.loads((folder / "release.json").read_text())
            _edit("release.json", sha256={**release["sha256"], name: digest})(folder)
        else:
            above = {key: value for key, value in content.items() if key != "sha256_above"}
            sum_above = hashlib.sha256((json.dumps(above, indent=1, ensure_ascii=False) + "\n").encode()).hexdigest()
            (folder / name).write_text(json.dumps({**above, "sha256_above": sum_above}, indent=1, ensure_ascii=False))

    return alter


TAMPERINGS: dict[str, tuple[Callable[[Path], object], str]] = {
    **{
        f"a bit of {name} at {where}": (_flip(name, where), "edited|unknown kind|newer")
        for name in ("model.safetensors", "certificate.json", "CERTIFICATE.md", "release.json")
        for where in (0.0, 0.3, 0.7)
    },
    "model missing": (lambda f: (f / "model.safetensors").unlink(), "missing"),
    "certificate missing": (lambda f: (f / "certificate.json").unlink(), "missing"),
    "words missing": (lambda f: (f / "CERTIFICATE.md").unlink(), "missing"),
    "release.json missing": (lambda f: (f / "release.json").unlink(), "missing"),
    "empty": (lambda f: (f / "release.json").write_text(""), "unknown kind"),
    "not JSON": (lambda f: (f / "release.json").write_text("hello"), "unknown kind"),
    "not an object": (lambda f: (f / "release.json").write_text("[1]"), "unknown kind"),
    "deep": (lambda f: (f / "release.json").write_text("[" * 100_000), "unknown kind"),
    "not text": (lambda f: (f / "release.json").write_bytes(b"\xff\xfe\x00"), "unknown kind"),
    "other program": (lambda f: (f / "release.json").write_text('{"name": "x"}'), "unknown kind"),
    "other version": (_edit("release.json", format_version=1), "newer"),
    "cut short": (lambda f: (f / "model.safetensors").write_bytes(b"\x00" * 20), "edited"),
    "no sums": (_edit("release.json", sha256=...), "incomplete"),
    "not a number": (_edit("release.json", extra=float("nan")), "edited|incomplete"),
    "half a character": (
        lambda f: (f / "release.json").write_text(
            (f / "release.json").read_text().replace('"private"', '"\\ud800": 1, "private"', 1)
        ),
        "edited|incomplete",
    ),
    "sums of another kind": (_edit("release.json", sha256=[1, 2]), "edited|incomplete"),
    "no codec": (_edit("release.json", codec=...), "incomplete"),
    "codec of another kind": (_edit("release.json", codec=[]), "incomplete"),
    "bad schema": (
        _edit("release.json", codec={"columns": [], "schema": {"columns": []}, "num_rows": 5}),
        "incomplete",
    ),
    "unknown model": (_edit("release.json", model={"kind": "gan", "structure": {}}), "incomplete"),
    "empty model": (_edit("release.json", model={"kind": "graphical", "structure": {}}), "incomplete"),
    "no origin": (_edit("release.json", origin=None), "incomplete"),
    "no guarantee": (_edit("certificate.json", guarantee=...), "incomplete"),
    "unknown event": (
        _edit("certificate.json", queries=[{"key": "a", "what": "b", "event": {"kind": "Laplace"}}]),
        "incomplete",
    ),
    "queries of another type": (_edit("certificate.json", queries=5), "incomplete"),
    "certificate of another format": (_edit("certificate.json", format_version=1), "incomplete"),
}


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_tampered_release_is_refused(
    tampering: str, copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the library with a ReleaseError, by the command line with one line and exit code 2."""
    alter, reasons = TAMPERINGS[tampering]
    alter(copied)
    with pytest.raises(us.ReleaseError) as refused:
        us.Release.load(copied)
    assert refused.value.reason in reasons.split("|")
    out = tmp_path / "fake.csv"
    assert run(["sample", str(copied), "-n", "5", "-o", str(out)]) == 2
    assert run(["certificate", str(copied)]) == 2
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 2
    assert captured.out == ""
    assert not out.exists()


def test_loading_opens_no_file_that_a_release_names(copied: Path) -> None:
    """A release from others could name any file of whoever loads it."""
    (copied / "lookup.csv").write_text("gender,married\nfemale,no\nmale,yes\n")
    codec = json.loads((copied / "release.json").read_text())["codec"]
    rule = {"combinations": ["gender", "married"], "allowed": str(copied / "lookup.csv")}
    _edit("release.json", codec={**codec, "schema": {**codec["schema"], "rules": [rule]}})(copied)
    with raises(us.ReleaseError, reason="incomplete"):
        us.Release.load(copied)


def test_recomputed_checksums_are_accepted(copied: Path) -> None:
    """The sums are no signature: whoever recomputes all of them is not detected. `docs/certificate.md` says so."""
    _edit("release.json", made_with={"numpy": "1.0"})(copied)
    us.Release.load(copied)


@pytest.mark.parametrize("wrong", ["nowhere", "file.txt", "", "."])
def test_wrong_folder(wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.txt").write_text("x")
    with raises(us.ReleaseError, reason="missing"):
        us.Release.load(wrong)


def test_unknown_files_beside_are_ignored(copied: Path, release: us.Release) -> None:
    (copied / "notes.txt").write_text("mine")
    assert us.Release.load(copied).sample(9, seed=0).equals(release.sample(9, seed=0))
