"""Drawings: scales, reproducible SVG, marks of failures, and what their tables hold."""

import builtins
import xml.etree.ElementTree as ET

import pytest

from tests.benchmark.report.records import make_record, summarise
from understudy.benchmark.report.document import Drawing
from understudy.benchmark.report.figures import (
    BETTER,
    PAPER,
    WORSE,
    assign_styles,
    draw_changes,
    draw_curves,
    draw_front,
    draw_ranks,
    draw_times,
    largest_change,
)
from understudy.benchmark.report.records import read_records
from understudy.benchmark.report.statistics import Ranking
from understudy.errors import ConfigError

STYLES = assign_styles(read_records([make_record(method=name, f1=0.5) for name in ("independent", "a", "b", "c")]))


def lines_of(drawing: Drawing, colour: str) -> list[str]:
    """The paths of the lines of a colour, but for markers and bars."""
    paths = [element for element in ET.fromstring(drawing.svg).iter() if element.tag.endswith("path")]
    drawn = [path for path in paths if f"stroke: {colour}" in path.get("style", "") and path.get("clip-path")]
    return [path.get("d", "") for path in drawn]


def test_wrapped_methods_share_the_colour_of_the_inner_one() -> None:
    cells = [make_record(method="mst", f1=0.5), make_record(method="quail(mst)", inner="mst", f1=0.5)]
    styles = assign_styles(read_records(cells))
    assert styles["mst"]["color"] == styles["quail(mst)"]["color"]
    assert [styles[name].get("markerfacecolor") for name in ("mst", "quail(mst)")] == [None, PAPER]


@pytest.mark.parametrize("values", [[0.5], [0.0], [0.0, 0.0], [1.0], [3.0, 3.0], [-2.0, 5.0]])
def test_any_values_can_be_drawn(values: list[float]) -> None:
    curve = {float(epsilon): summarise([value]) for epsilon, value in enumerate(values, 1)}
    for higher in (True, False):
        ET.fromstring(draw_curves({"a": curve}, STYLES, table="car", metric="F1", higher_is_better=higher).svg)


def test_the_same_drawing_is_the_same_bytes_and_says_what_it_shows() -> None:
    curve = {0.1: summarise([0.4, 0.5]), 3.0: summarise([0.6, 0.7])}
    first, second = (draw_curves({"a": curve}, STYLES, table="car", metric="F1") for _ in range(2))
    assert first.svg == second.svg
    root = ET.fromstring(first.svg)
    assert (root.get("role"), root.get("aria-label")) == ("img", first.label)
    assert not any(word in first.svg for word in ("metadata", "<!--"))
    assert {"F1 on car", "a", "0.1", "3"} <= {element.text for element in root.iter() if element.tag.endswith("text")}


def test_two_drawings_of_a_page_share_no_id_but_of_equal_shapes() -> None:
    one, other = (draw_times({name: [9.0]}, STYLES, table="car") for name in "ab")
    found = [{e.get("id"): ET.tostring(e) for e in ET.fromstring(d.svg).iter() if e.get("id")} for d in (one, other)]
    assert all(found[0][name] == found[1][name] for name in found[0].keys() & found[1].keys())


def test_without_matplotlib_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def missing(name: str, *args: object, **kwargs: object) -> object:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return load(name, *args, **kwargs)  # type: ignore[arg-type]  # handed on

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigError) as failed:
        draw_times({"a": [9.0]}, STYLES, table="car")
    assert "need matplotlib" in str(failed.value)
    assert "[bench]" in str(failed.value)


def test_curves_break_at_failures_and_list_them() -> None:
    curve = {0.1: summarise([0.4]), 0.3: summarise([0.5]), 1.0: summarise([], num_failed=2), 3.0: summarise([0.6]),
             9.0: summarise([0.7])}  # fmt: skip
    drawing = draw_curves({"a": curve}, STYLES, table="car", metric="F1", real=summarise([0.9]))
    assert max(path.count("M") for path in lines_of(drawing, STYLES["a"]["color"])) == 2
    assert drawing.rows[2] == ("a", "1", "–", "–", "0", "2")
    assert "Real data scores 0.900" in drawing.label


def test_a_perfect_score_of_zero_leaves_a_logarithmic_scale() -> None:
    curve = {0.1: summarise([90.0]), 1.0: summarise([2.0])}
    drawing = draw_curves(
        {"a": curve}, STYLES, table="car", metric="pMSE", higher_is_better=False, real=summarise([0.0])
    )
    assert "pMSE on car; real data 0" in drawing.svg
    assert ">real data<" not in drawing.svg


def test_the_rank_diagram_has_bars_of_the_critical_difference() -> None:
    ranking = Ranking({"a": 1.2, "b": 1.8, "c": 3.0}, 9, 8.0, 0.01, 1.0)
    drawing = draw_ranks(ranking, STYLES, metric="F1")
    assert len([path for path in lines_of(drawing, "#8b8b86") if path.count("L") == 1]) == 3
    assert "critical difference, 1.00" in drawing.svg
    assert "a  1.20" in drawing.svg
    assert drawing.rows[0] == ("a", "1.20")


def test_changes_are_blue_when_better_whatever_the_direction() -> None:
    pairs = {
        "a": {1.0: (summarise([2.0, 2.1]), summarise([5.0, 5.1])), 3.0: (summarise([], num_failed=1), summarise([1.0]))}
    }
    down = draw_changes(pairs, table="car", metric="pMSE", wrapper="QUAIL", higher_is_better=False, peak=3.0)
    up = draw_changes(pairs, table="car", metric="pMSE", wrapper="QUAIL", higher_is_better=True, peak=3.0)
    assert BETTER in down.svg
    assert WORSE in up.svg
    assert down.rows == (("a", "1", "−3.00", "separated"), ("a", "3", "×", "failed"))
    assert "better in 1 of 2 pairs" in down.label


def test_small_changes_do_not_get_the_full_colour() -> None:
    pairs = {"a": {1.0: (summarise([0.51]), summarise([0.50]))}}
    assert largest_change([pairs]) == pytest.approx(0.051)
    pairs = {"a": {1.0: (summarise([0.9]), summarise([0.5]))}}
    assert largest_change([pairs]) == pytest.approx(0.4)


def test_times_are_sorted_and_the_front_is_marked() -> None:
    times = draw_times({"a": [9.0], "b": [1.0, 2.0, 3.0], "c": [0.0]}, STYLES, table="car")
    assert [row[0] for row in times.rows] == ["c", "b", "a"]
    points = {"a": (9.0, 0.9), "b": (1.0, 0.5), "c": (10.0, 0.8)}
    front = draw_front(points, STYLES, table="car", metric="F1", epsilon=1.0, higher_is_better=True)
    assert [row[-1] for row in front.rows] == ["yes", "yes", "no"]
    for drawing in (times, front):
        ET.fromstring(drawing.svg)
