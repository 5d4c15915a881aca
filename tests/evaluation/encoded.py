"""Encoded tables for the tests of metrics, and slow, obvious counts to hold them against."""

import math
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pyarrow as pa

import understudy as us
from understudy.evaluation.table import EncodedTable, Layout


def mixed(num_rows: int, seed: int, *, shift: float = 0.0, nulls: float = 0.1) -> pa.Table:
    draw = np.random.default_rng(seed)
    age = draw.integers(18, 80, num_rows)
    income = np.round(age * (1 + shift) + draw.normal(0, 10, num_rows), 2)
    degree = np.array(["none", "school", "college"])[np.clip((age // 30) + draw.integers(-1, 2, num_rows), 0, 2)]
    return pa.table(
        {
            "age": pa.array(age),
            "income": pa.array(income, mask=draw.random(num_rows) < nulls),
            "degree": pa.array(degree, mask=draw.random(num_rows) < nulls),
            "member": draw.random(num_rows) < 0.3 + shift,
            "city": draw.choice(["a", "b", "c", "d"], num_rows, p=[0.5, 0.3, 0.15, 0.05]),
        }
    )


def encode(
    real: pa.Table | Mapping, *others: pa.Table | Mapping, schema: us.Schema | None = None
) -> list[EncodedTable]:
    """Tables on the layout of the first."""
    tables = [t if isinstance(t, pa.Table) else pa.table(dict(t)) for t in (real, *others)]
    layout = Layout.of(tables[0], schema)
    return [layout.read(table, "table") for table in tables]


def some_pair() -> tuple[EncodedTable, EncodedTable]:
    """Some synthetic values are out of range and some are not listed."""
    real, fake = mixed(600, 0), mixed(450, 1, shift=0.2)
    fake = fake.set_column(
        4, "city", pa.array(["z" if i % 50 == 0 else v for i, v in enumerate(fake["city"].to_pylist())])
    )
    one, two = encode(real, fake)
    return one, two


def slow_cell(table: EncodedTable, name: str, row: int, bins: int) -> object:
    """The cell of one value, found by walking over the edges."""
    spec, value = table.layout[name], table[name][row]
    if not spec.is_numeric:
        return int(value)
    if math.isnan(value):
        return "missing"
    edges = np.linspace(spec.lower, spec.upper, bins + 1)[1:-1]
    return sum(bool(value >= edge) for edge in edges)


def slow_counts(table: EncodedTable, names: tuple[str, ...], bins: int) -> Counter:
    return Counter(tuple(slow_cell(table, name, row, bins) for name in names) for row in range(table.num_rows))


def slow_l1(a: Counter, b: Counter) -> float:
    num_a, num_b = sum(a.values()), sum(b.values())
    return float(sum(abs(Fraction(a[cell], num_a) - Fraction(b[cell], num_b)) for cell in {*a, *b}))


def slow_tv(real: EncodedTable, synthetic: EncodedTable, names: tuple[str, ...], bins: int) -> float:
    return slow_l1(slow_counts(real, names, bins), slow_counts(synthetic, names, bins)) / 2
