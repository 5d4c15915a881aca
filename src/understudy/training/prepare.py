"""What neural methods do before their first private step: noisy marginals, the layout of rows, a warm start.

The generator is regularised towards noisy one-way marginals, and towards those of each column with the target where
there is one. All of it is post-processing of the two queries of `plan_marginals`.
"""

import dataclasses
import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from understudy.encoding.features import Layout, layout_of
from understudy.models.generator import GeneratorModel
from understudy.models.neural import GeneratorNetwork
from understudy.models.zeros import Masks, block_masks
from understudy.privacy.accounting.events import DiscreteGaussian
from understudy.privacy.accounting.ledger import Budget, Ledger, Plan, Query
from understudy.privacy.gradients.charges import event_of
from understudy.privacy.gradients.dpsgd import PublicSteps
from understudy.privacy.gradients.poisson import round_sampling_rate
from understudy.privacy.mechanisms.counts import noisy_counts
from understudy.privacy.rows.rows import PrivateRows, PublicUnits
from understudy.progress import Progress, prefix_progress, stretch_progress
from understudy.schema import Domain, StructuralZeros
from understudy.synthesizers.run import calibrate_query
from understudy.training.critics import Conditions
from understudy.training.gan import Hyperparameters, State, init_from_networks, train
from understudy.training.generation import Context
from understudy.training.loop import RunOptions
from understudy.training.settings import FeatureSettings, GeneratorSettings, Settings

MAX_WEIGHT = 10.0
"""A row's loss is weighted for the rarity of its condition, at most by this, before its gradient is clipped."""
PUBLIC_BATCH = 512
"""Public rows in a step of a warm start."""
MAX_LEVELS = 8
"""A target of more categories is not crossed with other columns: each adds as many numbers to learn as there are."""


# ------------------------------------------------------------------------------------------------------------ marginals


def target_block(domain: Domain) -> int | None:
    """The position of the target, if there is one of few declared categories beside other columns.

    Where its categories are estimated, their number must not affect the cost: marginals with it are measured however
    many there are. The bins of a number are estimated too, and may be many: marginals with one never are.
    """
    if domain.target is None or len(domain.names) < 2 or domain.target in domain.numeric:
        return None
    if domain.target not in domain.estimated and domain.shape((domain.target,))[0] > MAX_LEVELS:
        return None
    return domain.index(domain.target)


def plan_marginals(
    domain: Domain, budget: Budget, marginals_fraction: float, target_fraction: float = 0.0
) -> list[Query]:
    """All one-way marginals, and all two-way ones with the target, as one bundle each, for these fractions.

    The two-way ones are shrunk towards products of one-way ones, so without these there are none.
    """

    def bundle(name: str, what: str, count: int, fraction: float) -> Query:
        def event(noise: float) -> DiscreteGaussian:
            return DiscreteGaussian(noise, count, budget.max_rows_per_unit)

        return calibrate_query(name, what, event, domain, budget.fraction(fraction))

    count = len(domain.names)
    queries = []
    if marginals_fraction:
        queries.append(bundle("one_way", f"one histogram for each of {count} columns", count, marginals_fraction))
    if marginals_fraction and target_fraction and target_block(domain) is not None:
        what = f"counts of {domain.target!r} with each of {count - 1} columns"
        queries.append(bundle("two_way", what, count - 1, target_fraction))
    return queries


def measure_marginals(
    rows: PrivateRows, plan: Plan, ledger: Ledger
) -> tuple[list[np.ndarray] | None, np.ndarray | None]:
    """Shares of each column's categories, and of all categories with each of the target's, as far as planned.

    Formal guarantee: the cost of the queries "one_way" and "two_way", where the plan has them.
    """
    domain = rows.domain
    if "one_way" not in plan:
        return None, None
    marginals = [to_shares(table) for table in noisy_counts(rows, domain.one_way, plan["one_way"], ledger)]
    if "two_way" not in plan:
        return marginals, None
    target = domain.target
    assert target is not None
    others = [name for name in domain.names if name != target]
    two_way = noisy_counts(rows, [(target, name) for name in others], plan["two_way"], ledger)
    noise = event_of(plan["two_way"], DiscreteGaussian).stddev / rows.public_num_rows
    one_way, crossed = marginals[domain.index(target)], dict(zip(others, two_way, strict=True))
    of_target = np.diag(one_way) * 0
    blocks = [
        shrink_pair(crossed[name] / rows.public_num_rows, one_way, marginal, noise) if name in crossed else of_target
        for name, marginal in zip(domain.names, marginals, strict=True)
    ]
    return marginals, np.concatenate(blocks, axis=1)


def shrink_pair(noisy: np.ndarray, first: np.ndarray, second: np.ndarray, noise: float) -> np.ndarray:
    """Shares of pairs: those of independent columns, except where the noisy ones differ by more than twice the noise.

    Rare pairs would otherwise be mostly noise, and never below zero. Rescaled to the shares of both columns.
    """
    independent = np.outer(first, second)
    table = np.where(np.abs(noisy - independent) > 2 * noise, np.maximum(noisy, 0.0), independent) + 1e-9
    for _ in range(10):
        table = table * (first / table.sum(axis=1))[:, None]
        table = table * (second / table.sum(axis=0))
    return table


def to_shares(noisy: np.ndarray) -> np.ndarray:
    """A distribution from noisy counts: no category is impossible."""
    cleaned = np.maximum(noisy, 0.5)
    return cleaned / cleaned.sum()


# -------------------------------------------------------------------------------------------------------------- layout


@dataclasses.dataclass(frozen=True)
class Prepared:
    """How rows are shown to the networks, and the noisy marginals. Covered by what the marginals cost."""

    layout: Layout
    is_binned: bool
    one_way: Float[Array, " features"] | None
    """The noisy share of each feature of a row."""
    marginal: Array | None
    """The same, above the shares with each category of the target, if measured."""
    target_block: int | None
    """The block of the target, if marginals with it were measured."""
    zeros: tuple[StructuralZeros, ...] = ()
    masks: Masks = ()
    """What the zeros leave of each one-hot block, given earlier ones."""

    @property
    def encoder(self) -> Layout | None:
        """What makes features of rows beforehand; None: codes are one-hot, and are encoded where they are needed."""
        return None if self.is_binned else self.layout

    def conditions(self, num_rows: int) -> Conditions | None:
        """On the columns whose categories stand in the row one by one; None: there are none."""
        assert self.one_way is not None
        wanted = [column is not None for column in self.layout.discrete]
        if not any(wanted):
            return None
        return Conditions.from_marginal(self.layout.blocks, np.asarray(self.one_way), num_rows, MAX_WEIGHT, wanted)

    def model(
        self,
        method: GeneratorSettings,
        names: tuple[str, ...],
        generator: GeneratorNetwork,
        conditions: Conditions | None = None,
        decoder: tuple[int, ...] = (),
    ) -> GeneratorModel:
        """What a release holds of this generator, on the host."""
        marginal = None if conditions is None else np.asarray(conditions.marginal)
        shape = (method.arch, names, self.layout.blocks, method.latent, method.generator_widths)
        return GeneratorModel(generator, *shape, marginal, self.encoder, decoder, self.zeros)


def prepare(
    method: FeatureSettings,
    rows: PrivateRows,
    plan: Plan,
    ledger: Ledger,
    *,
    layout_fn: Callable[[Layout], Layout] = lambda layout: layout,
) -> Prepared:
    """Measure the planned marginals, and lay rows out; `layout_fn` may change the usual layout.

    Formal guarantee: that of `measure_marginals`.
    """
    marginals, crossed = measure_marginals(rows, plan, ledger)
    domain = rows.domain
    usual = layout_of(method.features, domain, rows.scales, marginals, num_modes=method.num_modes, binary=method.binary)
    layout = layout_fn(usual)
    one_way = None if marginals is None else jnp.asarray(layout.estimated_means(marginals), dtype=jnp.float32)
    marginal = one_way
    if one_way is not None and crossed is not None:
        marginal = jnp.concatenate([one_way[None], jnp.asarray(crossed, dtype=jnp.float32)])
    block = None if crossed is None else target_block(domain)
    masks = block_masks(domain.zeros, domain.names, layout.discrete)
    return Prepared(layout, method.features == "binned", one_way, marginal, block, domain.zeros, masks)


# ---------------------------------------------------------------------------------------------------------- warm start


def warm_start(
    settings: Settings,
    units: PublicUnits,
    hyperparameters: Hyperparameters,
    key: PRNGKeyArray,
    state: State,
    context: Context,
    *,
    iterations: int,
    progress: Progress | None = None,
) -> State:
    """These networks after a training on public rows, without noise, clipping or charge, as a start on private ones."""
    batch_size = min(PUBLIC_BATCH, len(units.rows))
    plain = dataclasses.replace(settings, batch_size=batch_size, clip_groups=1, adaptive_clip="none")
    free = dataclasses.replace(hyperparameters, clip_norm=jnp.float32(math.inf), is_private=False)
    rate = round_sampling_rate(batch_size / len(units.rows))
    tell = progress and prefix_progress(stretch_progress(progress, 0.0, 0.0), "public rows: ")
    state, _ = train(
        plain,
        PublicSteps(units, rate, iterations * settings.critic_steps),
        free,
        key,
        network_key=key,  # of fresh networks; these are given
        context=dataclasses.replace(context, public=None),
        state=init_from_networks(plain, free, state.generator, state.critic),
        options=RunOptions(progress=tell),
    )
    return init_from_networks(settings, hyperparameters, state.average, state.critic)
