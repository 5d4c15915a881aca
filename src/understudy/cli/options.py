"""Options that commands share, and the checks on them that are made before any budget is spent."""

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from typer.models import ArgumentInfo, OptionInfo

from understudy.errors import ConfigError, TableError, did_you_mean
from understudy.synthesizers.registry import AUTO, SYNTHESIZERS

if TYPE_CHECKING:
    from understudy.privacy.accounting.ledger import Guarantee, Statement
    from understudy.privacy.mechanisms.discovery import Binning
    from understudy.synthesizers import Synthesizer
    from understudy.tables import ReadOptions

Command: TypeAlias = Callable[..., None]
Declared: TypeAlias = str | OptionInfo | ArgumentInfo

OPTIONS: dict[str, Declared] = {
    "source": typer.Argument(
        help="CSV, TSV, Excel, Parquet, Arrow, JSON lines, Stata, SPSS or SAS file, or DATABASE::TABLE."
    ),
    "folder": typer.Argument(help="A release folder."),
    "schema": "Schema file (TOML). Default: drafted from the table; the rest is estimated privately.",
    "epsilon": "Privacy budget. Smaller is more private; 1 is common.",
    "accuracy": "Instead of --epsilon: take the smallest epsilon at which a typical count has at most this noise, in "
    "percent of the declared rows or in rows, such as '2-way 1%' or '1-way 20 rows'.",
    "delta": "The delta of the guarantee. Default: derived from the declared number of rows, else 1e-6.",
    "not_private": "Instead of --epsilon: a baseline without noise and without a guarantee.",
    "method": typer.Option(
        "--method",
        help="A method, or an expression such as 'boosted(dpgan)'. See 'understudy methods'.",
        autocompletion=lambda incomplete: [name for name in (AUTO, *SYNTHESIZERS) if name.startswith(incomplete)],
    ),
    "settings": "A setting of the method: name=value. Repeatable.",
    "target": "The column that matters most, usually the one to predict.",
    "seed": "For tests and public data: makes the run reproducible, and marks all output 'not private'.",
    "public": "Start training from this public table, which has the same columns. Its rows are not protected; it must "
    "not be SOURCE.",
    "kind": "table, or graph: the rows of SOURCE are the edges of one graph, and --schema declares its nodes. "
    "Default: as the schema says.",
    "protect": "What to protect in a graph: edge (default), or node, which needs max_degree.",
    "force": "Replace the output if it exists.",
    "resume": "Continue an interrupted run: the same command gives the same result.",
    "keep_types": "Keep the storage types of SOURCE instead of those of the declared kinds. The types are then "
    "treated as public, and the certificate says so.",
    "engine": "Where rows are read and counted: local, spark (all cores of this machine, or as spark-submit says), or "
    "spark://HOST:PORT. With Spark, SOURCE is a folder of Parquet files, and rows stay on the cluster.",
    "book": "The budget book of the data set ('understudy book create'): the cost of the run is reserved there before "
    "SOURCE is opened. Needs --schema.",
    "policy": "With --book: a policy file (TOML) that says which runs are allowed.",
    "scratch": "Keep the codes of the rows in a new folder inside this one during the run, not in memory. For tables "
    "larger than memory; deleted at the end.",
    "quiet": "Print errors and privacy warnings only.",
    "json_file": "Also write JSON to this file; '-' for standard output.",
    "bins": "How numeric columns are binned: tree, equal or uniform.",
    "max_bins": "Maximum number of bins of a numeric column.",
    "max_categories": "Maximum number of categories of a column whose categories are estimated privately.",
    "rows": "Number of synthetic rows. Default: the declared or privately estimated number.",
    "where": "Sample only rows that meet this SQL condition.",
    "id_prefix": "Write ids as text with this prefix, such as SYN-, so that none looks real.",
    "escape_formulas": "In text files, put ' before values that begin with = + - or @, which spreadsheets treat as "
    "formulas.",
    "no_sidecar": "Do not write OUT.datapackage.json, which describes the table and says it is synthetic.",
    "split": "Hold out about this fraction of SOURCE before fitting, at random by privacy unit, for 'evaluate "
    "--holdout'.",
    "holdout": "With --split: the file for the held-out rows. Default: OUT.holdout.csv. They are real: never share "
    "them.",
    "header": typer.Option(
        "--header/--no-header",
        help="Whether the first line holds column names. Default: with a schema it must hold the declared names; "
        "without one, a first line that looks like values is refused.",
        show_default=False,
    ),
    "encoding": "Encoding of a text file, such as cp1252, latin-1 or utf-16.",
    "separator": "Separator of a text file: ',', ';', '|' or 'tab'. Default: detected.",
    "decimal": "Decimal mark of a text file, '.' or ','. Thousands separators are then read too.",
    "sheet": "Sheet of an Excel workbook. Default: the only one.",
}
"""What --help says of the options that commands share, by parameter."""

_NAMES = {
    "out": ("-o", "--out"),
    "rows": ("-n", "--rows"),
    "json_file": ("--json",),
    "settings": ("--set",),
    "quiet": ("--quiet", "-q"),
    "metrics": ("--metric",),
    "constraints": ("--constraint",),
}
"""How options are written, other than their parameters."""

TERSE = "Print no progress and no hints."
EVALUATED_SCHEMA = (
    "Schema file (TOML). Default: that of the release beside the synthetic table (fake.release for fake.csv), else "
    "inferred from the real table."
)


def with_options(*, without: Sequence[str] = (), **declared: Declared) -> Callable[[Command], Command]:
    """Declares the parameters of a command to typer: each by its help, or as an option or argument of typer.

    Those not named here are in `OPTIONS`. A parameter that stands for several options (`_PARTS`, and dataclasses) is
    replaced by them, except for those `without`.
    """

    def decorate(command: Command) -> Command:
        parameters, call = _expand(command, without)
        parameters = [_declare(each, declared.get(each.name) or OPTIONS[each.name]) for each in parameters]
        parameters.sort(key=lambda parameter: parameter.default is not parameter.empty)  # required ones come first

        @functools.wraps(command)
        def run(**values: object) -> None:
            call(values)

        # Functions may have one, which mypy does not know.
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def _declare(parameter: inspect.Parameter, declared: Declared) -> inspect.Parameter:
    if isinstance(declared, str):
        names = _NAMES.get(parameter.name, (f"--{parameter.name.replace('_', '-')}",))
        declared = typer.Option(*names, help=declared)
    annotation: object = Annotated[parameter.annotation, declared]
    return parameter.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation)


def _expand(
    make: Callable[..., object], without: Sequence[str] = ()
) -> tuple[list[inspect.Parameter], Callable[[Mapping[str, object]], object]]:
    """The parameters of a function, with those of its parts in their place, and a call of it by their values."""
    declared = [each for each in inspect.signature(make).parameters.values() if each.name not in without]
    parameters: list[inspect.Parameter] = []
    parts: dict[str, Callable[[Mapping[str, object]], object]] = {}
    for parameter in declared:
        is_group = dataclasses.is_dataclass(parameter.annotation)
        part = parameter.annotation if is_group else _PARTS.get(parameter.name)
        if part is None:
            parameters.append(parameter)
        else:
            inner, parts[parameter.name] = _expand(part, without)
            parameters += inner

    def call(values: Mapping[str, object]) -> object:
        return make(
            **{each.name: parts[each.name](values) if each.name in parts else values[each.name] for each in declared}
        )

    return parameters, call


def read_reading(
    header: bool | None = None,
    encoding: str = "utf-8",
    separator: str | None = None,
    decimal: str | None = None,
    sheet: str | None = None,
) -> "ReadOptions":
    from understudy.tables import ReadOptions

    return ReadOptions(header=header, encoding=encoding, separator=separator, decimal=decimal, sheet=sheet)


def read_binning(bins: str = "tree", max_bins: int = 32, max_categories: int = 1000) -> "Binning":
    from understudy.privacy.mechanisms.discovery import Binning

    return Binning(bins=bins, max_bins=max_bins, max_categories=max_categories)


_PARTS: dict[str, Callable[..., object]] = {"reading": read_reading, "binning": read_binning}
"""Parameters that stand for several options, and what makes their values."""


def read_guarantee(epsilon: float | None, delta: float | None, not_private: bool) -> "Guarantee":
    from understudy.privacy.accounting.ledger import Guarantee

    if not_private:
        if epsilon is not None:
            raise ConfigError("--epsilon and --not-private cannot be combined. Remove one of them.")
        if delta is not None:
            raise ConfigError("--delta has no meaning with --not-private. Remove one of them.")
        return Guarantee.not_private()
    if epsilon is None:
        raise ConfigError(
            "Set the privacy budget: --epsilon 1 (smaller is more private), or --not-private for a baseline."
        )
    return Guarantee(epsilon, delta)


def read_synthesizer(expression: str, settings: list[str] | None) -> "Synthesizer":
    """The synthesizer of an expression, with changed settings."""
    from understudy.synthesizers import read_method, read_setting

    return read_method(expression, dict(read_setting(setting) for setting in settings or []))


def refuse_own_input(source: str, out: str) -> None:
    """Refuses to replace the table that is read, even with --force."""
    read, written = (Path(os.path.realpath(place.partition("::")[0])) for place in (source, out))
    if read == written and source.partition("::")[2] == out.partition("::")[2]:
        raise TableError(f"{out} is the table being read. Choose another name for the synthetic table.")


def refuse_book(book: Path | None, *outputs: str | Path | None) -> None:
    """Refuses to replace a budget book by an output, even with --force."""
    for out in outputs:
        file = str(out).partition("::")[0]  # a book is a database, in which a table could be replaced
        if book is not None and out not in (None, "-") and os.path.realpath(file) == os.path.realpath(book):
            raise ConfigError(f"{out} is the budget book. Choose another name for the output.")


def release_folder(out: str) -> Path:
    """fake.csv -> fake.release, fake_0.5.csv.gz -> fake_0.5.release, and so for DATABASE::TABLE."""
    from understudy.tables.path import table_stem

    path, _, table = out.partition("::")
    if "://" in path:
        raise TableError("The synthetic table must be a file, such as fake.parquet.")
    place = Path(path)
    if not place.name:
        raise TableError(f"Name the synthetic table to write, such as fake.csv; found {out!r}.")
    stem = table_stem(place.name)
    return place.with_name(f"{stem}-{table}.release" if table else f"{stem}.release")


def read_certified(folder: Path) -> "tuple[Statement, dict[str, str]]":
    """The statement of a release and its checksums, or that of a failed run."""
    from understudy.graphs.release import load_release
    from understudy.run.failure import read_record

    if (failed := read_record(folder)) is not None:
        return failed, {}
    release = load_release(folder)
    return release.statement, release.checksums


def sidecar_of(out: str) -> str | None:
    """fake.csv -> fake.csv.certificate.json; None for a table of a database, which is no file of its own."""
    return None if "::" in out else f"{out}.certificate.json"


def named_release(given: str, names: Sequence[str], what: str = "tables") -> tuple[str, str]:
    """The table and the folder in --release, given as FOLDER or NAME=FOLDER."""
    name, equals, folder = given.partition("=")
    if not equals or os.path.isdir(given):
        if len(names) > 1:
            raise ConfigError(
                f"There are {len(names)} synthetic {what}. Say which one the release belongs to: --release NAME=FOLDER."
            )
        return names[0], given
    if name not in names:
        raise ConfigError(
            f"--release names {name!r}, but the synthetic {what} are {', '.join(names)}.{did_you_mean(name, names)}"
        )
    return name, folder


def read_statement(release: str | None, names: Sequence[str]) -> "tuple[Statement | None, str | None]":
    """The statement in --release, and the name of its table."""
    from understudy.release import Release

    if release is None:
        return None, None
    name, folder = named_release(release, names)
    return Release.load(folder).statement, name


def check_outputs(
    outputs: Mapping[str, Path | str | None], inputs: Sequence[Path | str | None], *, force: bool
) -> None:
    """Checks the output files before the long work: extension, no overwriting, not inside a release."""
    from understudy.evaluation.scorecard import refuse_release
    from understudy.tables import check_writable

    endings = {"--json": (".json",)}
    taken = {os.path.realpath(str(place).partition("::")[0]): "is read" for place in inputs if place is not None}
    for option, out in outputs.items():
        if out is None:
            continue
        ends = endings.get(option, (".html", ".htm"))
        check_ending(option, out, ends)
        refuse_release(out)
        place = os.path.realpath(out)
        if place in taken:
            raise ConfigError(f"{option} {out}: that file {taken[place]} as well. Choose another name.")
        taken[place] = "is written"
        check_writable(out, force=force)


def check_ending(option: str, out: Path | str, ends: Sequence[str]) -> None:
    """Refuses other file names, such as that of a table."""
    if Path(out).suffix.lower() not in ends:
        raise ConfigError(f"{option} {out}: expected a file name ending in {' or '.join(ends)}.")


def named_tables(sources: list[str]) -> dict[str, str]:
    """Synthetic tables by name: NAME=FILE, or the file name without its extension."""
    from understudy.evaluation.inputs import name_of

    tables: dict[str, str] = {}
    for source in sources:
        name, equals, path = source.partition("=")
        if not equals or os.path.exists(source):
            name, path = name_of(source, "synthetic"), source
        if name in tables:
            raise ConfigError(f"Two synthetic tables are named {name!r}. Give them different names: NAME=FILE.")
        tables[name] = path
    return tables


def check_json(json_file: str | None, force: bool) -> None:
    """Checks the JSON file before any budget is spent."""
    if json_file not in (None, "-"):
        from understudy.tables import check_writable

        check_writable(json_file, force=force)
