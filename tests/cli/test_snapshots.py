"""The whole output of each command, compared with a file in `snapshots/`.

After an intended change of a text, write the files again and read the difference before committing it:
`UPDATE_SNAPSHOTS=1 pytest tests/cli/test_snapshots.py`.
"""

import datetime
import os
import re
from importlib.metadata import version
from pathlib import Path

import pytest

from understudy import __version__
from understudy.cli import run

SNAPSHOTS = Path(__file__).parent / "snapshots"
PINNED = re.findall(r"^typer==(.+)$", (Path(__file__).parents[2] / "constraints.txt").read_text(), flags=re.M)

TABLE = "person,age,degree,member\n" + "".join(
    f"{number},{20 + 3 * number % 50},{('none', 'school', 'college')[number % 3]},{'yes' if number % 4 else 'no'}\n"
    for number in range(1, 201)
)

SCHEMA = """
[table]
rows = 200
target = "member"

[columns.person]
kind = "id"
[columns.age]
kind = "integer"
bounds = [18, 80]
[columns.degree]
kind = "categorical"
categories = ["none", "school"]
[columns.member]
kind = "categorical"
nullable = false
categories = ["no", "yes"]
closed = true
"""

NAMED = '[table]\nname = "Members 2023"\nresponsible = "A. Weber"\ncontact = "a.weber@office.example"'

VISITS = "person,sex,ward\n" + "".join(
    f"{number // 3},{'fm'[number // 3 % 2]},{'abc'[number * number % 3]}\n" for number in range(1, 301)
)

VISITS_SCHEMA = """
[table]
rows = 300
unit = "person"
max_rows_per_unit = 3

[columns.person]
kind = "id"
[columns.sex]
kind = "categorical"
categories = ["f", "m"]
closed = true
nullable = false
per_unit = true
[columns.ward]
kind = "categorical"
categories = ["a", "b", "c"]
closed = true
nullable = false
"""

FIT = ["fit", "people.csv", "--schema", "people.toml", "--epsilon", "1", "--method", "independent", "--seed", "0", "-q"]

FIT_VISITS = ["--schema", "visits.toml", "--epsilon", "1", "--method", "independent", "--seed", "0"]

COMMANDS = {
    "help": ["--help"],
    **{
        f"help_{command.replace(' ', '_')}": [*command.split(), "--help"]
        for command in (
            "demo",
            "book create",
            "book show",
            "book verify",
            "book approve",
            "book policy",
            "synth",
            "fit",
            "mock",
            "split",
            "sample",
            "certificate",
            "bundle",
            "verify",
            "metadata",
            "evaluate",
            "disclose",
            "report",
            "studio",
            "plan",
            "preview",
            "methods",
            "schema",
            "schema draft",
            "schema check",
            "schema import",
        )
    },
    "methods": ["methods"],
    "plan": ["plan", "people.toml", "--epsilon", "1", "--method", "independent"],
    "plan_auto": ["plan", "people.toml", "--epsilon", "1", "--rows", "20000"],
    "plan_accuracy": ["plan", "people.toml", "--accuracy", "1-way 5%", "--method", "mst"],
    "plan_open": ["plan", "open.toml", "--epsilon", "1", "--method", "mst"],
    "plan_weak": ["plan", "people.toml", "--epsilon", "20", "--method", "independent", "--rows", "10"],
    "preview": ["preview", "people.csv", "--schema", "open.toml", "--epsilon", "1", "--method", "independent"],
    "plan_units": ["plan", "visits.toml", "--epsilon", "1", "--method", "independent"],
    "fit": [*FIT[:-1], "-o", "other.release"],
    "mock": ["mock", "people.toml", "-n", "5", "--seed", "1", "-o", "mock.csv"],
    "mock_open": ["mock", "open.toml", "-o", "mock_open.csv"],
    "certificate": ["certificate", "release"],
    "certificate_private": ["certificate", "private"],
    "sample": ["sample", "release", "-n", "8", "--seed", "1", "-o", "fake.csv"],
    "sample_where": ["sample", "release", "-n", "8", "--seed", "1", "-o", "some.csv", "--where", "age < 40"],
    "synth_units": ["synth", "visits.csv", *FIT_VISITS, "-n", "8", "-o", "visits_fake.csv"],
    "sample_units": ["sample", "visits.release", "-n", "8", "--seed", "1", "-o", "more_visits.csv"],
    "certificate_units": ["certificate", "visits.release"],
    "schema_draft": ["schema", "draft", "people.csv", "-o", "draft.toml"],
    "schema_check": ["schema", "check", "people.csv", "people.toml"],
}

WRITTEN = {
    "mock": "mock.csv.certificate.md",
    "sample": "fake.csv",
    "sample_where": "some.csv",
    "synth_units": "visits_fake.csv",
    "sample_units": "more_visits.csv",
    "schema_draft": "draft.toml",
}
"""Commands whose output file is part of the snapshot."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tables, schemas that declare everything, one that does not, and seeded releases."""
    folder = tmp_path_factory.mktemp("snapshots")
    (folder / "people.csv").write_text(TABLE)
    (folder / "people.toml").write_text(SCHEMA)
    (folder / "visits.csv").write_text(VISITS)
    (folder / "visits.toml").write_text(VISITS_SCHEMA)
    (folder / "open.toml").write_text(
        SCHEMA.replace('categories = ["none", "school"]\n', "").replace("rows = 200\n", "")
    )
    # Without a number to bin, a certificate has no noisy figure, so a run without a seed has a snapshot too.
    (folder / "named.toml").write_text(SCHEMA.replace("[table]", NAMED).replace("bounds = [18, 80]", "drop = true"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run([*FIT, "-o", "release"]) == 0
        assert run(["fit", "people.csv", "--schema", "named.toml", *FIT[4:8], "-q", "-o", "private"]) == 0
        assert run(["fit", "visits.csv", *FIT_VISITS, "-q", "-o", "visits.release"]) == 0
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_output(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if name.startswith("help") and version("typer") not in PINNED:
        pytest.skip("another version of typer lays out help texts differently")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("TERMINAL_WIDTH", raising=False)
    capsys.readouterr()
    code = run(COMMANDS[name])
    output = capsys.readouterr()
    parts = [f"$ understudy {' '.join(COMMANDS[name])}", output.out, output.err and f"[standard error]\n{output.err}"]
    if name in WRITTEN:
        parts.append(f"[{WRITTEN[name]}]\n{(folder / WRITTEN[name]).read_text()}")
    parts.append(f"[exit code {code}]")
    text = "\n".join(part.rstrip("\n") for part in parts if part).replace(__version__, "VERSION") + "\n"
    text = re.sub(r"[0-9a-f]{64}", "SHA256", text.replace(datetime.date.today().isoformat(), "DATE"))
    text = re.sub(r"\(\d{4}-\d\d-\d\d\.\)", "(DATE.)", text)  # of a recorded audit, which may be of today
    lines = [line.rstrip() for line in text.split("\n") if not line.endswith(" s)")]  # without progress and its time
    text = "\n".join(lines)
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(text)
    assert text == path.read_text(), f"{path.name} differs: UPDATE_SNAPSHOTS=1 writes it again"
