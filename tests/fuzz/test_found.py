"""Files that damage has led to: each once ended a command with an internal error."""

from pathlib import Path

import pytest

from understudy.cli import run

DEEP = "[" * 100_000
FOUND = {
    "deep schema": ("a.toml", f"x = {DEEP}", ("plan", "a.toml", "--epsilon", "1"), "nested too deeply"),
    "deep suite": ("a.toml", f"x = {DEEP}", ("benchmark", "status", "a.toml"), "nested too deeply"),
    "deep scorecard": ("a.json", DEEP, ("report", "a.json", "-o", "new.html"), "is not JSON"),
    "deep runs": ("a.json", DEEP, ("audit", "--from", "a.json"), "is not a file of runs"),
    "deep code book": ("a.json", DEEP, ("schema", "import", "a.json", "-o", "new.toml"), "nested too deeply"),
    "deep setting": (
        "a.toml",
        '[columns.a]\nkind = "boolean"\n',
        ("plan", "a.toml", "--epsilon", "1", "--method", "mst", "--set", f"x={DEEP}"),
        "has no setting",
    ),
    "many codes": ("a.json", f'{{"age": {10**40}}}', ("schema", "import", "a.json", "-o", "new.toml"), "too many"),
}


@pytest.mark.parametrize("which", FOUND)
def test_it_is_refused_with_one_line(
    which: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, content, arguments, words = FOUND[which]
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(content)
    assert run(list(arguments)) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert words in message
    assert len(message) < 1000
    assert [path.name for path in tmp_path.iterdir()] == [name]
