"""The column that a learner predicts, and the weights of its classes."""

import math

import numpy as np
from jaxtyping import Float

from understudy.errors import ConfigError
from understudy.privacy.counts import noisy_counts
from understudy.privacy.events import DiscreteGaussian
from understudy.privacy.ledger import Budget, Ledger, Plan, Query
from understudy.privacy.rows import PrivateRows
from understudy.schema import Domain

PRIVATE = "private"
"""The class weights that are estimated privately."""
MOST_WEIGHT = 20.0
"""A private class weight is at most this many times that of the commonest class: counts of rare classes are noisy."""

ClassWeight = None | str | tuple[float, ...]


def target_of(domain: Domain, named: str | None, *, numeric: bool) -> str:
    """The column to predict, of the right kind."""
    target = named or domain.target
    if target is None:
        raise ConfigError("There is no target. Name the column to predict: target=..., or target in the schema.")
    (size,) = domain.shape((target,))
    if numeric and target not in domain.numeric:
        raise ConfigError(f"A regression predicts a number, and {target!r} is a list of categories. Use a classifier.")
    if not numeric and target in domain.numeric:
        raise ConfigError(
            f"A classifier predicts categories, and {target!r} is a number. Use a regression, or declare categories."
        )
    if not numeric and size < 2 and target not in domain.estimated:
        raise ConfigError(f"The target {target!r} has only one class. Declare at least two.")
    return target


def check_class_weight(weight: object) -> None:
    if weight is None or weight == PRIVATE:
        return
    if isinstance(weight, str):
        raise ConfigError(
            f'class_weight {weight!r} would be read off the rows. Use class_weight="private" for weights from noisy '
            "class counts, or give a number for each class."
        )
    if not isinstance(weight, tuple) or not all(
        isinstance(each, int | float) and not isinstance(each, bool) and 0 < each < math.inf for each in weight
    ):
        raise ConfigError(f'class_weight must be None, "private" or a positive number by class, found {weight!r}.')


def check_classes(weight: ClassWeight, target: str, domain: Domain) -> None:
    """Refuses, before any query, weights that are not one number for each declared class."""
    if not isinstance(weight, tuple):
        return
    if target in domain.estimated:
        raise ConfigError(
            f"class_weight needs the classes of {target!r} to be declared. List them as categories in the schema."
        )
    (size,) = domain.shape((target,))
    if len(weight) != size:
        raise ConfigError(f"class_weight needs one number for each of the {size} classes, found {len(weight)}.")


def class_query(target: str, budget: Budget) -> Query:
    """Noisy counts of the target, for all of this budget."""

    def event(noise: float) -> DiscreteGaussian:
        return DiscreteGaussian(noise, 1, budget.max_rows_per_unit)

    stddev = budget.calibrate(lambda noise: [event(noise)])
    return Query("classes", "a count for each class of the target", event(stddev), (target,))


def class_weights(
    weight: ClassWeight, rows: PrivateRows, target: str, plan: Plan, ledger: Ledger
) -> Float[np.ndarray, " classes"]:
    """One factor for each class: public, or one over its noisy share; the mean over the classes is one."""
    (size,) = rows.domain.shape((target,))
    if weight is None:
        return np.ones(size)
    if isinstance(weight, tuple):
        check_classes(weight, target, rows.domain)
        return np.asarray(weight, dtype=np.float64)
    (noisy,) = noisy_counts(rows, [(target,)], plan["classes"], ledger)
    factors = 1 / np.maximum(noisy, max(noisy.max(), 1.0) / MOST_WEIGHT)
    return factors / factors.mean()
