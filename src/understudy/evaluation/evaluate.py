"""`evaluate`: computes a scorecard. Not private: it reads all real rows."""

import dataclasses
import datetime
import functools
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from understudy._version import __version__
from understudy.errors import ConfigError, UnderstudyWarning, did_you_mean
from understudy.evaluation import inputs
from understudy.evaluation.cells import cells_won
from understudy.evaluation.groups import EFFORTS, GROUPS, Comparison, Effort, Group
from understudy.evaluation.inputs import Reader, Source, SyntheticTable
from understudy.evaluation.parallel import report_jobs
from understudy.evaluation.scorecard import FORMAT, REAL, VERSION, WARNING, Scorecard
from understudy.evaluation.scores import CATALOGUE, Json, Metric, Result, Score, Status, no_scores, plain
from understudy.evaluation.validity import warn_of_copies
from understudy.progress import Progress, ShowProgress, open_progress, stretch_progress
from understudy.schema import SchemaSource, as_schema
from understudy.tables import ReadOptions

COMPARABLE = 0.9
"""A reference with a smaller fraction than this of a synthetic table's rows scores worse by chance alone."""
READING = 1.2
"""Measured seconds to read a table of 100,000 rows by 50 columns, as the costs of groups."""


def evaluate(
    real: Source,
    synthetic: "Source | Mapping[str, Source]",
    *,
    schema: SchemaSource | None = None,
    target: str | None = None,
    holdout: "Source | None" = None,
    holdout_from_split: bool = False,
    metrics: Sequence[str] | None = None,
    effort: str = "default",
    constraints: Sequence[str] = (),
    seed: int = 0,
    reading: ReadOptions | None = None,
    progress: ShowProgress = None,
) -> Scorecard:
    """Evaluate one synthetic table, or several by name, against the real one. Not private: it reads all real rows.

    Args:
        real: The table that the synthesizer saw; a frame or a path.
        synthetic: A table, or a mapping from names to tables that are compared side by side.
        schema: Categories, ranges and rules, as a `Schema`, a dict or the path of a schema file. Categories and ranges
            that it leaves open are read off the real table. The score of each rule is in the group `constraints`.
        target: The column that classifiers predict; default: the schema's.
        holdout: Real rows that the synthesizer never saw. Absent: a fifth of `real` is held out.
        holdout_from_split: Whether the holdout was written by `synth --split`: it is then read as the synthetic tables
            are, and known to be unseen.
        metrics: Keys or groups of metrics; None: all that the effort includes.
        effort: "quick", "default" or "full".
        constraints: SQL conditions that every row should meet, besides the rules of the schema.
        seed: Of subsamples, splits, bootstraps and models; from 0 to 2^32 - 1.
        reading: How to read text files and workbooks. Its decimal mark is for all tables, the rest for those
            that Understudy did not write.
        progress: True for a progress bar, or a function of the fraction done and what is being computed.

    Returns:
        The scorecard. Warnings, such as of a holdout that is part of the real table, are raised as `UnderstudyWarning`.

    Raises:
        TableError: A table cannot be read, or is too small.
        SchemaError: The schema is malformed, or does not match the columns of the tables.
        ConfigError: There is no such metric, effort or target, or a condition cannot be read.

    >>> import pyarrow as pa
    >>> table = pa.table({"member": ["yes", "no"] * 50})
    >>> scores = evaluate(table, table, holdout=table, metrics=["tv1"], effort="quick")
    >>> scores["tv1"]
    0.0
    """
    level = _find_effort(effort)
    chosen = _select_groups(metrics)
    check_seed(seed)
    reader = Reader(reading or ReadOptions(), int(seed))
    declared = None if schema is None else as_schema(schema)
    with open_progress(progress, "evaluating") as shown:
        report = stretch_progress(shown, 0.0, 1.0)
        report(0.0, "reading the tables")
        real_tables = reader.read_real(real, declared, holdout, from_split=holdout_from_split)
        tables = reader.read_synthetic(synthetic, real_tables)
        column = inputs.find_target(real_tables.layout, target)
        comparison = Comparison(
            **vars(real_tables),
            effort=level,
            target=column,
            positive=inputs.find_positive(real_tables.layout, column, real_tables.train),
            constraints=tuple(constraints),
            synthetic_rows=max(table.encoded.num_rows for table in tables.values()),
            seed=int(seed),
            selected=metrics is not None,
        )
        if metrics is None:
            chosen = {group: each for group, each in chosen.items() if group.applies(comparison)}
        body = _run_groups(chosen, comparison, tables, reader, report)
    scorecard = Scorecard({**_head(comparison, tables, real, holdout), **body})
    for text in scorecard.warnings:
        warnings.warn(text, UnderstudyWarning, stacklevel=2)
    return scorecard


def check_seed(seed: object) -> None:
    """Refuses what scikit-learn cannot be seeded with."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise ConfigError(f"seed must be a whole number from 0 to 2^32 - 1, found {seed!r}.", setting="seed")


def _find_effort(name: str) -> Effort:
    if name not in EFFORTS:
        raise ConfigError(
            f"effort must be {', '.join(map(repr, EFFORTS))}, found {name!r}.{did_you_mean(name, EFFORTS)}",
            setting="effort",
        )
    return EFFORTS[name]


def _select_groups(metrics: Sequence[str] | None) -> dict[Group, tuple[Metric, ...]]:
    """The groups to compute, each with the metrics to show."""
    if metrics is None:
        return {group: group.metrics for group in GROUPS}
    if isinstance(metrics, str):
        raise ConfigError("metrics must be a list of names, not a string.", setting="metrics")
    if not metrics:
        raise ConfigError("metrics is empty. Name at least one, or omit it for all.", setting="metrics")
    known = {group.name for group in GROUPS} | set(CATALOGUE)
    for name in metrics:
        if name not in known:
            groups = ", ".join(group.name for group in GROUPS)
            raise ConfigError(
                f"There is no metric {name!r}.{did_you_mean(name, known)} The groups: {groups}.", setting="metrics"
            )
    shown = {
        group: tuple(metric for metric in group.metrics if group.name in metrics or metric.key in metrics)
        for group in GROUPS
    }
    return {group: found for group, found in shown.items() if found}


def _run_groups(
    chosen: Mapping[Group, tuple[Metric, ...]],
    comparison: Comparison,
    tables: Mapping[str, SyntheticTable],
    reader: Reader,
    report: Progress,
) -> Json:
    """Compute all groups: the part of the document that holds results."""
    known = (*reader.notes, *_size_notes(comparison))
    notes: list[Json] = [{"group": None, "tables": [], "text": note} for note in known]
    warnings = list(reader.warnings)
    entries: list[Json] = []
    settings: dict[str, Json] = {}
    details: dict[str, dict[str, object]] = {}
    seconds: dict[str, float] = {}
    costs = {group: group.cost_for(comparison) for group in chosen}
    done = READING * (len(tables) + 1)
    whole = done + sum(costs.values()) * (len(tables) + 1)
    for group, shown in chosen.items():
        began = time.perf_counter()
        results: dict[str, Result] = {}
        for name in (REAL, *tables):
            what = f"{group.name.replace('_', ' ')}: {name}"
            part = stretch_progress(report, done / whole, (done + costs[group]) / whole)
            part(0.0, what)
            with report_jobs(functools.partial(_report_job, part, what)):
                results[name] = _run(group, comparison, tables.get(name))
            done += costs[group]
        entries += [_entry(metric, group, comparison, results) for metric in shown]
        settings[group.name] = _settings({name: plain(results[name].settings) for name in tables})
        details[group.name] = {name: plain(result.details) for name, result in results.items() if result.details}
        notes += _group_notes(group.name, {name: results[name].notes for name in tables})
        if group.name == "closest_record":
            warnings += [text for name in tables for text in warn_of_copies(name, results[name])]
        seconds[group.name] = round(time.perf_counter() - began, 2)
    report(1.0, "evaluated")
    body: dict[str, object] = {"warnings": warnings, "notes": notes, "metrics": entries, "settings": settings}
    body |= {"seconds": seconds, "details": details}
    if "cell_accuracy" in details and len(tables) > 1:
        body["cells_won"] = plain(cells_won(comparison.real, {name: table.encoded for name, table in tables.items()}))
    return body


def _report_job(report: Progress, what: str, fraction: float) -> None:
    report(fraction, what)


def _size_notes(comparison: Comparison) -> Iterator[str]:
    """How many rows of each table are compared."""
    used, size = comparison.compared_rows, len(comparison.reference_rows)
    if used is not None and used < max(comparison.synthetic_rows, size):
        why = "as many as are held out" if used == size else f"the limit of the {comparison.effort.name} scorecard"
        yield (
            f"Scores that depend on the size of a table use {used:,} of its rows, {why}, so that synthetic and real "
            "rows can be compared."
        )
    if not _is_comparable(comparison):
        yield (
            f"There are {size:,} held-out real rows for reference, fewer than the {comparison.synthetic_rows:,} "
            "synthetic rows. A smaller table scores worse by chance alone, so the synthetic one can seem better than "
            "real rows."
        )


def _head(comparison: Comparison, tables: Mapping[str, SyntheticTable], real: Source, holdout: "Source | None") -> Json:
    """The part of the document that describes the tables and the settings."""
    held_out = "a fifth of the real table" if holdout is None else inputs.name_of(holdout, "holdout")
    return {
        "format": FORMAT,
        "version": VERSION,
        "warning": WARNING,
        "understudy": __version__,
        "created": datetime.date.today().isoformat(),
        "effort": comparison.effort.name,
        "seed": comparison.seed,
        "real": {
            "rows": comparison.real.num_rows,
            "name": inputs.name_of(real, "the real table"),
            "file": _file_of(real),
        },
        "holdout": {
            "rows": comparison.test.num_rows,
            "seen": comparison.holdout_seen,
            "name": held_out,
            "file": _file_of(holdout),
            "given": holdout is not None,
        },
        "synthetic": [{"name": name, "rows": table.table.num_rows} for name, table in tables.items()],
        "target": None if comparison.target is None else comparison.target.name,
        "positive": plain(comparison.positive),
    }


def _file_of(source: object) -> str:
    path = inputs.path_of(source)
    return "" if path is None else path.name


def _is_comparable(comparison: Comparison) -> bool:
    """Whether as many rows are held out as synthetic ones are used by scores that depend on the size of a table."""
    rows = comparison.synthetic_rows
    used = rows if comparison.compared_rows is None else min(rows, comparison.compared_rows)
    return len(comparison.reference_rows) >= COMPARABLE * used


def _run(group: Group, comparison: Comparison, table: SyntheticTable | None) -> Result:
    """One group for one table; None: the real reference."""
    if comparison.skips(group.name):
        return no_scores(group.name, f"Skipped by the {comparison.effort.name} scorecard.", Status.SKIPPED)
    if table is not None:
        return group.run(comparison, table.encoded, table.table)
    return Result(scores={}, settings={}) if group.reference is None else group.reference(comparison)


def _group_notes(group: str, by_table: Mapping[str, Sequence[str]]) -> list[Json]:
    """Each note once, with all tables that have it."""
    groups: dict[str, list[str]] = {}
    for name, notes in by_table.items():
        for note in notes:
            groups.setdefault(note, []).append(name)
    return [{"group": group, "tables": names, "text": note} for note, names in groups.items()]


def _settings(by_table: Mapping[str, Json]) -> Json:
    """Those of the first table; what differs for others, by table."""
    first = next(iter(by_table.values()))
    differ = {
        name: {key: value for key, value in settings.items() if key not in first or first[key] != value}
        for name, settings in by_table.items()
    }
    differ = {name: settings for name, settings in differ.items() if settings}
    return {**first, "by_table": differ} if differ else first


def _entry(metric: Metric, group: Group, comparison: Comparison, results: Mapping[str, Result]) -> Json:
    absent = Score.none("There is no such score.", Status.NOT_APPLICABLE)
    scores = {name: result.scores.get(metric.key, absent) for name, result in results.items()}
    reference = scores.pop(REAL)
    rows = len(comparison.reference_rows) if group.replaces_table else comparison.train.num_rows
    if group.cut and comparison.compared_rows is not None:
        rows = min(rows, comparison.compared_rows)
    comparable = not group.cut or _is_comparable(comparison)
    about_reference = {"what": group.reference_is, "rows": rows, "comparable": comparable}
    return {
        **plain(dataclasses.asdict(metric)),
        "reference": {**_score(reference), **about_reference} if reference.is_defined else None,
        "values": {name: _score(score) for name, score in scores.items()},
    }


def _score(score: Score) -> Json:
    return {"value": plain(score.value), "error": plain(score.error), "status": score.status.value, "why": score.why}
