"""What commands say about how a file is read."""

from pathlib import Path

import pytest

from understudy.cli import run

SCHEMA = '[columns.x]\nkind = "{kind}"\nbounds = [0, 9]\n[columns.y]\nkind = "boolean"\n'


@pytest.mark.parametrize(
    ("separator", "kind", "options", "said"),
    [
        (";", "real", [], True),
        (";", "real", ["--decimal", ","], False),
        (";", "integer", [], False),
        (",", "real", [], False),
    ],
)
def test_semicolons_without_a_decimal_sign(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    separator: str,
    kind: str,
    options: list[str],
    said: bool,
) -> None:
    """Decimal commas would be nulls. The note follows from the header and the schema, never from a value."""
    monkeypatch.chdir(tmp_path)
    Path("s.toml").write_text(SCHEMA.format(kind=kind))
    Path("t.csv").write_text(f"x{separator}y\n" + f"1{separator}true\n" * 20)
    command = ["synth", "t.csv", "--schema", "s.toml", "--epsilon", "1", "--method", "independent", "-o", "f.csv"]
    assert run([*command, *options]) == 0
    assert ("If this file has decimal commas, give --decimal ','" in capsys.readouterr().err) == said
