"""Which engine is meant, and what is refused before Spark is started: no Java is needed here."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import understudy as us
from tests.builders import raises
from understudy.cli.app import app
from understudy.errors import ConfigError, SchemaError, TableError
from understudy.tables.spark import is_spark_engine, is_spark_frame, open_spark_table

SCHEMA = us.Schema(columns=(us.Column(name="x", kind="integer"),))


@pytest.mark.parametrize("engine", ["", "Spark", "sparks", "yarn", "spark:/host", "spark://", "ray"])
def test_an_unknown_engine_is_refused(engine: str) -> None:
    with raises(ConfigError, setting="engine"):
        is_spark_engine(engine)


def test_other_frames_are_no_spark_frames() -> None:
    class DataFrame:
        pass

    assert not any(map(is_spark_frame, (DataFrame(), pa.table({}), "spark", None)))


def test_a_schema_must_be_declared(tmp_path: Path) -> None:
    with pytest.raises(SchemaError):
        us.fit(tmp_path, epsilon=1, engine="spark")


@pytest.mark.parametrize("command", [None, "fit", "synth"])
def test_a_method_that_needs_rows_is_refused_before_anything_is_read(tmp_path: Path, command: str | None) -> None:
    """The table does not exist, which would be said if it were looked for."""
    absent, schema, out = tmp_path / "absent.parquet", tmp_path / "schema.toml", tmp_path / "out.parquet"
    SCHEMA.write(schema)
    options = ["--engine", "spark", "--method", "dpgan", "--epsilon", "1", "--schema", str(schema)]

    def fit() -> None:
        if command is None:
            us.fit(absent, "dpgan", epsilon=1, schema=SCHEMA, engine="spark")
        else:
            app([command, str(absent), "-o", str(out), *options], standalone_mode=False)

    with raises(ConfigError, setting="method"):
        fit()


def test_spark_reads_parquet_alone(tmp_path: Path) -> None:
    text = tmp_path / "people.csv"
    text.write_text("x\n1\n")
    with pytest.raises(TableError, match="Parquet alone"):
        open_spark_table(text, SCHEMA)
    with pytest.raises(TableError):
        open_spark_table(tmp_path / "absent.parquet", SCHEMA)
    with pytest.raises(TableError):
        us.fit(tmp_path / "absent", "mst", epsilon=1, schema=SCHEMA, engine="spark")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "0.parquet")
    with pytest.raises(TableError, match=r"people.csv"):
        open_spark_table(tmp_path, SCHEMA)  # a folder with other files
    with raises(ConfigError, setting="engine"):
        open_spark_table(pa.table({"x": [1]}), SCHEMA)
