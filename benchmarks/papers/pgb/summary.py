"""The figures of the boosting paper beside ours, from committed results. Medians over the seeds."""

from collections.abc import Callable
from typing import Any

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


def rows() -> list[Row]:
    gaussians, census, other = "pgb_gaussians", "pgb_census1940", "pgb_census2010"

    def mnist(kind: str) -> str:
        return _four("pgb_mnist", lambda line, output: line[output]["score"] if line["kind"] == kind else None, 2)

    def images(kind: str) -> str:
        return _count("pgb_mnist", lambda line: line["kind"] == kind)

    def titanic(kind: str, model: str) -> str:
        return _four("pgb_titanic", lambda line, output: line[kind][output][model]["ROC"])

    own = "epsilon 1, own settings"
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
            what=f"MNIST, inception score, not private: {ORDER}",
            published="8.41 / 8.21 / 8.76 / 8.77",
            sound=mnist("not private"),
            seeds=images("not private"),
            command="mnist.py",
        ),
        Row(
            id="P4",
            what=f"MNIST, epsilon 10 (selections noisy, not charged): {ORDER}",
            published="8.07 / 8.18 / 8.58 / 8.66",
            as_published=mnist("epsilon 10"),
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
