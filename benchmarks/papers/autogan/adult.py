"""Adult: a forest trained on synthetic rows, Wasserstein scores, components, histograms. Experiments A3 to A7.

    UNDERSTUDY_DATA=folder python benchmarks/papers/autogan/adult.py --profile paper --write

The 13 columns that the paper uses, education-num as categories, the official test rows; epsilon 1.5, 1 and 0.8 at delta
1e-5, and none. `autogan` has this package's defaults, `random` leaves its encoder as it was made, `published` has the
paper's networks, losses and schedule with the encoder under the same noise as the decoder; `unsound` is the same with
an encoder that was trained on the rows without noise, so no epsilon holds; `dpgan` is what the paper compares with.
Real rows, held-out rows and independent columns stand beside them.
"""

import dataclasses
import functools
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parents[3] / "src")]

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.compute as pc  # noqa: E402

import understudy as us  # noqa: E402
from benchmarks.papers import experiment  # noqa: E402
from benchmarks.papers.autogan import core  # noqa: E402
from benchmarks.papers.experiment import table_of  # noqa: E402
from benchmarks.papers.published import AUTOGAN_ADULT  # noqa: E402
from understudy.benchmark.tables import declared_schema, load_table  # noqa: E402
from understudy.evaluation.geometry import pca_marginal, wasserstein  # noqa: E402
from understudy.evaluation.learning import learn  # noqa: E402
from understudy.evaluation.regression import dimension_prediction  # noqa: E402
from understudy.synthesizers import express  # noqa: E402

UNUSED = ("fnlwgt", "education")
EPSILONS = (1.5, 1.0, 0.8)
COSTS = ("euclidean", "squared")
ACCURACY = {"real": 86.63, math.inf: 79.18, 1.5: 77.86, 1.0: 76.92, 0.8: 77.7}
WASSERSTEIN = {1.5: (44.36, 60.84), 1.0: (41.17, 60.53), 0.8: (19.25, 60.51)}
"""Tables 2 and 3 of the paper, in per cent; of the second, along two principal components and of whole rows."""
HISTOGRAMS = ("capital-gain", "capital-loss", "hours-per-week")
TRAINED = (core.REAL, core.INDEPENDENT)
"""Baselines that may be trained on: held-out rows are the ones that models are tested on."""
POINTS = 300
"""Of each table in the plot of principal components."""

UNSOUND = dataclasses.replace(AUTOGAN_ADULT, encoder="public", warm_steps=AUTOGAN_ADULT.autoencoder_steps)
"""The encoder is trained on what it is given as public rows, which are private ones; the decoder, which starts from
that training, is then trained privately. In the paper both are trained at once."""
METHODS = {
    "autogan": "autogan",
    "published": express(AUTOGAN_ADULT),
    "unsound": express(UNSOUND),
    "random": "autogan(encoder=random)",
    "dpgan": "dpgan",
    "independent": "independent",
}
SMALL = "autogan(steps=20, latent=4, generator_widths=[16, 16], critic_widths=[8], autoencoder_steps=20)"
CELLS = {
    "smoke": [
        core.Cell("adult_small", "autogan", SMALL, 1.0, 0),
        core.Cell("adult_small", core.INDEPENDENT, core.INDEPENDENT, math.inf, 0),
    ],
    "paper": [
        *(core.Cell("adult", name, name, math.inf, 0) for name in core.BASELINES),
        *(
            core.Cell("adult", name, expression, epsilon, seed)
            for name, expression in METHODS.items()
            for epsilon in (*EPSILONS, math.inf)
            for seed in range(5)
            if math.isfinite(epsilon) or name in ("autogan", "published", "dpgan")
        ),
    ],
}


@functools.cache
def load(name: str = "adult", seed: int = 0) -> core.Public:
    """The table of the paper, the same for every seed; `adult_small` has 600 rows of it."""
    found = load_table("adult")
    assert found.test is not None
    columns = tuple(_declared(column) for column in found.schema.columns if column.name not in UNUSED)
    train, test = (_selected(part, [column.name for column in columns]) for part in (found.train, found.test))
    if name == "adult_small":
        train, test = train.slice(0, 600), test.slice(0, 600)
    return core.Public(train, test, dataclasses.replace(found.schema, columns=columns, rows=train.num_rows))


def _declared(column: us.Column) -> us.Column:
    if column.name != "education-num":
        return column
    listed = tuple(str(number) for number in range(1, 17))
    return us.Column(name=column.name, kind="categorical", categories=listed, nullable=False, closed=True)


def _selected(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    rows = rows.select(names)
    at = rows.column_names.index("education-num")
    return rows.set_column(at, "education-num", pc.cast(rows.column(at), pa.string()))


def public_rows(cell: core.Cell, table: core.Public) -> pa.Table | None:
    """Of `unsound`: private rows, drawn with replacement, as if they were public, which the package refuses for the
    table itself."""
    if cell.method != "unsound":
        return None
    return table.train.take(np.random.default_rng(cell.seed).integers(table.train.num_rows, size=table.train.num_rows))


def amend(cell: core.Cell, release: us.Release) -> us.Release:
    """Of `unsound`: the certificate must not take the rows that trained the encoder for public ones."""
    if cell.method != "unsound":
        return release
    none = dataclasses.replace(release.statement, epsilon=math.inf, epsilon_pld=math.inf, epsilon_rdp=math.inf)
    return dataclasses.replace(release, statement=none)


def stated_epsilon(line: Mapping[str, Any]) -> float:
    """What the certificate of a line states at most."""
    return float(math.inf if line["method"] == "unsound" else line["epsilon"])


def score(cell: core.Cell, public: core.Public, fake: pa.Table) -> dict[str, Any]:
    """Everything that the paper shows of one table; of small tables, by fewer repetitions."""
    is_small = cell.table == "adult_small"
    layout = public.layout
    real, test, synthetic = (
        layout.read(t, w) for t, w in ((public.train, "real"), (public.test, "test"), (fake, "fake"))
    )
    forest = learn(synthetic, test, target="income", models=("random_forest",), max_rows=None, seed=cell.seed)
    scores = {"accuracy": forest.scores["accuracy"].value}
    details: dict[str, Any] = {}
    for cost in COSTS:
        settings: dict[str, Any] = {"repeats": 3 if is_small else 100, "seed": cell.seed, "cost": cost}
        plane = pca_marginal(real, synthetic, num_points=POINTS, **settings)
        whole = wasserstein(real, synthetic, **settings)
        scores[f"pca_{cost}"] = plane.scores["pca_wasserstein_score"].value
        scores[f"whole_{cost}"] = whole.scores["wasserstein_score"].value
        details[f"baseline_{cost}"] = [each.details["real_baseline"]["score"] for each in (plane, whole)]
        details["pca"] = plane.details["synthetic"] if cell.expression != core.REAL else plane.details["real"]
    prediction = dimension_prediction(real, synthetic, test, seed=cell.seed, max_rows=600 if is_small else 10_000)
    scores |= {key: found.value for key, found in prediction.scores.items()}
    details["predictions"] = [
        [point["column"], point["kind"], round(point["real"], 4), round(point["synthetic"], 4)]
        for point in prediction.details["points"]
    ]
    if cell.seed:  # one picture of each method is enough
        del details["pca"]
    else:
        details["histograms"] = {name: _fractions(fake, name) for name in HISTOGRAMS}
    return {"scores": scores, "details": details}


def _fractions(rows: pa.Table, name: str) -> list[float]:
    """Fractions of ten equal bins between the declared bounds."""
    bounds: Any = declared_schema("adult")[name].bounds
    values = rows.column(name).to_numpy().astype(float)
    counts, _ = np.histogram(values, bins=10, range=(float(bounds[0]), float(bounds[1])))
    return (counts / counts.sum()).round(5).tolist()


EXPERIMENT = experiment.Experiment(
    "autogan_adult",
    load,
    score,
    baselines=core.BASELINES,
    public=public_rows,
    amend=amend,
    binning=us.Binning(bins="uniform"),
)


# ---------------------------------------------------------------------------------------------------------------- page


def shown_methods(results: Sequence[Mapping[str, Any]]) -> list[str]:
    return [name for name in METHODS if any(line["method"] == name for line in results)]


def percent(results: Sequence[Mapping[str, Any]], score: str, method: str, epsilon: float) -> str:
    """The mean over seeds and their standard deviation, in per cent; empty where nothing was run."""
    found = core.values_of(results, score, method=method, epsilon=epsilon)
    if not found:
        return ""
    spread = f" ± {100 * np.std(found, ddof=1):.1f}" if len(found) > 1 else ""
    return f"{100 * np.mean(found):.1f}{spread}"


def page(results: Sequence[Mapping[str, Any]]) -> str:
    results = [core.with_floored_distance(line) for line in results]
    names = shown_methods(results)
    across = (*EPSILONS, math.inf)
    header = ["", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS), "not private"]

    def rows(score: str, published: Mapping[float, float], baselines: Sequence[str] = tuple(core.BASELINES)) -> str:
        lines: list[list[object]] = []
        if published:
            lines.append(["published figures", *(published.get(epsilon) for epsilon in across)])
        lines += [[_label(name), *(percent(results, score, name, epsilon) for epsilon in across)] for name in names]
        for name in baselines:
            lines.append([name, *([""] * len(EPSILONS)), percent(results, score, name, math.inf)])
        return table_of(header, lines)

    expressions = "\n".join(f"- {_label(name)}: `{METHODS[name]}`" for name in names)
    seeds = max(
        (len(core.values_of(results, "accuracy", method=n, epsilon=e)) for n in names for e in across), default=0
    )
    wasserstein_parts = []
    for cost, title in (("euclidean", "Plain distances, as in the published code"), ("squared", "Squared distances")):
        for kind, what in (("pca", "two principal components of the real rows"), ("whole", "whole rows")):
            at = ("pca", "whole").index(kind)
            figures = {e: WASSERSTEIN[e][at] for e in EPSILONS} if cost == "euclidean" else {}
            baseline = _baseline(results, cost, at)
            wasserstein_parts.append(
                f"{title}, {what} (two samples of real rows: {baseline}):\n\n{rows(f'{kind}_{cost}', figures)}"
            )
    histograms = [
        [
            f"{_label(line['method'])}{_at(line['epsilon'])}, {name}",
            *found,
        ]
        for line in results
        for name, found in line["details"].get("histograms", {}).items()
    ]
    return f"""# DP-auto-GAN on Adult (A3 to A7)

{experiment.provenance("autogan/adult.py", results)} At most {seeds} seeds of a cell; ± is the standard deviation
between seeds. `UNDERSTUDY_DATA` names the folder of tables.

{expressions}

No epsilon holds for the published figures, nor for rows with an unsound encoder, which is trained on the real rows
without noise. Epsilon in their certificates, whatever epsilon a row names: {_stated(results)}.

## A4: accuracy of the salary class, random forest, per cent

Published on real rows: {ACCURACY["real"]}.

{rows("accuracy", {key: value for key, value in ACCURACY.items() if isinstance(key, float)}, TRAINED)}

## A6: Wasserstein scores, per cent

Published figures are shown with plain distances, the convention of the published code. The two scales are not
comparable.

{chr(10).join(part + chr(10) for part in wasserstein_parts)}
## A3: dimension-wise prediction

Mean distance of the points from the diagonal, times 100 (0 is best). A numeric column is scored by R squared, which
is 0 for a prediction by the mean and has no lower bound. Values below 0 are taken for 0:

{rows("dwpred_floored", {}, TRAINED)}

The same without that floor, where single numeric columns can determine a mean:

{rows("dwpred_distance", {}, TRAINED)}

Each column predicted from the others, trained on real and on synthetic rows, seed 0 (F1, accuracy or R squared):

{_predictions(results)}

## A7: fractions of ten equal bins

{table_of(["", *(str(number) for number in range(1, 11))], histograms)}
"""


def _label(method: str) -> str:
    """The name of a method on the page: `published` would be mistaken for the published figures."""
    return {"published": "paper's networks", "unsound": "paper's networks, unsound encoder"}.get(method, method)


def _stated(results: Sequence[Mapping[str, Any]]) -> str:
    found = {stated_epsilon(line) for line in results if line["method"] == "unsound"}
    return " and ".join("infinite" if math.isinf(each) else f"{each:g}" for each in sorted(found)) or "not run"


def _at(epsilon: float) -> str:
    return "" if epsilon == math.inf else f", epsilon {epsilon:g}"


def _baseline(results: Sequence[Mapping[str, Any]], cost: str, at: int) -> str:
    found = [line["details"][f"baseline_{cost}"][at] for line in results if f"baseline_{cost}" in line["details"]]
    return f"{100 * np.mean(found):.1f}" if found else "not run"


def _predictions(results: Sequence[Mapping[str, Any]]) -> str:
    lines = [line for line in results if not line["seed"] and line["epsilon"] in (1.0, math.inf)]
    lines = [line for line in lines if line["method"] in (*METHODS, core.INDEPENDENT)]
    columns = dict.fromkeys(point[0] for line in lines for point in line["details"]["predictions"])
    rows: list[list[object]] = []
    for line in lines:
        found = {point[0]: f"{point[3]:.3f}" for point in line["details"]["predictions"]}
        label = _label(line["method"]) + _at(line["epsilon"])
        rows.append([label, *(found.get(column, "") for column in columns)])
    if lines:
        real = {point[0]: f"{point[2]:.3f}" for point in lines[0]["details"]["predictions"]}
        rows.insert(0, ["real rows", *(real.get(column, "") for column in columns)])
    return table_of(["", *columns], rows)


def pictures(results: Sequence[Mapping[str, Any]]) -> None:
    """At epsilon 1: rows along two principal components of the real ones (A5), and predictions (A3)."""
    first = [line for line in results if not line["seed"] and line["table"] == "adult"]
    real = next((line["details"]["pca"] for line in first if line["method"] == core.REAL), None)
    chosen = [line for line in first if line["epsilon"] == 1.0 or line["method"] == core.INDEPENDENT]
    if real is None or not chosen:
        return
    planes = {_label(line["method"]): {"real": real, "synthetic": line["details"]["pca"]} for line in chosen}
    title = "Adult, epsilon 1: rows along two principal components of the real ones"
    (experiment.IMAGES / "autogan_adult_pca.svg").write_text(core.scatter(planes, title))
    panels = {
        _label(line["method"]): {"": [[max(0.0, p[2]), max(0.0, p[3])] for p in line["details"]["predictions"]]}
        for line in chosen
    }
    title = "Adult, epsilon 1: how well each column is predicted, by real rows (across) and by synthetic rows (up)"
    (experiment.IMAGES / "autogan_adult_prediction.svg").write_text(core.scatter(panels, title, diagonal=True))


if __name__ == "__main__":
    experiment.main(EXPERIMENT, __doc__ or "", CELLS, page, pictures)
