"""The front door: `plan` prices a run without data, `fit` makes a `Release`, and a release makes synthetic rows.

`fit` owns the ledger from the first look at the table to the last. A release holds only what came out of it: the public
schema, what was bought, the model, and the statement of what was spent. On disk it is a folder of readable JSON and
plain arrays; loading one runs no code from it.
"""

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import safetensors

from understudy import certificate
from understudy._version import __version__
from understudy.encoding import CategoricalCodec, Codec, NumericCodec, assumed_domain, fit_codec
from understudy.errors import ConditionError, ConfigError, ReleaseError, SchemaError, UnderstudyError
from understudy.models import Model, load_model, save_model
from understudy.models.rejection import propose_until
from understudy.notes import Level, Note, warnings_of
from understudy.privacy.digest import table_digest
from understudy.privacy.discovery import Binning, plan_discovery
from understudy.privacy.ledger import Budget, Guarantee, Ledger, Plan, PublicFacts, Query, Statement
from understudy.privacy.noise import NoiseSource, fresh_key, noise_source
from understudy.privacy.rows import PrivateRows, PublicRows
from understudy.progress import Progress
from understudy.run.atomic import json_bytes
from understudy.run.checkpoint import Checkpoint, release_of, require_place
from understudy.schema import Domain, Schema, match_columns
from understudy.settings import settings_of
from understudy.spent import accountable, read_record
from understudy.synthesizers import (
    AUTO,
    SYNTHESIZERS,
    PublicUse,
    Synthesizer,
    express,
    name_of,
    read_method,
    synthesizer_class,
    takes_public,
    too_large_for,
)
from understudy.synthesizers.auto import Facts, choose
from understudy.tables import (
    Conjunct,
    Constant,
    Frame,
    Origin,
    as_arrow,
    atomic_folder,
    conform,
    filter_where,
    is_same_source,
    restyle,
    to_frame,
    where_columns,
)

FORMAT = "understudy-release"
FORMAT_VERSION = 1
FILES = ("model.safetensors", "certificate.json", "CERTIFICATE.md")
"""What lies in a release folder beside release.json."""

LIBRARIES = ("jax", "jaxlib", "numpy", "equinox", "optax", "pyarrow")
ARITHMETIC = ("jax_enable_x64", "jax_threefry_partitionable", "jax_default_matmul_precision", "jax_default_prng_impl")
"""Versions and options that a resumed run must share."""


def plan(
    schema: Schema,
    method: Synthesizer | str = AUTO,
    guarantee: Guarantee | None = None,
    *,
    rows: int | None = None,
    binning: Binning | None = None,
) -> Plan:
    """Every query that `fit` would make, with its price. Reads no data: `rows` is an assumed size for the notes."""
    guarantee = (guarantee or Guarantee(1.0)).with_delta_for(schema.rows)
    binning = binning or Binning()
    if rows is not None:
        check_size(rows, "The assumed number of rows")
    domain = assumed_domain(schema, binning, num_rows=rows)
    synthesizer, reasons = choose_method(method, domain, guarantee.budget(schema.max_rows_per_unit))
    run = plan_run(schema, synthesizer, guarantee, binning, num_rows=rows)
    return Plan(run.queries, reasons + warnings_of(guarantee.warnings) + run.discovery.notes + run.training.notes)


class Plannable(Protocol):
    """What a run needs of a synthesizer or of a learner before it reads data."""

    def plan(self, domain: Domain, budget: Budget) -> Plan: ...


@dataclasses.dataclass(frozen=True)
class PlannedRun:
    """The public facts of a run and the plan of all its queries, complete before any data is read."""

    schema: Schema
    guarantee: Guarantee
    binning: Binning
    discovery: Plan
    """Estimates of what the schema leaves open."""
    training: Plan
    """Queries of the method, planned on an assumed domain: their cost must not depend on private estimates."""

    @property
    def queries(self) -> tuple[Query, ...]:
        return (*self.discovery.queries, *self.training.queries)


def plan_run(
    schema: Schema, method: Plannable, guarantee: Guarantee, binning: Binning, *, num_rows: int | None = None
) -> PlannedRun:
    """Plans every query of a run. Refuses what exceeds the budget, and what would not fit at the largest sizes."""
    budget = guarantee.budget(schema.max_rows_per_unit)
    discovery = plan_discovery(schema, budget, binning)
    domain = assumed_domain(schema, binning, num_rows=num_rows)
    training = plan_method(method, domain, budget.after(discovery.queries))
    return PlannedRun(schema, guarantee, binning, discovery, training)


@dataclasses.dataclass(frozen=True)
class EncodedTable:
    """A table encoded under a ledger, ready for the queries of a method."""

    codec: Codec
    rows: PrivateRows
    ledger: Ledger
    facts: PublicFacts
    method: str

    def statement(self) -> Statement:
        """What was charged so far, and the public facts of the run."""
        schema = self.codec.schema
        found = dataclasses.replace(self.facts, estimated=certificate.estimated_facts(schema, self.codec))
        warnings = certificate.size_warnings(self.rows, schema)
        return self.ledger.statement(found, method=self.method, warnings=warnings)


@contextlib.contextmanager
def encode_table(
    run: PlannedRun,
    table: pa.Table,
    noise: NoiseSource,
    *,
    too_large: Callable[[Domain], tuple[str, ...]] | None = None,
    checkpoint: Checkpoint | None = None,
    method: str,
    types_kept: bool = False,
    public_table: int | None = None,
) -> Iterator[EncodedTable]:
    """Opens the ledger of a run, estimates what the schema leaves open, and encodes the table.

    Queries of the method belong inside the `with` block: any error after the first charge becomes a `SpentError` with
    the statement of the whole plan. `public_table` is the number of rows of a public table.
    """
    schema = run.schema
    ledger = Ledger(run.guarantee, noise=noise, max_rows_per_unit=schema.max_rows_per_unit, store=checkpoint)
    facts = certificate.public_facts(schema, types_kept=types_kept, public_table=public_table)
    with accountable(ledger, lambda: ledger.statement(facts, method=method, planned=run.queries), checkpoint):
        codec, rows = fit_codec(table, schema, run.discovery, ledger, run.binning, too_large)
        yield EncodedTable(codec, rows, ledger, facts, method)


def fit(
    table: "Frame | str | os.PathLike[str]",
    method: Synthesizer | str = AUTO,
    guarantee: Guarantee | None = None,
    *,
    schema: Schema | None = None,
    target: str | None = None,
    binning: Binning | None = None,
    seed: int | None = None,
    public: "Frame | str | os.PathLike[str] | Callable[[], Frame] | None" = None,
    keep_types: bool = False,
    progress: Progress | None = None,
    checkpoint: "str | os.PathLike[str] | None" = None,
    resume: bool = False,
) -> "Release":
    """A release of this table under this guarantee.

    `table` is a pandas, polars or Arrow frame, or the path of a file; `method` a synthesizer or its expression. Without
    a schema the kinds are drafted from the table's types and everything else is bought.

    `public` is a table of the same columns that anyone may see, or a function that returns one, such as a simulator:
    methods that can start from it, and its rows have no protection at all. It must not be the same source as `table`;
    rows are never compared.

    With a declared schema the types of the synthetic columns are those of the declared kinds. `keep_types` gives back
    the types of the columns of `table`, which are then taken as public: the certificate states that condition.

    `checkpoint` names a folder in which the run keeps the secret of its noise and the state of its training: if it is
    killed, the same call with `resume=True` continues to the same release. Saving the release deletes the folder;
    anyone who reads it before can subtract the noise. Without `checkpoint` nothing is written.

    Formal guarantee: (epsilon, delta)-differential privacy of the returned release under add-or-remove of one protected
    unit, as its `statement` says, provided that no seed was given. Every query is charged on one ledger before it
    happens. A run that fails after its first charge raises `SpentError`, whose `statement` has the whole planned cost;
    any other error spends nothing, unless it was interrupted or could not write its checkpoint. Not covered: what the
    schema declares public, timing and memory.
    """
    if not isinstance(guarantee, Guarantee):
        raise ConfigError("Say what to guarantee: us.Guarantee(epsilon=1.0), or us.Guarantee.not_private().")
    if checkpoint is not None:
        require_place(checkpoint, resume=resume)
    elif resume:
        raise ConfigError("resume=True needs the folder of the run to resume: give checkpoint too.")
    arrow, origin = as_arrow(table, schema, keep_types=keep_types)
    schema = schema or Schema.draft(arrow.schema)
    schema = schema if target is None else schema.with_target(target)
    match_columns(schema, arrow.column_names)
    if not schema.modelled:
        raise SchemaError(
            "The schema leaves no column to model: all are ids, text or dropped. Declare at least one kind."
        )
    guarantee = guarantee.with_delta_for(schema.rows)
    binning = binning or Binning()

    seed = None if seed is None else checked_seed(seed)
    synthesizer, reasons = choose_method(
        method, assumed_domain(schema, binning), guarantee.budget(schema.max_rows_per_unit)
    )
    planned = plan_run(schema, synthesizer, guarantee, binning)
    notes = (*reasons, *(note for note in planned.training.notes if note.level is Level.WARNING))
    if public is None and synthesizer.capabilities.public is PublicUse.REQUIRED:
        raise ConfigError(
            f"{express(synthesizer)} learns from a public table: give one (--public; in Python public=), or use other "
            "settings."
        )
    open_table = None if public is None else _public_table(public, table, synthesizer, schema)
    if progress is not None:
        progress(0.0, "reading the table")
    tables = {"table": functools.partial(table_digest, arrow)}
    if open_table is not None:
        tables["public table"] = functools.partial(table_digest, open_table)
    facts = _facts(schema, express(synthesizer), guarantee, binning, seed, origin, keep_types=keep_types)
    run = None if checkpoint is None else Checkpoint.open(checkpoint, tables, facts, resume=resume)
    with run or contextlib.nullcontext():
        if run is not None and run.is_finished:  # never computed again: other arithmetic would be another release
            return dataclasses.replace(Release.load(run.folder), checkpoint=run)
        noise = noise_source(seed) if run is None else noise_source(seed, run.secret)
        with encode_table(
            planned,
            conform(arrow, schema),
            noise,
            too_large=functools.partial(too_large_for, synthesizer),
            checkpoint=run,
            types_kept=keep_types,
            public_table=None if open_table is None else open_table.num_rows,
            method=express(synthesizer),
        ) as encoded:
            codec, rows, ledger = encoded.codec, encoded.rows, encoded.ledger
            fitting = plan_method(synthesizer, rows.domain, ledger.remaining)
            if open_table is not None and takes_public(synthesizer):
                warm = PublicRows(codec.encode(open_table), codec.positions(open_table))
                model = synthesizer.fit(rows, fitting, ledger, key=noise.key(), public=warm, progress=progress)
            else:
                model = synthesizer.fit(rows, fitting, ledger, key=noise.key(), progress=progress)
            statement = encoded.statement()
            said = (
                *notes,
                *warnings_of(statement.warnings),
                *certificate.estimation_notes(planned.discovery, codec),
            )
            release = Release(model, codec, statement, origin, run, said)
            if run is not None:
                run.keep(release._files())
            return release


def _facts(
    schema: Schema,
    method: str,
    guarantee: Guarantee,
    binning: Binning,
    seed: int | None,
    origin: Origin,
    *,
    keep_types: bool,
) -> dict[str, str]:
    """All but the tables that a result follows from: what must be the same when a run is resumed."""
    device = jax.devices()[0]
    return {
        "schema": json.dumps(schema.to_dict(), sort_keys=True, default=str),
        "method": method,
        "epsilon": repr(guarantee.epsilon),
        "delta": repr(guarantee.delta),
        "binning": repr(binning),
        "seed": repr(seed),
        "form of the table": json.dumps(origin.to_dict(), sort_keys=True),
        "keep_types": repr(keep_types),
        "device": f"{device.platform} {device.device_kind}",
        # What moves the last digits: with other ones the same noise would lie on other answers.
        "processor": _processor(),
        "number of processor cores": str(_num_cores()),
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
        **{name: str(getattr(jax.config, name, None)) for name in ARITHMETIC},
        "version of understudy": __version__,
        **{f"version of {name}": importlib.metadata.version(name) for name in LIBRARIES},
    }


def _processor() -> str:
    """The model of the processor and a digest of its instruction sets, which compilers choose between."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    facts = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)  # reversed: the first core's stay
    named = {name.strip(): value.strip() for name, value in facts.items()}
    sets = hashlib.sha256(named.get("flags", named.get("Features", "")).encode()).hexdigest()[:16]
    return f"{named.get('model name', platform.machine())} {sets}"


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _public_table(
    public: "Frame | str | os.PathLike[str] | Callable[[], Frame]",
    private: object,
    synthesizer: Synthesizer,
    schema: Schema,
) -> pa.Table:
    """A table that anyone may see, in the schema's columns; refused before any query if it cannot be used.

    It is compared with the private table by source only: whether their rows are equal must not be revealed.
    """
    if not takes_public(synthesizer):
        raise ConfigError(f"{name_of(synthesizer)} cannot use a public table. {_public_methods()}")
    try:
        source = public() if callable(public) else public
        is_private = is_same_source(source, private)
        arrow, _ = as_arrow(source, schema)
        match_columns(schema, arrow.column_names)
        table = conform(arrow, schema)
    except UnderstudyError as error:
        raise type(error)(f"The public table: {error} Give one with the columns of the schema.") from error
    if is_private:
        raise ConfigError(
            "The public table is the private one: training on it without noise would protect nobody. Give a table that "
            "anyone may see, or none."
        )
    if not table.num_rows:
        raise ConfigError("The public table has no rows. Give one with rows, or none at all.")
    return table


def _public_methods() -> str:
    """Which methods take a public table, by their capabilities."""
    classes = {name: synthesizer_class(name) for name in SYNTHESIZERS}
    around = [name for name, cls in classes.items() if "inner" in settings_of(cls)]
    able = [name for name, cls in classes.items() if name not in around and takes_public(cls())]
    return (
        f"Methods that can: {', '.join(able)}, and {', '.join(around)} around them. Leave the public table out, or "
        "choose one of them."
    )


def plan_method(synthesizer: Synthesizer | Plannable, domain: Domain, budget: Budget) -> Plan:
    """The plan of a method under its name, with a note where it has no use for the target."""
    made = synthesizer.plan(domain, budget).under(name_of(synthesizer))
    if domain.target is None or not isinstance(synthesizer, Synthesizer) or synthesizer.capabilities.target:
        return made
    return dataclasses.replace(made, notes=(*made.notes, Note("The target is a column like any other here.")))


def choose_method(method: Synthesizer | str, domain: Domain, budget: Budget) -> tuple[Synthesizer, tuple[Note, ...]]:
    """The synthesizer that is meant, and why, from facts known before any query."""
    if isinstance(method, str):
        expression, reasons = choose(Facts.of(domain, budget)) if method == AUTO else (method, ())
        return read_method(expression), reasons
    if not isinstance(method, Synthesizer):
        raise ConfigError(
            f"method must be a synthesizer or its expression, such as 'mst'; found {type(method).__name__}."
        )
    return method, ()


@dataclasses.dataclass(frozen=True)
class Release:
    """What may be shared: a model that makes synthetic rows, and the statement of what it cost."""

    model: Model
    codec: Codec
    statement: Statement
    origin: Origin
    checkpoint: Checkpoint | None = dataclasses.field(default=None, repr=False, compare=False)
    """The folder of the run that made it, until it is saved. No part of the release."""
    notes: tuple[Note, ...] = dataclasses.field(default=(), repr=False, compare=False)
    """Why `auto` chose its method, warnings of the plan, and what was bought: public or noisy facts, and not saved."""

    @property
    def schema(self) -> Schema:
        return self.codec.schema

    @property
    def certificate(self) -> str:
        """The statement in words."""
        return certificate.to_markdown(self.statement)

    def sample(self, num_rows: int | None = None, *, where: str | None = None, seed: int | None = None) -> Any:
        """Synthetic rows in the kind of frame that `fit` was given. Post-processing: free, as often as wanted.

        `where` is an SQL condition over the columns; rows then follow the model given that condition. `seed` fixes the
        draw from a finished release and takes nothing from its guarantee.
        """
        return to_frame(self.sample_arrow(num_rows, where=where, seed=seed), self.origin)

    def sample_arrow(
        self, num_rows: int | None = None, *, where: str | None = None, seed: int | None = None
    ) -> pa.Table:
        """The same as an Arrow table."""
        num_rows = self.codec.num_rows if num_rows is None else num_rows
        check_size(num_rows, "The number of synthetic rows")
        num_rows = int(num_rows)
        key = fresh_key() if seed is None else jax.random.key(checked_seed(seed))
        rows = self._draw(num_rows, key, None) if where is None else self._draw_where(num_rows, where, key)
        return self._styled(rows)

    def _draw(self, num_rows: int, key: jax.Array, allowed: Mapping[str, np.ndarray] | None) -> pa.Table:
        model_key, decode_key = jax.random.split(key)
        return self.codec.decode(*self.model.sample(num_rows, key=model_key, allowed=allowed), key=decode_key)

    def _styled(self, rows: pa.Table) -> pa.Table:
        """Rows as they will be written; rounding to the table's decimals leaves no declared bound."""
        rows = restyle(rows, self.origin)
        for column in self.schema.modelled:
            decimals = _decimals(self.origin, column.name)
            if column.kind == "real" and column.bounds is not None and decimals is not None:
                at = rows.column_names.index(column.name) if column.name in rows.column_names else None
                if at is not None:
                    rows = rows.set_column(at, rows.field(at), _within(rows.column(at), column.bounds, decimals))
        return rows

    def _draw_where(self, num_rows: int, where: str, key: jax.Array) -> pa.Table:
        """Conditions the model on what each column allows, then rejects what the whole condition refuses.

        Ruling out codes that cannot meet the condition changes no odds among the rows that do, so the accepted rows
        follow the model's conditional law exactly.
        """
        allowed = self._allowed(where)
        names = [column.name for column in self.codec.columns]

        def propose(size: int, batch_key: jax.Array) -> tuple[pa.Table, int]:
            rows = self._draw(size, batch_key, allowed)
            rows = rows.filter(pa.array(filter_where(self._styled(rows.select(names)), where)))
            return rows, rows.num_rows

        accepted = propose_until(num_rows, propose, key=key)
        return self._renumbered(pa.concat_tables(accepted).slice(0, num_rows))

    def _renumbered(self, rows: pa.Table) -> pa.Table:
        """Ids count the rows that are handed out, not those that were drawn."""
        for column in self.schema.columns:
            if column.kind == "id" and column.name in rows.column_names:
                at = rows.column_names.index(column.name)
                rows = rows.set_column(at, rows.field(at), pa.array(np.arange(1, rows.num_rows + 1)))
        return rows

    def _allowed(self, where: str) -> dict[str, np.ndarray]:
        """For each column the codes that some value meeting the condition can have."""
        columns = {column.name: column for column in self.codec.columns}
        allowed: dict[str, np.ndarray] = {}
        # Ids are no part of a condition: they number the rows that are handed out.
        for conjunct in where_columns(where, tuple(columns)):
            if len(conjunct.columns) != 1:
                continue
            column = columns[conjunct.columns[0]]
            mask = self._allowed_by(column, conjunct)
            if mask is not None:
                allowed[column.name] = allowed.get(column.name, np.ones(column.size, dtype=bool)) & mask
                if not allowed[column.name].any():
                    raise ConditionError(
                        f"No row can meet the condition: it leaves {column.name!r} no value.{_values_of(column)}"
                    )
        return allowed

    def _allowed_by(self, column: CategoricalCodec | NumericCodec, conjunct: Conjunct) -> np.ndarray | None:
        """Which codes can meet a condition on this column alone; None where that cannot be told."""
        if isinstance(column, CategoricalCodec):
            # Each level is one value, so the condition is simply asked of all of them.
            levels = column.decode(np.arange(column.size), generator=np.random.default_rng(0))
            return filter_where(self._styled(pa.table({column.name: levels})), conjunct.sql)
        return column.bins_that_can(*_widened(conjunct, _resolution(self.origin, column)))

    def save(self, folder: str | os.PathLike[str], *, force: bool = False) -> None:
        """Writes the release as a folder, whole or not at all. Then its run is over, and the checkpoint deleted."""
        files = self._files()
        if self.checkpoint is not None:
            self.checkpoint.note_release(hashlib.sha256(files["release.json"]).hexdigest())
        with atomic_folder(folder, force=force, marker="release.json") as inside:
            for name, data in files.items():
                (inside / name).write_bytes(data)
        if self.checkpoint is not None:
            self.checkpoint.delete()

    def _files(self) -> dict[str, bytes]:
        model, arrays = save_model(self.model)
        files = {"model.safetensors": arrays, **certificate.to_files(self.statement)}
        content = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "understudy_version": __version__,
            "private": self.statement.is_private,
            "method": self.statement.method,
            "codec": self.codec.to_dict(),
            "origin": self.origin.to_dict(),
            "model": model,
            "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
        }
        # Last of all the digest of everything above it, against damage to this file (a checksum, not a signature).
        files["release.json"] = json_bytes({**content, "sha256_above": hashlib.sha256(json_bytes(content)).hexdigest()})
        return files

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Release":
        """Reads a release folder; refuses one that is incomplete, altered or of another version."""
        folder = Path(folder)
        if not (folder / "release.json").exists() and read_record(folder) is not None:
            raise ReleaseError(
                f"{folder} is the record of a run that failed: its budget was spent, and nothing was released. "
                f"'understudy certificate {folder}' shows it."
            )
        content = _read_json(folder, "release.json")
        if content.get("format") != FORMAT:
            raise ReleaseError(f"{folder} holds a release.json that Understudy did not write. Name a release folder.")
        if content.get("format_version") != FORMAT_VERSION:
            raise ReleaseError(
                f"{folder} has release format {content.get('format_version')}, this Understudy ({__version__}) reads "
                f"format {FORMAT_VERSION}. It was written by Understudy {content.get('understudy_version')}: use that."
            )
        try:
            _check_sums(folder, content)
            model = load_model(content["model"], _read_bytes(folder, "model.safetensors"))
            codec = Codec.from_dict(content["codec"])
            statement = certificate.from_json(_read_json(folder, "certificate.json"))
            return cls(model, codec, statement, Origin.from_dict(content["origin"]))
        except (LookupError, TypeError, ValueError, AttributeError, SchemaError, safetensors.SafetensorError) as error:
            raise ReleaseError(
                f"{folder} is not a whole release ({type(error).__name__}). Ask for the original."
            ) from error


def _decimals(origin: Origin, name: str) -> int | None:
    """To how many decimals a real column is rounded when it is handed out; None: not at all."""
    known = origin.columns.get(name)
    if known is None:
        return None
    return (
        0
        if known.arrow.startswith(("int", "uint"))
        else int(known.style["decimals"])
        if known.style.get("decimals")
        else None
    )


def _within(values: pa.ChunkedArray, bounds: tuple, decimals: int) -> pa.ChunkedArray:
    """Rounded values back inside their bounds, where a number of so many decimals lies inside."""
    unit = Decimal(1).scaleb(-decimals)
    lower = Decimal(repr(float(bounds[0]))).quantize(unit, ROUND_CEILING)
    upper = Decimal(repr(float(bounds[1]))).quantize(unit, ROUND_FLOOR)
    if lower > upper or pa.types.is_decimal(values.type):
        return values
    low, high = (pa.scalar(float(bound)).cast(values.type) for bound in (lower, upper))
    return pc.min_element_wise(pc.max_element_wise(values, low, skip_nulls=False), high, skip_nulls=False)


def _resolution(origin: Origin, column: NumericCodec) -> float:
    """How far handing out may move a value: by rounding to decimals, or to the type of the original column."""
    known = origin.columns.get(column.name)
    if known is None or column.kind not in ("real", "datetime"):
        return 0.0
    if column.kind == "datetime":
        units = {"timestamp[s": 10**6, "timestamp[ms": 10**3, "date": 86_400 * 10**6}
        return next((ticks for start, ticks in units.items() if known.arrow.startswith(start)), 0)
    decimals = _decimals(origin, column.name)
    if decimals is not None:
        return 10.0**-decimals
    largest = max(abs(column.histogram.grid.lower), abs(column.histogram.grid.upper))
    scale = re.fullmatch(r"decimal\d+\(\d+, (-?\d+)\)", known.arrow)
    return (
        10.0 ** -int(scale[1]) if scale else {"float": 2.0**-22, "halffloat": 2.0**-9}.get(known.arrow, 0.0) * largest
    )


def _values_of(column: CategoricalCodec | NumericCodec) -> str:
    """What a column can be, for a message: a release says it anyway."""
    if not isinstance(column, CategoricalCodec):
        return f" It goes from {column.extent}."
    listed = [repr(value) for value in column.categories if value is not None]
    return f" Its values are {', '.join(listed[:10])}{' and others' * (len(listed) > 10)}."


def _widened(conjunct: Conjunct, resolution: float) -> tuple[str | None, tuple[Constant, ...]]:
    """A comparison that holds before rounding wherever the given one can hold after it."""
    operator, constants = conjunct.operator, conjunct.constants
    if not resolution or not constants:
        return operator, constants
    if all(isinstance(constant, datetime) for constant in constants):
        step: Any = timedelta(microseconds=resolution)
    elif all(isinstance(constant, int | float) for constant in constants):
        step = resolution
    else:
        return operator, constants
    least, most = min(constants) - step, max(constants) + step  # type: ignore[type-var, operator]
    match operator:
        case "<" | "<=":
            return operator, (most,)
        case ">" | ">=":
            return operator, (least,)
        case "=" | "in" | "between":
            return "between", (least, most)
    return operator, constants


def saved_by(checkpoint: str | os.PathLike[str], folder: str | os.PathLike[str]) -> bool:
    """Whether this release was put into its place by the run in this checkpoint, which was killed right after that."""
    try:
        return hashlib.sha256((Path(folder) / "release.json").read_bytes()).hexdigest() == release_of(checkpoint)
    except OSError:
        return False


def check_size(size: object, what: str) -> None:
    """Refuses a number of rows that is none."""
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise ConfigError(f"{what} must be a whole number above 0, found {size}.")


def checked_seed(seed: int) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise ConfigError(f"seed must be a whole number from 0 to {2**32 - 1}, found {seed}.")
    return seed


def _check_sums(folder: Path, content: Mapping) -> None:
    above = {key: value for key, value in content.items() if key != "sha256_above"}
    found = {name: _read_bytes(folder, name) for name in FILES} | {"release.json": json_bytes(above)}
    noted = {**content["sha256"], "release.json": content["sha256_above"]}
    for name, data in found.items():
        if hashlib.sha256(data).hexdigest() != noted[name]:
            raise ReleaseError(f"{folder / name} was altered after the release was made. Ask for the original.")


def _read_bytes(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise ReleaseError(f"{folder} is no release folder: {name} cannot be read ({error.strerror}).") from error


def _read_json(folder: Path, name: str) -> dict:
    try:
        content = json.loads(_read_bytes(folder, name))
    except (ValueError, RecursionError) as error:
        raise ReleaseError(f"{folder / name} is not valid JSON. Ask for the original release.") from error
    if not isinstance(content, dict):
        raise ReleaseError(f"{folder / name} is not a JSON object. Ask for the original release.")
    return content
