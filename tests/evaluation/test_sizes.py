"""How many rows a scorecard uses, that it says so, and that its progress is honest."""

import time

import numpy as np
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import OneHotEncoder

from understudy.evaluation.evaluate import evaluate
from understudy.evaluation.groups import EFFORTS, FEW_HELD_OUT, GROUPS
from understudy.evaluation.parallel import report_jobs, report_part, run_in_threads
from understudy.evaluation.pmse import pmse_logit
from understudy.evaluation.scores import Json
from understudy.evaluation.table import Layout


def made(num_rows: int, seed: int, columns: int = 4) -> pa.Table:
    draw = np.random.default_rng(seed)
    return pa.table({f"c{i}": draw.choice(list("abcde"), num_rows) for i in range(columns)})


REAL, FAKE = made(3000, 0), made(3000, 1)


def entries(content: Json) -> dict[str, Json]:
    return {entry["key"]: entry for entry in content["metrics"]}


def test_as_many_synthetic_rows_are_compared_as_are_held_out() -> None:
    """Without a holdout a fifth is held out. Both sides are of that size, so no reference is too easy to beat."""
    content = evaluate(REAL, FAKE, effort="quick").to_json()
    assert content["settings"]["two_way"]["synthetic_rows"] == 600
    assert content["settings"]["pmse_logit"]["real_rows"] == content["settings"]["pmse_logit"]["synthetic_rows"] == 600
    references = [entry["reference"] for entry in content["metrics"] if entry["reference"]]
    assert all(reference["comparable"] for reference in references)
    assert any("use 600 of its rows, as many as are held out" in note["text"] for note in content["notes"])
    tv2 = entries(content)["tv2"]
    assert tv2["values"]["synthetic"]["value"] == pytest.approx(tv2["reference"]["value"], rel=0.2)


def test_the_limit_of_the_effort_is_said() -> None:
    content = evaluate(made(30_000, 0, 2), made(30_000, 1, 2), holdout=made(30_000, 2, 2), effort="quick").to_json()
    assert content["settings"]["one_way"]["synthetic_rows"] == EFFORTS["quick"].rows == 10_000
    assert any("10,000 of its rows, the limit of the quick scorecard" in note["text"] for note in content["notes"])


def test_full_uses_all_rows_and_few_held_out_rows_do_not_cut_a_table() -> None:
    content = evaluate(REAL, FAKE, effort="full", metrics=["two_way"]).to_json()
    assert content["settings"]["two_way"]["synthetic_rows"] == 3000
    few = FEW_HELD_OUT - 1
    content = evaluate(REAL, FAKE, holdout=made(few, 2), metrics=["two_way"]).to_json()
    assert content["settings"]["two_way"]["synthetic_rows"] == 3000
    assert not entries(content)["tv2"]["reference"]["comparable"]
    assert any("by chance alone" in note["text"] for note in content["notes"])


def test_means_over_rows_use_all_rows_and_can_always_be_compared() -> None:
    content = evaluate(REAL, FAKE, metrics=["validity", "closest_record"], effort="full").to_json()
    assert all(entry["reference"]["comparable"] for entry in content["metrics"] if entry["reference"])
    assert content["settings"]["closest_record"]["synthetic_rows"] == 3000


def test_wide_tables_are_fitted_on_fewer_rows() -> None:
    draw = np.random.default_rng(0)
    wide = {f"c{i}": draw.integers(0, 150, 4000).astype(str) for i in range(10)}
    wide["y"] = draw.choice(["no", "yes"], 4000)
    content = evaluate(pa.table(wide), pa.table(wide), target="y", effort="quick", metrics=["learning"]).to_json()
    features = 10 * 150 + 1
    expected = EFFORTS["quick"].cells // features  # type: ignore[operator]  # quick effort has a limit
    assert content["settings"]["learning"]["train_rows"] == {"random_forest": expected}


def test_copies_are_shown_beside_what_chance_gives() -> None:
    content = evaluate(REAL, FAKE, metrics=["closest_record"]).to_json()
    found = content["details"]["closest_record"]["synthetic"]
    # 625 equally likely rows: nearly all of them are among 2,400 real ones, also in independent draws.
    assert found["independent"]["exact_copies"] > 0.9
    assert found["holdout"]["exact_copies"] > 0.9


def test_the_bar_moves_within_a_group_and_never_back() -> None:
    draw = np.random.default_rng(0)
    x = draw.random(600)
    table = pa.table({"x": x, "z": draw.random(600), "y": np.where(x + draw.random(600) > 1, "a", "b")})
    seen: list[tuple[float, str]] = []
    evaluate(table, table, target="y", metrics=["one_way", "learning"], progress=lambda *each: seen.append(each))
    fractions = [fraction for fraction, _ in seen]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (0.0, 1.0)
    within = {fraction for fraction, text in seen if text == "learning: synthetic"}
    assert len(within) > 6  # a report for each model


def test_costs_are_known_for_every_group() -> None:
    assert all(group.cost > 0 for group in GROUPS)
    assert EFFORTS["quick"].learning_cost < EFFORTS["default"].learning_cost < EFFORTS["full"].learning_cost


def test_jobs_report_as_a_part_of_the_whole() -> None:
    seen: list[float] = []
    with report_jobs(seen.append):
        with report_part(0.0, 0.5):
            run_in_threads([lambda: 1, lambda: 2])
        with report_part(0.5, 1.0):
            run_in_threads([lambda: 1])
    run_in_threads([lambda: 1])  # outside: not reported
    assert seen == [0.25, 0.5, 1.0]


def test_many_columns_are_fitted_exactly() -> None:
    """The optimum is that of scikit-learn, also where rows are separated."""
    draw = np.random.default_rng(0)
    real, fake = ({f"c{i}": draw.integers(0, 30, 1500).astype(str) for i in range(9)} for _ in range(2))
    fake["c0"] = np.where(draw.random(1500) < 0.3, "other", fake["c0"])  # a value that no real row has
    layout = Layout.of(pa.table(real))
    tables = layout.read(pa.table(real), "real table"), layout.read(pa.table(fake), "synthetic table")
    result = pmse_logit(*tables)
    assert result.details["num_coefficients"] > 200
    stacked = np.stack([np.concatenate([real[name], fake[name]]) for name in real], axis=1)
    design, labels = OneHotEncoder(sparse_output=False).fit_transform(stacked), np.repeat([0, 1], 1500)
    model = LogisticRegression(C=1e6, solver="newton-cholesky", tol=1e-8, max_iter=200).fit(design, labels)
    pmse = np.mean((model.predict_proba(design)[:, 1] - 0.5) ** 2)
    assert result["pmse_logit"] == pytest.approx(pmse, rel=1e-5)


def test_a_quick_scorecard_of_many_categories_is_quick() -> None:
    """In seconds of the processor, as other programs may be running; it was minutes before rows were limited."""
    draw = np.random.default_rng(0)
    tables = [
        pa.table({f"c{i}": draw.integers(0, 100, 20_000).astype(str) for i in range(12)} | {"n": draw.random(20_000)})
        for _ in range(2)
    ]
    began = time.process_time()
    evaluate(*tables, target="c0", effort="quick", metrics=None)
    assert time.process_time() - began < 30
