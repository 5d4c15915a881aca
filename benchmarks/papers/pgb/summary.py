"""The figures of the boosting paper beside ours, from committed results. Medians over the seeds."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.papers.pgb.mnist_page import PUBLISHED, REAL
from benchmarks.papers.rows import Row, joined, median, read

OUTPUTS = ("GAN", "DRS", "PGB", "PGB+DRS")
ORDER = "GAN / DRS / PGB / PGB+DRS"


def _four(name: str, of: Callable[[dict[str, Any], str], Any], digits: int = 3) -> str:
    """Medians of the four outputs over all lines that have them."""
    found = []
    for output in OUTPUTS:
        values = []
        for line in read(name):
            try:
                values.append(float(of(line, output)))
            except (KeyError, TypeError):
                continue
        found.append(median(values, digits))
    return joined(found)


def _count(name: str, has: Callable[[dict[str, Any]], bool] = lambda line: True) -> str:
    return str(sum(has(line) for line in read(name)))


Figure = Callable[[dict[str, Any]], Any]


def _long(part: str, of: Figure, digits: int = 3, outputs: Sequence[str] = OUTPUTS) -> str:
    """Medians over the seeds of a part of `populations.py`: the paper's networks and numbers of steps."""
    lines = [line for line in read("pgb_populations") if line["part"] == part]
    found = [
        median([float(of(line["figures"][name])) for line in lines if name in line["figures"]], digits)
        for name in outputs
    ]
    return joined(found) if any(found) else ""


def _long_seeds(part: str) -> str:
    return str(len({line["seed"] for line in read("pgb_populations") if line["part"] == part}) or "")


def _won(part: str) -> str:
    """Cells of the joint table in which each output is nearest to the real rows, the first on ties."""
    together: dict[int, dict[str, Any]] = {}
    for line in read("pgb_populations"):
        if line["part"] == part:
            together.setdefault(line["seed"], {}).update(line["figures"])
    counts = [
        np.bincount(np.argmin([found[name]["errors"] for name in OUTPUTS], axis=0), minlength=len(OUTPUTS))
        for found in together.values()
        if {*OUTPUTS} <= {*found}
    ]
    return joined([f"{count:.0f}" for count in np.median(counts, axis=0)]) if counts else ""


STEPS = ("pool", "PGB", "distinct", "PGB x odds", "PGB+DRS of draws", "PGB+DRS")


def long_rows() -> list[Row]:
    """The same experiments with the published networks and numbers of steps, under guarantees that hold."""

    def row(id: str, what: str, published: str, part: str, sound: str, seeds: str = "") -> Row:
        return Row(
            id=id,
            what=f"at the paper's length, {what}",
            published=published or "–",
            sound=sound,
            seeds=seeds or _long_seeds(part),
            command=f'populations.py --parts "{part}"',
        )

    def roc(found: dict[str, Any]) -> Any:
        return found["logit"]["ROC"]

    def capped(found: dict[str, Any]) -> Any:
        return found["capped"]

    made = []
    for nets in ("the text's", "the code's", "own"):
        for distinguishers in ("critics", "critics and cells"):
            part = f"gaussians, {nets} networks, {distinguishers}"
            what = f"{nets} networks, {distinguishers} as distinguishers, Q capped: {ORDER}"
            made.append(row("P2", what, "0.031 / 0.035 / 0.053 / –", part, _long(part, capped)))
    census, other, private, open_ = (
        "census1940, epsilon 1",
        "census2010, epsilon 0.795",
        "titanic, epsilon 2",
        "titanic, not private",
    )
    made += [
        row("P5", f"pMSE ratio: {ORDER}", "2.357 / 2.313 / 2.253 / 2.445", census, _long(census, lambda f: f["pmse"])),
        row("P5a", f"TV of race: {ORDER}", "0.58 / 0.44 / 0.22 / 0.13", census, _long(census, lambda f: f["race"])),
        row("P5b", f"errors of linear models: {ORDER}", "", census, _long(census, lambda f: f["ratio"])),
        row("P6", f"pMSE ratio: {ORDER}", "1.934 / 1.889 / 1.609 / 1.485", other, _long(other, lambda f: f["pmse"])),
        row(
            "P6a",
            f"accuracy of cells, per cent: {ORDER}",
            "99.82 / 99.89 / 99.89 / 99.93",
            other,
            _long(other, lambda f: f["accuracy"], 2),
        ),
        row("P6b", f"cells won: {ORDER}", "43 / 30 / 90 / 387", other, _won(other)),
        row("P7", f"ROC of logistic regression: {ORDER}", "0.591 / 0.760 / 0.726 / 0.792", open_, _long(open_, roc)),
        row(
            "P8", f"ROC of logistic regression: {ORDER}", "0.477 / 0.568 / 0.621 / 0.624", private, _long(private, roc)
        ),
    ]
    order = " / ".join(STEPS)
    for name, part, of in (
        ("P2", "gaussians, the text's networks, critics", capped),
        ("P5a", census, lambda f: f["race"]),
        ("P6", other, lambda f: f["pmse"]),
        ("P7", open_, roc),
        ("P8", private, roc),
    ):
        made.append(row(name, f"steps of rejection: {order}", "", part, _long(part, of, outputs=STEPS)))
    return made


def verdicts() -> list[tuple[str, str]]:
    """Computed from results."""
    found = [line["found"]["best critics, rate of the paper"] for line in read("pgb_rejection")]
    if not found:
        return []

    def middle(*path: str) -> str:
        values = []
        for each in found:
            for step in path:
                each = each[step]
            values.append(float(each))
        return median(values)

    loses = sum(each["tv"]["PGB+DRS"] > each["tv"]["PGB"] for each in found)
    return [
        (
            "Why PGB+DRS is below PGB:",
            f"on a known distribution (`rejection.py`), the odds of the mixture of selected critics hardly differ from "
            f"row to row (95th percentile over median {middle('odds')}), because boosting ends where no critic "
            f"separates the rows. The published acceptance follows ranks and differs by a factor of "
            f"{middle('acceptance')}. Total variation from the known distribution: pool {middle('tv', 'pool')}, PGB "
            f"{middle('tv', 'PGB')}, distinct rows {middle('tv', 'PGB, distinct')}, exact odds "
            f"{middle('tv', 'PGB x odds')}, published acceptance "
            f"{middle('tv', 'PGB, accepted')}, both {middle('tv', 'PGB+DRS')}; PGB+DRS is further away in {loses} of "
            f"{len(found)} seeds.",
        )
    ]


MNIST_STEPS = ("pool", "distinct", "pool x odds", "PGB x odds")


def _images(kind: str) -> list[dict[str, Any]]:
    return [line for line in read("pgb_mnist") if line["kind"] == kind]


def _is_charged() -> bool:
    """Whether a ledger was charged for the selections of all runs on images."""
    return all("epsilon, with picks" in line for line in _images("epsilon 10"))


def tables() -> list[str]:
    """MNIST: what the four outputs score, each step of rejection, and the checkpoints by themselves."""
    found = {kind: here for kind in PUBLISHED if (here := _images(kind))}
    if not found:
        return []
    lines = ["| MNIST | " + " | ".join(f"{kind}: published | here" for kind in found) + " |"]
    lines.append("| --- |" + " ---: | ---: |" * len(found))
    real = median([line["classifier"]["real"] for kind in found for line in found[kind]], 2)
    lines.append(f"| real test images | {REAL} | {real} |" + " | |" * (len(found) - 1))
    for output in (*OUTPUTS, *MNIST_STEPS):
        cells = []
        for kind, here in found.items():
            scores = [line[output]["score"] for line in here if output in line]
            spread = f" ({min(scores):.2f} to {max(scores):.2f})" if len(scores) > 1 else ""
            cells += [f"{PUBLISHED[kind][output]:.2f}" if output in OUTPUTS else "", median(scores, 2) + spread]
        if any(cells):
            lines.append(f"| {output} | " + " | ".join(cells) + " |")
    return ["\n".join(lines), "\n".join(f"- MNIST, {kind}: {_facts(here)}" for kind, here in found.items())]


def _facts(here: Sequence[dict[str, Any]]) -> str:
    """One sentence each on the checkpoints, the critics, the learning rates and the ledger."""
    scores = [[score for _, score, _ in line["checkpoints"]] for line in here]
    low, high = min(map(min, scores)), max(map(max, scores))
    parts = [
        f"{len(here)} seed{'s' * (len(here) > 1)}. Single checkpoints score {low:.2f} to {high:.2f}, the last "
        f"one {median([each[-1] for each in scores], 2)}; the game selects "
        f"{median([line['critics picked'] for line in here], 0)} of {len(scores[0])} critics."
    ]
    rates = {tuple(line["rates"]) for line in here if line.get("tried")}
    if rates:
        shown = " and ".join(f"{critic:g} and {generator:g}" for critic, generator in sorted(rates))
        tried = {number for line in here for number in [len(line["tried"])]}
        parts.append(f"Learning rates of critic and generator, chosen among {max(tried)} on another seed: {shown}.")
    else:
        parts.append("Learning rates were not tuned.")
    if here[0]["kind"] == "epsilon 10":
        total = max(line.get("epsilon, with picks", 0.0) for line in here)
        parts.append(
            f"A ledger was charged for training and selections: epsilon {total:.3f}."
            if _is_charged()
            else "Selections were noisy but not charged: the critics were evaluated on many images at a time, and the "
            "ledger refuses functions that are not of single rows."
        )
    return " ".join(parts)


def rows() -> list[Row]:
    return short_rows() + long_rows()


def short_rows() -> list[Row]:
    """The experiments in their own scripts, with the sizes that the result files state."""
    gaussians, census, other = "pgb_gaussians", "pgb_census1940", "pgb_census2010"

    def mnist(kind: str) -> str:
        return _four("pgb_mnist", lambda line, output: line[output]["score"] if line["kind"] == kind else None, 2)

    def images(kind: str) -> str:
        return _count("pgb_mnist", lambda line: line["kind"] == kind)

    def titanic(kind: str, model: str) -> str:
        return _four("pgb_titanic", lambda line, output: line[kind][output][model]["ROC"])

    own = "epsilon 1, own settings"
    charged = _is_charged()
    return [
        Row(
            id="P1",
            what=f"Figure 1, 25 Gaussians, Q capped: {ORDER}",
            published="0.904 / 0.874 / 0.918 / –",
            as_published=_four(gaussians, lambda line, o: line["not private"][o]["capped"]),
            seeds=_count(gaussians),
            command="gaussians.py",
        ),
        Row(
            id="P1b",
            what=f"footnote 5, Q uncapped: {ORDER}",
            published="0.906 / 0.946 / 0.951 / 0.972",
            as_published=_four(gaussians, lambda line, o: line["not private"][o]["uncapped"]),
            seeds=_count(gaussians),
            command="gaussians.py",
        ),
        Row(
            id="P2",
            what=f"Figure 1, epsilon 1, Q capped: {ORDER}",
            published="0.031 / 0.035 / 0.053 / –",
            sound=_four(gaussians, lambda line, o: line[own][o]["capped"]),
            seeds=_count(gaussians),
            command="gaussians.py",
        ),
        Row(
            id="P3",
            what=f"Section 4.1, MNIST, inception score, not private, figures 3a to 7a: {ORDER}",
            published="8.41 / 8.21 / 8.76 / 8.77",
            sound=mnist("not private"),
            seeds=images("not private"),
            command="mnist.py",
        ),
        Row(
            id="P4",
            what=f"Section 4.2, MNIST, epsilon 10{'' if charged else ' (selections noisy, not charged)'}, figures 3b "
            f"to 7b: {ORDER}",
            published="8.07 / 8.18 / 8.58 / 8.66",
            as_published="" if charged else mnist("epsilon 10"),
            sound=mnist("epsilon 10") if charged else "",
            seeds=images("epsilon 10"),
            command="mnist.py",
        ),
        Row(
            id="P5",
            what=f"1940 census, epsilon 1, pMSE ratio: {ORDER}",
            published="2.357 / 2.313 / 2.253 / 2.445",
            sound=_four(census, lambda line, o: line["census1940_ca"]["published"][o]["pmse"]),
            seeds=_count(census),
            command="census1940.py",
        ),
        Row(
            id="P5a",
            what=f"Figure 2A, total variation of race: {ORDER}",
            published="0.58 / 0.44 / 0.22 / 0.13",
            sound=_four(census, lambda line, o: line["census1940_ca"]["published"][o]["race"]),
            seeds=_count(census),
            command="census1940.py",
        ),
        Row(
            id="P5b",
            what=f"Figure 2B, errors of linear models over those of real rows: {ORDER}",
            sound=_four(census, lambda line, o: line["census1940_ca"]["published"][o]["ratio"]),
            seeds=_count(census),
            command="census1940.py",
        ),
        Row(
            id="P6",
            what=f"2010 census (here another survey), epsilon 0.795, pMSE ratio: {ORDER}",
            published="1.934 / 1.889 / 1.609 / 1.485",
            sound=_four(other, lambda line, o: line[o]["pmse"]),
            seeds=_count(other),
            command="census2010.py",
        ),
        Row(
            id="P6a",
            what=f"the same, accuracy of cells, per cent: {ORDER}",
            published="99.82 / 99.89 / 99.89 / 99.93",
            sound=_four(other, lambda line, o: line[o]["accuracy"], 2),
            seeds=_count(other),
            command="census2010.py",
        ),
        Row(
            id="P6b",
            what=f"the same, cells won: {ORDER}",
            published="43 / 30 / 90 / 387",
            sound=_four(other, lambda line, o: line[o]["won"], 0),
            seeds=_count(other),
            command="census2010.py",
        ),
        Row(
            id="P7",
            what=f"Table 1, Titanic, not private, ROC of logistic regression: {ORDER}",
            published="0.591 / 0.760 / 0.726 / 0.792",
            sound=titanic("not private", "logit"),
            seeds=_count("pgb_titanic", lambda line: "not private" in line),
            command="titanic.py",
        ),
        Row(
            id="P8",
            what=f"Table 1, Titanic, epsilon 2, ROC of logistic regression: {ORDER}",
            published="0.477 / 0.568 / 0.621 / 0.624",
            sound=titanic("private", "logit"),
            seeds=_count("pgb_titanic", lambda line: "private" in line),
            command="titanic.py",
        ),
        Row(
            id="P9",
            what="Table 2, Titanic, real rows, ROC: logistic regression / random forest / XGBoost",
            published="0.813 / 0.809 / 0.773",
            as_published=joined(
                [
                    median([line["real"][model]["ROC"] for line in read("pgb_titanic") if "real" in line])
                    for model in ("logit", "RF", "XGB")
                ]
            ),
            seeds=_count("pgb_titanic", lambda line: "real" in line),
            command="titanic.py",
        ),
    ]
