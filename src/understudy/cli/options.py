"""Options that commands share, and the checks on them that are made before any budget is spent."""

import contextlib
import dataclasses
import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli.holdout import HeldOut, HoldoutFile, Split
from understudy.cli.labels import IdPrefix, NoSidecar, note_if_synthetic
from understudy.cli.output import show_book, show_spent
from understudy.cli.reading import note_on_decimals
from understudy.cli.terminal import Interrupted, echo, show_progress
from understudy.errors import CheckpointError, ConfigError, TableError, UnderstudyError
from understudy.synthesizers.registry import AUTO, SYNTHESIZERS

if TYPE_CHECKING:
    from understudy.notes import Note
    from understudy.privacy.discovery import Binning
    from understudy.privacy.ledger import Guarantee, Statement
    from understudy.release import Release
    from understudy.sources import TableToFit
    from understudy.synthesizers import Synthesizer
    from understudy.tables import ReadOptions

Source = Annotated[
    str,
    typer.Argument(
        help="CSV, TSV, Excel, Parquet, Arrow, JSON lines, Stata, SPSS or SAS file, or DATABASE::TABLE.",
    ),
]
SchemaFile = Annotated[
    Path | None,
    typer.Option(
        "--schema", help="Schema file (TOML). Default: drafted from the table; the rest is estimated privately."
    ),
]
Epsilon = Annotated[
    float | None, typer.Option("--epsilon", help="Privacy budget. Smaller is more private; 1 is common.")
]
Accuracy = Annotated[
    str | None,
    typer.Option(
        "--accuracy",
        help="Instead of --epsilon: take the smallest epsilon at which a typical count has at most this noise, in "
        "percent of the declared rows or in rows, such as '2-way 1%' or '1-way 20 rows'.",
    ),
]
Delta = Annotated[
    float | None,
    typer.Option(
        "--delta", help="The delta of the guarantee. Default: derived from the declared number of rows, else 1e-6."
    ),
]
NotPrivate = Annotated[
    bool, typer.Option("--not-private", help="Instead of --epsilon: a baseline without noise and without a guarantee.")
]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        help="A method, or an expression such as 'boosted(dpgan)'. See 'understudy methods'.",
        autocompletion=lambda incomplete: [name for name in (AUTO, *SYNTHESIZERS) if name.startswith(incomplete)],
    ),
]
Settings = Annotated[list[str] | None, typer.Option("--set", help="A setting of the method: name=value. Repeatable.")]
Target = Annotated[
    str | None, typer.Option("--target", help="The column that matters most, usually the one to predict.")
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        help="For tests and public data: makes the run reproducible, and marks all output 'not private'.",
    ),
]
Public = Annotated[
    str | None,
    typer.Option(
        "--public",
        help="Start training from this public table, which has the same columns. Its rows are not protected; it "
        "must not be SOURCE.",
    ),
]
Kind = Annotated[
    str | None,
    typer.Option(
        "--kind",
        help="table, or graph: the rows of SOURCE are the edges of one graph, and --schema declares its nodes. "
        "Default: as the schema says.",
    ),
]
Protect = Annotated[
    str | None,
    typer.Option("--protect", help="What to protect in a graph: edge (default), or node, which needs max_degree."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue an interrupted run: the same command gives the same result.")
]
KeepTypes = Annotated[
    bool,
    typer.Option(
        "--keep-types",
        help="Keep the storage types of SOURCE instead of those of the declared kinds. The types are then treated as "
        "public, and the certificate says so.",
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        help="Where rows are read and counted: local, spark (all cores of this machine, or as spark-submit says), or "
        "spark://HOST:PORT. With Spark, SOURCE is a folder of Parquet files, and rows stay on the cluster.",
    ),
]
BookFile = Annotated[
    Path | None,
    typer.Option(
        "--book",
        help="The budget book of the data set ('understudy book create'): the cost of the run is reserved there before "
        "SOURCE is opened. Needs --schema.",
    ),
]
PolicyFile = Annotated[
    Path | None,
    typer.Option("--policy", help="With --book: a policy file (TOML) that says which runs are allowed."),
]
ScratchFolder = Annotated[
    str | None,
    typer.Option(
        "--scratch",
        help="Keep the codes of the rows in a new folder inside this one during the run, not in memory. For tables "
        "larger than memory; deleted at the end.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors and privacy warnings only.")]
Terse = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress and no hints.")]
JsonFile = Annotated[str | None, typer.Option("--json", help="Also write JSON to this file; '-' for standard output.")]
CertificateOf = Annotated[
    str | None,
    typer.Option(
        "--release",
        help="A release folder whose certificate is added to the report; with several tables, NAME=FOLDER.",
    ),
]
ReleaseOf = Annotated[
    str | None,
    typer.Option(
        "--release",
        help="A release folder: its schema is used, and the report shows its certificate. With several tables, "
        "NAME=FOLDER. Default: the folder beside the synthetic table.",
    ),
]
Bins = Annotated[str, typer.Option("--bins", help="How numeric columns are binned: tree, equal or uniform.")]
MaxBins = Annotated[int, typer.Option("--max-bins", help="Maximum number of bins of a numeric column.")]
MaxCategories = Annotated[
    int,
    typer.Option(
        "--max-categories", help="Maximum number of categories of a column whose categories are estimated privately."
    ),
]
NumRows = Annotated[
    int | None,
    typer.Option("-n", "--rows", help="Number of synthetic rows. Default: the declared or privately estimated number."),
]
Where = Annotated[str | None, typer.Option("--where", help="Sample only rows that meet this SQL condition.")]


def read_guarantee(epsilon: float | None, delta: float | None, not_private: bool) -> "Guarantee":
    from understudy.privacy.ledger import Guarantee

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


def read_binning(bins: str, max_bins: int, max_categories: int) -> "Binning":
    from understudy.privacy.discovery import Binning

    return Binning(bins=bins, max_bins=max_bins, max_categories=max_categories)


def read_synthesizer(expression: str, settings: list[str] | None) -> "Synthesizer":
    """The synthesizer of an expression, with changed settings."""
    from understudy.synthesizers import read_method, read_setting

    return read_method(expression, dict(read_setting(setting) for setting in settings or []))


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitCommand:
    """The options of `synth` and `fit`, in the order in which --help lists them, and the fit that both make."""

    source: Source
    epsilon: Epsilon = None
    delta: Delta = None
    not_private: NotPrivate = False
    schema: SchemaFile = None
    kind: Kind = None
    protect: Protect = None
    reading: "ReadOptions | None" = None
    method: Method = "auto"
    settings: Settings = None
    target: Target = None
    split: Split = None
    holdout: HoldoutFile = None
    rows: NumRows = None
    where: Where = None
    id_prefix: IdPrefix = None
    no_sidecar: NoSidecar = False
    bins: Bins = "tree"
    max_bins: MaxBins = 32
    max_categories: MaxCategories = 1000
    seed: Seed = None
    public: Public = None
    keep_types: KeepTypes = False
    engine: Engine = "local"
    scratch: ScratchFolder = None
    book: BookFile = None
    policy: PolicyFile = None
    resume: Resume = False
    force: Force = False
    quiet: Quiet = False
    json_file: JsonFile = None

    def __post_init__(self) -> None:
        read_guarantee(self.epsilon, self.delta, self.not_private)  # refused before anything else is checked
        if self.engine != "local" and self.split is not None:
            raise ConfigError(
                "--split cannot hold out rows that stay on a cluster. Split the table there first, by its unit, "
                "and remove --split."
            )

    def fit_into(self, folder: Path, out: str | None = None) -> "Release":
        """Fits, and saves the release in this folder. What can be refused is refused before anything is read.

        `out` is the table that will be written afterwards.
        """
        from understudy.release import RELEASE_FILES, saved_by
        from understudy.run.atomic import require_free_folder

        checkpoint = checkpoint_folder(folder, self.resume)
        finished = self.resume and saved_by(checkpoint, folder)  # killed between its last two acts
        require_free_folder(folder, force=self.force or finished, contents=RELEASE_FILES)
        refuse_book(self.book, self.json_file, out, self.holdout)
        check_json(self.json_file, self.force)
        taken = (self.source, self.schema, self.public, self.json_file, out)
        held = HeldOut.read(self.split, self.holdout, folder, taken=taken, force=self.force, resume=self.resume)
        release = self._fit(folder, checkpoint, held)
        release.save(folder, force=self.force or finished)
        show_spent(release, self.quiet)
        if self.book is not None:
            show_book(self.book, release, self.quiet)
        if held is not None:
            held.finish(self.quiet)
        return release

    def _fit(self, folder: Path, checkpoint: Path, held: HeldOut | None) -> "Release":
        """Fits with a progress bar; after Ctrl-C it says how to resume."""
        from understudy.api import FitOptions, fit_table, is_on_cluster, read_private_table, require_rows
        from understudy.encoding import check_id_prefix
        from understudy.privacy.scratch import open_scratch
        from understudy.run.checkpoint import is_unfinished
        from understudy.schema import Schema
        from understudy.tables import where_columns

        guarantee = read_guarantee(self.epsilon, self.delta, self.not_private)
        binning = read_binning(self.bins, self.max_bins, self.max_categories)
        schema = None if self.schema is None else Schema.read(self.schema)
        synthesizer = read_synthesizer(self.method, self.settings)
        require_rows(synthesizer, is_remote=is_on_cluster(self.source, self.engine))
        tell = functools.partial(_tell, quiet=self.quiet)
        try:
            with (
                show_progress(self.quiet, "fitting") as progress,
                open_scratch(self.scratch) as scratch,
                contextlib.ExitStack() as cleanup,
            ):
                options = FitOptions(
                    synthesizer, guarantee, binning, self.seed, self.public, checkpoint, self.resume, progress, tell
                )
                reservation = cleanup.enter_context(options.reserve(self.book, self.policy, schema, self.target))
                if reservation is not None and schema is not None:  # held-out rows must not raise the planned delta
                    options = dataclasses.replace(options, guarantee=guarantee.with_delta_for(schema.rows))
                data = read_private_table(
                    self.source,
                    schema,
                    target=self.target,
                    keep_types=self.keep_types,
                    reading=self.reading,
                    engine=self.engine,
                    scratch=scratch,
                )
                cleanup.callback(data.table.close)
                note_if_synthetic(self.source, quiet=self.quiet)
                check_id_prefix(self.id_prefix, data.schema, data.origin, types_kept=self.keep_types)
                decimal = None if self.reading is None else self.reading.decimal
                note_on_decimals(data.origin.delimiter, schema, decimal, quiet=self.quiet)
                if self.where is not None:  # checked before any budget is spent
                    where_columns(self.where, [column.name for column in data.schema.modelled])
                data = data if held is None else held.take(data)
                # A resumed run spends once, and a budget book knows the total better.
                if not self.resume and self.seed is None and guarantee.is_private and self.book is None:
                    total = functools.partial(say_total, folder, data, guarantee.with_delta_for(data.schema.rows))
                    options = dataclasses.replace(options, on_start=total)
                return fit_table(data, options, reservation)
        except KeyboardInterrupt:
            if not is_unfinished(checkpoint):
                if held is not None:
                    held.remove()
                raise
            raise Interrupted(
                "interrupted; nothing was released. To continue, run the same command with --resume. "
                f"{checkpoint}{os.sep} holds the secret of the run: never share it."
            ) from None
        except UnderstudyError:
            if held is not None and not is_unfinished(checkpoint):
                held.remove()
            raise


def _tell(note: "Note", *, quiet: bool) -> None:
    echo(str(note), quiet=quiet)


def say_total(folder: Path, data: "TableToFit", guarantee: "Guarantee") -> None:
    """Says what earlier releases of this table in the same place and this run will have spent together."""
    from understudy.composition import NextRelease, describe_total, earlier_releases

    name = data.schema.name or data.file_name
    assert guarantee.delta is not None
    now = NextRelease(name, data.schema.unit, guarantee.epsilon, guarantee.delta)
    total = describe_total(earlier_releases(folder, name), now)
    if total is not None:
        typer.echo(total, err=True)


def takes_fit_options(*, without: Sequence[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """For a command of a `FitCommand` and an output: typer sees the fields, except those `without`, as its options."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        _, out = inspect.signature(command).parameters.values()
        fields = [field for field in dataclasses.fields(FitCommand) if field.name not in without]
        source, *others = [
            inspect.Parameter(field.name, out.kind, default=default, annotation=field.type)
            for field in fields
            for default in [out.empty if field.default is dataclasses.MISSING else field.default]
        ]

        @functools.wraps(command)
        def run(*, out: object, **options: object) -> None:
            command(FitCommand(**options), out)  # type: ignore[arg-type]

        run.__signature__ = inspect.Signature([source, out, *others])  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in (source, out, *others)}
        return run

    return decorate


def checkpoint_folder(out: Path, resume: bool) -> Path:
    """The checkpoint folder of a run; refused, before anything is read, if it cannot be used."""
    from understudy.run.checkpoint import is_unfinished, require_place

    place = Path(f"{out}.checkpoint")
    if resume and not is_unfinished(place) and (out / "release.json").exists():
        raise CheckpointError(f"{out} is complete, and there is no unfinished run beside it: nothing to resume.")
    require_place(place, resume=resume)
    return place


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
    from understudy.tables.location import TABLE_ENDINGS

    path, _, table = out.partition("::")
    if "://" in path:
        raise TableError("The synthetic table must be a file, such as fake.parquet.")
    place = Path(path)
    if not place.name:
        raise TableError(f"Name the synthetic table to write, such as fake.csv; found {out!r}.")
    stem = place.name
    while Path(stem).suffix.lower() in TABLE_ENDINGS:
        stem = Path(stem).stem
    return place.with_name(f"{stem}-{table}.release" if table else f"{stem}.release")


def read_certified(folder: Path) -> "tuple[Statement, dict[str, str]]":
    """The statement of a release and its checksums, or that of a failed run."""
    from understudy.failed_run import read_record
    from understudy.release import Release

    if (failed := read_record(folder)) is not None:
        return failed, {}
    if (folder / "release.json").exists():
        from understudy.graphs.release import GraphRelease, is_graph_release

        if is_graph_release(folder):
            graph = GraphRelease.load(folder)
            return graph.statement, graph.checksums
    release = Release.load(folder)
    return release.statement, release.checksums


def sidecar_of(out: str) -> str | None:
    """fake.csv -> fake.csv.certificate.json; None for a table of a database, which is no file of its own."""
    return None if "::" in out else f"{out}.certificate.json"


def read_statement(release: str | None, names: Sequence[str]) -> "tuple[Statement | None, str | None]":
    """The statement in --release, given as FOLDER or NAME=FOLDER, and the name of its table."""
    from understudy.errors import did_you_mean
    from understudy.release import Release

    if release is None:
        return None, None
    name, equals, folder = release.partition("=")
    if not equals or os.path.isdir(release):
        if len(names) > 1:
            raise ConfigError(
                f"There are {len(names)} synthetic tables. Say which one the release belongs to: --release NAME=FOLDER."
            )
        return Release.load(Path(release)).statement, names[0]
    if name not in names:
        raise ConfigError(
            f"--release names {name!r}, but the synthetic tables are {', '.join(names)}.{did_you_mean(name, names)}"
        )
    return Release.load(Path(folder)).statement, name


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
    from understudy.tables import check_writable

    if json_file not in (None, "-"):
        check_writable(json_file, force=force)
