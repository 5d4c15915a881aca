"""What commands write says that it is synthetic, and names its release."""

import dataclasses
import hashlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import understudy as us
from understudy.cli.main import run
from understudy.tables import label_metadata, says_synthetic

SCHEMA = """
[table]
name = "Members"
rows = 60
[columns.person]
kind = "id"
[columns.member]
kind = "boolean"
"""
FIT = ["people.csv", "--schema", "people.toml", "--method", "independent", "-q"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table, its schema, and what a seeded `synth` and a `sample` leave behind."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("people.csv").write_text("person,member\n" + "".join(f"{n},{n % 2 == 0}\n" for n in range(60)))
        Path("people.toml").write_text(SCHEMA)
        assert run(["synth", *FIT, "--epsilon", "1", "-o", "fake.csv", "--id-prefix", "SYN-"]) == 0
        assert run(["sample", "fake.release", "-n", "5", "-o", "more.parquet", "-q"]) == 0
    return folder


@pytest.mark.filterwarnings("ignore::understudy.UnderstudyWarning")
def test_a_label_says_that_its_guarantee_has_a_condition(made: Path) -> None:
    """Without a schema the kinds of the columns follow from the rows."""
    drafted = us.fit(pa.table({"a": ["x", "y"] * 50}), "independent", epsilon=1)
    assert drafted.label.certificate.endswith("one row, under a condition: see the certificate")
    assert "condition" not in us.Release.load(made / "fake.release").label.certificate


def test_every_table_names_the_release_that_it_was_sampled_from(made: Path) -> None:
    """Also after `synth` has saved the release again, with the checksum of the table."""
    release = us.Release.load(made / "fake.release")
    assert release.tables == (("fake.csv", hashlib.sha256((made / "fake.csv").read_bytes()).hexdigest()),)
    for name in ("fake.csv", "more.parquet"):
        described = json.loads((made / f"{name}.datapackage.json").read_bytes())
        assert described["synthetic"] is True
        assert described["release"] == {"sha256": release.digest}
        assert described["certificate"] == release.statement.headline
        assert described["title"] == "Synthetic data: Members"
    label = label_metadata(pq.read_schema(made / "more.parquet"))
    assert label == release.label.to_metadata() == label_metadata(release.sample_arrow(2).schema)
    assert "epsilon" in label["understudy.certificate"]
    assert "independent" in label["understudy.certificate"]


def test_the_digest_depends_on_model_codec_and_guarantee_but_not_on_tables(made: Path) -> None:
    release = us.Release.load(made / "fake.release")
    assert dataclasses.replace(release, tables=()).digest == release.digest
    schema = dataclasses.replace(release.schema, name="Others")
    weaker = dataclasses.replace(release.statement, epsilon=9.0)
    changed = (
        dataclasses.replace(release, codec=dataclasses.replace(release.codec, schema=schema)),
        dataclasses.replace(release, statement=weaker),
        dataclasses.replace(release, model=dataclasses.replace(release.model, total=7.0)),  # type: ignore[type-var]  # models are dataclasses
    )
    assert len({release.digest, *(each.digest for each in changed)}) == 4


def test_ids_have_the_prefix(made: Path) -> None:
    assert (made / "fake.csv").read_text().splitlines()[1].startswith("SYN-1,")
    release = us.Release.load(made / "fake.release")
    assert release.sample_arrow(2, id_prefix="X").column("person").to_pylist() == ["X1", "X2"]
    assert release.sample_arrow(2).column("person").to_pylist() == [1, 2]
    assert release.sample(2, id_prefix="X").column("person").to_pylist() == ["X1", "X2"]
    batches = release.sample_batches(5, id_prefix="X", batch_rows=2)
    assert [name for batch in batches for name in batch.column("person").to_pylist()] == ["X1", "X2", "X3", "X4", "X5"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--id-prefix", ""], "1 to 40 printable characters"),
        (["--id-prefix", "a\nb"], "1 to 40 printable characters"),
    ],
)
def test_an_impossible_prefix_is_refused(
    arguments: list[str], said: str, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sample", str(made / "fake.release"), "-o", str(tmp_path / "x.csv"), *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_prefix_that_no_id_can_have_is_refused_before_anything_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"person": [1, 2], "member": [True, False]}), "people.parquet")
    Path("people.toml").write_text(SCHEMA)
    fit = ["synth", "people.parquet", *FIT[1:], "--epsilon", "1", "-o", "fake.csv", "--id-prefix", "SYN-"]
    assert run([*fit, "--keep-types"]) == 2
    assert "'person' are integers" in capsys.readouterr().err
    Path("people.toml").write_text(SCHEMA.replace('"id"', '"id"\ndrop = true'))
    assert run(fit) == 2
    assert "no id in the synthetic table" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"people.parquet", "people.toml"}


def test_the_sidecar_can_be_left_out_and_is_not_replaced(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sample = ["sample", str(made / "fake.release"), "-n", "3", "-q", "-o", "x.csv"]
    assert run([*sample, "--no-sidecar"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"x.csv", "x.csv.certificate.json"}
    Path("y.csv.datapackage.json").write_text("mine")
    assert run([*sample[:-1], "y.csv"]) == 2
    assert not Path("y.csv").exists()
    assert run([*sample[:-1], "y.csv", "--force"]) == 0
    assert says_synthetic("y.csv")


def test_a_seeded_run_is_marked_in_the_label(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made)
    out = tmp_path / "seeded.parquet"
    assert run(["synth", *FIT, "--epsilon", "1", "--seed", "1", "-o", str(out)]) == 0
    assert "NOT PRIVATE" in label_metadata(pq.read_schema(out))["understudy.certificate"]
    assert "NOT PRIVATE" in json.loads(Path(f"{out}.datapackage.json").read_bytes())["certificate"]


def test_a_synthetic_source_is_noted(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(made)
    rest = [argument for argument in FIT[1:] if argument != "-q"]
    assert run(["fit", "fake.csv", *rest, "--epsilon", "1", "-o", str(tmp_path / "again")]) == 0
    assert "fake.csv says that it is synthetic" in capsys.readouterr().err
    assert run(["fit", "people.csv", *rest, "--epsilon", "1", "-o", str(tmp_path / "real")]) == 0
    assert "synthetic. It" not in capsys.readouterr().err


def test_graphs_are_labelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("graph.toml").write_text('[graph]\nname = "Ring"\n[nodes]\ncount = 30\n')
    Path("edges.csv").write_text("source,target\n" + "".join(f"{n},{(n + 1) % 30}\n" for n in range(30)))
    assert run(["synth", "edges.csv", "--schema", "graph.toml", "--epsilon", "1", "-q", "-o", "fake.parquet"]) == 0
    release = us.GraphRelease.load("fake.release")
    assert label_metadata(pq.read_schema("fake.parquet")) == release.label.to_metadata()
    assert json.loads(Path("fake.parquet.datapackage.json").read_bytes())["title"] == "Synthetic data: Ring"
    assert run(["sample", "fake.release", "-q", "-o", "more.csv"]) == 0
    assert json.loads(Path("more.csv.datapackage.json").read_bytes())["release"]["sha256"] == release.digest
    assert run(["sample", "fake.release", "-q", "-o", "x.csv", "--id-prefix", "S"]) == 2
