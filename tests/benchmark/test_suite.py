"""Reading suites: what they may say, and errors that name the line and the nearest word."""

import dataclasses
import textwrap
from pathlib import Path

import pytest

from tests.benchmark.suites import write_suite
from tests.builders import raises
from understudy.benchmark.cells import Cell, cells_of, check_methods, code_of, table_checksums
from understudy.benchmark.suite import REAL, MethodSpec, SuiteError, read_suite, select, suite_names
from understudy.synthesizers.registry import REVISIONS

PLAIN = 'methods = ["independent", "mst"]'


def cells(path: Path) -> list[Cell]:
    suite = read_suite(path)
    return cells_of(suite, checksums=table_checksums(suite)[0])


def test_a_suite_expands_into_every_combination_and_the_real_rows(tmp_path):
    found = cells(write_suite(tmp_path, methods=PLAIN, more="delta = 1e-6"))
    assert len(found) == 1 + 2 * 2
    assert [cell.label for cell in found] == [REAL, "independent", "mst", "independent", "mst"]
    assert [cell.seed for cell in found] == [0, 0, 0, 1, 1], "one seed of everything before the next"
    assert {cell.delta for cell in found[1:]} == {1e-6}
    assert len({cell.key for cell in found}) == len(found)


def test_wrappers_nest_around_their_method(tmp_path):
    sections = '[[methods]]\nmethod = "dpgan(steps=20)"\nname = "dpgan"\nwrappers = ["quail", "boosted(rounds=5)"]'
    plain, quail, boosted = read_suite(write_suite(tmp_path, methods=sections)).methods
    assert (plain.label, quail.label, boosted.label) == ("dpgan", "quail(dpgan)", "boosted(dpgan)")
    assert quail.expression == "quail(dpgan(steps=20))"
    assert boosted.expression == "boosted(dpgan(steps=20), rounds=5)"
    assert (quail.wrapper, quail.inner, plain.wrapper) == ("quail", "dpgan", None)


def test_the_key_follows_everything_that_the_result_depends_on(tmp_path):
    cell = cells(write_suite(tmp_path, methods=PLAIN))[1]
    assert cell.method is not None
    others = [
        dataclasses.replace(cell, seed=1),
        dataclasses.replace(cell, epsilon=2.0),
        dataclasses.replace(cell, delta=1e-9),
        dataclasses.replace(cell, data="other rows"),
        dataclasses.replace(cell, code="another version"),
        dataclasses.replace(cell, synthetic_rows=7),
        dataclasses.replace(cell, bins="uniform"),
        dataclasses.replace(cell, method=dataclasses.replace(cell.method, expression="independent(smoothing=1.0)")),
        dataclasses.replace(cell, scoring=dataclasses.replace(cell.scoring, max_rows=7)),
        dataclasses.replace(cell, scoring=dataclasses.replace(cell.scoring, metrics=("f1",))),
    ]
    assert len({each.key for each in [cell, *others]}) == 1 + len(others)


def test_labels_paths_and_spaces_do_not_change_the_key(tmp_path):
    cell = cells(write_suite(tmp_path, methods=PLAIN))[1]
    renamed = dataclasses.replace(cell, method=MethodSpec(expression=" independent ", name="baseline"))
    moved = dataclasses.replace(cell, table=dataclasses.replace(cell.table, file="elsewhere.csv"))
    assert cell.key == renamed.key == moved.key


def test_a_cell_survives_json(tmp_path):
    for cell in cells(write_suite(tmp_path, methods=PLAIN)):
        assert Cell.from_json(cell.to_json()) == cell
        assert Cell.from_json(cell.to_json()).key == cell.key


def test_the_code_of_a_method_names_the_revision_of_all_its_parts():
    used = [f"{name}:{REVISIONS.get(name, 1)}" for name in ("adaptive", "quail")]
    assert code_of(MethodSpec(expression="quail(auto)")).split()[2:] == used
    assert code_of(MethodSpec(expression="dpgan")).split()[2:] == ["dpgan:1"]


def test_profiles_change_what_they_name_and_keep_the_rest(tmp_path):
    path = write_suite(tmp_path, methods=PLAIN)
    path.write_text(path.read_text() + '\n[profiles.quick]\nseeds = 1\nmethods = ["mst"]\n')
    suite = read_suite(path, profile="quick")
    assert (suite.seeds, [method.label for method in suite.methods]) == (1, ["mst"])
    assert read_suite(path).seeds == 2


@pytest.mark.parametrize("name", suite_names())
def test_every_suite_that_ships_can_be_read_in_each_profile(name):
    suite = read_suite(name)
    assert suite.title
    for profile in ("smoke", "quick"):
        if name != "smoke" or profile == "smoke":
            assert len(read_suite(name, profile=profile).tables) >= 1
    check_methods(suite)


BROKEN = {
    "unknown table": ('tables = ["adlut"]', "adult"),
    "unknown method": ('methods = ["mts"]', "mst"),
    "unknown metric": ('metrics = ["ff1"]', "f1"),
    "unknown key": ("sedes = 3", "seeds"),
}


@pytest.mark.parametrize(("line", "nearest"), BROKEN.values(), ids=BROKEN.keys())
def test_an_unknown_name_is_refused_with_its_line_and_the_nearest(tmp_path, line, nearest):
    lines = {
        "tables": 'tables = ["car"]',
        "methods": PLAIN,
        "metrics": 'metrics = ["f1"]',
        "epsilons": "epsilons = [1]",
    }
    lines[line.split()[0]] = line
    path = tmp_path / "suite.toml"
    path.write_text("# a comment\n" + "\n".join(lines.values()))
    with pytest.raises(SuiteError) as refused:
        read_suite(path)
    assert refused.value.line == 2 + list(lines.values()).index(line)
    assert f"line {refused.value.line}: " in str(refused.value)
    assert f"Did you mean '{nearest}'?" in str(refused.value)


def test_a_line_that_may_be_another_is_not_named(tmp_path):
    """The word stands in two lines: which one is wrong is not known. In a comment it does not count."""
    path = tmp_path / "suite.toml"
    rest = 'metrics = ["f1"]\nepsilons = [1]'
    for title, line in (('"mts or mst?"', None), ('"a # sign"  # not mts', 2)):
        path.write_text(f'title = {title}\nmethods = ["mts"]\ntables = ["car"]\n{rest}')
        with pytest.raises(SuiteError) as refused:
            read_suite(path)
        assert (refused.value.setting, refused.value.line) == ("mts", line)


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ("epsilons = [0]", "epsilons"),
        ("epsilons = 1", "epsilons"),
        ("seeds = 0", "seeds"),
        ("epsilons = [1, 1.0]", "epsilons"),
        ('tables = [{ name = "car", target = "doors" }]', "target"),
        ('tables = [{ name = "../car", file = "a.csv", schema = "a.toml" }]', "name"),
        ("delta = 2", "delta"),
        ("metrics = []", "metrics"),
        ('methods = ["mst", "mst"]', "mst"),
        ('profiles = "x"', "profiles"),
        ("limits = { minutes = -1 }", "minutes"),
        ("limits = { hours = 1 }", "hours"),
        ("x = ", None),
    ],
)
def test_a_suite_that_makes_no_sense_is_refused_in_one_line(tmp_path, change, setting):
    lines = {
        "tables": 'tables = ["car"]',
        "methods": PLAIN,
        "metrics": 'metrics = ["f1"]',
        "epsilons": "epsilons = [1]",
    }
    lines[change.split()[0]] = change
    path = tmp_path / "suite.toml"
    path.write_text("\n".join(lines.values()))
    with pytest.raises(SuiteError) as refused:
        read_suite(path)
    assert refused.value.setting == setting
    assert (refused.value.line is None) == (setting is None)
    assert "\n" not in str(refused.value)


def test_a_setting_that_no_method_has_is_refused_before_the_first_cell(tmp_path):
    suite = read_suite(write_suite(tmp_path, methods='methods = ["mst(setps=3)"]'))
    with raises(SuiteError, setting="methods"):
        check_methods(suite)


def test_two_names_of_one_method_are_refused(tmp_path):
    path = write_suite(tmp_path, methods='methods = ["mst", { method = "mst ", name = "again" }]')
    with raises(SuiteError, setting="methods"):
        cells(path)


def test_a_file_needs_a_schema(tmp_path):
    path = tmp_path / "suite.toml"
    path.write_text(
        textwrap.dedent(
            """
            epsilons = [1.0]
            metrics = ["f1"]
            methods = ["mst"]
            [[tables]]
            name = "mine"
            file = "mine.csv"
            """
        )
    )
    with pytest.raises(SuiteError) as refused:
        read_suite(path)
    assert refused.value.setting == "schema"


def test_a_suite_can_be_narrowed(tmp_path):
    suite = read_suite(write_suite(tmp_path, methods=PLAIN))
    assert [method.label for method in select(suite, methods=["mst"]).methods] == ["mst"]
    with raises(SuiteError, setting="methods"):
        select(suite, methods=["mts"])


def test_a_missing_suite_is_refused_with_those_that_exist():
    with raises(SuiteError, setting="suite"):
        read_suite("smke")
