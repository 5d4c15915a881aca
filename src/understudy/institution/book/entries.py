"""Entries of a budget book, each of which depends on all before it, and what they amount to.

The content of an entry is canonical JSON, and its hash is the SHA-256 of the hash before it and this content. Every
entry repeats the total after it. `History` replays the entries and refuses the first that does not follow from those
before it: whoever edits an entry must rewrite all that follow. The hashes have no secret in them, so a book that was
rewritten from some entry on is consistent; certificates, which carry the hash of an entry, show that.
"""

import copy
import dataclasses
import enum
import hashlib
import json
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

from understudy.errors import BookError, ConfigError
from understudy.privacy.accounting.release_costs import Cost, ReleaseFilter

NO_HASH = "0" * 64
"""Stands before the first entry."""


class Kind(enum.Enum):
    """What an entry does."""

    CREATE = "create"
    POLICY = "policy"
    APPROVE = "approve"
    RESERVE = "reserve"
    EXTEND = "extend"
    SETTLE = "settle"
    WITHDRAW = "withdraw"


class Outcome(enum.Enum):
    """Where a reservation stands."""

    OPEN = "open"
    RELEASED = "released"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"


class Row(NamedTuple):
    """An entry as it is stored."""

    number: int
    content: str
    previous: str
    digest: str


class Approval(NamedTuple):
    """Who approved something, and from which account: both are records, not proof of who it was."""

    by: str
    account: str | None

    @classmethod
    def from_json(cls, by: object, account: object) -> "Approval":
        _require(isinstance(by, str) and isinstance(account, str | None))
        return cls(by, account)  # type: ignore[arg-type]  # as required above

    def to_json(self) -> dict[str, object]:
        """As facts of what was approved."""
        return {"approved_by": self.by, "approved_from": self.account}


class PolicyEntry(NamedTuple):
    """A policy that was in force from this entry on."""

    number: int
    facts: Mapping[str, object]
    """The content of the entry: the policy, who set it and when."""

    @property
    def policy(self) -> Mapping[str, object]:
        policy = self.facts["policy"]
        assert isinstance(policy, Mapping)
        return policy


@dataclasses.dataclass(frozen=True)
class Reserved:
    """A reservation, and what became of it."""

    number: int
    digest: str
    cost: Cost
    """What was reserved, with all extensions."""
    counted: Cost
    """What counts against the limit: the reserved cost, until the run is settled."""
    outcome: Outcome
    facts: Mapping[str, object]
    """The content of the entry: plan, method, epsilon, delta, who and when."""
    last: int
    """The last entry about it."""
    certificate: str | None = None
    """The digest of the certificate that it was settled with."""
    failures: tuple[str | None, ...] = ()
    """The digests of the records of its failed attempts: a run that failed may be resumed."""


def canonical(content: object) -> str:
    """JSON that is always the same for the same content."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest_of(previous: str, content: str) -> str:
    """The hash of an entry with this content after an entry with the hash `previous`."""
    return hashlib.sha256((previous + content).encode()).hexdigest()


def cost_to_json(cost: Cost) -> dict[str, int]:
    return dataclasses.asdict(cost)


def _cost_from_json(content: object) -> Cost:
    _require(isinstance(content, dict) and set(content) == {"amount", "delta"})
    assert isinstance(content, dict)
    _require(all(type(value) is int and value >= 0 for value in content.values()))
    return Cost(**content)


def _require(is_consistent: bool) -> None:
    if not is_consistent:
        raise ValueError("inconsistent")


class History:
    """What the entries up to one of them amount to. `add` takes the next one, and refuses one that does not follow."""

    def __init__(self) -> None:
        self.number, self.head, self.total = 0, NO_HASH, Cost()
        self.reservations: dict[int, Reserved] = {}
        self.approvals: dict[str, list[Approval]] = {}
        """Who approved each plan, once for every run of it that is still allowed."""
        self.policies: list[PolicyEntry] = []
        """Every policy of the book; the last one holds."""
        self._terms: ReleaseFilter | None = None
        self.limit = Cost()
        self.dataset = ""
        self.unit: str | None = None
        self.protect: str | None = None

    @property
    def terms(self) -> ReleaseFilter:
        assert self._terms is not None
        return self._terms

    def copy(self) -> "History":
        """A copy with the same entries: what is added to one is not in the other."""
        other = copy.copy(self)
        other.reservations, other.policies = dict(self.reservations), list(self.policies)
        other.approvals = {plan: list(given) for plan, given in self.approvals.items()}
        return other

    def next_row(self, kind: Kind, total: Cost, facts: Mapping[str, object]) -> Row:
        """The next entry, with the total after it.

        A random number makes every entry unique: the same run, made again from an older copy of the book in the same
        second, has a different hash.
        """
        number, nonce = self.number + 1, secrets.token_hex(16)
        fixed = {"number": number, "kind": kind.value, "total": cost_to_json(total), "nonce": nonce}
        content = canonical({**facts, **fixed})
        return Row(number, content, self.head, digest_of(self.head, content))

    def add(self, row: Row) -> None:
        """Adds the next entry, or refuses it: then this history must not be used any more.

        Formal guarantee: an entry whose number, content or hash was changed is refused, unless all later entries were
        written again as well; so is one that settles what is not reserved, adds up wrongly or passes the limit.
        """
        try:
            self._add(row)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, ConfigError):
            raise BookError(
                f"entry {self.number + 1} was edited, or is not an entry of a budget book", reason="edited"
            ) from None

    def _add(self, row: Row) -> None:
        _require(type(row.number) is int and row.number == self.number + 1)
        _require(row.previous == self.head and row.digest == digest_of(row.previous, row.content))
        content = json.loads(row.content)
        _require(canonical(content) == row.content and content["number"] == row.number)
        kind, total = Kind(content["kind"]), _cost_from_json(content["total"])
        _require((kind is Kind.CREATE) == (row.number == 1))
        match kind:
            case Kind.CREATE:
                self._create(content)
            case Kind.APPROVE:
                self._approve(str(content["plan"]), Approval.from_json(content["by"], content.get("account")))
            case Kind.POLICY:
                _require(isinstance(content["policy"], dict))
                self._require_approval(content)
                self._set_policy(row.number, content)
            case _:
                self._note(kind, self._changed(kind, row, content))
        _require(self.total == total and total.fits(self.limit))
        self.number, self.head = row.number, row.digest

    def _create(self, content: Mapping[str, Any]) -> None:
        self._terms, self.limit = _read_terms(content)
        self.dataset, self.unit, self.protect = content["dataset"], content["unit"], content.get("protect")
        if "policy" in content:
            self._set_policy(1, content)

    def _set_policy(self, number: int, content: Mapping[str, Any]) -> None:
        self._use_approval(content)
        self.policies.append(PolicyEntry(number, content))

    def _approve(self, plan: str, approval: Approval) -> None:
        self.approvals.setdefault(plan, []).append(approval)

    def _note(self, kind: Kind, reserved: Reserved) -> None:
        """Takes a reservation, which uses up its approval; one that is withdrawn gives it back."""
        before = self.reservations.get(reserved.number)
        self.total = self.total + reserved.counted - (Cost() if before is None else before.counted)
        self.reservations[reserved.number] = reserved
        if kind is Kind.RESERVE:
            self._use_approval(reserved.facts)
        elif kind is Kind.WITHDRAW and (approval := approval_in(reserved.facts)) is not None:
            self._approve(str(reserved.facts["plan"]), approval)

    @property
    def needs_approval(self) -> bool:
        """Whether the policy in force requires a second person, for runs and for another policy."""
        return bool(self.policies and self.policies[-1].policy.get("second_person"))

    def _require_approval(self, content: Mapping[str, Any]) -> None:
        """Refuses an entry without the approval that it needs, or that claims one that there is not."""
        _require(isinstance(content["plan"], str))
        approval = approval_in(content)
        if approval is None:
            _require(not self.needs_approval)
        else:
            _require(approval in self.approvals.get(content["plan"], ()))

    def _use_approval(self, content: Mapping[str, Any]) -> None:
        if (approval := approval_in(content)) is not None:
            self.approvals[str(content["plan"])].remove(approval)

    def _changed(self, kind: Kind, row: Row, content: Mapping[str, Any]) -> Reserved:
        """The reservation after this entry."""
        if kind is Kind.RESERVE:
            cost = _cost_from_json(content["cost"])
            _require(cost.amount > 0)
            self._require_approval(content)
            return Reserved(row.number, row.digest, cost, cost, Outcome.OPEN, content, row.number)
        reserved = self.reservations[content["reservation"]]
        before = dataclasses.replace(reserved, last=row.number)
        _require(before.outcome in (Outcome.OPEN, Outcome.FAILED))
        if kind is Kind.WITHDRAW:
            _require(before.outcome is Outcome.OPEN and reserved.last == reserved.number)  # and was never continued
            return dataclasses.replace(before, outcome=Outcome.WITHDRAWN, counted=Cost())
        cost = _cost_from_json(content["cost"])
        if kind is Kind.EXTEND:
            _require(before.cost.fits(cost))
            return dataclasses.replace(before, cost=cost, counted=cost, outcome=Outcome.OPEN, certificate=None)
        outcome, certificate = Outcome(content["outcome"]), content["certificate"]
        _require(cost.amount > 0 and cost.fits(before.cost) and outcome in (Outcome.RELEASED, Outcome.FAILED))
        failures = (*before.failures, *[certificate] * (outcome is Outcome.FAILED))
        return dataclasses.replace(before, counted=cost, outcome=outcome, certificate=certificate, failures=failures)


def approval_in(facts: Mapping[str, object]) -> Approval | None:
    """The approval that an entry has used up; None: it had none."""
    by = facts.get("approved_by")
    return None if by is None else Approval.from_json(by, facts.get("approved_from"))


def _read_terms(content: Mapping[str, Any]) -> tuple[ReleaseFilter, Cost]:
    """The limit of a book, computed again: the last digit of a logarithm depends on the machine."""
    terms = ReleaseFilter.create(content["epsilon"], content["delta"], content["composition"], content["order"])
    limit = _cost_from_json(content["limit"])
    _require(abs(limit.amount - terms.limit.amount) <= 2 and limit.delta == terms.limit.delta)
    _require(isinstance(content["dataset"], str) and isinstance(content["unit"], str | None))
    _require(content.get("protect") in (None, "edge", "node") and isinstance(content.get("policy", {}), dict))
    _require(isinstance(content["time"], str) and approval_in(content) is None)  # there was nothing to approve yet
    return terms, limit
