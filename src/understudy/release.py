"""The front door: `plan` prices a run without data, `fit` makes a `Release`, and a release makes synthetic rows.

`fit` owns the ledger from the first look at the table to the last. A release holds only what came out of it: the public
schema, what was bought, the model, and the statement of what was spent. On disk it is a folder of readable JSON and
plain arrays; loading one runs no code from it.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import safetensors.numpy

from understudy import certificate
from understudy._version import __version__
from understudy.encoding import CategoricalCodec, Codec, NumericCodec, assumed_domain, fit_codec
from understudy.errors import ConditionError, ConfigError, ReleaseError, SchemaError
from understudy.marginals import GraphicalModel
from understudy.privacy.discovery import Binning, plan_discovery
from understudy.privacy.ledger import Budget, Guarantee, Ledger, Plan, Statement
from understudy.privacy.noise import SecureNoise, SeededNoise, fresh_key
from understudy.schema import BOUNDED, Domain, Schema, match_columns
from understudy.synthesizers import AUTO, express, name_of, read_method
from understudy.tables import (
    Conjunct,
    Frame,
    Origin,
    atomic_folder,
    conform,
    filter_where,
    from_frame,
    read_table,
    to_frame,
    where_columns,
)

FORMAT = "understudy-release"
FORMAT_VERSION = 1
MODELS = {"graphical": GraphicalModel}
"""The kinds of models a release can hold."""

DRAWS_PER_ROW = 1000
"""A condition may cost so many draws for each row that is asked for, and at least LEAST_DRAWS in all."""
LEAST_DRAWS = 100_000

Progress = Callable[[float, str], None]


def plan(
    schema: Schema,
    method: Any = AUTO,
    guarantee: Guarantee | None = None,
    *,
    rows: int | None = None,
    binning: Binning | None = None,
) -> Plan:
    """Every look that `fit` would make, with its price. Reads no data: `rows` is an assumed size for the notes."""
    guarantee = (guarantee or Guarantee(1.0)).with_delta_for(schema.rows)
    binning = binning or Binning()
    domain = assumed_domain(schema, binning, num_rows=rows)
    synthesizer, reason = choose_method(method, domain)
    budget = _budget(guarantee, schema)
    buying = plan_discovery(schema, budget, binning)
    fitting = synthesizer.plan(domain, budget.after(buying.looks)).under(name_of(synthesizer))
    return Plan(buying.looks + fitting.looks, reason + buying.notes + fitting.notes)


def fit(
    table: "Frame | str | os.PathLike[str]",
    method: Any = AUTO,
    guarantee: Guarantee | None = None,
    *,
    schema: Schema | None = None,
    target: str | None = None,
    binning: Binning | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> "Release":
    """A release of this table under this guarantee.

    `table` is a pandas, polars or Arrow frame, or the path of a file; `method` a synthesizer or its expression. Without
    a schema the kinds are drafted from the table's types and everything else is bought.

    Formal guarantee: (epsilon, delta)-differential privacy of the returned release under add-or-remove of one protected
    unit, as its `statement` says, provided that no seed was given. Every look is charged on one ledger before it
    happens. Not covered: what the schema declares public, timing and memory.
    """
    if guarantee is None:
        raise ConfigError("Say what to guarantee: us.Guarantee(epsilon=1.0), or us.Guarantee.not_private().")
    arrow, origin = _as_arrow(table, schema)
    schema = (schema or Schema.draft(arrow.schema)).with_target(target)
    match_columns(schema, arrow.column_names)
    if not schema.modelled:
        raise SchemaError(
            "The schema leaves no column to model: all are ids, text or dropped. Declare at least one kind."
        )
    guarantee = guarantee.with_delta_for(schema.rows)
    binning = binning or Binning()
    tell = progress or (lambda share, words: None)

    noise = SecureNoise() if seed is None else SeededNoise(seed)
    ledger = Ledger(guarantee, noise=noise, max_rows_per_unit=schema.max_rows_per_unit)
    buying = plan_discovery(schema, ledger.remaining, binning)
    # The method is chosen and priced before anything is bought: bought values must not move a price.
    synthesizer, _ = choose_method(method, assumed_domain(schema, binning))
    tell(0.0, "reading the table")
    codec, rows = fit_codec(conform(arrow, schema), schema, buying, ledger, binning)
    fitting = synthesizer.plan(codec.domain, ledger.remaining).under(name_of(synthesizer))
    model = synthesizer.fit(rows, fitting, ledger, key=noise.key(), progress=progress)
    statement = ledger.statement(
        unit=schema.unit,
        rows_declared=schema.rows,
        drafted=schema.drafted,
        declared=_declared(schema),
        bought=_bought(schema),
        method=express(synthesizer),
    )
    return Release(model, codec, statement, origin)


def choose_method(method: Any, domain: Domain) -> tuple[Any, tuple[str, ...]]:
    """The synthesizer that is meant, and why, from facts known before any purchase."""
    if isinstance(method, str):
        if method == AUTO:
            return read_method("mst"), ("auto: mst, a tree of pairs, is the all-round choice for mixed tables.",)
        return read_method(method), ()
    if not (hasattr(method, "plan") and hasattr(method, "fit")):
        raise ConfigError(
            f"method must be a synthesizer or its expression, such as 'mst'; found {type(method).__name__}."
        )
    return method, ()


def _budget(guarantee: Guarantee, schema: Schema) -> Budget:
    return Ledger(guarantee, noise=SeededNoise(0), max_rows_per_unit=schema.max_rows_per_unit).remaining


def _as_arrow(table: "Frame | str | os.PathLike[str]", schema: Schema | None) -> tuple[pa.Table, Origin]:
    if isinstance(table, str | os.PathLike):
        return read_table(table if isinstance(table, str) else Path(table), schema=schema)
    return from_frame(table)


def _declared(schema: Schema) -> tuple[str, ...]:
    """What a person answers for, a sentence each."""
    facts = [] if schema.rows is None else [f"number of rows: {schema.rows:,}"]
    for column in schema.columns:
        if column.kind == "categorical" and column.categories is not None:
            facts.append(f"{column.name}: {len(column.categories)} categories")
        elif column.bounds is not None and column.modelled:
            facts.append(f"{column.name}: bounds {column.bounds[0]} to {column.bounds[1]}")
        if column.modelled and not column.nullable:
            facts.append(f"{column.name}: never null")
    left_out = [c.name for c in schema.columns if c.drop or c.kind == "text"]
    if left_out:
        facts.append(f"left out, never looked at: {', '.join(left_out)}")
    ids = [column.name for column in schema.columns if column.kind == "id" and not column.drop]
    if ids:
        facts.append(f"filled with fresh numbers, never modelled: {', '.join(ids)}")
    return tuple(facts)


def _bought(schema: Schema) -> tuple[str, ...]:
    facts = ["number of rows"] if schema.rows is None else []
    for what, kinds in (("categories", ("categorical",)), ("bounds", BOUNDED)):
        names = [c.name for c in schema.modelled if c.bought == what and c.kind in kinds]
        if names:
            facts.append(f"{what} of {', '.join(names)}")
    return tuple(facts)


@dataclasses.dataclass(frozen=True)
class Release:
    """What may be shared: a model that makes synthetic rows, and the statement of what it cost."""

    model: GraphicalModel
    codec: Codec
    statement: Statement
    origin: Origin

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
        if isinstance(num_rows, bool) or not isinstance(num_rows, int) or num_rows < 1:
            raise ConfigError(f"The number of synthetic rows must be a whole number above 0, found {num_rows}.")
        key = fresh_key() if seed is None else jax.random.key(_checked_seed(seed))
        if where is None:
            return self._draw(num_rows, key, None)
        return self._draw_where(num_rows, where, key)

    def _draw(self, num_rows: int, key: jax.Array, allowed: Mapping[str, np.ndarray] | None) -> pa.Table:
        model_key, decode_key = jax.random.split(key)
        codes = self.model.sample(num_rows, key=model_key, allowed=allowed)
        return self.codec.decode(codes, key=decode_key)

    def _draw_where(self, num_rows: int, where: str, key: jax.Array) -> pa.Table:
        """Conditions the model on what each column allows, then rejects what the whole condition refuses.

        Ruling out codes that cannot meet the condition changes no odds among the rows that do, so the accepted rows
        follow the model's conditional law exactly.
        """
        allowed = self._allowed(where)
        kept: list[pa.Table] = []
        found = drawn = 0
        most = max(LEAST_DRAWS, DRAWS_PER_ROW * num_rows)
        batch = num_rows
        while found < num_rows and drawn < most:
            key, batch_key = jax.random.split(key)
            rows = self._draw(min(batch, most - drawn), batch_key, allowed)
            drawn += rows.num_rows
            rows = rows.filter(pa.array(filter_where(rows, where)))
            kept.append(rows)
            found += rows.num_rows
            # As many as the share accepted so far lets expect, with some to spare, but never beyond memory.
            batch = min(max(int(1.2 * (num_rows - found) * drawn / max(found, 1)), 1000), 1_000_000)
        if found < num_rows:
            raise ConditionError(
                f"Only {found} of {num_rows} rows met the condition in {drawn:,} draws. Ask for fewer rows, or loosen "
                "the condition."
            )
        rows = pa.concat_tables(kept).slice(0, num_rows)
        return self._renumbered(rows)

    def _renumbered(self, rows: pa.Table) -> pa.Table:
        """Ids count the rows that are handed out, not those that were drawn."""
        for column in self.schema.columns:
            if column.kind == "id" and column.name in rows.column_names:
                at = rows.column_names.index(column.name)
                numbers = pa.array(np.arange(1, rows.num_rows + 1)).cast(rows.schema.field(at).type)
                rows = rows.set_column(at, rows.schema.field(at), numbers)
        return rows

    def _allowed(self, where: str) -> dict[str, np.ndarray]:
        """For each column the codes that some value meeting the condition can have."""
        columns = {column.name: column for column in self.codec.columns}
        allowed: dict[str, np.ndarray] = {}
        for conjunct in where_columns(where, self._names()):
            if len(conjunct.columns) != 1 or conjunct.columns[0] not in columns:
                continue
            column = columns[conjunct.columns[0]]
            mask = _allowed_by(column, conjunct)
            if mask is not None:
                allowed[column.name] = allowed.get(column.name, np.ones(column.size, dtype=bool)) & mask
        return allowed

    def _names(self) -> list[str]:
        return [c.name for c in self.schema.columns if c.modelled or (c.kind == "id" and not c.drop)]

    def save(self, folder: str | os.PathLike[str], *, force: bool = False) -> None:
        """Writes the release as a folder, whole or not at all."""
        structure, arrays = self.model.to_arrays()
        kind = next(name for name, cls in MODELS.items() if isinstance(self.model, cls))
        files = {
            "model.safetensors": safetensors.numpy.save({k: np.ascontiguousarray(v) for k, v in arrays.items()}),
            "certificate.json": _json(certificate.to_json(self.statement)),
            "CERTIFICATE.md": self.certificate.encode(),
        }
        content = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "understudy_version": __version__,
            "private": self.statement.is_private,
            "method": self.statement.method,
            "codec": self.codec.to_dict(),
            "origin": self.origin.to_dict(),
            "model": {"kind": kind, "structure": structure},
            "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
        }
        files["release.json"] = _json(content)
        with atomic_folder(folder, force=force, marker="release.json") as inside:
            for name, data in files.items():
                (inside / name).write_bytes(data)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Release":
        """Reads a release folder; refuses one that is incomplete, altered or of another version."""
        folder = Path(folder)
        content = _read_json(folder, "release.json")
        if content.get("format") != FORMAT:
            raise ReleaseError(f"{folder} holds a release.json that Understudy did not write. Name a release folder.")
        if content.get("format_version") != FORMAT_VERSION:
            raise ReleaseError(
                f"{folder} has release format {content.get('format_version')}, this Understudy ({__version__}) reads "
                f"format {FORMAT_VERSION}. It was written by Understudy {content.get('understudy_version')}: use that."
            )
        for name, digest in content["sha256"].items():
            if hashlib.sha256(_read_bytes(folder, name)).hexdigest() != digest:
                raise ReleaseError(f"{folder / name} was altered after the release was made. Ask for the original.")
        try:
            arrays = safetensors.numpy.load(_read_bytes(folder, "model.safetensors"))
            model = MODELS[content["model"]["kind"]].from_arrays(content["model"]["structure"], arrays)
            codec = Codec.from_dict(content["codec"])
            statement = certificate.from_json(_read_json(folder, "certificate.json"))
            return cls(model, codec, statement, Origin.from_dict(content["origin"]))
        except (KeyError, TypeError, ValueError, safetensors.SafetensorError) as error:
            raise ReleaseError(
                f"{folder} is not a whole release ({type(error).__name__}). Ask for the original."
            ) from error


def _allowed_by(column: CategoricalCodec | NumericCodec, conjunct: Conjunct) -> np.ndarray | None:
    """Which codes can meet a condition on this column alone; None where that cannot be told."""
    if isinstance(column, CategoricalCodec):
        # Each level is one value, so the condition is simply asked of all of them.
        generator = np.random.default_rng(0)
        levels = column.decode(np.arange(column.size), generator=generator)
        return filter_where(pa.table({column.name: levels}), conjunct.sql)
    comparison = conjunct.comparison
    return None if comparison is None else column.bins_that_can(comparison.op, comparison.constants)


def _checked_seed(seed: int) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise ConfigError(f"seed must be a whole number from 0 to {2**32 - 1}, found {seed}.")
    return seed


def _json(content: object) -> bytes:
    return (json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _read_bytes(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise ReleaseError(f"{folder} is no release folder: {name} cannot be read ({error.strerror}).") from error


def _read_json(folder: Path, name: str) -> dict:
    try:
        content = json.loads(_read_bytes(folder, name))
    except ValueError as error:
        raise ReleaseError(f"{folder / name} is not valid JSON. Ask for the original release.") from error
    if not isinstance(content, dict):
        raise ReleaseError(f"{folder / name} is not a JSON object. Ask for the original release.")
    return content
