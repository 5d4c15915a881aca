"""The front door: `plan` lists the queries of a run without reading data, and `fit` makes a `Release` of a table.

`fit` reads the table, plans every query from public facts, starts the run, encodes the table, fits the method, and
states what was spent.
"""

import contextlib
import dataclasses
import functools
import json
import os

from jaxtyping import PRNGKeyArray

from understudy import certificate
from understudy.encoding import assumed_domain, rule_notes, rule_warnings, unit_notes
from understudy.errors import ConfigError
from understudy.institution.book.book import BudgetBook
from understudy.institution.book.policy import Policy
from understudy.institution.book.proposal import table_run
from understudy.models import Model
from understudy.models.rejection import DRAWS_PER_ROW, MIN_DRAWS
from understudy.notes import Level, Note, warnings_of
from understudy.planning.requirements import Requirements
from understudy.privacy.accounting.ledger import Guarantee, Plan
from understudy.privacy.accounting.marginal_noise import ExpectedNoise
from understudy.privacy.mechanisms.discovery import Binning
from understudy.privacy.rows.scratch import open_scratch
from understudy.privacy.rows.table import PublicTable
from understudy.progress import Progress, ShowProgress
from understudy.release import Release, check_seed, check_size
from understudy.run.listener import Listener, open_listener, warn
from understudy.run.plan import PlannedRun, plan_method, plan_run, read_guarantee, require_rows, synthesizer_of
from understudy.run.run import EncodedTable, PrivateRun, encode_table, open_run
from understudy.run.sources import (
    HoldOut,
    PrivateSource,
    PublicSource,
    TableToFit,
    is_on_cluster,
    read_private_table,
    read_public_table,
)
from understudy.schema import Schema, SchemaSource, as_schema
from understudy.synthesizers import AUTO, Synthesizer, express, too_large_for
from understudy.synthesizers.protocol import expected_noise_of
from understudy.synthesizers.run import Run
from understudy.tables import ReadOptions

SMALL_RATE = 0.05
"""If a smaller fraction of the model's rows satisfies the rules, there is a warning."""


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
    """List every query that `fit` would make, with its privacy cost. Reads no data.

    Args:
        schema: A `Schema`, a dict of its sections, or the path of its file.
        method: A synthesizer, or its expression, such as "mst(iterations=500)".
        guarantee: The guarantee. Give either this, or `epsilon` and, if you want, `delta`. Default: epsilon 1.
        epsilon: The epsilon of the guarantee.
        delta: Its delta. Default: derived from the declared number of rows, else 1e-6.
        rows: An assumed number of rows, used in place of a declared one and, if none is declared, for notes.
        binning: How numbers are divided into bins.

    Returns:
        The plan, a sequence of queries with notes for its reader. Its `expected` is the noise of the marginals to be
        measured, for methods that can tell in advance; `guarantee_for` finds the guarantee for a given noise.

    Raises:
        SchemaError: The schema is malformed.
        ConfigError: The guarantee, the method or one of its settings cannot be honoured.
        BudgetExceeded: The guarantee is too small for any useful answer.

    >>> schema = {"table": {"rows": 1000}, "columns": {"member": {"kind": "boolean"}, "retired": {"kind": "boolean"}}}
    >>> [query.what for query in plan(schema, "independent", epsilon=1)]
    ['1-way marginals of 2 columns']
    """
    wanted = read_guarantee(guarantee, epsilon, delta, default=Guarantee(1.0))
    made = make_plan(as_schema(schema), method, wanted, rows=rows, binning=binning)
    for note in made.notes:
        if note.level is Level.WARNING:
            warn(note.text)
    return made


def make_plan(
    schema: Schema,
    method: Synthesizer | str,
    guarantee: Guarantee,
    *,
    rows: int | None = None,
    binning: Binning | None = None,
) -> Plan:
    """The plan, without raising its warnings: they are among its notes."""
    replaced = assume_rows(schema, rows)
    guarantee = guarantee.with_delta_for(replaced.rows)
    synthesizer = synthesizer_of(method)
    run = plan_run(replaced, synthesizer, guarantee, binning or Binning(), num_rows=rows)
    notes = warnings_of(guarantee.warnings) + rule_warnings(schema) + unit_notes(schema) + _rule_notes(schema)
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
    check_size(rows, "The assumed number of rows", "rows")
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
    progress: ShowProgress | Listener = None,
    checkpoint: "str | os.PathLike[str] | None" = None,
    resume: bool = False,
    engine: str = "local",
    scratch: "str | os.PathLike[str] | None" = None,
    book: "BudgetBook | str | os.PathLike[str] | None" = None,
    policy: "Policy | str | os.PathLike[str] | None" = None,
    hold_out: HoldOut | None = None,
) -> Release:
    """Fit a method to a table under this guarantee.

    Formal guarantee: (epsilon, delta)-differential privacy of the returned release under add-or-remove of one privacy
    unit, as its `statement` says, provided that no seed was given. Every query is charged on one ledger before it
    is made. A run that fails after its first charge raises `SpentError`, whose `statement` has the whole planned cost;
    any other error spends nothing, unless it was interrupted or could not write its checkpoint. Not covered: what the
    schema declares public, rows of `public`, timing and memory.

    Args:
        table: The private rows: a pandas, polars, Arrow or Spark frame, or the path of a file.
        method: A synthesizer, or its expression, such as "mst(iterations=500)".
        guarantee: The guarantee. Give either this, or `epsilon` and, if you want, `delta`.
        epsilon: The same in a number: the presence of one unit changes the probability of any outcome by at most a
            factor of e^epsilon.
        delta: The probability with which that may fail. Default: derived from the declared number of rows, else 1e-6.
        schema: A `Schema`, a dict of its sections, or the path of its file. Without one the kinds are drafted from the
            table's types, and everything else is estimated privately.
        target: The column that matters most. Default: that of the schema.
        binning: How numbers are divided into bins.
        seed: Makes the run reproducible, and not private: for public data.
        public: A public table of the same columns, or a function that returns one, such as a simulator, for methods
            that can start from it. Its rows are not protected. It must not be the same source as `table`; rows are
            never compared.
        keep_types: Whether synthetic columns have the types of the columns of `table`, which are then treated as
            public, as the certificate says. Else they have those of the declared kinds.
        reading: What a text file or workbook does not state: its encoding, its decimal mark, the sheet.
        progress: True for a progress bar, or a function of the fraction done and a string.
        checkpoint: A folder in which the run keeps the secret of its noise and the state of its training: anyone who
            reads it can subtract the noise. Saving the release deletes it.
        resume: Whether to continue a run that was killed from its `checkpoint`, to the same release.
        engine: "local"; or "spark" or "spark://host:port": a cluster reads a folder of Parquet files and counts. (A
            Spark frame is always counted there.) Rows stay on the cluster, so methods that train on rows are refused.
        scratch: A folder on a local disk in which the codes of the rows are kept during the run instead of in memory.
            Without `checkpoint`, `scratch` and `book` nothing is written.
        book: The `BudgetBook` of the data set, or its path. The cost of the run is reserved there before the table is
            opened, and a run that does not fit is refused. Needs a declared schema.
        policy: A `Policy`, or the path of its file: refuses runs that the institution does not allow.
        hold_out: Takes rows out of the table after it was opened and before the run is planned, such as those that a
            later evaluation needs.

    Returns:
        The release, which samples synthetic rows. Its `statement` says what was spent. What a user should know is
        raised as `UnderstudyWarning`, and is among its `notes`.

    Raises:
        SchemaError: The schema is malformed, or does not match the columns of the table.
        TableError: The table cannot be read.
        ConfigError: The guarantee, the method or one of its settings cannot be honoured.
        BudgetExceeded: The guarantee or the book has no room for the planned queries.
        BookError: The book cannot be used.
        CheckpointError: There is nothing to resume, or something that was not resumed.
        SpentError: The run failed after its first charge.

    >>> import pyarrow as pa
    >>> table = pa.table({"member": ["yes", "no"] * 50})
    >>> schema = {"columns": {"member": {"kind": "categorical", "categories": ["no", "yes"]}}}
    >>> release = fit(table, "independent", epsilon=1, schema=schema)
    >>> release.sample(3).column_names
    ['member']
    """
    wanted, binning = read_guarantee(guarantee, epsilon, delta), binning or Binning()
    check_seed(seed)
    synthesizer, declared = synthesizer_of(method), None if schema is None else as_schema(schema)
    require_rows(synthesizer, is_remote=is_on_cluster(table, engine))
    if checkpoint is not None:
        _require_resumable(synthesizer)
    proposed = None
    if book is not None:
        proposed = table_run(declared, synthesizer, wanted, binning, target=target)
        wanted = proposed.guarantee  # with the delta for all rows, also where some are held out
    with (
        open_listener(progress, "fitting") as listener,
        open_scratch(scratch) as folder,
        open_run(
            seed=seed,
            book=book,
            policy=policy,
            proposed=proposed,
            checkpoint=checkpoint,
            resume=resume,
            listener=listener,
        ) as run,
    ):
        data = read_private_table(
            table, declared, target=target, keep_types=keep_types, reading=reading, engine=engine, scratch=folder
        )
        with contextlib.closing(data.table):
            listener.opened(data.schema, data.origin)
            data = data if hold_out is None else hold_out(data)
            planned = plan_run(data.schema, synthesizer, wanted.with_delta_for(data.schema.rows), binning)
            return _fit_table(run, planned, data, synthesizer, public)


def _fit_table(
    run: PrivateRun, planned: PlannedRun, data: TableToFit, synthesizer: Synthesizer, source: "PublicSource | None"
) -> Release:
    """Fits the method to a table that was read, and returns the release."""
    public = read_public_table(source, data.source, synthesizer, data.schema)
    for note in rule_warnings(data.schema):
        run.listener.note(note)
    _note_size(run.listener, planned, synthesizer)
    progress = run.listener.progress
    if progress is not None:
        progress(0.0, "encoding the table")
    _start(run, planned, data, synthesizer, public)
    if run.checkpoint is not None and run.is_finished:
        finished = Release.load_result(run.checkpoint)
        run.finish(finished.statement)
        return finished
    encoded = encode_table(run, planned, data.table, too_large=functools.partial(too_large_for, synthesizer))
    encoded.rows.totals.expect_spread(data.rows_variance)
    model = _fit_model(synthesizer, encoded, public, key=run.key(), progress=progress)
    statement = encoded.statement()
    notes = (
        *(note for note in planned.training.notes if note.level is Level.WARNING),
        *warnings_of(statement.warnings),
        *unit_notes(data.schema),
        *_rule_notes(data.schema),
        *certificate.estimation_notes(planned.discovery, encoded.codec),
    )
    release = Release(model, encoded.codec, data.origin, statement=statement, checkpoint=run.checkpoint, notes=notes)
    if data.schema.rules:
        release = dataclasses.replace(release, notes=(*notes, _acceptance_note(release.acceptance())))
    run.finish(statement, release.notes, keep=release.to_result)
    return release


def _note_size(listener: Listener, planned: PlannedRun, synthesizer: Synthesizer) -> None:
    """Notes if the declared number of rows may be too small, before anything is charged."""
    if planned.guarantee.is_private:
        requirements = Requirements.of(planned.discovery, _expected_noise(synthesizer, planned))
        few = requirements.note(planned.schema.rows, epsilon=planned.guarantee.epsilon)
        if few is not None:
            listener.note(few)


def _start(
    run: PrivateRun, planned: PlannedRun, data: TableToFit, synthesizer: Synthesizer, public: PublicTable | None
) -> None:
    """Starts the run, with all that its result depends on."""
    facts = certificate.public_facts(
        data.schema,
        file_name=data.file_name,
        types_kept=data.keep_types,
        public_table=None if public is None else public.table.num_rows,
        kept_in=data.table.kept_in,
    )
    run.start(
        express(synthesizer),
        planned.guarantee,
        planned.queries,
        facts,
        max_rows_per_unit=data.schema.max_rows_per_unit,
        tables={"table": data.table} | ({} if public is None else {"public table": public}),
        identity={
            **planned.identity,
            "form of the table": json.dumps(data.origin.to_dict(), sort_keys=True),
            "keep_types": repr(data.keep_types),
        },
    )


def _rule_notes(schema: Schema) -> tuple[Note, ...]:
    return rule_notes(schema, draws_per_row=DRAWS_PER_ROW, least_draws=MIN_DRAWS)


def _acceptance_note(rate: float) -> Note:
    """How often the finished model's rows satisfy the rules by themselves."""
    if rate == 1:
        return Note("All rows of the model satisfy the rules.")
    text = f"{rate:.1%} of the model's rows satisfy the rules and the declared bounds; the others are drawn again."
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
    rows, codec, ledger = encoded.rows, encoded.codec, encoded.run.ledger
    plan = plan_method(synthesizer, rows.domain, ledger.remaining)
    ledger.reserve(plan.queries)  # before any of them is charged: the whole plan, or none of it
    public_rows = None if public is None else public.encode(codec.encode, codec.positions)
    return synthesizer.fit(Run(rows, plan, ledger, key=key, public=public_rows, progress=progress))


def _require_resumable(synthesizer: Synthesizer) -> None:
    """Refuses what a checkpoint cannot identify: another task with the same noise would give an exact difference."""
    from understudy.synthesizers.selected.tasks import find_user_task

    if (task := find_user_task(synthesizer)) is not None:
        raise ConfigError(
            f"A run with a task of your own ({task}) cannot be resumed, because nothing shows whether the task is "
            "still the same. Run it without a checkpoint.",
            setting="checkpoint",
        )
