"""What objects show of themselves in a console and in a notebook: short, safe, and the same facts."""

import re

import pyarrow as pa
import pytest

import understudy as us
from understudy.summary import MAX_ROWS, Summary

NAMES = [f"column {number}" for number in range(60)]
SCHEMA = {"table": {"rows": 500, "name": "Many <i>"}, "columns": {name: {"kind": "boolean"} for name in NAMES}}


@pytest.fixture(scope="module")
def release() -> us.Release:
    table = pa.table({name: [True, False] * 250 for name in NAMES})
    return us.fit(table, "independent", epsilon=1, schema=SCHEMA)


def _all(release: us.Release) -> dict[str, object]:
    return {
        "release": release,
        "statement": release.statement,
        "schema": release.schema,
        "plan": us.plan(SCHEMA, "independent", epsilon=1),
    }


def test_reprs_are_short_and_say_what_matters(release: us.Release) -> None:
    shown = {name: repr(each) for name, each in _all(release).items()}
    assert all(len(text) < 2500 and text.count("\n") < 30 for text in shown.values())
    assert re.search(r"^guarantee: strong$", shown["release"], re.MULTILINE)
    assert re.search(r"^epsilon: 0\.99\d* of 1$", shown["release"], re.MULTILINE)
    assert "rows: 500" in shown["release"]
    assert shown["statement"].startswith("Strong guarantee\n")
    assert "independent: 1-way marginals of 60 columns" in shown["plan"]
    assert "column 11  boolean" in shown["schema"]
    assert "column 12" not in shown["schema"]
    assert "... and 48 more" in shown["schema"]


def test_notebooks_show_the_same_without_colours_or_scripts(release: us.Release) -> None:
    for each in _all(release).values():
        page = each._repr_html_()  # type: ignore[attr-defined]  # listed by name, so typed as objects
        assert len(page) < 6000
        assert not re.search(r"<script|<style|color|background|class=|<i>", page)
        words = set(re.findall(r"\w+", re.sub(r"<[^>]+>|&\w+;", " ", page)))
        text = re.sub(r"\S*\.\.\.", "", repr(each))  # what the console cuts
        assert set(re.findall(r"\w+", text.replace("<i>", ""))) <= words


def test_an_unprotected_release_says_so_first() -> None:
    table = pa.table({"a": [True, False]})
    seeded = us.fit(table, "independent", epsilon=1, schema={"columns": {"a": {"kind": "boolean"}}}, seed=0)
    assert repr(seeded.statement).startswith("NOT PRIVATE: its noise was seeded")
    assert "guarantee: NOT PRIVATE: its noise was seeded" in repr(seeded)
    bare = us.fit(table, "independent", us.Guarantee.not_private())
    assert repr(bare.statement).startswith("NOT PRIVATE: made without noise")


def test_long_tables_are_counted() -> None:
    rows = [(str(number), "x" * 200) for number in range(MAX_ROWS + 3)]
    summary = Summary("Title", {}, ("number", "text"), rows)
    assert "... and 3 more" in summary.to_text()
    assert "... and 3 more" in summary.to_html()
    assert max(map(len, summary.to_text().splitlines())) < 80
