"""The catalogue: every metric that is computed is described there, and nothing else is."""

import numpy as np
import pyarrow as pa
import pytest

from understudy.evaluation.evaluate import evaluate
from understudy.evaluation.groups import EFFORTS, GROUPS
from understudy.evaluation.scores import CATALOGUE, Direction, Score, Status


def test_groups_and_catalogue_agree() -> None:
    assert [metric.key for group in GROUPS for metric in group.metrics] == list(CATALOGUE)
    known = {*CATALOGUE, *(group.name for group in GROUPS)}
    assert all(name in known for effort in EFFORTS.values() for name in effort.skipped)


@pytest.mark.parametrize("target", ["class", "number"])
def test_every_group_scores_its_metrics_and_no_others(target: str) -> None:
    """Each metric has a value or a reason of its own; a key that no function returns would have neither."""
    draw = np.random.default_rng(0)
    columns = {"number": draw.random(200), "class": draw.choice(["a", "b"], 200), "x": draw.random(200)}
    table = pa.table({**columns, "y": draw.choice(["u", "v", "w"], 200)})
    content = evaluate(table, table, target=target, constraints=["x > 0.5"]).to_json()
    absent = {
        e["key"]: e["values"]["synthetic"] for e in content["metrics"] if e["values"]["synthetic"]["value"] is None
    }
    special = ("gaussians", "locations")  # an experiment of a paper, and tables with locations
    here = {key for key, metric in CATALOGUE.items() if metric.group not in special}
    assert {entry["key"] for entry in content["metrics"]} == here
    assert "There is no such score." not in {score["why"] for score in absent.values()}
    wrong_kind = {"tstr_rmse", "tstr_r2"} if target == "class" else {"sra", "tstr_auc", "inception_score"}
    assert wrong_kind <= {key for key, score in absent.items() if score["status"] == Status.NOT_APPLICABLE}


@pytest.mark.parametrize("key", CATALOGUE)
def test_an_entry_is_complete(key: str) -> None:
    metric = CATALOGUE[key]
    assert metric.low < metric.high
    assert metric.meaning.endswith(".")
    assert len(metric.meaning) > 20
    assert metric.same_as in ("", *CATALOGUE)
    assert not (metric.fraction and metric.high > 1)
    if metric.direction.goal is not None:
        assert metric.low <= metric.direction.goal <= metric.high


def test_directions_as_text() -> None:
    assert Direction.NEAR_HALF.text == "0.5 is best"
    assert Direction.LOWER.text == "lower is better"
    assert Direction.NEAR_REAL.arrow == "→ real"


def test_a_score_without_a_value_has_a_status_and_a_reason() -> None:
    score = Score.none("No rows.")
    assert not score.is_defined
    assert (score.status, score.why) == (Status.UNDEFINED, "No rows.")
    assert Score(0.5).status is Status.COMPUTED
