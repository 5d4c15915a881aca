"""Which metrics are computed together, with how much work, and what real rows would score.

A group runs once for each synthetic table and once for the reference. Most compare two tables: their reference is the
same comparison with held-out real rows in place of synthetic ones.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np
import pyarrow as pa

from understudy.evaluation import geometry, learning, marginals, pmse, regression, tasks, validity
from understudy.evaluation.judged import Judged, Layout, Trait
from understudy.evaluation.scores import Metric, Result, Score


@dataclasses.dataclass(frozen=True, kw_only=True)
class Effort:
    """How much work a scorecard is worth."""

    name: str
    slow_rows: int | None
    """At most so many rows for metrics that fit models; None: all."""
    mlp_rows: int | None
    """The same for neural networks, which take the longest."""
    light_rows: int | None
    """The same for metrics that fit two models for each column, or judge a table against its own other half."""
    cart_rows: int | None
    models: tuple[str, ...]
    bootstrap: int
    interactions: int
    """Order of the interactions in the logistic pMSE."""
    left_out: tuple[str, ...] = ()
    """Groups of metrics, or single ones, that are not computed unless they are asked for."""


EFFORTS = {
    effort.name: effort
    for effort in (
        Effort(
            name="quick",
            slow_rows=5_000,
            mlp_rows=5_000,
            light_rows=5_000,
            cart_rows=1_000,
            models=("random_forest",),
            bootstrap=50,
            interactions=0,
            left_out=(
                "nist",
                "pmse_cart",
                "pca",
                "wasserstein",
                "jensen_shannon",
                "dimension_prediction",
                "parallel_rmse",
                "inception",
                "dcr_ratio",
            ),
        ),
        Effort(
            name="default",
            slow_rows=20_000,
            mlp_rows=4_000,
            light_rows=10_000,
            cart_rows=3_000,
            models=(*learning.QUAIL, "gradient_boosting", learning.OPTIONAL),
            bootstrap=100,
            interactions=0,
        ),
        Effort(
            name="full",
            slow_rows=None,
            mlp_rows=None,
            light_rows=None,
            cart_rows=None,
            models=(*learning.QUAIL, "gradient_boosting", learning.OPTIONAL),
            bootstrap=1_000,
            interactions=1,
        ),
    )
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """The real side of a comparison, and how hard to look."""

    layout: Layout
    real: Judged
    """All real rows that the synthesizer may have seen."""
    train: Judged
    test: Judged
    """Real rows to learn from, and others to score on."""
    table: pa.Table
    test_table: pa.Table
    """The real rows and the test rows as they came."""
    effort: Effort
    target: Trait | None
    positive: object
    constraints: tuple[str, ...]
    synthetic_rows: int
    """Rows of the largest synthetic table."""
    seed: int
    asked: bool = False
    """Whether metrics were named: then these are computed, whatever the effort leaves out."""

    def leaves_out(self, name: str) -> bool:
        """Whether the effort does without this group or metric."""
        return name in self.effort.left_out and not self.asked

    @cached_property
    def real_learning(self) -> Result:
        """Train on real, test on real: the reference of every synthetic table."""
        return _learned(self, self.train)

    @cached_property
    def fresh_rows(self) -> np.ndarray:
        """The test rows that stand in the place of a synthetic table: no more than the real ones."""
        if self.test.num_rows <= self.train.num_rows:
            return np.arange(self.test.num_rows)
        draw = np.random.default_rng(self.seed)
        return np.sort(draw.choice(self.test.num_rows, self.train.num_rows, replace=False))


@dataclasses.dataclass(frozen=True)
class Group:
    """Metrics that are computed together."""

    name: str
    run: Callable[[Case, Judged, pa.Table], Result]
    metrics: tuple[Metric, ...]
    reference: Callable[[Case], Result] | None
    """What real rows score; None: there is nothing to compare with."""
    reference_is: str = "held-out real rows"
    compares: bool = True
    """Whether the reference takes a synthetic table's place, so that its rows should be as many."""

    def reference_rows(self, case: Case) -> int:
        return len(case.fresh_rows) if self.compares else case.train.num_rows


Run = Callable[[Case, Judged, pa.Table], Result]

NO_TARGET = "No target column was named (--target, or target in the schema)."
NUMERIC_TARGET = "The target is a number; this is for classes."
CLASS_TARGET = "The target is not a number."


def _comparison(name: str, run: Run, metrics: tuple[Metric, ...]) -> Group:
    """A group that compares two tables: held-out rows against the other real rows are its reference."""

    def reference(case: Case) -> Result:
        rows = case.fresh_rows
        return run(dataclasses.replace(case, real=case.train), case.test.take(rows), case.test_table.take(rows))

    return Group(name, run, metrics, reference)


def _of(metrics: tuple[Metric, ...], *prefixes: str) -> tuple[Metric, ...]:
    found = tuple(metric for metric in metrics if metric.key.startswith(prefixes))
    assert found, prefixes
    return found


def _no_scores(keys: Mapping[str, str]) -> Result:
    return Result(scores={key: Score.none(why) for key, why in keys.items()}, settings={})


def _constraints(case: Case, synthetic: Judged, table: pa.Table) -> Result:
    if not case.constraints:
        return _no_scores({"constraint_violations": "No constraint was given (--constraint)."})
    return validity.constraint_violations(case.table, table, case.constraints)


def _wasserstein(case: Case, synthetic: Judged, table: pa.Table) -> Result:
    return geometry.wasserstein(case.real, synthetic, seed=case.seed)


def _gaussians(case: Case, synthetic: Judged, table: pa.Table) -> Result:
    """The toy benchmark of the boosting paper: a table of two real columns and nothing else."""
    return _gaussian_quality(case, synthetic, is_real=False)


def _gaussians_reference(case: Case) -> Result:
    return _gaussian_quality(case, case.test.take(case.fresh_rows), is_real=True)


def _gaussian_quality(case: Case, table: Judged, *, is_real: bool) -> Result:
    traits = case.layout.traits
    if len(traits) == 2 and all(trait.kind == "real" for trait in traits):
        return tasks.gaussian_quality_of(table, *case.layout.names, is_real=is_real)
    why = "Only for the benchmark of 25 Gaussians: a table of two real columns."
    return _no_scores({metric.key: why for metric in _of(tasks.METRICS, "quality", "mode")})


def _pmse_logit(case: Case, synthetic: Judged, table: pa.Table) -> Result:
    """With interactions only where the rows are enough for them."""
    wanted = case.effort.interactions
    order = pmse.allowed_order(case.layout, wanted, 2 * case.table.num_rows)
    found = pmse.pmse_logit(case.real, synthetic, maxorder=order, seed=case.seed)
    if order == wanted:
        return found
    note = "Interactions were left out: the columns have too many of them for so few rows."
    return dataclasses.replace(found, notes=(*found.notes, note))


def _closest_record(case: Case, synthetic: Judged, table: pa.Table) -> Result:
    """Against the rows that are not held out, so that held-out ones do not find themselves."""
    return validity.closest_record(
        case.train, synthetic, holdout=case.test, distances=not case.leaves_out("dcr_ratio"), seed=case.seed
    )


def _pca(case: Case, synthetic: Judged, table: pa.Table) -> Result:
    return geometry.pca_marginal(case.real, synthetic, max_rows=case.effort.slow_rows, seed=case.seed)


def _inception(case: Case, synthetic: Judged, table: pa.Table) -> Result:
    """The score of the image papers, with a classifier of the target that was trained on real rows."""
    if case.target is None or case.target.is_numeric:
        return _no_scores({"inception_score": NO_TARGET if case.target is None else NUMERIC_TARGET})
    rows = synthetic.at_most(case.effort.slow_rows, seed=case.seed)
    train = case.train.at_most(case.effort.slow_rows, seed=case.seed)
    probabilities = learning.class_probabilities(train, rows, target=case.target.name, seed=case.seed)
    if probabilities is None:
        return _no_scores({"inception_score": "The real target has one class only."})
    return tasks.inception_score(probabilities, public_classifier=False)


def _learning(case: Case, synthetic: Judged, table: pa.Table) -> Result:
    """Train on synthetic, test on real; and on synthetic rows themselves; and how the models rank."""
    if case.target is None:
        return _no_scores({metric.key: NO_TARGET for metric in LEARNING})
    trained = _learned(case, synthetic)
    if case.target.is_numeric:
        named = {f"tstr_{key}": score for key, score in trained.scores.items()}
        rest = {m.key: Score.none(NUMERIC_TARGET) for m in LEARNING if m.key not in named}
        return dataclasses.replace(trained, scores={**named, **rest})
    real = case.real_learning
    itself = _learned_itself(case, synthetic)
    scores = {f"tstr_{key}": score for key, score in trained.scores.items()}
    scores |= {f"tsts_{key}": itself.scores[key] for key in ("accuracy", "f1", "auc")}
    scores["sra"] = learning.sra(_aucs(real), _aucs(trained))
    scores["importance_agreement"] = learning.importance_agreement(
        real.details["importance"], trained.details["importance"]
    )
    scores |= {m.key: Score.none(CLASS_TARGET) for m in LEARNING if m.key not in scores}
    details = {**trained.details, "difference": learning.difference(trained, real, "auc")}
    return dataclasses.replace(trained, scores=scores, details=details)


def _learning_reference(case: Case) -> Result:
    if case.target is None:
        return _no_scores({metric.key: NO_TARGET for metric in LEARNING})
    real = case.real_learning
    scores = {f"tstr_{key}": score for key, score in real.scores.items()}
    if not case.target.is_numeric:
        itself = _learned_as_itself(case)
        scores |= {f"tsts_{key}": itself.scores[key] for key in ("accuracy", "f1", "auc")}
    return dataclasses.replace(real, scores=scores)


def _learned(case: Case, train: Judged) -> Result:
    """Models of the target, trained on this table and scored on the real test rows."""
    assert case.target is not None
    effort = case.effort
    if case.target.is_numeric:
        return regression.learn_numeric(
            train,
            case.test,
            target=case.target.name,
            max_rows=effort.slow_rows,
            bootstrap=effort.bootstrap,
            seed=case.seed,
        )
    return learning.learn(
        train,
        case.test,
        target=case.target.name,
        positive=case.positive,
        models=effort.models,
        max_rows=effort.slow_rows,
        mlp_rows=effort.mlp_rows,
        bootstrap=effort.bootstrap,
        seed=case.seed,
    )


def _learned_itself(case: Case, synthetic: Judged) -> Result:
    first, second = synthetic.split(0.5, seed=case.seed)
    return _learned(dataclasses.replace(case, test=second), first.at_most(case.effort.light_rows, seed=case.seed))


def _learned_as_itself(case: Case) -> Result:
    """The same for real rows: as many of them to learn from, the test rows to score on."""
    num_rows = min(case.synthetic_rows // 2, case.effort.light_rows or case.synthetic_rows)
    if num_rows >= min(case.train.num_rows, case.effort.slow_rows or case.train.num_rows):
        return case.real_learning
    return _learned(case, case.train.at_most(max(1, num_rows), seed=case.seed))


def _aucs(result: Result) -> dict[str, float]:
    """By model, without the one that not everybody has."""
    return {name: scores["auc"] for name, scores in result.details["models"].items() if name != learning.OPTIONAL}


def _dimension_prediction(case: Case, synthetic: Judged, table: pa.Table) -> Result:
    return regression.dimension_prediction(
        case.train, synthetic, case.test, max_rows=case.effort.light_rows, seed=case.seed
    )


def _parallel_rmse(case: Case, synthetic: Judged, table: pa.Table) -> Result:
    """Linear models of a numeric target; where the target is none, of the first numeric column."""
    target = case.target
    if target is None or not target.is_numeric:
        numeric = case.layout.numeric
        if not numeric or len(case.layout.traits) < 4:
            why = "It needs a numeric column and three others."
            return _no_scores({metric.key: why for metric in _of(regression.METRICS, "rmse_ratio")})
        target = numeric[0]
    return regression.parallel_rmse(case.train, synthetic, case.test, target=target.name)


LEARNING = _of((*learning.METRICS, *regression.METRICS), "tstr", "tsts", "sra", "importance")

GROUPS = (
    _comparison(
        "one_way",
        lambda case, fake, _: marginals.one_way(case.real, fake, bootstrap=case.effort.bootstrap, seed=case.seed),
        _of(marginals.METRICS, "tv1", "jsd1", "ks", "w1"),
    ),
    _comparison("two_way", lambda case, fake, _: marginals.two_way(case.real, fake), _of(marginals.METRICS, "tv2")),
    _comparison(
        "three_way",
        lambda case, fake, _: marginals.three_way(case.real, fake, seed=case.seed),
        _of(marginals.METRICS, "tv3"),
    ),
    _comparison(
        "correlations", lambda case, fake, _: marginals.correlations(case.real, fake), _of(marginals.METRICS, "corr")
    ),
    _comparison(
        "dimension_probability",
        lambda case, fake, _: marginals.dimension_probability(case.real, fake),
        _of(marginals.METRICS, "dwp_"),
    ),
    _comparison(
        "validity",
        lambda case, fake, _: validity.validity(case.real, fake),
        _of(validity.METRICS, "invalid", "out_of", "unlisted", "unexpected", "impossible"),
    ),
    _comparison("constraints", _constraints, _of(validity.METRICS, "constraint")),
    _comparison("pmse_logit", _pmse_logit, _of(pmse.METRICS, "pmse_logit")),
    Group("learning", _learning, LEARNING, _learning_reference, "trained on real rows", compares=False),
    _comparison(
        "pmse_cart",
        lambda case, fake, _: pmse.pmse_cart(case.real, fake, max_rows=case.effort.cart_rows, seed=case.seed),
        _of(pmse.METRICS, "pmse_cart"),
    ),
    _comparison(
        "nist", lambda case, fake, _: marginals.nist(case.real, fake, seed=case.seed), _of(marginals.METRICS, "nist")
    ),
    _comparison(
        "cell_accuracy",
        lambda case, fake, _: marginals.cell_accuracy(case.real, fake, None),
        _of(marginals.METRICS, "cell"),
    ),
    _comparison("pca", _pca, _of(geometry.METRICS, "pca")),
    _comparison("wasserstein", _wasserstein, _of(geometry.METRICS, "wasserstein")),
    _comparison(
        "jensen_shannon",
        lambda case, fake, _: geometry.jensen_shannon(case.real, fake, max_rows=case.effort.slow_rows, seed=case.seed),
        _of(geometry.METRICS, "js", "discriminator"),
    ),
    Group("dimension_prediction", _dimension_prediction, _of(regression.METRICS, "dwpred"), None),
    Group("parallel_rmse", _parallel_rmse, _of(regression.METRICS, "rmse_ratio"), None),
    _comparison("inception", _inception, _of(tasks.METRICS, "inception")),
    Group("gaussians", _gaussians, _of(tasks.METRICS, "quality", "mode"), _gaussians_reference),
    _comparison("closest_record", _closest_record, _of(validity.METRICS, "dcr", "exact")),
)
