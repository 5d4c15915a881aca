"""The scorer of the benchmarks against closed forms and against SciPy."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats.contingency import association

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import scorer
from benchmarks.scorer import score


def table(**counts: int) -> pd.DataFrame:
    """Rows of the columns a, b, c: `table(xu0=2)` is twice the row x, u, 0."""
    return pd.DataFrame([list(row) for row, count in counts.items() for _ in range(count)], columns=list("abc"))


def test_distances_of_hand_computed_tables() -> None:
    """Columns a and b are equal in the real rows and independent in the synthetic ones; c is 0 but once in four."""
    real = table(xu0=2, yv0=2)
    fake = table(xu0=1, xv0=1, yu0=1, yv1=1)
    found = score(real, None, fake, None)
    assert found["tvd1"] == pytest.approx((0 + 0 + 1 / 4) / 3)
    assert found["tvd2"] == pytest.approx((1 / 2 + 1 / 4 + 1 / 4) / 3)
    assert found["worst2"] == pytest.approx(1 / 2)
    assert found["tvd3"] == pytest.approx(3 / 4)  # one triple only: whatever is drawn
    assert found["v_worst"] == pytest.approx(1.0)
    assert found["v_loss"] == pytest.approx(1 / 3)  # c is constant: no association to lose


def test_a_larger_association_is_no_loss() -> None:
    found = score(table(xu0=1, xv0=1, yu0=1, yv0=1), None, table(xu0=2, yv0=2), None)
    assert found["v_loss"] == found["v_worst"] == 0.0
    assert found["worst2"] == pytest.approx(1 / 2)


def test_a_table_is_at_no_distance_from_itself() -> None:
    draw = np.random.default_rng(0)
    real = pd.DataFrame({"n": draw.random(300), "k": draw.integers(0, 3, 300).astype(str), "m": [None, 1.5, 2.0] * 100})
    found = score(real, None, real, None)
    assert set(found) == {"tvd1", "tvd2", "tvd3", "worst2", "v_loss", "v_worst"}
    assert set(found.values()) == {0.0}
    assert score(real, None, real.sample(frac=1, random_state=0), None) == found


@pytest.mark.parametrize("shape", [(2, 2), (3, 5), (7, 4)])
def test_cramers_v_is_that_of_scipy(shape: tuple[int, int]) -> None:
    counts = np.random.default_rng(1).integers(1, 40, shape)
    expected = association(counts, method="cramer")
    assert scorer._cramers_v(counts / counts.sum()) == pytest.approx(expected)
    padded = np.zeros((shape[0] + 1, shape[1] + 2))
    padded[: shape[0], 2:] = counts
    assert scorer._cramers_v(padded / counts.sum()) == pytest.approx(expected)


def test_numbers_are_binned_over_the_real_range() -> None:
    """Twenty bins over 0 to 20: unit width, and all that is beyond belongs to the outermost ones."""
    real = pd.DataFrame({"n": np.arange(21.0)})
    assert score(real, None, real + 0.5, None)["tvd1"] == 0.0
    beyond = pd.DataFrame({"n": [-100.0, 500.0]})
    assert score(real, None, beyond, None)["tvd1"] == pytest.approx(1 - 3 / 21)


def test_a_missing_value_is_a_value() -> None:
    real = pd.DataFrame({"n": [1.0, 2.0, None, None], "k": ["x", "y", None, None], "e": [None] * 4})
    fake = pd.DataFrame({"n": [1.0, 2.0, 1.0, 2.0], "k": ["x", "y", "x", "y"], "e": [None] * 4})
    found = score(real, None, fake, None)
    assert found["tvd1"] == pytest.approx((1 / 2 + 1 / 2 + 0) / 3)
    assert found["worst2"] == pytest.approx(1 / 2)
    empty = pd.DataFrame({"n": np.full(4, np.nan)})
    assert score(empty, None, real[["n"]], None)["tvd1"] == pytest.approx(1 / 2)


def test_integers_of_any_type_are_numbers() -> None:
    whole = pd.DataFrame({"n": [1, 2, 3, 4]})
    nullable = pd.DataFrame({"n": pd.array([1, 2, 3, 4], dtype="Int32")})
    assert score(whole, None, nullable, None) == score(nullable, None, whole.astype(float), None) == {"tvd1": 0.0}


def linear(rows: int, seed: int, noise: float) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    x = draw.normal(size=rows)
    return pd.DataFrame({"x": x, "k": draw.choice(["u", "v"], rows), "y": 3 * x + noise * draw.normal(size=rows)})


def test_r2_of_a_linear_relation() -> None:
    """Noise of the same variance as the signal leaves half of the variance to explain. All three models find about
    that; over 4,000 test rows, R2 has a standard error of about 0.01."""
    train, test = linear(8000, 0, noise=3.0), linear(4000, 1, noise=3.0)
    found = score(train, test, train, "y")
    assert found["r2"] == pytest.approx(0.5, abs=0.05)
    assert "tvd3" not in found
    assert "auc" not in found
    shuffled = train.assign(y=train["y"].to_numpy()[np.random.default_rng(2).permutation(len(train))])
    assert score(train, test, shuffled, "y")["r2"] == pytest.approx(0.0, abs=0.15)
    assert score(train, test, train.assign(y=1000.0), "y")["r2"] == -1.0
    assert score(train, test, train.assign(y=None), "y")["r2"] == -1.0


def classes(rows: int, seed: int) -> pd.DataFrame:
    """Three classes that `n` separates without error, `a` being one in ten."""
    draw = np.random.default_rng(seed)
    label = draw.choice(["a", "b", "c"], rows, p=[0.1, 0.3, 0.6])
    centre = pd.Series(label).map({"a": 0.0, "b": 5.0, "c": 10.0}).to_numpy()
    return pd.DataFrame({"n": centre + draw.random(rows), "k": draw.choice(["u", "v"], rows), "label": label})


def test_classes_that_can_be_separated() -> None:
    train, test = classes(1500, 0), classes(600, 1)
    found = score(train, test, train, "label")
    assert found["auc"] > 0.999
    assert found["f1"] > 0.99


def test_auc_is_one_half_of_labels_at_random() -> None:
    """Whatever was learnt: of 60 positives among 600 rows, the AUC has a standard error below 0.04."""
    train, test = classes(1500, 0), classes(600, 1)
    test["label"] = np.random.default_rng(2).permutation(test["label"].to_numpy())
    assert score(train, test, train, "label")["auc"] == pytest.approx(0.5, abs=4.5 * 0.04)


def test_a_synthetic_table_that_lacks_classes() -> None:
    """Without a, its AUC is that of a constant, 1/2, and its F1 is 0; with one class alone, all are."""
    train, test = classes(1500, 0), classes(600, 1)
    lacking = score(train, test, train[train["label"] != "a"], "label")
    assert 0.5 < lacking["auc"] < 0.95
    assert lacking["f1"] < 0.7
    alone = score(train, test, train[train["label"] == "c"], "label")
    assert alone["auc"] == 0.5
    share = (test["label"] == "c").mean()
    assert alone["f1"] == pytest.approx(2 * share / (1 + share) / 3)
    unknown = score(train, test, train.assign(label="d"), "label")
    assert unknown["auc"] == 0.5


def test_a_class_of_one_row_is_no_trouble() -> None:
    """Above 10,000 rows gradient boosting holds out rows of each class, which one row cannot give."""
    train, test = classes(1500, 0), classes(600, 1)
    many = pd.concat([train[train["label"] != "a"]] * 8 + [train[train["label"] == "a"].head(1)])
    assert len(many) > 10_000
    assert 0.5 < score(train, test, many, "label")["auc"] < 0.95


def test_the_rarer_of_two_classes_is_the_positive_one() -> None:
    """Of two classes, F1 is that of the rarer one: 0 if it is never predicted, whatever its name."""
    for rare, frequent in (("a", "b"), ("b", "a")):
        train = classes(1500, 0).assign(label=lambda rows, names=(rare, frequent): np.where(rows["n"] < 3, *names))
        test = classes(600, 1).assign(label=lambda rows, names=(rare, frequent): np.where(rows["n"] < 3, *names))
        assert score(train, test, train, "label")["f1"] == pytest.approx(1.0)
        assert score(train, test, train.assign(label=frequent), "label")["f1"] == 0.0


def test_what_cannot_be_scored_is_refused() -> None:
    train = classes(50, 0)
    with pytest.raises(ValueError, match="neither of them"):
        score(train, None, train, "label")
    with pytest.raises(ValueError, match=r"synthetic one: \['k'\]"):
        score(train, None, train[["n", "label"]], None)
    with pytest.raises(ValueError, match="rows in the synthetic table"):
        score(train, None, train.head(0), None)
    with pytest.raises(ValueError, match="at least two classes"):
        score(train, train[train["label"] == "c"], train, "label")
    with pytest.raises(ValueError, match="target 'income'"):
        score(train, train, train, "income")


def test_the_command_prints_the_same_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train, test = classes(400, 0), classes(200, 1)
    train.to_csv(tmp_path / "train.csv", index=False)
    test.to_parquet(tmp_path / "test.parquet")
    command = [scorer.__file__, str(tmp_path / "train.csv"), str(tmp_path / "train.csv"), "--target", "label"]
    monkeypatch.setattr(sys, "argv", [*command, "--test", str(tmp_path / "test.parquet")])
    scorer.main()
    assert json.loads(capsys.readouterr().out) == pytest.approx(score(train, test, train, "label"))
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as refused:
        scorer.main()
    assert refused.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
