"""`synth` and `fit`: their options, and the fit that both make, of a table or of a graph."""

import abc
import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from understudy.cli.holdout import HeldOut
from understudy.cli.options import (
    check_json,
    read_binning,
    read_guarantee,
    read_synthesizer,
    refuse_book,
    refuse_own_input,
    sidecar_of,
)
from understudy.cli.output import (
    SampleOptions,
    note_if_synthetic,
    note_on_decimals,
    note_on_draft,
    show_book,
    show_spent,
    write_synthetic,
)
from understudy.cli.terminal import Interrupted, echo, say, show_progress
from understudy.errors import CheckpointError, ConditionError, ConfigError, UnderstudyError
from understudy.run.listener import Listener

if TYPE_CHECKING:
    from understudy.notes import Note
    from understudy.privacy.accounting.ledger import Guarantee, PublicFacts
    from understudy.progress import Progress
    from understudy.release import AnyRelease, Release
    from understudy.schema import Schema
    from understudy.tables import Origin, ReadOptions

Made = TypeVar("Made", bound="AnyRelease")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitCommand:
    """The options of `synth` and `fit`, in the order in which --help lists them, and the fit that both make."""

    source: str
    epsilon: float | None = None
    delta: float | None = None
    not_private: bool = False
    schema: Path | None = None
    kind: str | None = None
    protect: str | None = None
    reading: "ReadOptions | None" = None
    method: str = "auto"
    settings: list[str] | None = None
    target: str | None = None
    split: float | None = None
    holdout: str | None = None
    rows: int | None = None
    where: str | None = None
    id_prefix: str | None = None
    escape_formulas: bool = False
    no_sidecar: bool = False
    bins: str = "tree"
    max_bins: int = 32
    max_categories: int = 1000
    seed: int | None = None
    public: str | None = None
    keep_types: bool = False
    engine: str = "local"
    scratch: str | None = None
    book: Path | None = None
    policy: Path | None = None
    resume: bool = False
    force: bool = False
    quiet: bool = False
    json_file: str | None = None

    def __post_init__(self) -> None:
        read_guarantee(self.epsilon, self.delta, self.not_private)  # refused before anything else is checked
        if self.engine != "local" and self.split is not None:
            raise ConfigError(
                "--split cannot hold out rows that stay on a cluster. Split the table there first, by its unit, "
                "and remove --split."
            )


class Fit(abc.ABC, Generic[Made]):
    """A fit into a release folder, and for `synth` a synthetic table `out`: what tables and graphs have in common."""

    held: HeldOut | None = None
    size: str = ""
    """The size of what was written to `out`, for people."""
    example = "fake.csv"
    """The name of a table, for a hint at `sample`."""

    def __init__(self, options: FitCommand, folder: Path, out: str | None):
        self.options, self.folder, self.out = options, folder, out

    @abc.abstractmethod
    def check(self) -> None:
        """Refuses what cannot be done, before anything is read."""

    @abc.abstractmethod
    def fit(self, checkpoint: Path, progress: "Progress") -> Made:
        """The release, and in the checkpoint what it can be made from again."""

    @abc.abstractmethod
    def write(self, release: Made, out: str) -> str:
        """Writes a sample. Returns its size as text."""

    @abc.abstractmethod
    def note(self, release: Made) -> None:
        """Says what the user should know about the finished release."""

    def run(self) -> Made:
        """Fits, and saves the release in its folder, whatever becomes of the table `out`."""
        from understudy.release import RELEASE_FILES, saved_by
        from understudy.run.atomic import require_free_folder
        from understudy.tables.path import TablePath
        from understudy.tables.writing import check_escapable, check_writable

        options, folder = self.options, self.folder
        if self.out is not None:
            refuse_own_input(options.source, self.out)
            check_writable(self.out, force=options.force, table=True, sidecar=not options.no_sidecar)
            if options.escape_formulas:
                check_escapable(TablePath.parse(self.out))
        checkpoint = checkpoint_folder(folder, options.resume)
        finished = options.resume and saved_by(checkpoint, folder)  # killed between its last two acts
        require_free_folder(folder, force=options.force or finished, contents=RELEASE_FILES)
        refuse_book(options.book, options.json_file, self.out, options.holdout)
        check_json(options.json_file, options.force)
        self.check()
        release = self._fit(checkpoint)
        show_spent(release, options.quiet)
        if options.book is not None:
            show_book(options.book, release, options.quiet)
        try:
            if self.out is not None:
                self.size = self.write(release, self.out)
                # The checksum is of a file of its own, and not of a table in a database that others may change.
                release = release if sidecar_of(self.out) is None else release.with_table(self.out)
        finally:
            release.save(folder, force=options.force or finished)
            if self.held is not None:
                self.held.finish(options.quiet)
        self.note(release)
        return release

    def _fit(self, checkpoint: Path) -> Made:
        """Fits with a progress bar; after Ctrl-C it says how to resume."""
        from understudy.run.checkpoint import is_unfinished

        try:
            with show_progress(self.options.quiet, "fitting") as progress:
                return self.fit(checkpoint, progress)
        except (KeyboardInterrupt, UnderstudyError) as error:
            if self.held is not None and not is_unfinished(checkpoint):
                self.held.remove()
            if isinstance(error, UnderstudyError) or not is_unfinished(checkpoint):
                raise
            raise Interrupted(
                "interrupted; nothing was released. To continue, run the same command with --resume. "
                f"{checkpoint}{os.sep} holds the secret of the run: never share it."
            ) from None


class TableFit(Fit["Release"]):
    """The fit of a table."""

    def check(self) -> None:
        from understudy.release import check_size

        if self.options.rows is not None:
            check_size(self.options.rows, "The number of synthetic rows")
        self.held = HeldOut.read(self.options, self.folder, self.out)

    def fit(self, checkpoint: Path, progress: "Progress") -> "Release":
        from understudy.api import fit
        from understudy.schema import Schema

        options = self.options
        schema = None if options.schema is None else Schema.read(options.schema)
        return fit(
            options.source,
            read_synthesizer(options.method, options.settings),
            read_guarantee(options.epsilon, options.delta, options.not_private),
            schema=schema,
            target=options.target,
            binning=read_binning(options.bins, options.max_bins, options.max_categories),
            seed=options.seed,
            public=options.public,
            keep_types=options.keep_types,
            reading=options.reading,
            progress=TablePrinter(options, self.folder, progress, schema),
            checkpoint=checkpoint,
            resume=options.resume,
            engine=options.engine,
            scratch=options.scratch,
            book=options.book,
            policy=options.policy,
            hold_out=None if self.held is None else self.held.take,
        )

    def write(self, release: "Release", out: str) -> str:
        options = self.options
        shared = {field.name: getattr(options, field.name) for field in dataclasses.fields(SampleOptions)}
        try:
            return write_synthetic(release, out, SampleOptions(**shared))
        except ConditionError as error:
            raise ConditionError(
                f"{error} The budget is spent and the release is kept. Sample from it at no cost with 'understudy "
                f"sample {self.folder}'{' and another --where' if options.where else ''}.",
                column=error.column,
            ) from None

    def note(self, release: "Release") -> None:
        note_on_draft(release, self.options.quiet, given=self.options.schema is not None)


class RunPrinter(Listener):
    """Prints what a run tells a command that writes to this release folder."""

    def __init__(self, options: FitCommand, folder: Path, progress: "Progress | None" = None):
        super().__init__(progress)
        self._options, self._folder = options, folder

    def note(self, note: "Note") -> None:
        echo(str(note), quiet=self._options.quiet)

    def before_spending(self, facts: "PublicFacts", guarantee: "Guarantee") -> None:
        """Says what earlier releases of this table in the same place and this run will have spent together."""
        if self._options.seed is not None or not guarantee.is_private or self._options.book is not None:
            return  # a budget book knows the total better
        from understudy.run.composition import describe_total, earlier_releases

        if (total := describe_total(earlier_releases(self._folder, facts.name), facts, guarantee)) is not None:
            say(total, err=True)


class TablePrinter(RunPrinter):
    """Also checks the options that need the columns of the table, before anything is charged."""

    def __init__(self, options: FitCommand, folder: Path, progress: "Progress", declared: "Schema | None"):
        super().__init__(options, folder, progress)
        self._declared = declared

    def opened(self, schema: "Schema", origin: "Origin") -> None:
        from understudy.encoding import check_id_prefix
        from understudy.tables import where_columns

        options = self._options
        note_if_synthetic(options.source, quiet=options.quiet)
        check_id_prefix(options.id_prefix, schema, origin, types_kept=options.keep_types)
        decimal = None if options.reading is None else options.reading.decimal
        note_on_decimals(origin.delimiter, self._declared, decimal, quiet=options.quiet)
        if options.where is not None:
            where_columns(options.where, [column.name for column in schema.modelled])


def checkpoint_folder(out: Path, resume: bool) -> Path:
    """The checkpoint folder of a run; refused, before anything is read, if it cannot be used."""
    from understudy.run.checkpoint import is_unfinished, require_place

    place = Path(f"{out}.checkpoint")
    if resume and not is_unfinished(place) and (out / "release.json").exists():
        raise CheckpointError(f"{out} is complete, and there is no unfinished run beside it: nothing to resume.")
    require_place(place, resume=resume)
    return place
