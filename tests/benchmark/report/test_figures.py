"""Drawings: scales, label placement, marks of failures, and what their tables hold."""

import itertools
import xml.etree.ElementTree as ET

import pytest

from tests.benchmark.report.records import make_record
from understudy.benchmark.report.axes import Scale, assign_styles, scale_around, spread_labels
from understudy.benchmark.report.diagrams import draw_changes, draw_ranks, largest_change
from understudy.benchmark.report.figures import draw_curves, draw_front, draw_times
from understudy.benchmark.report.ranks import Ranking
from understudy.benchmark.report.records import read_records
from understudy.benchmark.report.statistics import summarise

STYLES = assign_styles(read_records([make_record(method=name, f1=0.5) for name in ("independent", "a", "b", "c")]))


def test_wrapped_methods_share_the_colour_of_the_inner_one() -> None:
    cells = [make_record(method="mst", f1=0.5), make_record(method="quail(mst)", inner="mst", f1=0.5)]
    styles = assign_styles(read_records(cells))
    assert styles["mst"].style.colour == styles["quail(mst)"].style.colour
    assert (styles["mst"].is_hollow, styles["quail(mst)"].is_hollow) == (False, True)


@pytest.mark.parametrize("values", [[0.5], [0.0], [0.0, 0.0], [1.0], [3.0, 3.0], [-2.0, 5.0]])
def test_scales_have_room_around_any_values(values: list[float]) -> None:
    scale = scale_around(values, 100.0, 0.0)
    assert scale.low < scale.high
    assert all(0 <= scale.at(value) <= 100 for value in values)
    assert scale.ticks()


def test_logarithmic_ticks_are_round() -> None:
    assert Scale(0.5, 2000.0, 0, 1, is_log=True).ticks() == [1, 10, 100, 1000]
    assert Scale(2.0, 9.0, 0, 1, is_log=True).ticks()


def test_labels_do_not_overlap_and_keep_their_order() -> None:
    heights = {"a": 10.0, "b": 11.0, "c": 12.0, "d": 90.0}
    found = spread_labels(heights, 5.0, 100.0, pitch=10.0)
    order = sorted(found.values())
    assert list(found.values()) == order
    assert min(b - a for a, b in itertools.pairwise(order)) >= 10 - 1e-9
    assert order[0] >= 5


def test_curves_break_at_failures_and_list_them() -> None:
    curve = {0.1: summarise([0.4, 0.5]), 1.0: summarise([], num_failed=2), 3.0: summarise([0.6, 0.7])}
    drawing = draw_curves({"a": curve}, STYLES, table="car", metric="F1", real=summarise([0.9]))
    lines = [part for part in drawing.body.split("<path") if STYLES["a"].line in part]
    (path,) = [part.partition('"')[2].partition('"')[0] for part in lines]
    assert path.count("M") == 2
    assert drawing.rows[1] == ("a", "1", "–", "–", "0", "2")
    assert "Real data scores 0.900" in drawing.label
    ET.fromstring(drawing.to_svg())


def test_a_perfect_score_of_zero_leaves_a_logarithmic_scale() -> None:
    curve = {0.1: summarise([90.0]), 1.0: summarise([2.0])}
    drawing = draw_curves({"a": curve}, STYLES, table="car", metric="pMSE ratio", real=summarise([0.0]))
    assert drawing.title == "pMSE ratio on car; real data 0"
    assert "real data" not in drawing.body


def test_the_rank_diagram_has_a_bar_a_group() -> None:
    ranking = Ranking({"a": 1.2, "b": 1.8, "c": 3.0}, 9, 8.0, 0.01, 1.0)
    drawing = draw_ranks(ranking, STYLES, metric="F1")
    assert drawing.body.count('stroke-width="4"') == 1
    assert "critical difference 1.00" in drawing.body
    ET.fromstring(drawing.to_svg())


def test_changes_are_blue_when_better_whatever_the_direction() -> None:
    pairs = {
        "a": {1.0: (summarise([2.0, 2.1]), summarise([5.0, 5.1])), 3.0: (summarise([], num_failed=1), summarise([1.0]))}
    }
    down = draw_changes(pairs, table="car", metric="pMSE", wrapper="QUAIL", higher_is_better=False, peak=3.0)
    up = draw_changes(pairs, table="car", metric="pMSE", wrapper="QUAIL", higher_is_better=True, peak=3.0)
    assert "#083c7a" in down.body
    assert "#b35806" in up.body
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
        ET.fromstring(drawing.to_svg())
