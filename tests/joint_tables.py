"""Small graphical models and their whole tables of probabilities: the slow, obvious oracle."""

import itertools
from collections.abc import Iterable, Mapping

import numpy as np
from scipy import stats

from understudy.models.graphical import GraphicalModel
from understudy.models.junction import Clique, junction_tree
from understudy.schema import Domain, StructuralZeros

LOOPY = (("a", "b"), ("c", "b"), ("c", "d", "a"), ("e",), ("d", "f"))
SIZES = {"a": 2, "b": 3, "c": 4, "d": 2, "e": 3, "f": 5}


def make_domain(
    sizes: dict[str, int], num_rows: int = 1000, impossible: dict[Clique, list[tuple[int, ...]]] | None = None
) -> Domain:
    """`impossible`: the combinations of codes that are structural zeros, for some cliques."""
    zeros = []
    for clique, cells in (impossible or {}).items():
        possible = np.ones([sizes[name] for name in clique], dtype=bool)
        possible[tuple(np.array(cells).T)] = False
        zeros.append(StructuralZeros(clique, possible))
    return Domain(names=tuple(sizes), sizes=tuple(sizes.values()), num_rows=num_rows, zeros=tuple(zeros))


def random_model(domain: Domain, cliques: tuple[Clique, ...], seed: int, spread: float = 1.5) -> GraphicalModel:
    rng = np.random.default_rng(seed)
    return GraphicalModel(
        domain=domain,
        total=7.0,
        cliques=cliques,
        potentials=tuple(rng.normal(0, spread, domain.shape(clique)) for clique in cliques),
        tree=junction_tree(domain, [*cliques, *(zeros.columns for zeros in domain.zeros)]),
        zeros=domain.zeros,
    )


def whole_table(model: GraphicalModel) -> np.ndarray:
    """The whole table of probabilities, cell by cell: slow and obvious."""
    names = model.domain.names
    logs = np.zeros(model.domain.sizes)
    for cell in itertools.product(*map(range, model.domain.sizes)):
        code = dict(zip(names, cell, strict=True))
        for clique, table in zip(model.cliques, model.potentials, strict=True):
            logs[cell] += table[tuple(code[name] for name in clique)]
        if not is_possible(model.zeros, code):
            logs[cell] = -np.inf
    joint = np.exp(logs - logs.max())
    return joint / joint.sum()


def is_possible(zeros: Iterable[StructuralZeros], code: Mapping[str, int]) -> bool:
    """Whether a row with these codes is possible."""
    return all(each.possible[tuple(code[name] for name in each.columns)] for each in zeros)


def count_impossible(domain: Domain, rows: np.ndarray) -> int:
    """The number of rows that some structural zero of the domain rules out."""
    return sum(not is_possible(domain.zeros, dict(zip(domain.names, row, strict=True))) for row in rows.tolist())


def sum_to(joint: np.ndarray, domain: Domain, clique: Clique) -> np.ndarray:
    return np.einsum(joint, list(range(joint.ndim)), [domain.index(name) for name in clique])


def fit_pvalue(rows: np.ndarray, joint: np.ndarray) -> float:
    """Chi-square of rows against the joint law; cells too rare for it are pooled."""
    seen = np.bincount(np.ravel_multi_index(tuple(rows.T), joint.shape), minlength=joint.size)
    hoped = joint.ravel() * len(rows)
    assert seen[hoped == 0].sum() == 0
    rare = hoped < 5
    seen = np.append(seen[~rare], seen[rare].sum())
    hoped = np.append(hoped[~rare], hoped[rare].sum())
    keep = hoped > 0
    return float(stats.chisquare(seen[keep], hoped[keep]).pvalue)
