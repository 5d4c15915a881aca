"""Small graphical models and their whole tables of probabilities: the slow, obvious oracle."""

import itertools

import numpy as np
from scipy import stats

from understudy.models.graphical import GraphicalModel
from understudy.models.junction import Clique, junction_tree
from understudy.schema import Domain

LOOPY = (("a", "b"), ("c", "b"), ("c", "d", "a"), ("e",), ("d", "f"))
SIZES = {"a": 2, "b": 3, "c": 4, "d": 2, "e": 3, "f": 5}


def make_domain(sizes: dict[str, int], num_rows: int = 1000) -> Domain:
    return Domain(names=tuple(sizes), sizes=tuple(sizes.values()), num_rows=num_rows)


def random_model(domain: Domain, cliques: tuple[Clique, ...], seed: int, spread: float = 1.5) -> GraphicalModel:
    rng = np.random.default_rng(seed)
    return GraphicalModel(
        domain=domain,
        total=7.0,
        cliques=cliques,
        potentials=tuple(rng.normal(0, spread, domain.shape(clique)) for clique in cliques),
        tree=junction_tree(domain, cliques),
    )


def whole_table(model: GraphicalModel) -> np.ndarray:
    """The whole table of probabilities, cell by cell: slow and obvious."""
    names = model.domain.names
    logs = np.zeros(model.domain.sizes)
    for cell in itertools.product(*map(range, model.domain.sizes)):
        code = dict(zip(names, cell, strict=True))
        for clique, table in zip(model.cliques, model.potentials, strict=True):
            logs[cell] += table[tuple(code[name] for name in clique)]
    joint = np.exp(logs - logs.max())
    return joint / joint.sum()


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
