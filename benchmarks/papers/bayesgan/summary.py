"""The figures of the DP-BayesGAN paper beside ours, from committed results."""

import numpy as np

from benchmarks.papers.rows import Row, joined, mean, read

NAME = "bayesgan_montgomery"
KINDS = ("CART", "BayesGAN", "epsilon 10", "epsilon 1")
EPSILONS = (0.5, 1.0, 2.0, 3.0, 5.0, 10.0)
SCORES = {"logit": "pMSE, logit", "tree": "pMSE, tree", "upper": "upper branch", "lower": "lower branch"}


def _values(kind: str, score: str) -> list[float]:
    return [float(line[score]) for line in read(NAME) if line["kind"] == kind]


def _means(score: str, digits: int) -> str:
    return joined([mean(_values(kind, score), digits) for kind in KINDS])


def _curve(score: str, method: str) -> str:
    """By epsilon, on the table without rules. The published networks train under our clipping and ledger."""
    lines = [line for line in read("bayesgan_curve") if line["table"] == "montgomery" and line["method"] == method]
    return joined([mean([x["scores"][score] for x in lines if x["epsilon"] == epsilon], 4) for epsilon in EPSILONS])


def _at_infinity(score: str, method: str) -> list[float]:
    return [
        x["scores"][score]
        for x in read("bayesgan_curve")
        if (x["table"], x["method"], x["epsilon"]) == ("montgomery", method, float("inf"))
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
            seeds=str(len({line["seed"] for line in read("bayesgan_curve") if line["method"] == "published"}) or ""),
            command="curve.py",
        )
        for score, what in (("logit", "pMSE by logistic regression"), ("tree", "pMSE by a tree"))
    ]
    return curves + [
        Row(id=number, what=f"{what}: {ends}", sound=_means(score, digits), seeds=seeds, command="montgomery.py")
        for score, (number, what, digits) in shown.items()
    ]


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
        ("Disclosure risk falls with epsilon (section 5.3, left open).", "Not run for BayesGAN."),
    ]
