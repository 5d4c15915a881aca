"""The runs of an audit as one value, and as a JSON file."""

import dataclasses
import datetime
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from understudy._version import __version__
from understudy.audit.observation import PARTS, Observation
from understudy.errors import ConfigError
from understudy.run.atomic import write_file
from understudy.synthesizers import read_method
from understudy.synthesizers.registry import REVISIONS, name_of

FORMAT, FORMAT_VERSION = "understudy-audit-runs", 1


@dataclasses.dataclass(frozen=True)
class Target:
    """What is audited: a method at a guarantee, against one kind of canary."""

    method: str
    epsilon: float
    delta: float
    canary: str


@dataclasses.dataclass(frozen=True)
class Claim:
    """What the certificate of a run says: the cost, and the accountant that computed it."""

    epsilon: float
    delta: float
    accountant: str


@dataclasses.dataclass(frozen=True)
class Runs:
    """Observations by the number of the run; odd numbers had the canary."""

    target: Target
    seeded: bool
    numbers: tuple[int, ...] = ()
    observations: tuple[Observation, ...] = ()
    claim: Claim | None = None
    """The largest cost that a certificate of these runs states."""
    version: str = __version__
    revision: int = 0
    """Of the method: see `REVISIONS`. 0: that of this version."""
    date: str = ""
    """The day of the last run."""
    seed: int | None = None
    """None: the noise is secure, or the file is older than this field. The tables are made up, so it is no secret."""

    def __post_init__(self) -> None:
        if not self.revision:
            object.__setattr__(self, "revision", revision_of(self.target.method))
        if not self.date:
            object.__setattr__(self, "date", datetime.date.today().isoformat())

    @property
    def has_canary(self) -> np.ndarray:
        """Whether each run had the canary."""
        return np.asarray(np.array(self.numbers, int) % 2 == 1)

    @property
    def num_failed(self) -> int:
        """Runs that failed after their first charge."""
        return sum(not each.sample for each in self.observations)

    def part(self, name: str) -> np.ndarray:
        """One part of all observations, a row for each run."""
        scores = [getattr(each, name) for each in self.observations]
        length = max(map(len, scores), default=0)
        return np.array([(*each, *[0] * (length - len(each))) for each in scores], float)

    def with_run(self, number: int, observation: Observation, claim: Claim | None) -> "Runs":
        """These runs and one more."""
        return dataclasses.replace(
            self,
            numbers=(*self.numbers, number),
            observations=(*self.observations, observation),
            claim=_larger(self.claim, claim),
        )

    def merge(self, other: "Runs") -> "Runs":
        """The runs of two parts of one audit, in the order of their numbers."""
        if self._audit != other._audit:
            raise ConfigError(
                f"Runs of {self.target} and of {other.target} belong to different audits and cannot be merged.",
                setting="method",
            )
        by_number = dict(zip(self.numbers, self.observations, strict=True))
        if set(by_number) & set(other.numbers):
            raise ConfigError(
                f"Two files have the same runs of {self.target.method}. Name each file once.", setting="runs"
            )
        by_number |= dict(zip(other.numbers, other.observations, strict=True))
        numbers = tuple(sorted(by_number))
        return dataclasses.replace(
            self,
            numbers=numbers,
            observations=tuple(by_number[number] for number in numbers),
            claim=_larger(self.claim, other.claim),
            date=max(self.date, other.date),
        )

    @property
    def _audit(self) -> tuple[object, ...]:
        return self.target, self.seeded, self.seed, self.version, self.revision

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes a JSON file, completely or not at all."""
        parts = {name: [getattr(each, name) for each in self.observations] for name in PARTS}
        content = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "understudy_version": self.version,
            "target": dataclasses.asdict(self.target),
            "revision": self.revision,
            "seeded": self.seeded,
            "seed": self.seed,
            "date": self.date,
            "claim": None if self.claim is None else dataclasses.asdict(self.claim),
            "numbers": self.numbers,
            **parts,
        }
        write_file(path, json.dumps(content, separators=(",", ":"), allow_nan=False).encode(), force=True)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Runs":
        """The runs in a file written by `write`."""
        try:
            content = json.loads(Path(path).read_bytes())
            if content["format"] != FORMAT or content["format_version"] != FORMAT_VERSION:
                raise ValueError
            parts = [[tuple(each) for each in content[name]] for name in PARTS]
            return cls(
                target=Target(**content["target"]),
                seeded=content["seeded"],
                numbers=tuple(content["numbers"]),
                observations=tuple(Observation(*each) for each in zip(*parts, strict=True)),
                claim=None if content["claim"] is None else Claim(**content["claim"]),
                version=content["understudy_version"],
                revision=content["revision"],
                date=content["date"],
                seed=content.get("seed"),
            )
        except OSError as error:
            raise ConfigError(f"{path} cannot be read ({error.strerror}). Name a file of audit runs.") from error
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ConfigError(
                f"{path} is not a file of runs of an audit. Name one that 'understudy audit --save' wrote."
            ) from error


def merge_files(paths: Sequence[str | os.PathLike[str]]) -> list[Runs]:
    """All runs in these files, in their order. Files with parts of one audit are merged."""
    merged: dict[tuple[object, ...], Runs] = {}
    for path in paths:
        runs = Runs.read(path)
        merged[runs._audit] = merged[runs._audit].merge(runs) if runs._audit in merged else runs
    return list(merged.values())


def revision_of(method: str) -> int:
    """The revision of the outermost method of an expression."""
    return REVISIONS.get(name_of(read_method(method)), 1)


def _larger(first: Claim | None, second: Claim | None) -> Claim | None:
    return max((claim for claim in (first, second) if claim is not None), key=lambda claim: claim.epsilon, default=None)
