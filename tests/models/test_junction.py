"""Junction trees against brute force on small graphs."""

import itertools
import math

import numpy as np
import pytest

from tests.joint_tables import make_domain
from understudy.models.junction import Clique, count_cells, junction_tree
from understudy.schema import Domain


def random_cliques(seed: int, names: str, most: int) -> list[Clique]:
    rng = np.random.default_rng(seed)
    return [tuple(rng.permutation(list(names))[: rng.integers(1, 4)].tolist()) for _ in range(rng.integers(0, most))]


def filled_cliques(domain: Domain, cliques: list[Clique]) -> list[Clique]:
    """Eliminates the column with the fewest cells, the first on ties; then tries every set of columns as a clique."""
    sizes = dict(zip(domain.names, domain.sizes, strict=True))
    edges = {frozenset(pair) for clique in cliques for pair in itertools.combinations(clique, 2)}
    left, alive = list(domain.names), set(edges)
    while left:
        around = {column: {*itertools.chain(*(edge for edge in alive if column in edge))} - {column} for column in left}
        cells = {column: math.prod(sizes[name] for name in {column, *around[column]}) for column in left}
        first = min(left, key=lambda column: cells[column])
        fill = {frozenset(pair) for pair in itertools.combinations(around[first], 2)}
        edges |= fill
        alive = {edge for edge in alive | fill if first not in edge}
        left.remove(first)
    whole = [
        frozenset(names)
        for count in range(1, len(sizes) + 1)
        for names in itertools.combinations(domain.names, count)
        if all(frozenset(pair) in edges for pair in itertools.combinations(names, 2))
    ]
    maximal = [names for names in whole if not any(names < other for other in whole)]
    return sorted(tuple(name for name in domain.names if name in names) for names in maximal)


@pytest.mark.parametrize("seed", range(20))
def test_tree_holds_every_clique_and_keeps_columns_connected(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = "abcdefgh"[: rng.integers(1, 9)]
    domain = make_domain({name: int(rng.integers(1, 6)) for name in names})
    cliques = [tuple(rng.permutation(list(names))[: rng.integers(1, 4)].tolist()) for _ in range(rng.integers(0, 9))]
    tree = junction_tree(domain, cliques)
    assert all(any(set(clique) <= set(node) for node in tree.cliques) for clique in cliques)
    assert set().union(*tree.cliques) == set(names)
    assert tree.parents[0] == -1
    for i, parent in enumerate(tree.parents[1:], start=1):
        assert 0 <= parent < i
        past = set().union(*tree.cliques[:i])
        assert past & set(tree.cliques[i]) <= set(tree.cliques[parent])


@pytest.mark.parametrize("seed", range(30))
def test_cliques_are_those_of_greedy_elimination(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = "abcdefg"
    domain = make_domain({name: int(rng.integers(1, 9)) for name in rng.permutation(list(names))})
    cliques = [*random_cliques(seed, names, 7), ("a", "b", "c")]  # three in a ring: no tree
    expected = filled_cliques(domain, cliques)
    assert sorted(junction_tree(domain, cliques).cliques) == expected
    assert count_cells(domain, cliques) == sum(domain.size(clique) for clique in expected)


def test_a_tree_of_pairs_stays_as_it_is() -> None:
    """Greedy elimination would begin in the middle, where columns are small, and join what is apart."""
    domain = make_domain({"a": 100, "b": 2, "c": 2, "d": 2, "e": 100})
    pairs = [("b", "a"), ("b", "c"), ("d", "c"), ("e", "d")]
    assert sorted(junction_tree(domain, pairs).cliques) == [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]
    assert len(filled_cliques(domain, [*pairs, ("c",)])) == 3


@pytest.mark.parametrize("seed", range(10))
def test_separators_are_as_large_as_they_can_be(seed: int) -> None:
    """Against all spanning trees: every choice of as many edges that joins as many cliques."""
    domain = make_domain(dict.fromkeys("abcdef", 2))
    tree = junction_tree(domain, [*random_cliques(seed, "abcdef", 5), ("a", "b", "c")])
    cliques, number = tree.cliques, range(len(tree.cliques))
    overlap = {(i, j): len({*cliques[i]} & {*cliques[j]}) for i, j in itertools.combinations(number, 2)}

    def joins_all(edges: tuple[tuple[int, int], ...]) -> bool:
        part = list(number)
        for i, j in edges:
            part = [part[i] if each == part[j] else each for each in part]
        return len(set(part)) == 1

    choices = itertools.combinations(overlap, len(cliques) - 1)
    best = max(sum(overlap[edge] for edge in edges) for edges in choices if joins_all(edges))
    found = [len({*cliques[i]} & {*cliques[p]}) for i, p in enumerate(tree.parents) if p >= 0]
    assert sum(found) == best


def test_the_largest_clique_of_each_part_comes_first() -> None:
    domain = make_domain({"a": 2, "b": 3, "c": 9, "d": 4, "e": 5})
    tree = junction_tree(domain, [("a", "b"), ("d", "e"), ("e", "c")])
    assert tree.cliques == (("c", "e"), ("d", "e"), ("a", "b"))
    assert tree.parents == (-1, 0, 0)  # a part that shares no column hangs on the first clique
