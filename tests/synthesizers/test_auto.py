"""auto: one method for all tables with the same public facts, said in the plan, and the method that runs."""

import dataclasses
import math
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from understudy.encoding import assumed_domain
from understudy.pipeline import choose_method
from understudy.privacy.discovery import Binning
from understudy.privacy.ledger import Budget
from understudy.schema import Domain
from understudy.synthesizers import express, read_method
from understudy.synthesizers.auto import FEW, FEW_CELLS, MOST_COLUMNS, RULES, Facts, choose

GUARANTEE = us.Guarantee(1.0, 1e-6)
MANY = Facts((100,) * 10, rows=10**6, target=None, epsilon=1.0, delta=1e-6)


def small_schema(rows: int | None = None) -> us.Schema:
    """Something of everything: a declared list, one that is estimated, bounds, bounds that are estimated."""
    columns = (
        us.Column(name="a", kind="categorical", categories=("x", "y")),
        us.Column(name="b", kind="categorical"),
        us.Column(name="c", kind="integer", bounds=(0, 9)),
        us.Column(name="d", kind="real"),
    )
    return us.Schema(columns=columns, rows=rows, target="a")


def small_table(num_rows: int = 200, seed: int = 0) -> pa.Table:
    draw = np.random.default_rng(seed)
    return pa.table(
        {
            "a": draw.choice(["x", "y"], num_rows).tolist(),
            "b": draw.choice(["p", "q", "r"], num_rows).tolist(),
            "c": draw.integers(0, 10, num_rows).tolist(),
            "d": draw.random(num_rows).tolist(),
        }
    )


# --------------------------------------------------------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("facts", "method", "words"),
    [
        (MANY, "gem", "2-way marginals of 10 columns"),
        (dataclasses.replace(MANY, target="income"), "gem", "within classes of 'income'"),
        (dataclasses.replace(MANY, target="{rows}"), "gem", "within classes of '{rows}'"),
        (dataclasses.replace(MANY, rows=None), "gem", "2-way"),
        (dataclasses.replace(MANY, epsilon=math.inf, rows=1), "gem", "2-way"),
        (dataclasses.replace(MANY, sizes=(None,)), "independent", "one column"),
        (dataclasses.replace(MANY, rows=FEW - 1), "independent", "too few"),
        (dataclasses.replace(MANY, rows=FEW), "gem", "2-way"),
        (dataclasses.replace(MANY, rows=FEW, rows_per_unit=2), "independent", "too few"),
        (dataclasses.replace(MANY, rows=10 * FEW, epsilon=0.09), "independent", "too few"),
        (dataclasses.replace(MANY, sizes=(FEW_CELLS // 2, 2)), "aim", f"{FEW_CELLS:,} cells"),
        (dataclasses.replace(MANY, sizes=(FEW_CELLS, 2)), "gem", "2-way"),
        (dataclasses.replace(MANY, sizes=(2, None)), "gem", "2-way"),
        (dataclasses.replace(MANY, sizes=(2,) * (MOST_COLUMNS + 1)), "independent", "too many 2-way marginals"),
    ],
)
def test_each_rule_at_its_border(facts: Facts, method: str, words: str) -> None:
    chosen, reasons = choose(facts)
    assert chosen == method
    assert len(reasons) == 1
    assert reasons[0].text.startswith(f"auto: {method}, because ")
    assert words in reasons[0].text


def test_every_rule_names_a_method_and_the_last_always_holds() -> None:
    assert all(express(read_method(rule.method)) == rule.method for rule in RULES)
    assert RULES[-1].holds(MANY)
    assert RULES[-1].holds(Facts((), rows=1, target=None, epsilon=1e-9, delta=1e-12))


# ----------------------------------------------------------------------------------------------------------- the facts


def test_facts_hold_nothing_that_is_estimated() -> None:
    """Stand-ins and estimated numbers of a domain are left out, so no choice can follow from them."""
    domain = assumed_domain(small_schema(), Binning())
    budget = Budget(1.0, 1e-6)
    facts = Facts.of(domain, budget)
    assert facts.rows is None
    assert facts.sizes == (3, None, 33, 33)
    for size, rows in ((1, 1), (90, 7), (10**6, 10**9)):
        sizes = tuple(
            size if name in domain.estimated else each for name, each in zip(domain.names, domain.sizes, strict=True)
        )
        other = dataclasses.replace(domain, sizes=sizes, num_rows=rows)
        assert Facts.of(other, budget) == facts
        assert choose_method("auto", other, budget) == choose_method("auto", domain, budget)
    declared = Facts.of(
        assumed_domain(small_schema(123), Binning(), num_rows=77), Budget(2.0, 1e-7, max_rows_per_unit=3)
    )
    assert declared == Facts(facts.sizes, 123, "a", 2.0, 1e-7, 3)


def test_methods_that_are_named_are_not_chosen() -> None:
    domain = Domain(names=("a",), sizes=(2,), num_rows=10)
    for method in ("aim", read_method("aim")):
        assert choose_method(method, domain, Budget(1.0, 1e-6)) == (read_method("aim"), ())


# --------------------------------------------------------------------------------------------------------- end to end


@pytest.mark.parametrize("rows", [FEW - 40, pytest.param(2_000, marks=pytest.mark.slow)])
def test_one_choice_for_all_tables_of_a_schema(rows: int) -> None:
    """A table, its neighbour, and one that differs in every value and in size: the same method and charges, as planned.

    The plan may assume another size than what is declared, which moves nothing.
    """
    schema, seed = small_schema(rows), 0
    other = pa.table({"a": ["z"] * 30, "b": ["w"] * 30, "c": [10**6] * 30, "d": [-1e9] * 30})
    planned = us.plan(schema, "auto", GUARANTEE)
    assert us.plan(schema, "auto", GUARANTEE, rows=10**6) == planned
    method, reasons = choose(Facts.of(assumed_domain(schema, Binning()), Budget(1.0, 1e-6)))
    assert planned.notes[0] == reasons[0]
    for table in (small_table(), small_table().slice(1), other):
        release = us.fit(table, "auto", GUARANTEE, schema=schema, seed=seed)
        assert release.statement.method == method
        assert release.statement.queries == planned.queries
        assert release.notes[: len(reasons)] == reasons  # after it come the estimates
        assert f"with the method `{method}`." in release.certificate


def test_without_a_declared_size_nothing_is_known_of_it() -> None:
    """Three rows or many: the same sentence, and the same method."""
    chosen = {us.plan(small_schema(), "auto", GUARANTEE, rows=rows).notes[0] for rows in (None, 3, 10**7)}
    assert len(chosen) == 1
    assert chosen.pop().text.startswith("auto: gem, because ")


def test_the_page_tells_the_rules() -> None:
    """In the same order, with the same borders."""
    page = (Path(__file__).parents[2] / "docs/methods/auto.md").read_text()
    lines = [line.split("|") for line in page.splitlines() if re.fullmatch(r"\| .* \| `\w+` \|", line)]
    assert [line[2].strip(" `") for line in lines] == [rule.method for rule in RULES]
    borders = [number.replace(",", "") for line in lines for number in re.findall(r"[\d,]*\d", line[1])]
    assert borders == [str(border) for border in (FEW, MOST_COLUMNS, FEW_CELLS)]
