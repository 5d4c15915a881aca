"""Choice of marginals: against the greedy rule written out naively, and its limits."""

import itertools
import math

import numpy as np
import pytest

from tests.joint_tables import make_domain
from understudy.marginals.choice import Candidates, SizeLimit, choose, resolved_cells, resolved_fraction
from understudy.models.graphical import GraphicalModel
from understudy.models.junction import Clique, count_cells, junction_tree
from understudy.schema import Domain

DOMAIN = make_domain({"a": 2, "b": 3, "c": 4, "d": 2, "e": 5, "f": 3})


def columns_alone(domain: Domain) -> GraphicalModel:
    return GraphicalModel(
        domain=domain,
        total=1000.0,
        cliques=domain.one_way,
        potentials=tuple(np.zeros(size) for size in domain.sizes),
        tree=junction_tree(domain, domain.one_way),
    )


def limit_of(cells: float) -> SizeLimit:
    return SizeLimit(DOMAIN, columns_alone(DOMAIN), cells)


def pairs_and_triples(seed: int) -> Candidates:
    rng = np.random.default_rng(seed)
    every = [*itertools.combinations(DOMAIN.names, 2), *itertools.combinations(DOMAIN.names, 3)]
    cliques: list[Clique] = [every[at] for at in rng.permutation(len(every))[:20]]
    return Candidates(
        cliques,
        errors=rng.exponential(120, len(cliques)),
        weights=rng.choice([1.0, 2.0], len(cliques)),
        cells=np.array([DOMAIN.size(clique) for clique in cliques], dtype=float),
    )


def is_forest(cliques: list[Clique]) -> bool:
    """Whether no column is reached twice: each clique joins as many parts as it has columns."""
    parts: list[set[str]] = [{name} for name in DOMAIN.names]
    for clique in cliques:
        touched = [part for part in parts if part & set(clique)]
        if len(touched) < len(clique):
            return False
        parts = [part for part in parts if part not in touched] + [set().union(*touched)]
    return True


def naive_choice(
    candidates: Candidates, cells: float, total_need: float, precision: float, most: int, *, forest: bool
) -> list[int]:
    """Of all candidates that are left and allowed, the best one by the rule; again until none has a gain."""
    mean_noise, chosen = math.sqrt(2 / math.pi), list[int]()
    need = [(w * m) ** (2 / 3) for w, m in zip(candidates.weights, candidates.cells, strict=True)]
    while len(chosen) < most:
        spent = total_need + sum(need[i] for i in chosen)
        best, best_value = None, 0.0
        for i, clique in enumerate(candidates.cliques):
            held = [candidates.cliques[j] for j in chosen]
            if i in chosen or count_cells(DOMAIN, [*DOMAIN.one_way, *held, clique]) > cells:
                continue
            if forest and not is_forest([*held, clique]):
                continue
            noise = mean_noise * ((spent + need[i]) ** 1.5 - spent**1.5) / math.sqrt(precision)
            gain = candidates.weights[i] * candidates.errors[i] - noise
            if gain > 0 and gain / math.sqrt(need[i]) > best_value:
                best, best_value = i, gain / math.sqrt(need[i])
        if best is None:
            break
        chosen.append(best)
    return chosen


@pytest.mark.parametrize("forest", [False, True])
@pytest.mark.parametrize("cells", [40.0, 90.0, 1e6])
@pytest.mark.parametrize("seed", range(5))
def test_the_choice_is_that_of_the_greedy_rule(seed: int, cells: float, forest: bool) -> None:
    """What does not fit once does not fit later either, so that each candidate needs one look."""
    candidates = pairs_and_triples(seed)
    lengths = set()
    for precision, most in ((0.2, 20), (2.0, 20), (20.0, 3)):
        limit = limit_of(cells)
        found = choose(candidates, limit, total_need=14.0, precision=precision, max_chosen=most, forest=forest)
        assert found == naive_choice(candidates, cells, 14.0, precision, most, forest=forest)
        lengths.add(len(found))
    assert max(lengths) > 0


@pytest.mark.parametrize("seed", range(5))
def test_a_forest_closes_no_cycle(seed: int) -> None:
    candidates = pairs_and_triples(seed)
    found = choose(candidates, limit_of(1e9), total_need=1.0, precision=1e9, max_chosen=20, forest=True)
    assert is_forest([candidates.cliques[at] for at in found])
    every = choose(candidates, limit_of(1e9), total_need=1.0, precision=1e9, max_chosen=20, forest=False)
    assert sorted(every) == list(range(20))
    assert len(found) < 6


@pytest.mark.parametrize("cells", [19, 30, 60, 150, 500])
def test_a_model_of_the_choice_is_within_its_size(cells: int) -> None:
    for seed in range(5):
        candidates = pairs_and_triples(seed)
        found = choose(candidates, limit_of(cells), total_need=1.0, precision=1e9, max_chosen=20, forest=False)
        assert count_cells(DOMAIN, [*DOMAIN.one_way, *(candidates.cliques[at] for at in found)]) <= cells


def test_what_the_model_holds_always_fits() -> None:
    """A clique within one of the tree's adds no cell, though the model is over the limit already."""
    joint = GraphicalModel(
        domain=DOMAIN,
        total=1.0,
        cliques=(("a", "b", "c"),),
        potentials=(np.zeros((2, 3, 4)),),
        tree=junction_tree(DOMAIN, [("a", "b", "c")]),
    )
    limit = SizeLimit(DOMAIN, joint, 5.0)
    assert limit.fits(("c", "a"))
    assert not limit.fits(("c", "d"))


def test_nothing_is_chosen_where_noise_exceeds_every_error() -> None:
    candidates = pairs_and_triples(0)
    largest = float((candidates.weights * candidates.errors).max())
    need = (candidates.weights * candidates.cells) ** (2 / 3)
    # What the cheapest of them would add to the noise is more than the largest error of any.
    precision = (math.sqrt(2 / math.pi) * ((14 + need.min()) ** 1.5 - 14**1.5) / largest) ** 2 / 1.01
    assert choose(candidates, limit_of(1e9), total_need=14.0, precision=precision, max_chosen=9, forest=False) == []
    no_errors = Candidates(candidates.cliques, 0 * candidates.errors, candidates.weights, candidates.cells)
    assert choose(no_errors, limit_of(1e9), total_need=14.0, precision=1e9, max_chosen=9, forest=False) == []


def test_at_most_that_number_is_chosen_and_the_best_first() -> None:
    candidates = pairs_and_triples(1)
    every, *fewer = (
        choose(candidates, limit_of(1e9), total_need=14.0, precision=1e6, max_chosen=most, forest=False)
        for most in (20, 0, 1, 4)
    )
    assert len(every) == 20
    assert fewer == [every[:most] for most in (0, 1, 4)]


def test_cells_count_as_far_as_they_exceed_their_noise() -> None:
    assert resolved_cells(np.array([100.0, 30.0, 5.0, 0.0]), 10.0) == pytest.approx(2.5)
    assert resolved_cells(np.zeros((3, 3)), 10.0) == 1.0


def test_resolved_rows_are_those_in_cells_above_the_noise() -> None:
    """For one cell the fraction is the weight of a measurement in the best linear estimate of a normal log-ratio."""
    count, stddev, variance = 50.0, 20.0, 0.6
    rng = np.random.default_rng(0)
    truth = count * rng.normal(0, math.sqrt(variance), 400_000)
    noisy = truth + rng.normal(0, stddev, truth.size)
    slope = float((truth * noisy).mean() / (noisy**2).mean())
    assert resolved_fraction(np.array([count]), stddev, variance) == pytest.approx(slope, abs=0.005)
    both = resolved_fraction(np.array([1e6, 1e-3]), 10.0, 2.0)
    assert both == pytest.approx(1.0, abs=1e-6)
    assert resolved_fraction(np.full((10, 10), 0.1), 100.0, 2.0) < 1e-5
