"""Small tables are named before anything is charged, by declared or assumed sizes alone."""

import dataclasses

import pyarrow as pa
import pytest

import understudy as us
from understudy.notes import Level, Note
from understudy.planning.requirements import ENOUGH, Requirements, round_to_two_digits
from understudy.run.listener import Listener

COLUMNS = (
    us.Column(name="sex", kind="categorical", categories=("f", "m")),
    us.Column(name="age", kind="integer", bounds=(0, 99)),
)
GUARANTEE = us.Guarantee(1.0, 1e-6)


def about_size(plan: us.Plan) -> list[Note]:
    return [note for note in plan.notes if "mostly noise" in note.text]


def test_a_plan_for_few_rows_warns_and_one_for_many_does_not() -> None:
    """The limit is ten times the noise that the plan itself expects, rounded up to two digits."""
    schema = us.Schema(columns=COLUMNS)
    for method in ("mst", "adaptive", "independent"):
        noise = min(each.stddev for each in us.plan(schema, method, GUARANTEE).expected)
        least = round_to_two_digits(ENOUGH * noise)
        (told,) = about_size(us.plan(schema, method, GUARANTEE, rows=least - 1))
        assert told.level is Level.WARNING
        assert told.text.startswith(f"{least - 1:,} rows are too few for epsilon 1: each count will be off by about ±")
        assert f"About {least:,} rows would be enough" in told.text
        assert not about_size(us.plan(schema, method, GUARANTEE, rows=least))
        declared = dataclasses.replace(schema, rows=20)
        assert about_size(us.plan(declared, method, GUARANTEE))[0].text.startswith(
            "20 rows are too few for epsilon 1: "
        )
        assert about_size(us.plan(declared, method, us.Guarantee(100.0, 1e-6))) == []


def test_without_a_size_the_plan_says_how_many_rows_are_enough() -> None:
    (told,) = about_size(us.plan(us.Schema(columns=COLUMNS), "mst", GUARANTEE))
    assert told.level is Level.INFO
    assert "Each count will be off by about ±" in told.text
    assert "If your table has fewer than " in told.text


def test_estimated_lists_need_more_rows() -> None:
    """A value of a tenth of the rows must pass the threshold of the list."""
    wide = us.Schema(columns=tuple(us.Column(name=f"c{number}", kind="categorical") for number in range(30)))
    (told,) = about_size(us.plan(wide, "mst", GUARANTEE, rows=1000))
    assert "become 'other'" in told.text
    assert told.level is Level.WARNING


def test_what_is_not_known_is_not_said() -> None:
    """Trained methods do not know their noise in advance; a run without noise has none."""
    assert Requirements(None, None).note(3, epsilon=1.0) is None
    declared = us.Schema(columns=COLUMNS, rows=20)
    assert about_size(us.plan(declared, "dpgan", GUARANTEE)) == []
    assert about_size(us.plan(declared, "mst", us.Guarantee.not_private())) == []


class Hearing(Listener):
    """Writes down what is told, and when the run works."""

    def __init__(self, heard: list[str]) -> None:
        super().__init__(lambda fraction, now: heard.append("works"))
        self._heard = heard

    def note(self, note: Note) -> None:
        self._heard.append(str(note))


@pytest.mark.parametrize("num_rows", [0, 20, 5000])
def test_a_run_says_it_before_anything_is_charged_and_never_by_its_rows(num_rows: int) -> None:
    """The same words for tables of any size, heard before the run starts to work."""
    table = pa.table({"sex": pa.array(["f"] * num_rows, pa.string()), "age": pa.array([7] * num_rows, pa.int64())})
    heard: list[str] = []
    for rows in (None, 20, 5000):
        schema = us.Schema(columns=COLUMNS, rows=rows)
        us.fit(table, "independent", GUARANTEE, schema=schema, seed=0, progress=Hearing(heard))
    said = [text for text in heard if text != "works"]
    assert heard[0] == said[0]
    assert [text.split(":")[0] for text in said] == [
        "Each count will be off by about ±6.2 rows. If your table has fewer than 63 rows, expect mostly noise.",
        "Warning",
    ]
    assert "20 rows are too few for epsilon 1" in said[1]


# ----------------------------------------------------------------------------------------------------- plan with --rows


def test_an_assumed_number_of_rows_is_used_throughout() -> None:
    """As if it were declared in the schema; where none is declared, the size is still estimated privately."""
    declared = us.Schema(columns=COLUMNS, rows=200)
    assumed = us.plan(declared, "pategan", us.Guarantee(1.0), rows=20_000)
    of_declared = us.plan(dataclasses.replace(declared, rows=20_000), "pategan", us.Guarantee(1.0))
    assert assumed.queries == of_declared.queries
    *others, last = assumed.notes
    assert last.text == "Planned for 20,000 rows instead of the declared 200."
    assert tuple(others) == of_declared.notes
    undeclared = us.Schema(columns=COLUMNS)
    assert "size" in us.plan(undeclared, "mst", GUARANTEE, rows=500)
    texts = " ".join(note.text for note in us.plan(undeclared, "pategan", GUARANTEE, rows=500).notes)
    assert "1,000" not in texts
    assert (
        us.guarantee_for(undeclared, "1-way 1%", "mst", rows=2000).epsilon
        < us.guarantee_for(undeclared, "1-way 1%", "mst", rows=500).epsilon
    )
