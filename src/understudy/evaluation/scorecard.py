"""The scorecard: every metric of the papers for one real table and any number of synthetic ones, as one JSON document.

Each number stands beside its direction, its range, its meaning and what real rows would score. A metric that cannot
apply is listed with the reason. Nothing here is private: the scorecard says so in its first line.
"""

import dataclasses
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from understudy._version import __version__
from understudy.columns import did_you_mean, listed, plain
from understudy.errors import ConfigError, SchemaError, TableError
from understudy.evaluation import learning, marginals
from understudy.evaluation.groups import EFFORTS, GROUPS, Case, Effort, Group
from understudy.evaluation.judged import Judged, Layout, Trait
from understudy.evaluation.scores import EXPECTED, FORMAT, VERSION, Metric, Result, Score, checked
from understudy.files import atomic_write
from understudy.schema import Schema
from understudy.tables import Frame, as_arrow

WARNING = "Contains statistics of the real rows: not private, do not publish."
REAL = "real"
"""The name under which real rows stand beside the synthetic tables."""
HELD_OUT = 0.2
"""The share of the real rows that is kept for testing when no holdout is given."""

Source: TypeAlias = "Frame | str | os.PathLike[str]"
Progress = Callable[[float, str], None]


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

    def __iter__(self) -> Any:
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
        """Writes the document as JSON, whole or not at all."""
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

    def __repr__(self) -> str:
        return f"<Scorecard of {listed(self.methods)}: {len(self)} metrics. {WARNING}>"

    def _entry(self, key: str) -> dict[str, Any]:
        for entry in self._content["metrics"]:
            if entry["key"] == key:
                return entry
        raise KeyError(f"{key!r} is not in this scorecard.{did_you_mean(key, list(self))}")


def evaluate(
    real: Source,
    synthetic: "Source | Mapping[str, Source]",
    *,
    schema: Schema | None = None,
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
        schema: Categories and ranges; what it leaves open is read off the real table.
        target: The column that classifiers predict; else the schema's.
        holdout: Real rows that the synthesizer never saw. Absent: a fifth of `real` is kept for testing.
        metrics: Keys or groups of metrics; None: all that the effort includes.
        effort: "quick", "default" or "full".
        constraints: Conditions, as in SQL, that every row should meet.
        seed: Of subsamples, splits, bootstraps and models.
        progress: Called with the share done and what is being done.
    """
    level = _effort(effort)
    chosen = _chosen(metrics)
    case, tables, notes = _prepared(
        real, synthetic, schema=schema, target=target, holdout=holdout, effort=level, constraints=constraints, seed=seed
    )
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
            results[name] = _result(group, case, tables.get(name), asked=metrics is not None)
        shown = [metric for metric in group.metrics if wanted is None or metric.key in wanted]
        entries += [_entry(metric, group, results) for metric in shown]
        settings[group.name] = _plain(next((r.settings for n, r in results.items() if n != REAL), {}))
        details[group.name] = {name: _plain(result.details) for name, result in results.items() if result.details}
        for name in tables:
            result = results[name]
            notes += [f"{group.name.replace('_', ' ')}, {name}: {note}" for note in result.notes]
        seconds[group.name] = round(time.perf_counter() - began, 2)
    if progress is not None:
        progress(1.0, "judged")
    if "cell_accuracy" in details and len(tables) > 1:
        judged = {name: table for name, (table, _) in tables.items()}
        details["cell_accuracy"]["comparison"] = _plain(marginals.cells_won(case.real, judged, None))
    return Scorecard(
        {
            "format": FORMAT,
            "version": VERSION,
            "warning": WARNING,
            "understudy": __version__,
            "effort": level.name,
            "seed": seed,
            "real": {"name": name_of(real, "the real table"), "rows": case.real.num_rows},
            "holdout": {
                "name": "a fifth of the real table" if holdout is None else name_of(holdout, "holdout"),
                "rows": case.test.num_rows,
                "given": holdout is not None,
                "seen": holdout is None,
            },
            "synthetic": [{"name": name, "rows": arrow.num_rows} for name, (_, arrow) in tables.items()],
            "target": None if case.target is None else case.target.name,
            "positive": _plain(case.positive),
            "notes": notes,
            "metrics": entries,
            "settings": settings,
            "seconds": seconds,
            "details": details,
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
            raise ConfigError(
                f"There is no metric {name!r}.{did_you_mean(name, known)} All: {', '.join(sorted(known))}."
            )
    if not metrics:
        raise ConfigError("metrics is empty. Name at least one, or leave it away for all.")
    for group in GROUPS:
        keys = {metric.key for metric in group.metrics} & set(metrics)
        if group.name in metrics:
            chosen[group] = None
        elif keys:
            chosen[group] = keys
    return chosen


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
) -> tuple[Case, dict[str, tuple[Judged, pa.Table]], list[str]]:
    table = _read(real, schema, "real table")
    # The other tables are read as the kinds of the real one, whatever their own types.
    schema_read = dataclasses.replace(Schema.draft(table.schema), drafted=False) if schema is None else schema
    test_table = None if holdout is None else _read(holdout, schema_read, "holdout")
    layout = Layout.of(table, schema, *([] if test_table is None else [test_table]))
    layout = dataclasses.replace(layout, schema=dataclasses.replace(layout.schema, drafted=False))
    notes = list(layout.notes)
    whole = layout.read(table, "real table")
    if test_table is None:
        train_rows, test_rows = _split_rows(whole.num_rows, seed)
        train, test, test_table = whole.take(train_rows), whole.take(test_rows), table.take(test_rows)
        notes.append(
            f"No holdout was given: {test.num_rows:,} of the {whole.num_rows:,} real rows were kept for testing, by a"
            " fixed seed. The synthesizer has seen them, so scores on them may be somewhat too good."
        )
    else:
        train, test = whole, layout.read(test_table, "holdout")
    notes.append(
        f"Where held-out real rows stand as reference, they are {test.num_rows:,} rows against {train.num_rows:,}: a"
        " smaller table is further off by chance alone, so a larger synthetic one can look better than real."
    )
    named = _named(synthetic)
    tables: dict[str, tuple[Judged, pa.Table]] = {}
    for name, source in named.items():
        what = f"synthetic table {name!r}" if len(named) > 1 else "synthetic table"
        arrow = _read(source, schema_read, what)
        extra = [column for column in arrow.column_names if column not in layout.schema]
        if extra:
            notes.append(f"The {what} has columns that the real one lacks; they were ignored: {listed(extra)}.")
        judged = layout.read(arrow, what)
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
        seed=seed,
    )
    return case, tables, notes


def _read(source: Source, schema: Schema | None, what: str) -> pa.Table:
    try:
        return as_arrow(source, schema)[0]
    except TableError as error:
        raise TableError(f"The {what} cannot be judged. {error}") from None


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
    if declared is not None:
        return plain(declared)
    return learning.rarer_class(train, target.name)


# Computing


def _result(group: Group, case: Case, table: tuple[Judged, pa.Table] | None, *, asked: bool) -> Result:
    """One group for one table; None: the real reference."""
    if group.name in case.effort.left_out and not asked:
        return _nothing(group, f"Left out by the {case.effort.name} scorecard.")
    if table is None:
        return _nothing(group, "") if group.reference is None else group.reference(case)
    return group.run(case, *table)


def _nothing(group: Group, why: str) -> Result:
    return Result(scores={metric.key: Score.none(why) for metric in group.metrics}, settings={})


def _entry(metric: Metric, group: Group, results: Mapping[str, Result]) -> dict[str, Any]:
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
        "reference": {**_score(reference), "what": group.reference_is} if reference.is_defined else None,
        "values": {name: _score(score) for name, score in scores.items()},
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
