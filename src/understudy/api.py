"""The front door: `plan` lists the queries of a run without reading data, and `fit` makes a `Release` of a table.

`fit` reads the table, plans every query from public facts, opens one ledger for the whole run, encodes the table, fits
the method, and states what was spent.
"""

import contextlib
import dataclasses
import functools
import json
import os
from contextlib import AbstractContextManager

from jaxtyping import PRNGKeyArray

from understudy import certificate
from understudy.encoding import assumed_domain, unit_notes
from understudy.errors import ConfigError
from understudy.models import Model
from understudy.notes import Level, warnings_of
from understudy.pipeline import EncodedTable, PlannedRun, encode_table, plan_method, plan_run, synthesizer_of
from understudy.privacy.digest import table_digest
from understudy.privacy.discovery import Binning
from understudy.privacy.ledger import Guarantee, Plan
from understudy.privacy.noise import noise_source
from understudy.privacy.table import PublicTable
from understudy.progress import Progress
from understudy.release import Release, check_seed, check_size
from understudy.run.checkpoint import Checkpoint, require_place
from understudy.run.environment import environment_facts
from understudy.schema import Schema
from understudy.sources import PrivateSource, PublicSource, TableToFit, read_private_table, read_public_table
from understudy.synthesizers import AUTO, Synthesizer, express, too_large_for
from understudy.synthesizers.protocol import expected_noise_of
from understudy.synthesizers.run import Run
from understudy.tables import ReadOptions


def plan(
    schema: Schema,
    method: Synthesizer | str = AUTO,
    guarantee: Guarantee | None = None,
    *,
    rows: int | None = None,
    binning: Binning | None = None,
) -> Plan:
    """Every query that `fit` would make, with its privacy cost. Reads no data: `rows` is an assumed size for notes.

    `expected` of the plan is the noise of the marginals to be measured, for methods that can tell in advance;
    `guarantee_for` finds the guarantee for a given noise.
    """
    guarantee = (guarantee or Guarantee(1.0)).with_delta_for(schema.rows)
    binning = binning or Binning()
    if rows is not None:
        check_size(rows, "The assumed number of rows")
    domain = assumed_domain(schema, binning, num_rows=rows)
    synthesizer = synthesizer_of(method)
    run = plan_run(schema, synthesizer, guarantee, binning, num_rows=rows)
    notes = warnings_of(guarantee.warnings) + unit_notes(schema) + run.discovery.notes + run.training.notes
    if not guarantee.is_private:
        return Plan(run.queries, notes)
    expected = expected_noise_of(synthesizer, domain.largest, run.training, schema.max_rows_per_unit)
    return Plan(run.queries, notes, expected=expected)


def fit(
    table: PrivateSource,
    method: Synthesizer | str = AUTO,
    guarantee: Guarantee | None = None,
    *,
    schema: Schema | None = None,
    target: str | None = None,
    binning: Binning | None = None,
    seed: int | None = None,
    public: "PublicSource | None" = None,
    keep_types: bool = False,
    reading: ReadOptions | None = None,
    progress: Progress | None = None,
    checkpoint: "str | os.PathLike[str] | None" = None,
    resume: bool = False,
) -> Release:
    """A release of this table under this guarantee.

    `table` is a pandas, polars or Arrow frame, or the path of a file; `method` a synthesizer or its expression. Without
    a schema the kinds are drafted from the table's types and everything else is estimated privately.

    `public` is a public table of the same columns, or a function that returns one, such as a simulator, for methods
    that can start from it. Its rows are not protected. It must not be the same source as `table`; rows are never
    compared.

    With a declared schema the synthetic columns have the types of the declared kinds. With `keep_types` they have the
    types of the columns of `table`, which are then treated as public: the certificate says so. `reading` says what a
    text file or workbook does not say itself: its encoding, its decimal sign, whether it has a header, the sheet.

    `checkpoint` names a folder in which the run keeps the secret of its noise and the state of its training: if it is
    killed, the same call with `resume=True` continues to the same release. Saving the release deletes the folder;
    anyone who reads it before can subtract the noise. Without `checkpoint` nothing is written.

    Formal guarantee: (epsilon, delta)-differential privacy of the returned release under add-or-remove of one privacy
    unit, as its `statement` says, provided that no seed was given. Every query is charged on one ledger before it
    is made. A run that fails after its first charge raises `SpentError`, whose `statement` has the whole planned cost;
    any other error spends nothing, unless it was interrupted or could not write its checkpoint. Not covered: what the
    schema declares public, timing and memory.
    """
    options = FitOptions(method, guarantee, binning or Binning(), seed, public, checkpoint, resume, progress)
    return fit_table(read_private_table(table, schema, target=target, keep_types=keep_types, reading=reading), options)


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

    def __post_init__(self) -> None:
        if not isinstance(self.guarantee, Guarantee):
            raise ConfigError("Set the guarantee: us.Guarantee(epsilon=1.0), or us.Guarantee.not_private().")
        if self.checkpoint is not None:
            require_place(self.checkpoint, resume=self.resume)
        elif self.resume:
            raise ConfigError("resume=True needs the folder of the run to resume: give checkpoint too.")
        check_seed(self.seed)


def fit_table(data: TableToFit, options: FitOptions) -> Release:
    """The run from a table that was read to its release."""
    assert options.guarantee is not None
    guarantee, binning = options.guarantee.with_delta_for(data.schema.rows), options.binning
    synthesizer = synthesizer_of(options.method)
    run = plan_run(data.schema, synthesizer, guarantee, binning)
    notes = tuple(note for note in run.training.notes if note.level is Level.WARNING)
    public = read_public_table(options.public, data.source, synthesizer, data.schema)
    if options.progress is not None:
        options.progress(0.0, "encoding the table")

    with _open_checkpoint(data, options, run, express(synthesizer), public) as checkpoint:
        if checkpoint is not None and checkpoint.is_finished:  # not computed again: the arithmetic could differ
            return dataclasses.replace(Release.load(checkpoint.folder), checkpoint=checkpoint)
        noise = noise_source(options.seed, None if checkpoint is None else checkpoint.secret)
        with encode_table(
            run,
            data.table,
            noise,
            too_large=functools.partial(too_large_for, synthesizer),
            checkpoint=checkpoint,
            method=express(synthesizer),
            types_kept=data.keep_types,
            public_table=None if public is None else public.table.num_rows,
        ) as encoded:
            model = _fit_model(synthesizer, encoded, public, key=noise.key(), progress=options.progress)
            statement = encoded.statement()
            estimates = certificate.estimation_notes(run.discovery, encoded.codec)
            notes = (*notes, *warnings_of(statement.warnings), *unit_notes(data.schema), *estimates)
            release = Release(model, encoded.codec, statement, data.origin, checkpoint, notes)
            if checkpoint is not None:
                checkpoint.keep(release.to_files())
            return release


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
    public_rows = None if public is None else public.encode(codec.encode, codec.positions)
    return synthesizer.fit(Run(rows, plan, ledger, key=key, public=public_rows, progress=progress))


def _open_checkpoint(
    data: TableToFit, options: FitOptions, run: PlannedRun, method: str, public: PublicTable | None
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
    }
    return Checkpoint.open(options.checkpoint, tables, facts, resume=options.resume)
