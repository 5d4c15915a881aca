"""Scores of one benchmark cell: a synthetic table against the training rows and the test rows of its real table.

Metrics are those of `understudy.evaluation`, with the limits on rows that benchmarks need; here they are chosen, called
and named. Not private: it reads all real rows.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import pyarrow as pa
from threadpoolctl import threadpool_limits

from understudy.benchmark.metrics import METRICS, BenchmarkMetric, check_metrics, metric_names
from understudy.benchmark.reference import MAX_ROWS, MLP_ROWS, LearningSettings, ModelScores, Reference, plain_scores
from understudy.errors import ConfigError
from understudy.evaluation import associations, geometry, learning, marginals, pmse, regression, validity
from understudy.evaluation.groups import CLASS_TARGET, NUMERIC_TARGET
from understudy.evaluation.parallel import limit_workers
from understudy.evaluation.scores import Result, Score
from understudy.evaluation.table import EncodedTable
from understudy.schema import Schema

__all__ = [
    "METRICS", "BenchmarkMetric", "CellScores", "LearningSettings", "Reference", "check_metrics", "metric_names",
    "score_table",
]  # fmt: skip

BINS, NUM_TRIPLES = 20, 500
"""For the total variation distances."""
CART_ROWS, PERMUTATIONS = 3_000, 10
"""The rows of each table and the shuffles of labels for the pMSE of trees. On Adult it varies by 2 % over the shuffles,
so that with ten of them the standard error of the ratio is below 1 %; it is in the details."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellScores:
    """The figures of one cell, JSON-safe.

    >>> CellScores(metrics={"f1": 0.7}, details={}, rows={"train": 100}).metrics["f1"]
    0.7
    """

    metrics: dict[str, float]
    """By name; only those that are defined."""
    details: dict[str, object]
    """`missing`: the reason for each metric without a number; `classifiers` and `real_classifiers`: scores by model;
    `errors`: standard errors; `baselines`: the same distance between real rows; `settings`; `notes`."""
    rows: dict[str, int]
    """Of the whole tables `train`, `test` and `synthetic`, and of the synthetic table as `scored`."""


def score_table(
    train: pa.Table,
    test: pa.Table | None,
    synthetic: pa.Table,
    *,
    schema: Schema,
    target: str | None = None,
    metrics: Sequence[str],
    classifiers: Sequence[str] = learning.QUAIL,
    max_rows: int = MAX_ROWS,
    mlp_rows: int | None = MLP_ROWS,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
    reference: Reference | None = None,
) -> CellScores:
    """Score a synthetic table on one core. Not private: it reads all real rows.

    Args:
        train: The rows that the method was fitted to.
        test: Real rows that it never saw; None: metrics of classifiers are undefined.
        synthetic: Any table with the columns of the schema. Values that cannot be read count as missing.
        schema: Categories and ranges; what it leaves open is read off the real tables.
        target: The column that classifiers predict; None: that of the schema, if it has one.
        metrics: Names of `METRICS`.
        classifiers: Names of `learning.CLASSIFIERS`, for `f1`, `auc`, `sra` and the like; empty: those of the QUAIL
            paper.
        max_rows: The most rows of each table, chosen by a fixed seed; no more of the synthetic one than of `train`.
        mlp_rows: The most training rows of the classifier "mlp"; None: as many as the others have.
        permutations: How often labels are shuffled for `pmse_ratio`.
        seed: The seed of models and random draws.
        reference: What the cells of a table share, made with the same tables and settings; None: it is made here.

    >>> table = pa.table({"a": ["x", "y"] * 20, "b": ["u", "v"] * 20})
    >>> score_table(table, None, table, schema=Schema.draft(table.schema), metrics=["tvd2"]).metrics
    {'tvd2': 0.0}
    """
    check_metrics(metrics)
    if permutations < 1:
        raise ConfigError(f"permutations must be at least 1, found {permutations}. Give a larger number.")
    settings = LearningSettings(classifiers=tuple(classifiers) or learning.QUAIL, max_rows=max_rows, mlp_rows=mlp_rows)
    if reference is None:
        reference = Reference.of(train, test, schema=schema, target=target, **vars(settings))
    _check_reference(reference, settings, train, test, target)
    table = reference.read(synthetic)
    rows = {**reference.rows, "synthetic": synthetic.num_rows, "scored": table.num_rows}
    is_copy = synthetic is train or synthetic.equals(train)
    cell = _Cell(
        reference=reference,
        table=table,
        metrics=tuple(metrics),
        is_copy=is_copy,
        permutations=permutations,
        seed=seed,
    )
    with limit_workers(1), threadpool_limits(limits=1):
        found, details = _score(cell)
    return CellScores(metrics=found, details=details, rows=rows)


def _check_reference(
    reference: Reference, settings: LearningSettings, train: pa.Table, test: pa.Table | None, target: str | None
) -> None:
    """By settings and sizes: hashing the rows would take longer than some cells."""
    expected = (settings, train.num_rows, 0 if test is None else test.num_rows)
    found = (reference.settings, reference.rows["train"], reference.rows["test"])
    column = None if reference.target is None else reference.target.name
    if expected != found or target not in (None, column):
        raise ConfigError(
            f"Expected a reference for the target {target!r} with {expected}, found one for {column!r} with {found}. "
            "Make it from the same tables and settings."
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Cell:
    """A synthetic table, what it is scored against and by which metrics."""

    reference: Reference
    table: EncodedTable
    metrics: tuple[str, ...]
    is_copy: bool
    """Whether the synthetic table is the training table."""
    permutations: int
    seed: int

    @property
    def real(self) -> EncodedTable:
        return self.reference.train


@dataclasses.dataclass(frozen=True)
class _Part:
    """Metrics that are computed together."""

    run: Callable[[_Cell], Result]
    keys: Mapping[str, str]
    """The names of benchmark metrics, with those of the result's scores."""


def _score(cell: _Cell) -> tuple[dict[str, float], dict[str, object]]:
    """The numbers by metric, and the details."""
    scores: dict[str, Score] = {}
    details: dict[str, object] = {}
    notes: dict[str, None] = {}
    for part in _PARTS:
        wanted = {name: key for name, key in part.keys.items() if name in cell.metrics}
        if not wanted:
            continue
        result = _run(part, cell)
        scores |= {name: result.scores[key] for name, key in wanted.items()}
        details |= result.details
        notes |= dict.fromkeys(result.notes)
    names = tuple(dict.fromkeys(cell.metrics))
    found = {name: float(scores[name].value) for name in names if math.isfinite(scores[name].value)}
    missing = {name: scores[name].why or "It is not finite." for name in names if name not in found}
    errors = {name: scores[name].error for name in found if scores[name].error is not None}
    extras = {"errors": errors, "missing": missing, "notes": list(notes), "settings": _settings(cell)}
    return found, details | {name: content for name, content in extras.items() if content}


def _settings(cell: _Cell) -> dict[str, object]:
    positive = cell.reference.positive
    return {
        "max_rows": cell.reference.settings.max_rows,
        "mlp_rows": cell.reference.settings.mlp_rows,
        "cart_rows": CART_ROWS,
        "permutations": cell.permutations,
        "seed": cell.seed,
        "positive": None if positive is None else str(positive),
    }


def _run(part: _Part, cell: _Cell) -> Result:
    """One part; a table that it cannot handle gives reasons instead of numbers, so that other parts still count."""
    if not cell.table.num_rows:
        return _no_scores(part.keys.values(), "The synthetic table has no rows.")
    try:
        return part.run(cell)
    except (ValueError, ArithmeticError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return _no_scores(part.keys.values(), f"It cannot be computed for this table: {reason}")


def _no_scores(keys: Iterable[str], why: str) -> Result:
    return Result(scores=dict.fromkeys(keys, Score.none(why)), settings={})


# ------------------------------------------------------------------------------------------------------------- models


def _why_no_models(reference: Reference, *, numeric: bool) -> str:
    if reference.target is None:
        return "The table has no target."
    if reference.test is None:
        return "There are no test rows."
    if reference.target.is_numeric != numeric:
        return NUMERIC_TARGET if reference.target.is_numeric else CLASS_TARGET
    return ""


def _learn(cell: _Cell) -> Result:
    """Classifiers trained on the synthetic rows: the best and the mean of each score, and how they rank."""
    if why := _why_no_models(cell.reference, numeric=False):
        return _no_scores(_LEARNING, why)
    result = cell.reference.learn(cell.table, cell.seed)
    models = plain_scores(result.details["models"])
    scores = {}
    for key in ("f1", "auc", "accuracy", "pr_auc"):
        values = [value for each in models.values() if (value := each[key]) is not None]
        scores[key] = Score(max(values)) if values else result.scores[key]
        scores[f"{key}_mean"] = Score(sum(values) / len(values)) if values else result.scores[key]
    details: dict[str, object] = {"classifiers": models}
    if "sra" in cell.metrics:
        scores["sra"] = _ranking_agreement(cell, models)
        details["real_classifiers"] = cell.reference.model_scores
    return Result(scores=scores, settings={}, details=details, notes=result.notes)


def _ranking_agreement(cell: _Cell, models: ModelScores) -> Score:
    """By F1. The training rows agree with themselves, whatever the seed."""
    real = cell.reference.model_scores
    agreement = learning.sra(*({name: each["f1"] for name, each in side.items()} for side in (real, models)))
    return Score(1.0) if cell.is_copy and agreement.is_defined else agreement


def _learn_numeric(cell: _Cell) -> Result:
    if why := _why_no_models(cell.reference, numeric=True):
        return _no_scores(_REGRESSION, why)
    assert cell.reference.target is not None
    assert cell.reference.test is not None
    result = regression.learn_numeric(
        cell.table, cell.reference.test, target=cell.reference.target.name, max_rows=None, seed=cell.seed
    )
    return dataclasses.replace(result, details={"regressors": plain_scores(result.details["models"])})


# ---------------------------------------------------------------------------------------------------------- distances


def _pmse_cart(cell: _Cell) -> Result:
    """With as many real rows as synthetic ones: the pMSE depends on their proportion."""
    found = pmse.pmse_cart(
        cell.real,
        cell.table,
        num_permutations=cell.permutations if "pmse_ratio" in cell.metrics else 0,
        max_rows=min(CART_ROWS, cell.table.num_rows),
        seed=cell.seed,
    )
    return dataclasses.replace(found, details={})


def _pmse_logit(cell: _Cell) -> Result:
    found = pmse.pmse_logit(cell.real, cell.table, max_rows=cell.table.num_rows, seed=cell.seed)
    return dataclasses.replace(found, details={})


def _wasserstein(cell: _Cell) -> Result:
    found = geometry.wasserstein(cell.real, cell.table, seed=cell.seed)
    baseline = found.details["real_baseline"]["value"]
    return dataclasses.replace(found, details={"baselines": {"wasserstein": baseline}})


def _without_details(run: Callable[[EncodedTable, EncodedTable], Result]) -> Callable[[_Cell], Result]:
    """A comparison of two tables; its details, such as histograms, would make results large."""
    return lambda cell: dataclasses.replace(run(cell.real, cell.table), details={})


_LEARNING = {name: name for name in ("f1", "auc", "accuracy", "pr_auc", "f1_mean", "auc_mean", "sra")}
_REGRESSION = {"r2": "r2", "rmse": "rmse"}
_PARTS = (
    _Part(_learn, _LEARNING),
    _Part(_learn_numeric, _REGRESSION),
    _Part(_pmse_cart, {"pmse_ratio": "pmse_cart_ratio", "pmse": "pmse_cart"}),
    _Part(_pmse_logit, {"pmse_logistic": "pmse_logit_ratio"}),
    _Part(_without_details(geometry.jensen_shannon), {"js": "js_score"}),
    _Part(_without_details(partial(marginals.one_way, bins=BINS)), {"tvd1": "tv1", "ks": "ks"}),
    _Part(_without_details(partial(marginals.two_way, bins=BINS)), {"tvd2": "tv2", "worst2": "tv2_max"}),
    _Part(_without_details(partial(marginals.three_way, bins=BINS, num_triples=NUM_TRIPLES)), {"tvd3": "tv3"}),
    _Part(_without_details(marginals.nist), {"nist": "nist_score"}),
    _Part(_without_details(associations.correlations), {"corr_diff": "corr_diff"}),
    _Part(_without_details(associations.dependences), {"dependences_kept": "dependences_kept"}),
    _Part(_wasserstein, {"wasserstein": "wasserstein"}),
    _Part(_without_details(validity.validity), {"invalid_cells": "invalid_cells"}),
)
"""Every metric of `METRICS` is in exactly one of them."""
