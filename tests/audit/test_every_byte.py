"""Every byte that a run leaves behind, on a table and on the same table with one odd row more.

A row that does not count changes no byte. A row that counts changes noise alone, by the list in `fields.py`; and where
both runs get the same noisy answers, no byte at all. What a training makes of a row is seen where no batch has it.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
import safetensors.numpy
from sklearn.base import clone

import understudy as us
from tests.audit import fields
from tests.audit.outcomes import (
    Answers,
    Found,
    differences,
    everything_in,
    is_listed,
    leaves_in,
    leaves_of,
    one_secret,
    recorded,
)
from tests.learners.people import FEW, SCHEMA, people
from understudy.privacy.rows.scratch import CodeFile
from understudy.privacy.rows.units import rows_within_units
from understudy.tables import stream

# ------------------------------------------------------------------------------------------------- tables and rows

OPEN_UNITS = """
table = { unit = "who", max_rows_per_unit = 3 }
columns.who.kind = "id"
columns.sex = { kind = "categorical", categories = ["f", "m"], per_unit = true }
columns.x = { kind = "integer", bounds = [0, 9] }
columns.town = { kind = "categorical" }
columns.pay = { kind = "real" }
columns.day = { kind = "date" }
columns.note.kind = "text"
rules = [ { keep = "x <> 3", on_break = "drop" } ]
"""
DECLARED = """
table = { unit = "who", max_rows_per_unit = 3, rows = 220 }
columns.who.kind = "id"
columns.sex = { kind = "categorical", categories = ["f", "m"], per_unit = true }
columns.x = { kind = "integer", bounds = [0, 9] }
columns.town = { kind = "categorical", categories = ["north", "south"] }
columns.pay = { kind = "real", bounds = [0, 100], decimals = 1 }
columns.day = { kind = "date", bounds = ["2020-01-01", "2021-01-01"] }
columns.note.kind = "text"
rules = [ { keep = "x <> 3", on_break = "drop" } ]
"""
SCHEMAS = {"open": OPEN_UNITS, "declared": DECLARED}
ESTIMATED = {"open": ["town", "pay", "day", "rows"], "declared": []}
HEAD = "who,sex,x,town,pay,day,note"
MODELLED = ["sex", "x", "town", "pay", "day"]
Row = tuple[str, ...]


def base() -> list[Row]:
    """Units of two rows, and one of six, of which three are used."""
    draw = np.random.default_rng(0)
    rows: list[Row] = [
        (
            *(f"p{at // 2}", "fm"[at % 4 // 2], str(at % 10), "north" if draw.random() < 0.6 else "south"),
            *(f"{draw.uniform(0, 99):.1f}", f"2020-01-{1 + at % 28:02d}", "seen"),
        )
        for at in range(240)
    ]
    return [*rows, *(("many", "f", str(at), "north", "5.5", "2020-03-01", "") for at in (0, 1, 2, 4, 5, 6))]


def of_many(*, used: bool) -> Row:
    """A seventh row of the large unit that is among the three that are used, by their public order, or is not."""
    known = [row for row in base() if row[0] == "many"]
    for day in range(1, 29):
        row = ("many", "f", "8", "south", "77.7", f"2020-05-{day:02d}", "later")
        columns = zip(*[each[:6] for each in (*known, row)], strict=True)
        table = pa.table(dict(zip(HEAD.split(","), columns, strict=False)))
        typed = us.Schema.from_toml(DECLARED)
        read = us.tables.conform(table.append_column("note", pa.array([""] * 7)), typed)
        if bool(rows_within_units([read], "who", MODELLED, 3)[0][-1]) == used:
            return row
    raise AssertionError("no such row")


IGNORED: dict[str, Callable[[], list[Row]]] = {
    "no unit id": lambda: [("", "f", "1", "north", "5.5", "2020-01-02", "")],
    "no unit id and odd values": lambda: [("", "?", "9" * 30, "\u202e", "NaN", "0400-01-01", '"' * 9)],
    "left out by a rule": lambda: [("new", "m", "3", "south", "5.5", "2020-01-02", "secret")],
    "left out by a rule, of a known unit": lambda: [("p0", "m", "3", "elsewhere", "1e300", "", "")],
    "beyond the rows of a unit that are used": lambda: [of_many(used=False)],
}
"""Rows whose fate is public: they do not count."""
COUNTED: dict[str, Callable[[], list[Row]]] = {
    "a row like the others": lambda: [("new", "f", "1", "north", "5.5", "2020-01-02", "")],
    "odd values": lambda: [("new", "?", "1.5", "else\x00where", "1e300", "9999-12-31", "a\n\nb")],
    "instead of another row of its unit": lambda: [of_many(used=True)],
    "a large unit": lambda: [("new", "fm"[at % 2], str(at), "west", "-1", "1970-01-01", "") for at in (0, 1, 2, 4)],
}


def write_table(path: Path, rows: Sequence[Row]) -> None:
    columns = dict(zip(HEAD.split(","), map(list, zip(*rows, strict=True)), strict=True))
    pa.csv.write_csv(pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()}), path)


BUDGET = ["--epsilon", "9", "--delta", "1e-5", "--method", "independent"]


def commands(folder: Path, kind: str, more: Sequence[Row]) -> Found:
    """All commands that write something of a release, one after the other."""
    (folder / "schema.toml").write_text(SCHEMAS[kind])
    write_table(folder / "t.csv", [*base(), *more])
    with one_secret(), recorded(folder) as recorder:
        run = recorder.command
        run("book", "create", "people.book", "--epsilon", "50", "--delta", "1e-4", "--unit", "who")
        made = ["--schema", "schema.toml", *BUDGET]
        run("synth", "t.csv", "-o", "fake.csv", "-n", "20", "--json", "synth.certificate.json", *made)
        run("fit", "t.csv", "-o", "r", "--scratch", ".", "--json", "-", "--book", "people.book", *made)
        run("sample", "r", "-o", "more.parquet", "-n", "15")
        run("certificate", "r", "--html", "page.html", "--json", "shown.certificate.json")
        run("bundle", "r", "-o", "b.zip", "--table", "more.parquet")
        run("verify", "b.zip")
        run("book", "show", "people.book", "--json", "-")
        run("synth", "t.csv", "-o", "none.csv", "--schema", "schema.toml", "--epsilon", "-1")
    return recorder.found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Found]:
    """What the commands leave behind on the table without an additional row."""

    @functools.cache
    def run(kind: str) -> Found:
        with contextlib.chdir(tmp_path_factory.mktemp(kind)):
            return commands(Path.cwd(), kind, [])

    return run


Without = Callable[[str], Found]


def test_the_commands_succeed(without: Without) -> None:
    found = without("open")
    codes = {at: values for at, values in found.items() if at.endswith(":exit code")}
    assert codes.pop("synth:exit code") == [0, 2]
    assert all(set(each) == {0} for each in codes.values()), codes
    assert "temporary:" in found, "nothing is left in the system's temporary folder"
    assert not [at for at in found if "understudy-" in at], "nor in the scratch folder"


def test_rows_that_do_not_count_change_no_byte(folder: Path, without: Without) -> None:
    """All of them at once; `make audit-test` has each alone."""
    found = commands(folder, "open", [row for rows in IGNORED.values() for row in rows()])
    assert not differences(without("open"), found, ignored=True)


@pytest.mark.audit
@pytest.mark.parametrize("kind", SCHEMAS)
@pytest.mark.parametrize("row", IGNORED)
def test_a_row_that_does_not_count_changes_no_byte(folder: Path, without: Without, row: str, kind: str) -> None:
    assert not differences(without(kind), commands(folder, kind, IGNORED[row]()), ignored=True)


COUNTED_IN = [
    pytest.param(
        kind,
        row,
        marks=[] if (kind, row) in (("open", "odd values"), ("declared", "a large unit")) else pytest.mark.audit,
    )
    for kind in SCHEMAS
    for row in COUNTED
]


@pytest.mark.parametrize(("kind", "row"), COUNTED_IN)
def test_a_row_that_counts_changes_noise_alone(folder: Path, without: Without, kind: str, row: str) -> None:
    found = commands(folder, kind, COUNTED[row]())
    assert not differences(without(kind), found, ESTIMATED[kind])
    assert differences(without(kind), found, ESTIMATED[kind], ignored=True), "the row counts"


@pytest.mark.parametrize(("kind", "row"), COUNTED_IN)
def test_the_same_noisy_answers_give_the_same_bytes(folder: Path, kind: str, row: str) -> None:
    answers = Answers()
    with answers.noted():
        first = commands(folder, kind, [])
    with answers.repeated():
        second = commands(folder, kind, COUNTED[row]())
    assert not differences(first, second, ignored=True)
    assert len(answers.given) > 8


# --------------------------------------------------------------------------------------------------------- batches


def test_batches_and_rows_that_do_not_count_between_them_change_no_byte(
    folder: Path, without: Without, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read in batches of 7 rows, whose boundaries additional rows shift: the bytes of one batch."""
    monkeypatch.setattr(stream, "BATCH_ROWS", 7)
    rows = base()
    for at, more in enumerate(IGNORED.values()):
        rows[5 * at : 5 * at] = more()
    monkeypatch.setitem(globals(), "base", lambda: rows)
    assert not differences(without("open"), commands(folder, "open", []), ignored=True)


class BrokenOffError(Exception):
    """Stands for any error while a table is read; its message quotes a value, as errors of readers may."""


@pytest.mark.parametrize("batch", [0, 60, *(pytest.param(each, marks=pytest.mark.audit) for each in (1, 30, 90))])
def test_a_pass_that_breaks_off_leaves_no_scratch_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """At any batch of any pass, before and after the first charge: no file of codes, and no value in what is said."""
    monkeypatch.setattr(stream, "BATCH_ROWS", 7)
    append, appended = CodeFile.append, [0]

    def broken(self: CodeFile, codes: np.ndarray) -> None:
        append(self, codes)
        appended[0] += 1
        if appended[0] > batch:
            raise BrokenOffError("the value 4711")

    monkeypatch.setattr(CodeFile, "append", broken)
    (folder / "schema.toml").write_text(OPEN_UNITS)
    write_table(folder / "t.csv", base())
    with one_secret(), recorded(folder) as recorder:
        recorder.command("fit", "t.csv", "-o", "r", "--scratch", ".", "--schema", "schema.toml", *BUDGET)
    if appended[0] > batch:
        assert recorder.found["fit:exit code"] != [0]
        assert "4711" not in str([values for at, values in recorder.found.items() if at.startswith("fit:")])
    assert not [at for at in recorder.found if "understudy-" in at or "codes" in at]
    assert "temporary:" in recorder.found


def failed_after_a_charge(folder: Path, more: Sequence[Row]) -> Found:
    """A run whose method fails: what it says, the record of what was spent, and the checkpoint that is left."""
    (folder / "schema.toml").write_text(OPEN_UNITS)
    write_table(folder / "t.csv", [*base(), *more])
    with one_secret(), recorded(folder) as recorder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("understudy.synthesizers.independent.Independent.fit", _fail)
        recorder.command("book", "create", "people.book", "--epsilon", "50", "--delta", "1e-4", "--unit", "who")
        made = ["--schema", "schema.toml", "--book", "people.book", *BUDGET]
        recorder.command("fit", "t.csv", "-o", "r", *made)
        recorder.command("certificate", "r.spent", "--json", "-")
    return recorder.found


def _fail(*_: object, **__: object) -> None:
    raise us.ConfigError("The method failed.")


def test_what_a_failed_run_keeps_differs_in_a_keyed_hash_alone(folder: Path) -> None:
    rows = [[], [row for each in IGNORED.values() for row in each()], COUNTED["odd values"]()]
    first, ignored, counted = (failed_after_a_charge(folder, more) for more in rows)
    assert first["fit:exit code"] == [2]
    assert first["r.checkpoint/run.json:format"]
    assert first["certificate:exit code"] == [0]
    assert not differences(first, ignored)
    assert not differences(first, counted, ESTIMATED["open"])


# --------------------------------------------------------------------------------------------------------- methods

ALL_COUNTED = [row for rows in COUNTED.values() for row in rows()]
COUNTING = {
    "mst": "mst(iterations=20)",
    "mwem": "mwem(rounds=3)",
    "privbayes": "privbayes",
    "aim": "aim(max_rounds=3, iterations=10)",
    "adaptive": "adaptive",
    "gem": "gem(steps=2, components=20, width=8, num_selections=3)",
    "quail": "quail(independent, target=sex, learner=naive_bayes)",
}
"""Methods whose noise is added to counts, or chooses among candidates."""


def released(method: str, rows: Sequence[Row], kind: str, **how: Any) -> dict[str, bytes]:
    """The files of a release, by `us.fit` on a table in memory."""
    columns = dict(zip(HEAD.split(","), map(list, zip(*rows, strict=True)), strict=True))
    table = pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})
    schema = us.Schema.from_toml(SCHEMAS[kind])
    return us.fit(table, method, us.Guarantee(9.0, 1e-5), schema=schema, **how).to_files()


@pytest.mark.parametrize(
    "method", [pytest.param(each, marks=[] if each in ("mst", "mwem") else pytest.mark.audit) for each in COUNTING]
)
def test_a_release_is_a_function_of_noisy_answers(method: str) -> None:
    answers = Answers()
    with one_secret(), answers.noted():
        first = released(COUNTING[method], base(), "declared")
    with one_secret(), answers.repeated():
        assert released(COUNTING[method], [*base(), *ALL_COUNTED], "declared") == first
    with one_secret():
        assert released(COUNTING[method], [*base(), *ALL_COUNTED], "declared") != first, "the rows count"


NETS = "latent=4, generator_widths=[8], critic_widths=[8]"
TRAINED = {
    "dpgan": f"dpgan(steps=6, sampling_rate=0.2, {NETS})",
    "dpctgan": f"dpctgan(steps=6, sampling_rate=0.2, {NETS})",
    "bayesgan": f"bayesgan(steps=20, sampling_rate=0.03, generator_chains=2, {NETS}, generator_batch=16)",
    "autogan": f"autogan(steps=6, sampling_rate=0.05, autoencoder_steps=6, autoencoder_sampling_rate=0.05, {NETS})",
}
"""Methods that see rows in random batches alone, if everything else is declared."""
VOTES = f"teachers=4, queries=24, iterations=6, teacher_batch=4, student_batch=16, memory=64, {NETS}"
TAUGHT = {"pategan": f"pategan({VOTES})", "patectgan": f"patectgan({VOTES})"}
"""Methods whose teachers see rows without noise, and vote with it."""
WITHOUT_UNITS = """
table.rows = 240
columns.sex = { kind = "categorical", categories = ["f", "m"] }
columns.x = { kind = "categorical", categories = ["0", "1", "2"] }
"""


def with_and_without() -> tuple[pa.Table, pa.Table]:
    """A table, and the same with one odd row more."""
    table = pa.table({"sex": ["f", "m"] * 120, "x": ["0", "1", "2"] * 80})
    return table, pa.concat_tables([table, pa.table({"sex": ["m"], "x": ["elsewhere"]})])


def saved(folder: Path, table: pa.Table, method: str, secret: int = 0) -> Found:
    """Everything in a folder after a release was saved there."""
    with one_secret(secret), recorded(folder):
        schema = us.Schema.from_toml(WITHOUT_UNITS)
        us.fit(table, method, us.Guarantee(5.0, 1e-6), schema=schema).save(folder / "r")
        return everything_in(folder)


@pytest.mark.parametrize(
    "method", [pytest.param(each, marks=[] if each == "dpgan" else pytest.mark.audit) for each in TRAINED]
)
def test_a_row_in_no_batch_changes_no_byte(folder: Path, method: str) -> None:
    """With the same noisy marginals. Of four secrets, some draw the additional row into a batch; others do not, and
    then nothing of it is left."""
    table, more = with_and_without()
    unchanged = []
    for secret in range(4):
        answers = Answers()
        with answers.noted():
            first = saved(folder, table, TRAINED[method], secret)
        with answers.repeated():
            second = saved(folder, more, TRAINED[method], secret)
        assert not differences(first, second)
        unchanged.append(not differences(first, second, ignored=True))
    assert set(unchanged) == {False, True}


@pytest.mark.audit
@pytest.mark.parametrize("method", TAUGHT)
def test_a_row_of_a_teacher_changes_noise_alone(folder: Path, method: str) -> None:
    first, second = (saved(folder, table, TAUGHT[method]) for table in with_and_without())
    assert not differences(first, second)
    assert differences(first, second, ignored=True), "the row counts"


# ---------------------------------------------------------------------------------------------------------- learners

LEARNERS: dict[str, Any] = {
    "logistic": us.learners.LogisticRegression(schema=SCHEMA, **FEW),
    "objective": us.learners.LogisticRegression(schema=SCHEMA, method="objective", numbers="positions"),
    "naive bayes": us.learners.NaiveBayes(schema=SCHEMA),
    "gaussian": us.learners.NaiveBayes(schema=SCHEMA, numbers="gaussian"),
    "prior": us.learners.ClassPrior(schema=SCHEMA),
    "linear": us.learners.LinearRegression(schema=dataclasses.replace(SCHEMA, target="pay"), residual=True),
    "network": us.learners.MLPClassifier(schema=SCHEMA, widths=(8,), **FEW),
}
ODD_PEOPLE = {"job": "pilot", "age": 2**40, "pay": float("inf"), "level": "none"}


def learned(folder: Path, name: str, *, more: bool) -> Found:
    """Every attribute that a fitted learner has, what it writes, and what it says."""
    table = people()
    if more:
        table.loc[len(table)] = [ODD_PEOPLE[column] for column in table.columns]
    with one_secret(), recorded(folder) as recorder:
        learner = clone(LEARNERS[name]).set_params(guarantee=us.Guarantee(9.0, 1e-5))
        recorder.call("fit", lambda: learner.fit(table))
        facts, arrays = learner.to_arrays()
        for part, content in (*facts.items(), ("arrays", arrays)):
            for at, value in leaves_in(content, part):
                recorder.note(f"learner:{at}", value)
        for attribute, value in sorted(vars(learner).items()):
            if attribute.endswith("_") and attribute not in ("model_", "codec_", "statement_", "certificate_"):
                for at, leaf in leaves_in(value, f"attribute_{attribute}"):
                    recorder.note(f"learner:{at}", leaf)
        (folder / "CERTIFICATE.md").write_text(learner.certificate_)
    return recorder.found


OF_LEARNERS = [
    pytest.param(each, marks=[] if each in ("naive bayes", "objective") else pytest.mark.audit) for each in LEARNERS
]


@pytest.mark.parametrize("name", OF_LEARNERS)
def test_a_learner_differs_in_noise_alone(folder: Path, name: str) -> None:
    first, second = (learned(folder, name, more=more) for more in (False, True))
    assert not differences(first, second)
    assert first["learner:learner"]


@pytest.mark.parametrize("name", ["naive bayes", "gaussian", "prior", "linear"])
def test_a_learner_of_counts_is_a_function_of_noisy_answers(folder: Path, name: str) -> None:
    answers = Answers()
    with answers.noted():
        first = learned(folder, name, more=False)
    with answers.repeated():
        assert not differences(first, learned(folder, name, more=True), ignored=True)
    assert differences(first, learned(folder, name, more=True), ignored=True), "the row counts"


# -------------------------------------------------------------------------------------------------- boosting and graphs


def boosted(folder: Path, *, more: bool, secret: int = 0) -> Found:
    draw = np.random.default_rng(0)
    real = draw.uniform(0, 1, (100, 2))
    if more:
        real = np.r_[real, [[np.inf, np.nan]]]
    samples = [draw.uniform(0, 1, (60, 2)), draw.uniform(0, 1, (60, 2)) ** 2]
    with one_secret(secret), recorded(folder) as recorder:
        found = recorder.call(
            "boost",
            lambda: us.boost(
                real,
                samples,
                us.Guarantee(9.0, 1e-5),
                discriminators=[lambda row: row[0], lambda row: 1 - row[1], lambda row: jnp.sin(9 * row.sum())],
                num_rows=100,
                rounds=20,
            ),
        )
        for name in ("weights", "mixture", "rejected_weights"):
            for at, value in leaves_in(getattr(found, name), name):
                recorder.note(f"boost:{at}", value)
        for note in found.notes:
            recorder.note("boost:notes[]", str(note))
        for at, value in leaves_in(found.sample(10, seed=1), "rows"):
            recorder.note(f"boost:{at}", value)
        (folder / "CERTIFICATE.md").write_text(found.certificate)
    return recorder.found


def test_boosted_weights_differ_in_noise_alone(folder: Path) -> None:
    assert not differences(boosted(folder, more=False), boosted(folder, more=True))


RING = [(str(at), str((at + step) % 30)) for at in range(30) for step in (1, 2)]
IGNORED_EDGES = {
    "a loop": [("4", "4")],
    "an end that is no node": [("4", "99"), ("x", "5"), ("", "5"), ("4.5", "5")],
    "an edge again": [("0", "1")],
    "an edge the other way": [("1", "0")],
}
COUNTED_EDGES = {"one edge": [("0", "15")]}


def graph_commands(folder: Path, more: Sequence[tuple[str, str]]) -> Found:
    (folder / "schema.toml").write_text("[nodes]\ncount = 30\n")
    (folder / "t.csv").write_text("".join(f"{a},{b}\n" for a, b in [("source", "target"), *RING, *more]))
    with one_secret(), recorded(folder) as recorder:
        run = recorder.command
        run("fit", "t.csv", "-o", "r", "--schema", "schema.toml", "--epsilon", "2", "--json", "fit.certificate.json")
        run("sample", "r", "-o", "edges.csv", "--seed", "1")
        run("certificate", "r", "--html", "page.html", "--json", "-")
        run("bundle", "r", "-o", "b.zip", "--table", "edges.csv")
    return recorder.found


@pytest.mark.parametrize("edges", IGNORED_EDGES)
def test_edges_that_do_not_count_change_no_byte(folder: Path, edges: str) -> None:
    found = [graph_commands(folder, more) for more in ([], IGNORED_EDGES[edges])]
    assert found[0]["fit:exit code"] == [0], found[0]["fit:errors"]
    assert not differences(found[0], found[1], ignored=True)


def test_an_edge_changes_noise_alone(folder: Path) -> None:
    first, second = (graph_commands(folder, more) for more in ([], COUNTED_EDGES["one edge"]))
    assert not differences(first, second)


def test_a_graph_release_is_a_function_of_noisy_answers(folder: Path) -> None:
    answers = Answers()
    with answers.noted():
        first = graph_commands(folder, [])
    with answers.repeated():
        assert not differences(first, graph_commands(folder, COUNTED_EDGES["one edge"]), ignored=True)
    assert answers.given


# ------------------------------------------------------------------------------------------------ the comparer itself


def test_what_is_not_listed_is_a_difference() -> None:
    assert not is_listed("r/release.json:codec.exact_rows")
    assert not is_listed("r/rows.npy:")
    same: Found = {"r/release.json:codec.exact_rows": [240]}
    assert differences(same, same) == ["r/release.json:codec.exact_rows is not in the list of fields"]
    with pytest.raises(AssertionError, match="no reader"):
        list(leaves_of("rows.npy", b""))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("release.json", b'{"format":1}'),  # laid out otherwise than we do
        ("model.safetensors", safetensors.numpy.save({"a": np.zeros(1)})[:-8] + bytes(7) + b"\1" + b"\0"),
    ],
)
def test_a_byte_outside_the_values_is_seen(name: str, content: bytes) -> None:
    with pytest.raises((AssertionError, safetensors.SafetensorError)):
        list(leaves_of(name, content))


def test_every_entry_of_the_list_says_why() -> None:
    assert all(len(why) > 10 for why in fields.NOISE.values())
    assert all(len(why) > 10 for _, why in fields.WORDS.values())
