"""Graphs, learners and boosting spend from a budget book as tables do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import understudy as us
from tests.builders import raises
from understudy.cli import run
from understudy.errors import BookError, BookExceeded, ConfigError
from understudy.institution.book import BudgetBook, Policy
from understudy.institution.book.certificate_checks import verify_certificates
from understudy.institution.book.entries import Outcome
from understudy.learners.sklearn import NaiveBayes
from understudy.privacy.accounting.ledger import Statement

EDGES = pa.table({"source": range(20), "target": [(node + 1) % 20 for node in range(20)]})
NODES = {"nodes": {"count": 20}, "graph": {"max_degree": 4}}
COINS = np.asarray([[0.0], [1.0]] * 20)
BOUNDS: dict[str, Any] = {"bounds": (0, 1), "classes": [0, 1], "num_rows": 40}


def fit_graph(book: BudgetBook, **options: Any) -> Statement:
    return us.fit_graph(EDGES, NODES, **{"epsilon": 0.5, "book": book, **options}).statement


def fit_learner(book: BudgetBook, *, epsilon: float = 0.5, **options: Any) -> Statement:
    learner = NaiveBayes(guarantee=us.Guarantee(epsilon), book=book, **BOUNDS, **options)
    return learner.fit(COINS, COINS[:, 0].astype(int)).statement_


def boost(book: BudgetBook, **options: Any) -> Statement:
    given = {"epsilon": 0.5, "num_rows": 40, "rounds": 5, "book": book, **options}
    return us.boost(COINS, [1 - COINS], discriminators=[lambda row: row[0]], **given).statement


RUNS = {"graph": fit_graph, "naive_bayes": fit_learner, "boost": boost}
EachRun = pytest.mark.parametrize("name", RUNS)


def new_book(folder: Path, name: str, epsilon: float = 3.0, **options: Any) -> BudgetBook:
    protect = "edge" if name == "graph" else None
    return BudgetBook.create(folder / "a.book", epsilon=epsilon, delta=1e-5, **{"protect": protect, **options})


@EachRun
def test_a_run_is_settled_at_the_cost_of_its_queries(name: str, tmp_path: Path) -> None:
    book = new_book(tmp_path, name, policy=Policy(methods=(name,)))
    statement = RUNS[name](book)
    (reserved,) = book.reservations
    assert reserved.outcome is Outcome.RELEASED
    assert reserved.facts["method"] == name
    guarantee = us.Guarantee(statement.epsilon_target, statement.delta)
    assert book.total == book.terms.cost(statement.queries, guarantee)
    assert statement.facts.book is not None
    assert statement.facts.book.digest == reserved.digest


@EachRun
@pytest.mark.parametrize(
    ("options", "error", "fields"),
    [
        ({"seed": 1}, ConfigError, {"setting": "seed"}),
        ({"policy": Policy(methods=("mst",))}, ConfigError, {"setting": "methods"}),
        ({"policy": Policy(second_person=True)}, BookError, {"reason": "not approved"}),
        ({"book": None, "policy": Policy()}, ConfigError, {"setting": "book"}),
    ],
)
def test_what_a_book_refuses(
    name: str, tmp_path: Path, options: dict[str, Any], error: type[Exception], fields: dict[str, str]
) -> None:
    book = new_book(tmp_path, name)
    run_: Callable[..., Statement] = RUNS[name]
    given = dict(options)
    with raises(error, **fields):
        run_(given.pop("book", book), **given)
    assert BudgetBook.open(book.path).num_entries == 1


@EachRun
def test_what_does_not_fit_is_refused(name: str, tmp_path: Path) -> None:
    book = new_book(tmp_path, name, epsilon=0.3)
    with pytest.raises(BookExceeded):
        RUNS[name](book, epsilon=2.0)
    assert book.num_entries == 1


def test_graphs_and_tables_have_books_of_their_own(tmp_path: Path) -> None:
    book = new_book(tmp_path, "graph")
    with raises(BookError, reason="other unit"):
        fit_graph(book, protect="node")
    with raises(BookError, reason="other unit"):
        boost(book)


def test_a_graph_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pyarrow.csv.write_csv(EDGES, "edges.csv")
    Path("graph.toml").write_text("[nodes]\ncount = 20\n")
    assert run(["book", "create", "ring.book", "--epsilon", "3", "--delta", "1e-5", "--protect", "edge"]) == 0
    assert run(["plan", "graph.toml", "--epsilon", "1", "--book", "ring.book"]) == 0
    assert "Plan hash: " in capsys.readouterr().out
    assert (
        run(["fit", "edges.csv", "--schema", "graph.toml", "--epsilon", "1", "--book", "ring.book", "-o", "ring"]) == 0
    )
    assert "Budget book ring.book: entry 2" in capsys.readouterr().err
    book = BudgetBook.open("ring.book")
    assert "privacy unit: one edge" in repr(book)
    assert verify_certificates(book, ".") == ([], [])
