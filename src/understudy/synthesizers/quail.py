"""QUAIL: labels from a private learner, all other columns from another method, under one budget.

Rosenblatt et al., "Differentially private synthetic data: applied evaluations and enhancements", 2020, Algorithm 1.
Deviations, each for soundness or use: both parts are accounted together instead of adding their epsilons, classes and
bounds come from the schema, the learner sees all rows and nothing is reported about it (the published library scores it
on a private fifth, for free), and labels may be drawn by their probabilities. The paper's algorithm gives the share p
to the synthesizer, its text, its library and its running times to the learner; here it is the learner's.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import jax
from jaxtyping import PRNGKeyArray

from understudy.errors import ConfigError
from understudy.learners.methods import Learner, Linear, NumberPerceptron, Prior
from understudy.models.predictors import HOW
from understudy.models.quail import QuailModel
from understudy.notes import Note
from understudy.privacy.ledger import Budget, Ledger, Plan
from understudy.privacy.rows import PrivateRows, PublicRows, partition_rows, partition_sizes
from understudy.progress import Progress, stretch_progress
from understudy.schema import Domain
from understudy.settings import InnerFraction, Listed, OneOf, check_settings
from understudy.synthesizers.protocol import Capabilities, Synthesizer, too_large_for
from understudy.synthesizers.registry import AUTO, LEARNERS, learner_class, name_of

LEARN, IMITATE = "rows to learn from", "rows to imitate"
"""The two parts of the units with `disjoint`, as the ledger calls them."""


@dataclasses.dataclass(frozen=True)
class Quail:
    """Any method for all columns but the target, and a private learner that labels its rows."""

    inner: Synthesizer
    """The method that makes the other columns. It never sees the target."""
    _: dataclasses.KW_ONLY
    target: str | Annotated[tuple[str, ...], Listed(1, distinct=True)] | None = None
    """What to predict: a column, or a list of columns with a learner each. Left out: the schema's target."""
    learner: Annotated[str, OneOf(AUTO, *LEARNERS)] | Learner = AUTO
    """auto (logistic for categories, linear for a number), logistic, naive_bayes, mlp, prior, linear or mlp_regression,
    with settings if wanted: naive_bayes(numbers=gaussian)."""
    learner_fraction: InnerFraction = 0.9
    """The learners' part of the budget that is left, the same for each of them; with `disjoint`, their part of the
    units."""
    label: Annotated[str, OneOf(*HOW)] = "argmax"
    """argmax: the likeliest class, or the predicted number. sample: drawn by the predicted probabilities, or around the
    number by a bought residual variance."""
    columns: tuple[str, ...] | None = None
    """What the learners see. Left out: all columns that are no target."""
    disjoint: bool = False
    """Whether a coin sends each unit to the learners or to the method: then nobody pays for both, and each part may
    spend the whole budget on fewer rows."""

    def __post_init__(self) -> None:
        check_settings(self)
        if isinstance(self.learner, str):
            return
        if self.learner.target is not None:
            raise ConfigError("The target stands in quail, not in its learner: quail(mst, target=...).")
        if self.learner == type(self.learner)():
            object.__setattr__(self, "learner", name_of(self.learner))

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(public=self.inner.capabilities.public, target=True, inner=self.inner)

    # ------------------------------------------------------------------------------------------------------------ plan

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """The learners at their share, then the inner method on what is left; with `disjoint`, each on the whole."""
        targets, others = self._columns_of(domain)
        learners = [self._learner(domain, target) for target in targets]
        to_learn, to_imitate = self._sizes(domain)
        share = (1.0 if self.disjoint else self.learner_fraction) / len(targets)
        parts: list[Plan] = []
        for target, learner in zip(targets, learners, strict=True):
            own = dataclasses.replace(domain.only((*others, target)), num_rows=to_learn, target=target)
            plan = learner.plan(own, budget.fraction_of_rest(share)).under(f"{name_of(learner)} for {target}")
            parts.append(_on_branch(plan, LEARN) if self.disjoint else plan)
        queries = tuple(query for part in parts for query in part)
        left = budget if self.disjoint else budget.after(queries)
        inner = self.inner.plan(dataclasses.replace(domain.only(others), num_rows=to_imitate), left)
        if self.disjoint:
            inner = _all_on_one_part(inner, name_of(self.inner))
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
                "quail needs a target to learn. Name it, as in quail(mst, target=...), or declare one in the schema."
            )
        targets = (named,) if isinstance(named, str) else named
        for name in targets:
            domain.index(name)  # refuses a name that is none
        others = tuple(name for name in domain.names if name not in targets)
        if not others:
            raise ConfigError(
                f"The targets are all columns that there are: {name_of(self.inner)} has none left to make. Name fewer."
            )
        return targets, others

    def _learner(self, domain: Domain, target: str) -> Learner:
        """The learner of one target, with all of its settings."""
        if isinstance(self.learner, str):
            usual = "linear" if target in domain.numbers else "logistic"
            made: Any = learner_class(usual if self.learner == AUTO else self.learner)()
        else:
            made = self.learner
        changes: dict[str, Any] = {"target": target}
        if self.columns is not None:
            if isinstance(made, Prior):
                raise ConfigError("The learner prior sees no columns. Leave columns out, or take another learner.")
            changes["columns"] = self.columns
        if self.label == "sample" and isinstance(made, NumberPerceptron):
            raise ConfigError(
                "mlp_regression knows no residual variance to draw labels by. Use label=argmax, or learner=linear."
            )
        if self.label == "sample" and isinstance(made, Linear):
            changes["residual"] = True
        return dataclasses.replace(made, **changes)

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
        who = "units, by coin: nobody pays for both parts" if self.disjoint else "budget that is left"
        share = f"with {self.learner_fraction:g} of the {who}; {name_of(self.inner)} makes the other columns."
        notes = [Note(f"{', '.join(parts)}, {share}")]
        if self.label == "argmax":
            lost = "how they vary among equal rows is lost (label=sample keeps it)."
            notes.append(Note(f"Labels follow from the other columns: {lost}"))
        return tuple(notes)

    # ------------------------------------------------------------------------------------------------------------- fit

    def fit(
        self,
        rows: PrivateRows,
        plan: Plan,
        ledger: Ledger,
        *,
        key: PRNGKeyArray,
        public: PublicRows | None = None,
        progress: Progress | None = None,
    ) -> QuailModel:
        """Formal guarantee: the joint price of the plan's looks; with `disjoint` the larger of both parts, since a unit
        is in one only. The inner method is handed no target, and labels of its rows are post-processing."""
        domain, tell = rows.domain, progress or (lambda share, words: None)
        targets, others = self._columns_of(domain)
        to_learn = to_imitate = rows
        if self.disjoint:
            to_imitate, to_learn = partition_rows(rows, self.learner_fraction, ledger)
        inner_key, *learner_keys = jax.random.split(key, 1 + len(targets))
        models, done = [], 0
        *learned, imitated = plan.parts
        for number, (target, own, learner_key) in enumerate(zip(targets, learned, learner_keys, strict=True)):
            learner = self._learner(domain, target)
            done += len(own.queries)
            purse = ledger.view(ledger.remaining.after(plan.queries[done:]))  # what follows is reserved
            models.append(
                learner.fit(
                    to_learn.only((*others, target)),
                    own,
                    purse,
                    key=learner_key,
                    progress=stretch_progress(tell, 0.3 * number / len(targets), 0.3 * (number + 1) / len(targets)),
                )
            )
            tell(0.3 * (number + 1) / len(targets), f"{target} learned")
        more: dict[str, Any] = {"progress": stretch_progress(tell, 0.3, 1.0)}
        if public is not None:
            at = [domain.index(name) for name in others]
            more["public"] = public.only(at)
        inner = self.inner.fit(to_imitate.only(others), imitated, ledger, key=inner_key, **more)
        return QuailModel(domain.names, targets, inner, tuple(models), self.label)


def _all_on_one_part(plan: Plan, name: str) -> Plan:
    if any(query.partition is not None for query in plan):
        raise ConfigError(
            f"{name} holds out rows by itself, and disjoint=true would cut them once more. Use one of the two."
        )
    return _on_branch(plan, IMITATE)


def _on_branch(plan: Plan, partition: str) -> Plan:
    return plan.each(lambda query: dataclasses.replace(query, partition=partition))
