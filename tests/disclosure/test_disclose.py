"""Copies are found, held-out rows are not, and figures are those of plain implementations."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, t
from sklearn.metrics import roc_auc_score

import understudy as us
from tests.builders import raises
from tests.disclosure.made_tables import draw_common, draw_people
from understudy.disclosure.disclose import FALSE_ALARM_RATE, Disclosure, Finding
from understudy.disclosure.membership import Ceiling, _auc
from understudy.disclosure.sentences import percent
from understudy.evaluation.scorecard import refuse_release
from understudy.privacy.accounting.tradeoff import statement_tradeoff

SCHEMA: dict[str, Any] = {
    "table": {"rows": 1000},
    "columns": {
        **{name: {"kind": "real", "bounds": [-70, 70]} for name in ("height", "weight", "income")},
        "sex": {"kind": "categorical", "categories": ["f", "m"]},
        "region": {"kind": "categorical", "categories": list("nesw")},
        "smokes": {"kind": "categorical", "categories": ["no", "yes"]},
    },
}
KNOWN = ["sex", "region", "smokes", "height"]


@pytest.fixture(scope="module")
def train() -> pd.DataFrame:
    return draw_people(1000, 1)


@pytest.fixture(scope="module")
def held() -> pd.DataFrame:
    return draw_people(600, 2)


@pytest.fixture(scope="module")
def release(train: pd.DataFrame) -> us.Release:
    return us.fit(train, "independent", epsilon=1, schema=SCHEMA)


@pytest.fixture(scope="module")
def of_copy(train: pd.DataFrame, held: pd.DataFrame, release: us.Release) -> Disclosure:
    return us.disclose(train, train, holdout=held, quasi_identifiers=KNOWN, statement=release)


@pytest.fixture(scope="module")
def of_others(train: pd.DataFrame, held: pd.DataFrame) -> Disclosure:
    """Of other rows of the population."""
    return us.disclose(train, draw_people(500, 3), holdout=held, seed=5)


# --------------------------------------------------------------------------------------------------------------- copies


def test_a_copy_of_the_real_table_is_found_by_every_check(of_copy: Disclosure) -> None:
    assert set(of_copy.findings) == set(Finding)
    assert of_copy.membership.copies.training.value == 1
    assert of_copy.sentences["Membership"].startswith("Training rows can be recognised.")
    assert "more was recognised than the guarantee allows" in of_copy.sentences["Membership"]
    assert of_copy.membership.auc.low > 0.9


def test_one_percent_of_copied_rows_is_found() -> None:
    """50 of 5,000 rows: too few for attacks, enough for the test of copies."""
    train, held, other = draw_people(5000, 1), draw_people(1250, 2), draw_people(4950, 3)
    fake = pd.concat([other, train.sample(50, random_state=0)])
    found = us.disclose(train, fake, holdout=held, secrets=["smokes"])
    assert Finding.COPIES in found.findings
    assert found.membership.copies.training.count >= 50
    assert found.sentences["Copies"].startswith("The synthetic table repeats training rows.")


def test_rows_with_a_little_noise_are_found(train: pd.DataFrame, held: pd.DataFrame) -> None:
    """No row is an exact copy, but the nearest row gives it away."""
    numbers = ["height", "weight", "income"]
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, size=(len(train), 3))
    found = us.disclose(train, train.assign(**(train[numbers] + noise)), holdout=held, secrets=["smokes"])
    assert Finding.COPIES not in found.findings
    assert Finding.MEMBERSHIP in found.findings


def test_common_rows_are_no_copies() -> None:
    """All rows of this synthetic table equal a real one, as those of any good table would."""
    found = us.disclose(draw_common(1000, 1), draw_common(1000, 3), holdout=draw_common(500, 2))
    assert not found.findings


# -------------------------------------------------------------------------------------------------------- false alarms


def null_report(seed: int, num_rows: int = 400) -> Disclosure:
    """Of a synthetic table that consists of other rows of the population."""
    train, held, fake = (draw_people(num_rows, 3 * seed + part, decimals=1) for part in range(3))
    return us.disclose(train, fake, holdout=held, quasi_identifiers=KNOWN, seed=seed)


def check_null_reports(reports: list[Disclosure]) -> None:
    """At most as many false alarms as stated, and rates that are not flattered by the choice of the attack.

    Together they fail with a probability below 1e-4 if what is stated holds. The second is two-sided.
    """
    alarms = sum(bool(report.findings) for report in reports)
    assert alarms <= binom.ppf(1 - 5e-5, len(reports), FALSE_ALARM_RATE)
    most = t.isf(5e-5 / 6, len(reports) - 1)
    for at in range(3):
        gains = np.array([report.membership.points[at].advantage.value for report in reports])
        assert abs(gains.mean()) < most * gains.std(ddof=1) / np.sqrt(len(gains))


def test_held_out_rows_pass() -> None:
    check_null_reports([null_report(seed) for seed in range(20)])


@pytest.mark.slow
def test_held_out_rows_pass_two_hundred_times() -> None:
    check_null_reports([null_report(1000 + seed) for seed in range(200)])


@pytest.mark.parametrize("method", ["independent", "auto"])
def test_a_private_table_passes(method: str, train: pd.DataFrame, held: pd.DataFrame) -> None:
    release = us.fit(train, method, epsilon=1, schema=SCHEMA)
    found = us.disclose(train, release.sample(1000), holdout=held, schema=SCHEMA, statement=release)
    assert not found.findings
    assert "The guarantee (epsilon" in found.sentences["Membership"]
    for point in found.membership.points:
        assert point.ceiling is not None
        assert point.ceiling >= point.false_positives.high


# -------------------------------------------------------------------------------------------------------------- figures


def test_the_auc_is_that_of_scikit_learn() -> None:
    generator = np.random.default_rng(0)
    members, others = generator.integers(0, 9, 50), generator.integers(0, 7, 80)
    expected = roc_auc_score(np.repeat([1, 0], [50, 80]), np.concatenate([members, others]))
    assert _auc(members, others) == pytest.approx(expected)


def test_rows_are_split_between_reference_choice_and_report(of_copy: Disclosure) -> None:
    rows = of_copy.membership.rows
    assert rows["reference_rows"] + rows["held_out_rows"] == 600
    assert all(point.true_positives.total == 500 for point in of_copy.membership.points)
    assert all(point.false_positives.total == 150 for point in of_copy.membership.points)


def test_every_attribute_of_a_copied_row_is_guessed(train: pd.DataFrame, held: pd.DataFrame) -> None:
    found = us.disclose(train, train, holdout=held, secrets=["smokes", "income"])
    smokes, income = found.attributes
    assert smokes.training.value == 1  # the other columns identify the row
    assert smokes.control.value < 0.9
    assert income.tolerance == pytest.approx(
        0.05 * np.subtract(*pd.concat([train, held]).income.quantile([0.95, 0.05]))
    )
    assert income.training.value == 1
    assert income.difference.value == income.training.value - income.control.value


def test_combinations_are_counted_as_by_pandas() -> None:
    train, held, fake = (draw_people(n, seed, decimals=-1) for n, seed in ((600, 1), (300, 2), (400, 3)))
    found = us.disclose(train, fake, holdout=held, quasi_identifiers=KNOWN, min_cell=4).combinations
    assert found is not None
    counts = train.value_counts(KNOWN)
    of_fake, of_held = ([counts.get(tuple(row), 0) for row in part[KNOWN].values] for part in (fake, held))
    assert found.num_combinations == len(counts)
    for cells, most in ((found.unique, 1), (found.small, 3)):
        assert cells.combinations == (counts <= most).sum()
        assert cells.training_rows == counts[counts <= most].sum()
        assert cells.synthetic.count == sum(1 <= count <= most for count in of_fake)
        assert cells.expected == pytest.approx(400 / 300 * sum(1 <= count <= most for count in of_held))
    once = pd.concat([train, held]).value_counts(KNOWN)
    single = [tuple(row) for row in train[KNOWN].values if once[tuple(row)] == 1]
    matched = set(map(tuple, fake[KNOWN].values))
    assert (found.once.training.count, found.once.training.total) == (sum(x in matched for x in single), len(single))


def test_one_row_of_each_unit_is_attacked(train: pd.DataFrame, held: pd.DataFrame) -> None:
    """Rows of one person are alike: were they counted as independent, intervals would be too narrow."""
    schema = {"table": {"unit": "person"}, "columns": {"person": {"kind": "id"}, **SCHEMA["columns"]}}
    ours, theirs = (
        pd.concat([part.assign(person=range(first, first + len(part)))] * 2)
        for part, first in ((train, 0), (held, 5000))
    )
    found = us.disclose(ours, draw_people(800, 3), holdout=theirs, schema=schema, secrets=["sex"])
    assert found.table_sizes == {"real": 1000, "holdout": 600, "synthetic": 800}
    assert any("One row of each value of 'person'" in note for note in found.notes)


def test_a_holdout_of_another_population_is_warned_of(train: pd.DataFrame, held: pd.DataFrame) -> None:
    later = held.assign(height=held.height + 15)
    assert "differ from the training rows" in us.disclose(train, train, holdout=later).warnings[0]


# -------------------------------------------------------------------------------------------------------------- ceiling


def test_a_certificate_without_a_guarantee_gives_no_ceiling(release: us.Release, train: pd.DataFrame) -> None:
    private = release.statement
    cases = {
        "There is no certificate": None,
        "was seeded": dataclasses.replace(private, seeded=True),
        "is not private": us.fit(train, "independent", us.Guarantee.not_private(), schema=SCHEMA).statement,
    }
    for text, statement in cases.items():
        ceiling = Ceiling.of(statement)
        assert text in ceiling.why_not
        assert ceiling.at(0.01) is None
    allowed = Ceiling.of(private).at(0.01)
    assert allowed is not None
    assert 0.01 < allowed <= np.exp(2 * private.epsilon) * 0.01 + (1 + np.exp(private.epsilon)) * private.delta


def test_the_ceiling_is_that_of_exchanging_a_row(release: us.Release) -> None:
    """The table has the training row and lacks the held-out one: two steps of adding or removing a row."""
    one = statement_tradeoff(release.statement).largest_true_positive_rate
    ceiling = Ceiling.of(release.statement)
    assert [ceiling.at(rate) for rate in (0.01, 0.05, 1.0)] == [one(one(rate)) for rate in (0.01, 0.05, 1.0)]
    assert Ceiling.of(dataclasses.replace(release.statement, released=False)).at(0.01) is None


# ----------------------------------------------------------------------------------------------------------- the report


def test_the_document_is_json_and_repeats_with_the_seed(
    train: pd.DataFrame, held: pd.DataFrame, of_others: Disclosure, tmp_path: Path
) -> None:
    reports = [of_others, *(us.disclose(train, draw_people(500, 3), holdout=held, seed=seed) for seed in (5, 6))]
    first, again, other = (json.dumps(report.to_json(), allow_nan=False) for report in reports)
    assert first == again != other
    of_others.save(tmp_path / "report.json")
    assert (tmp_path / "report.json").stat().st_mode & 0o777 == 0o600
    assert json.loads((tmp_path / "report.json").read_text()) == json.loads(first)
    assert of_others.to_json()["warning"] == "This report contains statistics of the real data. Do not share it."


def test_the_sentence_on_membership_says_what_the_attack_was_chosen_for(
    of_copy: Disclosure, of_others: Disclosure
) -> None:
    point = of_others.membership.points[0]
    rate = point.true_positives
    low, value, high = (percent(part) for part in (rate.low, rate.value, rate.high))
    expected = f"recognised {value} (99% interval {low} to {high}) of the training rows"
    assert expected in of_others.sentences["Membership"]
    assert "beyond chance. The attack chosen for 1% false positives, '" in of_others.sentences["Membership"]
    assert (
        "Training rows can be recognised. The attack chosen for 1% false positives, 'exact copies'"
        in of_copy.sentences["Membership"]
    )


def test_no_words_of_approval(of_copy: Disclosure, of_others: Disclosure) -> None:
    for report in (of_copy, of_others):
        text = json.dumps(report.to_json()).lower()
        assert not any(word in text for word in ("safe", "grade", "passed", "anonymous"))
        assert "not proof of privacy" in text


def test_it_is_not_written_into_a_release(of_copy: Disclosure, tmp_path: Path) -> None:
    (tmp_path / "release.json").write_text("{}")
    with raises(us.ConfigError, setting="path"):
        of_copy.save(tmp_path / "report.json")
    with pytest.raises(us.ConfigError):
        refuse_release(tmp_path / "report.json")
