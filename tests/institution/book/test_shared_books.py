"""Books that threads share, runs continued from a copy, and books and policies that somebody tampered with."""

import dataclasses
import json
import pickle
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import understudy as us
from tests.builders import Killed, kill_at, raises
from understudy.cli.options import refuse_book
from understudy.cli.output import show_book
from understudy.errors import BookError, BookExceeded, ConfigError, SchemaError
from understudy.institution.book import BudgetBook, Policy
from understudy.institution.book.certificate_checks import verify_certificates
from understudy.institution.book.entries import Outcome
from understudy.privacy.accounting.ledger import Ledger
from understudy.privacy.accounting.release_costs import Cost
from understudy.run import run as owner
from understudy.run.failure import SpentError
from understudy.synthesizers import mst

TABLE = pa.table({"member": ["yes", "no"] * 50})
SCHEMA = {"table": {"rows": 100}, "columns": {"member": {"kind": "categorical", "categories": ["no", "yes"]}}}


@pytest.fixture
def book(tmp_path: Path) -> BudgetBook:
    return BudgetBook.create(tmp_path / "people.book", epsilon=3, delta=1e-5)


@pytest.fixture
def impatient_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def fit(book: "BudgetBook | Path", **options: Any) -> us.Release:
    return us.fit(TABLE, "mst", epsilon=1, schema=SCHEMA, book=book, **options)


@pytest.mark.usefixtures("impatient_threads")
def test_threads_that_share_a_book_see_one_history(book: BudgetBook) -> None:
    failed: list[BaseException] = []

    def approve_and_reserve(name: str) -> None:
        try:
            for _ in range(15):
                book.approve("a" * 64, name)
                book.refresh()
                book.withdraw(book.reserve(Cost(1, 0), {"plan": "a" * 64}))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=approve_and_reserve, args=(name,)) for name in "abc"]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failed == []
    assert len(book.approvals("a" * 64)) == 45
    assert BudgetBook.open(book.path).head == book.head


def test_a_copy_of_the_object_reads_the_file(book: BudgetBook) -> None:
    copied = pickle.loads(pickle.dumps(book))
    book.reserve(Cost(1, 0), {"plan": ""})
    copied.reserve(Cost(1, 0), {"plan": ""})
    assert copied.total == Cost(2, 0)


def test_an_entry_is_on_disk_and_its_journal_gone_before_it_is_reported(book: BudgetBook) -> None:
    with book._file.connection() as file:
        assert file.execute("PRAGMA synchronous").fetchone() == (3,)  # EXTRA


def test_a_run_that_a_copied_checkpoint_continues_is_not_withdrawn(
    book: BudgetBook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy_and_fail(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        shutil.copytree(tmp_path / "a.checkpoint", tmp_path / "b.checkpoint")
        with pytest.raises(Killed):  # after its first charge
            fit(book.path, checkpoint=tmp_path / "b.checkpoint", resume=True, progress=kill_at(0.3))
        raise SchemaError("The first process fails before its first charge.")

    monkeypatch.setattr(owner, "Ledger", copy_and_fail)
    with pytest.raises(SchemaError):
        fit(book, checkpoint=tmp_path / "a.checkpoint")
    book.refresh()
    assert [each.outcome for each in book.reservations] == [Outcome.OPEN]
    fit(book, checkpoint=tmp_path / "b.checkpoint", resume=True)
    assert [each.outcome for each in book.reservations] == [Outcome.RELEASED]
    assert book.total.amount > 0


def test_a_run_does_not_continue_the_reservation_of_another(book: BudgetBook, tmp_path: Path) -> None:
    """Whose note somebody has copied into its checkpoint."""
    place = tmp_path / "run.checkpoint"
    with pytest.raises(Killed):
        fit(book, checkpoint=place, progress=kill_at(0.3))
    (own,) = BudgetBook.open(book.path).reservations
    same, other = (book.reserve(own.cost, {"plan": plan}) for plan in (own.facts["plan"], "a" * 64))
    for reserved, error in ((same, us.CheckpointError), (other, BookError)):
        note = {"dataset": "people", "number": reserved.number, "digest": reserved.digest}
        (place / "book.json").write_text(json.dumps(note))
        with raises(error, reason="other run"):
            fit(book, checkpoint=place, resume=True)
    assert [each.outcome for each in BudgetBook.open(book.path).reservations] == [Outcome.OPEN] * 3


def test_a_withdrawn_reservation_is_not_extended(book: BudgetBook) -> None:
    reserved = book.reserve(Cost(1, 0), {"plan": ""})
    book.withdraw(reserved)
    with raises(BookError, reason="withdrawn"):
        book.extend(reserved.number, Cost(2, 0))


def test_certificates_show_that_an_extension_was_cut(
    book: BudgetBook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate names the entry of the reservation, and extensions come after it."""
    reserve, extend, older = BudgetBook.reserve, BudgetBook.extend, tmp_path / "older.book"

    def copy_and_extend(self: BudgetBook, number: int, cost: Cost) -> Any:
        if not older.exists():
            shutil.copy(self.path, older)
        return extend(self, number, cost)

    monkeypatch.setattr(BudgetBook, "reserve", lambda self, cost, *a, **b: reserve(self, Cost(1, cost.delta), *a, **b))
    monkeypatch.setattr(BudgetBook, "extend", copy_and_extend)
    fit(book).save(tmp_path / "release")
    assert verify_certificates(book, tmp_path) == ([], [])
    (fault,), _ = verify_certificates(BudgetBook.open(older), tmp_path)
    assert "costs more than entry 2 has reserved" in fault


def test_a_release_that_could_not_be_settled_agrees_with_its_book(
    book: BudgetBook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unwritable(*arguments: object) -> None:
        raise BookError("The disk is full.")

    monkeypatch.setattr(BudgetBook, "settle", unwritable)
    fit(book).save(tmp_path / "release")
    faults, (note,) = verify_certificates(book, tmp_path)
    assert faults == []
    assert "not settled" in note


@pytest.mark.parametrize("entry", [{}, {"dataset": "people"}, {"dataset": "people", "entry": [1]}])
def test_a_damaged_certificate_is_no_traceback(book: BudgetBook, tmp_path: Path, entry: dict) -> None:
    content = {"format": "understudy-certificate", "book": entry, "checksums": None}
    (tmp_path / "certificate.json").write_text(json.dumps(content))
    faults, notes = verify_certificates(book, tmp_path)
    assert len(faults) + len(notes) == 1


def test_files_with_what_no_certificate_has_are_no_traceback(book: BudgetBook, tmp_path: Path) -> None:
    fit(book).save(tmp_path / "release")
    path = tmp_path / "release" / "certificate.json"
    whole = json.loads(path.read_text())
    without = {key: value for key, value in whole.items() if key != "book"}
    (tmp_path / "report.json").write_text(json.dumps({"format": "understudy-disclosure", "synthetic": ["x"]}))
    for change in ({"x": float("nan")}, {"x": 0, "checksums": 5}, {"x": 0, "checksums": [5]}):
        path.write_text(json.dumps({**whole, **change}))
        (fault,), _ = verify_certificates(book, tmp_path)
        assert "was changed after entry 2 was settled" in fault
        path.write_text(json.dumps({**without, **change}))
        assert verify_certificates(book, tmp_path)[0] == []


def test_a_book_that_disappears_after_the_release_does_not_end_the_command(
    book: BudgetBook, capsys: pytest.CaptureFixture[str]
) -> None:
    release = fit(book)
    book.path.unlink()
    show_book(book.path, release, quiet=False)
    assert "does not exist" in capsys.readouterr().err


def test_no_table_is_written_into_a_book(book: BudgetBook) -> None:
    with pytest.raises(ConfigError):
        refuse_book(book.path, None, f"{book.path}::entries")


@pytest.mark.parametrize("content", [{"largest_epsilon": float("nan")}, {"methods": 5}, {"methods": {"mst": 1}}])
def test_policies_that_would_allow_anything_are_refused(content: dict[str, object]) -> None:
    (setting,) = content
    with raises(ConfigError, setting=setting):
        Policy.from_dict(content)


def test_a_class_with_the_name_of_a_method_is_not_that_method(book: BudgetBook) -> None:
    @dataclasses.dataclass(frozen=True)
    class MST(mst.MST):
        pass

    with raises(ConfigError, setting="methods"):
        us.fit(TABLE, MST(), epsilon=1, schema=SCHEMA, book=book, policy=Policy(methods=("mst",)))
    assert book.num_entries == 1


@pytest.mark.parametrize(
    ("policy", "error", "fields"),
    [
        (Policy(largest_epsilon=0.5), ConfigError, {"setting": "largest_epsilon"}),
        (Policy(second_person=True), BookError, {"reason": "not approved"}),
    ],
)
def test_a_resumed_run_must_meet_the_policy_too(
    book: BudgetBook, tmp_path: Path, policy: Policy, error: type[Exception], fields: dict[str, str]
) -> None:
    place = tmp_path / "run.checkpoint"
    with pytest.raises(Killed):
        fit(book, checkpoint=place, progress=kill_at(0.3))
    with raises(error, **fields):
        fit(book, checkpoint=place, resume=True, policy=policy)
    book.refresh()
    assert [each.outcome for each in book.reservations] == [Outcome.OPEN]


def test_an_entry_has_the_policy_of_its_run(book: BudgetBook) -> None:
    fit(book, policy=Policy(methods=("mst",)))
    fit(book)
    first, second = (run["policy"] for run in BudgetBook.open(book.path).to_json()["runs"])  # type: ignore[attr-defined]  # JSON, typed as objects
    assert first["methods"] == ["mst"]
    assert second is None


@pytest.mark.parametrize(
    "error",
    [BookError("people.book is in use by another process."), BookExceeded("This run needs 9% of people.book.")],
    ids=["in use", "used up"],
)
def test_a_run_that_the_book_stops_says_so(
    book: BudgetBook, monkeypatch: pytest.MonkeyPatch, error: us.UnderstudyError
) -> None:
    """After its first query, such as an estimate of categories."""
    reserve = Ledger.reserve

    def refused_later(self: Ledger, queries: Any) -> None:
        if self.queries:
            raise error
        reserve(self, queries)

    monkeypatch.setattr(Ledger, "reserve", refused_later)
    schema = {"table": {"rows": 100}, "columns": {"member": {"kind": "categorical"}}}
    with pytest.raises(SpentError) as stopped:
        us.fit(TABLE, "independent", epsilon=1, schema=schema, book=book)
    assert str(stopped.value).startswith(f"{error} Nothing was released, but epsilon")
    assert [each.outcome for each in book.reservations] == [Outcome.FAILED]
