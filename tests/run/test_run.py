"""One owner of every private run: whatever is made, runs reserve, fail, record and settle alike."""

import dataclasses
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, Never, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import understudy as us
from tests.builders import raises
from understudy.cli import run as command
from understudy.errors import BookError, TrainingError
from understudy.institution.book import BudgetBook
from understudy.institution.book.entries import Outcome
from understudy.learners.sklearn import NaiveBayes
from understudy.notes import Note
from understudy.privacy.accounting.ledger import Guarantee, Ledger, PublicFacts, Query, Statement
from understudy.run.failure import FailedRun, read_record
from understudy.run.listener import Listener
from understudy.run.run import open_run
from understudy.schema import as_schema

TABLE = pa.table({"member": ["yes", "no"] * 20})
SCHEMA = {"table": {"rows": 40}, "columns": {"member": {"kind": "categorical", "categories": ["no", "yes"]}}}
EDGES = pa.table({"source": range(20), "target": [(node + 1) % 20 for node in range(20)]})
NODES = {"nodes": {"count": 20}}
COINS = np.asarray([[0.0], [1.0]] * 20)

Result = TypeVar("Result")


class NotingFile:
    """The path of a file, which notes whenever it is asked for."""

    def __init__(self, path: Path, opened: Callable[[], None]) -> None:
        self._path, self._opened = path, opened

    def __fspath__(self) -> str:
        self._opened()
        return str(self._path)


class NotingArray:
    """An array, which notes whenever its values are asked for. Its form is public."""

    def __init__(self, values: np.ndarray, opened: Callable[[], None]) -> None:
        self._values, self._opened = values, opened
        self.shape, self.ndim, self.dtype = values.shape, values.ndim, values.dtype

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        self._opened()
        return np.asarray(self._values, dtype=dtype)


@dataclasses.dataclass(frozen=True)
class Client:
    """A public function that starts a private run."""

    run: Callable[..., Statement]
    queries: Callable[[], tuple[Query, ...]]
    rows: Any
    refused: Any
    """Rows of another form, which are refused once they are read."""
    protect: str | None = None


def fit(rows: Any, **options: Any) -> Statement:
    return us.fit(rows, "independent", epsilon=1, schema=SCHEMA, **options).statement


def fit_graph(rows: Any, **options: Any) -> Statement:
    return us.fit_graph(rows, NODES, epsilon=1, **options).statement


def fit_learner(rows: Any, **options: Any) -> Statement:
    learner = NaiveBayes(guarantee=us.Guarantee(1.0), bounds=(0, 1), classes=[0, 1], num_rows=40, **options)
    return learner.fit(rows, COINS[:, 0].astype(int)).statement_


def boost(rows: Any, **options: Any) -> Statement:
    given: dict[str, Any] = {"discriminators": [lambda row: row[0]], "num_rows": 40, "rounds": 5, "epsilon": 1}
    return us.boost(rows, [1 - COINS], **given, **options).statement


CLIENTS = {
    "table": Client(fit, lambda: us.plan(SCHEMA, "independent", epsilon=1).queries, TABLE, EDGES),
    "graph": Client(fit_graph, lambda: us.plan_graph(NODES, epsilon=1).queries, EDGES, TABLE, "edge"),
    "learner": Client(fit_learner, lambda: fit_learner(COINS).queries, COINS, COINS[:5]),
    "boost": Client(
        boost,
        lambda: us.plan_boost(num_rows=40, num_samples=40, num_discriminators=1, epsilon=1, rounds=5).queries,
        COINS,
        COINS[:, [0, 0]],
    ),
}
EachClient = pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)


def new_book(folder: Path, client: Client) -> BudgetBook:
    return BudgetBook.create(folder / "a.book", epsilon=3, delta=1e-5, protect=client.protect)


def last_outcome(book: BudgetBook) -> Outcome:
    return BudgetBook.open(book.path).reservations[-1].outcome


@pytest.fixture
def fails_after_a_charge(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every run ends right after its first charge."""
    charge = Ledger.charge

    def charge_and_fail(self: Ledger, query: Query) -> Never:
        charge(self, query)
        raise TrainingError("It diverged.")

    monkeypatch.setattr(Ledger, "charge", charge_and_fail)
    yield
    monkeypatch.undo()


# ------------------------------------------------------------------------------------------------------- every client


@EachClient
def test_the_cost_is_reserved_before_the_rows_are_opened(client: Client, tmp_path: Path) -> None:
    book, entries = new_book(tmp_path, client), []

    def note() -> None:
        entries.append(BudgetBook.open(book.path).num_entries)

    if isinstance(client.rows, pa.Table):
        pyarrow.csv.write_csv(client.rows, tmp_path / "rows.csv")
        client.run(NotingFile(tmp_path / "rows.csv", note), book=book)
    else:
        client.run(NotingArray(client.rows, note), book=book)
    assert entries
    assert set(entries) == {2}


@EachClient
def test_a_run_that_fails_counts_with_its_whole_plan(
    client: Client, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    planned = client.queries()
    request.getfixturevalue("fails_after_a_charge")
    book = new_book(tmp_path, client)
    with pytest.raises(us.SpentError) as spent:
        client.run(client.rows, book=book)
    statement = spent.value.statement
    assert not statement.released
    assert [(query.key, query.event) for query in statement.queries] == [(each.key, each.event) for each in planned]
    assert last_outcome(book) is Outcome.FAILED
    (reserved,) = BudgetBook.open(book.path).reservations
    assert reserved.counted == book.terms.cost(planned, us.Guarantee(1.0, statement.delta))
    assert statement.facts.book is not None
    assert statement.facts.book.digest == reserved.digest


@pytest.mark.parametrize("error", [BookError("the disk is full."), MemoryError()], ids=["known", "unknown"])
@EachClient
def test_a_book_that_cannot_be_settled_warns_and_does_not_lose_the_result(
    client: Client, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unwritable(*arguments: object) -> Never:
        raise error

    book = new_book(tmp_path, client)
    monkeypatch.setattr(BudgetBook, "settle", unwritable)
    with pytest.warns(us.UnderstudyWarning, match="stays at the reserved cost") as warned:
        statement = client.run(client.rows, book=book)
    assert [Path(each.filename).name for each in warned] == ["test_run.py"]  # the line that called the package
    assert statement.released
    assert last_outcome(book) is Outcome.OPEN


@EachClient
def test_a_run_that_charges_nothing_gives_its_reservation_back(client: Client, tmp_path: Path) -> None:
    book = new_book(tmp_path, client)
    with pytest.raises((us.UnderstudyError, ValueError)):
        client.run(client.refused, book=book)
    assert last_outcome(book) is Outcome.WITHDRAWN


@EachClient
def test_a_seed_is_warned_of(client: Client) -> None:
    with pytest.warns(us.UnderstudyWarning, match="seeded, so this release is not private"):
        assert client.run(client.rows, seed=1).seeded


def filtered(action: Literal["always", "error"], call: Callable[[], Result]) -> Result:
    """Calls with this filter for all warnings. Inside `pytest.warns`, which restores the filters."""
    warnings.simplefilter(action)
    return call()


@EachClient
def test_a_warning_that_is_an_error_does_not_lose_the_result(client: Client) -> None:
    """The budget is spent: what the filters of the caller make an error is shown, and the result is returned."""
    with pytest.warns(us.UnderstudyWarning, match="seeded, so this release is not private"):
        assert filtered("error", lambda: client.run(client.rows, seed=1)).released


@pytest.mark.usefixtures("fails_after_a_charge")
@pytest.mark.parametrize("client", [CLIENTS["table"], CLIENTS["learner"]], ids=["table", "learner"])
def test_with_a_checkpoint_the_record_is_beside_it(client: Client, tmp_path: Path) -> None:
    with pytest.raises(us.SpentError) as spent:
        client.run(client.rows, checkpoint=tmp_path / "run.checkpoint")
    assert spent.value.record == tmp_path / "run.spent"
    assert read_record(tmp_path / "run.spent") == spent.value.statement


@pytest.mark.usefixtures("fails_after_a_charge")
def test_a_graph_is_recorded_where_its_caller_says(tmp_path: Path) -> None:
    for name in ("run.spent", "run-2.spent"):
        with pytest.raises(us.SpentError) as spent:
            us.fit_graph(EDGES, NODES, epsilon=1, record=tmp_path / "run.spent")
        assert spent.value.record == tmp_path / name
        assert read_record(tmp_path / name) == spent.value.statement


def test_a_learner_is_resumed_with_the_same_noise_and_leaves_no_checkpoint(tmp_path: Path) -> None:
    place, charge = tmp_path / "run.checkpoint", Ledger.charge

    def charge_and_die(self: Ledger, query: Query) -> Never:
        charge(self, query)
        raise KeyboardInterrupt

    def learn(**options: Any) -> us.learners.LogisticRegression:
        learner = us.learners.LogisticRegression(
            guarantee=us.Guarantee(1.0), bounds=(0, 1), classes=[0, 1], num_rows=40, steps=3, **options
        )
        return learner.fit(COINS, COINS[:, 0].astype(int))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "charge", charge_and_die)
        with pytest.raises(KeyboardInterrupt):
            learn(checkpoint=place)
    secret = (place / "run.json").read_bytes()
    with raises(us.CheckpointError, reason="exists"):
        learn(checkpoint=place)
    with raises(us.CheckpointError, reason="other run"):
        learn(checkpoint=place, resume=True, learning_rate=0.2)
    assert (place / "run.json").read_bytes() == secret
    learn(checkpoint=place, resume=True)
    assert not place.exists()


# ------------------------------------------------------------------------------------------------------- command line


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pyarrow.csv.write_csv(TABLE, "table.csv")
    pyarrow.csv.write_csv(EDGES, "graph.csv")
    as_schema(SCHEMA).write("table.toml")
    Path("graph.toml").write_text("[nodes]\ncount = 20\n")
    return tmp_path


def fitted(kind: str, *more: str) -> int:
    method = ("--method", "independent") if kind == "table" else ()
    return command(["fit", f"{kind}.csv", "--schema", f"{kind}.toml", "--epsilon", "1", "-o", "out", *method, *more])


EachKind = pytest.mark.parametrize("kind", ["table", "graph"])


@EachKind
@pytest.mark.usefixtures("place", "fails_after_a_charge")
def test_a_command_that_fails_leaves_a_record(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert fitted(kind, "-q") == 2
    assert capsys.readouterr().err.endswith("The record is out.spent/.\n")
    statement = read_record("out.spent")
    assert statement is not None
    assert 0.99 < statement.epsilon <= 1
    assert not Path("out").exists()


@EachKind
@pytest.mark.usefixtures("place")
def test_totals_are_told_before_the_first_query(
    kind: str, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    assert fitted(kind) == 0
    assert "already holds" not in capsys.readouterr().err
    request.getfixturevalue("fails_after_a_charge")
    assert fitted(kind, "--force") == 2
    first, second = capsys.readouterr().err.splitlines()[-2:]
    assert first.startswith("This folder already holds a release of this table")
    assert second.startswith("understudy: It diverged.")


@EachKind
def test_a_command_whose_book_cannot_be_settled_keeps_its_release(
    kind: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    book = new_book(place, CLIENTS[kind])

    def unwritable(*arguments: object) -> Never:
        raise BookError("the disk is full.")

    monkeypatch.setattr(BudgetBook, "settle", unwritable)
    assert fitted(kind, "--book", "a.book") == 0
    assert "stays at the reserved cost" in capsys.readouterr().err
    assert Path("out/certificate.json").exists()
    assert last_outcome(book) is Outcome.OPEN


# ------------------------------------------------------------------------------------------------------ the owner alone


class Hearing(Listener):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def note(self, note: Note) -> None:
        self.heard.append("note")

    def before_spending(self, facts: PublicFacts, guarantee: Guarantee) -> None:
        self.heard.append(f"before spending {guarantee.epsilon:g}")

    def finished(self, statement: Statement, notes: object) -> None:
        self.heard.append("finished")


def test_what_a_listener_hears_and_that_its_error_refuses_the_run() -> None:
    listener = Hearing()
    with open_run(listener=listener) as run:
        assert listener.heard == []
        run.start("nothing", us.Guarantee(1.0, 1e-6), (), PublicFacts())
        run.finish(run.statement())
    assert listener.heard == ["before spending 1", "finished"]

    class Refusing(Listener):
        def before_spending(self, facts: PublicFacts, guarantee: Guarantee) -> None:
            raise us.ConfigError("No.", setting="listener")

    with raises(us.ConfigError, setting="listener"), open_run(listener=Refusing()) as run:
        run.start("nothing", us.Guarantee(1.0, 1e-6), (), PublicFacts())
    assert not hasattr(run, "ledger")


@pytest.mark.parametrize("action", ["always", "error"])
def test_a_listener_that_fails_at_the_end_does_not_lose_the_result(
    action: Literal["always", "error"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither when it hears of the result, nor of the book."""

    class Failing(Hearing):
        def note(self, note: Note) -> None:
            super().note(note)
            raise OSError("row 317")

        def finished(self, statement: Statement, notes: object) -> None:
            super().finished(statement, notes)
            raise us.ConfigError("row 317")

    def unwritable(*arguments: object) -> Never:
        raise BookError("the disk is full.")

    monkeypatch.setattr(BudgetBook, "settle", unwritable)
    listener, book = Failing(), new_book(tmp_path, CLIENTS["table"])
    with pytest.warns(us.UnderstudyWarning) as warned:
        statement = filtered(action, lambda: fit(TABLE, progress=listener, book=book))
    assert listener.heard[-2:] == ["finished", "note"]
    assert statement.released
    assert ["(ConfigError)" in str(each.message) for each in warned] == [True, False]
    assert not any("317" in str(each.message) for each in warned)


@pytest.mark.usefixtures("fails_after_a_charge")
def test_a_book_that_cannot_be_written_does_not_hide_a_spending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unwritable(*arguments: object) -> Never:
        raise MemoryError

    book = new_book(tmp_path, CLIENTS["table"])
    monkeypatch.setattr(BudgetBook, "settle", unwritable)
    with pytest.raises(us.SpentError):
        fit(TABLE, book=book)
    assert last_outcome(book) is Outcome.OPEN


def failing_run(*, start: bool, finish: bool) -> None:
    with open_run() as run:
        if start:
            run.start("nothing", us.Guarantee(1.0, 1e-6), (), PublicFacts())
        if finish:
            run.finish(run.statement())
        raise LookupError


@pytest.mark.parametrize(
    ("start", "finish", "error"), [(False, False, LookupError), (True, False, FailedRun), (True, True, LookupError)]
)
def test_errors_pass_until_the_ledger_is_open_and_after_the_run_is_settled(
    start: bool, finish: bool, error: type[Exception]
) -> None:
    with pytest.raises(error):
        failing_run(start=start, finish=finish)
