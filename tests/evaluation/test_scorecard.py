"""The scorecard as a document: saved, loaded, refused, read as a table."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from understudy.errors import ConfigError
from understudy.evaluation.evaluate import evaluate
from understudy.evaluation.scorecard import WARNING, Scorecard


def people(num_rows: int, seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    age = draw.integers(18, 90, num_rows)
    return pa.table({"age": age, "city": draw.choice(["north", "south"], num_rows), "old": age > 60})


@pytest.fixture(scope="module")
def whole() -> Scorecard:
    tables = {"good": people(300, 1), "bad": people(300, 2)}
    return evaluate(people(300, 0), tables, target="old", effort="quick")


@pytest.fixture(scope="module")
def quick() -> Scorecard:
    return evaluate(people(300, 0), people(300, 1), target="old", effort="quick")


def test_the_document_survives_json(whole: Scorecard, tmp_path: Path) -> None:
    whole.save(tmp_path / "scores.json")
    again = Scorecard.load(tmp_path / "scores.json")
    assert again.to_json() == whole.to_json()
    assert json.loads((tmp_path / "scores.json").read_text())["warning"] == WARNING
    with pytest.raises(us.TableError):
        whole.save(tmp_path / "scores.json")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not JSON"),
        ("[]", "not a scorecard"),
        ('{"format": "understudy-scorecard", "version": 99}', "version 99"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "scores.json").write_text(content)
    with pytest.raises(ConfigError, match=words):
        Scorecard.load(tmp_path / "scores.json")
    with pytest.raises(ConfigError):
        Scorecard.load(tmp_path / "other.json")


@pytest.mark.parametrize("change", [{"synthetic": [1]}, {"metrics": [{}]}, {"synthetic": {"a": 1}}, {"metrics": "x"}])
def test_a_damaged_scorecard_is_refused_in_one_line(quick: Scorecard, change: dict) -> None:
    with pytest.raises(ConfigError):
        Scorecard({**quick.to_json(), **change})


def test_an_unknown_key_is_a_key_error(quick: Scorecard) -> None:
    with pytest.raises(KeyError, match="tv1"):
        quick["tv11"]


def test_it_never_lands_in_a_release(quick: Scorecard, tmp_path: Path) -> None:
    (tmp_path / "release.json").write_text("{}")
    (tmp_path / "inner").mkdir()
    for place in (tmp_path / "s.json", tmp_path / "inner" / "s.json"):
        with pytest.raises(ConfigError):
            quick.save(place)
        assert not place.exists()


def test_it_reads_as_a_table(whole: Scorecard, quick: Scorecard) -> None:
    lines = repr(whole).splitlines()
    assert str(whole) == repr(whole)
    assert lines[0] == WARNING
    assert lines[2].split() == ["score", "good", "bad", "real"]
    assert any(line.startswith("tv1 ") and line.endswith("lower is better") for line in lines)
    assert len(lines) < 25
    assert not any(line.startswith("tv1_max ") for line in lines)  # the key scores alone
    frame = whole.to_pandas()
    assert list(frame.columns) == ["key", "title", "good", "bad", "real", "direction"]
    assert len(frame) == len(whole)
    assert frame.set_index("key").loc["tv1", "real"] == whole.reference("tv1")
    with pytest.raises(KeyError, match="tstr_auc"):
        quick["tstrauc"]
    with pytest.raises(KeyError, match="tv2, tv2_max"):
        quick["two_way"]
    assert quick.to_json()["created"][:2] == "20"


def test_the_first_line_says_that_the_guarantee_does_not_cover_it(quick: Scorecard) -> None:
    assert "statistics of the real rows" in WARNING
    assert "Not covered by the privacy guarantee" in WARNING
    assert quick.to_json()["warning"] == WARNING


def test_the_drawing_shows_each_table_and_goes_into_no_release(whole: Scorecard, tmp_path: Path) -> None:
    import xml.etree.ElementTree as xml

    plot = whole.plot()
    drawn = xml.fromstring(plot._repr_html_())
    texts = [str(node.text) for node in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == WARNING
    assert {"good", "bad", "real"} <= set(texts)
    assert any(text.startswith(f"{whole['tv1']['good']:.3g}, ") for text in texts)  # type: ignore[index]  # JSON, typed as objects
    plot.save(tmp_path / "scores.svg")
    assert (tmp_path / "scores.svg").read_text() == plot.svg
    with pytest.raises(ConfigError):
        plot.save(tmp_path / "scores.png")
    (tmp_path / "release.json").write_text("{}")
    with pytest.raises(ConfigError):
        plot.save(tmp_path / "again.svg")


def test_a_name_in_the_drawing_is_no_markup() -> None:
    card = evaluate(people(50, 0), {"<script>alert(1)</script>": people(50, 1)}, metrics=["tv1"], effort="quick")
    for shown in (card.plot()._repr_html_(), card._repr_html_()):
        assert "<script" not in shown
