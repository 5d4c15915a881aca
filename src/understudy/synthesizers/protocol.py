"""What every method is: settings with `plan`, `fit` and declared capabilities.

Code that treats methods differently asks for their capabilities, which follow from class and settings alone: public
facts, known before any query.
"""

import dataclasses
import enum
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from understudy.errors import ConfigError
from understudy.synthesizers.registry import name_of
from understudy.synthesizers.settings import SettingError

if TYPE_CHECKING:
    from understudy.models import Model
    from understudy.privacy.accounting.ledger import Budget, Plan
    from understudy.privacy.accounting.marginal_noise import ExpectedNoise
    from understudy.schema import Domain
    from understudy.synthesizers.run import Run
    from understudy.training.trajectory import Trajectory


class PublicUse(enum.Enum):
    """Whether a method starts from a public table."""

    NONE = "none"
    ACCEPTED = "accepted"
    REQUIRED = "required"


@dataclasses.dataclass(frozen=True)
class Capabilities:
    """What a method with these settings can do."""

    trajectory: bool = False
    """Whether checkpoints of its training can be kept: it is a `HasTrajectory`."""
    critics: bool = False
    """Whether its checkpoints come with critics."""
    public: PublicUse = PublicUse.NONE
    """Whether it starts from a public table."""
    target: bool = False
    """Whether it treats a target differently from other columns."""
    zcdp: bool = False
    """Whether it spends a zCDP budget, which the Renyi accountant alone can hold."""
    rows: bool = False
    """Whether counts are not enough for it: it trains on rows, or partitions them. Rows on a cluster cannot be used."""
    inner: "Synthesizer | None" = None
    """The method that a wrapper is put around."""


@runtime_checkable
class Synthesizer(Protocol):
    """A method: a frozen dataclass of settings that plans its queries and fits a model.

    Every class of the package that is a method follows it, and so may yours.

    >>> import understudy as us
    >>> isinstance(us.MST(), Synthesizer)
    True
    """

    @property
    def capabilities(self) -> Capabilities:
        """What other code may ask of it, from its settings alone."""

    def plan(self, domain: "Domain", budget: "Budget") -> "Plan":
        """Every query of a fit with its cost: a pure function of public facts."""

    def fit(self, run: "Run") -> "Model":
        """A model of the rows. Formal guarantee: each query charges one item of the plan."""


@runtime_checkable
class HasTrajectory(Synthesizer, Protocol):
    """A method whose training can be followed: what `boosted`, `drs` and `selected` are put around."""

    def num_checkpoints(self, every: int) -> int:
        """The number of checkpoints of a run if one is kept after every `every` generator steps. Public."""

    def trajectory(self, run: "Run", *, checkpoints: int, every: int) -> "Trajectory":
        """Trains like `fit`, at the same cost, and returns the last `checkpoints` of the states kept on the way."""


@runtime_checkable
class Limited(Protocol):
    """A method that limits the joint number of codes of some columns."""

    def too_large(self, domain: "Domain") -> tuple[str, ...]:
        """Columns that together have too many codes; empty if all fit."""


@runtime_checkable
class ExpectsNoise(Protocol):
    """A method that can tell from its plan how much noise its marginals will have."""

    def expected_noise(self, domain: "Domain", plan: "Plan", max_rows_per_unit: int) -> "tuple[ExpectedNoise, ...]":
        """The noise of each kind of marginal to be measured, lowest order first: a function of public facts alone."""


def expected_noise_of(
    synthesizer: Synthesizer, domain: "Domain", plan: "Plan", max_rows_per_unit: int
) -> "tuple[ExpectedNoise, ...]":
    """The noise that a method expects for this plan; empty if it measures no marginals or cannot tell in advance."""
    if not isinstance(synthesizer, ExpectsNoise):
        return ()
    return synthesizer.expected_noise(domain, plan, max_rows_per_unit)


def layers_of(synthesizer: Synthesizer) -> Iterator[Synthesizer]:
    """A method, the method that it wraps, and so on."""
    layer: Synthesizer | None = synthesizer
    while layer is not None:
        yield layer
        layer = layer.capabilities.inner


def takes_public(synthesizer: Synthesizer) -> bool:
    """Whether a method, and what it is put around, can start from a public table."""
    return synthesizer.capabilities.public is not PublicUse.NONE


def too_large_for(synthesizer: Synthesizer, domain: "Domain") -> tuple[str, ...]:
    """Columns that together have too many codes for a method, or for the method that it wraps; usually none."""
    limited = next((layer for layer in layers_of(synthesizer) if isinstance(layer, Limited)), None)
    return () if limited is None else limited.too_large(domain)


def spends_zcdp(synthesizer: Synthesizer) -> bool:
    """Whether a method, or the method that it wraps, spends a zCDP budget."""
    return any(layer.capabilities.zcdp for layer in layers_of(synthesizer))


def needs_rows(synthesizer: Synthesizer) -> bool:
    """Whether a method, or the method that it wraps, needs rows: counts are not enough."""
    return any(layer.capabilities.rows for layer in layers_of(synthesizer))


def check_trajectory(wrapper: str, inner: object, *, critics: bool = False) -> None:
    """Refuse, for a wrapper, a method that keeps no checkpoints, or none with critics."""
    if not isinstance(inner, Synthesizer):
        raise SettingError("inner", inner, "a method")
    able = inner.capabilities
    if not able.trajectory or (critics and not able.critics):
        what = "its critic" if critics else "checkpoints of its training"
        raise ConfigError(
            f"{wrapper} needs a method with {what}, such as dpgan or dpctgan; {name_of(inner)} has none.",
            setting="inner",
        )
