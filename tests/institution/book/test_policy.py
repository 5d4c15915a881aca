"""A policy in a book binds every run, a run's own policy can only be stricter, and approvals are records of a book."""

import contextlib
import hashlib
import itertools
import json
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

import understudy as us
from tests.builders import raises
from understudy.cli import run
from understudy.errors import BookError, BookExceeded, ConfigError
from understudy.institution.book import BudgetBook, Policy
from understudy.institution.book.book import account_name
from understudy.institution.book.certificate_checks import approval_notes
from understudy.institution.book.entries import History, Row, canonical, digest_of
from understudy.institution.book.proposal import ProposedRun
from understudy.institution.book.reservation import reserve_run
from understudy.privacy.accounting.events import ZCDP
from understudy.privacy.accounting.ledger import Guarantee, Query
from understudy.privacy.accounting.release_costs import Cost

GUARANTEE = Guarantee(1.0, 1e-6)
STRICT = Policy(largest_epsilon=0.5)
SECOND = Policy(second_person=True)


def new_book(folder: Path, policy: "Policy | None" = None) -> BudgetBook:
    return BudgetBook.create(folder / "people.book", epsilon=3, delta=1e-5, policy=policy)


def log_in(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The account of this process has this name."""
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name=name))


def tiny_run(epsilon: float = 1.0, method: str = "boost") -> ProposedRun:
    """A run that is planned at once."""
    plan = lambda guarantee: [Query("key", "what", ZCDP(guarantee.epsilon / 1000))]  # noqa: E731
    return ProposedRun(method, Guarantee(epsilon, 1e-6), plan, {})


def reserve(book: BudgetBook, policy: "Policy | None" = None, **changes: object) -> None:
    with reserve_run(book, policy, tiny_run(**changes)):  # type: ignore[arg-type]  # keywords of several types
        pass


# ------------------------------------------------------------------------------------------------- whom a policy binds


def test_the_policy_of_a_book_binds_runs_that_name_none(tmp_path: Path) -> None:
    book = new_book(tmp_path, STRICT)
    with raises(ConfigError, setting="largest_epsilon"):
        us.fit("absent.csv", "mst", GUARANTEE, schema={"columns": {"a": {"kind": "boolean"}}}, book=book)
    with raises(ConfigError, setting="largest_epsilon"):
        reserve(BudgetBook.open(book.path))
    assert book.num_entries == 1
    reserve(book, epsilon=0.4)
    assert book.to_json()["runs"][0]["policy"] == STRICT.to_dict()  # type: ignore[index]  # JSON, typed as objects


def test_a_run_can_only_be_stricter_than_its_book(tmp_path: Path) -> None:
    book = new_book(tmp_path, Policy(largest_epsilon=2, methods=("boost", "mst")))
    with raises(ConfigError, setting="largest_epsilon"):
        reserve(book, Policy(largest_epsilon=5), epsilon=3)
    with raises(ConfigError, setting="methods"):
        reserve(book, Policy(methods=("graph",)), epsilon=1)
    with raises(ConfigError, setting="methods"):
        reserve(book, Policy(methods=("mst", "aim")))
    reserve(book, Policy(methods=("boost", "aim")))


POLICIES = [
    Policy(largest_epsilon=epsilon, methods=methods, second_person=second, require_disclosure=disclosure)
    for epsilon, methods, second, disclosure in itertools.product(
        (None, 1.0, 2.0), (None, ("mst",), ("mst", "boost")), (False, True), (False, True)
    )
]


def is_allowed(policy: Policy, method: str, epsilon: float) -> bool:
    with contextlib.suppress(ConfigError):
        policy.check(method, Guarantee(epsilon, 1e-6))
        return True
    return False


def test_a_combined_policy_allows_what_both_allow() -> None:
    for one, other in itertools.product(POLICIES, POLICIES):
        both = one.combined(other)
        for method, epsilon in itertools.product(("mst", "boost"), (0.5, 1.5, 3.0)):
            assert is_allowed(both, method, epsilon) == all(is_allowed(each, method, epsilon) for each in (one, other))
        assert both.second_person == (one.second_person or other.second_person)
        assert both.require_disclosure == (one.require_disclosure or other.require_disclosure)
    assert POLICIES[0].combined(None) is POLICIES[0]


def test_a_policy_that_somebody_sets_in_the_meantime_counts(tmp_path: Path) -> None:
    """The run has read the book before, and reserves after."""
    stale = new_book(tmp_path)
    BudgetBook.open(stale.path).set_policy(STRICT)
    assert stale.policy is None
    with raises(ConfigError, setting="largest_epsilon"):
        reserve(stale)
    assert stale.reservations == ()


def test_policies_are_entries_and_earlier_ones_stay_visible(tmp_path: Path) -> None:
    book = new_book(tmp_path, STRICT)
    looser = Policy(largest_epsilon=2, methods=("mst",))
    book.set_policy(looser)
    found = BudgetBook.open(book.path)
    assert found.policy == looser
    assert [(each.number, each.policy) for each in found.policies] == [(1, STRICT.to_dict()), (2, looser.to_dict())]
    assert found.total == Cost()
    assert "policy: epsilon at most 2; methods mst" in repr(found)


def test_policies_read_back_as_they_were() -> None:
    for policy in POLICIES:
        assert Policy.from_dict(json.loads(canonical(policy.to_dict()))) == policy


def test_learners_graphs_and_boosting_can_be_listed() -> None:
    policy = Policy(methods=("logistic", "graph", "boost"))
    policy.check("graph", GUARANTEE)
    with raises(ConfigError, setting="methods"):
        policy.check(us.MST(), GUARANTEE)


# ------------------------------------------------------------------------------------------------------- second person


def test_another_policy_needs_a_second_person_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_in(monkeypatch, "ann")
    book, looser = new_book(tmp_path, SECOND), Policy(largest_epsilon=9)
    digest = book.policy_hash(looser)
    with pytest.raises(BookError, match=f"approves another policy.*{digest}"):
        book.set_policy(looser)
    book.approve(digest, "ann")
    with raises(BookError, reason="not approved"):
        book.set_policy(looser)
    book.approve(digest, "bob")
    book.set_policy(looser)
    assert book.policy == looser
    assert book.policies[-1].facts["approved_by"] == "bob"
    book.set_policy(SECOND)  # which the policy in force does not restrict
    with raises(BookError, reason="not approved"):  # used up
        book.set_policy(looser)


def test_an_entry_without_the_approval_that_it_needs_is_found(tmp_path: Path) -> None:
    """Also if its hash is right, as if other software had written it."""
    book = new_book(tmp_path, SECOND)
    cost = {"amount": 1, "delta": 0}
    common = {"number": 2, "time": "", "plan": "a" * 64}
    for content in (
        {**common, "kind": "reserve", "cost": cost, "total": cost},
        {**common, "kind": "reserve", "cost": cost, "total": cost, "approved_by": "bob"},
        {**common, "kind": "policy", "policy": {}, "total": {"amount": 0, "delta": 0}},
    ):
        history: History = BudgetBook.open(book.path)._history
        text = canonical(content)
        with raises(BookError, reason="edited"):
            history.add(Row(2, text, history.head, digest_of(history.head, text)))


def test_an_approval_records_the_account_and_is_no_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_in(monkeypatch, "ann")
    book = new_book(tmp_path, SECOND)
    plan = tiny_run().plan_hash(book)
    book.approve(plan, "B. Weber")
    reserve(book)
    (note,) = approval_notes(book)
    assert "by B. Weber was recorded from the account that used it (ann)" in note
    log_in(monkeypatch, "bob")
    book.approve(plan, "B. Weber")
    log_in(monkeypatch, "ann")
    reserve(book)
    assert [each.facts["approved_from"] for each in book.reservations] == ["ann", "bob"]
    assert len(list(approval_notes(book))) == 1


def test_a_run_never_costs_more_than_the_plan_that_was_approved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(monkeypatch, "ann")
    book, run_ = new_book(tmp_path, SECOND), tiny_run()
    book.approve(run_.plan_hash(book), "B. Weber")
    with reserve_run(book, None, run_) as reservation:
        assert reservation is not None
        reservation.cover(run_.queries, run_.guarantee)
        with pytest.raises(BookExceeded, match="more than the plan that a second person approved"):
            reservation.cover([*run_.queries, *run_.queries], run_.guarantee)


# -------------------------------------------------------------------------------------------------------- command line


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    log_in(monkeypatch, "ann")
    Path("people.toml").write_text("[table]\nrows = 100\n[columns.member]\nkind = 'boolean'\n")
    Path("second.toml").write_text("second_person = true\n")
    Path("free.toml").write_text("")
    return tmp_path


PLAN = ["plan", "people.toml", "--method", "independent", "--epsilon", "1", "--book", "people.book"]


def test_a_second_person_sees_the_plan_that_is_approved(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["book", "create", "people.book", "--epsilon", "3", "--delta", "1e-5", "--policy", "second.toml"]) == 0
    assert run([*PLAN, "--json", "-"]) == 0
    content = json.loads(capsys.readouterr().out)["book"]
    plan = content["plan_hash"]
    assert hashlib.sha256(canonical(content["hash_covers"]).encode()).hexdigest() == plan
    assert content["hash_covers"]["method"] == "independent"
    assert run([*PLAN, "--hash", plan]) == 0
    assert f"Plan hash: {plan}" in capsys.readouterr().out
    assert run([*PLAN, "--set", "smoothing=0.7", "--hash", plan]) == 2
    assert f"not {plan}" in capsys.readouterr().err
    assert run(["book", "approve", "people.book", plan, "--by", "ann"]) == 0
    assert "does not allow a run by ann" in capsys.readouterr().err


def test_the_account_does_not_follow_from_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    log_in(monkeypatch, "ann")
    monkeypatch.setenv("LOGNAME", "bob")
    assert account_name() == "ann"


def test_policies_from_the_command_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new_book(place)
    assert run(["book", "policy", "people.book"]) == 0
    assert "has no policy" in capsys.readouterr().out
    assert run(["book", "policy", "people.book", "--set", "second.toml"]) == 0
    assert run(["book", "policy", "people.book"]) == 0
    assert "set by ann: second person" in capsys.readouterr().out
    assert run(["book", "policy", "people.book", "--set", "free.toml"]) == 2
    assert "second person approves another policy" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["book", "create", "a.book", "--epsilon", "-1", "--delta", "1e-5"], "must be a positive number, such as 3"),
        (["book", "create", "a.book", "--epsilon", "1", "--delta", "0"], "must be a positive number, such as 1e-5"),
        (["book", "create", "a.book", "--epsilon", "1", "--delta", "1e-5", "--policy", "no.toml"], "cannot be read"),
        (["book", "create", "a.book", "--epsilon", "1", "--delta", "1e-5", "--protect", "row"], "must be edge or node"),
        (["book", "policy", "people.book", "--set", "people.toml"], "Policy has no setting 'table'"),
        ([*PLAN, "--rows", "7"], "uses the declared number of rows"),
        ([*PLAN[:-2], "--hash", "a" * 64], "needs a budget book"),
    ],
)
def test_bad_input_is_one_line(
    place: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    new_book(place)
    before = sorted(path.name for path in place.iterdir())
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert len(captured.err.splitlines()) == 1
    assert sorted(path.name for path in place.iterdir()) == before


def test_a_policy_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be stricter in a way that this version does not know."""
    book = new_book(tmp_path, STRICT)
    book.set_policy(Policy())
    monkeypatch.setattr(type(book._history.policies[-1]), "policy", property(lambda self: {"later_rule": 1}))
    with raises(BookError, reason="policy"):
        reserve(book)
