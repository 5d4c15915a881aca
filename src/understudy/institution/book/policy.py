"""What an institution requires of every run that spends from a budget book: a small TOML file."""

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from understudy.errors import ConfigError, did_you_mean
from understudy.privacy.accounting.ledger import Guarantee
from understudy.schema.toml import read_settings
from understudy.synthesizers import AUTO, SYNTHESIZERS, Synthesizer, name_of, read_method
from understudy.synthesizers.registry import LEARNERS
from understudy.synthesizers.settings import Positive, build, check_settings

if TYPE_CHECKING:
    from understudy.learners.methods import Learner

Method: TypeAlias = "Synthesizer | Learner | str"
"""What a run fits: a method, a learner, or one of `OTHERS`."""
CLASSES = {**LEARNERS, **SYNTHESIZERS}
OTHERS = ("graph", "boost")
"""Runs without a method or a learner, by the names in their certificates."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Policy:
    """Rules that a run must meet before its cost is reserved. They rest on public facts alone.

    >>> Policy(largest_epsilon=1.0, methods=("mst", "aim")).methods
    ('mst', 'aim')
    """

    largest_epsilon: Positive | None = None
    """No single run may have a larger epsilon."""
    methods: tuple[str, ...] | None = None
    """The methods that may be used; a method inside another one must be listed too."""
    require_schema: bool = True
    """A schema must be declared. Every run with a budget book needs one, so this cannot be turned off."""
    require_disclosure: bool = False
    """`understudy disclose` must be run on every release: `book verify --certificates` names those without a report.
    What the report says decides nothing."""
    second_person: bool = False
    """Somebody else must have approved the plan: `understudy book approve PLAN_HASH --by NAME`."""

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.require_schema:
            raise ConfigError(
                "require_schema = false is not possible: a run with a budget book needs a schema.",
                setting="require_schema",
            )
        if self.methods is None:
            return
        for name in self.methods:
            if name not in (known := (AUTO, *SYNTHESIZERS, *LEARNERS, *OTHERS)):
                raise ConfigError(
                    f"methods lists {name!r}, which is not a method.{did_you_mean(name, known)}", setting="methods"
                )
        resolved = tuple(name_of(read_method(name)) if name == AUTO else name for name in self.methods)
        object.__setattr__(self, "methods", resolved)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Policy":
        """From a TOML file with the fields as keys."""
        content = read_settings(path)
        try:
            return cls.from_dict(content)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}", setting=error.setting) from None

    @classmethod
    def from_dict(cls, content: Mapping[str, object]) -> "Policy":
        """From the keys of a policy file; unknown ones are refused."""
        return build(cls, (), content)

    def to_dict(self) -> dict[str, object]:
        """The keys of a policy file; `from_dict` reads them."""
        return {**dataclasses.asdict(self), "methods": None if self.methods is None else list(self.methods)}

    def combined(self, other: "Policy | None") -> "Policy":
        """The policy of a run that must meet both.

        >>> Policy(largest_epsilon=2, second_person=True).combined(Policy(largest_epsilon=1)).largest_epsilon
        1
        """
        if other is None:
            return self
        epsilons = [each.largest_epsilon for each in (self, other) if each.largest_epsilon is not None]
        lists = [each.methods for each in (self, other) if each.methods is not None]
        return Policy(
            largest_epsilon=min(epsilons, default=None),
            methods=tuple(name for name in lists[0] if name in lists[-1]) if lists else None,
            require_disclosure=self.require_disclosure or other.require_disclosure,
            second_person=self.second_person or other.second_person,
        )

    def describe(self) -> str:
        """The rules in one line."""
        rules = [
            "" if self.largest_epsilon is None else f"epsilon at most {self.largest_epsilon:g}",
            "" if self.methods is None else f"methods {', '.join(self.methods) or 'none'}",
            "second person" * self.second_person,
            "disclosure report" * self.require_disclosure,
        ]
        return "; ".join(filter(None, rules)) or "none"

    def check(self, method: Method, guarantee: Guarantee) -> None:
        """Refuses a run that the policy does not allow; approvals are checked when its cost is reserved."""
        if self.largest_epsilon is not None and guarantee.epsilon > self.largest_epsilon:
            raise ConfigError(
                f"The policy allows epsilon {self.largest_epsilon:g} at most, found {guarantee.epsilon:g}. Lower it.",
                setting="largest_epsilon",
            )
        if self.methods is None:
            return
        allowed = ", ".join(self.methods) or "none"
        for each in _methods_in(method):
            name = each if isinstance(each, str) else name_of(each)
            if name not in self.methods:
                raise ConfigError(f"The policy allows the methods {allowed}; found {name}.", setting="methods")
            here = f"{type(each).__module__}:{type(each).__name__}"
            if not isinstance(each, str) and CLASSES[name] != here:  # a class of its own with the name of a method
                raise ConfigError(
                    f"The policy allows the methods {allowed} of Understudy; found {here}.", setting="methods"
                )


def as_policy(policy: "Policy | str | os.PathLike[str] | None") -> Policy | None:
    """A policy, given as one or as the path of its file."""
    return policy if isinstance(policy, Policy | None) else Policy.read(policy)


def _methods_in(method: Method) -> list[Method]:
    """The method and the methods inside it, outermost first."""
    settings: list[object] = []
    if dataclasses.is_dataclass(method):
        settings = [getattr(method, field.name) for field in dataclasses.fields(method)]
    return [method, *(one for each in settings if isinstance(each, Synthesizer) for one in _methods_in(each))]
