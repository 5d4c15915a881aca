"""`audit` on the command line: what it prints and writes, and what it refuses."""

import json
import shlex
from pathlib import Path

import pytest

from understudy.certificate.audit_section import LIMITS, Audit
from understudy.cli import run


def test_an_audit_is_shown_saved_and_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    options = ["--method", "independent", "--epsilon", "1", "--runs", "70", "--seed", "1"]
    assert run(["audit", *options, "--save", "runs.json", "--json", "first.json", "-q"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for text in ("claim", "70", "combination", "95%", LIMITS, "was seeded"):
        assert text in shown
    assert run(["audit", "--from", "runs.json", "--threat", "white", "--json", "-"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again == json.loads(Path("first.json").read_text())
    (found,) = map(Audit.from_dict, again["audits"])
    assert (found.method, found.num_runs, found.seeded, found.seed) == ("independent", 70, True, 1)
    repeated = shlex.split(again["audits"][0]["command"])[1:]
    assert repeated[-2:] == ["--seed", "1"]
    assert run([*repeated, "--json", "-", "-q"]) == 0
    assert json.loads(capsys.readouterr().out) == again
    assert run(["audit", "--from", "."]) == 2  # first.json holds no runs
    assert run(["audit", "--from", "runs.json"]) == 0
    assert "for all 2 audits together, no claim is refuted" in capsys.readouterr().out
    assert run(["audit", *options, "--save", "runs.json"]) == 2
    assert "exists" in capsys.readouterr().err


def test_recorded_audits_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "--table"]) == 0
    assert "mu: the same on the scale of Gaussian noise" in (shown := " ".join(capsys.readouterr().out.split()))
    assert LIMITS in shown
    assert run(["audit", "--table", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == "understudy-audits"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "Give one of --method"),
        (["--method", "mst", "--table"], "found --method and --table"),
        (["--method", "nope", "--epsilon", "1"], "There is no method 'nope'"),
        (["--method", "mst"], "Give the epsilon of the claim"),
        (["--method", "mst", "--epsilon", "0"], "epsilon must be a positive number"),
        (["--method", "mst", "--epsilon", "inf"], "epsilon must be finite"),
        (["--method", "mst", "--epsilon", "1", "--delta", "0.5"], "delta 0.5 is too large"),
        (["--method", "mst", "--epsilon", "1", "--runs", "20"], "at least 70 runs"),
        (["--method", "mst", "--epsilon", "1", "--threat", "whit"], "Did you mean 'white'?"),
        (["--method", "mst", "--epsilon", "1", "--canary", "rwo"], "Did you mean 'row'?"),
        (["--method", "mst", "--epsilon", "1", "--jobs", "0"], "number of jobs"),
        (["--method", "mst", "--epsilon", "1", "--seed", "-1"], "seed must be"),
        (["--method", "mst", "--epsilon", "1", "--json", "absent/x.json"], "absent"),
        (["--method", "mst", "--epsilon", "1", "--save", "absent/x.json"], "absent"),
        (["--from", "absent.json"], "absent.json cannot be read"),
        (["--from", "empty"], "has no .json file"),
        (["--from", "other.json"], "is not a file of runs"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("other.json").write_text("{}")
    Path("empty").mkdir()
    before = sorted(tmp_path.iterdir())
    assert run(["audit", *arguments, "-q"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert text in captured.err
    assert len(captured.err.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before
