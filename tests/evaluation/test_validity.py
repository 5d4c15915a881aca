"""Rows that could not be real, by slow counts; broken rules; nearest rows, which prove nothing about privacy."""

import itertools
import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.spatial.distance import cdist

import understudy as us
from tests.builders import raises
from tests.evaluation.encoded import encode
from understudy.errors import ConditionError, ConfigError
from understudy.evaluation.scores import CATALOGUE, Direction, Result, Status, metrics_of
from understudy.evaluation.validity import closest_record, rule_violations, validity


def mixed(num_rows: int, seed: int) -> dict:
    draw = np.random.default_rng(seed)
    return {
        "x": pa.array(np.round(draw.random(num_rows), 3), mask=draw.random(num_rows) < 0.1),
        "y": draw.integers(0, 100, num_rows),
        "c": draw.choice(list("abcdefgh"), num_rows, p=[0.4, 0.3, 0.1, 0.1, 0.05, 0.03, 0.01, 0.01]),
        "d": pa.array(draw.choice(list("uvwxyz"), num_rows), mask=draw.random(num_rows) < 0.02),
        "e": draw.random(num_rows) < 0.1,
    }


# ------------------------------------------------------------------------------------------------------ cells and pairs


def test_faults_by_hand() -> None:
    real, fake = encode(
        {"x": [0.0, 1.0, 0.5], "n": [1, None, 3], "c": ["a", "b", "a"], "d": ["u", None, "v"]},
        {"x": [-0.1, 0.5, None, 1.0], "n": [None, 4, 3, 0], "c": ["a", None, "z", "b"], "d": ["u", None, "q", "v"]},
    )
    result = validity(real, fake)
    assert result.details["columns"] == {
        "x": {"out_of_range": 0.25, "unlisted": None, "unexpected_nulls": 0.25},
        "n": {"out_of_range": 0.5, "unlisted": None, "unexpected_nulls": None},
        "c": {"out_of_range": None, "unlisted": 0.25, "unexpected_nulls": 0.25},
        "d": {"out_of_range": None, "unlisted": 0.25, "unexpected_nulls": None},
    }
    assert result["out_of_range"] == pytest.approx(3 / 8)
    assert result["unlisted"] == pytest.approx(2 / 8)
    assert result["unexpected_nulls"] == pytest.approx(2 / 8)
    assert result["invalid_cells"] == pytest.approx(7 / 16)


def test_ranges_and_categories_come_from_the_schema() -> None:
    columns = (
        us.Column(name="x", kind="integer", bounds=(0, 10)),
        us.Column(name="c", kind="categorical", categories=("a", "b"), closed=True),
    )
    schema = us.Schema(columns=columns)
    table = {"x": [10, 11, -1, 5], "c": ["a", "b", "c", "a"]}
    real, fake = encode({"x": [4, 5], "c": ["a", "a"]}, table, schema=schema)
    assert validity(real, fake)["out_of_range"] == 0.5
    assert validity(real, fake)["unlisted"] == 0.25


def test_no_value_of_an_open_list_is_invalid() -> None:
    schema = us.Schema(columns=(us.Column(name="c", kind="categorical", categories=("a", "b")),))
    real, fake = encode({"c": ["a", "b"]}, {"c": ["a", "other"]}, schema=schema)
    assert validity(real, fake)["invalid_cells"] == 0.0
    assert validity(real, fake).scores["unlisted"].why == "There is no discrete column with a closed list."


def test_impossible_pairs_equal_a_slow_search() -> None:
    tables = [mixed(200, 0), mixed(150, 1)]
    tables[1]["c"][3] = "new"
    real, fake = encode(*tables)
    discrete = [spec.name for spec in real.layout.discrete]
    bad, shares = set(), {}
    for a, b in itertools.combinations(discrete, 2):
        seen = set(zip(real[a].tolist(), real[b].tolist(), strict=True))
        pairs = enumerate(zip(fake[a].tolist(), fake[b].tolist(), strict=True))
        rows = {row for row, pair in pairs if pair not in seen}
        shares[a, b] = len(rows) / 150
        bad |= rows
    result = validity(real, fake)
    assert 0 < len(bad) < 150
    assert result["impossible_pairs"] == pytest.approx(len(bad) / 150)
    found = result.details["pairs"]
    assert isinstance(found, list)
    assert {tuple(entry["columns"]): entry["fraction"] for entry in found} == {p: s for p, s in shares.items() if s}
    assert [entry["fraction"] for entry in found] == sorted((s for s in shares.values() if s), reverse=True)
    assert validity(real, real)["impossible_pairs"] == 0.0


def test_rare_pairs_of_fresh_real_rows_count_too() -> None:
    real, fresh = encode(mixed(300, 0), mixed(300, 1))
    assert validity(real, fresh)["impossible_pairs"] > 0
    meaning = CATALOGUE["impossible_pairs"].meaning
    assert "Rare but possible" in meaning


def test_order_and_copies_of_rows_do_not_matter() -> None:
    real, fake = encode(mixed(200, 0), mixed(150, 1))
    draw = np.random.default_rng(0)
    doubled = fake.take(draw.permutation(np.tile(np.arange(150), 2)))
    expected, found = validity(real, fake), validity(real.take(draw.permutation(200)), doubled)
    for key, score in expected.scores.items():
        assert found[key] == pytest.approx(score.value), key


ODD: dict[str, tuple[Mapping, Mapping]] = {
    "one row": ({"x": [1.0], "y": ["a"]}, {"x": [2.0], "y": ["b"]}),
    "numbers only": ({"x": [1.0, 2.0]}, {"x": [None, 3.0]}),
    "one discrete column": ({"x": ["a", None]}, {"x": ["b", None]}),
    "infinite values": ({"x": [1.0, 2.0], "y": ["a", "b"]}, {"x": [math.inf, -math.inf], "y": [None, "b"]}),
    "nulls only": (
        {"x": [1.0, 2.0], "y": [True, False]},
        {"x": pa.nulls(2, pa.float64()), "y": pa.nulls(2, pa.bool_())},
    ),
    "constant columns": ({"x": [1.0, 1.0], "y": ["a", "a"]}, {"x": [1.0, 1.0], "y": ["a", "a"]}),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_tables_give_a_number_or_a_reason(case: str) -> None:
    real, fake = encode(*ODD[case])
    for result in (validity(real, fake), closest_record(real, fake, holdout=fake), closest_record(real, fake)):
        for key, score in result.scores.items():
            if score.is_defined:
                assert CATALOGUE[key].low <= score.value <= CATALOGUE[key].high
            else:
                assert score.why.endswith(".")
        json.dumps([result.settings, result.details], allow_nan=False)
        assert result.settings["synthetic_rows"] == fake.num_rows


# ---------------------------------------------------------------------------------------------------------------- rules


REAL = pa.table({"age": [20, 40, 60, None], "work": ["none", "baker", "baker", "none"]})
FAKE = pa.table({"age": [10, 12, 50, None, 30], "work": ["baker", "none", "baker", "baker", None]})


def broken_by(result: Result) -> list[tuple[object, ...]]:
    """Each rule with the numbers of real and of synthetic rows that break it."""
    return [(each["rule"], each["real_broken"], each["synthetic_broken"]) for each in result.details["rules"]]


def test_broken_conditions_by_hand() -> None:
    """A null makes a condition unknown, which does not break it; a row that breaks two counts once."""
    conditions = ["age >= 18", "NOT (age < 15 AND work = 'baker')", "work IN ('none', 'baker') -- or null"]
    result = rule_violations(REAL, FAKE, conditions=conditions)
    assert result["constraint_violations"] == pytest.approx(2 / 5)
    assert result.details["any"] == {"real": 0.0, "synthetic": 0.4, "real_broken": 0, "synthetic_broken": 2}
    assert broken_by(result) == [(conditions[0], 0, 2), (conditions[1], 0, 1), (conditions[2], 0, 0)]
    found = result.details["rules"]
    assert [(each["real"], each["synthetic"], each["source"]) for each in found] == [
        (0.0, 0.4, "constraint"),
        (0.0, 0.2, "constraint"),
        (0.0, 0.0, "constraint"),
    ]
    assert [each["synthetic_unknown"] for each in found] == [0.2, 0.2, 0.2]
    assert found[0]["real_unknown"] == 0.25
    json.dumps([result.settings, result.details], allow_nan=False)
    assert rule_violations(REAL, FAKE, conditions=["age >= 50"]).details["any"]["real"] == 0.5


def test_a_bad_condition_is_quoted_as_it_was_written() -> None:
    with raises(ConditionError, column="agee"):
        rule_violations(REAL, FAKE, conditions=["agee >= 18"])
    with pytest.raises(ConditionError) as caught:
        rule_violations(REAL, FAKE, conditions=["age >="])
    assert "NOT" not in str(caught.value)


@pytest.mark.parametrize("condition", ["age > 35 OR age < 11", "age > 11 AND work <> 'none'"])
def test_every_row_meets_a_condition_breaks_it_or_leaves_it_unknown(condition: str) -> None:
    broken = {
        "age > 35 OR age < 11": [12, 30],
        "age > 11 AND work <> 'none'": [10, 12],  # work is unknown at 30, and age where work is baker
    }[condition]
    assert broken_by(rule_violations(REAL, FAKE, conditions=[condition]))[0][2] == len(broken)


def test_no_rule_or_no_row_has_no_score() -> None:
    assert not rule_violations(REAL, FAKE).scores["constraint_violations"].is_defined
    empty = rule_violations(REAL, FAKE.slice(0, 0), conditions=["age > 1"])
    assert not empty.scores["constraint_violations"].is_defined
    assert broken_by(empty) == [("age > 1", 0, 0)]


def test_rules_of_the_schema_stand_before_further_conditions() -> None:
    rules = [
        us.schema.Combinations(combinations=("age", "work"), forbidden=((10, "baker"), (60, "baker"))),
        us.schema.Sum(sum=("age", "double"), at_most=100),
    ]
    real, fake = (
        table.append_column("double", [[2 * (age or 0) for age in table["age"].to_pylist()]]) for table in (REAL, FAKE)
    )
    result = rule_violations(real, fake, rules, ["age <> 12"])
    assert broken_by(result) == [(rules[0].text, 1, 1), (rules[1].text, 2, 1), ("age <> 12", 0, 1)]
    assert [each["source"] for each in result.details["rules"]] == ["schema", "schema", "constraint"]
    assert result["constraint_violations"] == 0.6  # three different rows


def test_a_rule_about_a_column_that_a_table_lacks_is_not_checked() -> None:
    rules = [
        us.schema.Combinations(combinations=("age", "work"), forbidden=((10, "baker"),)),
        us.schema.Sum(sum=("age", "absent"), at_most=100),
    ]
    result = rule_violations(REAL, FAKE, rules)
    assert broken_by(result) == [(rules[0].text, 0, 1), (rules[1].text, None, None)]
    assert [each["why"] for each in result.details["rules"]] == ["", "The real table lacks the column 'absent'."]
    assert result["constraint_violations"] == 0.2
    narrow = rule_violations(REAL, FAKE.select(["age"]), rules)
    assert narrow.details["rules"][0]["why"] == "The synthetic table lacks the column 'work'."
    assert narrow.scores["constraint_violations"].status is Status.MISSING_INPUT
    json.dumps(narrow.details, allow_nan=False)


# --------------------------------------------------------------------------------------------------------- nearest rows


def test_distances_equal_a_full_search() -> None:
    real, fake, holdout = encode(mixed(300, 0), mixed(200, 1), mixed(100, 2))
    result = closest_record(real, fake, holdout=holdout)
    distances = {name: cdist(t.features(), real.features()).min(axis=1) for name, t in (("s", fake), ("h", holdout))}
    synthetic, fresh = result.details["synthetic"], result.details["holdout"]
    assert isinstance(synthetic, dict)
    assert isinstance(fresh, dict)
    assert synthetic["mean"] == pytest.approx(distances["s"].mean(), abs=1e-6)
    assert synthetic["median"] == pytest.approx(np.median(distances["s"]), abs=1e-6)
    assert fresh["median"] == pytest.approx(np.median(distances["h"]), abs=1e-6)
    assert result["dcr_ratio"] == pytest.approx(np.median(distances["s"]) / np.median(distances["h"]), rel=1e-5)


def test_copies_are_equal_in_every_column() -> None:
    table = {"x": [0.0, None, 2.0], "n": [1, 2, 3], "c": ["a", "b", None]}
    real, fake = encode(table, {"x": [-0.0, None, 2.0, 2.0], "n": [1, 2, 3, 3], "c": ["a", "b", None, "a"]})
    result = closest_record(real, fake, holdout=fake)
    assert result["exact_copies"] == 0.75
    holdout = result.details["holdout"]
    assert isinstance(holdout, dict)
    assert holdout["exact_copies"] == 0.75
    assert not result.scores["dcr_ratio"].is_defined  # most held-out rows are at distance 0
    swapped = encode({"x": [1, 2], "y": [2, 1]}, {"x": [1, 2, 3], "y": [1, 2, 3]})
    assert closest_record(*swapped)["exact_copies"] == 0.0


def test_copies_equal_a_slow_count() -> None:
    tables = [{k: v for k, v in mixed(n, seed).items() if k in "cde"} for n, seed in ((100, 0), (400, 1))]
    real, fake = encode(*tables)
    rows = [list(zip(*(t[name].tolist() for name in "cde"), strict=True)) for t in (real, fake)]
    share = np.mean([row in set(rows[0]) for row in rows[1]])
    assert 0 < share < 1
    assert closest_record(real, fake)["exact_copies"] == pytest.approx(share)


def test_real_rows_themselves_are_all_copies_at_distance_zero() -> None:
    real, holdout = encode(mixed(300, 0), mixed(300, 1))
    result = closest_record(real, real, holdout=holdout)
    assert result["exact_copies"] == 1.0
    assert result["dcr_ratio"] == 0.0
    assert closest_record(real, holdout, holdout=holdout)["dcr_ratio"] == 1.0


def test_large_tables_are_sampled_by_the_seed() -> None:
    real, fake = encode(mixed(900, 0), mixed(300, 1))
    result = closest_record(real, fake, holdout=fake, max_rows=10)
    assert result.settings["real_rows_searched"] == 500
    assert result.settings["synthetic_rows_asked"] == 10
    assert result.settings["real_rows"] == 900
    assert result == closest_record(real, fake, holdout=fake, max_rows=10)
    assert result.details != closest_record(real, fake, holdout=fake, max_rows=10, seed=1).details
    with pytest.raises(ConfigError):
        closest_record(real, fake, max_rows=0)


def test_nearest_rows_are_not_called_a_proof_of_privacy() -> None:
    real, fake = encode(mixed(30, 0), mixed(30, 1))
    result = closest_record(real, fake)
    assert any("no evidence of privacy" in note for note in result.notes)
    assert "no held-out" in result.scores["dcr_ratio"].why
    assert CATALOGUE["dcr_ratio"].direction is Direction.NEAR_ONE
    assert all("no evidence of privacy" in CATALOGUE[key].meaning for key in ("dcr_ratio", "exact_copies"))


def test_every_key_is_explained() -> None:
    real, fake = encode(mixed(30, 0), mixed(30, 1))
    rules = rule_violations(REAL, FAKE, conditions=["age > 1"])
    results = (validity(real, fake), closest_record(real, fake), rules)
    keys = [key for result in results for key in result.scores]
    assert sorted(keys) == sorted(
        m.key for group in ("validity", "constraints", "closest_record") for m in metrics_of(group)
    )


def test_adult_equals_a_slow_count(understudy_data: Path) -> None:
    path = understudy_data / "adult_train.parquet"
    if not path.exists():
        pytest.skip("There is no adult_train.parquet in the folder of public tables.")
    table = pq.read_table(path)
    real, fake = table.slice(0, 500), table.slice(500, 500)
    seen, asked = real.to_pydict(), fake.to_pydict()
    bad = 0
    for name, column in seen.items():
        known = [value for value in column if value is not None]
        for value in asked[name]:
            if isinstance(known[0], int):
                bad += not min(known) <= value <= max(known)
            else:
                bad += value not in column
    found = validity(*encode(real, fake))["invalid_cells"]
    assert bad > 0
    assert found == pytest.approx(bad / (500 * len(seen)))
