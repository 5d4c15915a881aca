"""The second accountant: right where the answer is known, in agreement with the first, and blind to no mistake."""

import dataclasses
import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, special, stats

import understudy as us
from tests.privacy import second_accountant
from tests.privacy.second_accountant import Figures, errors_in, loss_bracket, renyi_epsilon
from understudy.api import plan
from understudy.privacy.accounting.events import (
    ZCDP,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Pure,
    Selections,
    SubsampledGaussian,
)
from understudy.privacy.accounting.ledger import Guarantee, Query, spent_by

SMALL = "steps=16, latent=4, generator_widths=[16, 16], critic_widths=[8]"
METHODS = (
    "independent",
    "mst",
    "aim",
    "mwem",
    "gem",
    "gem(num_selections=3, selection_fraction=0.4)",
    f"dpgan({SMALL})",
    f"dpgan({SMALL}, adaptive_clip=quantile)",
    f"dpctgan({SMALL})",
    f"autogan({SMALL}, autoencoder_steps=16)",
    f"autogan({SMALL}, encoder=dp_pca)",
    "bayesgan(steps=16, generator_chains=2)",
    "pategan(iterations=16)",
    "pategan(vote_noise=laplace, iterations=16, queries=160)",
    "patectgan(iterations=16)",
    f"boosted(dpgan({SMALL}), rounds=40, checkpoints=4, checkpoint_every=4)",
    f"drs(dpgan({SMALL}))",
    f"selected(dpgan({SMALL}), task=marginals, checkpoints=4, holdout_fraction=0.3)",
    "quail(independent, target=a, learner=prior)",
    "quail(mst, target=a, learner_fraction=0.5, disjoint=true)",
)
"""One of every method and wrapper, and of what else they charge for."""

COLUMNS = {
    "a": us.Column(name="a", kind="categorical", categories=("x", "y", "z"), nullable=False, closed=True),
    "b": us.Column(name="b", kind="categorical", categories=("u", "v"), nullable=False, closed=True),
    "c": us.Column(name="c", kind="integer", bounds=(0, 50)),
    "d": us.Column(name="d", kind="boolean"),
}
DECLARED = us.Schema(columns=tuple(COLUMNS.values()), rows=5000)
OPEN = us.Schema(columns=tuple(us.Column(name=name, kind=column.kind) for name, column in COLUMNS.items()))


def figures(planned: "tuple[Query, ...]", guarantee: Guarantee) -> Figures:
    """As the first accountant has them."""
    spent = spent_by(planned, guarantee)
    queries = tuple((query.event.to_json(), query.delta, query.partition) for query in planned)
    assert guarantee.delta is not None
    return Figures(queries, guarantee.delta, spent.epsilon, spent.pld, spent.rdp)


# ------------------------------------------------------------------------------------------------- where it is known


@pytest.mark.parametrize(("multiplier", "delta"), [(0.5, 1e-5), (3.73, 1e-5), (20.0, 1e-6), (5.0, 1e-9)])
def test_gaussians_have_their_exact_curve(multiplier: float, delta: float) -> None:
    """Balle and Wang 2018, theorem 8."""

    def excess(epsilon: float) -> float:
        middle, reach = 1 / (2 * multiplier), epsilon * multiplier
        return float(special.ndtr(middle - reach) - math.exp(epsilon) * special.ndtr(-middle - reach) - delta)

    exact = optimize.brentq(excess, 0.0, 100.0) if excess(0.0) > 0 else 0.0
    bracket = loss_bracket([Gaussian(multiplier * 2, count=4).to_json()], delta)
    assert bracket is not None
    assert bracket.lower <= exact <= bracket.upper
    assert bracket.upper - bracket.lower < 0.005 * exact


def test_randomized_response_has_its_binomial() -> None:
    epsilon, rounds, delta = 0.3, 7, 1e-4
    keep = 1 / (1 + math.exp(-epsilon))
    high = stats.binom.pmf(np.arange(rounds + 1), rounds, keep)

    def excess(total: float) -> float:
        return float(np.maximum(high - math.exp(total) * high[::-1], 0).sum()) - delta

    exact = optimize.brentq(excess, 0.0, rounds * epsilon)
    for event in (Pure(epsilon, rounds), DiscreteLaplace(epsilon, rounds), Selections(epsilon, rounds)):
        bracket = loss_bracket([event.to_json()], delta)
        assert bracket is not None
        assert bracket.lower <= exact <= bracket.upper < exact + 0.005


def test_a_mixture_of_events_has_the_divergence_of_all_outcomes() -> None:
    """Brute force: every outcome of two counts and two steps, on grids, in both directions."""
    stddev, rate, multiplier, delta = 1.5, 0.3, 1.2, 1e-3
    counts = np.arange(-20, 22)
    noise = np.exp(-(counts**2) / (2 * stddev**2))
    count_pair = noise / noise.sum(), np.exp(-((counts - 1) ** 2) / (2 * stddev**2)) / noise.sum()
    at = np.linspace(-9, 10, 191)
    without = stats.norm.pdf(at, 0, multiplier) * (at[1] - at[0])
    step_pair = without, (1 - rate) * without + rate * stats.norm.pdf(at, 1, multiplier) * (at[1] - at[0])
    joint = [np.einsum("i,j,k->ijk", count_pair[side], step_pair[side], step_pair[side]).ravel() for side in (0, 1)]

    def excess(epsilon: float) -> float:
        ways = ((joint[0], joint[1]), (joint[1], joint[0]))
        return max(float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) for p, q in ways) - delta

    exact = optimize.brentq(excess, 0.0, 20.0)
    bracket = loss_bracket(
        [DiscreteGaussian(stddev).to_json(), SubsampledGaussian(rate, multiplier, 2).to_json()], delta
    )
    assert bracket is not None
    assert bracket.lower - 1e-3 <= exact <= bracket.upper + 1e-3
    assert bracket.upper - bracket.lower < 0.01


def test_zcdp_is_near_its_closed_bound() -> None:
    """Bun and Steinke 2016: rho + 2 sqrt(rho log(1 / delta)), which the newer conversion improves a little."""
    for rho, delta in itertools.product((1e-4, 0.02, 0.5), (1e-5, 1e-9)):
        closed = rho + 2 * math.sqrt(rho * math.log(1 / delta))
        assert 0.6 * closed < renyi_epsilon([{"kind": "ZCDP", "rho": rho}], delta) < closed


def test_no_code_is_shared() -> None:
    text = Path(second_accountant.__file__).read_text()
    imported = [line.split()[1].split(".")[0] for line in text.splitlines() if line.startswith(("import ", "from "))]
    assert set(imported) == {"abc", "collections", "dataclasses", "math", "numpy", "scipy", "typing"}


# ------------------------------------------------------------------------------------------- agreement, and mistakes


IN_RUNS = ("ctgan", "autogan", "bayesgan", "boosted", "drs", "selected", "critic", "quantile")
"""Whose plans take long; in the default suite the certificates of their small runs, in tests/synthesizers, stand in."""


@pytest.mark.parametrize(
    "method",
    [pytest.param(m, marks=pytest.mark.slow if any(word in m for word in IN_RUNS) else (), id=m) for m in METHODS],
)
def test_every_method_is_charged_what_it_costs(method: str) -> None:
    """Plans, which a run charges line by line. Those with networks share a schema, and so most of their planning."""
    guarantee = Guarantee(10.0, 1e-6)  # where the first accountant's grid is coarse, and quick
    made = plan(DECLARED if "gan" in method else OPEN, method, guarantee)
    assert errors_in(figures(made.queries, guarantee)) == []


RUN = (
    Query("size", "size", DiscreteGaussian(80.0)),
    Query("categories", "categories", DiscreteGaussian(40.0, 3), delta=1e-7),
    Query("tree", "tree", Selections(0.02, 5)),
    Query("votes", "votes", DiscreteLaplace(0.01, 6)),
    Query("minimum", "minimum", Pure(0.01, 6)),
    Query("sums", "sums", Gaussian(9.0)),
    Query("steps", "steps", SubsampledGaussian(0.05, 2.0, 120)),
)
FEW = (Query("counts", "counts", DiscreteGaussian(20.0, 4, 3)), Query("lump", "lump", ZCDP(0.01)))
PARTED = (
    Query("counts", "counts", DiscreteGaussian(30.0, 4)),
    Query("train", "train", SubsampledGaussian(0.05, 1.0, 100), partition="train"),
    Query("held", "held", Selections(0.2, 3), partition="held"),
)
GUARANTEE = Guarantee(10.0, 1e-6)


def changed(queries: tuple[Query, ...], key: str, **parameters: object) -> tuple[Query, ...]:
    return tuple(
        dataclasses.replace(query, event=dataclasses.replace(query.event, **parameters)) if query.key == key else query
        for query in queries
    )


def without_delta(queries: tuple[Query, ...]) -> tuple[Query, ...]:
    return tuple(dataclasses.replace(query, delta=0.0) for query in queries)


@pytest.mark.parametrize("queries", [RUN, FEW, PARTED], ids=["run", "several rows a unit", "partitions"])
def test_what_is_right_is_taken_for_right(queries: tuple[Query, ...]) -> None:
    assert errors_in(figures(queries, GUARANTEE)) == []


SABOTAGE: dict[str, Callable[[], tuple[tuple[Query, ...], tuple[Query, ...]]]] = {
    "steps halved": lambda: (RUN, changed(RUN, "steps", steps=60)),
    "a twentieth of the steps forgotten": lambda: (RUN, changed(RUN, "steps", steps=114)),
    "sampling rate halved": lambda: (RUN, changed(RUN, "steps", sampling_rate=0.025)),
    "noise of steps overstated": lambda: (RUN, changed(RUN, "steps", noise_multiplier=2.1)),
    "sensitivity ignored": lambda: (FEW, changed(FEW, "counts", sensitivity=1)),
    "vectors of a bundle forgotten": lambda: (RUN, changed(RUN, "categories", count=1)),
    "delta not taken off": lambda: (RUN, without_delta(RUN)),
    "a choice forgotten": lambda: (RUN, changed(RUN, "tree", rounds=3)),
    "votes forgotten": lambda: (RUN, tuple(query for query in RUN if query.key != "votes")),
    "a sum forgotten": lambda: (RUN, tuple(query for query in RUN if query.key != "sums")),
    "a zCDP budget forgotten": lambda: (FEW, FEW[:1]),
    "the cheaper partition": lambda: (PARTED, tuple(query for query in PARTED if query.partition != "train")),
    "the partition alone": lambda: (PARTED, tuple(query for query in PARTED if query.partition is not None)),
}
"""What ran, and what a mistaken accountant would have charged instead."""


@pytest.mark.parametrize("mistake", SABOTAGE)
def test_a_mistake_is_found(mistake: str) -> None:
    ran, priced = SABOTAGE[mistake]()
    wrong = dataclasses.replace(figures(priced, GUARANTEE), queries=figures(ran, GUARANTEE).queries)
    assert errors_in(wrong)


def test_the_smaller_figure_is_the_guarantee() -> None:
    right = figures(RUN, GUARANTEE)
    assert errors_in(dataclasses.replace(right, epsilon=0.9 * right.epsilon))
    assert errors_in(dataclasses.replace(right, by_renyi=0.9 * right.by_losses, epsilon=0.9 * right.by_losses))
    assert errors_in(Figures((), 1e-6, 0.5, 0.5, 0.5))
    assert not errors_in(Figures((), 1e-6, 0.0, 0.0, 0.0))
