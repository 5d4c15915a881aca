"""Counting in dense tables, in chunks and by sorting; and what holds for all metrics that count."""

import json
import math
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from tests.evaluation.encoded import encode, mixed, some_pair
from understudy.errors import ConfigError, SchemaError
from understudy.evaluation import counting
from understudy.evaluation.associations import correlations
from understudy.evaluation.cells import cell_accuracy
from understudy.evaluation.marginals import dimension_probability, nist, one_way, three_way, two_way
from understudy.evaluation.scores import CATALOGUE, Result, Status
from understudy.evaluation.table import EncodedTable

FUNCTIONS: dict[str, Callable[[EncodedTable, EncodedTable], Result]] = {
    "one_way": one_way,
    "two_way": two_way,
    "three_way": three_way,
    "nist": nist,
    "cell_accuracy": lambda r, s: cell_accuracy(r, s, r.layout.names[:2]),
    "correlations": correlations,
    "dimension_probability": dimension_probability,
}
ZERO = {
    **dict.fromkeys(("tv1", "tv1_max", "jsd1", "ks", "w1", "tv2", "tv2_max", "tv3", "nist_l1", "cell_tv"), 0.0),
    **dict.fromkeys(
        ("corr_diff", "corr_diff_max", "dwp_rmse", "dwp_sum_squares", "dwp_mean_abs", "dwp_zero_share"), 0.0
    ),
    "nist_score": 1.0,
    "nist_points": 1e6,
    "cell_accuracy": 1.0,
    "dwp_correlation": 1.0,
}
"""What a table scores against itself."""

ODD: dict[str, tuple[Mapping, Mapping]] = {
    "one row": ({"x": [1.0], "y": ["a"], "z": [True]}, {"x": [2.0], "y": ["b"], "z": [False]}),
    "constant columns": (
        {"x": [1.0] * 5, "y": ["a"] * 5, "z": [True] * 5},
        {"x": [1.0] * 5, "y": ["a"] * 5, "z": [True] * 5},
    ),
    "nulls only in synthetic": (
        {"x": [1.0, 2.0], "y": ["a", "b"], "z": [True, False]},
        {"x": pa.nulls(3, pa.float64()), "y": pa.nulls(3, pa.string()), "z": pa.nulls(3, pa.bool_())},
    ),
    "infinite values": (
        {"x": [1.0, 2.0, math.inf], "y": ["a", "b", "a"], "z": [True, False, True]},
        {"x": [math.inf, -math.inf, 1e300], "y": ["a", "b", "q"], "z": [True, False, None]},
    ),
    "two numbers": ({"x": [1.0, 2.0], "y": [3, 4]}, {"x": [1.0, 5.0], "y": [4, 4]}),
    "one column": ({"x": ["a", "b"]}, {"x": ["a", "c"]}),
}


@pytest.fixture(scope="module")
def pair() -> tuple[EncodedTable, EncodedTable]:
    return some_pair()


def test_chunks_change_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = [np.arange(1000) % 7, np.arange(1000) % 3]
    whole = counting.dense_counts(codes, (7, 3))
    monkeypatch.setattr(counting, "CHUNK_ROWS", 10)
    assert np.array_equal(counting.dense_counts(codes, (7, 3)), whole)
    assert whole.sum() == 1000


def test_keys_of_more_cells_than_an_integer_holds() -> None:
    draw = np.random.default_rng(0)
    tables = [[draw.integers(0, 2, 200) * 65_535 for _ in range(8)] for _ in range(2)]
    keys = counting.joint_keys(tables, [65_536] * 8)  # 2^128 cells
    rows = [list(zip(*table, strict=True)) for table in tables]
    flat, joined = [*rows[0], *rows[1]], np.concatenate(keys)
    names = dict(zip(flat, joined.tolist(), strict=True))
    assert [names[row] for row in flat] == joined.tolist()
    assert len(set(names.values())) == len(set(flat))


def test_sparse_counting_equals_dense_counting(
    pair: tuple[EncodedTable, EncodedTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    dense = {name: function(*pair) for name, function in FUNCTIONS.items()}
    monkeypatch.setattr(counting, "DENSE_CELLS", 0)
    monkeypatch.setattr(counting, "CHUNK_ROWS", 100)
    for name, function in FUNCTIONS.items():
        for key, score in function(*pair).scores.items():
            assert score.value == pytest.approx(dense[name][key], rel=1e-9, abs=1e-12), key


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda r, s: cell_accuracy(r, s, ["age", "age"]), ConfigError),
        (lambda r, s: cell_accuracy(r, s, ["agee"]), SchemaError),
        (lambda r, s: one_way(r, s, bins=0), ConfigError),
        (lambda r, s: nist(r, s, bins=0), ConfigError),
        (lambda r, s: three_way(r, s, num_triples=0), ConfigError),
    ],
)
def test_bad_settings_are_refused(
    pair: tuple[EncodedTable, EncodedTable], call: Callable, error: type[Exception]
) -> None:
    with pytest.raises(error):
        call(*pair)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_table_against_itself(pair: tuple[EncodedTable, EncodedTable], name: str) -> None:
    for key, score in FUNCTIONS[name](pair[0], pair[0]).scores.items():
        assert score.value == pytest.approx(ZERO[key], abs=1e-9), key


@pytest.mark.parametrize("name", FUNCTIONS)
def test_order_and_copies_of_rows_do_not_matter(pair: tuple[EncodedTable, EncodedTable], name: str) -> None:
    real, fake = pair
    draw = np.random.default_rng(0)
    shuffled = [table.take(draw.permutation(table.num_rows)) for table in pair]
    doubled = fake.take(np.tile(np.arange(fake.num_rows), 2))
    expected = FUNCTIONS[name](real, fake).scores
    for other in (FUNCTIONS[name](*shuffled), FUNCTIONS[name](real, doubled)):
        for key, score in other.scores.items():
            assert score.value == pytest.approx(expected[key].value, abs=1e-9), key


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n != "cell_accuracy"])
def test_order_of_columns_does_not_matter(name: str) -> None:
    tables = [mixed(300, 0), mixed(300, 1, shift=0.2)]
    straight = FUNCTIONS[name](*encode(*tables))
    turned = FUNCTIONS[name](*encode(*(t.select(t.column_names[::-1]) for t in tables)))
    for key, score in turned.scores.items():
        assert score.value == pytest.approx(straight[key], abs=1e-9), key


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("case", ODD)
def test_odd_tables_give_a_number_or_a_reason(case: str, name: str) -> None:
    real, fake = encode(*ODD[case])
    result = FUNCTIONS[name](real, fake)
    for key, score in result.scores.items():
        if score.is_defined:
            assert CATALOGUE[key].low - 1e-9 <= score.value <= CATALOGUE[key].high + 1e-9
        else:
            assert score.status is Status.UNDEFINED
            assert score.why.endswith(".")
    json.dumps([result.settings, result.details], allow_nan=False)
    assert result.settings["real_rows"] == real.num_rows
    assert result.settings["synthetic_rows"] == fake.num_rows


def test_an_all_null_column_with_declared_bounds() -> None:
    columns = (us.Column(name="x", kind="real", bounds=(0.0, 1.0)), us.Column(name="y", kind="boolean"))
    nulls = {"x": pa.nulls(3, pa.float64()), "y": [True, False, None]}
    real, fake = encode(nulls, {"x": [0.1, 0.2, None], "y": [True, None, None]}, schema=us.Schema(columns=columns))
    result = one_way(real, fake)
    assert result["tv1"] == pytest.approx((2 / 3 + 1 / 3) / 2)
    assert not result.scores["ks"].is_defined
    for function in FUNCTIONS.values():
        json.dumps(function(real, fake).details, allow_nan=False)
