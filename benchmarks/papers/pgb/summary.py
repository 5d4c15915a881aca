"""The figures of the boosting paper beside ours, from committed results. Medians over the seeds."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.papers.pgb.mnist_page import PUBLISHED, REAL
from benchmarks.papers.pgb.populations import CENSUS1940, CENSUS2010, POINTS, TITANIC, published_name
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
TITANIC_OPEN = "titanic, not private"


def _roc(found: dict[str, Any]) -> Any:
    return found["logit"]["ROC"]


def _capped(found: dict[str, Any]) -> Any:
    return found["capped"]


def _with_epsilons(part: str, figures: str) -> str:
    """Figures, and what the ledger states for the noise of this part: GAN and DRS, then PGB and PGB+DRS."""
    if not figures:
        return ""
    lines = [line for line in read("pgb_populations") if line["part"] == part]
    stated = {output: line["epsilon"] for line in lines for output in line["outputs"]}
    epsilons = joined([f"{stated[name]:.2f}" if name in stated else "" for name in ("GAN", "PGB")])
    return f"{figures} (epsilon {epsilons})"


def long_rows() -> list[Row]:
    """The published networks and numbers of steps: as published with the published noise, where it is given, and sound
    with the least noise for the guarantee."""

    def row(id: str, what: str, published: str, part: str, figures: Callable[[str], str]) -> Row:
        noisy = published_name(part)
        as_published = _with_epsilons(noisy, figures(noisy))
        return Row(
            id=id,
            what=f"{what}: {ORDER}",
            published=published,
            as_published=as_published,
            sound=figures(part),
            seeds=_long_seeds(part),
            command="populations.py --parts " + " ".join(f'"{name}"' for name in [part] + [noisy] * bool(as_published)),
        )

    def medians(of: Figure, digits: int = 3) -> Callable[[str], str]:
        return lambda part: _long(part, of, digits)

    return [
        *_gaussian_rows(),
        row("P5", "1940 census, epsilon 1, pMSE ratio", "2.357 / 2.313 / 2.253 / 2.445", CENSUS1940, medians(_pmse)),
        row(
            "P5a",
            "Figure 2A, total variation of race",
            "0.58 / 0.44 / 0.22 / 0.13",
            CENSUS1940,
            medians(lambda f: f["race"]),
        ),
        row(
            "P5b",
            "Figure 2B, errors of linear models over those of real rows",
            "",
            CENSUS1940,
            medians(lambda f: f["ratio"]),
        ),
        row(
            "P6",
            "2010 census (here another survey), epsilon 0.795, pMSE ratio",
            "1.934 / 1.889 / 1.609 / 1.485",
            CENSUS2010,
            medians(_pmse),
        ),
        row(
            "P6a",
            "the same, accuracy of cells, per cent",
            "99.82 / 99.89 / 99.89 / 99.93",
            CENSUS2010,
            medians(lambda f: f["accuracy"], 2),
        ),
        row("P6b", "the same, cells won", "43 / 30 / 90 / 387", CENSUS2010, _won),
        Row(
            id="P7",
            what=f"Table 1, Titanic, not private, ROC AUC of logistic regression: {ORDER}",
            published="0.591 / 0.760 / 0.726 / 0.792",
            as_published=_long(TITANIC_OPEN, _roc),
            seeds=_long_seeds(TITANIC_OPEN),
            command=f'populations.py --parts "{TITANIC_OPEN}"',
        ),
        row(
            "P8",
            "Table 1, Titanic, epsilon 2, ROC AUC of logistic regression",
            "0.477 / 0.568 / 0.621 / 0.624",
            TITANIC,
            medians(_roc),
        ),
        *_rejection_rows(),
    ]


def _pmse(found: dict[str, Any]) -> Any:
    return found["pmse"]


def _gaussian_rows() -> list[Row]:
    """The published networks with their noise beside our own settings, and what networks and distinguishers bring."""
    noisy, gaussians = published_name(POINTS), "pgb_gaussians"
    found = [
        Row(
            id="P2",
            what=f"Figure 1, 25 Gaussians, epsilon 1, Q capped: {ORDER}",
            published="0.031 / 0.035 / 0.053 / –",
            as_published=_with_epsilons(noisy, _long(noisy, _capped)),
            sound=_four(gaussians, lambda line, o: line["epsilon 1, own settings"][o]["capped"]),
            seeds=" and ".join(filter(None, (_long_seeds(noisy), _count(gaussians)))),
            command=f'populations.py --parts "{noisy}"; gaussians.py',
        )
    ]
    for nets in ("the text's", "the code's", "own"):
        for distinguishers in ("critics", "critics and cells"):
            part = f"gaussians, {nets} networks, {distinguishers}"
            found.append(
                Row(
                    id="P2",
                    what=f"the same, {nets} networks, {distinguishers} as distinguishers, least noise",
                    published="–",
                    sound=_long(part, _capped),
                    seeds=_long_seeds(part),
                    command=f'populations.py --parts "{part}"',
                )
            )
    return found


def _rejection_rows() -> list[Row]:
    """What each step of PGB+DRS does."""
    cases: tuple[tuple[str, str, str, Figure], ...] = (
        ("P2", "Q capped", "gaussians, the text's networks, critics", _capped),
        ("P5a", "total variation of race", CENSUS1940, lambda f: f["race"]),
        ("P6", "pMSE ratio", CENSUS2010, _pmse),
        ("P7", "ROC AUC", TITANIC_OPEN, _roc),
        ("P8", "ROC AUC", TITANIC, _roc),
    )
    found = []
    for id, metric, part, of in cases:
        figures = _long(part, of, outputs=STEPS)
        is_open = part == TITANIC_OPEN
        found.append(
            Row(
                id=id,
                what=f"variants of rejection, {metric}: {' / '.join(STEPS)}",
                published="–",
                as_published=figures if is_open else "",
                sound="" if is_open else figures,
                seeds=_long_seeds(part),
                command=f'populations.py --parts "{part}"',
            )
        )
    return found


def verdicts() -> list[tuple[str, str]]:
    """Computed from results."""
    found = [line["found"]["best critics, rate of the paper"] for line in read("pgb_rejection")]
    if not found:
        return _claims()

    def middle(*path: str) -> str:
        values = []
        for each in found:
            for step in path:
                each = each[step]
            values.append(float(each))
        return median(values)

    loses = sum(each["tv"]["PGB+DRS"] > each["tv"]["PGB"] for each in found)
    return [
        *_claims(),
        (
            "Why PGB+DRS is below PGB.",
            f"On a known distribution (`rejection.py`), the odds of the mixture of selected critics hardly differ from "
            f"row to row (95th percentile over median {middle('odds')}), because boosting ends where no critic "
            f"separates the rows. The published acceptance depends on ranks alone: there the same ratio is "
            f"{middle('acceptance')}. Total variation from the known distribution: pool {middle('tv', 'pool')}, PGB "
            f"{middle('tv', 'PGB')}, distinct rows {middle('tv', 'PGB, distinct')}, exact odds "
            f"{middle('tv', 'PGB x odds')}, published acceptance "
            f"{middle('tv', 'PGB, accepted')}, both {middle('tv', 'PGB+DRS')}; PGB+DRS is further away in {loses} of "
            f"{len(found)} seeds.",
        ),
    ]


Scores = dict[int, dict[str, float]]
"""Of each output, by seed."""


def _of_part(part: str, of: Figure) -> Scores:
    found: Scores = {}
    for line in read("pgb_populations"):
        if line["part"] == part:
            found.setdefault(line["seed"], {}).update({name: float(of(f)) for name, f in line["figures"].items()})
    return found


def _of_images(kind: str) -> Scores:
    outputs = (*OUTPUTS, *MNIST_STEPS)
    return {line["seed"]: {o: line[o]["score"] for o in outputs if o in line} for line in _images(kind)}


def _cases() -> Iterator[tuple[str, Scores, bool]]:
    """Each experiment with its main score, and whether a higher one is better."""
    points = read("pgb_gaussians")
    yield (
        "P1, 25 Gaussians, not private",
        {line["seed"]: {o: line["not private"][o]["capped"] for o in OUTPUTS} for line in points},
        True,
    )
    yield "P2, the code's networks, critics, published noise", _of_part(published_name(POINTS), _capped), True
    for nets in ("the text's", "the code's", "own"):
        for distinguishers in ("critics", "critics and cells"):
            part = f"gaussians, {nets} networks, {distinguishers}"
            yield f"P2, {nets} networks, {distinguishers}, least noise", _of_part(part, _capped), True
    yield "P3, MNIST, not private", _of_images("not private"), True
    yield "P4, MNIST, epsilon 10", _of_images("epsilon 10"), True
    for noise, name in (("published", published_name), ("least", str)):
        yield f"P5, 1940 census, pMSE ratio, {noise} noise", _of_part(name(CENSUS1940), _pmse), False
        yield f"P5a, 1940 census, race, {noise} noise", _of_part(name(CENSUS1940), lambda f: f["race"]), False
        yield f"P6, 2010 census, pMSE ratio, {noise} noise", _of_part(name(CENSUS2010), _pmse), False
        yield f"P8, Titanic, ROC AUC, {noise} noise", _of_part(name(TITANIC), _roc), True
    yield "P7, Titanic, ROC AUC, not private", _of_part(TITANIC_OPEN, _roc), True


COMPARED = (("PGB", "GAN"), ("PGB+DRS", "PGB"), ("PGB+DRS of draws", "PGB"), ("PGB x odds", "PGB"))


def _won_seeds(scores: Scores, higher: bool, one: str, other: str) -> tuple[int, int]:
    """In how many of the seeds that have both the first output is better."""
    pairs = [(found[one], found[other]) for found in scores.values() if one in found and other in found]
    return sum(a > b if higher else a < b for a, b in pairs), len(pairs)


def _wins() -> str:
    """A table: seeds in which one output is better than another."""
    lines = [
        "| experiment; number of seeds in which | "
        + " | ".join(f"{one} is better than {other}" for one, other in COMPARED)
        + " |",
        "| --- |" + " ---: |" * len(COMPARED),
    ]
    for name, scores, higher in sorted(_cases(), key=lambda case: case[0]):
        counts = [_won_seeds(scores, higher, *pair) for pair in COMPARED]
        lines.append(f"| {name} | " + " | ".join(f"{won} of {all}" if all else "" for won, all in counts) + " |")
    return "\n".join(lines)


def _claims() -> list[tuple[str, str]]:
    """The paper's two claims on outputs, counted over all experiments."""

    def most(one: str, other: str) -> str:
        counts = [_won_seeds(scores, higher, one, other) for _, scores, higher in _cases()]
        known = [(won, all) for won, all in counts if all]
        return (
            f"in more than half of the seeds in {sum(2 * won > all for won, all in known)} of {len(known)} experiments"
        )

    return [
        ("Boosting improves a GAN.", f"PGB is better than GAN {most('PGB', 'GAN')} of the table above."),
        (
            "PGB+DRS is the best output.",
            f"It is better than PGB {most('PGB+DRS', 'PGB')}; "
            f"rejection of draws {most('PGB+DRS of draws', 'PGB')}; exact odds {most('PGB x odds', 'PGB')}.",
        ),
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
        return [_wins()]
    lines = ["| MNIST | " + " | ".join(f"{kind}: published | here, median (range)" for kind in found) + " |"]
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
    facts = "\n".join(f"- MNIST, {kind}: {_facts(here)}" for kind, here in found.items())
    return ["\n".join(lines), facts, _wins()]


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
    """By experiment; those at the paper's length before shorter ones."""
    return sorted(long_rows() + short_rows(), key=lambda row: row.id)


def short_rows() -> list[Row]:
    """The experiments in their own scripts, with the sizes that the result files state."""
    gaussians, census, other = "pgb_gaussians", "pgb_census1940", "pgb_census2010"

    def mnist(kind: str) -> str:
        return _four("pgb_mnist", lambda line, output: line[output]["score"] if line["kind"] == kind else None, 2)

    def images(kind: str) -> str:
        return _count("pgb_mnist", lambda line: line["kind"] == kind)

    def titanic(kind: str, model: str) -> str:
        return _four("pgb_titanic", lambda line, output: line[kind][output][model]["ROC"])

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
            id="P3",
            what=f"Section 4.1, MNIST, inception score, not private, figures 3a to 7a: {ORDER}",
            published="8.41 / 8.21 / 8.76 / 8.77",
            as_published=mnist("not private"),
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
            what="1,500 steps, pMSE ratio",
            published="–",
            sound=_four(census, lambda line, o: line["census1940_ca"]["published"][o]["pmse"]),
            seeds=_count(census),
            command="census1940.py",
        ),
        Row(
            id="P5a",
            what="1,500 steps, total variation of race",
            published="–",
            sound=_four(census, lambda line, o: line["census1940_ca"]["published"][o]["race"]),
            seeds=_count(census),
            command="census1940.py",
        ),
        Row(
            id="P5b",
            what="1,500 steps, errors of linear models",
            published="–",
            sound=_four(census, lambda line, o: line["census1940_ca"]["published"][o]["ratio"]),
            seeds=_count(census),
            command="census1940.py",
        ),
        Row(
            id="P6",
            what="1,500 steps and 50,000 rows, pMSE ratio",
            published="–",
            sound=_four(other, lambda line, o: line[o]["pmse"]),
            seeds=_count(other),
            command="census2010.py",
        ),
        Row(
            id="P6a",
            what="1,500 steps and 50,000 rows, accuracy of cells, per cent",
            published="–",
            sound=_four(other, lambda line, o: line[o]["accuracy"], 2),
            seeds=_count(other),
            command="census2010.py",
        ),
        Row(
            id="P6b",
            what="1,500 steps and 50,000 rows, cells won",
            published="–",
            sound=_four(other, lambda line, o: line[o]["won"], 0),
            seeds=_count(other),
            command="census2010.py",
        ),
        Row(
            id="P7",
            what="1,500 steps, ROC AUC of logistic regression",
            published="–",
            as_published=titanic("not private", "logit"),
            seeds=_count("pgb_titanic", lambda line: "not private" in line),
            command="titanic.py",
        ),
        Row(
            id="P8",
            what="1,500 steps, ROC AUC of logistic regression",
            published="–",
            sound=titanic("private", "logit"),
            seeds=_count("pgb_titanic", lambda line: "private" in line),
            command="titanic.py",
        ),
        Row(
            id="P9",
            what="Table 2, Titanic, real rows, ROC AUC: logistic regression / random forest / XGBoost",
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
