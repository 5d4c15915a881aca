"""Large tables, their marginals counted batch by batch, and the page of the results."""

import dataclasses
import itertools
import json
import resource
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import large_table, sizes, sizes_page
from benchmarks.simulated import made_long
from benchmarks.sizes_page import Cell
from understudy.evaluation.marginals import one_way, two_way
from understudy.evaluation.table import Layout
from understudy.schema import Column

SOURCE = large_table.Source(
    pa.table({"place": ["north", "south", "south"], "age": pa.array([20, 30, 40], pa.int32())}),
    lambda rows, draw: rows.append_column("coin", pa.array(draw.random(len(rows)) < 0.5)),
    (
        Column(name="place", kind="categorical", categories=("north", "south"), nullable=False, closed=True),
        Column(name="age", kind="integer", bounds=(20, 40), nullable=False),
        Column(name="coin", kind="boolean", nullable=False),
    ),
)


# -------------------------------------------------------------------------------------------------------- large tables


def test_rows_are_drawn_from_the_source(tmp_path: Path) -> None:
    """Every row is one of the source, each about as often, and texts are read as texts."""
    path = tmp_path / "drawn.parquet"
    schema = large_table.write_table(SOURCE, 3000, path, seed=1)
    drawn = pq.read_table(path)
    assert drawn.schema.types == [pa.string(), pa.int32(), pa.bool_()]
    counts = drawn.to_pandas().groupby(["place", "age"]).size().to_dict()
    assert set(counts) == {("north", 20), ("south", 30), ("south", 40)}
    assert all(abs(count - 1000) < 130 for count in counts.values())  # five standard deviations
    assert (schema.rows, [column.name for column in schema.columns]) == (3000, drawn.column_names)
    assert sizes.us.Schema.read(path.with_suffix(".toml")) == schema
    assert sorted(file.name for file in tmp_path.iterdir()) == ["drawn.parquet", "drawn.toml"]


def test_the_seed_sets_the_rows() -> None:
    first, again, other = (
        pa.concat_tables(large_table.draw_batches(SOURCE, 50, seed=seed, group_rows=20)) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


# ------------------------------------------------------------------------------------------------------------- figures


def test_distances_of_batches_are_those_of_the_evaluation() -> None:
    """Counted in batches of 300 rows, against the evaluation of the whole tables."""
    real, schema = made_long(rows=1000, columns=8).train, made_long(rows=1000, columns=8).schema
    other = real.take(np.random.default_rng(1).integers(0, 400, 700))
    layout = Layout.of(real, schema)
    counted = [
        sizes.Marginals.of((table.slice(start, 300) for start in range(0, len(table), 300)), layout)
        for table in (real, other)
    ]
    encoded = [layout.read(table, "table") for table in (real, other)]
    assert counted[0].distance(counted[1], 2) == pytest.approx(two_way(*encoded, bins=sizes.BINS).scores["tv2"].value)
    assert counted[0].distance(counted[1], 1) == pytest.approx(one_way(*encoded, bins=sizes.BINS).scores["tv1"].value)


def test_counts_beside_a_table_are_used_again(tmp_path: Path) -> None:
    path = tmp_path / "drawn.parquet"
    schema = large_table.write_table(SOURCE, 500, path)
    counted, again = (sizes.real_marginals(path, schema) for _ in range(2))
    assert path.with_suffix(".npz").exists()
    assert {clique: found.sum() for clique, found in counted.counts.items()} == dict.fromkeys(counted.counts, 500)
    assert all(np.array_equal(counted.counts[clique], again.counts[clique]) for clique in counted.counts)


def test_sampling_error_is_that_of_a_fair_coin() -> None:
    """The mean of |heads / n - 1/2| is sqrt(1 / (2 pi n)); all marginals here are coins."""
    cliques = [(str(number),) for number in range(400)]
    fair = sizes.Marginals(None, {clique: np.array([7, 7]) for clique in cliques})  # type: ignore[arg-type]  # sizes need no schema
    expected = (2 * np.pi * 10_000) ** -0.5
    assert fair.distance(fair.drawn_again(10_000), 1) == pytest.approx(expected, rel=0.2)


def test_few_pairs_are_all_compared_and_many_are_not() -> None:
    few, many = ([str(number) for number in range(count)] for count in (5, 200))
    assert sizes.cliques_of(few)[5:] == list(itertools.combinations(few, 2))
    pairs = sizes.cliques_of(many)[200:]
    assert len(set(pairs)) == len(pairs) == sizes.MAX_PAIRS
    assert sizes.cliques_of(many) == sizes.cliques_of(many)


def test_peak_memory_lies_between_the_present_one_and_that_of_the_system() -> None:
    """The system's figure may be that of a parent, which is why it is not used."""
    held = np.ones(10_000_000)
    present = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    del held
    slack = 2**21  # the kernel adds up pages in batches
    assert present - slack <= sizes.peak_bytes() <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 + slack


@pytest.mark.slow
def test_a_cell_that_fails_is_a_result(tmp_path: Path) -> None:
    """Its table is missing: the process ends with an error, whose last line is kept."""
    found = sizes.run_cell(Cell("wide", 50, 10, "mst", private=True), tmp_path, limit=100)
    assert "wide-50x10" in found["failed"]
    assert {"date", "machine", "commit", "load"} < set(found)


@pytest.mark.slow
def test_a_cell_has_all_figures(tmp_path: Path) -> None:
    cell = Cell("wide", 500, 10, "independent", private=True)
    sizes.write_table(cell, tmp_path)
    found = sizes.run_cell(cell, tmp_path, limit=500)
    assert {"seconds", "cpu_seconds", "gigabytes", "tvd1", "tvd2", "sampling1", "sampling2"} < set(found)
    assert 0 < found["sampling2"] < found["tvd2"] < 1


# ---------------------------------------------------------------------------------------------------------------- page

FACTS = {"date": "2026-11-17", "machine": "none", "commit": "abc", "load": 1.0}


def made(rows: int, method: str, tvd2: float, *, private: bool = True, table: str = "census") -> tuple[Cell, dict]:
    figures = {"seconds": rows / 1e4, "cpu_seconds": rows / 1e4, "gigabytes": 0.5, "tvd1": tvd2 / 2, "tvd2": tvd2}
    errors = {"sampling1": 0.001, "sampling2": 0.002}
    return Cell(table, rows, 10, method, private), {**FACTS, **figures, **errors}


RESULTS = dict(
    [
        made(10_000, "mst", 0.25),
        made(10_000, "mst", 0.05, private=False),
        made(1_000_000, "mst", 0.06),
        made(1_000_000, "aim", 0.03),
        made(100_000, "mst", 0.1, table="wide"),
        (Cell("wide", 100_000, 1000, "aim", private=True), {**FACTS, "failed": "more than 9 seconds"}),
    ]
)


def test_the_page_shows_the_cost_of_privacy_and_failures() -> None:
    lines = sizes_page.page(RESULTS).splitlines()
    (small,) = [line for line in lines if line.startswith("| 10,000 | `mst`")]
    assert "| 0.2500 | 0.0500 | 0.2000 |" in small
    (failed,) = [line for line in lines if line.startswith("| 1,000 | `aim`")]
    assert "more than 9 seconds" in failed
    tables = [line for line in lines if line.startswith("|")]
    assert len({line.count("|") for line in tables}) == 1


def test_the_picture_names_every_method_at_its_lines() -> None:
    """In one legend; three figures by rows, where both have results, and three by columns, where aim failed."""
    drawn = sizes_page.draw(RESULTS).svg
    ET.fromstring(drawn)
    assert (drawn.count(">aim<"), drawn.count(">mst<")) == (1, 1)


def test_the_last_result_of_a_cell_counts(tmp_path: Path) -> None:
    cell = Cell("census", 5, 10, "mst", private=True)
    path = tmp_path / "sizes.jsonl"
    path.write_text(
        "".join(json.dumps({"cell": dataclasses.asdict(cell), "tvd2": value}) + "\n" for value in (0.3, 0.2))
    )
    assert sizes_page.read_results(path) == {cell: {"tvd2": 0.2}}
    assert sizes_page.read_results(tmp_path / "absent.jsonl") == {}
