"""Rules of the schema in `evaluate`: every kind is counted exactly, against a check of each row in plain Python."""

import json
import time
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import understudy as us
from understudy.evaluation.evaluate import evaluate
from understudy.evaluation.scorecard import Scorecard

Row = dict[str, Any]

SCHEMA = """
table.rows = 3000
[columns]
admitted = {kind = "date", bounds = [2020-01-01, 2020-12-31]}
discharged = {kind = "date", bounds = [2020-01-01, 2021-12-31]}
sex = {kind = "categorical", categories = ["female", "male"]}
pregnant = {kind = "categorical", categories = ["no", "yes"]}
country = {kind = "categorical", categories = ["France", "Peru"]}
currency = {kind = "categorical", categories = ["EUR", "PEN"]}
zip = {kind = "categorical", categories = ["10115", "20095"]}
city = {kind = "categorical", categories = ["Berlin", "Hamburg"]}
adults = {kind = "integer", bounds = [0, 5]}
children = {kind = "integer", bounds = [0, 5]}
persons = {kind = "integer", bounds = [0, 10]}
employed = {kind = "categorical", categories = ["no", "yes"]}
employer = {kind = "categorical", categories = ["A", "B"]}
[[rules]]
keep = "discharged >= admitted"
[[rules]]
when = "sex = 'male'"
then = "pregnant = 'no'"
[[rules]]
combinations = ["country", "currency"]
allowed = [["France", "EUR"], ["Peru", "PEN"]]
[[rules]]
determines = ["zip"]
gives = ["city"]
table = [["10115", "Berlin"], ["20095", "Hamburg"]]
[[rules]]
sum = ["adults", "children"]
equals = "persons"
[[rules]]
skip = "employer"
when = "employed = 'no'"
"""


def known(row: Row, *names: str) -> bool:
    return all(row[name] is not None for name in names)


BREAKS: list[Callable[[Row], bool]] = [
    lambda row: known(row, "admitted", "discharged") and row["discharged"] < row["admitted"],
    lambda row: row["sex"] == "male" and row["pregnant"] == "yes",
    lambda row: (
        known(row, "country", "currency")
        and (row["country"], row["currency"]) not in {("France", "EUR"), ("Peru", "PEN")}
    ),
    lambda row: known(row, "zip", "city") and {"10115": "Berlin", "20095": "Hamburg"}[row["zip"]] != row["city"],
    lambda row: known(row, "adults", "children", "persons") and row["adults"] + row["children"] != row["persons"],
    lambda row: known(row, "employed") and (row["employed"] == "no") != (row["employer"] is None),
]
"""The rules of SCHEMA in plain Python, in its order."""


def stays(num_rows: int, seed: int) -> pa.Table:
    """Independent columns with nulls: about half of the rows break most rules."""
    draw = np.random.default_rng(seed)

    def choose(*values: object) -> pa.Array:
        return pa.array([values[i] for i in draw.integers(0, len(values), num_rows)])

    def days() -> list[date | None]:
        return [
            None if day > 360 else date(2020, 1, 1) + timedelta(int(day)) for day in draw.integers(0, 366, num_rows)
        ]

    def count(most: int) -> pa.Array:
        return pa.array(draw.integers(0, most, num_rows), mask=draw.random(num_rows) < 0.02)

    return pa.table(
        {
            "admitted": days(),
            "discharged": days(),
            "sex": choose("female", "male", None),
            "pregnant": choose("no", "yes", None),
            "country": choose("France", "Peru", "Peru", None),
            "currency": choose("EUR", "PEN", None),
            "zip": choose("10115", "20095", None),
            "city": choose("Berlin", "Hamburg", None),
            "adults": count(3),
            "children": count(3),
            "persons": count(5),
            "employed": choose("no", "yes", None),
            "employer": choose("A", "B", None),
        }
    )


def broken_rows(table: pa.Table) -> list[list[bool]]:
    """For each rule, whether each row breaks it."""
    rows = table.to_pylist()
    return [[breaks(row) for row in rows] for breaks in BREAKS]


def details(scores: Scorecard, name: str = "synthetic") -> dict[str, Any]:
    return scores.to_json()["details"]["constraints"][name]


REAL, TEST, FAKE = stays(3000, 0), stays(1000, 1), stays(2500, 2)


@pytest.fixture(scope="module")
def scores() -> Scorecard:
    schema = us.Schema.from_toml(SCHEMA)
    constraints = ["adults > 0"]
    return evaluate(REAL, FAKE, schema=schema, holdout=TEST, metrics=["constraints"], constraints=constraints)


def test_every_kind_is_counted_exactly(scores: Scorecard) -> None:
    for name, table in (("synthetic", FAKE), ("real", TEST)):
        found = details(scores, name)["rules"]
        assert [each["source"] for each in found] == ["schema"] * 6 + ["constraint"]
        for each, real, ours in zip(found, broken_rows(REAL), broken_rows(table), strict=False):
            assert sum(real) > 50  # so that the oracle is tried
            assert sum(ours) > 50
            assert (each["real_broken"], each["synthetic_broken"]) == (sum(real), sum(ours)), each["rule"]
            assert each["real"] == pytest.approx(np.mean(real), rel=1e-5)
            assert each["synthetic"] == pytest.approx(np.mean(ours), rel=1e-5)


def test_a_row_that_breaks_several_rules_counts_once(scores: Scorecard) -> None:
    no_adult = [row["adults"] == 0 for row in FAKE.to_pylist()]
    expected = np.mean(np.any([*broken_rows(FAKE), no_adult], axis=0))
    assert scores["constraint_violations"] == pytest.approx(expected, rel=1e-5)
    held_out = np.any([*broken_rows(TEST), [row["adults"] == 0 for row in TEST.to_pylist()]], axis=0)
    assert scores.reference("constraint_violations") == pytest.approx(np.mean(held_out), rel=1e-5)


def test_the_rules_are_those_of_the_schema(scores: Scorecard) -> None:
    texts = [rule.text for rule in us.Schema.from_toml(SCHEMA).rules]
    assert [each["rule"] for each in details(scores)["rules"]] == [*texts, "adults > 0"]
    assert json.loads(json.dumps(scores.to_json()))["settings"]["constraints"]["rules"] == texts


def test_files_are_checked_as_they_are_read(tmp_path: Path, scores: Scorecard) -> None:
    """The rules see dates and numbers, not the texts of a file, and null where a cell is empty."""
    (tmp_path / "schema.toml").write_text(SCHEMA)
    for name, table in (("real", REAL), ("fake", FAKE)):
        pyarrow.csv.write_csv(table, tmp_path / f"{name}.csv")
    found = evaluate(
        tmp_path / "real.csv", tmp_path / "fake.csv", schema=tmp_path / "schema.toml", metrics=["constraints"]
    )
    assert details(found, "fake")["rules"] == details(scores)["rules"][:6]


def test_without_rules_there_is_no_score() -> None:
    found = evaluate(REAL, FAKE, metrics=["constraints"])
    assert found.status("constraint_violations") == "missing_input"
    assert "[[rules]]" in found.why("constraint_violations")


def test_a_hundred_thousand_rows_take_seconds() -> None:
    real, fake = (pa.concat_tables([table] * 40) for table in (REAL, FAKE))
    began = time.perf_counter()
    found = evaluate(real, fake, schema=us.Schema.from_toml(SCHEMA), metrics=["constraints"])
    assert details(found)["rules"][0]["real_broken"] == 40 * sum(broken_rows(REAL)[0])
    assert time.perf_counter() - began < 30
