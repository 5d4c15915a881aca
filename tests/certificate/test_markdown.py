"""The certificate: valid by its JSON schema, true as text, unbroken by odd names, and enough to check epsilon."""

import copy
import dataclasses
import html
import json
import math
import re
from pathlib import Path

import jsonschema
import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from tests.builders import make_ledger
from tests.certificate.json_schema import FILE
from tests.certificate.json_schema import json_schema as schema_of_classes
from understudy import certificate
from understudy.certificate.json import read_statement
from understudy.certificate.meaning import percent, statement_meaning
from understudy.certificate.page import to_html
from understudy.privacy.accounting import accountants as accounting
from understudy.privacy.accounting.events import (
    ZCDP,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Gaussian,
    Pure,
    Selections,
    SubsampledGaussian,
)
from understudy.privacy.accounting.ledger import PublicFacts, Query, Statement
from understudy.privacy.accounting.marginal_noise import MeasuredMarginal
from understudy.privacy.accounting.tradeoff import statement_tradeoff, tradeoff
from understudy.privacy.mechanisms.counts import noisy_counts
from understudy.privacy.noise.source import SecureNoise
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Domain, as_schema

PAGE = Path(__file__).parents[2] / "docs" / "certificate.md"

EVENTS: tuple[Event, ...] = (
    DiscreteGaussian(12.5, 3, 2),
    Gaussian(20.0, 4),
    SubsampledGaussian(0.5, 20.0, 2),
    Selections(0.1, 5),
    Pure(0.1, 2),
    DiscreteLaplace(0.001, 2),
    ZCDP(0.02),
)


@pytest.fixture(scope="module")
def json_schema() -> dict:
    return json.loads(FILE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return pa.table({"who": ["a", "b", "c"] * 40, "sex": ["m", "f"] * 60, "age": list(range(20, 80)) * 2})


SCHEMAS = {
    "drafted": None,
    "declared": us.Schema(
        columns=(
            us.Column(name="who", kind="text"),
            us.Column(name="sex", kind="categorical", categories=("m", "f"), nullable=False),
            us.Column(name="age", kind="integer", bounds=(18, 99)),
        ),
        rows=120,
    ),
    "units": us.Schema(
        columns=(
            us.Column(name="who", kind="id"),
            us.Column(name="sex", kind="categorical"),
            us.Column(name="age", kind="integer", bounds=(18, 99)),
        ),
        unit="who",
        max_rows_per_unit=3,
    ),
}


@pytest.fixture(scope="module", params=SCHEMAS)
def statement(request: pytest.FixtureRequest, table: pa.Table) -> Statement:
    return us.fit(table, "mst", us.Guarantee(2.0), schema=SCHEMAS[request.param]).statement


def _with_every_event(seeded: bool = False, epsilon: float = 2.0) -> Statement:
    queries = tuple(Query(f"k{i}", f"query {i}", event, ("a",), 0.0, ("m",)) for i, event in enumerate(EVENTS))
    return Statement(
        epsilon_target=epsilon,
        delta=1e-6,
        epsilon=epsilon,
        epsilon_pld=math.inf,
        epsilon_rdp=epsilon,
        accountant="Renyi (zCDP)",
        seeded=seeded,
        max_rows_per_unit=2,
        queries=queries,
        method="m",
    )


def test_json_schema_is_one(json_schema: dict) -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema)


def test_json_is_valid(statement: Statement, json_schema: dict) -> None:
    content = json.loads(json.dumps(certificate.to_json(statement), allow_nan=False))
    jsonschema.Draft202012Validator(json_schema).validate(content)


@pytest.mark.parametrize("facts", [{}, {"seeded": True}, {"epsilon": math.inf}])
def test_json_is_valid_for_every_event(facts: dict, json_schema: dict) -> None:
    made = _with_every_event(**facts)
    content = json.loads(json.dumps(certificate.to_json(made), allow_nan=False))
    jsonschema.Draft202012Validator(json_schema).validate(content)
    assert read_statement(content) == made


def test_the_published_schema_is_that_of_the_classes(json_schema: dict) -> None:
    """If it is not: `python -m tests.certificate.json_schema`."""
    assert json_schema == schema_of_classes()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("private",), "yes"),
        (("format_version",), 1),
        (("guarantee", "epsilon"), -1),
        (("guarantee", "epsilon"), None),
        (("guarantee", "adjacency"), "whatever"),
        (("guarantee", "meaning"), None),
        (("guarantee", "meaning", "posteriors", 0, "largest_posterior"), 1.1),
        (("seeded",), True),
        (("queries", 0, "event", "stddev"), 0),
        (("queries", 0, "event", "kind"), "Laplace"),
        (("measured_marginals", 0, "stddev"), -1.0),
        (("measured_marginals", 0, "noisy_counts"), [1]),
        (("extra",), 1),
    ],
)
def test_json_schema_refuses(statement: Statement, json_schema: dict, path: tuple, value: object) -> None:
    """The schema is no rubber stamp: altered certificates fail."""
    content = copy.deepcopy(certificate.to_json(statement))
    place = content
    for step in path[:-1]:
        place = place[step]  # type: ignore[assignment]  # JSON, typed as objects
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(json_schema).validate(content)


def test_every_field_is_documented(json_schema: dict) -> None:
    page = re.sub(r"```.*?```", "", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    words = set(re.findall(r"[\w.]+", " ".join(re.findall(r"`([^`]+)`", page))))
    guarantee = json_schema["$defs"]["guarantee"]["properties"]
    wanted = {*json_schema["properties"], *json_schema["$defs"]["query"]["properties"]} - {"guarantee", "public"}
    wanted |= {*json_schema["$defs"]["measured_marginal"]["properties"]}
    wanted |= {f"guarantee.{name}" for name in guarantee if name != "unit"}
    wanted |= {"guarantee.unit.column", "guarantee.unit.max_rows"}
    lists = json_schema["$defs"]["meaning"]["properties"]
    wanted |= {*lists, *(name for each in lists.values() for name in each["items"]["properties"])}
    wanted |= {f"public.{name}" for name in json_schema["$defs"]["public"]["properties"]}
    assert wanted <= words


def test_every_section_is_documented(statement: Statement) -> None:
    page = PAGE.read_text(encoding="utf-8")
    for heading in re.findall(r"^## (.+)$", certificate.to_markdown(statement), re.MULTILINE):
        assert f"**{heading}**" in page


def test_round_trip(statement: Statement) -> None:
    assert certificate.from_json(json.loads(json.dumps(certificate.to_json(statement)))) == statement


def test_epsilon_follows_from_the_queries(statement: Statement) -> None:
    """Composed again from the JSON alone, the queries cost what the certificate says."""
    content = certificate.to_json(statement)
    queries = certificate.from_json(content).queries
    delta = statement.delta - sum(query.delta for query in queries)
    again = accounting.spent(
        [query.event for query in queries], delta, grid=accounting.grid_for(statement.epsilon_target)
    )
    assert again.epsilon == pytest.approx(statement.epsilon, rel=1e-3)
    assert sum(query.delta for query in queries) < 0.5 * statement.delta


def test_words_say_the_numbers(statement: Statement) -> None:
    words = certificate.to_markdown(statement)
    figures = re.search(r"\*\*epsilon = (\S+), delta = (\S+)\*\*", words)
    assert figures is not None
    for said, held in zip(figures.groups(), (statement.epsilon, statement.delta), strict=True):
        assert held * (1 - 1e-9) <= float(said) <= held * 1.1  # rounded, and never down
    assert words.startswith("# Privacy certificate\n")
    assert statement.accountant in words
    assert ("zero-out" in words) == (statement.facts.rows_declared is not None)
    assert ("drafted" in words) == statement.facts.drafted
    for query in statement.queries:
        assert query.what in words
    if statement.facts.unit is not None:
        assert "At most 3 rows of each unit" in words
    for line in certificate.NOT_COVERED:
        assert line in words


# --- What the guarantee means for one unit ---


def test_what_can_be_learned_follows_from_the_queries(statement: Statement) -> None:
    """The figures are those of the curve of the queries, as they stand in the JSON, and not of epsilon and delta."""
    content = json.loads(json.dumps(certificate.to_json(statement)))
    bounds = statement_tradeoff(certificate.from_json(content))
    weaker = tradeoff(statement.epsilon, statement.delta)
    meaning = content["guarantee"]["meaning"]
    assert {(each["prior"], each["exceeded_with_probability"]) for each in meaning["posteriors"]} == {
        (prior, exception) for prior in (0.5, 0.1, 0.01) for exception in (0.01, statement.delta)
    }
    for each in meaning["posteriors"]:
        prior, exception, after = each.values()
        assert after == bounds.largest_posterior(prior, probability=exception)
        assert prior < after < weaker.largest_posterior(prior, probability=exception)
    assert [each["false_positive_rate"] for each in meaning["true_positive_rates"]] == [0.01, 0.05]
    for each in meaning["true_positive_rates"]:
        rate, most = each.values()
        assert most == bounds.largest_true_positive_rate(rate)
        assert rate < most < weaker.largest_true_positive_rate(rate)


CLAIMS = {
    "drafted": "a given person's row is in the table",
    "declared": "a given person's data is in the table",
    "units": "the rows with a given `who` are in the table",
}


def test_words_say_what_can_be_learned(statement: Statement, request: pytest.FixtureRequest) -> None:
    """Rounded up, and by less than a tenth."""
    words, meaning = certificate.to_markdown(statement), statement_meaning(statement)
    assert meaning is not None
    claim = CLAIMS[request.node.callspec.params["statement"]]
    sentence = re.search(
        r"^Someone who thinks it 10% likely that (.+) will, after seeing the release, think it at most (\S+)% likely, "
        r"except with a probability of at most 1%\.$",
        words,
        re.MULTILINE,
    )
    assert sentence is not None
    assert sentence[1] == claim
    assert words[sentence.end() :].startswith(f"\n\n{meaning.condition}\n\n")  # no reader sees the bound without it
    shown = {(0.1, 0.01): sentence[2]}
    for prior in (0.5, 0.1, 0.01):
        row = re.search(rf"^\| {100 * prior:g}% \| (\S+)% \| (\S+)% \|$", words, re.MULTILINE)
        assert row is not None
        assert shown.get((prior, 0.01), row[1]) == row[1]
        shown |= {(prior, 0.01): row[1], (prior, statement.delta): row[2]}
    assert {*shown} == {*meaning.posteriors}
    rates = dict(re.findall(r"^\| (1|5)% \| (\S+)% \|$", words, re.MULTILINE))
    pairs = [(float(figure), meaning.posteriors[key]) for key, figure in shown.items()]
    pairs += [(float(rates[f"{100 * rate:g}"]), most) for rate, most in meaning.true_positive_rates.items()]
    for said, held in pairs:
        assert 100 * held * (1 - 1e-9) <= said <= 110 * held


def test_bounds_on_beliefs_state_their_condition(statement: Statement) -> None:
    """It is needed: see `test_people_who_come_together_exceed_the_bound_of_one`."""
    words, meaning = certificate.to_markdown(statement), statement_meaning(statement)
    assert meaning is not None
    assert "all in the table or all absent" in meaning.condition
    assert "what they believe about the other rows does not depend on whether this unit is in the table" in words
    assert "members of a household" in certificate.NOT_COVERED[1]
    assert "Conclusions that follow from the population" in words


def test_tests_of_presence_are_explained_by_counts_of_people(statement: Statement) -> None:
    words, meaning = certificate.to_markdown(statement), statement_meaning(statement)
    assert meaning is not None
    said = re.search(r"wrongly names 1 of 100 (?:people who|units that) .+ correctly names at most (\S+) of 100", words)
    assert said is not None
    assert said[1] == percent(meaning.true_positive_rates[0.01]).removesuffix("%")


@pytest.mark.made_up_figures("no run has exactly these figures")
def test_beliefs_without_a_useful_limit_are_said_to_have_none() -> None:
    mechanism = Gaussian(0.12)
    found = accounting.spent([mechanism], 1e-6)
    figures: dict = {
        "epsilon": found.epsilon,
        "epsilon_target": 80.0,
        "epsilon_pld": found.pld,
        "epsilon_rdp": found.rdp,
    }
    statement = dataclasses.replace(_statement(), queries=(Query("k", "q", mechanism, ("a",)),), **figures)
    words = certificate.to_markdown(statement)
    assert "This guarantee sets no useful limit: someone who thinks it 10% likely" in words
    assert "think it at most 100%" not in words
    assert "This assumes" not in words


@pytest.mark.parametrize(("change", "value"), [("epsilon", 0.1), ("epsilon_pld", 0.5), ("epsilon", 1.5)])
def test_figures_that_the_queries_do_not_support_imply_only_the_stated_pair(change: str, value: float) -> None:
    """A certificate that was altered. Nothing is refused: a certificate is written after its run has spent."""
    event = ZCDP(0.02) if change == "epsilon_pld" else Gaussian(4.0)  # a distribution of losses cannot hold the first
    found = accounting.spent([event], 1e-6)
    figures: dict = {
        "epsilon": found.epsilon,
        "epsilon_target": 2.0,
        "epsilon_pld": found.pld,
        "epsilon_rdp": found.rdp,
    }
    made = dataclasses.replace(_statement(), queries=(Query("k", "q", event, ("a",)),), **figures)
    assert statement_meaning(made) is not None
    change_made: dict = {change: value}
    altered = dataclasses.replace(made, **change_made)
    if value > found.epsilon and change == "epsilon":
        assert statement_meaning(altered) is not None
        return
    pair, shown = tradeoff(altered.epsilon, altered.delta), statement_meaning(altered)
    assert shown is not None
    assert shown.true_positive_rates == {rate: pair.largest_true_positive_rate(rate) for rate in (0.01, 0.05)}
    certificate.to_markdown(altered)


@pytest.mark.made_up_figures("a run that is seeded")
def test_a_seeded_run_would_protect() -> None:
    words = certificate.to_markdown(_with_every_event(seeded=True))
    assert "## Who would be protected" in words
    assert "the guarantee would be epsilon" in words
    assert "the smaller one would be the guarantee" in words
    assert "guarantee is" not in words


@pytest.mark.made_up_figures("a run that is not private, nor made")
@pytest.mark.parametrize("changed", [{"seeded": True}, {"epsilon": math.inf}, {"released": False}])
def test_of_what_is_not_private_nothing_is_said_to_be_hidden(changed: dict, json_schema: dict) -> None:
    statement = dataclasses.replace(_with_every_event(), **changed)
    content = json.loads(json.dumps(certificate.to_json(statement)))
    assert content["guarantee"]["meaning"] is None
    jsonschema.Draft202012Validator(json_schema).validate(content)
    words = certificate.to_markdown(statement)
    assert "Someone who" not in words
    assert "What can be learned" not in words


def test_certificates_without_the_meaning_are_read() -> None:
    content = certificate.to_json(_with_every_event())
    del content["guarantee"]["meaning"]  # type: ignore[attr-defined]  # JSON, typed as objects
    assert read_statement(content) == _with_every_event()


@pytest.mark.parametrize("value", [0.0123, 0.1, 0.17, 0.1700001, 0.899999, 0.9, 0.98765, 0.99951, 0.999999, 1.0])
def test_percentages_are_never_rounded_down(value: float) -> None:
    said = float(percent(value).removesuffix("%"))
    assert 100 * value * (1 - 1e-9) <= said <= min(110 * value, 100.0)


# --- Marginals ---


def test_measured_marginals_are_listed_with_their_noise(statement: Statement) -> None:
    """Each with the standard deviation of its query, whose columns and noise the certificate states too."""
    events = {query.key: query.event for query in statement.queries}
    assert {each.query for each in statement.measurements} == {"one_way", "two_way"}
    words = certificate.to_markdown(statement)
    for each in statement.measurements:
        event = events[each.query]
        assert isinstance(event, DiscreteGaussian)
        assert each.stddev == event.stddev
        names = ", ".join(f"`{name}`" for name in each.columns)
        percent = "" if (rows := statement.facts.rows_declared) is None else f" {100 * each.stddev / rows:.2g} |"
        assert f"| {names} | {each.cells} | 1 | {each.stddev:.3g} |{percent}\n" in words


def test_a_record_of_a_failed_run_lists_no_marginals() -> None:
    """Nothing was released, so nothing was measured for anyone."""
    ledger = make_ledger(2.0)
    query = Query("m", "counts", DiscreteGaussian(20.0), ("a",))
    noisy_counts(
        PrivateRows(np.zeros((3, 1), np.int32), Domain(names=("a",), sizes=(2,), num_rows=3)), [("a",)], query, ledger
    )
    assert ledger.statement().measurements == (MeasuredMarginal("m", ("a",), 2, 20.0),)
    assert ledger.statement(planned=[query]).measurements == ()


def test_shuffle_files_of_spark_are_not_said_to_be_deleted() -> None:
    """Nobody deletes them before the session ends, which may be the user's."""
    *_, line = certificate.not_covered(PublicFacts(kept_in="spark"))
    assert "stay on the executors' disks until the Spark session ends" in line
    assert "deleted" not in line
    assert certificate.not_covered(PublicFacts())[-1] != line


def test_certificates_without_the_list_are_read() -> None:
    content = certificate.to_json(_with_every_event())
    del content["measured_marginals"]
    assert read_statement(content) == _with_every_event()


def test_head_says_not_private() -> None:
    seeded = certificate.to_markdown(_with_every_event(seeded=True)).split("\n## ")[0]
    assert "> **SEEDED: NOT PRIVATE.**" in seeded
    assert "Everything in this release was computed under differential privacy" not in seeded
    infinite = certificate.to_markdown(_with_every_event(epsilon=math.inf))
    assert "> **NOT PRIVATE.**" in infinite.split("\n## ")[0]
    assert "inf" not in re.sub(r"infinite|infinity", "", infinite)


ODD_NAMES = (
    *("a|b", "new\nline", "tick`tick", "größe — 年齢", "<b>bold</b>"),
    *("*star*", "# head", "x\\|y", "- item", "a\r\nb", "b\n\n# Not a heading"),
)


@pytest.fixture(scope="module")
def oddly_named() -> str:
    columns = [us.Column(name="u|n`i\nt", kind="id")]
    for i, name in enumerate(ODD_NAMES):
        facts: list[dict] = [{}, {"categories": ("p|q", "r\ns")}, {"nullable": False}, {"drop": True}]
        columns.append(us.Column(name=name, kind="categorical", **facts[i % 4]))
    columns.append(us.Column(name="n|u\nm", kind="integer", bounds=(0, 9)))
    columns.append(us.Column(name="t|e\nxt", kind="text"))
    schema = us.Schema(columns=tuple(columns), unit="u|n`i\nt", target="a|b")
    values = {"id": list(range(60)), "integer": list(range(60))}
    table = pa.table({column.name: values.get(column.kind, ["p|q"] * 60) for column in schema})
    release = us.fit(table, "mst", us.Guarantee(3.0), schema=schema, seed=0)
    return release.certificate


def test_odd_names_break_no_table(oddly_named: str) -> None:
    """Every line of the list of queries is a row with four cells, whatever the columns are called."""
    table = oddly_named.split("## Where the budget went")[1].split("\n## ")[0].strip().split("\n\n")[1]
    for line in table.splitlines():
        assert len(re.findall(r"(?<!\\)\|", line)) == 5, line


def test_odd_names_break_no_list(oddly_named: str) -> None:
    """Line breaks in names neither end a bullet nor begin a heading."""
    headings = re.findall(r"^#+ .*$", oddly_named, re.MULTILINE)
    assert len(headings) == len([h for h in headings if h.startswith(("# Privacy", "## W", "## H"))])
    public = oddly_named.split("## What was taken as public")[1].split("\n## ")[0]
    for line in public.splitlines():
        assert not line or line.startswith(("- ", "Column names", "Estimated privately")), line


def test_odd_unit_breaks_no_paragraph(oddly_named: str) -> None:
    protected = oddly_named.split("## Who would be protected")[1].split("\n## ")[0].strip()
    assert "\n" not in protected.split("\n\n")[0]
    assert protected.count("`") % 2 == 0


def test_a_public_table_is_a_condition_at_the_head() -> None:
    statement = dataclasses.replace(_statement(), facts=PublicFacts(public_table=300))
    (condition,) = certificate.statement_conditions(statement.facts)
    assert "table of 300 rows that the maker of this release declared public" in condition
    assert f"> **Condition:** {condition}" in certificate.to_markdown(statement)
    assert certificate.from_json(certificate.to_json(statement)) == statement


def test_values_that_are_read_as_null_are_listed() -> None:
    """They are declared, and decide how rows are read: so they are among the public facts."""
    columns = {"who": {"kind": "id", "missing": ["-9"]}, "x": {"kind": "integer", "missing": [99, "refused"]}}
    schema = as_schema({"table": {"unit": "who"}, "columns": columns})
    assert "read as null: who (-9), x (99, refused)" in certificate.public_facts(schema).declared


PLACES = """
[columns]
home = {kind = "location", latitude = "lat", longitude = "lon", region = "files/city.geojson"}
work = {kind = "location", box = [46.9, 5.9, 48.4, 10.5], decimals = 3}
stop = {kind = "location", sites = "stops.csv", code = "stop"}
area = {kind = "location", regions = "files/city.geojson", code = "area"}
boat = {kind = "location", box = [50, 10, 54, 14], mask = "sea.txt"}
gone = {kind = "location", box = [0, 0, 1, 1], drop = true}
pain = {kind = "categorical", categories = ["none", "mild", "severe"], ordinal = true}
hour = {kind = "integer", bounds = [0, 23], cyclic = true}
seen = {kind = "date", bounds = [2024-01-01, 2024-12-31], parts = ["month", "weekday"]}
"""


@pytest.fixture
def places(tmp_path: Path) -> us.Schema:
    squares = [[[[x, 52], [x + 1, 52], [x + 1, 53], [x, 53], [x, 52]]] for x in (13, 15)]
    features = [
        {"type": "Feature", "properties": {"area": name}, "geometry": {"type": "Polygon", "coordinates": square}}
        for name, square in zip("AB", squares, strict=True)
    ]
    (tmp_path / "files").mkdir()
    collection = {"type": "FeatureCollection", "features": features}
    (tmp_path / "files" / "city.geojson").write_text(json.dumps(collection))
    (tmp_path / "stops.csv").write_text("stop,latitude,longitude\na,52.1,13.1\nb,52.2,13.2\nc,52.3,13.5\n")
    (tmp_path / "sea.txt").write_text("01\n11\n")
    (tmp_path / "places.toml").write_text(PLACES)
    return us.Schema.read(tmp_path / "places.toml")


def test_decimals_and_formats_of_a_draft_are_not_called_declared() -> None:
    columns = (us.Column(name="x", kind="real", decimals=2), us.Column(name="day", kind="date", format="%d.%m.%Y"))
    drafted, declared = (certificate.public_facts(us.Schema(columns=columns, drafted=each)) for each in (True, False))
    assert declared.declared == ("decimals: x (2)", "formats: day (%d.%m.%Y)")
    assert drafted.declared == (
        "decimals, drafted and not declared: x (2)",
        "formats, drafted and not declared: day (%d.%m.%Y)",
    )


def test_locations_orders_cycles_and_parts_are_listed(places: us.Schema, json_schema: dict) -> None:
    """Each as it was declared: a location by its name and region, not by bounds that follow from the region."""
    declared = certificate.public_facts(places).declared
    assert declared == (
        "category lists: pain (3)",
        "categories in order: pain (from none to severe)",
        "bounds: hour (0 to 23), seen (2024-01-01 to 2024-12-31)",
        "cyclic, so that the upper bound is followed by the lower one: hour",
        "locations: home (lat and lon: a point in 2 polygons of city.geojson), "
        "work (a point in the box 46.9 to 48.4 north, 5.9 to 10.5 east), stop (one of 3 sites of stops.csv), "
        "area (one of 2 zones of city.geojson), "
        "boat (a point in 3 marked cells of the box 50 to 54 north, 10 to 14 east, from sea.txt)",
        "parts of dates: seen (month, weekday)",
        "decimals: home (6), work (3), boat (6)",
        "left out, never read: gone",
    )
    statement = dataclasses.replace(_with_every_event(), facts=certificate.public_facts(places))
    content = certificate.to_json(statement)
    jsonschema.validate(content, json_schema)
    assert read_statement(content) == statement
    page = html.unescape(to_html(statement))
    for line in declared:
        assert f"- {line}" in certificate.to_markdown(statement).splitlines()
        assert line in page


@pytest.mark.parametrize(
    ("sites", "words"), [([[52.1, 13.1]], "1 site"), ([[52.1, 13.1], [52.2, 13.2]], "one of 2 sites")]
)
def test_a_location_without_files_is_listed(sites: list, words: str) -> None:
    schema = as_schema({"columns": {"stop": {"kind": "location", "sites": sites}}})
    assert certificate.public_facts(schema).declared == (f"locations: stop ({words})", "decimals: stop (1)")


def test_partitions_are_named_and_explained() -> None:
    statement = _statement()
    assert "partition" not in certificate.to_markdown(statement)
    first, *others = statement.queries
    split = dataclasses.replace(statement, queries=(dataclasses.replace(first, partition="held-out rows"), *others))
    assert "(held-out rows only)" in certificate.to_markdown(split)
    assert "queries on different partitions compose in parallel" in certificate.to_markdown(split)


def test_without_a_guarantee_nothing_else_is_said() -> None:
    """No unit is protected, and no budget was spent: only that it is not private."""
    words = certificate.to_markdown(dataclasses.replace(_statement(), epsilon=math.inf, epsilon_target=math.inf))
    assert "NOT PRIVATE" in words
    for heading in ("Who is protected", "Where the budget went", "does not cover"):
        assert heading not in words


def _statement() -> Statement:
    query = Query("a", "one histogram", DiscreteGaussian(30.0, 1, 1))
    ledger = us.Ledger(us.Guarantee(1.0, 1e-6), noise=SecureNoise())
    ledger.charge(query)
    return ledger.statement(method="independent")


RULED = """
[columns]
who = {kind = "categorical", categories = ["a", "b", "c"]}
sex = {kind = "categorical", categories = ["m", "f"]}
age = {kind = "integer", bounds = [0, 100]}
[[rules]]
keep = "age * 2 <= 160 OR sex <> 'm'"
on_break = "drop"
[[rules]]
when = "who = 'a'"
then = "sex = 'm'"
on_break = "clamp"
"""


def test_rules_are_public_facts_that_cost_nothing(table: pa.Table, json_schema: dict) -> None:
    """In JSON, Markdown and on the page: the text of each, and what is done to rows that break it, never how many."""
    schema = us.Schema.from_toml(RULED)
    expected = (
        "2 rules that every synthetic row satisfies, applied to each row by itself, at no privacy cost",
        "rule 1: `age * 2 <= 160 OR sex <> 'm'`; a real row that breaks it was left out",
        "rule 2: `when who = 'a' then sex = 'm'`; a real row that breaks it was moved to a row that satisfies it, or "
        "left out if it cannot be",
    )
    assert certificate.public_facts(schema).declared[-3:] == expected
    kept = table.filter(np.asarray(table["who"]) != "a")
    statements = [us.fit(each, "independent", epsilon=1, schema=schema).statement for each in (table, kept)]
    facts = {statement.facts.declared for statement in statements}
    assert facts == {certificate.public_facts(schema).declared}  # whether or not a row breaks a rule
    content = certificate.to_json(statements[0])
    jsonschema.validate(content, json_schema)
    assert tuple(content["public"]["declared"][-3:]) == expected  # type: ignore[index]  # JSON, typed as objects
    for line in expected:
        assert f"- {line}" in certificate.to_markdown(statements[0]).splitlines()
    assert "<code>age * 2 &lt;= 160 OR sex &lt;&gt; 'm'</code>" in to_html(statements[0])


def test_without_rules_a_certificate_does_not_mention_them() -> None:
    schema = us.Schema.from_toml(RULED.partition("[[rules]]")[0])
    assert not [fact for fact in certificate.public_facts(schema).declared if "rule" in fact]
