"""Tasks of `selected`: forests, the Jensen-Shannon score, and tasks of users, whatever they try."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from tests.builders import raises
from tests.synthesizers.test_boosted import distance, fitted
from tests.synthesizers.walk import DOMAIN, REAL, Law, Walk, book, real_rows
from understudy.errors import ConfigError
from understudy.models.protocol import Sample
from understudy.privacy.accounting.events import Selections
from understudy.privacy.accounting.ledger import Query
from understudy.privacy.mechanisms.selection import noisy_function_selections
from understudy.schema import Domain
from understudy.synthesizers.selected.method import Selected
from understudy.synthesizers.selected.tasks import (
    TASKS,
    Task,
    add_task,
    divergence_scores,
    find_user_task,
    fit_forest,
    row_functions,
    score_by_task,
)


@pytest.fixture
def task() -> Iterator[str]:
    """A name that is free again afterwards."""
    yield "mine"
    TASKS.pop("mine", None)


def sums_of(task: Task, rows: Any) -> np.ndarray:
    tables = [Law(REAL).sample(100, key=jax.random.key(seed)) for seed in range(2)]
    functions = score_by_task(task, tables, DOMAIN, rows.scales)
    return noisy_function_selections(rows, functions, Query("s", "s", Selections(0.1)), book())._exact_sums / 2**20


# ------------------------------------------------------------------------------------------------------- tasks of users


def test_a_task_of_a_user_selects_a_late_checkpoint(task: str) -> None:
    """Predicts the first column by the most frequent one beside each value of the second."""

    def most_frequent(table: Any) -> Any:
        counts = np.zeros((3, 2))
        np.add.at(counts, (table["b"], table["a"]), 1)
        guess = jnp.asarray(counts.argmax(axis=1), dtype=jnp.int32)
        return lambda row: (guess[row["b"]] == row["a"]).astype(jnp.float32)

    add_task(task, most_frequent)
    method = Selected(Walk(), task=task, checkpoints=5, holdout_fraction=0.0, selection_fraction=0.5)
    model = fitted(method, book(8.0), real_rows(20_000))
    assert distance(model.sample(20_000, key=jax.random.key(0)).codes) < 0.35


def test_a_task_sees_numbers_as_positions_and_categories_as_codes() -> None:
    rows = real_rows(300, numeric=True)
    found: dict[str, Any] = {}

    def look(table: Any) -> Any:
        found.update(table)
        return lambda row: row["a"] * 0.5 + row["b"].astype(jnp.float32) * 0.25

    sums = sums_of(look, rows)
    expected = (rows._positions[:, 0] * 0.5 + rows._codes[:, 1] * 0.25).clip(0, 1).sum()
    np.testing.assert_allclose(sums, expected, rtol=1e-5)
    assert found["a"].dtype == np.float32
    assert set(found["a"]) == {0.25, 0.75}  # the middles of bins: the tables have codes only
    assert found["b"].dtype == np.int32


HOSTILE: dict[str, Task] = {
    "NaN": lambda table: lambda row: row["a"] * jnp.float32(jnp.nan),
    "huge": lambda table: lambda row: jnp.float32(1e9),
    "minus infinity": lambda table: lambda row: jnp.float32(-jnp.inf),
    "call order": lambda table: _counting(),
    "memory": lambda table: _remembering(),
}


def _counting() -> Any:
    calls = itertools.count()
    return lambda row: jnp.float32(0.1 * next(calls)) + 0.0 * row["a"]


def _remembering() -> Any:
    seen: list[Any] = []

    def score(row: Any) -> Any:
        seen.append(row["a"])
        return jnp.stack(seen).sum().astype(jnp.float32)

    return score


def test_a_run_with_a_task_of_a_user_cannot_be_resumed(task: str, tmp_path: Path) -> None:
    """Resumed from two copies with two functions, the same noise would give their exact difference. It is refused
    before a checkpoint is there, also where the task is inside of another method."""
    add_task(task, lambda table: lambda row: row["a"])
    table = pa.table({"a": [0, 1] * 50, "b": ["x", "y"] * 50})
    for method in (f"selected(dpgan, task={task})", f"quail(selected(dpgan, task={task}))"):
        with raises(ConfigError, setting="checkpoint"):
            us.fit(table, method, epsilon=1, target="b", checkpoint=tmp_path / "run")
        assert not (tmp_path / "run").exists()
    assert find_user_task(us.Quail(us.Selected(us.DPGAN(), task="marginals"))) is None


@pytest.mark.parametrize("name", HOSTILE)
def test_one_row_more_moves_all_sums_one_way_by_at_most_one(name: str) -> None:
    """Whatever the task does; and the order of rows changes nothing."""
    rows = real_rows(40)
    from understudy.privacy.rows.rows import PrivateRows

    codes = rows._codes
    tables = [PrivateRows(each, DOMAIN) for each in (codes, codes[1:], codes[::-1])]
    whole, without, turned = (sums_of(HOSTILE[name], each) for each in tables)
    moved = whole - without
    assert moved.min() >= 0
    assert moved.max() <= 1
    np.testing.assert_array_equal(whole, turned)


@pytest.mark.parametrize(
    ("hostile", "words"),
    [
        (lambda table: lambda row: jnp.stack([row["a"], row["b"]]), "one number for one row"),
        (lambda table: lambda row: jnp.zeros(len(table["a"])), "one number for one row"),
        (lambda table: lambda row: float(row["a"]), "JAX can trace"),
        (lambda table: lambda row: jax.pure_callback(np.sum, jax.ShapeDtypeStruct((), jnp.int32), row["a"]), "effects"),
        (lambda table: 3, "a function of one row, found int"),
        (lambda table: np.zeros(1)[table["a"]], "failed on generated rows: IndexError"),
    ],
)
def test_a_task_without_one_number_for_a_row_is_refused_before_training(hostile: Task, words: str, task: str) -> None:
    add_task(task, hostile)
    ledger = book()
    with pytest.raises(ConfigError, match=words):
        fitted(Selected(Walk(), task=task, checkpoints=5), ledger)
    assert not ledger.queries


@pytest.mark.parametrize(
    ("name", "task_", "setting"),
    [
        ("accuracy", lambda table: None, "name"),
        ("two words", lambda table: None, "name"),
        ("mine", 3, "task"),
    ],
)
def test_bad_tasks_are_refused(name: str, task_: Any, setting: str) -> None:
    with raises(ConfigError, setting=setting):
        add_task(name, task_)


# -------------------------------------------------------------------------------------------------------------- forests


def test_a_forest_is_scikit_learns() -> None:
    """The same probabilities, each row by itself; a class without labels has none."""
    from sklearn.ensemble import RandomForestClassifier

    generator, seed = np.random.default_rng(0), np.asarray([1, 2], dtype=np.uint32)
    codes = generator.integers((4, 3, 2), size=(300, 3), dtype=np.int32)
    labels = np.where((codes[:, 0] > 1) ^ (generator.random(300) < 0.2), 2, 0)
    probabilities = fit_forest(codes[:, :2], labels, 3, seed)
    oracle = RandomForestClassifier(30, max_depth=12, min_samples_leaf=5, random_state=np.random.RandomState(seed))
    expected = oracle.fit(codes[:, :2], labels).predict_proba(codes[:, :2])
    found = probabilities(codes[:, :2])
    np.testing.assert_allclose(found[:, [0, 2]], expected, atol=1e-12)
    assert not found[:, 1].any()
    np.testing.assert_array_equal(found, np.concatenate([probabilities(codes[at : at + 1, :2]) for at in range(300)]))


def test_the_divergence_score_is_highest_for_the_nearest_table() -> None:
    """Real rows of a known law, and tables that are nearer and nearer to it; scores are from 0 to 1, row by row."""
    domain = Domain(names=("a", "b"), sizes=(2, 3), num_rows=3000)
    tables = [Law(t * REAL + (1 - t) * REAL[::-1]).sample(3000, key=jax.random.key(7)) for t in (0.2, 0.6, 1.0)]
    real = Law(REAL).sample(3000, key=jax.random.key(8)).codes
    seed = np.asarray([0, 1], dtype=np.uint32)
    functions = row_functions(divergence_scores([Sample(*each) for each in tables], domain, seed))
    assert functions.values is not None
    scores = functions.values(real)
    assert scores.min() >= 0
    assert scores.max() <= 1
    assert list(np.argsort(scores.mean(axis=0))) == [0, 1, 2]
    np.testing.assert_array_equal(functions.values(real[::-1]), scores[::-1])
