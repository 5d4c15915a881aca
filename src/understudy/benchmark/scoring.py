"""Scores of one benchmark cell: a synthetic table against the training rows and the test rows of its real table.

Metrics are those of `understudy.evaluation`, with the limits on rows that benchmarks need; here they are chosen, called
and named. Not private: it reads all real rows. Benchmarks are for public tables.
"""

import dataclasses
import importlib.util
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial

import pyarrow as pa
from threadpoolctl import threadpool_limits

from understudy.benchmark.metrics import check_metrics
from understudy.errors import ConfigError
from understudy.evaluation import associations, geometry, learning, marginals, pmse, regression, validity
from understudy.evaluation.groups import CLASS_TARGET, NUMERIC_TARGET
from understudy.evaluation.inputs import find_positive, find_target
from understudy.evaluation.parallel import limit_workers
from understudy.evaluation.scores import Result, Score
from understudy.evaluation.table import REAL_TABLE, ColumnSpec, EncodedTable, Layout
from understudy.schema import Schema

BINS, NUM_TRIPLES = 20, 500
"""For the total variation distances."""
CART_ROWS, PERMUTATIONS = 3_000, 10
"""The rows of each table and the shuffles of labels for the pMSE of trees. On Adult it varies by 2% over the shuffles,
so that with ten of them the standard error of the ratio is below 1%; it is in the details."""
MAX_ROWS = 10_000
"""The default limit on the rows of each table that are scored."""
MLP_ROWS = 2_500
"""The most training rows of the multilayer perceptron: with 10,000 rows it takes 5 s, longer than the
other four classifiers of the QUAIL paper together."""
SAMPLE_SEED = 0
"""Chooses the rows of every table, so that a copy of the training rows stays a copy."""

ModelScores = Mapping[str, Mapping[str, float | None]]
"""By classifier, its scores by name; None: undefined."""


# ------------------------------------------------------------------------------------------------------------ real side


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Reference:
    """The encoded training and test rows of one table, and the scores of classifiers trained on real rows.

    Depends on the real table and the settings alone, so all cells of a table share one. The scores are computed when
    they are first asked for, unless an earlier process has `saved` them.
    """

    rows: pa.Table
    """The training rows, whole."""
    train: EncodedTable
    test: EncodedTable | None
    target: ColumnSpec | None
    positive: object
    """The class whose F1 and AUC count; None: the target does not have two classes."""
    classifiers: tuple[str, ...]
    max_rows: int
    num_test: int
    """The rows of the whole test table."""
    saved: ModelScores | None = None
    """The scores from an earlier process."""

    @classmethod
    def of(
        cls,
        train: pa.Table,
        test: pa.Table | None,
        *,
        schema: Schema,
        target: str | None = None,
        classifiers: Sequence[str] = (),
        max_rows: int = MAX_ROWS,
    ) -> "Reference":
        """Encode the real rows.

        Args:
            train: The rows that methods are fitted to.
            test: Real rows that they never see; None: metrics of classifiers are undefined.
            schema: Categories and ranges; what it leaves open is read off the real tables.
            target: The column that classifiers predict; None: that of the schema, if it has one.
            classifiers: Names of `learning.CLASSIFIERS`, for `f1`, `auc`, `sra` and the like; empty: those of the
                QUAIL paper.
            max_rows: The most rows of each table, chosen by a fixed seed.
        """
        names = tuple(classifiers) or learning.QUAIL
        learning.check_models(names, learning.CLASSIFIERS)
        if learning.OPTIONAL in names and not importlib.util.find_spec(learning.OPTIONAL):
            name = learning.OPTIONAL
            raise ConfigError(f"The classifier {name!r} needs the package {name}, which is not installed. Install it.")
        if max_rows < 1:
            raise ConfigError(f"max_rows must be at least 1, found {max_rows}. Raise it.", setting="max_rows")
        layout = Layout.of(train, schema, *([] if test is None else [test]))
        # Synthetic tables are then read with the kinds of the real one, whatever their own types.
        layout = dataclasses.replace(layout, schema=dataclasses.replace(layout.schema, drafted=False))
        real = layout.read(train, REAL_TABLE)
        held_out = None if test is None else layout.read(test, "test table")
        column = find_target(layout, target)
        return cls(
            rows=train,
            train=real.at_most(max_rows, seed=SAMPLE_SEED),
            test=None if held_out is None else held_out.at_most(max_rows, seed=SAMPLE_SEED),
            target=column,
            positive=find_positive(layout, column, real),
            classifiers=names,
            max_rows=max_rows,
            num_test=0 if test is None else test.num_rows,
        )

    def read(self, synthetic: pa.Table) -> EncodedTable:
        """A synthetic table on the layout of the real one, with no more rows than the training table here."""
        return self.train.layout.read(synthetic, "synthetic table").at_most(self.train.num_rows, seed=SAMPLE_SEED)

    def learn(self, table: EncodedTable, seed: int) -> Result:
        """Classifiers of the target, trained on this table and scored on the test rows."""
        assert self.target is not None
        assert self.test is not None
        return learning.learn(
            table,
            self.test,
            target=self.target.name,
            positive=self.positive,
            models=self.classifiers,
            max_rows={name: MLP_ROWS if name == "mlp" else None for name in self.classifiers},
            seed=seed,
        )

    @cached_property
    def model_scores(self) -> ModelScores:
        """The scores of classifiers trained on the real rows, with seed 0; empty if there is no categorical target."""
        if self.saved is not None:
            return self.saved
        if self.target is None or self.target.is_numeric or self.test is None:
            return {}
        with limit_workers(1):
            return plain_scores(self.learn(self.train, SAMPLE_SEED).details["models"])


def plain_scores(scores: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float | None]]:
    """The scores, with None for those that are undefined, as JSON requires."""
    return {
        name: {key: float(value) if math.isfinite(value) else None for key, value in each.items()}
        for name, each in scores.items()
    }


# ------------------------------------------------------------------------------------------------------------- one cell


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellScores:
    """The figures of one cell, JSON-safe."""

    metrics: dict[str, float]
    """By name; only those that are defined."""
    details: dict[str, object]
    """`missing`: the reason for each metric without a number; `classifiers` and `real_classifiers`: scores by model;
    `errors`: standard errors; `baselines`: the same distance between real rows; `settings`; `notes`."""
    rows: dict[str, int]
    """Of the whole tables `train`, `test` and `synthetic`, and of the synthetic table as `scored`."""


def score_table(synthetic: pa.Table, reference: Reference, metrics: Sequence[str], *, seed: int = 0) -> CellScores:
    """Score a synthetic table on one core. Not private: it reads all real rows.

    Args:
        synthetic: Any table with the columns of the schema. Values that cannot be read count as missing.
        reference: What it is compared with; the cells of a table share one. No more synthetic rows are scored than
            training rows.
        metrics: Names of `METRICS`.
        seed: The seed of models and random draws.
    """
    check_metrics(metrics)
    names, table, train = tuple(dict.fromkeys(metrics)), reference.read(synthetic), reference.rows
    is_copy = synthetic is train or synthetic.equals(train)
    cell = _Cell(reference=reference, table=table, metrics=names, is_copy=is_copy, seed=seed)
    with limit_workers(1), threadpool_limits(limits=1):
        results = [(part, _run(part, cell)) for part in _PARTS if not part.keys.keys().isdisjoint(names)]
    scores = {name: result.scores[part.keys[name]] for part, result in results for name in names if name in part.keys}
    found = {name: float(scores[name].value) for name in names if math.isfinite(scores[name].value)}
    details: dict[str, object] = {key: value for _, result in results for key, value in result.details.items()}
    extras = {
        "errors": {name: scores[name].error for name in found if scores[name].error is not None},
        "missing": {name: scores[name].why or "It is not finite." for name in names if name not in found},
        "notes": list(dict.fromkeys(note for _, result in results for note in result.notes)),
        "settings": {
            "max_rows": reference.max_rows,
            "mlp_rows": MLP_ROWS,
            "cart_rows": CART_ROWS,
            "permutations": PERMUTATIONS,
            "seed": seed,
            "positive": None if reference.positive is None else str(reference.positive),
        },
    }
    sizes = {"train": train.num_rows, "test": reference.num_test, "synthetic": synthetic.num_rows}
    return CellScores(
        metrics=found,
        details=details | {name: content for name, content in extras.items() if content},
        rows=sizes | {"scored": table.num_rows},
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Cell:
    """A synthetic table, what it is scored against and by which metrics."""

    reference: Reference
    table: EncodedTable
    metrics: tuple[str, ...]
    is_copy: bool
    """Whether the synthetic table is the training table."""
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
    score = pmse.pmse_cart(
        cell.real,
        cell.table,
        num_permutations=PERMUTATIONS if "pmse_ratio" in cell.metrics else 0,
        max_rows=min(CART_ROWS, cell.table.num_rows),
        seed=cell.seed,
    )
    return dataclasses.replace(score, details={})


def _pmse_logit(cell: _Cell) -> Result:
    score = pmse.pmse_logit(cell.real, cell.table, max_rows=cell.table.num_rows, seed=cell.seed)
    return dataclasses.replace(score, details={})


def _wasserstein(cell: _Cell) -> Result:
    score = geometry.wasserstein(cell.real, cell.table, seed=cell.seed)
    baseline = score.details["real_baseline"]["value"]
    return dataclasses.replace(score, details={"baselines": {"wasserstein": baseline}})


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
