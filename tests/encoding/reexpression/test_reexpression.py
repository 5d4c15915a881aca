"""Re-expressed columns: nothing is lost, rules hold, no value makes them fail, and each row is treated by itself."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.encoding.ruled_tables import (
    FAMILIES,
    broken_rules,
    determined,
    dirty_tables,
    is_inexact,
    schemas,
    tidy_tables,
)
from tests.examples import scaled
from understudy.encoding.reexpression import Reexpression, reexpress
from understudy.encoding.reexpression.steps import in_declared_type, inside_domain
from understudy.schema import Schema

EXAMPLES = 12
"""For each family of rules."""


def assert_equal(found: pa.Table, expected: pa.Table, schema: Schema) -> None:
    """Row by row, and to the last bit where sums are not rounded."""
    for column in schema.columns:
        one, other = found.column(column.name), expected.column(column.name)
        if is_inexact(column):
            assert one.is_null().equals(other.is_null()), column.name
            np.testing.assert_allclose(one.drop_null(), other.drop_null(), rtol=1e-9, atol=1e-9, err_msg=column.name)
        else:
            assert one.to_pylist() == other.to_pylist(), column.name


# ------------------------------------------------------------------------------------------- sensitivity: row by row


def _results(known: Reexpression, table: pa.Table) -> pa.Table:
    """All that becomes of private rows: whether each is used, what it is moved to, and what is modelled of it."""
    cleaned, expressed = known.clean(table), known.express(table)
    columns = {f"clean {name}": cleaned.column(name) for name in cleaned.column_names}
    columns |= {f"express {name}": expressed.column(name) for name in expressed.column_names}
    return pa.table({"kept": known.kept_rows(table), **columns})


def _plain(table: pa.Table) -> list[dict]:
    """Rows as Python values, in which NaN equals NaN."""
    return pa.table({n: _texts(table.column(n)) for n in table.column_names}).to_pylist()


def _texts(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return values.cast(pa.int64()).cast(pa.string()) if pa.types.is_timestamp(values.type) else values.cast(pa.string())


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=scaled(EXAMPLES))
@given(data=st.data())
def test_sensitivity_each_row_is_treated_by_itself(family: str, data: st.DataObject) -> None:
    """The argument for the unchanged sensitivity: whether a row is used, what it is moved to and what is modelled of it
    depend on this row alone. Other rows, whatever they hold, their order and their number change nothing, not even a
    type; and no row can make it fail.
    """
    schema = data.draw(schemas(family))
    known = reexpress(schema)
    table = data.draw(dirty_tables(schema))
    whole = _results(known, table)
    rows = _plain(whole)
    order = data.draw(st.permutations(range(table.num_rows)))
    assert _plain(_results(known, table.take(order))) == [rows[at] for at in order]
    assert _plain(_results(known, pa.concat_tables([table, table]))) == rows + rows
    for at in range(table.num_rows):
        alone = _results(known, table.slice(at, 1))
        assert _plain(alone) == rows[at : at + 1]
        assert alone.schema == whole.schema
    assert _results(known, table.slice(0, 0)).schema == whole.schema


# ------------------------------------------------------------------------------------------------------ nothing is lost


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=scaled(EXAMPLES))
@given(data=st.data())
def test_rows_that_keep_the_rules_are_unchanged(family: str, data: st.DataObject) -> None:
    """Cleaning and expressing and restoring. What a rule determines and a row leaves null is filled in, and the other
    way round: such rows are left out here."""
    schema = data.draw(schemas(family))
    known = reexpress(schema)
    table = data.draw(tidy_tables(schema))
    inside = pa.array(
        ~np.any([rule.broken(table) for rule in schema.rules] or [np.zeros(table.num_rows, bool)], axis=0)
    )
    cleaned = known.clean(table)
    for name in determined(schema):
        for filled in (table, cleaned):
            inside = pc.and_(inside, pc.is_valid(filled.column(name)).combine_chunks())
    rows = table.filter(inside)
    assert known.kept_rows(rows).all()
    assert_equal(known.clean(rows), rows, schema)
    assert_equal(known.restore(known.express(rows)), rows, schema)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=scaled(EXAMPLES))
@given(data=st.data())
def test_rows_that_are_used_keep_the_rules(family: str, data: st.DataObject) -> None:
    """Of any row that is used, cleaning makes one that breaks no rule, and what is modelled of it is this row."""
    schema = data.draw(schemas(family))
    known = reexpress(schema)
    table = data.draw(dirty_tables(schema))
    table = table.filter(pa.array(known.kept_rows(table)))
    inside = pa.table(
        {c.name: inside_domain(in_declared_type(table.column(c.name), c), c) for c in schema.columns}
    )  # as every row is encoded, with rules and without
    cleaned = known.clean(inside)
    assert broken_rules(cleaned, schema.rules) == {}
    assert_equal(known.clean(cleaned), cleaned, schema)
    precise = pa.array(np.ones(len(inside), dtype=bool))  # differences of very large reals lose digits
    for column in schema.columns:
        if column.kind == "real":
            small = pc.less(pc.abs(inside.column(column.name)), 1e6)
            precise = pc.and_(precise, pc.fill_null(small, True).combine_chunks())
    restored = known.restore(known.express(inside.filter(precise)))
    assert_equal(restored, cleaned.filter(precise), schema)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=scaled(EXAMPLES))
@given(data=st.data())
def test_restored_rows_have_the_columns_of_the_schema(family: str, data: st.DataObject) -> None:
    """Whatever a model draws for the modelled columns, with nulls only where they are allowed."""
    schema = data.draw(schemas(family))
    known = reexpress(schema)
    assume(known.steps)
    rows = known.restore(data.draw(tidy_tables(known.modelled, rows=8)))
    assert rows.column_names == list(schema.names)
    for column in schema.columns:
        assert column.nullable or not rows.column(column.name).null_count, column.name
