"""What several releases of one table guarantee together."""

import dataclasses
import json
import math
from pathlib import Path

import pyarrow as pa
import pytest

import understudy as us
from understudy import certificate
from understudy.certificate import page as certificate_page
from understudy.cli import run
from understudy.privacy.accounting.events import UnitHistogram
from understudy.privacy.accounting.ledger import Guarantee, PublicFacts, Query, Statement
from understudy.run.composition import describe_total, earlier_releases

STATEMENT = Statement(
    epsilon_target=1.0,
    delta=1e-6,
    epsilon=1.0,
    epsilon_pld=1.0,
    epsilon_rdp=1.0,
    accountant="pld",
    seeded=False,
    max_rows_per_unit=1,
    queries=(),
    facts=PublicFacts(name="stays"),
)
NOW = PublicFacts(name="stays"), Guarantee(1.0, 1e-6)


def changed(unit: str | None = None, **facts: object) -> Statement:
    return dataclasses.replace(STATEMENT, facts=PublicFacts(name="stays", unit=unit), **facts)  # type: ignore[arg-type]  # keywords of several types


def test_epsilons_and_deltas_are_added() -> None:
    assert describe_total([], *NOW) is None
    assert describe_total([STATEMENT], *NOW) == (
        "This folder already holds a release of this table (epsilon 1). Together with this run they guarantee epsilon "
        "2 at delta 2e-06."
    )
    three = [STATEMENT, changed(epsilon=0.5), changed(epsilon=0.3, delta=1e-5, released=False)]
    assert describe_total(three, *NOW) == (
        "This folder already holds 3 releases and failed runs of this table (epsilon 1, 0.5 and 0.3). Together with "
        "this run they guarantee epsilon 2.8 at delta 1.3e-05."
    )


def test_figures_are_never_rounded_down() -> None:
    text = describe_total([changed(epsilon=0.123451)], NOW[0], Guarantee(0.1, 1e-6))
    assert text is not None
    assert "epsilon 0.2235 at" in text


def test_costs_of_different_units_cannot_be_added() -> None:
    text = describe_total([STATEMENT, changed(unit="person")], *NOW)
    assert text is not None
    assert text.endswith(
        "(epsilon 1 and 1). Their privacy units differ ('person' and each row), so the costs cannot be added. Use one "
        "unit for all releases of a table."
    )
    same = describe_total([changed(unit="person")], PublicFacts(name="stays", unit="person"), NOW[1])
    assert same is not None
    assert "guarantee epsilon 2 at" in same


@pytest.mark.parametrize("before", [changed(seeded=True), changed(epsilon=math.inf)])
def test_with_a_release_that_is_not_private_there_is_no_guarantee(before: Statement) -> None:
    text = describe_total([STATEMENT, before], *NOW)
    assert text == (
        "This folder already holds 2 releases of this table, not all private. Together with this run they have no "
        "guarantee."
    )


@pytest.mark.made_up_figures
def test_releases_are_found_by_the_name_of_their_table(tmp_path: Path) -> None:
    """In the folder itself and beside it; anything else there is passed over."""
    for folder, statement in {
        "a.release": STATEMENT,
        "b.release": changed(epsilon=0.5),
        "c.spent": changed(epsilon=0.3, released=False),
        "d.release": dataclasses.replace(STATEMENT, facts=PublicFacts(name="visits")),
        "e.release": dataclasses.replace(STATEMENT, facts=PublicFacts()),
    }.items():
        (tmp_path / folder).mkdir()
        for name, data in certificate_page.to_files(statement).items():
            (tmp_path / folder / name).write_bytes(data)
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "certificate.json").write_text('{"format_version": 2}')
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "certificate.json").write_bytes(b"\xff[")
    damaged = certificate.to_json(dataclasses.replace(STATEMENT, queries=(Query("a", "b", UnitHistogram(10.0)),)))
    (tmp_path / "damaged").mkdir()
    text = json.dumps(damaged).replace('"stddev": 10.0', '"stddev": -1.0')
    (tmp_path / "damaged" / "certificate.json").write_text(text)
    (tmp_path / "file").write_text("")
    for out in ("a.release", "new.release"):
        found = earlier_releases(tmp_path / out, "stays")
        assert [statement.epsilon for statement in found] == [1.0, 0.5, 0.3]
    assert earlier_releases(tmp_path / "a.release", None) == ()
    assert earlier_releases(tmp_path / "absent" / "a.release", "stays") == ()


@pytest.mark.parametrize("name", ["epsilon", "epsilon_rdp"])
def test_a_certificate_that_states_less_than_it_costs_counts_in_full(tmp_path: Path, name: str) -> None:
    """Or a forged one beside a release would lower the total that the steward sees."""
    schema = {"table": {"name": "stays", "rows": 90}, "columns": {"a": {"kind": "boolean"}}}
    us.fit(pa.table({"a": [True, False] * 45}), "independent", epsilon=1, schema=schema).save(tmp_path / "a.release")
    path = tmp_path / "a.release" / "certificate.json"
    content = json.loads(path.read_text())
    spent = content["guarantee"]["epsilon"]
    content["guarantee"] |= {"epsilon": 0.01, name: 0.01}
    path.write_text(json.dumps(content))
    (found,) = earlier_releases(tmp_path / "b.release", "stays")
    assert found.epsilon >= 0.999 * spent
    text = describe_total([found], *NOW)
    assert text is not None
    assert "epsilon 0.01" not in text


@pytest.mark.made_up_figures
def test_copies_of_a_release_count_once(tmp_path: Path) -> None:
    """A model's checksum tells them from runs with the same settings; failed runs have none, and all count."""
    models = {"a.release": "0" * 64, "unpacked": "0" * 64, "b.release": "1" * 64, "c.spent": "", "d.spent": ""}
    for folder, model in models.items():
        (tmp_path / folder).mkdir()
        content = certificate.to_json(STATEMENT, {"model.safetensors": model} if model else {})
        (tmp_path / folder / "certificate.json").write_text(json.dumps(content))
    assert len(earlier_releases(tmp_path / "a.release", "stays")) == 4


def test_a_second_run_in_the_same_folder_says_what_both_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the name of the file, and by the declared name whatever the file is called."""
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{'fm'[number % 2]}\n" for number in range(300))
    for file in ("people.csv", "copy.csv"):
        Path(file).write_text(f"sex\n{rows}")
    columns = '[columns.sex]\nkind = "categorical"\ncategories = ["f", "m"]\n'
    Path("plain.toml").write_text(f"[table]\nrows = 300\n{columns}")
    Path("named.toml").write_text(f'[table]\nrows = 300\nname = "Census"\n{columns}')

    def synth(source: str, schema: str, out: str, *more: str) -> str:
        command = ["synth", source, "--schema", schema, "--epsilon", "1", "--method", "independent", "-o", out, *more]
        assert run(command) == 0
        return capsys.readouterr().err

    both = "a release of this table (epsilon 0.9999). Together with this run they guarantee epsilon 2 at delta 2e-05."
    assert "already holds" not in synth("people.csv", "plain.toml", "one.csv")
    assert us.Release.load("one.release").statement.facts.name == "people.csv"
    assert "already holds" not in synth("copy.csv", "plain.toml", "two.csv")
    assert both.partition(" (")[0] in synth("people.csv", "plain.toml", "three.csv", "-q")
    assert "already holds" not in synth("people.csv", "named.toml", "four.csv")
    again = synth("copy.csv", "named.toml", "four.csv", "--force")
    assert "This folder already holds a release of this table (epsilon " in again
    assert "Together with this run they guarantee epsilon 2 at delta 2e-05." in again
    assert us.Release.load("four.release").statement.facts.name == "Census"
    refused = ["synth", "people.csv", "--schema", "plain.toml", "--epsilon", "1", "--method", "dpgan", "-o", "five.csv"]
    assert run([*refused, "--public", "absent.csv"]) == 2
    said = capsys.readouterr().err
    assert "already holds" not in said  # a refused run spends nothing
    assert said.count("\n") == 1
