"""The section on numeric columns: every statistic beside the real one, and nothing where there are no numbers."""

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.report.pages import NASTY, SPACE, Text
from tests.report.scorecards import scorecard
from understudy.evaluation.evaluate import evaluate
from understudy.report.numbers_section import MAX_COLUMNS
from understudy.report.page import render


def stays(scale: float) -> pa.Table:
    """A hundred rows of two groups; most costs are 0."""
    start = datetime.date(2024, 1, 1)
    return pa.table(
        {
            "cost": [0.0] * 80 + [scale * k for k in range(1, 21)],
            "day": [start + datetime.timedelta(days=k) for k in range(100)],
            "ward": ["a", "b"] * 50,
        }
    )


@pytest.fixture(scope="module")
def card() -> dict[str, Any]:
    tables = {"good": stays(1.0), "ba<d": stays(3.0)}
    found = evaluate(stays(1.0), tables, holdout=stays(2.0), target="ward", effort="quick", metrics=["numbers"])
    return dict(found.to_json())


def lines(card: dict[str, Any]) -> str:
    texts = [text.replace(SPACE, " ") for text in Text(render(card)).texts]
    return " | ".join(texts[texts.index("statistic") :])


@pytest.mark.filterwarnings("ignore::understudy.UnderstudyWarning")
def test_each_statistic_stands_beside_the_real_one(card: dict[str, Any]) -> None:
    found = lines(card)
    assert found.startswith(
        "statistic | real | held-out real rows | good | ba<d | cost | mean | 2.10 | 4.20 | 2.10 | 6.30"
    )
    assert "| total | 210 | 420 | 210 | 630 | standard deviation | " in found
    assert "| quantile 50% | 0 | 0 | 0 | 0 | quantile 95% | 15.1 | 30.1 | 15.1 | 45.1 |" in found
    assert "| rows with 0 | 80% | 80% | 80% | 80% | mean where ward = a | 2.00 | 4.00 | 2.00 | 6.00 |" in found
    assert (
        "| day | mean | 2024-02-19 | 2024-02-19 | 2024-02-19 | 2024-02-19 | standard deviation | 28.9 days |" in found
    )


def test_there_is_no_section_without_numbers_and_none_is_called_skipped() -> None:
    page = render(scorecard(("aim",)))
    assert 'id="numbers"' not in page
    assert "“Numbers”" not in page
    table = pa.table({"c": ["u", "v"] * 100})
    page = render(evaluate(table, table, holdout=table, metrics=["numbers", "tv1"]))
    assert 'id="numbers"' not in page
    assert "There is no numeric column" not in page


def test_only_the_worst_of_many_columns_are_listed_and_names_are_escaped() -> None:
    draw = np.random.default_rng(0)
    names = [*NASTY.values(), *(f"x{k}" for k in range(MAX_COLUMNS))]
    real, fake = (pa.table({name: draw.random(200) for name in names}) for _ in range(2))
    worst = fake.set_column(len(names) - 1, names[-1], pa.array(draw.random(200) + 5))
    page = render(evaluate(real, worst, holdout=fake, metrics=["numbers"], effort="quick"))
    texts = [text.replace(SPACE, " ") for text in Text(page).texts]
    assert any(f"The {MAX_COLUMNS} worst of {len(names)} columns are shown." in text for text in texts)
    assert texts[texts.index("statistic") :].index(names[-1]) < 8
    assert not {tag for tag, _ in Text(page).elements} & {"u", "img"}
