"""A run reserves its cost before it reads, charges nothing beyond it, and settles whatever becomes of it."""

import dataclasses
import datetime
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Never

import pyarrow as pa
import pyarrow.csv
import pytest

import understudy as us
from tests.builders import Killed, kill_at, raises
from tests.institution.book.test_policy import log_in
from understudy import certificate
from understudy.certificate import facts as certificate_facts
from understudy.cli import run
from understudy.errors import BookError, BudgetExceeded, ConfigError, SchemaError, TrainingError
from understudy.institution.book import BudgetBook, Policy
from understudy.institution.book.certificate_checks import verify_certificates
from understudy.institution.book.entries import Outcome
from understudy.institution.book.reservation import (
    ProposedRun,
    Reservation,
    certificate_digest,
    largest_epsilon,
    propose_run,
)
from understudy.models import Model
from understudy.privacy.accounting.events import ZCDP
from understudy.privacy.accounting.ledger import Budget, Ledger, Query
from understudy.privacy.accounting.release_costs import Cost
from understudy.privacy.noise.source import SecureNoise
from understudy.run.failure import SpentError
from understudy.schema import as_schema
from understudy.synthesizers.independent import Independent
from understudy.synthesizers.mst import MST
from understudy.synthesizers.run import Run

TABLE = pa.table({"member": ["yes", "no"] * 50, "sex": ["f", "f", "m", "m"] * 25})
SCHEMA = {
    "table": {"rows": 100},
    "columns": {
        name: {"kind": "categorical", "categories": list(two)}
        for name, two in {"member": ("no", "yes"), "sex": ("f", "m")}.items()
    },
}
GUARANTEE = us.Guarantee(1.0, 1e-6)


@pytest.fixture
def book(tmp_path: Path) -> BudgetBook:
    return BudgetBook.create(tmp_path / "people.book", epsilon=3, delta=1e-5)


def fit(book: "BudgetBook | Path", method: str = "independent", epsilon: float = 1.0, **options: object) -> us.Release:
    given: dict[str, Any] = {"table": TABLE, "schema": SCHEMA, **options}
    return us.fit(given.pop("table"), method, epsilon=epsilon, book=book, **given)


def outcomes(book: BudgetBook) -> list[Outcome]:
    return [each.outcome for each in BudgetBook.open(book.path).reservations]


# ------------------------------------------------------------------------------------------------------------ in order


def test_a_release_is_settled_at_the_cost_of_its_queries_and_its_certificate_names_the_entry(book: BudgetBook) -> None:
    release = fit(book)
    (run_,) = book.reservations
    statement = release.statement
    assert run_.outcome is Outcome.RELEASED
    assert run_.counted == book.terms.cost(statement.queries, GUARANTEE) == book.total
    assert run_.certificate == certificate_digest(certificate.to_json(statement))
    entry = statement.facts.book
    assert entry is not None
    assert (entry.dataset, entry.number, entry.digest) == ("people", run_.number, run_.digest)
    assert certificate.from_json(json.loads(json.dumps(certificate.to_json(statement)))).facts.book == entry
    assert f"entry {entry.number}, hash {entry.digest}" in certificate.to_markdown(statement)


def test_without_a_book_certificates_are_as_before() -> None:
    statement = us.fit(TABLE, "independent", GUARANTEE, schema=SCHEMA).statement
    assert "book" not in certificate.to_json(statement)
    assert "Budget book" not in certificate.to_markdown(statement)


def test_the_cost_is_reserved_before_the_table_is_opened(book: BudgetBook, tmp_path: Path) -> None:
    pyarrow.csv.write_csv(TABLE, tmp_path / "table.csv")
    entries = []

    class Noting:
        def __fspath__(self) -> str:
            entries.append(BudgetBook.open(book.path).num_entries)
            return str(tmp_path / "table.csv")

    fit(book, table=Noting())
    assert entries
    assert set(entries) == {2}


def test_a_refused_run_is_told_what_would_fit(book: BudgetBook) -> None:
    with pytest.raises(BudgetExceeded, match=r"would fit\. No row was read") as refused:
        fit(book, epsilon=9.0)
    assert book.num_entries == 1
    said = float(str(refused.value).partition("epsilon ")[2].partition(" ")[0])
    assert 2 < said < 9
    fit(book, epsilon=said)
    assert book.fraction_left < 0.1
    with pytest.raises(BudgetExceeded):
        fit(book, epsilon=1.0)


def test_what_does_not_fit_is_refused_before_the_table_is_opened(book: BudgetBook) -> None:
    book.reserve(Cost(book.limit.amount, 0), {"plan": ""})
    with raises(BudgetExceeded, left=0.0):
        fit(book, table=Path("absent.csv"))
    assert book.num_entries == 2


@pytest.mark.parametrize("composition", ["renyi", "zcdp", "basic"])
def test_releases_fill_the_limit_and_not_more(tmp_path: Path, composition: str) -> None:
    book = BudgetBook.create(tmp_path / "a.book", epsilon=1, delta=1e-5, composition=composition)
    first = fit(book, epsilon=0.4, delta=1e-7).statement
    cost = book.terms.cost(first.queries, us.Guarantee(0.4, 1e-7))
    expected = min(book.limit.amount // cost.amount, book.limit.delta // max(cost.delta, 1))
    for _ in range(expected - 1):
        fit(book, epsilon=0.4, delta=1e-7)
    with pytest.raises(BudgetExceeded):
        fit(book, epsilon=0.4, delta=1e-7)
    assert expected == {"renyi": 7, "zcdp": 7, "basic": 2}[composition]
    assert book.total == sum([cost] * expected, Cost())


# ------------------------------------------------------------------------------------------------- what becomes of it


def test_a_run_that_fails_after_its_first_charge_stays_charged_as_planned(
    book: BudgetBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = Independent.fit

    def failing(*arguments: object, **options: object) -> Never:
        fitted(*arguments, **options)  # type: ignore[arg-type]  # handed on
        raise TrainingError("It diverged.")

    monkeypatch.setattr(Independent, "fit", failing)
    with pytest.raises(SpentError) as spent:
        fit(book)
    (failed,) = BudgetBook.open(book.path).reservations
    assert failed.outcome is Outcome.FAILED
    assert failed.counted == failed.cost
    assert spent.value.statement.facts.book is not None
    assert spent.value.statement.facts.book.number == failed.number
    assert failed.certificate == certificate_digest(certificate.to_json(spent.value.statement))


def test_a_run_that_fails_before_its_first_charge_is_withdrawn(book: BudgetBook) -> None:
    with pytest.raises(SchemaError):
        fit(book, table=TABLE.drop_columns(["sex"]))
    assert outcomes(book) == [Outcome.WITHDRAWN]
    assert BudgetBook.open(book.path).total == Cost()


def test_a_run_that_is_killed_stays_reserved(book: BudgetBook) -> None:
    with pytest.raises(Killed):
        fit(book, "mst", progress=kill_at(0.3))
    assert outcomes(book) == [Outcome.OPEN]
    assert BudgetBook.open(book.path).total.amount > 0


def test_a_resumed_run_continues_its_reservation_and_does_not_pay_twice(book: BudgetBook, tmp_path: Path) -> None:
    place: dict[str, Any] = {"checkpoint": tmp_path / "run.checkpoint"}
    with pytest.raises(Killed):
        fit(book, "mst", progress=kill_at(0.3), **place)
    before = BudgetBook.open(book.path).total
    release = fit(book.path, "mst", resume=True, **place)
    found = BudgetBook.open(book.path)
    assert [each.outcome for each in found.reservations] == [Outcome.RELEASED]
    assert found.total.fits(before)
    assert release.statement.facts.book is not None
    assert release.statement.facts.book.number == 2
    again = fit(book.path, "mst", resume=True, **place)  # finished, but not saved yet
    assert BudgetBook.open(book.path).num_entries == found.num_entries
    again.save(tmp_path / "run")
    assert not place["checkpoint"].exists()


def test_a_run_is_resumed_with_its_own_book_only(book: BudgetBook, tmp_path: Path) -> None:
    place: dict[str, Any] = {"checkpoint": tmp_path / "run.checkpoint"}
    with pytest.raises(Killed):
        fit(book, "mst", progress=kill_at(0.3), **place)
    other = BudgetBook.create(tmp_path / "other.book", dataset="people", epsilon=3, delta=1e-5)
    with raises(BookError, reason="missing"):
        fit(other, "mst", resume=True, **place)
    with raises(us.CheckpointError, reason="other run"):
        us.fit(TABLE, "mst", epsilon=1.0, schema=SCHEMA, resume=True, **place)


def test_a_book_that_cannot_be_settled_does_not_lose_the_release(
    book: BudgetBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unwritable(*arguments: object) -> Never:
        raise BookError("the disk is full.")

    monkeypatch.setattr(BudgetBook, "settle", unwritable)
    with pytest.warns(us.UnderstudyWarning, match="stays at the reserved cost"):
        assert fit(book).sample(3).num_rows == 3
    assert outcomes(book) == [Outcome.OPEN]


# ------------------------------------------------------------------------------------------------------- every charge


def query(rho: float) -> Query:
    return Query("key", "what", ZCDP(rho))


def reserved_ledger(book: BudgetBook, rho: float) -> tuple[Ledger, Reservation]:
    """The ledger of a run that has reserved this rho."""
    cost = book.terms.cost([query(rho)], GUARANTEE)
    reservation = Reservation(book, book.reserve(cost, {"plan": ""}), resumed=False)
    return Ledger(us.Guarantee(50.0, 1e-6), noise=SecureNoise(), book=reservation), reservation


def test_a_charge_beyond_the_reservation_extends_it_first(book: BudgetBook) -> None:
    ledger, reservation = reserved_ledger(book, 1e-3)
    ledger.charge(query(1e-3))
    assert book.num_entries == 2
    assert reservation.is_charged
    ledger.view(ledger.remaining).charge(query(1e-3))
    assert book.num_entries == 3
    assert book.total == book.terms.cost([query(1e-3)] * 2, GUARANTEE)


def test_a_charge_that_the_book_cannot_cover_is_refused_and_not_recorded(book: BudgetBook) -> None:
    ledger, reservation = reserved_ledger(book, 1e-3)
    with pytest.raises(BudgetExceeded):
        ledger.charge(query(1.0))
    with pytest.raises(BudgetExceeded):
        ledger.reserve([query(0.1)] * 10)
    assert ledger.queries == ()
    assert not reservation.is_charged


@pytest.fixture
def cheap_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that plans to spend half when its cost is reserved and when the run starts, and all in its last plan."""
    plans, planned = itertools.count(), Independent.plan

    def plan(self: Independent, domain: us.Domain, budget: Budget) -> us.Plan:
        return planned(self, domain, budget.fraction_of_rest(0.5) if next(plans) < 2 else budget)

    monkeypatch.setattr(Independent, "plan", plan)


@pytest.mark.usefixtures("cheap_at_first")
def test_the_last_plan_of_a_method_is_reserved_as_a_whole_before_it_is_charged(
    book: BudgetBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, fitted = [], Independent.fit

    def noting(self: Independent, run_: Run) -> Model:
        seen.append((book.num_entries, book.total))
        return fitted(self, run_)

    monkeypatch.setattr(Independent, "fit", noting)
    release = fit(book)
    whole = book.terms.cost(release.statement.queries, GUARANTEE)
    assert seen == [(3, whole)]
    assert whole.amount > 2 * book.reservations[0].facts["cost"]["amount"]  # type: ignore[index]  # JSON, typed as objects


@pytest.mark.usefixtures("cheap_at_first")
def test_a_last_plan_that_does_not_fit_ends_the_run(tmp_path: Path) -> None:
    book = BudgetBook.create(tmp_path / "a.book", epsilon=0.9, delta=1e-5)
    with pytest.raises(BudgetExceeded):
        fit(book)
    assert outcomes(book) == [Outcome.WITHDRAWN]  # nothing was charged before


# ------------------------------------------------------------------------------------------------- who may use a book


@pytest.mark.parametrize(
    ("options", "error", "fields"),
    [
        ({"schema": None}, ConfigError, {"setting": "schema"}),
        ({"seed": 1}, ConfigError, {"setting": "seed"}),
        ({"schema": {**SCHEMA, "table": {"rows": 100, "name": "others"}}}, BookError, {"reason": "other data set"}),
        ({"schema": {**SCHEMA, "table": {"unit": "sex"}}}, BookError, {"reason": "other unit"}),
        ({"policy": Policy(largest_epsilon=0.5)}, ConfigError, {"setting": "largest_epsilon"}),
        ({"policy": Policy(methods=("mst",))}, ConfigError, {"setting": "methods"}),
        ({"policy": Policy(second_person=True)}, BookError, {"reason": "not approved"}),
    ],
)
def test_runs_that_a_book_or_its_policy_refuses(
    book: BudgetBook, options: dict[str, Any], error: type[Exception], fields: dict[str, str]
) -> None:
    with raises(error, **fields):
        fit(book, table=Path("absent.csv"), **options)
    assert book.num_entries == 1


def test_a_run_without_a_guarantee_is_refused(book: BudgetBook) -> None:
    with raises(ConfigError, setting="guarantee"):
        us.fit(TABLE, "independent", us.Guarantee.not_private(), schema=SCHEMA, book=book)


def test_a_policy_needs_a_book_and_a_book_a_path() -> None:
    with raises(ConfigError, setting="book"):
        us.fit(TABLE, "independent", GUARANTEE, schema=SCHEMA, policy=Policy())
    with raises(ConfigError, setting="book"):
        us.fit(TABLE, "independent", GUARANTEE, schema=SCHEMA, book=3)  # type: ignore[arg-type]  # a wrong type


def proposed(book: BudgetBook, **changes: object) -> ProposedRun:
    usual = {"schema": as_schema(SCHEMA), "method": Independent(), "guarantee": GUARANTEE, "binning": us.Binning()}
    return propose_run(book, **{**usual, **changes})[1]  # type: ignore[arg-type]  # keywords of several types


def test_an_approval_is_for_one_run_of_one_plan_by_another_person(
    book: BudgetBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(monkeypatch, "ann")
    policy, plan = Policy(second_person=True), proposed(book).plan_hash(book)
    book.approve(plan, "ann")
    with raises(BookError, reason="not approved"):
        fit(book, policy=policy, delta=1e-6)
    book.approve(proposed(book, method=MST()).plan_hash(book), "bob")
    with pytest.raises(BookError, match=plan):
        fit(book, policy=policy, delta=1e-6)
    book.approve(plan, "bob")
    with pytest.raises(SchemaError):  # withdrawn: the approval is not used up
        fit(book, policy=policy, delta=1e-6, table=TABLE.drop_columns(["sex"]))
    fit(book, policy=policy, delta=1e-6)
    with raises(BookError, reason="not approved"):
        fit(book, policy=policy, delta=1e-6)


def test_a_plan_hash_covers_everything_that_a_person_approves(book: BudgetBook, tmp_path: Path) -> None:
    other = BudgetBook.create(tmp_path / "other.book", epsilon=3, delta=1e-5)
    schema = as_schema({**SCHEMA, "table": {"rows": 101}})
    hashes = [
        proposed(book).plan_hash(book),
        proposed(book).plan_hash(other),
        *(
            proposed(book, **change).plan_hash(book)
            for change in (
                {"method": MST()},
                {"method": Independent(smoothing=0.7)},
                {"guarantee": us.Guarantee(1.1, 1e-6)},
                {"guarantee": us.Guarantee(1.0, 2e-6)},
                {"binning": us.Binning(max_bins=7)},
                {"schema": schema},
            )
        ),
    ]
    assert len(set(hashes)) == len(hashes)
    assert hashes[0] == proposed(book).plan_hash(BudgetBook.open(book.path))


def test_the_largest_epsilon_that_fits_is_close_to_the_best(book: BudgetBook) -> None:
    run_ = proposed(book, guarantee=us.Guarantee(20.0, 1e-6))
    best = largest_epsilon(book, run_)
    assert best is not None
    fits = lambda epsilon: book.terms.cost(run_.at(epsilon).queries, run_.guarantee).fits(book.limit)  # noqa: E731
    assert fits(best)
    assert not fits(best * 1.05)


def test_where_the_delta_does_not_fit_no_smaller_epsilon_is_planned_for_long(tmp_path: Path) -> None:
    book = BudgetBook.create(tmp_path / "small.book", epsilon=3, delta=1e-9, composition="basic")
    run_, planned = proposed(book), []

    def plan(wanted: us.Guarantee) -> Sequence[Query]:
        planned.append(wanted)
        return run_.plan(wanted)

    assert largest_epsilon(book, dataclasses.replace(run_, plan=plan)) is None
    assert len(planned) == 2


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("largest_epsilom = 1", "largest_epsilom"),
        ("largest_epsilon = 0", "largest_epsilon"),
        ("methods = 'mst'", "methods"),
        ("methods = ['mts']", "methods"),
        ("second_person = 1", "second_person"),
        ("require_schema = false", "require_schema"),
        ("methods = [", None),
    ],
)
def test_policies_that_cannot_be_read(tmp_path: Path, text: str, setting: str | None) -> None:
    (tmp_path / "policy.toml").write_text(text)
    with raises(ConfigError, setting=setting):
        Policy.read(tmp_path / "policy.toml")


def test_a_policy_knows_methods_inside_methods() -> None:
    policy = Policy(methods=("auto", "selected"))
    assert policy.methods == ("adaptive", "selected")
    with pytest.raises(ConfigError, match="found dpgan"):
        policy.check(us.Selected(inner=us.DPGAN()), GUARANTEE)


# ------------------------------------------------------------------------------------------------------- certificates


def test_certificates_show_a_rollback_a_cut_and_another_book(book: BudgetBook, tmp_path: Path) -> None:
    releases = tmp_path / "releases"
    releases.mkdir()
    old = book.path.read_bytes()
    fit(book).save(releases / "first")
    assert verify_certificates(BudgetBook.open(book.path), releases) == ([], [])
    older = tmp_path / "older"
    older.mkdir()
    (older / "people.book").write_bytes(old)
    rolled = BudgetBook.open(older / "people.book")  # alone, it looks whole
    (fault,), _ = verify_certificates(rolled, releases)
    assert "the book ends at 1: it was truncated, or is an older copy" in fault
    fit(rolled)  # spent again from the older copy
    (fault,), _ = verify_certificates(rolled, releases)
    assert "with another hash" in fault
    created = BudgetBook.create(tmp_path / "new.book", dataset="people", epsilon=3, delta=1e-5)
    assert len(verify_certificates(created, releases)[0]) == 1


def test_a_certificate_that_was_changed_is_found(book: BudgetBook, tmp_path: Path) -> None:
    fit(book).save(tmp_path / "first")
    path = tmp_path / "first" / "certificate.json"
    path.write_text(path.read_text().replace('"method": "independent"', '"method": "mst"'))
    (fault,), _ = verify_certificates(book, tmp_path)
    assert "was changed after entry 2 was settled" in fault


def test_records_of_failed_attempts_agree_and_a_release_is_not_turned_into_one(
    book: BudgetBook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted, place = Independent.fit, tmp_path / "run.checkpoint"

    def failing(*arguments: object, **options: object) -> Never:
        fitted(*arguments, **options)  # type: ignore[arg-type]  # handed on
        raise TrainingError("It diverged.")

    for day in (1, 2):  # it is resumed on the next day, and fails again
        clock = SimpleNamespace(date=SimpleNamespace(today=lambda day=day: datetime.date(2026, 1, day)))
        with monkeypatch.context() as patched:
            patched.setattr(certificate_facts, "datetime", clock)
            patched.setattr(Independent, "fit", failing)
            with pytest.raises(SpentError):
                fit(book, checkpoint=place, resume=day == 2)
        assert verify_certificates(book, tmp_path) == ([], [])
    fit(book, checkpoint=place, resume=True).save(tmp_path / "first")
    assert verify_certificates(book, tmp_path) == ([], [])
    path = tmp_path / "first" / "certificate.json"
    path.write_text(path.read_text().replace('"released": true', '"released": false'))
    (fault,), (note,) = verify_certificates(book, tmp_path)
    assert "was changed after entry 2 was settled" in fault
    assert "entry 2 (released) has no certificate" in note


def test_a_certificate_that_has_lost_its_entry_is_found_unless_it_was_changed_too(
    book: BudgetBook, tmp_path: Path
) -> None:
    fit(book).save(tmp_path / "first")
    path = tmp_path / "first" / "certificate.json"
    content = json.loads(path.read_text())
    del content["book"]
    path.write_text(json.dumps(content))
    (fault,), _ = verify_certificates(book, tmp_path)
    assert "is the certificate of entry 2, which was removed from it" in fault
    path.write_text(json.dumps({**content, "date": "1999-01-01"}))
    faults, notes = verify_certificates(book, tmp_path)
    assert faults == []  # what remains: a release without a book, and an entry without a release
    assert any("its cost is in no book" in note for note in notes)
    assert any("entry 2 (released) has no certificate" in note for note in notes)


def test_a_steward_is_shown_what_certificates_do_not_cover(book: BudgetBook, tmp_path: Path) -> None:
    fit(book, policy=Policy(require_disclosure=True)).save(tmp_path / "first")
    us.fit(TABLE, "independent", GUARANTEE, schema=SCHEMA).save(tmp_path / "second")
    fit(book)
    book.reserve(Cost(1, 0), {"plan": ""})
    faults, notes = verify_certificates(book, tmp_path)
    assert faults == []
    for words in ("in no book", "entry 2 has no disclosure report", "entry 4 (released) has no certificate", "Entry 6"):
        assert any(words in note for note in notes), words
    (tmp_path / "first.json").write_text(json.dumps({"format": "understudy-disclosure", "synthetic": "first"}))
    assert not any("disclosure" in note for note in verify_certificates(book, tmp_path)[1])


# ------------------------------------------------------------------------------------------------------ command line


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pyarrow.csv.write_csv(TABLE, "people.csv")
    as_schema(SCHEMA).write("people.toml")
    return tmp_path


FIT = ["people.csv", "--schema", "people.toml", "--method", "independent", "--epsilon", "1"]


def test_a_steward_keeps_a_book_from_the_command_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["book", "create", "people.book", "--epsilon", "3", "--delta", "1e-5"]) == 0
    assert run(["synth", *FIT, "--book", "people.book", "-o", "fake.csv"]) == 0
    assert "Budget book people.book: entry 2," in capsys.readouterr().err
    assert run(["book", "show", "people.book"]) == 0
    assert "released" in capsys.readouterr().out
    assert run(["book", "show", "people.book", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["entries"] == 3
    assert run(["book", "verify", "people.book", "--certificates", "."]) == 0
    assert "The certificates in . agree with it." in capsys.readouterr().out
    assert run(["plan", "people.toml", "--method", "independent", "--epsilon", "1", "--book", "people.book"]) == 0
    plan = capsys.readouterr().out.rpartition("Plan hash: ")[2].strip()
    assert run(["book", "approve", "people.book", plan, "--by", "bob"]) == 0
    (place / "policy.toml").write_text("second_person = true\nlargest_epsilon = 1\n")
    assert run(["fit", *FIT, "--book", "people.book", "--policy", "policy.toml", "-o", "second"]) == 0
    assert BudgetBook.open("people.book").num_entries == 6


def test_rows_that_are_held_out_do_not_raise_the_delta_that_was_reserved_and_approved(place: Path) -> None:
    as_schema({**SCHEMA, "table": {"rows": 20_000}}).write("large.toml")  # the default delta of 10,000 is larger
    book = BudgetBook.create("people.book", epsilon=3, delta=1e-5, composition="basic")
    assert run(["fit", *FIT, "--schema", "large.toml", "--split", "0.5", "--book", "people.book", "-o", "half"]) == 0
    book.refresh()
    assert [each.last for each in book.reservations] == [3]  # reserved and settled, and not extended
    assert us.Release.load("half").statement.delta == book.reservations[0].facts["delta"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["book", "create", "people.book", "--epsilon", "3", "--delta", "1e-5"], "people.book exists"),
        (["book", "create", "absent/a.book", "--epsilon", "3", "--delta", "1e-5"], "does not exist"),
        (["book", "create", "a.book", "--epsilon", "0", "--delta", "1e-5"], "epsilon must be a positive number"),
        (["book", "show", "people.csv"], "people.csv is not a budget book"),
        (["book", "verify", "people.book", "--certificates", "absent"], "absent is not a folder"),
        (["book", "verify", "cut.book"], "was edited"),
        (["book", "approve", "people.book", "abc", "--by", "bob"], "A plan hash has 64 hexadecimal digits"),
        (["book", "approve", "people.book", "a" * 64, "--by", " "], "Say who approves"),
        (["book", "show", "people.book", "--json", "people.book", "--force"], "people.book is the budget book"),
        (
            ["fit", *FIT, "--book", "people.book", "--json", "./people.book", "--force", "-o", "out"],
            "is the budget book",
        ),
        (["fit", *FIT, "--book", "absent.book", "-o", "out"], "absent.book does not exist"),
        (["fit", *FIT, "--book", "units.book", "-o", "out"], "Costs for different privacy units cannot be added"),
        (["fit", *FIT, "--policy", "policy.toml", "-o", "out"], "needs a budget book"),
        (["fit", *FIT, "--book", "people.book", "--policy", "absent.toml", "-o", "out"], "absent.toml cannot be read"),
        (["fit", *FIT, "--book", "people.book", "--seed", "1", "-o", "out"], "cannot cover a seeded run"),
        (["fit", *FIT[:-1], "30", "--book", "people.book", "-o", "out"], "would fit. No row was read"),
        (["fit", *FIT, "--kind", "graph", "--book", "people.book", "-o", "out"], "does not apply to a graph"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    place: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    BudgetBook.create("people.book", epsilon=3, delta=1e-5)
    BudgetBook.create("units.book", dataset="people", unit="patient", epsilon=3, delta=1e-5)
    content = (place / "people.book").read_bytes().replace(b'"epsilon":3.0', b'"epsilon":9.0')
    (place / "cut.book").write_bytes(content)
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert len(captured.err.splitlines()) == 1
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before
