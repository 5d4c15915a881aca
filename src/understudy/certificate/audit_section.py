"""What an audit found, and the audits recorded in the package.

An audit is a property of a version of the software, not of anyone's data. Those in `recorded.json` were made with the
commands that they state; `understudy audit --table` shows them, and certificates may refer to them.
"""

import dataclasses
import functools
import importlib.resources
import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from understudy._version import __version__
from understudy.synthesizers.registry import AUTO, DEFAULT, REVISIONS

FORMAT, FORMAT_VERSION = "understudy-audits", 1
LIMITS = (
    "A bound above the claim refutes it. A bound below it proves nothing: a better attack, canary or table may exist."
)
"""What an audit cannot show. Every output states it."""

_SETTING = re.compile(r"(, )?\w+=(\[[^\]]*\]|[^,()]*(\([^()]*\))?)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Audit:
    """What an attack showed about a method, and what the method claims."""

    method: str
    """The expression that was audited."""
    revision: int
    version: str
    """Of the package."""
    date: str
    """The day of the last run."""
    canary: str
    canary_description: str
    threat: str
    """`white`: the attack saw the release folder. `black`: it saw a synthetic table."""
    target_epsilon: float
    """The epsilon given to the runs."""
    claimed_epsilon: float
    """The largest cost that a certificate of these runs states."""
    claimed_delta: float
    accountant: str
    claimed_mu: float
    """Of the Gaussian mechanism with the claimed epsilon and delta."""
    num_runs: int
    num_failed: int
    """Runs that failed after their first charge: nothing was released, which the attack also sees."""
    seeded: bool
    score: str
    """The score of the attack, chosen on runs that the bounds were not computed from."""
    num_scores: int
    """Runs that the bounds were computed from."""
    auc: float
    """The area under the ROC curve of the attack on those runs: an estimate, not a bound."""
    epsilon: float
    """The lower bound at the claimed delta. It holds with `confidence` by itself."""
    mu: float
    """The lower bound on mu, from the whole trade-off curve. It holds with `confidence` by itself."""
    epsilon_jointly: float
    """The same bound as `epsilon`, but these bounds of all audits made together hold jointly with `confidence`."""
    attainable_epsilon: float
    """What `epsilon_jointly` would be for a perfect attack: with few runs no bound can be large."""
    confidence: float
    num_audits: int
    """How many audits were made together."""
    seed: int | None = None
    """None: the noise was secure. A seeded audit can be repeated exactly."""

    @property
    def refutes_claim(self) -> bool:
        """Whether the claim is false, at the joint confidence: with many audits, some single bounds fail by chance."""
        return self.epsilon_jointly > self.claimed_epsilon

    @property
    def label(self) -> str:
        """The method without its settings."""
        return _SETTING.sub("", self.method).replace("()", "")

    @property
    def sentence(self) -> str:
        """The result in one sentence or two."""
        found = (
            f"{self.label} claims epsilon {self.claimed_epsilon:.4g} at delta {self.claimed_delta:g}. {self._attack} "
            f"shows an epsilon of at least {round_down(self.epsilon)}, and on the scale of Gaussian noise a mu of "
            f"at least {round_down(self.mu)}, each with {self.confidence:.0%} confidence"
        )
        if self.refutes_claim:
            return f"{found}: THE CLAIM IS FALSE."
        most = f"a perfect attack on as many runs would show an epsilon of {round_down(self.attainable_epsilon)}"
        if self.attainable_epsilon <= self.claimed_epsilon:
            return f"{found}. These runs could not refute the claim: {most}. Make more runs."
        return f"{found}. The claim is not refuted; {most}."

    @property
    def joint_sentence(self) -> str:
        """The result among all audits that were made together, from which a reader may pick any."""
        return (
            f"This version of {self.label}, with small settings, claims epsilon {self.claimed_epsilon:.4g} at delta "
            f"{self.claimed_delta:g} on a made-up table. {self._attack} shows an epsilon of at least "
            f"{round_down(self.epsilon_jointly)}, with {self.confidence:.0%} confidence jointly for all "
            f"{self.num_audits} recorded audits; a perfect attack on as many runs would show "
            f"{round_down(self.attainable_epsilon)}."
        )

    @property
    def _attack(self) -> str:
        seen = "the release folder" if self.threat == "white" else "a synthetic table"
        return f"In {self.num_runs:,} runs, half of them with {self.canary_description}, an attack that sees {seen}"

    @property
    def command(self) -> str:
        """The command that repeats such an audit: with the same noise if it was seeded, else with new secure noise."""
        options = {
            "--method": self.method,
            "--epsilon": f"{self.target_epsilon:g}",
            "--delta": f"{self.claimed_delta:g}",
            "--canary": self.canary,
            "--threat": self.threat,
            "--runs": str(self.num_runs),
        } | ({} if self.seed is None else {"--seed": str(self.seed)})
        return shlex.join(["understudy", "audit", *(word for option in options.items() for word in option)])

    def to_dict(self) -> dict[str, object]:
        """All fields, and what is derived from them for readers, as JSON."""
        derived = {name: getattr(self, name) for name in ("refutes_claim", "sentence", "command")}
        return {**dataclasses.asdict(self), **derived}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Audit":
        """The audit that `to_dict` described."""
        given = {"seed": None, **content}
        return cls(**{field.name: given[field.name] for field in dataclasses.fields(cls)})


def round_down(bound: float) -> str:
    """A lower bound with two decimals."""
    return f"{math.floor(100 * bound) / 100:.2f}"


def audits_to_json(audits: Sequence[Audit]) -> dict[str, object]:
    """Audits that were made together, as `--json` writes them and `recorded.json` holds them."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "note": f"A property of the software, not of any data. {LIMITS}",
        "audits": [each.to_dict() for each in audits],
    }


@functools.cache
def recorded_audits() -> tuple[Audit, ...]:
    """All audits recorded in the package."""
    source = importlib.resources.files("understudy.certificate").joinpath("recorded_audits.json")
    return tuple(map(Audit.from_dict, json.loads(source.read_text(encoding="utf-8"))["audits"]))


def recorded_audit(expression: str, among: Sequence[Audit] | None = None) -> Audit | None:
    """The recorded audit of a method with the largest joint bound; None if this version of it was not audited.

    Only a joint bound still holds after the choice of the largest. The method is the outermost of the expression. It
    was audited with settings of its own, which the audit names.
    `among` replaces the audits that come with the package.
    """
    return max(audits_of(expression, among), key=lambda audit: (audit.epsilon_jointly, audit.auc), default=None)


def audits_of(expression: str, among: Sequence[Audit] | None = None) -> list[Audit]:
    """All recorded audits of this version of a method: the outermost of the expression."""
    name = expression.partition("(")[0].strip()
    name = DEFAULT if name == AUTO else name
    return [each for each in (recorded_audits() if among is None else among) if _is_current(each, name)]


def _is_current(audit: Audit, name: str) -> bool:
    known = (audit.method.partition("(")[0], audit.version, audit.revision)
    return known == (name, __version__, REVISIONS.get(name, 1))
