"""The column that a learner predicts, and the weights of its classes."""

from typing import Annotated, TypeAlias

import numpy as np
from jaxtyping import Float

from understudy.errors import ConfigError
from understudy.privacy.accounting.events import DiscreteGaussian
from understudy.privacy.accounting.ledger import Budget, Query
from understudy.privacy.mechanisms.counts import noisy_counts
from understudy.schema import Domain
from understudy.synthesizers.run import Run
from understudy.synthesizers.settings import Advice, OneOf, Positive

PRIVATE = "private"
"""The class weights that are estimated privately."""
MAX_WEIGHT = 20.0
"""A private class weight is at most this many times that of the commonest class: counts of rare classes are noisy."""

NOT_READ_OFF = Advice(
    'Weights are never read off the rows. Use class_weight="private" for weights from noisy class counts, or give a '
    "number for each class."
)
ClassWeight: TypeAlias = Annotated[str, OneOf(PRIVATE), NOT_READ_OFF] | tuple[Positive, ...] | None


def target_of(domain: Domain, named: str | None, *, numeric: bool) -> str:
    """The column to predict, of the right kind."""
    target = named or domain.target
    if target is None:
        raise ConfigError(
            "There is no target. Name the column to predict: target=..., or target in the schema.", setting="target"
        )
    (size,) = domain.shape((target,))
    if numeric and target not in domain.numeric:
        raise ConfigError(
            f"A regression predicts a number, and {target!r} is a list of categories. Use a classifier.",
            setting="target",
        )
    if not numeric and target in domain.numeric:
        raise ConfigError(
            f"A classifier predicts categories, and {target!r} is a number. Use a regression, or declare categories.",
            setting="target",
        )
    if not numeric and size < 2 and target not in domain.estimated:
        raise ConfigError(f"The target {target!r} has only one class. Declare at least two.", setting="target")
    return target


def check_classes(weight: ClassWeight, target: str, domain: Domain) -> None:
    """Refuses, before any query, weights that are not one number for each declared class."""
    if not isinstance(weight, tuple):
        return
    if target in domain.estimated:
        raise ConfigError(
            f"class_weight needs the classes of {target!r} to be declared. List them as categories in the schema.",
            setting="class_weight",
        )
    (size,) = domain.shape((target,))
    if len(weight) != size:
        raise ConfigError(
            f"class_weight needs one number for each of the {size} classes, found {len(weight)}.",
            setting="class_weight",
        )


def class_query(target: str, budget: Budget) -> Query:
    """Noisy counts of the target, for all of this budget."""

    stddev = budget.calibrate(lambda noise: [DiscreteGaussian(noise, 1, budget.max_rows_per_unit)])
    event = DiscreteGaussian(stddev, 1, budget.max_rows_per_unit)
    return Query("classes", "a count for each class of the target", event, (target,))


def class_weights(weight: ClassWeight, run: Run, target: str) -> Float[np.ndarray, " classes"]:
    """One factor for each class: public, or one over its noisy share; the mean over the classes is one."""
    (size,) = run.domain.shape((target,))
    if weight is None:
        return np.ones(size)
    if isinstance(weight, tuple):
        check_classes(weight, target, run.domain)
        return np.asarray(weight, dtype=np.float64)
    (noisy,) = noisy_counts(run.rows, [(target,)], run.plan["classes"], run.ledger)
    factors = 1 / np.maximum(noisy, max(noisy.max(), 1.0) / MAX_WEIGHT)
    return factors / factors.mean()
