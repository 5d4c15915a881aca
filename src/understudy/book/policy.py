"""What an institution requires of every run that spends from a budget book: a small TOML file."""

import dataclasses
import math
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

from understudy.errors import ConfigError, did_you_mean
from understudy.privacy.ledger import Guarantee
from understudy.synthesizers import AUTO, SYNTHESIZERS, Synthesizer, name_of, read_method


@dataclasses.dataclass(frozen=True, kw_only=True)
class Policy:
    """Rules that a run must meet before its cost is reserved. They rest on public facts alone.

    >>> Policy(largest_epsilon=1.0, methods=("mst", "aim")).methods
    ('mst', 'aim')
    """

    largest_epsilon: float | None = None
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
        epsilon = self.largest_epsilon
        if epsilon is not None and (
            isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 < epsilon < math.inf
        ):
            raise ConfigError(f"largest_epsilon must be a positive number, found {epsilon!r}.")
        for name in ("require_schema", "require_disclosure", "second_person"):
            if not isinstance(value := getattr(self, name), bool):
                raise ConfigError(f"{name} must be true or false, found {value!r}.")
        if not self.require_schema:
            raise ConfigError("require_schema = false is not possible: a run with a budget book needs a schema.")
        if self.methods is None:
            return
        if not isinstance(self.methods, tuple | list) or not all(isinstance(name, str) for name in self.methods):
            raise ConfigError('methods must be a list of names, such as ["mst", "aim"].')
        for name in self.methods:
            if name not in (known := (AUTO, *SYNTHESIZERS)):
                raise ConfigError(f"methods lists {name!r}, which is not a method.{did_you_mean(name, known)}")
        resolved = tuple(name_of(read_method(name)) if name == AUTO else name for name in self.methods)
        object.__setattr__(self, "methods", resolved)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Policy":
        """From a TOML file with the fields as keys."""
        try:
            content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}. Name a policy file.") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"{path} is not valid TOML ({' '.join(str(error).split())}).") from None
        try:
            return cls.from_dict(content)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    @classmethod
    def from_dict(cls, content: Mapping[str, object]) -> "Policy":
        """From the keys of a policy file; unknown ones are refused."""
        known = [field.name for field in dataclasses.fields(cls)]
        for key in content:
            if key not in known:
                raise ConfigError(f"unknown key {key!r}.{did_you_mean(key, known)} The keys are {', '.join(known)}.")
        methods = content.get("methods")
        listed = {"methods": tuple(methods)} if isinstance(methods, list) else {}
        return cls(**{**content, **listed})  # type: ignore[arg-type]

    def check(self, method: Synthesizer, guarantee: Guarantee) -> None:
        """Refuses a run that the policy does not allow; approvals are checked when its cost is reserved."""
        if self.largest_epsilon is not None and guarantee.epsilon > self.largest_epsilon:
            raise ConfigError(
                f"The policy allows epsilon {self.largest_epsilon:g} at most, found {guarantee.epsilon:g}. Lower it."
            )
        if self.methods is None:
            return
        allowed = ", ".join(self.methods)
        for each in _methods_in(method):
            name, here = name_of(each), f"{type(each).__module__}:{type(each).__name__}"
            if name not in self.methods:
                raise ConfigError(f"The policy allows the methods {allowed}; found {name}.")
            if SYNTHESIZERS.get(name) != here:  # a class of its own with the name of a method
                raise ConfigError(f"The policy allows the methods {allowed} of Understudy; found {here}.")


def _methods_in(method: Synthesizer) -> list[Synthesizer]:
    """The method and those inside it, outermost first."""
    settings: list[object] = []
    if dataclasses.is_dataclass(method):
        settings = [getattr(method, field.name) for field in dataclasses.fields(method)]
    return [method, *(one for each in settings if isinstance(each, Synthesizer) for one in _methods_in(each))]
