"""The figures of the DP-BayesGAN paper beside ours, from committed results."""

import itertools

import numpy as np

from benchmarks.papers.rows import Row, joined, mean, read, read_tables

NAME = "bayesgan_montgomery"
KINDS = ("CART", "BayesGAN", "epsilon 10", "epsilon 1")
EPSILONS = (0.5, 1.0, 2.0, 3.0, 5.0, 10.0)
SCORES = {"logit": "pMSE, logit", "tree": "pMSE, tree", "upper": "upper branch", "lower": "lower branch"}


def _values(kind: str, score: str) -> list[float]:
    return [float(line[score]) for line in read(NAME) if line["kind"] == kind]


def _means(score: str, digits: int) -> str:
    return joined([mean(_values(kind, score), digits) for kind in KINDS])


def _curve(score: str, method: str, table: str = "montgomery", digits: int = 4) -> str:
    """By epsilon. The published networks train under our clipping and ledger."""
    lines = [line for line in read("bayesgan_curve") if line["table"] == table and line["method"] == method]
    scores = [[x["scores"][score] for x in lines if x["epsilon"] == epsilon] for epsilon in EPSILONS]
    return joined([mean(values, digits) for values in scores])


def _at_infinity(score: str, method: str, table: str = "montgomery") -> list[float]:
    return [
        x["scores"][score]
        for x in read("bayesgan_curve")
        if (x["table"], x["method"], x["epsilon"]) == (table, method, float("inf"))
    ]


def _curve_ends(method: str) -> str:
    """How the paper's networks do without noise; empty if that was not run."""
    found = [_at_infinity(score, method) for score in ("logit", "tree")]
    if not all(found):
        return ""
    logit, tree = (float(np.mean(values)) for values in found)
    return (
        f" The paper's networks have {logit:.4f} and {tree:.4f} even without noise; 0.25, the largest pMSE, means that "
        "real and synthetic rows are separated perfectly."
    )


def _uniform_branch() -> str:
    """The same with bins of equal width; empty if that was not run."""
    found = _at_infinity("upper", "bayesgan")
    return f" With bins of equal width (`curve.py`): {np.mean(found):.0%} without noise." if found else ""


def rows() -> list[Row]:
    seeds = str(len({line["seed"] for line in read(NAME) if line["kind"] == "BayesGAN"}) or "")
    ends = "CART / BayesGAN, not private / epsilon 10 / epsilon 1"
    shown = {
        "logit": ("B1", "Figure 1, pMSE by logistic regression", 4),
        "tree": ("B1", "Figure 1, pMSE by a tree", 4),
        "upper": ("B2", "Figure 2, y against x10, proportion of rows near the upper branch", 2),
    }
    curves = [
        Row(
            id="B1",
            what=f"Figure 1 by epsilon {' / '.join(f'{epsilon:g}' for epsilon in EPSILONS)}, {what}",
            as_published=_curve(score, "published"),
            sound=_curve(score, "bayesgan"),
            seeds=_curve_seeds("published"),
            command="curve.py",
        )
        for score, what in (("logit", "pMSE by logistic regression"), ("tree", "pMSE by a tree"))
    ]
    return [*curves, *_extensions(), _disclosure()] + [
        Row(id=number, what=f"{what}: {ends}", sound=_means(score, digits), seeds=seeds, command="montgomery.py")
        for score, (number, what, digits) in shown.items()
    ]


def _extensions() -> list[Row]:
    """What the authors name as missing, structural zeros, and wrappers around their method."""
    by_epsilon = " / ".join(f"{epsilon:g}" for epsilon in EPSILONS)
    kept = _at_infinity("one_group", "bayesgan"), _at_infinity("one_group", "bayesgan", "montgomery_rules")
    ruled = _curve("one_group", "bayesgan", "montgomery_rules", 2)
    wrapped = {name: _curve("logit", name) for name in ("boosted", "selected")}
    return [
        Row(
            id="B1",
            what=f"wrappers around it, pMSE by logistic regression by epsilon {by_epsilon}",
            published="–",
            sound="; ".join(f"{name} {figures}" for name, figures in wrapped.items() if figures),
            seeds=_curve_seeds("boosted"),
            command="curve.py",
        ),
        Row(
            id="B4",
            what="structural zeros, named as missing by the authors: proportion of rows in exactly one of three "
            f"groups, not private, without a rule / with it{f'; with it by epsilon {by_epsilon}' if ruled else ''}",
            published="–",
            sound="; ".join(filter(None, (joined([mean(each, 2) for each in kept]), ruled))),
            seeds=_curve_seeds("bayesgan", "montgomery_rules"),
            command="curve.py",
        ),
    ]


def _curve_seeds(method: str, table: str = "montgomery") -> str:
    lines = read("bayesgan_curve")
    return str(len({x["seed"] for x in lines if (x["table"], x["method"]) == (table, method)}) or "")


def _advantages() -> dict[str, tuple[str, str]]:
    """Runs, and the advantage of the best membership attack, by epsilon."""
    return {row[1]: (row[2], row[9]) for row in read_tables("disclosure_adult") if row[0] == "bayesgan"}


def _disclosure() -> Row:
    found = _advantages()
    return Row(
        id="B3",
        what="Section 5.3, left open by the authors: membership advantage of the best attack on `bayesgan` on Adult, "
        f"by epsilon {' / '.join(found)} ([all figures](../../benchmarks/results/disclosure_adult.md))",
        published="–",
        sound=joined([advantage for _, advantage in found.values()]),
        seeds=max((runs for runs, _ in found.values()), default=""),
        command="benchmarks/disclosure.py",
    )


def tables() -> list[str]:
    """All kinds, the lines for reference among them."""
    kinds = list(dict.fromkeys(line["kind"] for line in read(NAME)))
    lines = [["", *SCORES.values()], ["---", *["---:"] * len(SCORES)]]
    digits = {"logit": 4, "tree": 4, "upper": 2, "lower": 2}
    lines += [[kind, *(mean(_values(kind, score), digits[score]) for score in SCORES)] for kind in kinds]
    return ["\n".join("| " + " | ".join(line) + " |" for line in lines)] if kinds else []


def verdicts() -> list[tuple[str, str]]:
    figures = {(k, s): float(np.mean(_values(k, s))) for k in KINDS for s in SCORES if _values(k, s)}
    if len(figures) < len(KINDS) * len(SCORES):
        return []
    ratio = [figures["BayesGAN", score] / figures["CART", score] for score in ("logit", "tree")]
    falls = all(
        figures["BayesGAN", score] < figures["epsilon 10", score] < figures["epsilon 1", score]
        for score in ("logit", "tree")
    )
    worst = _curve_ends("published")
    alone = [float(np.mean(found)) if (found := _values("independent columns", s)) else np.nan for s in SCORES]
    return [
        (
            "BayesGAN is comparable with synthpop.",
            f"By pMSE {'yes' if max(ratio) <= 1.5 else 'no'}, with the settings of `montgomery.py`: {ratio[0]:.2f} "
            f"(logit) and {ratio[1]:.2f} (tree) times that of CART. Independent columns have {alone[0]:.4f} and "
            f"{alone[1]:.4f}, so pMSE is a weak test here.{worst}",
        ),
        (
            "Utility falls as noise grows.",
            f"{'Yes' if falls else 'No'}: pMSE {'rises' if falls else 'does not always rise'} from no noise to epsilon "
            "10 and epsilon 1.",
        ),
        (
            "Both branches of y are kept without privacy.",
            f"With the settings of `montgomery.py`, {figures['BayesGAN', 'upper']:.0%} of rows above the jump lie near "
            f"the line; with CART {figures['CART', 'upper']:.0%}, with independent columns {alone[2]:.0%}, at epsilon "
            f"10 {figures['epsilon 10', 'upper']:.0%}.{_uniform_branch()}",
        ),
        ("Disclosure risk falls as epsilon falls (section 5.3, left open).", _disclosure_verdict()),
    ]


def _disclosure_verdict() -> str:
    values = [float(advantage.removesuffix("%")) for _, advantage in _advantages().values()]
    if len(values) < 2:
        return "Not run for BayesGAN."
    rises = all(after >= before for before, after in itertools.pairwise(values))
    return (
        f"In the means of two runs the advantage of the best membership attack {'rises' if rises else 'goes'} from "
        f"{values[0]:g}% at the smallest epsilon to {values[-1]:g}% without privacy; no run has a finding (B3). A "
        "copy of the training rows has 100%."
    )
