"""No message quotes a file that is not below the folder of the schema: whoever wrote it chose the file."""

import itertools
from pathlib import Path

import pytest

import understudy as us
from understudy.cli import run
from understudy.graphs import GraphSchema

SECRET = "Canary-4711"

COLUMNS = """
[columns.a]
kind = "categorical"
categories = ["x", "y"]
[columns.b]
kind = "categorical"
categories = ["u", "v"]
"""
NAMED = {
    "combinations": COLUMNS + '[[rules]]\ncombinations = ["a", "b"]\nallowed = "{file}"\n',
    "forbidden": COLUMNS + '[[rules]]\ncombinations = ["a", "b"]\nforbidden = "{file}"\n',
    "determines": COLUMNS + '[[rules]]\ndetermines = ["a"]\ngives = ["b"]\ntable = "{file}"\n',
    "region": '[columns.a]\nkind = "location"\nregion = "{file}"\n',
    "mask": '[columns.a]\nkind = "location"\nbox = [0, 0, 1, 1]\nmask = "{file}"\n',
    "sites": '[columns.a]\nkind = "location"\nsites = "{file}"\n',
    "regions": '[columns.a]\nkind = "location"\nregions = "{file}"\ncode = "zone"\n',
    "regions of points": '[columns.a]\nkind = "location"\nregions = "{file}.csv"\ncode = "zone"\n',
    "nodes": '[graph]\nsource = "s"\ntarget = "t"\n[nodes]\nfile = "{file}.csv"\n',
}
CONTENTS = {
    "a header": f"{SECRET},b\nx,u\n",
    "a value": f"a,b\n{SECRET},{SECRET}\nx,{SECRET}\n",
    "a kind of geometry": f'{{"type": "{SECRET}"}}',
    "a line": f"{SECRET}\n",
    "coordinates": f"latitude,longitude,{SECRET}\n1,2,3\n",
}


@pytest.mark.parametrize("key", NAMED)
def test_files_outside_are_not_quoted(key: str, tmp_path: Path) -> None:
    """However they are named, and whatever is in them."""
    (tmp_path / "schemas").mkdir()
    outside, path = tmp_path / "secret", tmp_path / "schemas" / "schema.toml"
    for ending in ("", ".csv"):
        (tmp_path / "schemas" / f"link{ending}").symlink_to(f"{outside}{ending}")
    for named, content in itertools.product((str(outside), "../secret", "link"), CONTENTS):
        for ending in ("", ".csv"):
            Path(f"{outside}{ending}").write_text(CONTENTS[content])
        path.write_text(NAMED[key].format(file=named))
        if (key, content) == ("sites", "coordinates"):  # it fits
            us.Schema.read(path)
            continue
        with pytest.raises(us.SchemaError, match="not below the folder of the schema") as caught:
            (GraphSchema if key == "nodes" else us.Schema).read(path)
        assert SECRET not in str(caught.value), (named, content)


def test_the_first_line_of_a_system_file_is_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "passwd").write_text(f"root:{SECRET}:0:0\n")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "schema.toml").write_text(NAMED["determines"].format(file=tmp_path / "passwd"))
    assert run(["plan", str(tmp_path / "in" / "schema.toml"), "--epsilon", "1"]) == 2
    said = capsys.readouterr().err
    assert SECRET not in said
    assert said.count("\n") == 1


def test_a_file_below_the_folder_is_explained(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "pairs.csv").write_text("A,b\nx,u\n")
    path = tmp_path / "schema.toml"
    path.write_text(NAMED["combinations"].format(file="lists/pairs.csv"))
    with pytest.raises(us.SchemaError, match=r"needs one column 'a'.*Did you mean 'A'"):
        us.Schema.read(path)
