"""White-box audit of DP-SGD: the attacker sees every noisy sum of a training run and knows the canary's gradient.

The audited training is a linear critic, whose gradient for a row is the row itself. Each row has a
direction of its own, so only the canary moves its coordinate, by the clip bound in every batch that contains it: no
gradient of any network reveals more about a unit. Batches, clipping, noise and the step are those of every
DP-SGD training here (`training.dpsgd.advance`). With a learning rate equal to the batch size, two successive networks
differ by the noisy sum of the step between them, so the attacker sees nothing but the networks.

`audit_runs` trains many times with and without one canary. `audit_one_run` trains once with thousands of canaries, each
a unit that is in the table by its own fair coin: the guarantee under test is that for a single unit.
"""

import dataclasses
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from benchmarks.stage_audits.one_run import OneRunBound, one_run_bound
from understudy.audit.bounds import Bound, check_scores, lower_bound
from understudy.certificate.facts import public_facts
from understudy.errors import ConfigError
from understudy.privacy.accounting.events import SubsampledGaussian
from understudy.privacy.accounting.ledger import Budget, Guarantee, Plan
from understudy.privacy.gradients.charges import charge_dpsgd, event_of
from understudy.privacy.gradients.clipping import Clip, RowLoss
from understudy.privacy.gradients.dpsgd import ChargedSteps, sample_batches
from understudy.privacy.gradients.poisson import Batches, round_sampling_rate
from understudy.privacy.mechanisms.discovery import Binning
from understudy.run.listener import Listener
from understudy.run.plan import plan_run
from understudy.run.run import encode_table, open_run
from understudy.run.sources import read_private_table
from understudy.schema import Domain, Schema, as_schema
from understudy.synthesizers.run import calibrate_query
from understudy.training.dpsgd import Descent, DescentState, advance

COLUMN = "direction"
CLIP_NORM = 1.0
RUNS_AT_ONCE = 500
"""Training runs in one call of the compiled program: another number would be compiled again."""

AnyBound = TypeVar("AnyBound", Bound, OneRunBound)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """The audited training, from public facts.

    >>> Training(sampling_rate=0.5).num_steps
    20
    """

    num_steps: int = 20
    sampling_rate: float = 0.25
    """The probability that a unit is in the batch of a step."""

    def __post_init__(self) -> None:
        if self.num_steps < 1:
            raise ConfigError(f"num_steps must be at least 1, found {self.num_steps}.", setting="num_steps")
        object.__setattr__(self, "sampling_rate", round_sampling_rate(self.sampling_rate))

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """The whole budget for the steps, as a method would plan it."""
        what = f"{self.num_steps} steps of DP-SGD"

        def steps(noise: float) -> SubsampledGaussian:
            return SubsampledGaussian(self.sampling_rate, noise, self.num_steps)

        return Plan((calibrate_query("steps", what, steps, domain, budget),))


@dataclasses.dataclass(frozen=True)
class TrainingAudit(Generic[AnyBound]):
    """What the noisy sums of training runs show."""

    guarantee: Guarantee
    noise_multiplier: float
    """Of each step, as charged."""
    bound: AnyBound


class OneHot:
    """Rows as directions: one-hot vectors of the code of the first column."""

    def __init__(self, size: int):
        self.size = size

    def encode(self, codes: np.ndarray, positions: np.ndarray, key: PRNGKeyArray, /) -> np.ndarray:
        return np.eye(self.size, dtype=np.float32)[codes[:, 0]]


@RowLoss
def critic_loss(network: eqx.nn.Linear, row: Array, fake: Array | None, key: PRNGKeyArray, /) -> Float[Array, ""]:
    """Loss of a critic that raises its score of real rows. Its gradient is twice the clip bound, so it is clipped."""
    return -2 * CLIP_NORM * network(row)[0]


def audit_runs(
    guarantee: Guarantee,
    training: Training | None = None,
    *,
    num_runs: int,
    num_others: int = 99,
    seed: int,
    confidence: float = 0.95,
) -> TrainingAudit[Bound]:
    """Lower bounds from `num_runs` training runs with the canary and as many without it; the seed fixes all of them.

    >>> audit_runs(Guarantee(1.0, 1e-2), num_runs=500, seed=0).guarantee.epsilon  # doctest: +SKIP
    1.0
    """
    check_scores(np.zeros(num_runs))
    public, scores = Directions(2, num_others), []
    for number, canary in enumerate(([], [1])):  # direction 1 is the canary's
        observed = ObservedTraining.of([0] * num_others + canary, public, guarantee, training, seed=2 * seed + number)
        keys = jax.random.split(observed.key, -(-num_runs // RUNS_AT_ONCE))
        scores.append(np.concatenate([observed.score(key, RUNS_AT_ONCE)[:, 1] for key in keys])[:num_runs])
    outside, inside = scores
    bound = lower_bound(inside, outside, delta=observed.guarantee.delta or 0.0, confidence=confidence, seed=seed)
    return TrainingAudit(observed.guarantee, observed.noise_multiplier, bound)


def audit_one_run(
    guarantee: Guarantee,
    training: Training | None = None,
    *,
    num_canaries: int,
    seed: int,
    confidence: float = 0.95,
) -> TrainingAudit[OneRunBound]:
    """A lower bound from one training run, with each canary in the table by a fair coin; the seed fixes all of it.

    >>> audit_one_run(Guarantee(8.0, 1e-3), num_canaries=1000, seed=0).bound.num_canaries  # doctest: +SKIP
    1000
    """
    check_scores(np.zeros(num_canaries // 4))  # of those in the table, or not in it, more than this with near certainty
    public = Directions(num_canaries, max(1, num_canaries // 2))
    inside = np.random.default_rng(seed).random(num_canaries) < 0.5
    observed = ObservedTraining.of(np.flatnonzero(inside).tolist(), public, guarantee, training, seed=seed)
    (scores,) = observed.score(observed.key, 1)
    bound = one_run_bound(
        scores[inside], scores[~inside], delta=observed.guarantee.delta or 0.0, confidence=confidence, seed=seed
    )
    return TrainingAudit(observed.guarantee, observed.noise_multiplier, bound)


class Directions(NamedTuple):
    """What both tables of a pair declare: the directions that a row can have, and about how many rows there are."""

    number: int
    declared: int

    @property
    def names(self) -> list[str]:
        return [f"d{each:06d}" for each in range(self.number)]

    @property
    def schema(self) -> Schema:
        column = {"kind": "categorical", "categories": self.names, "closed": True, "nullable": False}
        return as_schema({"table": {"rows": self.declared}, "columns": {COLUMN: column}})


class ObservedTraining(eqx.Module):
    """A table whose training has been charged, and the key of its randomness."""

    steps: ChargedSteps
    key: PRNGKeyArray
    size: int = eqx.field(static=True)
    descent: Descent = eqx.field(static=True)
    noise_multiplier: float = eqx.field(static=True)
    guarantee: Guarantee = eqx.field(static=True)

    @classmethod
    def of(
        cls,
        directions: Sequence[int],
        public: Directions,
        guarantee: Guarantee,
        training: Training | None = None,
        *,
        seed: int,
    ) -> "ObservedTraining":
        """A run on a table with one row for each of these directions, up to its charge."""
        training, schema, names = training or Training(), public.schema, public.names
        table = read_private_table(pa.table({COLUMN: [names[at] for at in directions]}), schema).table
        planned = plan_run(schema, training, guarantee.with_delta_for(schema.rows), Binning())
        with open_run(seed=seed, listener=Listener()) as run:
            run.start("audit", planned.guarantee, planned.queries, public_facts(schema))
            query, rows = planned.training["steps"], encode_table(run, planned, table).rows
            steps = charge_dpsgd(rows, query, run.ledger, OneHot(len(names)))
        batch_size = max(1, round(training.sampling_rate * public.declared))
        descent = Descent(
            batch_size=batch_size, learning_rate=batch_size, clip_norm=CLIP_NORM, ema_decay=0.0, optimizer="sgd"
        )
        multiplier = event_of(query, SubsampledGaussian).noise_multiplier
        return cls(steps, run.key(), len(names), descent, multiplier, planned.guarantee)

    def observe(self, key: PRNGKeyArray, num_runs: int) -> Float[np.ndarray, "runs steps directions"]:
        """The noisy sums of training runs with fresh randomness, in multiples of the clip bound.

        With a private table, each of these training runs would have to be charged.
        """
        batch_key, noise_key = jax.random.split(key)
        batch_keys = jax.random.split(
            batch_key, (num_runs, self.steps.num_steps, 1)
        )  # one batch in each call of `advance`
        batches = sample_batches(self.steps, batch_keys, end=self.steps.num_steps, batch_size=self.descent.batch_size)
        network = eqx.nn.Linear(self.size, 1, use_bias=False, key=jax.random.key(0))
        sums = _noisy_sums(self.descent, network, self.steps, jax.random.split(noise_key, num_runs), batches)
        return np.asarray(sums, np.float64) / CLIP_NORM

    def score(self, key: PRNGKeyArray, num_runs: int) -> Float[np.ndarray, "runs directions"]:
        """The log-likelihood ratio that the unit of each direction is in the table: the best possible score."""
        rate = self.steps.sampling_rate
        gain = (self.observe(key, num_runs) - 0.5) / self.noise_multiplier**2
        with np.errstate(divide="ignore"):  # at a sampling rate of one
            return np.logaddexp(np.log1p(-rate), np.log(rate) + gain).sum(axis=1)


@eqx.filter_jit
def _noisy_sums(
    descent: Descent, network: eqx.nn.Linear, steps: ChargedSteps, keys: PRNGKeyArray, batches: Batches
) -> Float[Array, "runs steps directions"]:
    """How far each step of each training run moved the network: the noisy sum of clipped gradients."""
    clip = Clip.flat(descent.clip_norm)

    def one_run(key: PRNGKeyArray, batches: Batches) -> Float[Array, "steps directions"]:
        def step(state: DescentState[eqx.nn.Linear], batch: Batches) -> tuple[PyTree, Array]:
            after = advance(descent, state, critic_loss, steps, clip, key, batch)
            return after, (after.network.weight - state.network.weight)[0]

        start = DescentState(network, (), network, jnp.asarray(0, jnp.int32))
        return jax.lax.scan(step, start, batches)[1]

    return jax.vmap(one_run)(keys, batches)
