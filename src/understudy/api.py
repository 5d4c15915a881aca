"""The front door: `plan` lists the queries of a run without reading data, and `fit` makes a `Release` of a table.

`fit` reads the table, plans every query from public facts, opens one ledger for the whole run, encodes the table, fits
the method, and states what was spent.
"""

import contextlib
import dataclasses
import functools
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager

from jaxtyping import PRNGKeyArray

from understudy import certificate
from understudy.book.book import BudgetBook
from understudy.book.policy import Policy
from understudy.book.reservation import Reservation, open_reservation
from understudy.encoding import assumed_domain, rule_notes, unit_notes
from understudy.errors import ConfigError, UnderstudyWarning
from understudy.models import Model
from understudy.models.rejection import DRAWS_PER_ROW, MIN_DRAWS
from understudy.notes import Level, Note, warnings_of
from understudy.pipeline import (
    EncodedTable,
    PlannedRun,
    encode_table,
    plan_method,
    plan_run,
    require_rows,
    synthesizer_of,
)
from understudy.privacy.digest import table_digest
from understudy.privacy.discovery import Binning
from understudy.privacy.ledger import Guarantee, Plan
from understudy.privacy.marginal_noise import ExpectedNoise
from understudy.privacy.noise import noise_source
from understudy.privacy.scratch import open_scratch
from understudy.privacy.table import PublicTable
from understudy.progress import Progress, ShowProgress, open_progress
from understudy.release import Release, check_seed, check_size
from understudy.run.checkpoint import Checkpoint, require_place
from understudy.run.environment import environment_facts
from understudy.schema import Schema, SchemaSource, as_schema
from understudy.sources import (
    PrivateSource,
    PublicSource,
    TableToFit,
    is_on_cluster,
    read_private_table,
    read_public_table,
)
from understudy.synthesizers import AUTO, Synthesizer, express, too_large_for
from understudy.synthesizers.protocol import expected_noise_of
from understudy.synthesizers.run import Run
from understudy.table_size import Requirements
from understudy.tables import ReadOptions

SMALL_RATE = 0.05
"""If a smaller fraction of the model's rows keeps the rules, there is a warning."""


def plan(
    schema: SchemaSource,
    method: Synthesizer | str = AUTO,
    guarantee: Guarantee | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rows: int | None = None,
    binning: Binning | None = None,
) -> Plan:
    """Every query that `fit` would make, with its privacy cost. Reads no data.

    `rows` is an assumed number of rows, used in place of a declared one and, if none is declared, for notes.

    `schema` is a `Schema`, a dict of its sections or the path of its file. Give `epsilon` (and `delta`), or
    `guarantee`; the default is epsilon 1. `expected` of the plan is the noise of the marginals to be measured, for
    methods that can tell in advance; `guarantee_for` finds the guarantee for a given noise.

    >>> schema = {"table": {"rows": 1000}, "columns": {"member": {"kind": "boolean"}, "retired": {"kind": "boolean"}}}
    >>> [query.what for query in plan(schema, "independent", epsilon=1)]
    ['1-way marginals of 2 columns']
    """
    made = make_plan(as_schema(schema), method, read_guarantee(guarantee, epsilon, delta), rows=rows, binning=binning)
    _warn(note.text for note in made.notes if note.level is Level.WARNING)
    return made


def make_plan(
    schema: Schema,
    method: Synthesizer | str,
    guarantee: Guarantee | None,
    *,
    rows: int | None = None,
    binning: Binning | None = None,
) -> Plan:
    """The plan, without raising its warnings: they are among its notes."""
    replaced = assume_rows(schema, rows)
    guarantee = (guarantee or Guarantee(1.0)).with_delta_for(replaced.rows)
    synthesizer = synthesizer_of(method)
    run = plan_run(replaced, synthesizer, guarantee, binning or Binning(), num_rows=rows)
    notes = warnings_of(guarantee.warnings) + unit_notes(schema) + _rule_notes(schema)
    notes += run.discovery.notes + run.training.notes
    if replaced != schema:
        notes += (Note(f"Planned for {rows:,} rows instead of the declared {schema.rows:,}."),)
    if not guarantee.is_private:
        return Plan(run.queries, notes)
    expected = _expected_noise(synthesizer, run, num_rows=rows)
    few = Requirements.of(run.discovery, expected).note(rows or schema.rows, epsilon=guarantee.epsilon)
    return Plan(run.queries, notes if few is None else (*notes, few), expected=expected)


def assume_rows(schema: Schema, rows: int | None) -> Schema:
    """The schema with an assumed number of rows in place of the declared one, if it declares one."""
    if rows is None:
        return schema
    check_size(rows, "The assumed number of rows")
    return schema if schema.rows is None else dataclasses.replace(schema, rows=int(rows))


def _expected_noise(
    synthesizer: Synthesizer, run: PlannedRun, *, num_rows: int | None = None
) -> tuple[ExpectedNoise, ...]:
    domain = assumed_domain(run.schema, run.binning, num_rows=num_rows)
    return expected_noise_of(synthesizer, domain.largest, run.training, run.schema.max_rows_per_unit)


def fit(
    table: PrivateSource,
    method: Synthesizer | str = AUTO,
    guarantee: Guarantee | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    schema: SchemaSource | None = None,
    target: str | None = None,
    binning: Binning | None = None,
    seed: int | None = None,
    public: "PublicSource | None" = None,
    keep_types: bool = False,
    reading: ReadOptions | None = None,
    progress: ShowProgress = None,
    checkpoint: "str | os.PathLike[str] | None" = None,
    resume: bool = False,
    engine: str = "local",
    scratch: "str | os.PathLike[str] | None" = None,
    book: "BudgetBook | str | os.PathLike[str] | None" = None,
    policy: "Policy | str | os.PathLike[str] | None" = None,
) -> Release:
    """A release of this table under this guarantee.

    `table` is a pandas, polars, Arrow or Spark frame, or the path of a file; `method` a synthesizer or its expression.
    Give `epsilon`, and `delta` to set it as well, or the same as `guarantee=Guarantee(epsilon, delta)`.

    `schema` is a `Schema`, a dict of its sections or the path of its file. Without one the kinds are drafted from the
    table's types and everything else is estimated privately.

    `public` is a public table of the same columns, or a function that returns one, such as a simulator, for methods
    that can start from it. Its rows are not protected. It must not be the same source as `table`; rows are never
    compared.

    `progress` is True for a progress bar, or a function of the fraction done and a text. What a user should know is
    raised as `UnderstudyWarning`, and is among the `notes` of the release.

    With a declared schema the synthetic columns have the types of the declared kinds. With `keep_types` they have the
    types of the columns of `table`, which are then treated as public: the certificate says so. `reading` states
    what a text file or workbook does not: its encoding, its decimal mark, whether it has a header, the sheet.

    With `engine="spark"` (or `"spark://host:port"`) a Spark cluster reads a folder of Parquet files and counts; a Spark
    DataFrame is always counted there. Rows then stay on the cluster, so methods that train on rows are refused.

    `checkpoint` names a folder in which the run keeps the secret of its noise and the state of its training: if it is
    killed, the same call with `resume=True` continues to the same release. Saving the release deletes the folder;
    anyone who reads it before can subtract the noise.

    `scratch` names a folder on a local disk in which the codes of the rows are kept during the run instead of in
    memory; they are deleted at the end. Without `checkpoint`, `scratch` and `book` nothing is written.

    `book` is the `BudgetBook` of the data set, or its path: the cost of the run is reserved there before the table is
    opened, and a run that does not fit is refused. It needs a declared schema. `policy`, a `Policy` or the path of its
    file, refuses runs that the institution does not allow.

    Formal guarantee: (epsilon, delta)-differential privacy of the returned release under add-or-remove of one privacy
    unit, as its `statement` says, provided that no seed was given. Every query is charged on one ledger before it
    is made. A run that fails after its first charge raises `SpentError`, whose `statement` has the whole planned cost;
    any other error spends nothing, unless it was interrupted or could not write its checkpoint. Not covered: what the
    schema declares public, timing and memory.

    >>> import pyarrow as pa
    >>> table = pa.table({"member": ["yes", "no"] * 50})
    >>> schema = {"columns": {"member": {"kind": "categorical", "categories": ["no", "yes"]}}}
    >>> release = fit(table, "independent", epsilon=1, schema=schema)
    >>> release.sample(3).column_names
    ['member']
    """
    wanted = read_guarantee(guarantee, epsilon, delta)
    with open_progress(progress, "fitting") as report, open_scratch(scratch) as folder:
        options = FitOptions(method, wanted, binning or Binning(), seed, public, checkpoint, resume, report, _tell)
        declared = None if schema is None else as_schema(schema)
        require_rows(synthesizer_of(method), is_remote=is_on_cluster(table, engine))
        with options.reserve(book, policy, declared, target) as reservation:
            data = read_private_table(
                table, declared, target=target, keep_types=keep_types, reading=reading, engine=engine, scratch=folder
            )
            with contextlib.closing(data.table):
                release = fit_table(data, options, reservation)
    _warn(_run_warnings(release))
    return release


def read_guarantee(guarantee: Guarantee | None, epsilon: float | None, delta: float | None) -> Guarantee | None:
    """The guarantee, given as one or by its figures."""
    if not isinstance(guarantee, Guarantee | None):
        raise ConfigError(
            f"guarantee must be a us.Guarantee, found {type(guarantee).__name__}. Write epsilon=1, or "
            "us.Guarantee(epsilon=1)."
        )
    if guarantee is not None:
        if epsilon is not None or delta is not None:
            raise ConfigError("Give the guarantee once: either guarantee, or epsilon and delta. Remove one of them.")
        return guarantee
    if epsilon is not None:
        return Guarantee(epsilon, delta)
    if delta is not None:
        raise ConfigError("delta alone is not a guarantee. Give epsilon too: epsilon=1.")
    return None


def _run_warnings(release: Release) -> Iterator[str]:
    """What the caller of `fit` should know: the warnings among its notes, and what the arguments imply."""
    if release.statement.seeded:
        yield "The noise was seeded, so this release is not private. Use a seed for tests and public data only."
    if release.schema.drafted:
        yield (
            "The schema was drafted from the table, and each row counts as one person. Write a schema if people can "
            "have several rows, or to declare ids and free text."
        )
    yield from (note.text for note in release.notes if note.level is Level.WARNING)


def _tell(note: Note) -> None:
    """Raises a warning while the run has charged nothing yet; it points at the line that called `fit`."""
    if note.level is Level.WARNING:
        warnings.warn(note.text, UnderstudyWarning, stacklevel=4)  # above: fit_table, fit, and that line


def _warn(texts: Iterable[str]) -> None:
    """Raises warnings that point at the line that called `fit` or `plan`."""
    for text in texts:
        warnings.warn(text[:1].upper() + text[1:], UnderstudyWarning, stacklevel=3)


@dataclasses.dataclass(frozen=True)
class FitOptions:
    """How to fit: all arguments of `fit` except those about the table. Checked before anything is read."""

    method: Synthesizer | str
    guarantee: Guarantee | None
    binning: Binning
    seed: int | None
    public: "PublicSource | None"
    checkpoint: "str | os.PathLike[str] | None"
    resume: bool
    progress: Progress | None
    tell: Callable[[Note], None] | None = None
    """Receives what a person should know before anything is charged, from public facts alone."""
    on_start: Callable[[], None] | None = None
    """Called before the first query, once nothing can refuse the run any more."""

    def __post_init__(self) -> None:
        if not isinstance(self.guarantee, Guarantee):
            raise ConfigError(
                "Set the privacy budget: epsilon=1 (smaller is more private), or guarantee=us.Guarantee.not_private() "
                "for a baseline."
            )
        if self.checkpoint is not None:
            require_place(self.checkpoint, resume=self.resume)
        elif self.resume:
            raise ConfigError("resume=True needs the folder of the run to resume: give checkpoint too.")
        check_seed(self.seed)

    def reserve(
        self,
        book: "BudgetBook | str | os.PathLike[str] | None",
        policy: "Policy | str | os.PathLike[str] | None",
        schema: Schema | None,
        target: str | None,
    ) -> AbstractContextManager[Reservation | None]:
        """Reserves the cost of the run in its budget book, if it has one: before the table is opened."""
        assert self.guarantee is not None
        return open_reservation(
            book,
            policy,
            schema,
            synthesizer_of(self.method),
            self.guarantee,
            self.binning,
            target=target,
            seed=self.seed,
            checkpoint=self.checkpoint,
            resume=self.resume,
        )


def fit_table(data: TableToFit, options: FitOptions, reservation: Reservation | None = None) -> Release:
    """The run from a table that was read to its release."""
    assert options.guarantee is not None
    guarantee, binning = options.guarantee.with_delta_for(data.schema.rows), options.binning
    synthesizer = synthesizer_of(options.method)
    require_rows(synthesizer, is_remote=data.table.is_remote)
    if options.checkpoint is not None:
        _require_resumable(synthesizer)
    run = plan_run(data.schema, synthesizer, guarantee, binning)
    if reservation is not None:
        reservation.cover(run.queries, guarantee)  # rows that were held out change the declared number of rows
    notes = tuple(note for note in run.training.notes if note.level is Level.WARNING)
    public = read_public_table(options.public, data.source, synthesizer, data.schema)
    if options.tell is not None and guarantee.is_private:
        requirements = Requirements.of(run.discovery, _expected_noise(synthesizer, run))
        if (few := requirements.note(data.schema.rows, epsilon=guarantee.epsilon)) is not None:
            options.tell(few)
    if options.progress is not None:
        options.progress(0.0, "encoding the table")

    with (
        contextlib.closing(data.table),
        _open_checkpoint(data, options, run, express(synthesizer), public, reservation) as checkpoint,
    ):
        if checkpoint is not None and checkpoint.is_finished:  # not computed again: the arithmetic could differ
            return _settle(dataclasses.replace(Release.load(checkpoint.folder), checkpoint=checkpoint), reservation)
        if checkpoint is not None and reservation is not None:
            reservation.note_in(checkpoint)
        if options.on_start is not None:
            options.on_start()
        noise = noise_source(options.seed, None if checkpoint is None else checkpoint.secret)
        with encode_table(
            run,
            data.table,
            noise,
            too_large=functools.partial(too_large_for, synthesizer),
            checkpoint=checkpoint,
            method=express(synthesizer),
            facts=certificate.public_facts(
                data.schema,
                file_name=data.file_name,
                types_kept=data.keep_types,
                public_table=None if public is None else public.table.num_rows,
                kept_in=data.table.kept_in,
                book=None if reservation is None else reservation.entry,
            ),
            book=reservation,
        ) as encoded:
            encoded.rows.totals.expect_spread(data.rows_variance)
            model = _fit_model(synthesizer, encoded, public, key=noise.key(), progress=options.progress)
            statement = encoded.statement()
            estimates = certificate.estimation_notes(run.discovery, encoded.codec)
            declared = (*unit_notes(data.schema), *_rule_notes(data.schema))
            notes = (*notes, *warnings_of(statement.warnings), *declared, *estimates)
            release = Release(model, encoded.codec, statement, data.origin, checkpoint, notes)
            if data.schema.rules:
                release = dataclasses.replace(release, notes=(*notes, _acceptance_note(release.acceptance())))
            if checkpoint is not None:
                checkpoint.keep(release.to_files())
        return _settle(release, reservation)


def _settle(release: Release, reservation: Reservation | None) -> Release:
    """The release, once the budget book has its cost; a book that cannot be written must not lose it."""
    failure = None if reservation is None else reservation.settle(release.statement)
    if failure is None:
        return release
    return dataclasses.replace(release, notes=(*release.notes, Note(failure, Level.WARNING)))


def _rule_notes(schema: Schema) -> tuple[Note, ...]:
    return rule_notes(schema, draws_per_row=DRAWS_PER_ROW, least_draws=MIN_DRAWS)


def _acceptance_note(rate: float) -> Note:
    """How often the finished model's rows keep the rules by themselves."""
    if rate == 1:
        return Note("All rows of the model keep the rules.")
    text = f"{rate:.1%} of the model's rows keep the rules and the declared bounds; the others are drawn again."
    if rate >= SMALL_RATE:
        return Note(text)
    return Note(f"only {text} Sampling will be slow: declare bounds and categories, or loosen a rule.", Level.WARNING)


def _fit_model(
    synthesizer: Synthesizer,
    encoded: EncodedTable,
    public: PublicTable | None,
    *,
    key: PRNGKeyArray,
    progress: Progress | None,
) -> Model:
    """Plans the method again, on the estimated domain and with what is left of the budget, and fits it."""
    rows, codec, ledger = encoded.rows, encoded.codec, encoded.ledger
    plan = plan_method(synthesizer, rows.domain, ledger.remaining)
    ledger.reserve(plan.queries)  # before any of them is charged: the whole plan, or none of it
    public_rows = None if public is None else public.encode(codec.encode, codec.positions)
    return synthesizer.fit(Run(rows, plan, ledger, key=key, public=public_rows, progress=progress))


def _require_resumable(synthesizer: Synthesizer) -> None:
    """Refuses what a checkpoint cannot identify: another task with the same noise would give an exact difference."""
    from understudy.synthesizers.tasks import find_user_task

    if (task := find_user_task(synthesizer)) is not None:
        raise ConfigError(
            f"A run with a task of your own ({task}) cannot be resumed, because nothing shows whether the task is "
            "still the same. Run it without a checkpoint."
        )


def _open_checkpoint(
    data: TableToFit,
    options: FitOptions,
    run: PlannedRun,
    method: str,
    public: PublicTable | None,
    reservation: Reservation | None,
) -> AbstractContextManager[Checkpoint | None]:
    """The checkpoint of the run, if one is asked for. A resumed run must share all facts that its result depends on."""
    if options.checkpoint is None:
        return contextlib.nullcontext()
    tables = {"table": functools.partial(table_digest, data.table)}
    if public is not None:
        tables["public table"] = functools.partial(table_digest, public)
    facts = {
        "schema": json.dumps(data.schema.to_dict(), sort_keys=True, default=str),
        "method": method,
        "epsilon": repr(run.guarantee.epsilon),
        "delta": repr(run.guarantee.delta),
        "binning": repr(run.binning),
        "seed": repr(options.seed),
        "form of the table": json.dumps(data.origin.to_dict(), sort_keys=True),
        "keep_types": repr(data.keep_types),
        **environment_facts(),
        # With the entry: a note about another reservation does not make this run that run.
        **({} if reservation is None else {"budget book": json.dumps(dataclasses.asdict(reservation.entry))}),
    }
    return Checkpoint.open(options.checkpoint, tables, facts, resume=options.resume)
