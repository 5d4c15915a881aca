"""QUAIL: labels from a private learner, all other columns from another method, under one budget.

Rosenblatt et al., "Differentially private synthetic data: applied evaluations and enhancements", 2020, Algorithm 1.
Deviations: both parts are composed jointly instead of adding their epsilons; classes and bounds come from the schema;
the learner is trained on all rows and no score of it is reported (the published library scores it on a private fifth
without accounting for it); labels may be sampled from their probabilities. In the paper's algorithm the fraction p of
the budget goes to the synthesizer, in its text and its library to the learner; here it is the learner's.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, cast

import jax

from understudy.errors import ConfigError
from understudy.learners.methods import Learner, Linear, NumberPerceptron, Prior
from understudy.models.predictors import HOW
from understudy.models.quail import QuailModel
from understudy.notes import Note
from understudy.privacy.accounting.events import ZCDP
from understudy.privacy.accounting.ledger import Budget, Plan, Query
from understudy.privacy.rows.rows import partition_rows, partition_sizes
from understudy.progress import stretch_progress
from understudy.schema import Domain
from understudy.synthesizers.protocol import Capabilities, Synthesizer, spends_zcdp, too_large_for
from understudy.synthesizers.registry import AUTO, LEARNERS, learner_class, name_of
from understudy.synthesizers.run import Run
from understudy.synthesizers.settings import InnerFraction, Listed, OneOf, check_settings, replace_settings

LEARN, IMITATE = "learner's rows", "synthesizer's rows"
"""The two partitions of the units with `disjoint`, as the ledger names them."""
RESERVED = Query("reserved", "the least of the inner method's zCDP budget", ZCDP(1e-9))
"""Beside it the Renyi accountant alone has a figure, so learners are calibrated by the one that decides in the end."""


@dataclasses.dataclass(frozen=True)
class Quail:
    """Any method for all columns but the target, and a private learner that labels its rows.

    >>> import understudy as us
    >>> us.express(us.Quail(us.MST(), target="income"))  # as --method reads it
    'quail(mst, target=income)'
    """

    inner: Synthesizer
    """The method that generates the other columns. It never reads the target."""
    _: dataclasses.KW_ONLY
    target: str | Annotated[tuple[str, ...], Listed(1, distinct=True)] | None = None
    """What to predict: a column, or a list of columns with a learner each. None: the schema's target."""
    learner: Annotated[str, OneOf(AUTO, *LEARNERS)] | Learner = AUTO
    """auto (logistic for categories, linear for a number), logistic, naive_bayes, mlp, prior, linear or mlp_regression,
    possibly with settings: naive_bayes(numbers=gaussian)."""
    learner_fraction: InnerFraction = 0.9
    """The fraction of the remaining budget for all learners together, divided equally; with `disjoint`, the fraction of
    units."""
    label: Annotated[str, OneOf(*HOW)] = "argmax"
    """argmax: the likeliest class, or the predicted number. sample: sampled from the predicted probabilities, or around
    the number with a privately estimated residual variance."""
    columns: tuple[str, ...] | None = None
    """The columns to predict from. None: all columns but the targets."""
    disjoint: bool = False
    """Whether units are partitioned at random between the learners and the method: the two then compose in parallel,
    and each may spend the whole budget on fewer rows."""

    def __post_init__(self) -> None:
        check_settings(self)
        if isinstance(self.learner, str):
            return
        if self.learner.target is not None:
            raise ConfigError(
                "The target is a setting of quail, not of its learner: quail(mst, target=...).", setting="learner"
            )
        if self.learner == type(self.learner)():
            object.__setattr__(self, "learner", name_of(self.learner))

    @property
    def capabilities(self) -> Capabilities:
        """Those of a method that predicts a target and trains on rows."""
        return Capabilities(public=self.inner.capabilities.public, target=True, rows=True, inner=self.inner)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """The learners with their fraction, then the inner method with the rest; with `disjoint`, each with the
        whole budget."""
        targets, others = self._columns_of(domain)
        learners = [self._learner(domain, target) for target in targets]
        to_learn, to_imitate = self._sizes(domain)
        fraction = (1.0 if self.disjoint else self.learner_fraction) / len(targets)
        shared = budget.after([RESERVED]) if spends_zcdp(self.inner) and not self.disjoint else budget
        parts: list[Plan] = []
        for target, learner in zip(targets, learners, strict=True):
            known = dataclasses.replace(domain.only((*others, target)), num_rows=to_learn, target=target)
            plan = learner.plan(known, shared.fraction_of_rest(fraction)).under(f"{name_of(learner)} for {target}")
            parts.append(_on_partition(plan, LEARN) if self.disjoint else plan)
        queries = tuple(query for part in parts for query in part)
        left = budget if self.disjoint else budget.after(queries)
        inner = self.inner.plan(dataclasses.replace(domain.only(others), num_rows=to_imitate), left)
        if self.disjoint:
            inner = _inner_on_partition(inner, name_of(self.inner))
        inner = inner.under(name_of(self.inner))
        notes = (*self._notes(targets, learners), *inner.notes)
        return Plan((*queries, *inner.queries), notes, (*parts, inner))

    def too_large(self, domain: Domain) -> tuple[str, ...]:
        """As for the inner method, among the columns that it generates."""
        return too_large_for(self.inner, domain.only(self._columns_of(domain)[1]))

    def _columns_of(self, domain: Domain) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The targets, and all other columns."""
        named = domain.target if self.target is None else self.target
        if named is None:
            raise ConfigError(
                "quail needs a target. Name one, as in quail(mst, target=...), or declare one in the schema.",
                setting="target",
            )
        targets = (named,) if isinstance(named, str) else named
        for name in targets:
            domain.index(name)  # refuses an unknown name
        others = tuple(name for name in domain.names if name not in targets)
        if not others:
            raise ConfigError(
                f"All columns are targets, so {name_of(self.inner)} has none left to generate. Name fewer targets.",
                setting="target",
            )
        return targets, others

    def _learner(self, domain: Domain, target: str) -> Learner:
        """The learner of one target, with all of its settings."""
        made = self.learner
        if isinstance(made, str):
            usual = "linear" if target in domain.numeric else "logistic"
            made = cast(Learner, learner_class(usual if made == AUTO else made)())
        changes: dict[str, object] = {"target": target}
        if self.columns is not None:
            if isinstance(made, Prior):
                raise ConfigError(
                    "The learner prior uses no columns. Remove columns, or use another learner.", setting="columns"
                )
            changes["columns"] = self.columns
        if self.label == "sample" and isinstance(made, NumberPerceptron):
            raise ConfigError(
                "mlp_regression has no residual variance to sample labels with. Use label=argmax, or learner=linear.",
                setting="label",
            )
        if self.label == "sample" and isinstance(made, Linear):
            changes["residual"] = True
        return replace_settings(made, changes)

    def _sizes(self, domain: Domain) -> tuple[int, int]:
        """The public numbers of rows for the learners, and for the inner method."""
        if not self.disjoint:
            return domain.num_rows, domain.num_rows
        imitated, learned = partition_sizes(domain, self.learner_fraction)
        return learned, imitated

    def _notes(self, targets: Sequence[str], learners: Sequence[Learner]) -> tuple[Note, ...]:
        parts = [
            f"{name_of(learner)} labels the target {name!r}" for name, learner in zip(targets, learners, strict=True)
        ]
        whole = "units, at random, so that the two compose in parallel" if self.disjoint else "remaining budget"
        rest = f"with {self.learner_fraction:g} of the {whole}; {name_of(self.inner)} generates the other columns."
        notes = [Note(f"{', '.join(parts)}, {rest}")]
        if self.label == "argmax":
            lost = "their variation among equal rows is lost (label=sample keeps it)."
            notes.append(Note(f"Labels are a function of the other columns: {lost}"))
        return tuple(notes)

    def fit(self, run: Run) -> QuailModel:
        """Formal guarantee: the joint cost of the plan's queries; with `disjoint` the larger of the two, since a unit
        is in one partition only and a query on rows of another than its own is refused. The inner method never reads
        the target, and labels of its rows are post-processing."""
        domain, plan, ledger = run.domain, run.plan, run.ledger
        targets, others = self._columns_of(domain)
        to_learn = to_imitate = run.rows
        if self.disjoint:
            to_imitate, to_learn = partition_rows(run.rows, self.learner_fraction, ledger, (IMITATE, LEARN))
        inner_key, *learner_keys = jax.random.split(run.key, 1 + len(targets))
        models, done = [], 0
        *learned, imitated = plan.parts
        for number, (target, learner_plan, learner_key) in enumerate(zip(targets, learned, learner_keys, strict=True)):
            done += len(learner_plan.queries)
            inner_ledger = ledger.view(ledger.remaining.after(plan.queries[done:]))  # later queries are reserved
            begin, end = 0.3 * number / len(targets), 0.3 * (number + 1) / len(targets)
            rows, progress = to_learn.only((*others, target)), stretch_progress(run.progress, begin, end)
            part = Run(rows, learner_plan, inner_ledger, key=learner_key, progress=progress)
            models.append(self._learner(domain, target).fit(part))
            run.report(end, f"{target} learned")
        public = None if run.public is None else run.public.only([domain.index(name) for name in others])
        progress = stretch_progress(run.progress, 0.3, 1.0)
        inner = self.inner.fit(
            Run(to_imitate.only(others), imitated, ledger, key=inner_key, public=public, progress=progress)
        )
        return QuailModel(domain.names, targets, inner, tuple(models), self.label)


def _inner_on_partition(plan: Plan, name: str) -> Plan:
    if any(query.partition is not None for query in plan):
        raise ConfigError(
            f"{name} already holds out units, and disjoint=true would partition them again. Use one of the two.",
            setting="disjoint",
        )
    return _on_partition(plan, IMITATE)


def _on_partition(plan: Plan, partition: str) -> Plan:
    return plan.each(lambda query: dataclasses.replace(query, partition=partition))
