"""Tables of Apache Spark: a DataFrame, or a folder of Parquet files that a cluster reads.

Here rows are only described: which columns, in which types, and by which rules each batch is read. They are read in the
tasks of the cluster (`privacy/rows/spark.py`), by the same rules as everywhere, row by row.
"""

import contextlib
import functools
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from understudy._version import install_advice
from understudy.errors import ConfigError, SchemaError, TableError, UnderstudyWarning
from understudy.schema import Schema, match_columns
from understudy.tables.cast import conform, normalize, output_schema
from understudy.tables.origin import Origin
from understudy.tables.parquet_folders import version_now
from understudy.tables.path import TablePath, require_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENGINES = "local, spark, or the address of a cluster: spark://host:port"


class SparkTable(NamedTuple):
    """A table on a cluster, in the columns that its schema uses."""

    frame: "DataFrame"
    empty: pa.Table
    """The table without its rows, as Spark hands it to a task."""
    convert: Callable[[pa.Table], pa.Table]
    """From a batch of rows in the types of Spark to those of the schema, row by row."""
    check_source: Callable[[], None] | None
    """Raises if the files of the table are not what they were when it was opened; None: it is no file."""


def is_spark_frame(source: object) -> bool:
    """Whether this is a Spark DataFrame. Does not import Spark."""
    classes = [f"{cls.__module__}.{cls.__qualname__}" for cls in type(source).__mro__]
    return any(re.fullmatch(r"pyspark\.sql\.(connect\.)?dataframe\.DataFrame", name) for name in classes)


def is_spark_engine(engine: str) -> bool:
    """Whether an engine is Spark; refuses one that is unknown."""
    if engine == "local":
        return False
    if engine == "spark" or re.fullmatch(r"spark://\S+", engine):
        return True
    raise ConfigError(f"Expected an engine ({ENGINES}), found {engine!r}.", setting="engine")


def open_spark_table(
    source: object,
    schema: Schema | None,
    *,
    engine: str = "spark",
    keep_types: bool = False,
    at_end: contextlib.ExitStack | None = None,
) -> tuple[SparkTable, Origin]:
    """A Spark DataFrame, or a Parquet file or folder that Spark reads, by a declared schema.

    `at_end` stops the session, if one is started here.
    """
    if schema is None:
        raise SchemaError(
            "A table on Spark needs a declared schema: kinds are not drafted there. Write one, for example from a small"
            " sample that may be seen: understudy schema draft."
        )
    check_source: Callable[[], None] | None = None
    if isinstance(source, str | os.PathLike):
        check_source = _watch(os.fspath(source))
        frame, where, library = _read_parquet(os.fspath(source), engine, at_end), str(source), "file"
    elif is_spark_frame(source):
        frame, where, library = source, "The Spark DataFrame", "pyarrow"
    else:
        raise ConfigError(
            f"--engine {engine} reads a folder of Parquet files or a Spark DataFrame, found"
            f" {type(source).__qualname__}. Use the engine local.",
            setting="engine",
        )
    _require_fixed(frame)
    require_names(frame.columns, where)
    match_columns(schema, frame.columns)
    used = [name for name in frame.columns if name == schema.unit or (name in schema and schema[name].modelled)]
    own = _arrow_types(frame)
    plain = [f"c{at}" for at in range(len(used))]  # Spark's Arrow functions refuse names with dots
    chosen = frame.selectExpr(*[f"{_quoted(name)} as {short}" for name, short in zip(used, plain, strict=True)])
    types = pa.schema([own.field(name).with_name(short) for name, short in zip(used, plain, strict=True)])
    convert = functools.partial(_conform, names=used, schema=schema)
    whole = conform(normalize(own.empty_table()), schema).schema
    origin = Origin.of(output_schema(own, whole, schema, keep_types=keep_types), library)
    return SparkTable(chosen, types.empty_table(), convert, check_source), origin


def _require_fixed(frame: "DataFrame") -> None:
    """Every query reads the table anew, so it must have the same rows each time. Spark Connect does not say."""
    plan = getattr(frame, "_jdf", None)
    if plan is not None and not plan.queryExecution().analyzed().deterministic():
        raise TableError(
            "The Spark DataFrame draws random values, so its rows would differ from query to query. Write it as Parquet"
            " first, and give what was written."
        )


def _conform(batch: pa.Table, names: Sequence[str], schema: Schema) -> pa.Table:
    return conform(normalize(batch.rename_columns(names)), schema)


def _quoted(name: str) -> str:
    """A column name for Spark, which reads a dot as the way into a struct."""
    return "`" + name.replace("`", "``") + "`"


def _arrow_types(frame: "DataFrame") -> pa.Schema:
    try:
        return frame.limit(0).toArrow().schema
    except Exception as error:
        raise TableError(
            f"The types of the Spark DataFrame cannot be found ({type(error).__name__}). Columns of other types than"
            " text, numbers, dates and times must be dropped from it first."
        ) from None


# ------------------------------------------------------------------------------------------------------------- sessions


def _read_parquet(path: str, engine: str, at_end: contextlib.ExitStack | None) -> "DataFrame":
    """Columns that are named by folders (`year=2020/`) are text, as they are where Spark does not read them."""
    table_path = TablePath.parse(path)
    spark = open_session(engine, at_end)
    setting = "spark.sql.sources.partitionColumnTypeInference.enabled"
    before = spark.conf.get(setting)
    try:
        spark.conf.set(setting, "false")
        return spark.read.parquet(table_path.path.resolve().as_uri())
    except Exception as error:
        raise TableError(f"Spark cannot read {path} as Parquet ({type(error).__name__}). Check the files.") from None
    finally:
        spark.conf.set(setting, before or "true")


def _watch(path: str) -> Callable[[], None]:
    """Compares the files of a table, a Parquet file or a plain folder of them, with those of now.

    Every job of Spark reads them anew, and all must see the same rows.
    """
    if "://" not in path and not os.path.exists(path):  # before its ending is looked at: a folder need not have one
        raise TableError(f"{path} does not exist. Check the path.")
    table_path = TablePath.parse(path)
    if table_path.suffix != ".parquet":
        raise TableError(f"{path}: Spark reads Parquet alone here. Write it as Parquet, or use the engine local.")
    opened = version_now(table_path)

    def check() -> None:
        with contextlib.suppress(OSError, TableError):
            if version_now(table_path) == opened:
                return
        raise TableError(f"{path} changed while it was read. Run again.")

    return check


def open_session(engine: str, at_end: contextlib.ExitStack | None = None) -> "SparkSession":
    """The session that exists, or a new one: at this address, or by default with all cores of this machine.

    `at_end` stops a new one: Spark then deletes its files on the local disks, which hold private rows.
    """
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")  # which is not used there
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError:
        raise ConfigError(f"Spark is not installed. Install Java 17, and run: {install_advice('spark')}.") from None
    active = SparkSession.getActiveSession()
    if active is not None and engine == "spark":
        return active
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # tasks on this machine use this environment
    builder = SparkSession.builder.appName("understudy")
    if engine == "spark":  # on this machine, where Spark's 200 tasks for each shuffle would take longer than the work
        builder = builder.config("spark.sql.shuffle.partitions", str(4 * (os.cpu_count() or 1)))
    else:
        builder = builder.master(engine)
    running = SparkContext._active_spark_context  # a session of another thread is not seen above
    is_new = running is None
    if running is not None and engine not in ("spark", running.master):
        warnings.warn(
            f"A Spark session at {running.master} is already running in this process, and is used in place of one at "
            f"{engine}. Stop it first to use that address.",
            UnderstudyWarning,
            stacklevel=2,
        )
    try:
        _start_java()
        session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
        if is_new:
            if at_end is not None:
                at_end.callback(session.stop)
            session.sparkContext.setLogLevel("OFF")  # its messages may quote rows
        return session
    except Exception as error:
        raise ConfigError(
            f"Spark cannot be started ({type(error).__name__}). It needs Java 17 or later on the PATH (Debian: apt"
            " install default-jre-headless), and an address that answers."
        ) from None


def _start_java() -> None:
    """Starts the Java process of Spark, if there is none, with nothing on the terminal: it writes its first lines
    before a log level can be set, and what tasks write later may quote rows."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        SparkContext._ensure_initialized(gateway=launch_gateway(popen_kwargs=silent))
