"""A complete method to copy: independent columns, one noisy histogram each.

Copy `Skeleton` to `src/understudy/synthesizers/NAME.py`. Copy `Product` to `src/understudy/models/NAME.py` only if no
model there fits (here `GraphicalModel` would fit), and import it in `models/__init__.py`. Then add one line to
`SYNTHESIZERS` in `synthesizers/registry.py`: it gives the method its name on the command line, `us.Skeleton`, and the
contract tests.

    "skeleton": "understudy.synthesizers.skeleton:Skeleton",

`tests/contract/test_skeleton.py` runs the contract on this file.
"""

import dataclasses
from typing import ClassVar

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from understudy.errors import ConditionError
from understudy.models.protocol import Allowed, Arrays, Sample, Structure, register
from understudy.privacy.accounting.events import DiscreteGaussian
from understudy.privacy.accounting.ledger import Budget, Plan, Query
from understudy.privacy.mechanisms.counts import noisy_counts
from understudy.schema import Domain
from understudy.synthesizers.protocol import Capabilities
from understudy.synthesizers.run import Run
from understudy.synthesizers.settings import Positive, check_settings


@register  # so that loading a release finds it by its kind
@dataclasses.dataclass(frozen=True)
class Product:
    """What `Skeleton` returns: columns that are independent, each with probabilities of its own."""

    kind: ClassVar[str] = "product"
    names: tuple[str, ...]
    """The columns, in the order of the codes."""
    probabilities: tuple[Float[np.ndarray, " codes"], ...]
    """Of the codes of each column."""

    def sample(self, num_rows: int, *, key: PRNGKeyArray, allowed: Allowed | None = None) -> Sample:
        """New rows. `allowed` conditions them, by Bayes' rule: here each column is restricted to its allowed codes."""
        draw = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        codes = np.empty((num_rows, len(self.names)), dtype=np.int32)
        for column, (name, weights) in enumerate(zip(self.names, self.probabilities, strict=True)):
            weights = np.where(allowed[name], weights, 0.0) if allowed and name in allowed else weights
            if not weights.sum() > 0:
                raise ConditionError("No row can meet the condition: the model gives it probability zero. Loosen it.")
            codes[:, column] = draw.choice(len(weights), num_rows, p=weights / weights.sum())
        return Sample(codes, None)  # None: values follow from codes; a model of exact numbers returns positions too

    def to_arrays(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        return {"names": list(self.names)}, {str(at): column for at, column in enumerate(self.probabilities)}

    @classmethod
    def from_arrays(cls, structure: Structure, arrays: Arrays) -> "Product":
        """Raises ValueError or LookupError if the file is malformed: a release may come from anywhere."""
        names = tuple(structure["names"])
        probabilities = tuple(arrays[str(at)] for at in range(len(names)))
        if not all(column.ndim == 1 and column.size and np.isfinite(column).all() for column in probabilities):
            raise ValueError("some probabilities are not finite, or not a list")
        return cls(names, probabilities)


@dataclasses.dataclass(frozen=True, kw_only=True)  # settings never change; fitting returns a new value
class Skeleton:
    """One noisy histogram for each column. All dependence between columns is lost.

    >>> Skeleton(smoothing=0.1).smoothing
    0.1
    """

    capabilities: ClassVar[Capabilities] = Capabilities()
    """What other code may ask of it: nothing special. See the fields of `Capabilities`."""

    smoothing: Positive = 0.5  # the annotation says which values are allowed; `check_settings` refuses others
    """Added to each noisy count, so that no declared code has probability zero."""

    def __post_init__(self) -> None:
        check_settings(self)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """One query for all 1-way marginals. A pure function of public facts: it never sees a row."""
        count, sensitivity = len(domain.names), budget.max_rows_per_unit
        # The smallest noise whose cost, together with that of earlier queries, is within the budget. If a method makes
        # several queries, it returns the events of all of them here, so that they are calibrated together.
        stddev = budget.calibrate(lambda stddev: [DiscreteGaussian(stddev, count, sensitivity)])
        event = DiscreteGaussian(stddev, count, sensitivity)
        return Plan((Query("one_way", f"1-way marginals of {count} columns", event, columns=domain.names),))

    def fit(self, run: Run) -> Product:
        """Formal guarantee: the cost of the plan's one query; all else is post-processing.

        `noisy_counts` charges the query on the ledger before it counts, and adds the noise. `run.rows` is opaque: a
        method passes it to mechanisms of `privacy/` and gets noisy answers back. `run.key` is for randomness that hides
        nothing, such as the start of a training.
        """
        counts = noisy_counts(run.rows, run.domain.one_way, run.plan["one_way"], run.ledger)
        run.report(1.0, f"{len(counts)} columns measured")
        weights = [np.maximum(column, 0.0) + self.smoothing for column in counts]
        return Product(run.domain.names, tuple(column / column.sum() for column in weights))
