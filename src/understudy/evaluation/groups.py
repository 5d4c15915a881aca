"""The groups of metrics: how each is computed, with how much work, and what real rows score.

A group runs once for each synthetic table and once for the reference. Most compare two tables: their reference is the
same comparison with held-out real rows in place of synthetic ones.
"""

import dataclasses
from collections.abc import Callable
from functools import cached_property

import numpy as np
import pyarrow as pa

from understudy.evaluation import (
    associations,
    cells,
    geometry,
    learning,
    locations,
    marginals,
    numbers,
    pmse,
    regression,
    sample_quality,
    validity,
)
from understudy.evaluation.inputs import RealTables
from understudy.evaluation.parallel import report_part
from understudy.evaluation.scores import Metric, Result, Score, Status, metrics_of, no_scores
from understudy.evaluation.table import ColumnSpec, EncodedTable


@dataclasses.dataclass(frozen=True, kw_only=True)
class Effort:
    """How much work goes into a scorecard."""

    name: str
    bootstrap: int
    rows: int | None = None
    """The most rows of each table for metrics that compare two tables; None: all."""
    matched: bool = False
    """Whether these take as many synthetic rows as real ones are held out, so that both scores can be compared."""
    dependence_rows: int | None = None
    """The most rows of each table in which dependence between columns is looked for."""
    test_rows: int | None = None
    """The most rows on which models are tested."""
    slow_rows: int | None = None
    """The most rows for metrics that fit models; None: all."""
    mlp_rows: int | None = None
    """The same for neural networks, which take the longest."""
    light_rows: int | None = None
    """The same for metrics that fit two models per column, or compare a table with its own other half."""
    cart_rows: int | None = None
    """The same for classification trees."""
    permutations: int = 50
    """How often labels are shuffled to learn what trees score by chance."""
    cells: int | None = None
    """The most rows times features that models are fitted to: wide tables are cut to fewer rows; None: no limit."""
    models: tuple[str, ...] = (*learning.QUAIL, "gradient_boosting", learning.OPTIONAL)
    learning_cost: float = 16.0
    """Measured seconds of the group `learning`, as the `cost` of groups."""
    interactions: int = 0
    """Order of the interactions in the logistic pMSE."""
    skipped: tuple[str, ...] = ()
    """Groups and metrics that are computed only when they are asked for."""


TSTS = ("tsts_accuracy", "tsts_f1", "tsts_auc")
"""Models that are trained and tested on synthetic rows."""
_SLOW = (
    "nist", "pmse_cart", "pca", "wasserstein", "jensen_shannon", "dimension_prediction", "parallel_rmse", "inception",
    "dcr_ratio", *TSTS,
)  # fmt: skip
EFFORTS = {
    effort.name: effort
    for effort in (
        Effort(
            name="quick", bootstrap=10, rows=10_000, matched=True, dependence_rows=20_000, test_rows=5_000,
            slow_rows=5_000, mlp_rows=5_000, light_rows=5_000, cart_rows=1_000, cells=2_000_000,
            models=("random_forest",), learning_cost=1.2, skipped=_SLOW,
        ),
        Effort(
            name="default", bootstrap=50, rows=20_000, matched=True, dependence_rows=100_000, test_rows=10_000,
            slow_rows=20_000, mlp_rows=4_000, light_rows=10_000, cart_rows=3_000, permutations=20,
            cells=3_500_000,
        ),
        Effort(name="full", bootstrap=1_000, interactions=1, learning_cost=200.0),
    )
}  # fmt: skip
FEWEST_FITTED = 1_000
"""Wide tables are not cut to fewer rows than this."""
FEW_HELD_OUT = 200
"""With fewer held-out rows than this, synthetic tables are not cut down to as many: too little would be left."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison(RealTables):
    """The real side of an evaluation and its settings: what every synthetic table is compared with."""

    effort: Effort
    target: ColumnSpec | None
    positive: object
    constraints: tuple[str, ...]
    synthetic_rows: int
    """Rows of the largest synthetic table."""
    seed: int
    selected: bool = False
    """Whether metrics were named: then they are computed even if the effort skips them."""

    def skips(self, name: str) -> bool:
        """Whether the effort leaves out this group or metric."""
        return name in self.effort.skipped and not self.selected

    @cached_property
    def real_learning(self) -> Result:
        """Train on real, test on real: the reference of every synthetic table."""
        return _learn(self, self.train)

    @cached_property
    def compared_rows(self) -> int | None:
        """The most rows of a table in metrics whose value depends on its size; None: all."""
        num_reference = len(self.reference_rows)
        if not self.effort.matched or num_reference < FEW_HELD_OUT:
            return self.effort.rows
        return min(num_reference, self.effort.rows or num_reference)

    @cached_property
    def scored(self) -> EncodedTable:
        """The held-out rows on which models are tested."""
        return self.test.at_most(self.effort.test_rows, seed=self.seed)

    @cached_property
    def sample(self) -> EncodedTable:
        """The real rows that tables are compared with, by metrics that compare two tables."""
        return self.train.at_most(self.effort.rows, seed=self.seed)

    @cached_property
    def large_sample(self) -> EncodedTable:
        """The real rows in which dependence between columns is looked for."""
        return self.train.at_most(self.effort.dependence_rows, seed=self.seed)

    def limit(self, rows: int | None, part: float = 1.0) -> int | None:
        """The most rows for models, which are fewer for wide tables; `part` of the cells that the effort allows."""
        if rows is None or self.effort.cells is None:
            return rows
        features = sum(spec.num_features for spec in self.layout.columns)
        return min(rows, max(FEWEST_FITTED, int(part * self.effort.cells / features)))

    def cut(self, table: EncodedTable) -> EncodedTable:
        """The rows of a table that metrics use whose value depends on its size."""
        return table.at_most(self.compared_rows, seed=self.seed)

    @cached_property
    def reference_rows(self) -> np.ndarray:
        """The test rows that take the place of a synthetic table: no more than there are training rows."""
        if self.test.num_rows <= self.train.num_rows:
            return np.arange(self.test.num_rows)
        generator = np.random.default_rng(self.seed)
        return np.sort(generator.choice(self.test.num_rows, self.train.num_rows, replace=False))


Run = Callable[[Comparison, EncodedTable, pa.Table], Result]


@dataclasses.dataclass(frozen=True)
class Group:
    """Metrics that are computed together; they are listed in the catalogue under the group's name."""

    name: str
    run: Run
    reference: Callable[[Comparison], Result] | None
    """What real rows score; None: there is nothing to compare with."""
    reference_is: str = "held-out real rows"
    replaces_table: bool = True
    """Whether the reference takes a synthetic table's place."""
    cut: bool = False
    """Whether the value depends on the size of the table, so that the reference should have as many rows."""
    cost: float = 0.1
    """Measured seconds for one table of 100,000 rows by 50 columns, for the progress bar."""

    applies: Callable[[Comparison], bool] = lambda comparison: True
    """Whether a scorecard of all metrics has it: experiments of papers are for certain tables only."""

    def cost_for(self, comparison: Comparison) -> float:
        """The cost for one table under the effort of a comparison; 0 if it is skipped."""
        if comparison.skips(self.name):
            return 0.0
        return comparison.effort.learning_cost if self.name == "learning" else self.cost

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return metrics_of(self.name)


def _row_group(name: str, run: Run, cost: float = 0.1) -> Group:
    """A group of means over the rows of a table, whatever its size: its reference is those of held-out rows."""

    def reference(comparison: Comparison) -> Result:
        rows = comparison.reference_rows
        return run(comparison, comparison.test.take(rows), comparison.test_table.take(rows))

    return Group(name, run, reference, cost=cost)


def _two_table_group(name: str, run: Callable[[Comparison, EncodedTable], Result], cost: float = 0.1) -> Group:
    """A group that compares two tables of limited size: its reference is held-out rows against the other real rows."""
    made = _row_group(name, lambda comparison, table, _: run(comparison, comparison.cut(table)), cost)
    return dataclasses.replace(made, cut=True)


NO_TARGET = "No target column was given (--target, or target in the schema)."
NUMERIC_TARGET = "The target is numeric; this score is for classes."
CLASS_TARGET = "The target is not numeric."


def _constraints(comparison: Comparison, synthetic: EncodedTable, table: pa.Table) -> Result:
    """The rules of the schema and the conditions given in addition, over all rows."""
    rules, conditions = comparison.schema.rules, comparison.constraints
    if not rules and not conditions:
        why = "There is no rule, neither in the schema ([[rules]]) nor given with --constraint."
        return no_scores("constraints", why, Status.MISSING_INPUT)
    return validity.rule_violations(comparison.table, table, rules, conditions)


def _has_two_real_columns(comparison: Comparison) -> bool:
    columns = comparison.layout.columns
    return len(columns) == 2 and all(spec.kind == "real" for spec in columns)


def _gaussians(comparison: Comparison, synthetic: EncodedTable, table: pa.Table) -> Result:
    """The toy benchmark of the boosting paper: a table of two real columns and nothing else."""
    columns = comparison.layout.columns
    if _has_two_real_columns(comparison):
        return sample_quality.gaussian_quality(np.stack([synthetic[spec.name] for spec in columns], axis=1))
    why = "Only for the benchmark of 25 Gaussians: a table of two real columns."
    return no_scores("gaussians", why, Status.NOT_APPLICABLE)


def _has_locations(comparison: Comparison) -> bool:
    return any(not location.drop for location in comparison.schema.locations)


def _locations(comparison: Comparison, synthetic: EncodedTable, table: pa.Table) -> Result:
    """Scores of all locations of the schema, on at most `compared_rows` synthetic rows."""
    named = [location for location in comparison.schema.locations if not location.drop]
    if not named:
        why = 'The schema declares no location (kind = "location").'
        return no_scores("locations", why, Status.NOT_APPLICABLE)
    most = comparison.compared_rows
    cut = table if most is None else table.slice(0, most)
    real = {each.name: locations.known_points(each, comparison.train, comparison.table) for each in named}
    fake = {each.name: locations.known_points(each, comparison.cut(synthetic), cut) for each in named}
    return locations.location_scores(named, real, fake)


def _correlations(comparison: Comparison, synthetic: EncodedTable, table: pa.Table) -> Result:
    """Differences over tables of limited size, for comparison; dependences over as many rows as time allows."""
    correlations = associations.correlations(comparison.sample, comparison.cut(synthetic))
    fake = synthetic.at_most(comparison.effort.dependence_rows, seed=comparison.seed)
    kept = associations.dependences(comparison.large_sample, fake)
    return Result(
        scores={**correlations.scores, **kept.scores},
        settings={**correlations.settings, **kept.settings},
        details=kept.details,
        notes=(*correlations.notes, *kept.notes),
    )


def _numbers(comparison: Comparison, synthetic: EncodedTable, real: EncodedTable) -> Result:
    """Errors over tables of limited size, for comparison; the statistics themselves over all rows."""
    target = comparison.target
    groups = None if target is None or target.is_numeric else target.name
    scored = numbers.numbers(comparison.sample, comparison.cut(synthetic), target=groups)
    shown = numbers.numbers(real, synthetic, target=groups)
    scores = dict(scored.scores)
    if target is not None and target.is_numeric and comparison.layout.numeric:
        scores["group_mean_error"] = Score.none(NUMERIC_TARGET, Status.NOT_APPLICABLE)
    return dataclasses.replace(scored, scores=scores, details=shown.details)


def _pmse_logit(comparison: Comparison, synthetic: EncodedTable) -> Result:
    """With interactions only where there are enough rows."""
    wanted = comparison.effort.interactions
    order = pmse.allowed_order(comparison.layout, wanted, 2 * comparison.table.num_rows)
    found = pmse.pmse_logit(
        comparison.sample, synthetic, maxorder=order, max_rows=_balanced(comparison, synthetic), seed=comparison.seed
    )
    if order == wanted:
        return found
    note = "Interactions were omitted: there are too many of them for this number of rows."
    return dataclasses.replace(found, notes=(*found.notes, note))


def _pmse_cart(comparison: Comparison, synthetic: EncodedTable) -> Result:
    limits = [_balanced(comparison, synthetic), comparison.limit(comparison.effort.cart_rows, 0.2)]
    known = [limit for limit in limits if limit is not None]
    return pmse.pmse_cart(
        comparison.sample,
        synthetic,
        num_permutations=comparison.effort.permutations,
        max_rows=min(known, default=None),
        seed=comparison.seed,
    )


def _balanced(comparison: Comparison, synthetic: EncodedTable) -> int | None:
    """As many real rows as synthetic ones, where the effort matches sizes: a pMSE depends on their proportion."""
    return synthetic.num_rows if comparison.effort.matched else None


def _closest_record(comparison: Comparison, synthetic: EncodedTable, table: pa.Table) -> Result:
    """Against the rows that are not held out, so that held-out ones do not find themselves."""
    distances = not comparison.skips("dcr_ratio")
    return validity.closest_record(
        comparison.train, synthetic, holdout=comparison.test, distances=distances, seed=comparison.seed
    )


def _inception(comparison: Comparison, synthetic: EncodedTable, table: pa.Table) -> Result:
    """The score of the image papers, with a classifier of the target trained on real rows."""
    target = comparison.target
    if target is None:
        return no_scores("inception", NO_TARGET, Status.MISSING_INPUT)
    if target.is_numeric:
        return no_scores("inception", NUMERIC_TARGET, Status.NOT_APPLICABLE)
    limit, seed = comparison.limit(comparison.effort.slow_rows), comparison.seed
    train, rows = (part.at_most(limit, seed=seed) for part in (comparison.train, synthetic))
    probabilities = learning.class_probabilities(train, rows, target=target.name, seed=seed)
    if probabilities is None:
        return no_scores("inception", "The real target has only one class.")
    return sample_quality.inception_score(probabilities)


def _learning(comparison: Comparison, synthetic: EncodedTable, table: pa.Table) -> Result:
    """Train on synthetic, test on real; train and test on synthetic; and how the models rank."""
    if comparison.target is None:
        return no_scores("learning", NO_TARGET, Status.MISSING_INPUT)
    with report_part(0.0, 0.6):
        trained = _learn(comparison, synthetic)
    why = NUMERIC_TARGET if comparison.target.is_numeric else CLASS_TARGET
    scores = dict(no_scores("learning", why, Status.NOT_APPLICABLE).scores)
    scores |= {f"tstr_{key}": score for key, score in trained.scores.items()}
    if comparison.target.is_numeric:
        return dataclasses.replace(trained, scores=scores)
    real = comparison.real_learning
    with report_part(0.6, 1.0):
        scores |= _learn_within(comparison, synthetic)
    scores["sra"] = learning.sra(_aucs(real), _aucs(trained))
    importances = real.details["importance"], trained.details["importance"]
    scores["importance_agreement"] = learning.importance_agreement(*importances)
    details = {**trained.details, "difference": learning.difference(trained, real, "auc")}
    return dataclasses.replace(trained, scores=scores, details=details)


def _learn_within(comparison: Comparison, synthetic: EncodedTable) -> dict[str, Score]:
    """Train on one half of the synthetic rows and test on the other."""
    if comparison.skips(TSTS[0]):
        return dict.fromkeys(TSTS, Score.none(f"Skipped by the {comparison.effort.name} scorecard.", Status.SKIPPED))
    first, second = synthetic.split(0.5, seed=comparison.seed)
    halves = dataclasses.replace(comparison, test=second)
    within = _learn(halves, first.at_most(comparison.limit(comparison.effort.light_rows, 0.5), seed=comparison.seed))
    return {key: within.scores[key.removeprefix("tsts_")] for key in TSTS}


def _learning_reference(comparison: Comparison) -> Result:
    if comparison.target is None:
        return Result(scores={}, settings={})
    with report_part(0.0, 0.6):
        real = comparison.real_learning
    scores = {f"tstr_{key}": score for key, score in real.scores.items()}
    if not comparison.target.is_numeric and not comparison.skips(TSTS[0]):
        with report_part(0.6, 1.0):
            within = _learn_within_real(comparison)
        scores |= {key: within.scores[key.removeprefix("tsts_")] for key in TSTS}
    return dataclasses.replace(real, scores=scores)


def _learn(comparison: Comparison, train: EncodedTable) -> Result:
    """Models of the target, trained on this table and scored on the real test rows."""
    assert comparison.target is not None
    effort, target, test, seed = comparison.effort, comparison.target.name, comparison.scored, comparison.seed
    if comparison.target.is_numeric:
        return regression.learn_numeric(
            train,
            test,
            target=target,
            max_rows=comparison.limit(effort.slow_rows),
            bootstrap=effort.bootstrap,
            seed=seed,
        )
    return learning.learn(
        train,
        test,
        target=target,
        positive=comparison.positive,
        models=effort.models,
        max_rows={
            name: comparison.limit(effort.mlp_rows if name == "mlp" else effort.slow_rows) for name in effort.models
        },
        bootstrap=effort.bootstrap,
        seed=seed,
    )


def _learn_within_real(comparison: Comparison) -> Result:
    """The reference of training and testing on synthetic rows: as many real rows to learn from, scored on the test."""
    train = comparison.train
    most, all_rows = comparison.limit(comparison.effort.light_rows, 0.5), comparison.limit(comparison.effort.slow_rows)
    num_rows = min(comparison.synthetic_rows // 2, most or comparison.synthetic_rows)
    if num_rows >= min(train.num_rows, all_rows or train.num_rows):
        return comparison.real_learning
    return _learn(comparison, train.at_most(max(1, num_rows), seed=comparison.seed))


def _aucs(result: Result) -> dict[str, float]:
    """Of the five models that synthetic ranking agreement was defined with."""
    return {name: scores["auc"] for name, scores in result.details["models"].items() if name in learning.QUAIL}


def _parallel_rmse(comparison: Comparison, synthetic: EncodedTable, table: pa.Table) -> Result:
    """Linear models of a numeric target, or of the first numeric column if the target is not numeric."""
    target = comparison.target
    if target is None or not target.is_numeric:
        numeric = comparison.layout.numeric
        if not numeric or len(comparison.layout.columns) < 4:
            return no_scores("parallel_rmse", "It needs a numeric column and three others.", Status.NOT_APPLICABLE)
        target = numeric[0]
    return regression.parallel_rmse(comparison.train, synthetic, comparison.scored, target=target.name)


GROUPS = (
    _two_table_group(
        "one_way",
        lambda c, fake: marginals.one_way(c.sample, fake, bootstrap=c.effort.bootstrap, seed=c.seed),
        cost=0.8,
    ),
    Group(
        "numbers",
        lambda c, fake, _: _numbers(c, fake, c.real),
        lambda c: _numbers(c, c.test.take(c.reference_rows), c.train),
        cut=True,
        cost=0.2,
    ),
    _two_table_group("two_way", lambda c, fake: marginals.two_way(c.sample, fake), cost=0.2),
    _two_table_group("three_way", lambda c, fake: marginals.three_way(c.sample, fake, seed=c.seed)),
    dataclasses.replace(_row_group("correlations", _correlations, cost=0.9), cut=True),
    _two_table_group("dimension_probability", lambda c, fake: marginals.dimension_probability(c.sample, fake)),
    _row_group("validity", lambda c, fake, _: validity.validity(c.train, fake), cost=0.3),
    _row_group("constraints", _constraints),
    _two_table_group("pmse_logit", _pmse_logit, cost=1.2),
    Group("learning", _learning, _learning_reference, "trained on real rows", replaces_table=False),
    _two_table_group("pmse_cart", _pmse_cart, cost=2.0),
    _two_table_group("nist", lambda c, fake: marginals.nist(c.sample, fake, seed=c.seed)),
    _two_table_group("cell_accuracy", lambda c, fake: cells.cell_accuracy(c.sample, fake)),
    _row_group(
        "pca",
        lambda c, fake, _: geometry.pca_marginal(c.sample, fake, max_rows=c.limit(c.effort.slow_rows), seed=c.seed),
        cost=1.8,
    ),
    _row_group("wasserstein", lambda c, fake, _: geometry.wasserstein(c.sample, fake, seed=c.seed), cost=1.0),
    _two_table_group(
        "jensen_shannon",
        lambda c, fake: geometry.jensen_shannon(c.sample, fake, max_rows=c.effort.slow_rows, seed=c.seed),
        cost=1.2,
    ),
    Group(
        "dimension_prediction",
        lambda c, fake, _: regression.dimension_prediction(
            c.train, fake, c.scored, max_rows=c.limit(c.effort.light_rows, 0.4), seed=c.seed
        ),
        None,
        cost=8.5,
    ),
    Group("parallel_rmse", _parallel_rmse, None),
    _row_group("inception", _inception),
    dataclasses.replace(_row_group("gaussians", _gaussians), applies=_has_two_real_columns),
    _row_group("closest_record", _closest_record),
    dataclasses.replace(_row_group("locations", _locations), cut=True, applies=_has_locations),
)
"""In the order of the catalogue."""
