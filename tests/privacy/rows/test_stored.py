"""Rows of large tables, held where they are: the same steps as with rows arranged beforehand, and nothing else read."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from jaxtyping import Array, PRNGKeyArray

import understudy as us
from understudy.privacy.accounting.events import SubsampledGaussian
from understudy.privacy.accounting.ledger import Guarantee, Ledger, Query
from understudy.privacy.gradients.charges import charge_dpsgd
from understudy.privacy.gradients.clipping import Clip, RowLoss
from understudy.privacy.gradients.dpsgd import ChargedSteps, noisy_gradient, sample_batches
from understudy.privacy.gradients.poisson import Batches
from understudy.privacy.noise.source import SeededNoise
from understudy.privacy.rows import stored as held
from understudy.privacy.rows.rows import PrivateRows, PrivateUnits, RowEncoder
from understudy.privacy.rows.stored import StoredUnits
from understudy.schema import Domain

DOMAIN = Domain(names=("a", "b"), sizes=(3, 400), num_rows=100)
KEYS = jax.random.split(jax.random.key(1), 3)


def rows_of(num_rows: int, slots: int = 1, tmp_path: Path | None = None) -> PrivateRows:
    generator = np.random.default_rng(num_rows)
    codes = np.asfortranarray(generator.integers(0, (3, 400), (num_rows, 2)).astype(np.uint16))
    if tmp_path is not None:
        codes.tofile(tmp_path / "codes")
        codes.T.tofile(tmp_path / "codes")
        codes = np.memmap(tmp_path / "codes", np.uint16, "r", shape=(num_rows, 2), order="F")
    units = None if slots == 1 else 3 * generator.integers(0, 40, num_rows)
    if units is not None:  # at most `slots` rows of each
        kept = np.asarray([(units[:at] == unit).sum() < slots for at, unit in enumerate(units)], dtype=bool)
        codes, units = codes[kept], units[kept]
    positions = generator.random(codes.shape)
    return PrivateRows(codes, DOMAIN, max_rows_per_unit=slots, units=units, positions=lambda: positions)


def charged_steps(rows: PrivateRows, layout: RowEncoder | None = None) -> ChargedSteps:
    ledger = Ledger(Guarantee(50.0, 1e-6), noise=SeededNoise(0), max_rows_per_unit=rows.max_rows_per_unit)
    return charge_dpsgd(rows, Query("s", "steps", SubsampledGaussian(0.25, 20.0, 3)), ledger, layout)


@RowLoss
def row_loss(network: Array, row: Array, fake: Array | None, key: PRNGKeyArray) -> Array:
    return (row.astype(jnp.float32) / 100) @ network


@jax.jit
def gradients(steps: ChargedSteps, batches: Any) -> Array:
    """The noisy gradient of every batch."""
    network, clip = jnp.asarray([1.0, 2.0]), Clip.flat(0.5)
    return jax.lax.map(
        lambda batch: noisy_gradient(steps, row_loss, network, clip, batch=batch, key=KEYS[0]).gradient, batches
    )


def train(rows: PrivateRows, chunk: int | None = None) -> np.ndarray:
    steps = charged_steps(rows)
    return np.asarray(gradients(steps, sample_batches(steps, KEYS, end=3, batch_size=20, chunk=chunk)))


class Noted:
    """An encoder that notes how many rows it was given: codes, positions and a random number as features."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def encode(self, codes: np.ndarray, positions: np.ndarray, key: PRNGKeyArray) -> np.ndarray:
        self.rows.append(len(codes))
        uniform = np.random.default_rng(np.asarray(jax.random.key_data(key))).random((len(codes), 1))
        return np.concatenate([codes, positions, uniform], axis=1).astype(np.float32)


def carried(rows: PrivateRows, keys: PRNGKeyArray = KEYS, layout: RowEncoder | None = None) -> tuple[np.ndarray, ...]:
    """The features of each batch and which units are in it."""
    steps = charged_steps(rows, layout or Noted())
    batches = sample_batches(steps, keys, end=3, batch_size=len(rows._codes) // 4)
    features, present = units_in(batches)
    return features, present & np.asarray(batches._taken)[..., None], np.asarray(batches._indices)


def units_in(batches: Batches) -> tuple[np.ndarray, np.ndarray]:
    assert batches._units is not None
    rows, present = batches._units
    return np.asarray(rows), np.asarray(present)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table is large."""
    monkeypatch.setattr(held, "MAX_BYTES", 0)


@pytest.mark.parametrize(
    ("num_rows", "slots", "chunk"), [(90, 1, None), (90, 1, 16), (100, 3, None), (0, 1, None), (0, 2, 16)]
)
def test_steps_are_those_of_arranged_rows(
    num_rows: int, slots: int, chunk: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit: which of the two it is does not change what is learned from codes."""
    rows = rows_of(num_rows, slots)
    arranged = train(rows, chunk)
    monkeypatch.setattr(held, "MAX_BYTES", 0)
    np.testing.assert_array_equal(train(rows, chunk), arranged)
    assert num_rows == 0 or len(np.unique(arranged)) == 6


@pytest.mark.usefixtures("small")
def test_rows_of_a_mapped_file_are_those_in_memory(tmp_path: Path) -> None:
    np.testing.assert_array_equal(train(rows_of(90, tmp_path=tmp_path)), train(rows_of(90)))


def test_large_is_what_the_public_number_of_rows_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a table that is declared to have 100 rows: 400 bytes of codes, whatever rows it has."""
    for num_rows in (0, 5, 3000):
        monkeypatch.setattr(held, "MAX_BYTES", 400)
        assert isinstance(charged_steps(rows_of(num_rows))._units, PrivateUnits)
        monkeypatch.setattr(held, "MAX_BYTES", 399)
        assert isinstance(charged_steps(rows_of(num_rows))._units, StoredUnits)


@pytest.mark.usefixtures("small")
def test_no_more_rows_are_encoded_than_batches_have_slots() -> None:
    layout = Noted()
    features, _, at = carried(rows_of(900), layout=layout)
    assert sum(layout.rows) == at.size == features.size // 5


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("slots", [1, 3])
def test_features_are_those_of_the_row_alone(slots: int) -> None:
    """Another value of one row changes the features of this row, wherever it is, and no others."""
    one, other = rows_of(200, slots), rows_of(200, slots)
    other._codes[17] = (other._codes[17] + 1) % 3
    (before, real, at), (after, _, _) = carried(one), carried(other)
    if slots == 1:
        np.testing.assert_array_equal(before[real][:, :2], one._codes[at[real[..., 0]]])
        np.testing.assert_allclose(before[real][:, 2:4], one._positions[at[real[..., 0]]], rtol=1e-6)
    changed = (before != after).any(axis=-1) & real
    wanted = (before[..., :2] == one._codes[17]).all(axis=-1) & np.isclose(before[..., 2], one._positions[17, 0])
    np.testing.assert_array_equal(changed, wanted & real)


@pytest.mark.usefixtures("small")
def test_a_run_that_is_cut_gets_the_same_features() -> None:
    """All batches at once, or each on its own: those that a unit's rows get depend on the batch's own key alone."""
    whole, real, _ = carried(rows_of(200))
    for number in range(3):
        part, also, _ = carried(rows_of(200), KEYS[number])
        np.testing.assert_array_equal(part[also], whole[number][real[number]])
    assert len(np.unique(whole[real][:, -1])) == real.sum()  # every row with randomness of its own


@pytest.mark.usefixtures("small")
def test_compiled_programs_hold_no_rows() -> None:
    steps = charged_steps(rows_of(50))
    assert jax.tree_util.tree_leaves(steps._units) == []
    assert repr(steps._units) == "StoredUnits(...)"
    assert all(name.startswith(("_", "tree_")) for name in dir(steps._units))  # opaque, like other private types
    empty = jax.tree_util.tree_map(lambda leaf: leaf, steps)._units
    assert not hasattr(empty, "_codes")


@pytest.mark.usefixtures("small")
def test_an_absent_slot_is_zero() -> None:
    steps = charged_steps(rows_of(100, 3))
    rows, present = units_in(sample_batches(steps, KEYS, end=3, batch_size=20))
    assert not rows[~present].any()
    assert not present.all()


def test_a_fit_on_held_rows_is_that_on_arranged_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole of dpgan, at a sampling rate whose batches are drawn by gaps."""
    generator = np.random.default_rng(0)
    table = pa.table({"x": generator.choice(["a", "b", "c"], 3000), "y": generator.choice(["u", "v"], 3000)})
    columns = {
        "x": {"kind": "categorical", "categories": ["a", "b", "c"]},
        "y": {"kind": "categorical", "categories": ["u", "v"]},
    }
    method = us.DPGAN(steps=4, sampling_rate=0.003, generator_widths=(8,), critic_widths=(8,), latent=4)

    def fit() -> Any:
        schema = {"table": {"rows": 3000}, "columns": columns}
        return us.fit(table, method, epsilon=5.0, schema=schema, seed=3).sample(50, seed=1)

    arranged = fit()
    monkeypatch.setattr(held, "MAX_BYTES", 0)
    assert str(fit()) == str(arranged)
