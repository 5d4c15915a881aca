"""Detectors for training: what one unit adds to a step, who is in a batch, what learns, and with how much noise."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, PRNGKeyArray
from scipy import stats

from tests.audit.detectors import DELTA, Detector, deterministic, refuted, two_sided
from tests.builders import loose_guarantee
from tests.privacy.gradients import test_pate
from tests.privacy.gradients.test_sums import largest_move, midpoint_values, random_values
from tests.synthesizers.test_autogan import BLOCKS, parts
from understudy.audit.bounds import lower_bound
from understudy.privacy.accounting import accountants as accounting
from understudy.privacy.accounting.events import SubsampledGaussian
from understudy.privacy.accounting.ledger import Guarantee, Ledger, Query
from understudy.privacy.gradients import charges
from understudy.privacy.gradients.clipping import Clip, RowLoss
from understudy.privacy.gradients.dpsgd import ChargedSteps, sample_batches
from understudy.privacy.gradients.langevin import Law, Stage
from understudy.privacy.gradients.poisson import Batches, chunk_size
from understudy.privacy.noise.source import SeededNoise
from understudy.privacy.rows import rows
from understudy.privacy.rows.rows import PrivateRows, PrivateUnits
from understudy.schema import Domain
from understudy.training import dpsgd as training
from understudy.training.autoencoder import ReconstructionLoss
from understudy.training.loop import RunOptions
from understudy.training.neural import Autoencoder

WIDTH = 3
Unit = Sequence[Sequence[float]]
"""The features of each of its rows."""
COMMON: list[Unit] = [[(0.25, 0.5, 0.0)], [(-0.125, 0.5, 0.25)], [(0.0, -0.25, 0.5)]]
"""Sums of these are exact in float32."""


@dataclasses.dataclass(frozen=True)
class Lookup:
    """A layout whose features are given."""

    features: np.ndarray

    def encode(self, codes: np.ndarray, positions: np.ndarray, key: PRNGKeyArray) -> np.ndarray:
        return self.features[codes[:, 0]]


def charged_steps(
    units: Sequence[Unit], event: SubsampledGaussian, *, noise: bool = True, book: Ledger | None = None
) -> Any:
    """A training that was charged, of these units; without noise its sums are exact."""
    private, layout = _private_rows(units)
    guarantee = loose_guarantee(1e6) if noise else Guarantee.not_private()
    book = book or Ledger(guarantee, noise=SeededNoise(0), max_rows_per_unit=private.max_rows_per_unit)
    return charges.charge_dpsgd(private, Query("s", "steps", event), book, layout)


def _private_rows(units: Sequence[Unit]) -> tuple[PrivateRows, Lookup]:
    numbers = np.repeat(np.arange(len(units)), [len(unit) for unit in units])
    features = np.asarray([row for unit in units for row in unit], np.float32).reshape(-1, WIDTH)
    codes = np.arange(len(numbers), dtype=np.int32)[:, None]
    domain = Domain(names=("row",), sizes=(max(1, len(numbers)),), num_rows=10)
    most = max((len(unit) for unit in units), default=1)
    return PrivateRows(codes, domain, max_rows_per_unit=most, units=numbers), Lookup(features)


def linear() -> eqx.nn.Linear:
    return eqx.nn.Linear(WIDTH, "scalar", use_bias=False, key=jax.random.key(0))


@RowLoss
def own_row(network: Any, row: Array, fake: Array | None, key: PRNGKeyArray) -> Array:
    """A loss whose gradient is the row itself."""
    return network(row)


def _everybody(steps: ChargedSteps) -> Batches:
    """A batch of all units, as a sampling rate of one gives it."""
    slots = jnp.arange(16)[None]
    assert isinstance(steps._units, PrivateUnits)
    return Batches(slots, slots < len(steps._units._present))


# Programs are kept from one call to the next; planting a defect clears them (`plant.py`).


@functools.cache
def _weight_gradient() -> Any:
    """The gradient of one step on the linear network."""

    def gradient(steps: ChargedSteps, batch: Any, key: PRNGKeyArray) -> Array:
        return training.row_gradient(own_row, linear(), steps, batch, Clip.flat(1.0), key)[0].weight

    return eqx.filter_jit(gradient)


@functools.cache
def _first_weights() -> Any:
    """The first entry of that gradient for each key."""

    def scores(steps: ChargedSteps, batch: Any, keys: PRNGKeyArray) -> Array:
        return jax.lax.map(lambda key: _weight_gradient()(steps, batch, key)[0, 0], keys, batch_size=2000)

    return eqx.filter_jit(scores)


@functools.cache
def _autoencoder_noise() -> Any:
    """The gradient of one step on an autoencoder for each key: noise alone where nobody is in the table."""

    def gradients(steps: ChargedSteps, batch: Any, clip: Clip, keys: PRNGKeyArray) -> Autoencoder:
        loss = RowLoss(ReconstructionLoss(None, BLOCKS))
        return jax.lax.map(lambda key: training.row_gradient(loss, parts(), steps, batch, clip, key)[0], keys)

    return eqx.filter_jit(gradients)


def steps_and_charges() -> list[str]:
    """A training run has the number of steps, the sampling rate and the noise that the ledger records."""
    book, event = Ledger(loose_guarantee(1e6), noise=SeededNoise(0)), SubsampledGaussian(0.25, 1.5, 1000)
    steps = charged_steps(COMMON, event, book=book)
    allowed = SubsampledGaussian(steps.sampling_rate, float(steps.noise_multiplier), steps.num_steps)
    held = [query.event for query in book.queries]
    return [] if held == [allowed] else [f"{allowed} is allowed, and the ledger holds {held}"]


def updates_and_charges() -> list[str]:
    """Every Langevin update has at least the noise that was charged, whatever its step size."""
    private, layout = _private_rows(COMMON)
    book = Ledger(loose_guarantee(1e6), noise=SeededNoise(0))
    schedule, charged = (Stage(3, 1e-4), Stage(3, 10.0)), (1.5, 2.5)
    queries = [Query(f"s{m}", "updates", SubsampledGaussian(0.25, m, 3)) for m in charged]
    law = Law(drift_sensitivity=1.0, temperature=1.0, friction=1.0, momentum=False)
    updates = charges.charge_langevin(private, queries, book, layout, schedule=schedule, law=law, updates_each=1)
    multipliers = np.asarray(updates._schedule.noise_multiplier)
    return [] if np.all(multipliers >= np.repeat(charged, 3)) else ["an update has less noise than was charged"]


# ------------------------------------------------------------------------------------------------- audit of one step

RUNS = 20_000


def audit_training(seed: int, level: float) -> list[str]:
    """Lower bound on epsilon, from the noisy sums of a step with and without a unit, against the claim."""
    multiplier = accounting.calibrate(lambda noise: [SubsampledGaussian(1.0, noise, 1)], epsilon=1.0, delta=DELTA)
    others: list[Unit] = [[(0.0, 0.5, 0.25)]] * 5
    both = []
    for number, units in enumerate((others, [*others, [(50.0, 0.0, 0.0)]])):
        steps = charged_steps(units, SubsampledGaussian(1.0, multiplier, 1))
        keys = jax.random.split(jax.random.key(2 * seed + number), RUNS)
        both.append(np.asarray(_first_weights()(steps, _everybody(steps), keys)))
    found = lower_bound(both[1], both[0], delta=DELTA, confidence=1 - level, seed=seed).epsilon
    return [f"epsilon is at least {found:.3g}, and 1 was charged"] if found > 1 else []


# ------------------------------------------------------------------------------------------------------- sensitivity

FAR = (1000.0, 0.0, 0.0)
NEIGHBOURS: dict[str, tuple[list[Unit], Unit]] = {
    "a unit far from all others": ([[(-3.0, 0.0, 0.0)]] * 5, [FAR]),
    "a unit without a number": ([[(0.25, 0.5, 0.0)]] * 5, [(math.nan, 1.0, 0.0)]),
    "an infinite unit": ([[(0.25, 0.5, 0.0)]] * 5, [(math.inf, 1.0, 0.0)]),
    "a unit of two rows": ([[(-3.0, 0.0, 0.0)] * 2] * 3, [FAR] * 2),
}
"""Units of the table, and one more."""


def sensitivity_of_steps() -> list[str]:
    """How much one unit changes the exact sum of a step: by at most the clip bound."""
    wrong = []
    for name, (others, unit) in NEIGHBOURS.items():
        sums = []
        for units in (others, [*others, unit]):
            steps = charged_steps(units, SubsampledGaussian(1.0, 1.0, 1), noise=False)
            sums.append(np.asarray(_weight_gradient()(steps, _everybody(steps), jax.random.key(0)), np.float64))
        moved = float(np.linalg.norm(sums[1] - sums[0]))
        if not moved <= 1 + 1e-6:
            wrong.append(f"{name} moves a sum by {moved:.3g} clip bounds")
    return wrong


def _sums_of(size: int) -> list[str]:
    wrong = []
    for values in (random_values(size, seed=1), midpoint_values(size, 8192)):
        values[-1] = 5.0  # clipped to the bound
        moved = largest_move(values, chunk_size(size), "bias")
        if not moved <= 1:
            wrong.append(f"one unit of {size} moves a sum by {moved:.5g} clip bounds")
    return wrong


def sensitivity_of_long_sums() -> list[str]:
    """The same in float32 sums over many units, with no tolerance for rounding."""
    return _sums_of(2**18)


# -------------------------------------------------------------------------------------------------- nothing but sums


def _trained(units: Sequence[Unit], options: RunOptions | None = None) -> np.ndarray:
    """The network after three steps of all units, its noise from one key."""
    descent = training.Descent(batch_size=4, learning_rate=0.5, clip_norm=1.0, optimizer="sgd")
    keys = {"batch_key": jax.random.key(5), "noise_key": jax.random.key(6)}
    steps = charged_steps(units, SubsampledGaussian(1.0, 1.0, 3))
    network = training.train_network(linear(), own_row, steps, descent, **keys, options=options, advice="")
    return np.asarray(network.weight)


def steps_beside_sums() -> list[str]:
    """A unit whose gradient is zero changes no sum, so it must not change one bit of the network."""
    before, after = (_trained(units) for units in (COMMON, [*COMMON, [(0.0, 0.0, 0.0)]]))
    return [] if before.tobytes() == after.tobytes() else ["a unit whose gradient is zero changes the network"]


def course_of_training() -> list[str]:
    """The number of steps, and the progress reported, for tables that differ in every row."""
    reports = []
    for scale in (1.0, 100.0):
        said: list[tuple[float, str]] = []
        units = [[[scale * value for value in row] for row in unit] for unit in COMMON]
        progress = RunOptions(chunk=1, progress=lambda done, text, said=said: said.append((done, text)))  # type: ignore[misc]  # a default binds the list of this round
        _trained(units, progress)
        reports.append([(done, text.split(", ")[0]) for done, text in said])
    return [] if reports[0] == reports[1] else ["what is reported of a training depends on the rows"]


# ------------------------------------------------------------------------------------------------------------- noise


def law_of_step_noise(seed: int, level: float) -> list[str]:
    """Variance of the noise on each array of an autoencoder, and on groups of parameters, against the charge."""
    multiplier, bound, runs = 1.5, 0.5, 200
    steps = charged_steps([], SubsampledGaussian(1.0, multiplier, 1))
    steps = eqx.tree_at(lambda it: it._units._rows, steps, jnp.zeros((1, 1, len(BLOCKS)), jnp.int32))
    leaves = jax.tree_util.tree_leaves(eqx.filter(parts(), eqx.is_inexact_array))
    halves = tuple(jnp.full(len(leaf), number % 2) for number, leaf in enumerate(leaves))
    clips = {
        "": (Clip.flat(bound), multiplier * bound),
        "group of ": (Clip(jnp.full(2, bound), halves, "uniform"), multiplier * bound * math.sqrt(2)),
    }
    pvalues = {}
    for what, (clip, stddev) in clips.items():
        keys = jax.random.split(jax.random.key(seed), runs)
        drawn = _autoencoder_noise()(steps, _everybody(steps), clip, keys)
        for name, part in (("encoder", drawn.encoder), ("decoder", drawn.decoder)):
            for number, leaf in enumerate(jax.tree_util.tree_leaves(eqx.filter(part, eqx.is_inexact_array))):
                squares = float(np.sum((np.asarray(leaf, np.float64) / stddev) ** 2))
                pvalues[f"{what}{name} array {number}"] = two_sided(float(stats.chi2.cdf(squares, leaf.size)))
    return refuted(pvalues, level)


# ----------------------------------------------------------------------------------------------------------- batches


def law_of_batches(seed: int, level: float) -> list[str]:
    """Each unit is in a batch at the charged sampling rate and at most once, and batch sizes are binomial."""
    rate, size, num_batches = 0.25, 40, 4000
    steps = charged_steps([[(0.0,) * WIDTH]] * size, SubsampledGaussian(rate, 5.0, num_batches))
    keys = jax.random.split(jax.random.key(seed), num_batches)
    batches = sample_batches(steps, keys, end=num_batches, batch_size=10)
    times = np.zeros((num_batches, size), dtype=np.int64)
    number, *slot = np.nonzero(np.asarray(batches._taken))
    np.add.at(times, (number, np.asarray(batches._indices)[(number, *slot)]), 1)
    if times.max() > 1:
        return [f"a unit is {times.max()} times in one batch"]
    spread = np.sum((times.sum(axis=1) - size * rate) ** 2) / (size * rate * (1 - rate))
    pvalues = {
        "rate": float(stats.binomtest(int(times.sum()), times.size, rate).pvalue),
        "sizes": two_sided(float(stats.chi2.cdf(spread, num_batches))),
    }
    return refuted(pvalues, level)


# -------------------------------------------------------------------------------------------------------- partitions


def law_of_partitions(seed: int, level: float) -> list[str]:
    """Sizes of partitions, those of teachers included, are binomial, and all rows of a unit are in one partition."""
    units, repeats, wrong = 120, 300, []
    unit_of_row = np.repeat(np.arange(units), 2)
    domain = Domain(names=("unit",), sizes=(units,), num_rows=2 * units)
    sizes: dict[str, list[int]] = {"held out": [], "of the first teacher": []}
    for number in range(repeats):
        book = Ledger(Guarantee(1.0, 1e-6), noise=SeededNoise(repeats * seed + number), max_rows_per_unit=2)
        codes = unit_of_row[:, None].astype(np.int32)
        private = PrivateRows(codes, domain, max_rows_per_unit=2, units=unit_of_row)
        kept, held = (set(each._codes[:, 0]) for each in rows.partition_rows(private, 0.25, book, ("a", "b")))
        teacher = charges.assign_teachers(unit_of_row, 4, key=book.noise.key())
        if kept & held or np.any(teacher[::2] != teacher[1::2]):
            wrong = ["rows of one unit are in two parts"]
        sizes["held out"].append(len(held))
        sizes["of the first teacher"].append(len(set(unit_of_row[teacher == 0])))
    pvalues = {}
    for what, found in sizes.items():
        deviations = (np.asarray(found) - units / 4) / math.sqrt(units * 3 / 16)
        pvalues[f"mean size {what}"] = float(2 * stats.norm.sf(abs(deviations.sum()) / math.sqrt(repeats)))
        pvalues[f"spread of sizes {what}"] = two_sided(float(stats.chi2.cdf(np.sum(deviations**2), repeats)))
    return wrong + refuted(pvalues, level)


# ---------------------------------------------------------------------------------------------------------- teachers


def teachers_apart() -> list[str]:
    """If the rows of one teacher change, no bit of another teacher may change."""
    codes, teacher = test_pate.table()
    both = [test_pate.charged_votes(each, teacher) for each in (codes, test_pate.changed(codes, teacher))]
    touched = test_pate.touched_by_steps(both, steps=1)
    return [] if touched == {test_pate.TOUCHED} else [f"rows of one teacher change {len(touched)} teachers"]


def learners_from_votes() -> list[str]:
    """With the same votes and other rows, student and generator must be identical, bit for bit."""
    with pytest.MonkeyPatch.context() as patch:
        return ["student or generator see more than votes"] if test_pate.learners_differ(patch) else []


def law_of_vote_noise(seed: int, level: float) -> list[str]:
    """Variance of the noise on votes, against the ledger."""
    return refuted({"noise of votes": test_pate.noise_pvalue(charges.charge_votes, seed=seed)}, level)


DETECTORS = (
    deterministic("steps and charges", steps_and_charges),
    deterministic("updates and charges", updates_and_charges),
    Detector("audit of training steps", audit_training, is_statistical=True, is_quick=False),
    deterministic("sensitivity of training steps", sensitivity_of_steps),
    deterministic("sensitivity of long sums", sensitivity_of_long_sums),
    deterministic("steps depend only on noisy sums", steps_beside_sums),
    deterministic("number of steps and progress", course_of_training),
    Detector("noise on training steps", law_of_step_noise, is_statistical=True, is_exact=True, is_quick=False),
    Detector("batch sampling", law_of_batches, is_statistical=True, is_exact=True),
    Detector("partition sampling", law_of_partitions, is_statistical=True, is_exact=True),
    deterministic("independence of teachers", teachers_apart, is_quick=False),
    deterministic("learners see only votes", learners_from_votes, is_quick=False),
    Detector("noise on votes", law_of_vote_noise, is_statistical=True, is_exact=True),
)
