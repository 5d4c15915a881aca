"""The scorecard: every metric of the papers for one real table and any number of synthetic ones, as one JSON document.

Each number stands beside its direction, its range, its meaning and what real rows would score. A metric that cannot
apply is listed with the reason. Nothing here is private: the scorecard says so in its first line.
"""

import dataclasses
import datetime
import difflib
import json
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy._version import __version__
from understudy.encoding import OTHER
from understudy.errors import ConfigError, SchemaError, TableError, did_you_mean
from understudy.evaluation import learning, marginals, validity
from understudy.evaluation.groups import EFFORTS, GROUPS, Case, Effort, Group
from understudy.evaluation.judged import REAL_TABLE, Judged, Layout, Trait
from understudy.evaluation.scores import EXPECTED, FORMAT, VERSION, Metric, Result, Score, checked
from understudy.progress import Progress
from understudy.run.atomic import atomic_write
from understudy.schema import Schema
from understudy.schema.values import format_list as listed
from understudy.schema.values import to_python as plain
from understudy.tables import Frame, as_arrow

if TYPE_CHECKING:
    import pandas as pd

WARNING = "Contains statistics of the real rows: not private, do not publish."
REAL = "real"
"""The name under which real rows stand beside the synthetic tables."""
HELD_OUT = 0.2
"""The share of the real rows that is kept for testing when no holdout is given."""
COMPARABLE = 0.9
"""A reference with a smaller share than this of a synthetic table's rows is further off by chance alone."""
FEW_ROWS, FEW_OF_REAL = 100, 0.01
"""Synthetic tables with fewer rows, or a smaller share of the real rows, are warned about."""
MANY_COPIES, TIMES_CHANCE = 0.5, 2.0
"""A larger share of copies than the first, and than so many times that of held-out rows, is warned about."""

Source: TypeAlias = "Frame | str | os.PathLike[str]"


class Scorecard(Mapping[str, object]):
    """A finished scorecard: the JSON document, and ways to read it.

    `scorecard["tv1"]` is a number when one synthetic table was judged, else a number for each.
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._content = checked(content)

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of the synthetic tables."""
        return tuple(table["name"] for table in self._content["synthetic"])

    def __getitem__(self, key: str) -> object:
        entry = self._entry(key)
        values = {name: _number(score) for name, score in entry["values"].items()}
        return values if len(values) > 1 else next(iter(values.values()))

    def __iter__(self) -> Iterator[str]:
        return (entry["key"] for entry in self._content["metrics"])

    def __len__(self) -> int:
        return len(self._content["metrics"])

    def reference(self, key: str) -> float:
        """What real rows score; NaN where there is no such number."""
        reference = self._entry(key)["reference"]
        return math.nan if reference is None else _number(reference)

    def why(self, key: str, method: str | None = None) -> str:
        """Why there is no number; empty where there is one."""
        values = self._entry(key)["values"]
        return values[self.methods[0] if method is None else method]["why"]

    def to_json(self) -> dict[str, Any]:
        """The whole document."""
        return self._content

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Writes the document as JSON, whole or not at all; never into a release, which is there to be shared."""
        refuse_release(path)
        with atomic_write(path, force=force) as file:
            file.write((json.dumps(self._content, ensure_ascii=False, allow_nan=False) + "\n").encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Scorecard":
        """Reads what `save` wrote."""
        try:
            content = json.loads(Path(path).read_bytes())
        except FileNotFoundError:
            raise ConfigError(f"There is no file {path}.") from None
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
        except ValueError:
            raise ConfigError(f"{path} is not JSON. {EXPECTED}") from None
        return cls(content)

    def to_pandas(self) -> "pd.DataFrame":
        """One row for each metric: key, title, a number for each table, that of real rows, and the direction."""
        import pandas as pd

        rows = [
            {
                "key": entry["key"],
                "title": entry["title"],
                **{name: _number(entry["values"][name]) for name in self.methods},
                REAL: self.reference(entry["key"]),
                "direction": entry["direction"],
            }
            for entry in self._content["metrics"]
        ]
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        """A table of all numbers, under the warning."""
        heads = ("", *self.methods, REAL, "")
        lines = [heads]
        for entry in self._content["metrics"]:
            scores = [_number(entry["values"][name]) for name in self.methods]
            if not all(map(math.isnan, scores)):
                numbers = [*scores, self.reference(entry["key"])]
                cells = ["-" if math.isnan(number) else f"{number:.4g}" for number in numbers]
                lines.append((entry["key"], *cells, entry["direction"]))
        widths = [max(len(line[place]) for line in lines) for place in range(len(heads))]
        aligned = [
            "  ".join(
                [line[0].ljust(widths[0])]
                + [cell.rjust(width) for cell, width in zip(line[1:-1], widths[1:-1], strict=True)]
                + [line[-1]]
            ).rstrip()
            for line in lines
        ]
        return "\n".join([WARNING, *aligned, *self._content.get("warnings", ())])

    def _entry(self, key: str) -> dict[str, Any]:
        for entry in self._content["metrics"]:
            if entry["key"] == key:
                return entry
        keys = list(self)
        groups = [entry["key"] for entry in self._content["metrics"] if entry["group"] == key]
        close = groups or difflib.get_close_matches(str(key), keys, n=3) or [k for k in keys if str(key) in k][:5]
        hint = f" Is it one of {', '.join(close)}?" if close else ""
        raise KeyError(f"{key!r} is not in this scorecard.{hint}")


def evaluate(
    real: Source,
    synthetic: "Source | Mapping[str, Source]",
    *,
    schema: "Schema | str | os.PathLike[str] | None" = None,
    target: str | None = None,
    holdout: "Source | None" = None,
    metrics: Sequence[str] | None = None,
    effort: str = "default",
    constraints: Sequence[str] = (),
    seed: int = 0,
    progress: Progress | None = None,
) -> Scorecard:
    """Judges one synthetic table, or several by name, against the real one. Not private: it reads all real rows.

    Args:
        real: The table that the synthesizer saw; a frame or a path.
        synthetic: A table, or a mapping from names to tables that are to stand side by side.
        schema: Categories and ranges, or the path of a schema file; what it leaves open is read off the real table.
        target: The column that classifiers predict; else the schema's.
        holdout: Real rows that the synthesizer never saw. Absent: a fifth of `real` is kept for testing.
        metrics: Keys or groups of metrics; None: all that the effort includes.
        effort: "quick", "default" or "full".
        constraints: Conditions, as in SQL, that every row should meet.
        seed: Of subsamples, splits, bootstraps and models; from 0 to 2^32 - 1.
        progress: Called with the share done and what is being done.
    """
    level = _effort(effort)
    chosen = _chosen(metrics)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise ConfigError(f"seed must be a whole number from 0 to 2^32 - 1, found {seed!r}.")
    if isinstance(schema, str | os.PathLike):
        schema = Schema.read(schema)
    case, tables, found = _prepared(
        real,
        synthetic,
        schema=schema,
        target=target,
        holdout=holdout,
        effort=level,
        constraints=constraints,
        seed=int(seed),
        asked=metrics is not None,
    )
    notes, warnings, _ = found
    entries: list[dict[str, Any]] = []
    settings: dict[str, Any] = {}
    details: dict[str, dict[str, Any]] = {}
    seconds: dict[str, float] = {}
    step, steps = 0, len(chosen) * (len(tables) + 1)
    for group, wanted in chosen.items():
        began = time.perf_counter()
        results: dict[str, Result] = {}
        for name in (REAL, *tables):
            if progress is not None:
                progress(step / steps, f"{group.name.replace('_', ' ')}: {name}")
            step += 1
            results[name] = _result(group, case, tables.get(name))
        shown = [metric for metric in group.metrics if wanted is None or metric.key in wanted]
        entries += [_entry(metric, group, case, results) for metric in shown]
        settings[group.name] = _settings({name: _plain(results[name].settings) for name in tables})
        details[group.name] = {name: _plain(result.details) for name, result in results.items() if result.details}
        for name in tables:
            result = results[name]
            notes += [f"{group.name.replace('_', ' ')}, {name}: {note}" for note in result.notes]
        if group.name == "closest_record":
            warnings += _on_copies({name: results[name] for name in tables})
        seconds[group.name] = round(time.perf_counter() - began, 2)
    if progress is not None:
        progress(1.0, "judged")
    won: dict[str, Any] = {}
    if "cell_accuracy" in details and len(tables) > 1:
        judged = {name: table for name, (table, _) in tables.items()}
        won = {"cells_won": _plain(marginals.cells_won(case.real, judged, None))}
    return Scorecard(
        {
            "format": FORMAT,
            "version": VERSION,
            "warning": WARNING,
            "understudy": __version__,
            "created": datetime.date.today().isoformat(),
            "effort": level.name,
            "seed": int(seed),
            "real": {
                "name": name_of(real, "the real table"),
                "file": _file_of(real),
                "rows": case.real.num_rows,
            },
            "holdout": {
                "name": "a fifth of the real table" if holdout is None else name_of(holdout, "holdout"),
                "file": _file_of(holdout),
                "rows": case.test.num_rows,
                "given": holdout is not None,
                "seen": holdout is None or found.holdout_seen,
            },
            "synthetic": [{"name": name, "rows": arrow.num_rows} for name, (_, arrow) in tables.items()],
            "target": None if case.target is None else case.target.name,
            "positive": _plain(case.positive),
            "warnings": warnings,
            "notes": notes,
            "metrics": entries,
            "settings": settings,
            "seconds": seconds,
            "details": details,
            **won,
        }
    )


# Preparing


def _effort(name: str) -> Effort:
    if name not in EFFORTS:
        raise ConfigError(
            f"effort must be {', '.join(map(repr, EFFORTS))}, found {name!r}.{did_you_mean(name, EFFORTS)}"
        )
    return EFFORTS[name]


def _chosen(metrics: Sequence[str] | None) -> dict[Group, set[str] | None]:
    """The groups to compute, each with the keys to show; None: all of them."""
    if metrics is None:
        return dict.fromkeys(GROUPS)
    if isinstance(metrics, str):
        raise ConfigError("metrics must be a list of names, not one text.")
    chosen: dict[Group, set[str] | None] = {}
    known = {group.name for group in GROUPS} | {metric.key for group in GROUPS for metric in group.metrics}
    for name in metrics:
        if name not in known:
            groups = ", ".join(group.name for group in GROUPS)
            raise ConfigError(f"There is no metric {name!r}.{did_you_mean(name, known)} The groups: {groups}.")
    if not metrics:
        raise ConfigError("metrics is empty. Name at least one, or leave it away for all.")
    for group in GROUPS:
        keys = {metric.key for metric in group.metrics} & set(metrics)
        if group.name in metrics:
            chosen[group] = None
        elif keys:
            chosen[group] = keys
    return chosen


class _Found(NamedTuple):
    """What was found while the tables were read: sentences, and whether the given holdout is among the real rows."""

    notes: list[str]
    warnings: list[str]
    holdout_seen: bool


def _prepared(
    real: Source,
    synthetic: "Source | Mapping[str, Source]",
    *,
    schema: Schema | None,
    target: str | None,
    holdout: "Source | None",
    effort: Effort,
    constraints: Sequence[str],
    seed: int,
    asked: bool,
) -> tuple[Case, dict[str, tuple[Judged, pa.Table]], _Found]:
    named = _named(synthetic)
    warnings = _on_order(real, REAL_TABLE) + ([] if holdout is None else _on_order(holdout, "holdout"))
    table, unread = _read(real, schema, REAL_TABLE)
    warnings += unread
    # The other tables are read as the kinds of the real one, whatever their own types.
    schema_read = dataclasses.replace(Schema.draft(table.schema), drafted=False) if schema is None else schema
    test_table = None
    if holdout is not None:
        test_table, unread = _read(holdout, schema_read, "holdout")
        warnings += unread
    layout = Layout.of(table, schema, *([] if test_table is None else [test_table]))
    layout = dataclasses.replace(layout, schema=dataclasses.replace(layout.schema, drafted=False))
    notes = list(layout.notes)
    whole = layout.read(table, REAL_TABLE)
    is_seen = False
    if test_table is None:
        if whole.num_rows < 2:
            raise TableError("The real table has one row, so none can be kept for testing. Give more, or a holdout.")
        train_rows, test_rows = _split_rows(whole.num_rows, seed)
        train, test, test_table = whole.take(train_rows), whole.take(test_rows), table.take(test_rows)
        notes.append(
            f"No holdout was given: {test.num_rows:,} of the {whole.num_rows:,} real rows were kept for testing, by a"
            " fixed seed. The synthesizer has seen them, so scores on them may be somewhat too good."
        )
    else:
        train, test = whole, layout.read(test_table, "holdout")
        share, by_chance = validity.seen_share(whole, test)
        is_seen = share > (1 + by_chance) / 2
        if is_seen:
            warnings.append(
                f"{share:.0%} of the holdout's rows equal a row of the real table, so it seems to be a part of that:"
                " scores on it are too good. Hold out rows that the synthesizer never saw."
            )
    tables: dict[str, tuple[Judged, pa.Table]] = {}
    for name, source in named.items():
        what = f"synthetic table {name!r}" if len(named) > 1 else "synthetic table"
        arrow, unread = _read(source, schema_read, what)
        judged = layout.read(arrow, what)
        warnings += [*unread, *_on_size(judged, whole, what), *_on_other(arrow, layout, what)]
        extra = [column for column in arrow.column_names if column not in (*layout.schema.names, *table.column_names)]
        if extra:
            notes.append(f"The {what} has columns that the real one lacks; they were ignored: {listed(extra)}.")
        if judged.num_rows > whole.num_rows:
            notes.append(
                f"The {what} has {judged.num_rows:,} rows; {whole.num_rows:,} of them were drawn, as many as real rows."
            )
        tables[name] = judged.at_most(whole.num_rows, seed=seed), arrow
    column = target if target is not None else layout.schema.target
    trait = None if column is None else _target(layout, column)
    case = Case(
        layout=layout,
        real=whole,
        train=train,
        test=test,
        table=table,
        test_table=test_table,
        effort=effort,
        target=trait,
        positive=_positive(layout, trait, train),
        constraints=tuple(constraints),
        synthetic_rows=max(judged.num_rows for judged, _ in tables.values()),
        seed=seed,
        asked=asked,
    )
    if not _is_comparable(len(case.fresh_rows), case):
        notes.append(
            f"Where held-out real rows stand in the place of a synthetic table, they are {len(case.fresh_rows):,} rows"
            f" against its {case.synthetic_rows:,}: a smaller table is further off by chance alone, so the synthetic"
            " one can look better than real rows."
        )
    return case, tables, _Found(notes, warnings, is_seen)


def _is_comparable(num_rows: int, case: Case) -> bool:
    return num_rows >= COMPARABLE * case.synthetic_rows


def _read(source: Source, schema: Schema | None, what: str) -> tuple[pa.Table, list[str]]:
    """The table as the schema's kinds, and in a sentence what of it could not be read so."""
    if (place := _path_of(source)) is not None and not place.exists():
        raise TableError(f"The {what} cannot be read. {place} does not exist. Check the spelling and the folder.")
    try:
        nulls = {} if schema is None else _null_counts(as_arrow(source)[0])
        table = as_arrow(source, schema)[0]
    except (TableError, SchemaError) as error:
        raise type(error)(f"The {what} cannot be read. {error}") from None
    if not table.num_rows:
        raise TableError(f"The {what} has no rows, so there is nothing to evaluate.")
    found = _null_counts(table)
    names = () if schema is None else (column.name for column in schema.modelled)
    lost = {
        name: (found[name] - nulls[name]) / table.num_rows
        for name in names
        if name in found and found[name] > nulls.get(name, found[name])
    }
    if not lost:
        return table, []
    words = "In the {} some cells cannot be read as the kind of their column, and count as missing: {}."
    return table, [words.format(what, _shares_in_words(lost))]


def _null_counts(table: pa.Table) -> dict[str, int]:
    return {name: values.null_count for name, values in zip(table.column_names, table.columns, strict=True)}


def _shares_in_words(shares: Mapping[str, float]) -> str:
    """Columns with a share of their rows, the largest first."""
    order = sorted(shares, key=lambda name: -shares[name])
    words = ", ".join(f"{listed([name])} ({shares[name]:.2%})" for name in order[:5])
    return words if len(order) <= 5 else f"{words} and {len(order) - 5} more columns"


def _path_of(source: object) -> Path | None:
    """The file of a path; None: a frame, or an address."""
    if not isinstance(source, str | os.PathLike) or "://" in str(source):
        return None
    whole = Path(source)
    return whole if whole.exists() else Path(str(source).partition("::")[0])


def _file_of(source: object) -> str:
    place = _path_of(source)
    return "" if place is None else place.name


def refuse_release(path: str | os.PathLike[str]) -> None:
    """Refuses to write into a release: that is handed on, and what is judged by real rows is not private."""
    for folder in Path(os.path.realpath(path)).parents:
        if (folder / "release.json").is_file():
            raise ConfigError(
                f"{path} would lie in the release {folder}, which is there to be shared, and scores of real rows are"
                " not private. Choose another folder."
            )


def _split_rows(num_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.random.default_rng(seed).permutation(num_rows)
    held = max(1, round(HELD_OUT * num_rows))
    return np.sort(order[held:]), np.sort(order[:held])


def _named(synthetic: "Source | Mapping[str, Source]") -> dict[str, Source]:
    if not isinstance(synthetic, Mapping):
        return {name_of(synthetic, "synthetic"): synthetic}
    if not synthetic:
        raise ConfigError("There is no synthetic table to judge.")
    if REAL in synthetic:
        raise ConfigError(f"A synthetic table cannot be named {REAL!r}: that is the name of the reference.")
    return dict(synthetic)


def name_of(source: Source, otherwise: str) -> str:
    """A file's name without its ending; for frames, `otherwise`."""
    if not isinstance(source, str | os.PathLike):
        return otherwise
    stem = Path(str(source).split("::")[-1]).stem
    return otherwise if stem in ("", REAL) else stem


def _target(layout: Layout, column: str) -> Trait:
    if column in layout.names:
        return layout[column]
    if column in layout.schema:
        raise SchemaError(f"The target {column!r} is dropped, an id, text or empty, so nothing can predict it.")
    raise SchemaError(f"The target {column!r} is not a column of the tables.{did_you_mean(column, layout.names)}")


def _positive(layout: Layout, target: Trait | None, train: Judged) -> object:
    """The schema's positive class, else the rarer of two; None: the target has not two classes."""
    if target is None or target.is_numeric:
        return None
    declared = layout.schema.positive if layout.schema.target == target.name else None
    if declared is None or len(target.levels) != 2:
        return learning.rarer_class(train, target.name)
    if str(plain(declared)) not in target.labels[:2]:
        # The levels were read off real rows, else the schema would have been refused: they are not listed.
        raise SchemaError(
            f"The schema's positive class {plain(declared)!r} is no value of the target {target.name!r}. Declare the"
            " target's categories, or mend it."
        )
    return plain(declared)


# Warnings


def _on_order(source: Source, what: str) -> list[str]:
    """A release beside a file, as `synth` leaves one, may mean that the file is not the real table."""
    place = _path_of(source)
    if place is None or not (release := place.with_name(f"{place.name.split('.')[0]}.release")).is_dir():
        return []
    return [
        f"Beside the {what}, {place.name}, lies {release.name}, as 'understudy synth' leaves it beside the table that"
        " it writes. If that is a synthetic table, the order is wrong: the real one comes first."
    ]


def _on_size(synthetic: Judged, real: Judged, what: str) -> list[str]:
    if synthetic.num_rows >= max(FEW_ROWS, FEW_OF_REAL * real.num_rows):
        return []
    count = "1 row" if synthetic.num_rows == 1 else f"{synthetic.num_rows:,} rows"
    return [f"The {what} has {count}, the real one {real.num_rows:,}: by so few rows it can hardly be judged."]


def _on_other(synthetic: pa.Table, layout: Layout, what: str) -> list[str]:
    """Understudy's own name for the categories that it did not buy is no invention of the synthesizer."""
    shares = {}
    for trait in layout.discrete:
        values = synthetic.column(trait.name)
        if trait.unknown is not None or not pa.types.is_string(getattr(values.type, "value_type", values.type)):
            continue
        named = [
            level
            for level in pc.unique(values).drop_null().to_pylist()
            if re.fullmatch(f"{OTHER}_*", level) and level not in trait.levels
        ]
        if named:
            share = pc.mean(pc.is_in(values.cast(pa.string()), pa.array(named)).cast(pa.float64())).as_py()
            shares[trait.name] = float(share)
    if not shares:
        return []
    return [
        f"In the {what} some cells hold {OTHER!r}, which is what Understudy calls the categories that it did not buy:"
        f" {_shares_in_words(shares)}. These count as unlisted; they are coarsening, not invention."
    ]


def _on_copies(results: Mapping[str, Result]) -> list[str]:
    warnings = []
    for name, result in results.items():
        copies = result.details["synthetic"]["exact_copies"]
        chance = result.details["holdout"]["exact_copies"]
        if copies > MANY_COPIES and copies > TIMES_CHANCE * chance:
            warnings.append(
                f"{copies:.0%} of the rows of {name!r} equal a real row in every judged column, against {chance:.0%} of"
                " held-out real rows: most of it is copied, however good its scores are."
            )
    return warnings


# Computing


def _result(group: Group, case: Case, table: tuple[Judged, pa.Table] | None) -> Result:
    """One group for one table; None: the real reference."""
    if case.leaves_out(group.name):
        return _nothing(group, f"Left out by the {case.effort.name} scorecard.")
    if table is None:
        return _nothing(group, "") if group.reference is None else group.reference(case)
    return group.run(case, *table)


def _nothing(group: Group, why: str) -> Result:
    return Result(scores={metric.key: Score.none(why) for metric in group.metrics}, settings={})


def _settings(by_table: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Those of the first table; what differs for others, by table."""
    first = next(iter(by_table.values()))
    differ = {
        name: {key: value for key, value in settings.items() if key not in first or first[key] != value}
        for name, settings in by_table.items()
    }
    differ = {name: settings for name, settings in differ.items() if settings}
    return {**first, "by_table": differ} if differ else first


def _entry(metric: Metric, group: Group, case: Case, results: Mapping[str, Result]) -> dict[str, Any]:
    absent = Score.none("It does not apply to this table.")
    scores = {name: result.scores.get(metric.key, absent) for name, result in results.items()}
    reference = scores.pop(REAL)
    return {
        "key": metric.key,
        "group": group.name,
        "title": metric.title,
        "direction": metric.direction,
        "low": _plain(metric.low),
        "high": _plain(metric.high),
        "meaning": metric.meaning,
        "same_as": metric.same_as,
        "private": metric.private,
        "reference": _reference(reference, group, case) if reference.is_defined else None,
        "values": {name: _score(score) for name, score in scores.items()},
    }


def _reference(score: Score, group: Group, case: Case) -> dict[str, Any]:
    rows = group.reference_rows(case)
    return {
        **_score(score),
        "what": group.reference_is,
        "rows": rows,
        "comparable": not group.compares or _is_comparable(rows, case),
    }


def _score(score: Score) -> dict[str, Any]:
    return {"value": _plain(score.value), "error": _plain(score.error), "why": score.why}


def _number(score: Mapping[str, Any]) -> float:
    return math.nan if score["value"] is None else score["value"]


def _plain(value: Any) -> Any:
    """JSON without NaN or infinities, floats to six digits."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
