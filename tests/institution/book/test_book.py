"""A budget book never holds more than its limit, whoever writes it, and shows every edit of its entries."""

import contextlib
import copy
import json
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import understudy as us
from tests.builders import raises
from tests.examples import scaled
from understudy.errors import BookError, BudgetExceeded, ConfigError
from understudy.institution.book import BudgetBook
from understudy.institution.book.book import SHOWN
from understudy.institution.book.entries import History, Kind, Outcome, Row, canonical, digest_of
from understudy.privacy.accounting.release_costs import Cost
from understudy.run import atomic

FACTS = {"plan": "0" * 64, "method": "mst", "epsilon": 1.0, "delta": 1e-6, "by": "ann"}


@pytest.fixture
def book(tmp_path: Path) -> BudgetBook:
    return BudgetBook.create(tmp_path / "people.book", epsilon=3, delta=1e-5, unit="patient")


def part(book: BudgetBook, number: int) -> Cost:
    """The limit divided by this number, rounded down."""
    return Cost(book.limit.amount // number, book.limit.delta // number)


@contextlib.contextmanager
def stored(path: Path) -> Iterator[sqlite3.Connection]:
    """The file behind the book's back."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        yield file


def replay(rows: Sequence[Row]) -> None:
    history = History()
    for row in rows:
        history.add(row)


def rows_of(path: Path) -> list[Row]:
    with stored(path) as file:
        return [Row(*row) for row in file.execute("SELECT * FROM entries ORDER BY number")]


# ----------------------------------------------------------------------------------------------------------- the limit


def test_a_new_book_is_for_its_owner_alone_and_leaves_nothing_else(book: BudgetBook) -> None:
    assert stat.S_IMODE(book.path.stat().st_mode) == 0o600
    assert os.listdir(book.path.parent) == ["people.book"]
    assert (book.dataset, book.unit, book.num_entries, book.total) == ("people", "patient", 1, Cost())


def test_a_book_is_never_replaced(book: BudgetBook) -> None:
    with raises(BookError, reason="exists"):
        BudgetBook.create(book.path, epsilon=9, delta=1e-5)
    assert BudgetBook.open(book.path).terms.epsilon == 3


@pytest.mark.parametrize("can_link", [True, False])
def test_of_two_that_create_a_book_at_once_one_wins(
    book: BudgetBook, monkeypatch: pytest.MonkeyPatch, can_link: bool
) -> None:
    """The second has looked for the file before the first has written it."""
    monkeypatch.setattr(atomic, "require_free", lambda path, *, force: None)
    if not can_link:  # as on some network file systems
        monkeypatch.setattr(os, "link", lambda source, target: os.close(os.open("/dev/null/no", 0)))
    with raises(BookError, reason="exists"):
        BudgetBook.create(book.path, epsilon=9, delta=1e-5)
    assert BudgetBook.open(book.path).terms.epsilon == 3
    assert BudgetBook.create(book.path.with_name("b.book"), epsilon=9, delta=1e-5).terms.epsilon == 9
    assert sorted(os.listdir(book.path.parent)) == ["b.book", "people.book"]


def test_what_does_not_fit_is_refused_and_not_written(book: BudgetBook) -> None:
    third = part(book, 3)
    for _ in range(3):
        book.reserve(third, FACTS)
    before = book.path.read_bytes()
    for cost in (third, Cost(book.limit.amount, 0), Cost(1, book.limit.delta)):
        with pytest.raises(BudgetExceeded) as refused:
            book.reserve(cost, FACTS)
    assert refused.value.left is not None
    assert book.path.read_bytes() == before
    assert book.total.fits(book.limit)


def test_either_part_of_a_cost_can_be_what_does_not_fit(book: BudgetBook) -> None:
    book.reserve(Cost(1, book.limit.delta), FACTS)
    with pytest.raises(BudgetExceeded):
        book.reserve(Cost(1, 1), FACTS)
    book.reserve(Cost(1, 0), FACTS)


def test_settling_frees_the_difference(book: BudgetBook) -> None:
    half, quarter = part(book, 2), part(book, 4)
    first = book.reserve(half, FACTS)
    book.settle(first.number, quarter, Outcome.RELEASED, "0" * 64)
    assert book.total == quarter
    book.reserve(half, FACTS)
    assert book.total == quarter + half


def test_no_run_settles_for_more_than_it_reserved(book: BudgetBook) -> None:
    first = book.reserve(part(book, 4), FACTS)
    with raises(BookError, reason="cost"):
        book.settle(first.number, part(book, 2), Outcome.RELEASED, None)
    with raises(BookError, reason="cost"):
        book.settle(first.number, Cost(), Outcome.RELEASED, None)
    assert BudgetBook.open(book.path).total == part(book, 4)


def test_a_withdrawn_run_costs_nothing_and_cannot_be_settled(book: BudgetBook) -> None:
    first = book.reserve(part(book, 2), FACTS)
    book.withdraw(book.reservation(first.number))
    assert book.total == Cost()
    for act in (
        lambda: book.settle(first.number, part(book, 2), Outcome.RELEASED, None),
        lambda: book.withdraw(book.reservation(first.number)),
        lambda: book.extend(first.number, part(book, 1)),
    ):
        with pytest.raises(BookError):
            act()
    assert book.num_entries == 3


def test_a_run_that_was_continued_is_not_withdrawn(book: BudgetBook) -> None:
    """It may have charged before: neither the book nor a reader of its entries gives the cost back."""
    for failed in (True, False):
        first = book.reserve(part(book, 8), FACTS)
        if failed:
            book.settle(first.number, part(book, 8), Outcome.FAILED, "c" * 64)
        book.extend(first.number, part(book, 8))
        total = book.total
        with raises(BookError, reason="settled"):
            book.withdraw(book.reservation(first.number))
        assert BudgetBook.open(book.path).total == total
        history = book._history.copy()
        less = history.total - book.reservation(first.number).counted
        with pytest.raises(BookError):
            history.add(history.next_row(Kind.WITHDRAW, less, {"time": "", "reservation": first.number}))


def test_a_released_run_cannot_be_settled_again(book: BudgetBook) -> None:
    first = book.reserve(part(book, 2), FACTS)
    book.settle(first.number, part(book, 2), Outcome.RELEASED, None)
    for act in (
        lambda: book.settle(first.number, part(book, 8), Outcome.RELEASED, None),
        lambda: book.withdraw(book.reservation(first.number)),
        lambda: book.extend(first.number, part(book, 1)),
    ):
        with raises(BookError, reason="settled"):
            act()
    with raises(BookError, reason="missing"):
        book.settle(1, part(book, 8), Outcome.RELEASED, None)


def test_an_extension_counts_once_and_is_refused_beyond_the_limit(book: BudgetBook) -> None:
    first = book.reserve(part(book, 4), FACTS)
    book.extend(first.number, part(book, 2))
    assert book.total == part(book, 2)
    book.reserve(part(book, 4), FACTS)
    with pytest.raises(BudgetExceeded):
        book.extend(first.number, part(book, 1))
    assert book.total == part(book, 2) + part(book, 4)


def test_entries_that_another_object_wrote_count(book: BudgetBook) -> None:
    other = BudgetBook.open(book.path)
    other.reserve(part(book, 1), FACTS)
    with pytest.raises(BudgetExceeded):
        book.reserve(part(book, 4), FACTS)
    assert book.total == other.total


def test_two_threads_spend_500_times_and_never_overspend(book: BudgetBook) -> None:
    """Each has its own connection, as a process would."""
    cost, made, failed = part(book, 300), [], []

    def spend() -> None:
        mine = BudgetBook.open(book.path)
        for _ in range(250):
            with contextlib.suppress(BudgetExceeded):
                try:
                    made.append(mine.reserve(cost, FACTS).number)
                except BookError as error:
                    failed.append(error)

    spenders = [threading.Thread(target=spend) for _ in range(2)]
    for each in spenders:
        each.start()
    for each in spenders:
        each.join()
    found = BudgetBook.open(book.path)
    assert not failed
    assert len(made) == len(set(made)) == len(found.reservations) == 300
    assert found.total.fits(found.limit)


SPEND = """
import sys
from understudy.institution.book import BudgetBook
from understudy.institution.book.entries import Outcome
from understudy.errors import BudgetExceeded
from understudy.privacy.accounting.release_costs import Cost
book = BudgetBook.open(sys.argv[1])
facts = {"plan": "0" * 64}
cost = Cost(book.limit.amount // 6000, book.limit.delta // 6000)
made = 0
for number in range(5000):
    try:
        reserved = book.reserve(cost, facts)
    except BudgetExceeded:
        continue
    made += 1
    if number % 100 == 0:
        book.settle(reserved.number, Cost(cost.amount // 2, 0), Outcome.RELEASED, None)
print(made)
"""


def test_two_processes_spend_10000_times_and_never_overspend(book: BudgetBook) -> None:
    start = [sys.executable, "-c", SPEND, str(book.path)]
    patient = {**os.environ, "UNDERSTUDY_BOOK_SECONDS": "900"}  # the other one hardly ever lets go of the book
    running = [subprocess.Popen(start, stdout=subprocess.PIPE, text=True, env=patient) for _ in range(2)]
    made = [int(process.communicate(timeout=900)[0]) for process in running]
    found = BudgetBook.open(book.path)
    assert sum(made) == len(found.reservations) >= 6000
    assert found.total.fits(found.limit)


RESERVE = """
import sys, time
from understudy.institution.book import BudgetBook
from understudy.privacy.accounting.release_costs import Cost
book = BudgetBook.open(sys.argv[1])
book.reserve(Cost(book.limit.amount // 2, 0), {"plan": "0" * 64})
with book._file.connection() as file:
    file.execute("BEGIN IMMEDIATE")
    file.execute("INSERT INTO entries VALUES (99, 'half an entry', '', '')")
    file.execute("PRAGMA cache_spill = 1")
    print("reserved", flush=True)
    time.sleep(600)
"""


def test_a_killed_process_leaves_its_reservation_and_no_half_entry(book: BudgetBook) -> None:
    with subprocess.Popen([sys.executable, "-c", RESERVE, str(book.path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    found = BudgetBook.open(book.path)
    assert [each.outcome for each in found.reservations] == [Outcome.OPEN]
    assert found.total == Cost(found.limit.amount // 2, 0)
    found.reserve(part(book, 4), FACTS)


WORK = """
import os, sys
from understudy.institution.book import BudgetBook
from understudy.institution.book.entries import Outcome
from understudy.privacy.accounting.release_costs import Cost
for _ in sys.stdin:
    child = os.fork()  # a process that need not import everything again
    if not child:
        book = BudgetBook.open(sys.argv[1])
        os.write(1, b"%d\\n" % os.getpid())
        while True:
            reserved = book.reserve(Cost(1000, 0), {"plan": "0" * 64})
            os.write(1, b"%d\\n" % reserved.number)
            book.extend(reserved.number, Cost(2000, 0))
            book.settle(reserved.number, Cost(1500, 0), Outcome.RELEASED, None)
            book.withdraw(book.reserve(Cost(1000, 0), {"plan": "0" * 64}))
    os.waitpid(child, 0)
    os.write(1, b"killed\\n")
"""


def test_killed_200_times_a_book_keeps_every_entry_that_was_reported(book: BudgetBook) -> None:
    """At random points of a reservation, an extension, a settlement or a withdrawal."""
    generator, reported = random.Random(0), set()
    start = [sys.executable, "-c", WORK, str(book.path)]
    with subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(200):
            process.stdin.write("\n")
            process.stdin.flush()
            child = int(process.stdout.readline())
            time.sleep(generator.random() * 0.2)
            os.kill(child, signal.SIGKILL)
            reported |= {int(line) for line in iter(process.stdout.readline, "killed\n")}
            found = BudgetBook.open(book.path)
            assert reported <= {each.number for each in found.reservations}
            assert found.total == sum((each.counted for each in found.reservations), Cost())
            assert found.total.fits(found.limit)
        process.stdin.close()
    assert len(reported) > 100


# -------------------------------------------------------------------------------------------------------------- editing


def filled(path: Path) -> BudgetBook:
    book = BudgetBook.create(path, epsilon=3, delta=1e-5)
    first = book.reserve(part(book, 4), FACTS)
    book.approve("ab" * 32, "bob")
    book.extend(first.number, part(book, 3))
    book.settle(first.number, part(book, 5), Outcome.FAILED, "0" * 64)
    book.withdraw(book.reserve(part(book, 4), FACTS))
    return book


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    return rows_of(filled(tmp_path_factory.mktemp("book") / "a.book").path)


@settings(max_examples=scaled(150))
@given(data=st.data())
def test_an_edit_of_any_letter_of_any_entry_is_found(entries: list[Row], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(entries) - 1))
    column = data.draw(st.sampled_from(["content", "previous", "digest"]))
    text = getattr(entries[at], column)
    letter = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(codec="ascii").filter(lambda found: found != text[letter]))
    edited = entries[at]._replace(**{column: text[:letter] + other + text[letter + 1 :]})
    with pytest.raises(BookError, match=f"entry {at + 1} was edited"):
        replay((*entries[:at], edited, *entries[at + 1 :]))


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[:2] + rows[3:],
        lambda rows: [rows[0], rows[2], rows[1], *rows[3:]],
        lambda rows: rows[:3] + rows[2:],
        lambda rows: rows[1:],
        lambda rows: [rows[0]._replace(number="1"), *rows[1:]],
        lambda rows: [rows[0]._replace(content=None), *rows[1:]],
    ],
    ids=["removed", "exchanged", "repeated", "without its first", "text as number", "null"],
)
def test_entries_in_another_order_are_found(entries: list[Row], change: Callable[[list[Row]], list[Row]]) -> None:
    replay(entries)
    with pytest.raises(BookError):
        replay(change(entries))


@pytest.mark.parametrize("at", range(6))
def test_an_edited_entry_with_its_hash_computed_again_is_found(entries: list[Row], at: int) -> None:
    """The next entry still has the old one."""
    edited = entries[at].content.replace('"time":"2', '"time":"1')
    assert edited != entries[at].content
    row = entries[at]._replace(content=edited, digest=digest_of(entries[at].previous, edited))
    with pytest.raises(BookError, match=f"entry {at + 2} was edited"):
        replay((*entries[:at], row, *entries[at + 1 :]))


def rehashed(history: History, content: dict[str, object]) -> Row:
    """An entry whose hash is right."""
    text = canonical({"number": history.number + 1, "time": "", **content})
    return Row(history.number + 1, text, history.head, digest_of(history.head, text))


def test_entries_with_right_hashes_that_do_not_follow_are_found(book: BudgetBook) -> None:
    """Wrong totals, unknown reservations, a negative cost, a total beyond the limit, a second first entry."""
    history = History()
    for row in rows_of(book.path):
        history.add(row)
    zero, one, much = {"amount": 0, "delta": 0}, {"amount": 1, "delta": 0}, {"amount": 10**30, "delta": 0}
    reserve = {"kind": Kind.RESERVE.value, "plan": "x"}
    contents: list[dict[str, object]] = [
        {**reserve, "cost": one, "total": zero},
        {**reserve, "cost": zero, "total": zero},
        {**reserve, "cost": much, "total": much},
        {**reserve, "cost": {"amount": -1, "delta": 0}, "total": {"amount": -1, "delta": 0}},
        {**reserve, "cost": {"amount": 1.0, "delta": 0}, "total": one},
        {**reserve, "cost": {"amount": True, "delta": 0}, "total": one},
        {"kind": "settle", "reservation": 1, "cost": one, "outcome": "released", "certificate": None, "total": one},
        {"kind": "withdraw", "reservation": 7, "total": zero},
        {"kind": "create", "total": zero},
        {"kind": "spend", "total": zero},
        {"total": zero},
    ]
    for content in contents:
        with pytest.raises(BookError):
            copy.deepcopy(history).add(rehashed(history, content))
    history.add(rehashed(history, {**reserve, "cost": one, "total": one}))


@pytest.mark.parametrize("change", [{"policy": {}, "approved_by": "B. Weber", "plan": "x"}, {"time": None}])
def test_a_first_entry_with_an_approval_or_without_a_time_is_found(book: BudgetBook, change: dict) -> None:
    content = {**json.loads(rows_of(book.path)[0].content), **change}
    with raises(BookError, reason="edited"):
        History().add(rehashed(History(), content))


def test_a_raised_limit_is_found(tmp_path: Path) -> None:
    """Also by someone who computes the hash again."""
    path = BudgetBook.create(tmp_path / "a.book", epsilon=3, delta=1e-5).path
    (row,) = rows_of(path)
    text = row.content.replace('"limit":{"amount":1', '"limit":{"amount":9')
    assert text != row.content
    with stored(path) as file:
        file.execute("UPDATE entries SET content = ?, hash = ?", (text, digest_of(row.previous, text)))
    with raises(BookError, reason="edited"):
        BudgetBook.open(path)


def test_an_edited_book_spends_nothing(tmp_path: Path) -> None:
    book = filled(tmp_path / "a.book")
    with stored(book.path) as file:
        file.execute("UPDATE entries SET content = replace(content, 'mst', 'aim') WHERE number = 2")
    with raises(BookError, reason="edited"):
        BudgetBook.open(book.path)


def test_a_book_that_was_rolled_back_under_a_process_spends_nothing(book: BudgetBook, tmp_path: Path) -> None:
    shutil.copy(book.path, tmp_path / "old.book")
    book.reserve(part(book, 2), FACTS)
    os.replace(tmp_path / "old.book", book.path)
    with raises(BookError, reason="edited"):
        book.reserve(part(book, 2), FACTS)


# ------------------------------------------------------------------------------------------------------------ bad input


def test_a_locked_book_is_waited_for_and_then_refused(book: BudgetBook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERSTUDY_BOOK_SECONDS", "0.1")
    with stored(book.path) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(BookError, match=r"in use by another process; waited 0\.1 seconds"):
            book.reserve(part(book, 2), FACTS)
        with raises(BookError, reason="in use"):
            BudgetBook.open(book.path)
    monkeypatch.setenv("UNDERSTUDY_BOOK_SECONDS", "soon")
    with raises(ConfigError, setting="UNDERSTUDY_BOOK_SECONDS"):
        BudgetBook.open(book.path)


def limit_connections(monkeypatch: pytest.MonkeyPatch, pragma: str) -> None:
    connect = sqlite3.connect

    def limited(*arguments: object, **options: object) -> sqlite3.Connection:
        file = connect(*arguments, **options)  # type: ignore[call-overload]  # handed on
        file.execute(pragma)
        return file

    monkeypatch.setattr(sqlite3, "connect", limited)


def test_a_read_only_book_can_be_shown_but_not_spent_from(book: BudgetBook, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_connections(monkeypatch, "PRAGMA query_only = ON")
    with raises(BookError, reason="closed"):
        book.reserve(part(book, 2), FACTS)
    assert BudgetBook.open(book.path).total == Cost()


def test_a_full_disk_refuses_the_run(book: BudgetBook, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_connections(monkeypatch, "PRAGMA max_page_count = 2")
    facts = {**FACTS, "method": "m" * 5000}  # more than the one page that is left
    with raises(BookError, reason="disk full"):
        book.reserve(part(book, 100), facts)
    assert BudgetBook.open(book.path).total == book.total


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: None, "missing"),
        (lambda path: path.mkdir(), "missing"),
        (lambda path: path.write_bytes(b""), "unknown kind"),
        (lambda path: path.write_text("name,age\nann,3\n" * 100), "unknown kind"),
        (
            lambda path: sqlite3.connect(path).execute("CREATE TABLE entries (a)").connection.close(),
            "unknown kind",
        ),
    ],
    ids=["absent", "folder", "empty", "table", "another database"],
)
def test_other_files_are_no_books(tmp_path: Path, make: Callable[[Path], object], reason: str) -> None:
    make(tmp_path / "a.book")
    with raises(BookError, reason=reason):
        BudgetBook.open(tmp_path / "a.book")


def test_a_newer_format_is_not_read(book: BudgetBook) -> None:
    with stored(book.path) as file:
        file.execute("PRAGMA user_version = 7")
    with raises(BookError, reason="newer"):
        BudgetBook.open(book.path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("whole") / "a.book").path


@settings(max_examples=scaled(200))
@given(at=st.integers(0, 10**6), change=st.integers(1, 255))
def test_no_changed_byte_of_the_file_makes_a_traceback(whole: Path, at: int, change: int) -> None:
    content, path = bytearray(whole.read_bytes()), whole.with_name("changed.book")
    content[at % len(content)] ^= change
    path.write_bytes(content)
    with contextlib.suppress(BookError):
        assert BudgetBook.open(path).total == BudgetBook.open(whole).total


def test_names_must_not_be_empty(tmp_path: Path) -> None:
    for dataset, unit, setting in ((" ", None, "dataset"), ("people", "", "unit")):
        with raises(ConfigError, setting=setting):
            BudgetBook.create(tmp_path / "a.book", epsilon=1, delta=1e-6, dataset=dataset, unit=unit)
    assert not os.listdir(tmp_path)


def test_it_shows_itself_and_its_runs(book: BudgetBook) -> None:
    book.reserve(part(book, 4), FACTS)
    text = repr(book)
    assert "Budget book of people" in text
    assert "limit: epsilon 3 at delta 1e-05" in text
    assert "25%" in text
    assert book.to_json()["runs"] == [
        {
            **{key: FACTS.get(key) for key in SHOWN[1:]},
            "time": book.reservations[0].facts["time"],
            "entry": 2,
            "state": "open",
            "fraction": pytest.approx(0.25),
        }
    ]
    assert us.BudgetBook is BudgetBook
