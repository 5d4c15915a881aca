"""A run that was killed goes on to the result of one that was not, with the same draws and one set of charges."""

import contextlib
import copy
import dataclasses
import datetime
import decimal
import itertools
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import understudy as us
from tests.builders import Killed, kill_at, raises
from understudy.cli import run
from understudy.errors import CheckpointError, ConfigError, TrainingError, UnderstudyError
from understudy.privacy.gradients.dpsgd import ChargedSteps
from understudy.privacy.noise.samplers import BitStream
from understudy.privacy.noise.source import NoiseSource, SeededNoise, noise_source
from understudy.privacy.rows.rows import PrivateUnits
from understudy.privacy.rows.table import PrivateTable, table_digest
from understudy.run import checkpoint as checkpoints
from understudy.run.checkpoint import Checkpoint, Slot
from understudy.synthesizers.independent import Independent
from understudy.training.critics import one_hot_blocks
from understudy.training.gan import Hyperparameters, State, train
from understudy.training.loop import RunOptions, TrainingCheckpoint
from understudy.training.settings import Settings

NETS = "latent=4, generator_widths=[16, 16], critic_widths=[8]"
SMALL = f"dpgan(steps=400, sampling_rate=0.25, {NETS})"
GUARANTEE = us.Guarantee(0.3, 1e-6)  # much noise: the accountant is quick


def people(num_rows: int = 300) -> pa.Table:
    draw = np.random.default_rng(0)
    age = draw.integers(18, 90, num_rows)
    return pa.table(
        {
            "age": age,
            "region": draw.choice(["north", "south", "west"], num_rows),
            "member": np.where(draw.random(num_rows) < age / 90, "yes", "no"),
        }
    )


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


# -------------------------------------------------------------------------------------------------------------- draws


def draws(noise: NoiseSource) -> list[np.ndarray]:
    """All kinds, in several shapes and scales."""
    return [
        noise.discrete_gaussian(3.0, (2, 3)),
        np.asarray(noise.noisy_argmax(np.arange(5.0), 1.0)),
        np.asarray(jax.random.key_data(noise.key())),
        noise.discrete_gaussian(1e6, (4,)),
        noise.discrete_gaussian(1.0, (0, 3)),
        np.asarray(jax.random.key_data(noise.key())),
    ]


def same(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(first, second, strict=True))


def test_a_resumed_run_draws_the_same_from_its_first_draw_on(tmp_path: Path) -> None:
    folders = [tmp_path / "run", tmp_path / "copy", tmp_path / "another"]
    with Checkpoint.open(folders[0], {}, {}) as begun:
        noise = noise_source(None, begun.secret)
        assert not noise.seeded
        first, second = draws(noise), draws(noise)
    shutil.copytree(folders[0], folders[1])
    for folder in folders[:2]:
        with Checkpoint.open(folder, {}, {}, resume=True) as resumed:
            noise = noise_source(None, resumed.secret)
            assert same(first, draws(noise))
            assert same(second, draws(noise))
            assert same(draws(noise_source(5, resumed.secret)), draws(SeededNoise(5)))
    with Checkpoint.open(folders[2], {}, {}) as another:  # 64 bits of a key agree with probability 2^-64
        assert not np.array_equal(draws(noise_source(None, another.secret))[2], first[2])


def test_the_secret_is_on_disk_before_the_first_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written whole, synced, and its folder synced, when the first draw is asked for."""
    folder, happened = tmp_path / "checkpoint", []
    fsync, replace, bits = os.fsync, os.replace, NoiseSource._next

    def synced(handle: int) -> None:
        happened.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def renamed(old: Path, new: Path) -> None:
        happened.append(Path(new).name)
        replace(old, new)

    def drawn(self: NoiseSource, *draw: Any) -> BitStream:
        happened.append("draw")
        return bits(self, *draw)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    monkeypatch.setattr(NoiseSource, "_next", drawn)
    us.fit(people(), "independent", GUARANTEE, checkpoint=folder)
    before = happened[: happened.index("draw")]
    assert before[-3:] == ["file", "run.json", "folder"]
    secret = bytes.fromhex(json.loads((folder / "run.json").read_bytes())["secret"])
    assert len(secret) == 32


def test_a_damaged_secret_is_no_secret(unfinished: Path) -> None:
    """Another secret would be other noise: one digit changed, dropped or added is a refusal."""
    content = json.loads((unfinished / "run.json").read_bytes())
    secret = content["secret"]
    other = "0" if secret[5] != "0" else "1"
    for damaged in (secret[:5] + other + secret[6:], secret[:-2], secret + "00", "", "zz" * 32, None, 7):
        (unfinished / "run.json").write_text(json.dumps({**content, "secret": damaged}))
        with raises(CheckpointError, reason="edited"):
            us.fit(people(), "independent", GUARANTEE, checkpoint=unfinished, resume=True)
    (unfinished / "run.json").write_text(json.dumps(content))
    us.fit(people(), "independent", GUARANTEE, checkpoint=unfinished, resume=True)


def _killed(*arguments: object) -> None:
    raise Killed


# ---------------------------------------------------------------------------------------------------------- which run


@pytest.mark.parametrize(
    "values",
    [
        pa.array([datetime.time(1, 2, 3, micros) for micros in range(99)]),
        pa.array([datetime.time(1, 2, second) for second in range(59)], pa.time32("s")),
        pa.array([pa.MonthDayNano([month, 2, 3]) for month in range(99)]),
        pa.array([decimal.Decimal(cents) / 100 for cents in range(99)]),
        pa.array([datetime.timedelta(days=days) for days in range(99)]),
    ],
    ids=lambda values: str(values.type),
)
def test_the_digest_of_a_table_follows_from_its_values_of_any_type(values: pa.Array) -> None:
    """And not from where Python keeps them, which differs each time that they are read."""
    keep_apart, digests = [], set()
    for _ in range(4):
        digests.add(table_digest(PrivateTable(pa.table({"x": values})), b"k" * 32))
        keep_apart.append([object() for _ in range(1001)])
    assert len(digests) == 1
    assert table_digest(PrivateTable(pa.table({"x": values[::-1]})), b"k" * 32) not in digests


def test_the_digest_of_a_table_sees_values_types_names_order_and_nulls() -> None:
    key = b"k" * 32
    table = people(50)
    digest = table_digest(PrivateTable(table), key)
    age = table["age"].to_pylist()
    others = [
        table.set_column(0, "age", pa.array([*age[:-1], age[-1] + 1])),
        table.set_column(0, "age", pa.array([*age[:-1], None])),
        table.set_column(0, "age", pa.array([None, *age[1:]])),
        table.set_column(0, "age", pa.array(age, pa.int32())),
        table.rename_columns(["years", "region", "member"]),
        table.select(["region", "age", "member"]),
        table.take(list(range(49, -1, -1))),
        table.slice(0, 49),
        table.slice(1),
    ]
    assert (
        len(
            {
                digest,
                table_digest(PrivateTable(table), b"l" * 32),
                *(table_digest(PrivateTable(other), key) for other in others),
            }
        )
        == 11
    )
    places = [pa.table({"a": pa.array(values)}) for values in ([1, 1, None], [1, None, 1])]
    assert table_digest(PrivateTable(places[0]), key) != table_digest(PrivateTable(places[1]), key)
    chunked = pa.concat_tables([table.slice(0, 7), table.slice(7)])
    assert table_digest(PrivateTable(chunked), key) == digest
    for cuts in ([7], [1, 2, 49]):
        batches = [table.slice(start, stop - start) for start, stop in itertools.pairwise([0, *cuts, 50])]
        assert table_digest(PrivateTable(batches), key) == digest


def test_what_lies_under_a_null_does_not_count() -> None:
    mask = pa.py_buffer(np.packbits([1, 0, 1], bitorder="little").tobytes())
    tables = [
        pa.table({"a": pa.Array.from_buffers(pa.int64(), 3, [mask, pa.py_buffer(np.array([1, hidden, 3]).tobytes())])})
        for hidden in (2, 9)
    ]
    assert table_digest(PrivateTable(tables[0]), b"k") == table_digest(PrivateTable(tables[1]), b"k")


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    """The checkpoint of a run that was killed after a draw."""
    folder = tmp_path / "checkpoint"
    with pytest.raises(Killed):
        us.fit(people(), "independent", GUARANTEE, progress=kill_at(0.5), checkpoint=folder)
    assert files_of(folder).keys() == {"run.json"}
    return folder


def _one_cell_changed(table: pa.Table) -> pa.Table:
    age = table["age"].to_pylist()
    return table.set_column(0, "age", pa.array([*age[:-1], age[-1] - 1]))


def test_resume_is_refused_to_every_other_run(unfinished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Table, schema, method, guarantee, binning, target, seed and versions: each alone is enough."""
    schema = us.Schema.draft(people().schema)
    declared = dataclasses.replace(
        schema, columns=(us.Column(name="age", kind="integer", bounds=(18, 90)), *schema.columns[1:])
    )
    others: dict[str, tuple[str, dict]] = {
        "table": ("the table differs", {"table": _one_cell_changed(people())}),
        "schema": ("the schema differs", {"schema": declared}),
        "setting": ("the method differs", {"method": "independent(smoothing=0.25)"}),
        "method": ("method differs .was independent, is now mst", {"method": "mst"}),
        "epsilon": ("epsilon differs .was 0.3, is now 0.2", {"guarantee": us.Guarantee(0.2, 1e-6)}),
        "delta": ("the delta differs", {"guarantee": us.Guarantee(0.3, 1e-7)}),
        "binning": ("the binning differs", {"binning": us.Binning(max_bins=8)}),
        "target": ("the schema differs", {"target": "member"}),
        "seed": ("the seed differs", {"seed": 1}),
        "library": ("the form of the table differs", {"table": people().to_pandas()}),
    }
    before = files_of(unfinished)
    for what, (words, change) in others.items():
        arguments = {"table": people(), "method": "independent", "guarantee": GUARANTEE, **change}
        with pytest.raises(CheckpointError, match=words):
            us.fit(**arguments, checkpoint=unfinished, resume=True)
        assert files_of(unfinished) == before, what
    others_versions = {
        "understudy.run.environment.__version__": "0.0",
        "importlib.metadata.version": lambda name: "0.0",
    }
    for (place, value), name in zip(others_versions.items(), ("understudy", "dp-accounting"), strict=True):
        with monkeypatch.context() as patch:
            patch.setattr(place, value)
            with pytest.raises(CheckpointError, match=f"version of {name} differs"):
                us.fit(people(), "independent", GUARANTEE, checkpoint=unfinished, resume=True)
    release = us.fit(people(), "independent", GUARANTEE, checkpoint=unfinished, resume=True)
    assert release.statement.epsilon <= 0.3


def test_an_unfinished_run_is_neither_overwritten_nor_invented(unfinished: Path, tmp_path: Path) -> None:
    with raises(CheckpointError, reason="exists"):
        us.fit(people(), "independent", GUARANTEE, checkpoint=unfinished)
    with raises(CheckpointError, reason="missing"):
        us.fit(people(), "independent", GUARANTEE, checkpoint=tmp_path / "none", resume=True)
    with raises(ConfigError, setting="checkpoint"):
        us.fit(people(), "independent", GUARANTEE, resume=True)
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "thesis.tex").touch()
    with raises(CheckpointError, reason="exists"):
        us.fit(people(), "independent", GUARANTEE, checkpoint=tmp_path / "documents")
    assert (tmp_path / "documents" / "thesis.tex").exists()


def test_a_run_goes_on_in_one_process_at_a_time(unfinished: Path) -> None:
    lock = checkpoints._lock(unfinished)
    with raises(CheckpointError, reason="in use"):
        us.fit(people(), "independent", GUARANTEE, checkpoint=unfinished, resume=True)
    checkpoints._unlock(lock)
    us.fit(people(), "independent", GUARANTEE, checkpoint=unfinished, resume=True)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX systems")
def test_a_checkpoint_is_its_owners_alone(unfinished: Path) -> None:
    """Whatever the mask says; and one that others could read or write is not trusted."""
    folder = unfinished.with_name("open")
    mask = os.umask(0)
    try:
        with pytest.raises(Killed):
            us.fit(people(), "independent", GUARANTEE, progress=kill_at(0.5), checkpoint=folder)
    finally:
        os.umask(mask)
    with Checkpoint.open(unfinished.with_name("slots"), {}, {}) as checkpoint:
        slot = Slot(checkpoint.folder, 1, 0.0)
        slot.offer({"a": jnp.zeros(3)}, [{"a": jnp.ones(3)}])
        checkpoint.note_release("digest")
        for place in (folder, unfinished, checkpoint.folder):
            assert stat.S_IMODE(place.stat().st_mode) == 0o700
            assert {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()} == {0o600}
        assert len(files_of(checkpoint.folder)) == 4
    folder.chmod(0o750)
    with raises(CheckpointError, reason="open"):
        us.fit(people(), "independent", GUARANTEE, checkpoint=folder, resume=True)


def test_a_refused_run_leaves_no_checkpoint(tmp_path: Path) -> None:
    """Neither one that was refused before its first draw, nor one that would be refused again."""

    def refused(done: float, now: str) -> None:
        raise ConfigError("diverged")

    for error, method in ((ConfigError, "independent"), (ConfigError, "dpgan(steps=0)")):
        with pytest.raises(error):
            us.fit(people(), method, GUARANTEE, progress=refused, checkpoint=tmp_path / "checkpoint")
        assert not (tmp_path / "checkpoint").exists()


def test_a_run_that_charged_keeps_its_checkpoint(tmp_path: Path) -> None:
    """However early it is killed, also when it was resumed; one that was refused before any charge leaves none."""
    folder = tmp_path / "checkpoint"

    def fit(**how: Any) -> None:
        us.fit(people(), "independent", GUARANTEE, checkpoint=folder, **how)

    with pytest.raises(us.UnderstudyError):
        us.fit(people(), "independent(smoothing=-1)", GUARANTEE, checkpoint=folder)
    assert not folder.exists()
    for how in ({}, {"resume": True}):
        with killed_before_draw(0), pytest.raises(Killed):
            fit(**how)
        assert folder.exists()


def test_the_end_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint outlives `fit`, is deleted by `save`, and nothing of it is in the release."""
    folder, place = tmp_path / "checkpoint", tmp_path / "release"
    release = us.fit(people(), "independent", GUARANTEE, checkpoint=folder)
    content = json.loads((folder / "run.json").read_bytes())
    secret = bytes.fromhex(content["secret"])
    assert copy.deepcopy(release).checkpoint is None
    with monkeypatch.context() as patch:  # a kill when the release is in its place
        patch.setattr(Checkpoint, "delete", _killed)
        with pytest.raises(Killed):
            release.save(place)
    assert folder.exists()
    written = files_of(place)
    us.fit(people(), "independent", GUARANTEE, checkpoint=folder, resume=True).save(place, force=True)
    assert files_of(place) == written
    assert not folder.exists()
    secrets = [secret, content["secret"].encode(), content["check"].encode(), content["tables"]["table"].encode()]
    assert not any(secret in data for secret in secrets for data in written.values())
    release.save(tmp_path / "copy")  # once more, without a checkpoint


def test_a_result_that_was_reached_is_handed_out_and_never_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows may have been sampled from it: a second computation, with other arithmetic, would be a second release."""
    table = pa.table({"a": ["x", "y"] * 50})
    schema = us.Schema(columns=(us.Column(name="a", kind="categorical", categories=("x", "y"), closed=True),), rows=100)

    def run(**how: Any) -> us.Release:
        return us.fit(table, "independent", us.Guarantee(1.0), schema=schema, checkpoint=tmp_path / "run", **how)

    first = run()
    monkeypatch.setattr(Independent, "fit", None)  # nothing is fitted the second time
    second = run(resume=True)
    assert second.statement == first.statement
    second.save(tmp_path / "release")
    assert not (tmp_path / "run").exists()
    assert second.to_files() == first.to_files()


@pytest.mark.parametrize("what", ["flags", "cores", "precision"])
def test_other_arithmetic_is_another_run(unfinished: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    with contextlib.ExitStack() as stack:
        if what == "flags":
            monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
        elif what == "cores":
            monkeypatch.setattr("understudy.run.environment.num_cores", lambda: 999)
        else:
            stack.enter_context(jax.default_matmul_precision("highest"))
        with raises(CheckpointError, reason="other run"):
            us.fit(people(), "independent", GUARANTEE, checkpoint=unfinished, resume=True)


def test_a_checkpoint_does_not_lie_inside_a_release(tmp_path: Path) -> None:
    (tmp_path / "release.json").write_text("{}")
    with raises(CheckpointError, reason="name"):
        us.fit(pa.table({"a": [1]}), "independent", us.Guarantee(1.0), checkpoint=tmp_path / "run")


def test_saving_deletes_no_later_run(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    first = us.fit(people(), "independent", GUARANTEE, checkpoint=folder)
    shutil.rmtree(folder)
    us.fit(people(), "independent", GUARANTEE, checkpoint=folder)
    before = files_of(folder)
    first.save(tmp_path / "release")
    assert files_of(folder) == before


@pytest.mark.parametrize("left", [(), ("released.txt",), ("training-1.safetensors", "run.json.part")])
def test_a_kill_while_a_run_begins_or_ends_leaves_nothing_to_resume(tmp_path: Path, left: tuple[str, ...]) -> None:
    """What came of a deleted checkpoint must not be taken for a run: its release is out."""
    folder = tmp_path / "checkpoint"
    folder.mkdir(mode=0o700)
    for name in left:
        (folder / name).write_bytes(b"left over")
    with raises(CheckpointError, reason="missing"):
        us.fit(people(), "independent", GUARANTEE, checkpoint=folder, resume=True)
    us.fit(people(), "independent", GUARANTEE, checkpoint=folder).save(tmp_path / "release")
    assert not folder.exists()


# ---------------------------------------------------------------------------------------------------- the same result


@contextlib.contextmanager
def killed_before_draw(number: int) -> Iterator[None]:
    """Kills a run when it asks for this draw, counted from 0."""
    bits = NoiseSource._next

    def limited(self: NoiseSource, *draw: Any) -> BitStream:
        if self.num_draws == number:
            raise Killed
        return bits(self, *draw)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NoiseSource, "_next", limited)
        yield


TRAINING = f"dpgan(steps=40, sampling_rate=0.25, {NETS})"
FUZZED = [
    "mst",
    "aim(max_rounds=4)",
    "mwem(rounds=3)",
    "gem(steps=2, components=20, width=8, num_selections=3)",
    TRAINING,
]


def released(place: Path, method: str, **how: Any) -> dict[str, bytes]:
    """The files of the release, as they would be saved."""
    return us.fit(people(), method, GUARANTEE, checkpoint=place, **how).to_files()


def stopped_before(draw: int, place: Path, method: str) -> bool:
    """Whether the run was killed there; else it came to its end before."""
    with killed_before_draw(draw):
        try:
            released(place, method)
        except Killed:
            return True
    return False


def resumed_copies_agree(folder: Path, method: str) -> dict[str, bytes]:
    """Resumes the run and a copy of its folder, and demands the same bytes."""
    copy = folder.with_name(f"{folder.name}-copy")
    shutil.copytree(folder, copy)
    first, second = (released(place, method, resume=True) for place in (folder, copy))
    assert first == second
    return first


@pytest.mark.parametrize("draw", [2, 7, 11])
def test_copies_of_a_killed_run_have_one_release(tmp_path: Path, draw: int) -> None:
    """Unseeded, killed after its counts, before its choice and near its end."""
    assert stopped_before(draw, tmp_path / "run", "mst")
    resumed_copies_agree(tmp_path / "run", "mst")


@pytest.mark.slow
@pytest.mark.parametrize("method", FUZZED)
def test_copies_of_a_run_killed_before_any_draw_have_one_release(tmp_path: Path, method: str) -> None:
    """And once more when the resumed run is killed at a later draw, copied and resumed again."""
    for draw in range(1, 200):
        folder = tmp_path / f"run-{draw}"
        if not stopped_before(draw, folder, method):
            break
        later = tmp_path / f"later-{draw}"
        shutil.copytree(folder, later)
        expected = resumed_copies_agree(folder, method)
        with killed_before_draw(draw + 2), contextlib.suppress(Killed):
            released(later, method, resume=True)
        assert resumed_copies_agree(later, method) == expected
    assert draw > 4


@pytest.mark.parametrize(
    ("method", "share"), [("mst", 0.6), ("mst", 2.0), pytest.param(TRAINING, 0.6, marks=pytest.mark.slow)]
)
def test_a_checkpoint_that_lost_something_has_the_same_release_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, share: float
) -> None:
    """Each file deleted, emptied, cut and with a byte changed: the same bytes or a refusal, never another release.

    For a run that was killed on its way, and (beyond 1) for one whose result was not yet saved.
    """
    monkeypatch.setenv(checkpoints.SECONDS, "0")
    folder, outcomes = tmp_path / "run", []
    with contextlib.suppress(Killed):
        released(folder, method, progress=kill_at(share))
    assert (folder / "release.json").exists() is (share > 1)
    shutil.copytree(folder, tmp_path / "whole")
    expected = released(tmp_path / "whole", method, resume=True)
    for path in sorted(folder.iterdir()):
        for number, left in enumerate(damages(path.read_bytes())):
            damaged = tmp_path / f"{path.name}-{number}"
            shutil.copytree(folder, damaged)
            if left is None:
                (damaged / path.name).unlink()
            else:
                (damaged / path.name).write_bytes(left)
            try:
                found = released(damaged, method, resume=True)
            except UnderstudyError:
                outcomes.append("refused")
            else:
                assert found == expected, (path.name, number)
                outcomes.append("same")
    assert "refused" in outcomes


def damages(whole: bytes) -> Iterator[bytes | None]:
    """Nothing left (None: no file), a part, and one bit changed in several places."""
    yield None
    for share in (0, 0.1, 0.5, 0.9):
        yield whole[: int(share * len(whole))]
    yield whole[:-1]
    for at in (*range(9, 90, 20), len(whole) // 9, len(whole) // 2, len(whole) - 3):
        yield whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]


@pytest.mark.parametrize(
    "method", ["mst", "aim(max_rounds=4)", "mwem(rounds=3)", "gem(steps=2, components=20, width=8, num_selections=3)"]
)
def test_a_marginal_method_killed_anywhere_has_the_release_of_a_whole_run(method: str, tmp_path: Path) -> None:
    """Seeded, so that a run that was never killed can be compared too, with its list of measured marginals."""
    us.fit(people(), method, GUARANTEE, seed=7).save(tmp_path / "release")
    assert json.loads((tmp_path / "release" / "certificate.json").read_text())["measured_marginals"]
    for draw in (1, 4, 9):
        killed = tmp_path / f"killed-{draw}"
        with killed_before_draw(draw), pytest.raises(Killed):
            us.fit(people(), method, GUARANTEE, seed=7, checkpoint=killed)
        us.fit(people(), method, GUARANTEE, seed=7, checkpoint=killed, resume=True).save(tmp_path / f"release-{draw}")
        assert files_of(tmp_path / f"release-{draw}") == files_of(tmp_path / "release")


@pytest.mark.slow
def test_an_unseeded_training_killed_on_its_way_has_one_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three runs with the same secret: from its training's beginning, from a saved state, and killed once more."""
    monkeypatch.setenv(checkpoints.SECONDS, "0")
    folders = [tmp_path / name for name in ("late", "early", "twice")]
    with pytest.raises(Killed):
        us.fit(people(), SMALL, GUARANTEE, progress=kill_at(0.6), checkpoint=folders[0])
    assert (folders[0] / "training-1.safetensors").exists()
    for folder in folders[1:]:
        shutil.copytree(folders[0], folder)
    (folders[1] / "training-1.safetensors").unlink()
    with pytest.raises(Killed):
        us.fit(people(), SMALL, GUARANTEE, progress=kill_at(0.9), checkpoint=folders[2], resume=True)
    starts: list[float] = []
    for folder in folders:
        shown: list[float] = []
        release = us.fit(
            people(),
            SMALL,
            GUARANTEE,
            checkpoint=folder,
            resume=True,
            progress=lambda share, now, shown=shown: shown.append(share),
        )
        starts.append(shown[1])  # the first of the training
        assert [query.key for query in release.statement.queries].count("critic") == 1
        release.save(folder.with_suffix(".release"))
    assert starts == [1 / 2, 0, 3 / 4]
    late, early, twice = (files_of(folder.with_suffix(".release")) for folder in folders)
    assert late == early == twice


AUTOGAN = f"autogan(steps=24, sampling_rate=0.25, autoencoder_steps=24, autoencoder_sampling_rate=0.25, {NETS})"
CHUNKED = {
    "dpgan": (TRAINING, 0.6),
    "dpctgan": (f"dpctgan(steps=40, sampling_rate=0.25, {NETS})", 0.6),
    "pategan": (f"pategan(teachers=4, iterations=20, {NETS})", 0.6),
    "patectgan": (f"patectgan(teachers=4, iterations=12, {NETS})", 0.6),
    "bayesgan": (f"bayesgan(steps=40, sampling_rate=0.1, generator_chains=2, {NETS}, generator_batch=16)", 0.6),
    "autogan, the autoencoder": (AUTOGAN, 0.4),
    "autogan, the critic": (AUTOGAN, 0.8),
}
"""Methods, and when they are killed: one of them in either of its two trainings."""


@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=pytest.mark.slow if name == "bayesgan" else pytest.mark.long) for name in CHUNKED],
)
def test_copies_of_a_training_that_was_killed_between_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """One release from all copies, charged and reserved once; refused to another table and to another epsilon."""
    monkeypatch.setenv(checkpoints.SECONDS, "0")
    monkeypatch.setattr("understudy.training.loop.SLOTS_AT_ONCE", 1)  # chunks of one iteration
    book = us.BudgetBook.create(tmp_path / "people.book", epsilon=3, delta=1e-4)
    folder, kinds = tmp_path / "run", {"age": "integer", "region": "categorical", "member": "categorical"}
    columns = {name: {"kind": kind} for name, kind in kinds.items()}
    run: dict[str, Any] = {"table": people(), "method": CHUNKED[method][0], "guarantee": GUARANTEE}
    run |= {"schema": {"table": {"rows": 300}, "columns": columns}, "book": book.path}
    with pytest.raises(Killed):
        us.fit(**run, checkpoint=folder, progress=kill_at(CHUNKED[method][1]))
    trainings = 2 if method == "autogan, the critic" else 1
    assert len([*folder.glob("training-*")]) == trainings, "it was killed while it trained"
    copies = [tmp_path / name for name in ("first", "second", "before any state")]
    for copied in copies:
        shutil.copytree(folder, copied)
    reserved = book.path.read_bytes()
    for state in copies[2].glob("training-*"):
        state.unlink()
    others: list[tuple[dict, type[UnderstudyError]]] = [
        ({"table": _one_cell_changed(people())}, CheckpointError),
        ({"table": people().slice(1)}, CheckpointError),
        ({"guarantee": us.Guarantee(0.31, 1e-6)}, us.BookError),
    ]
    for change, error in others:
        with raises(error, reason="other run"):
            us.fit(**{**run, **change}, checkpoint=folder, resume=True)
    planned = us.plan(run["schema"], run["method"], GUARANTEE)
    found = []
    for place in (folder, *copies):
        book.path.write_bytes(reserved)  # the copy of a checkpoint goes with the copy of its book
        release = us.fit(**run, checkpoint=place, resume=True)
        assert [query.key for query in release.statement.queries] == [query.key for query in planned]
        found.append(release.to_files()["model.safetensors"])  # certificates name the entry of the book
        assert len(us.BudgetBook.open(book.path).reservations) == 1
    assert all(each == found[0] for each in found[1:])


def small_training(
    slot: Slot | None, progress: Callable[[float, str], None] | None
) -> tuple[State, list[TrainingCheckpoint]]:
    settings = Settings(
        blocks=one_hot_blocks((2, 3)), batch_size=10, latent=2, generator_widths=(8, 8), critic_widths=(4,)
    )
    codes = jnp.asarray(np.random.default_rng(0).integers(0, 2, (40, 1, 2)))
    return train(
        settings,
        ChargedSteps(PrivateUnits(codes, jnp.ones((40, 1), dtype=bool)), jnp.float32(1.0), 0.25, 24),
        Hyperparameters.of(1e-2, 1e-2, 1.0),
        jax.random.key(0),
        network_key=jax.random.key(1),
        options=RunOptions(keep_every=4, chunk=2, slot=slot, progress=progress),
    )


class Seldom(Slot):
    """Saves between the steps at which states are kept."""

    def offer(self, state: State, kept: Sequence[TrainingCheckpoint] = (), *, now: bool = False) -> None:  # type: ignore[override]  # of these tests' own state
        if int(state.iteration) % 6 == 0:
            super().offer(state, kept, now=now)


def test_what_a_training_keeps_survives(tmp_path: Path) -> None:
    """State and trajectory, leaf by leaf and bit by bit, after kills at several steps."""
    tmp_path.chmod(0o700)
    whole = small_training(None, None)
    for share in (0.4, 0.7, 0.9):
        with pytest.raises(Killed):
            small_training(Seldom(tmp_path, 1, 0.0), kill_at(share))
    resumed = small_training(Seldom(tmp_path, 1, 0.0), None)
    assert len(whole[1]) == len(resumed[1]) == 6
    assert [int(state.iteration) for state in resumed[1]] == [4, 8, 12, 16, 20, 24]
    for first, second in zip(jax.tree_util.tree_leaves(whole), jax.tree_util.tree_leaves(resumed), strict=True):
        assert np.asarray(first).tobytes() == np.asarray(second).tobytes()


def test_states_are_written_on_a_schedule_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    slot, writes = Slot(tmp_path, 1, 60.0), []
    monkeypatch.setattr(checkpoints, "_write", lambda path, data: writes.append(now[0]))
    for second in range(0, 200, 7):
        now[0] = float(second)
        slot.offer({"a": jnp.zeros(1)})
    assert writes == [63.0, 126.0, 189.0]


def test_a_damaged_state_or_one_of_another_shape_is_refused(tmp_path: Path) -> None:
    Slot(tmp_path, 1, 0.0).offer({"a": jnp.zeros(3)})
    with pytest.raises(CheckpointError):
        Slot(tmp_path, 1, 0.0).load({"a": jnp.zeros(4)})
    whole = (tmp_path / "training-1.safetensors").read_bytes()
    for at in (
        whole.index(b'"kept":"0"') + len('"kept":"'),
        len(whole) - 1,
    ):  # how many states are kept, and a number of this one
        (tmp_path / "training-1.safetensors").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(CheckpointError):
            Slot(tmp_path, 1, 0.0).load({"a": jnp.zeros(3)})
    (tmp_path / "training-1.safetensors").write_bytes(b"torn")
    with pytest.raises(CheckpointError):
        Slot(tmp_path, 1, 0.0).load({"a": jnp.zeros(3)})


# ------------------------------------------------------------------------------------------------ the command is killed


def started(place: Path, arguments: list[str]) -> subprocess.Popen:
    code = "import sys; from understudy.cli import run; sys.exit(run(sys.argv[1:]))"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=place,
        env={**os.environ, checkpoints.SECONDS: "0"},
        stderr=subprocess.PIPE,
        text=True,
    )


def killed_when(process: subprocess.Popen, moment: Callable[[], bool]) -> None:
    limit = time.monotonic() + 120
    while not moment():
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < limit
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def has_bytes(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


@pytest.mark.parametrize("guarantee", [["--not-private"], pytest.param(["--epsilon", "0.3"], marks=pytest.mark.slow)])
def test_a_command_killed_while_counting_and_while_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarantee: list[str]
) -> None:
    """SIGKILL twice, then to the end: file by file the release of a run that nobody killed."""
    pyarrow.csv.write_csv(people(), tmp_path / "people.csv")
    command = ["fit", "people.csv", *guarantee, "--method", SMALL, "--seed", "5", "-q"]
    table = str(tmp_path / "people.csv")
    assert run(["fit", table, *command[2:], "-o", str(tmp_path / "whole")]) == 0
    assert not (tmp_path / "whole.checkpoint").exists()
    folder = tmp_path / "killed.checkpoint"
    killed_when(started(tmp_path, [*command, "-o", "killed"]), lambda: has_bytes(folder / "run.json"))
    assert not (folder / "training-1.safetensors").exists()
    begun = (folder / "run.json").read_bytes()
    killed_when(
        started(tmp_path, [*command, "-o", "killed", "--resume"]), lambda: has_bytes(folder / "training-1.safetensors")
    )
    assert (folder / "run.json").read_bytes() == begun
    assert not (tmp_path / "killed").exists()
    assert run(["fit", table, *command[2:], "-o", str(tmp_path / "killed")]) == 2  # not without --resume
    monkeypatch.chdir(tmp_path)
    assert run([*command, "-o", "killed", "--resume"]) == 0
    assert not folder.exists()
    assert files_of(tmp_path / "killed") == files_of(tmp_path / "whole")


def test_a_command_killed_between_saving_and_deleting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Resumed, it finds its own release in place and needs no --force; another's stays."""
    pyarrow.csv.write_csv(people(), tmp_path / "people.csv")
    out = tmp_path / "out"
    # At an epsilon much smaller, one run in thirteen keeps no category at all and two such releases are the same file.
    command = ["fit", str(tmp_path / "people.csv"), "--epsilon", "3", "--method", "independent", "-q", "-o", str(out)]
    assert run([*command, "--resume"]) == 2
    assert "nothing to resume" in capsys.readouterr().err
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "delete", _killed)
        with pytest.raises(Killed):
            run(command)
    assert out.exists()
    before = files_of(out)
    kept = tmp_path / "kept"
    shutil.copytree(f"{out}.checkpoint", kept)
    assert run([*command, "--resume"]) == 0
    assert files_of(out) == before
    assert not Path(f"{out}.checkpoint").exists()
    assert run([*command, "--resume"]) == 2
    assert "nothing to resume" in capsys.readouterr().err
    assert run([*command, "--force"]) == 0  # another release in its place: no longer that run's
    other = files_of(out)
    assert other != before
    shutil.copytree(kept, f"{out}.checkpoint")
    assert run([*command, "--resume"]) == 2
    assert "exists" in capsys.readouterr().err
    assert files_of(out) == other


def test_ctrl_c_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pyarrow.csv.write_csv(people(), tmp_path / "people.csv")
    table, out = str(tmp_path / "people.csv"), str(tmp_path / "fake.csv")
    command = ["synth", table, "--epsilon", "0.3", "--method", "independent", "-o", out]

    def interrupted(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("understudy.synthesizers.independent.Independent.fit", interrupted)
        assert run(command) == 130
    assert "--resume" in capsys.readouterr().err
    assert run(command) == 2
    assert run([*command, "--force"]) == 2  # --force is for the output, not for another run's noise
    assert "unfinished run" in capsys.readouterr().err
    assert run([*command, "--resume"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "people.csv",
        "fake.csv",
        "fake.csv.datapackage.json",
        "fake.release",
    }


def test_too_little_memory_is_said_with_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*arguments: object) -> None:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 99999 bytes")

    monkeypatch.setattr("understudy.training.gan.cached_jit", lambda *settings: exhausted)
    with pytest.raises(TrainingError):
        small_training(None, None)
