"""Tables that cannot be attacked, or would mislead, are refused with one line that has no value of a row."""

import pandas as pd
import pytest
from scipy.stats import binom

import understudy as us
from tests.disclosure.made_tables import draw_common, draw_people
from understudy.disclosure.disclose import Disclosure
from understudy.disclosure.inputs import SHARED_ALARM, read_tables, warn_of_shared_rows
from understudy.schema import as_schema
from understudy.tables import ReadOptions

TRAIN, HELD, FAKE = draw_people(500, 1), draw_people(300, 2), draw_people(300, 3)


def refused(error: type[us.UnderstudyError], text: str, real=TRAIN, fake=FAKE, holdout=HELD, **options) -> None:
    with pytest.raises(error, match=text) as caught:
        us.disclose(real, fake, holdout=holdout, **options)
    assert "\n" not in str(caught.value)


def read(real: pd.DataFrame, holdout: pd.DataFrame, *, from_split: bool = False, schema=None):
    reading = ReadOptions()
    declared = None if schema is None else us.Schema.from_dict(schema)
    return read_tables(real, FAKE, holdout, schema=declared, from_split=from_split, reading=reading, seed=0)


def test_a_holdout_that_was_fitted_is_refused() -> None:
    refused(
        us.TableError, "100% of its rows equal a training row, where about 0% would be expected", holdout=TRAIN[:300]
    )


def test_a_holdout_of_which_a_tenth_was_fitted_is_refused() -> None:
    refused(us.TableError, "The holdout overlaps the real table", holdout=pd.concat([HELD, TRAIN[:60]]))
    refused(us.TableError, "give the table without them, which was fitted", holdout=pd.concat([HELD, TRAIN[:60]]))


def test_a_few_rows_in_both_tables_are_warned_of() -> None:
    """Too few to be refused; the number of shared rows is in the report."""
    holdout = pd.concat([HELD[:290], TRAIN[:10]])
    found = us.disclose(TRAIN, FAKE, holdout=holdout, secrets=["sex"])
    assert found.warnings[0].startswith("10 held-out rows equal one training row and no other real row; duplicates")
    assert "suggest about 0 by chance" in found.warnings[0]
    assert found.to_json()["warnings"] == list(found.warnings)


def test_a_random_split_of_a_table_with_twins_is_rarely_warned_of() -> None:
    """Fails with probability below 1e-4 if the warning has the stated false-alarm rate."""
    table = read(draw_people(900, 1, decimals=-1), draw_people(300, 2, decimals=-1)).real
    warned = sum(bool(warn_of_shared_rows(*table.split(0.7, seed=seed))) for seed in range(1000))
    assert warned <= binom.ppf(1 - 1e-4, 1000, SHARED_ALARM)


@pytest.mark.parametrize(
    ("column", "values", "text"),
    [
        ("height", "abc", "height: no synthetic value is a number; not compared."),
        ("sex", "unheard of", "sex: no synthetic value is one of the categories; not compared."),
    ],
)
def test_a_column_without_a_readable_synthetic_value_is_left_out(column: str, values: str, text: str) -> None:
    """Copies are then found in the other columns."""
    schema = {
        "columns": {
            **{name: {"kind": "real", "bounds": [-90, 90]} for name in ("height", "weight", "income")},
            **{name: {"kind": "categorical", "categories": list(TRAIN[name].unique())} for name in ("sex", "region")},
        }
    }
    found = us.disclose(TRAIN, TRAIN.assign(**{column: values}), holdout=HELD, schema=schema)
    assert found.warnings == (text,)
    assert found.membership.copies.training.value == 1
    assert column not in [each.column for each in found.attributes]
    schema["columns"] = {column: schema["columns"][column]}
    refused(us.TableError, "No column of the synthetic table", fake=FAKE.assign(**{column: values}), schema=schema)


@pytest.mark.parametrize("seed", range(20))
def test_common_rows_are_no_overlap(seed: int) -> None:
    """Every held-out row equals a training row here, as in any table with few columns."""
    real, holdout = draw_common(400, 2 * seed), draw_common(400, 2 * seed + 1)
    tables = read_tables(
        real, draw_common(300, 1000), holdout, schema=None, from_split=False, reading=ReadOptions(), seed=seed
    )
    assert tables.real.num_rows == 400


def test_an_overlap_of_a_table_with_common_rows_is_refused() -> None:
    """Half of the columns are common, yet full rows are not."""
    real, other = draw_people(2000, 1, decimals=-1), draw_people(1000, 2, decimals=-1)
    assert real.duplicated().mean() > 0.05
    refused(us.TableError, "overlaps", real=real, holdout=pd.concat([other, real[:400]]))


def test_a_small_holdout_is_refused_with_the_reason() -> None:
    refused(us.TableError, "The holdout has 199 rows.*at least 200 are needed, because false", holdout=HELD[:199])
    refused(us.TableError, "The holdout has 1 row to attack", holdout=HELD[:1])
    refused(us.TableError, "The real table has 60 training rows.*or hold out fewer rows", real=TRAIN[:60])
    refused(us.TableError, "The real table has 199 training rows", real=TRAIN[:199])
    refused(us.TableError, "The synthetic table has 99 rows; at least 100", fake=FAKE[:99])
    assert isinstance(us.disclose(TRAIN[:200], FAKE[:100], holdout=HELD[:200], secrets=["sex"]), Disclosure)


def test_empty_tables_are_refused() -> None:
    for name in ("real", "fake", "holdout"):
        refused(us.TableError, "has no rows", **{name: TRAIN[:0]})


def test_missing_columns_are_refused_with_the_table_that_lacks_them() -> None:
    refused(us.SchemaError, 'The holdout lacks the column "sex"', holdout=HELD.drop(columns="sex"))
    refused(
        us.SchemaError,
        'The synthetic table lacks the columns "income", "sex"',
        fake=FAKE[["height", "weight", "region", "smokes"]],
    )


def test_unknown_columns_are_refused() -> None:
    refused(us.ConfigError, "quasi-identifiers.*: 'sexx' is not.*Did you mean 'sex'", quasi_identifiers=["sexx"])
    refused(
        us.ConfigError,
        r"secret columns \(--target\): \'money\' is not an evaluated column\. Expected",
        secrets=["money"],
    )
    refused(us.ConfigError, "must be a list of columns", quasi_identifiers="sex")
    refused(us.ConfigError, "no column to guess 'sex' from", secrets=["sex"], quasi_identifiers=["sex"])


def test_a_secret_column_of_nulls_is_refused() -> None:
    schema = {
        "columns": {
            "sex": {"kind": "categorical", "categories": ["f", "m"]},
            "height": {"kind": "real", "bounds": [-90, 90]},
        }
    }
    empty = TRAIN.assign(sex=None)
    refused(us.TableError, "'sex' has only nulls", real=empty, schema=schema, secrets=["sex"])
    found = us.disclose(empty, FAKE, holdout=HELD, schema=schema)  # not named: left out
    assert [each.column for each in found.attributes] == ["height"]


def test_wrong_settings_are_refused() -> None:
    refused(us.ConfigError, "seed must be", seed=-1)
    refused(us.ConfigError, r"min_cell \(--min-cell\) must be", min_cell=1)
    refused(us.ConfigError, "statement must be a release", statement="fake.release")
    refused(us.TableError, "absent.csv does not exist", real="absent.csv")


def test_rows_that_synth_held_out_are_removed_from_the_real_table() -> None:
    """Twin by twin, so also from a table with common rows."""
    for draw in (draw_people, draw_common):
        train, held = draw(500, 1), draw(300, 2)
        tables = read_tables(
            pd.concat([train, held]).sample(frac=1, random_state=0),
            draw(300, 3),
            held,
            schema=None,
            from_split=True,
            reading=ReadOptions(),
            seed=0,
        )
        assert tables.real.num_rows == 500
        assert "The held-out rows were left out of the real table." in tables.notes


def test_units_that_synth_held_out_are_removed_as_a_whole_from_the_real_table() -> None:
    """Rows of others that equal a held-out one in all evaluated columns stay."""
    people = draw_common(3000, 1).assign(person=[f"P{row // 3}" for row in range(3000)])
    is_held = people.person.isin([f"P{unit}" for unit in range(0, 1000, 4)])
    schema = {
        "table": {"unit": "person", "max_rows_per_unit": 3},
        "columns": {name: {"kind": "categorical"} for name in people if name != "person"} | {"person": {"kind": "id"}},
    }
    tables = read_tables(
        people,
        draw_common(300, 3),
        people[is_held],
        schema=as_schema(schema),
        from_split=True,
        reading=ReadOptions(),
        seed=0,
    )
    assert tables.real.num_rows == 750  # one row of each
    assert "The held-out rows were left out of the real table." in tables.notes


def test_rows_without_a_unit_are_no_training_rows() -> None:
    """`fit` uses none of them, and `synth --split` may hold out some and leave others: they are no unit in common."""
    people = draw_common(3000, 1).assign(person=[f"P{row // 3}" for row in range(3000)])
    people.loc[[0, 1, 2, 1000, 2000], "person"] = None
    is_held = people.person.isin([f"P{unit}" for unit in range(0, 1000, 4)]) | (people.index == 1000)
    schema = {
        "table": {"unit": "person", "max_rows_per_unit": 3},
        "columns": {name: {"kind": "categorical"} for name in people if name != "person"} | {"person": {"kind": "id"}},
    }
    for real in (people, people[~is_held]):
        tables = read_tables(
            real,
            draw_common(300, 3),
            people[is_held],
            schema=as_schema(schema),
            from_split=True,
            reading=ReadOptions(),
            seed=0,
        )
        assert (tables.real.num_rows, tables.holdout.num_rows) == (750, 249)  # P0 has no row left
        assert "Rows without a value of 'person' were left out: they are not fitted." in tables.notes


def test_a_table_without_the_unit_is_refused() -> None:
    """Its rows would be taken for independent ones."""
    schema = {"table": {"unit": "person"}, "columns": {"person": {"kind": "id"}, "sex": {"kind": "categorical"}}}
    refused(us.SchemaError, "lacks the column", real=TRAIN.assign(person=range(500)), holdout=HELD, schema=schema)


def test_units_in_both_tables_are_refused() -> None:
    schema = {"table": {"unit": "person"}, "columns": {"person": {"kind": "id"}, "sex": {"kind": "categorical"}}}
    ours, theirs = TRAIN.assign(person=range(500)), HELD.assign(person=range(499, 799))
    refused(us.TableError, "both have 1 value of the unit 'person'", real=ours, holdout=theirs, schema=schema)


def test_categories_and_ranges_come_from_both_real_tables() -> None:
    """Were they those of the training rows, held-out rows would be known by values outside of them."""
    held = HELD.assign(region="x", height=HELD.height + 500)
    layout = read(TRAIN, held).layout
    assert "x" in layout["region"].categories
    assert layout["height"].upper == held.height.max()
