"""Validity of synthetic rows: values out of range, unseen pairs, broken rules, distances to real rows.

Distances to real rows measure fidelity. They are no evidence of privacy.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float, Int, UInt64

from understudy.errors import ConfigError
from understudy.evaluation.counting import joint_keys, row_counts
from understudy.evaluation.scores import Result, Score, Status, echo_settings, no_scores
from understudy.evaluation.table import ColumnSpec, EncodedTable
from understudy.schema import Rule
from understudy.tables import filter_where, where_columns

WORST_PAIRS = 10
REAL_ROWS_PER_QUERY = 50
"""The most real rows searched for each row in `closest_record`: bounds its time."""

PART_OF = 0.99
"""A holdout is part of the real table if this fraction of its rows is in it; numbers may have been rounded."""

MANY_COPIES, TIMES_CHANCE = 0.5, 2.0
"""A table is called copied if its fraction of copies exceeds the first, and that of held-out rows by this factor."""

NOT_PRIVACY = "Distances to real rows and counts of copies measure fidelity. They are no evidence of privacy."


# ---------------------------------------------------------------------------------------------------- cells and pairs


@echo_settings
def validity(real: EncodedTable, synthetic: EncodedTable) -> Result:
    """The fraction of invalid synthetic cells, by cause; and of rows with a pair of values that no real row has.

    A value is out of range or unlisted by the layout: the schema, or the real table where the schema is silent. In an
    open list of the schema no value is unlisted: it counts as "other". A null is unexpected where real rows have none.
    """
    columns = {spec.name: _faults(synthetic, spec) for spec in real.layout.columns}
    # A cell has one fault at most: a null is neither out of range nor unlisted.
    invalid = [sum(part for part in causes.values() if part is not None) for causes in columns.values()]
    pairs, pair_score = _impossible_pairs(real, synthetic)
    why = {
        "out_of_range": "There is no numeric column.",
        "unlisted": "There is no discrete column with a closed list.",
        "unexpected_nulls": "Every column has nulls in the real table, so none is unexpected.",
    }
    scores = {"invalid_cells": Score(float(np.mean(invalid)))}
    for cause, reason in why.items():
        parts = [part for causes in columns.values() if (part := causes[cause]) is not None]
        scores[cause] = Score(float(np.mean(parts))) if parts else Score.none(reason)
    scores["impossible_pairs"] = pair_score
    return Result(scores=scores, details={"columns": columns, "pairs": pairs})


def _faults(table: EncodedTable, spec: ColumnSpec) -> dict[str, float | None]:
    """The fraction of invalid cells of a column by cause; None: the cause cannot occur."""
    values, count = table[spec.name], len(spec.categories)
    null = np.isnan(values) if spec.is_numeric else values == count
    return {
        "out_of_range": _fraction((values < spec.lower) | (values > spec.upper)) if spec.is_numeric else None,
        "unlisted": None if spec.is_numeric or spec.is_open else _fraction(values == count + 1),
        "unexpected_nulls": None if spec.has_nulls else _fraction(null),
    }


def _impossible_pairs(real: EncodedTable, synthetic: EncodedTable) -> tuple[list[dict[str, object]], Score]:
    """The pairs of discrete columns with most such rows; the fraction of rows that have any."""
    discrete = real.layout.discrete
    if len(discrete) < 2:
        return [], Score.none("There are fewer than two discrete columns, so there are no pairs.")
    unseen = np.zeros(synthetic.num_rows, dtype=bool)
    fractions = {}
    for a, b in itertools.combinations(discrete, 2):
        tables = [(table[a.name], table[b.name]) for table in (real, synthetic)]
        seen, asked = joint_keys(tables, (len(a.categories) + 2, len(b.categories) + 2))
        here = ~np.isin(asked, seen)
        fractions[a.name, b.name] = float(here.mean())
        unseen |= here
    worst = sorted((pair for pair in fractions if fractions[pair]), key=lambda pair: -fractions[pair])[:WORST_PAIRS]
    return [{"columns": list(pair), "fraction": fractions[pair]} for pair in worst], Score(float(unseen.mean()))


# ---------------------------------------------------------------------------------------------------------------- rules


def rule_violations(
    real_table: pa.Table, synthetic_table: pa.Table, rules: Sequence[Rule] = (), conditions: Sequence[str] = ()
) -> Result:
    """The fraction of synthetic rows that break at least one rule; how many rows of both tables break each.

    `rules` are those of a schema; `conditions` are further rules in SQL. As in an SQL CHECK, a row breaks a rule that
    is false, not one that a null leaves unknown. A rule about a column that a table lacks is listed as not checked.
    """
    tables = {"real": real_table, "synthetic": synthetic_table}
    named = {"rules": [rule.text for rule in rules], "conditions": list(conditions)}
    settings = {**{f"{name}_rows": table.num_rows for name, table in tables.items()}, **named}
    if not rules and not conditions:
        return no_scores("constraints", "There is no rule to check.", Status.MISSING_INPUT, settings)
    found = [
        *(_check_rule(rule, tables) for rule in rules),
        *(_check_condition(condition, tables) for condition in conditions),
    ]
    checked = [masks for _, masks in found if masks]
    any_rule = {name: np.any([masks[name] for masks in checked], axis=0) for name in tables} if checked else {}
    if not synthetic_table.num_rows:
        score = Score.none("There is no synthetic row to check.")
    elif not checked:
        score = Score.none("No rule could be checked: the tables lack a column of each.", Status.MISSING_INPUT)
    else:
        score = Score(float(any_rule["synthetic"].mean()))
    return Result(
        scores={"constraint_violations": score},
        settings=settings,
        details={"rules": [entry | _count_broken(masks) for entry, masks in found], "any": _count_broken(any_rule)},
    )


_Masks: TypeAlias = Mapping[str, Bool[np.ndarray, " rows"]]
"""The rows of each table that break a rule; empty: it was not checked."""


def _check_rule(rule: Rule, tables: Mapping[str, pa.Table]) -> tuple[dict[str, object], _Masks]:
    why = next(
        (
            f"The {name} table lacks the column {column!r}."
            for name, table in tables.items()
            for column in rule.columns
            if column not in table.column_names
        ),
        "",
    )
    entry: dict[str, object] = {"rule": rule.text, "source": "schema", "why": why}
    return entry, {} if why else {name: rule.broken(table) for name, table in tables.items()}


def _check_condition(condition: str, tables: Mapping[str, pa.Table]) -> tuple[dict[str, object], _Masks]:
    """A row whose nulls leave the condition unknown neither meets nor breaks it."""
    entry: dict[str, object] = {"rule": condition, "source": "constraint", "why": ""}
    masks = {}
    for name, table in tables.items():
        met = filter_where(table, condition)  # first: its errors quote the condition as written
        parts = where_columns(condition, table.column_names)  # parsed, so that NOT applies to the whole
        masks[name] = filter_where(table, f"NOT ({' AND '.join(part.sql for part in parts)})")
        entry[f"{name}_unknown"] = _fraction(~met & ~masks[name])
    return entry, masks


def _count_broken(masks: _Masks) -> dict[str, object]:
    """The rows of each table that break a rule, as a fraction and as a number; None: it was not checked."""
    if not masks:
        return {"real": None, "synthetic": None, "real_broken": None, "synthetic_broken": None}
    fractions = {name: _fraction(mask) for name, mask in masks.items()}
    return {**fractions, **{f"{name}_broken": int(mask.sum()) for name, mask in masks.items()}}


def _fraction(rows: np.ndarray) -> float | None:
    return float(rows.mean()) if len(rows) else None


# --------------------------------------------------------------------------------------------------------- nearest rows


def closest_record(
    real: EncodedTable,
    synthetic: EncodedTable,
    *,
    holdout: EncodedTable | None = None,
    max_rows: int = 2000,
    distances: bool = True,
    seed: int = 0,
) -> Result:
    """How far synthetic rows are from their nearest real row, against held-out real rows; and how many are copies.

    Distance is Euclidean on the layout's features, for at most `max_rows` rows of each table, drawn without
    replacement, against at most 50 times as many real rows. Copies are counted over all rows: they equal a real row in
    all evaluated columns, where nulls equal nulls and all unlisted values are equal. `distances=False` only counts
    copies. The holdout must not be among the real rows. This is no evidence of privacy. What chance alone gives is in
    the details: copies among the held-out rows, and among rows whose columns are drawn independently.
    """
    if max_rows < 1:
        raise ConfigError(f"max_rows must be at least 1, found {max_rows}.")
    searched = real.at_most(REAL_ROWS_PER_QUERY * max_rows, seed=seed)
    asked = {"synthetic": synthetic, "holdout": holdout}
    features = searched.features() if distances else None
    known = fingerprints(real)
    by_table = {name: _closeness(known, features, t, max_rows, seed) for name, t in asked.items() if t is not None}
    by_table["independent"] = {"exact_copies": float(np.isin(fingerprints(_shuffle_columns(real, seed)), known).mean())}
    skipped = Score.none("Distances were skipped; only copies were counted.", Status.SKIPPED)
    return Result(
        scores={
            "dcr_ratio": _ratio(by_table["synthetic"], by_table.get("holdout")) if distances else skipped,
            "exact_copies": Score(by_table["synthetic"]["exact_copies"]),
        },
        settings={
            **row_counts(real, synthetic),
            "holdout_rows": None if holdout is None else holdout.num_rows,
            "max_rows": max_rows,
            "distances": distances,
            "seed": seed,
            "real_rows_searched": searched.num_rows,
            "synthetic_rows_asked": min(max_rows, synthetic.num_rows),
            "holdout_rows_asked": None if holdout is None else min(max_rows, holdout.num_rows),
        },
        details=by_table,
        notes=(NOT_PRIVACY,),
    )


def is_copied(copies: float, held_out: float) -> bool:
    """Whether this fraction of rows that equal a real row is far beyond that of held-out real rows."""
    return copies > MANY_COPIES and copies > TIMES_CHANCE * held_out


def warn_of_copies(name: str, result: Result) -> Iterator[str]:
    """`result` is that of the group closest_record."""
    copies = result.details["synthetic"]["exact_copies"]
    chance = result.details["holdout"]["exact_copies"]
    if is_copied(copies, chance):
        yield (
            f"{copies:.0%} of the rows of {name!r} equal a real row in every evaluated column, against {chance:.0%} of"
            " held-out real rows: most of the table is copied, whatever its scores."
        )


def _closeness(
    known: np.ndarray, searched: np.ndarray | None, table: EncodedTable, max_rows: int, seed: int
) -> dict[str, float]:
    copies = {"exact_copies": float(np.isin(fingerprints(table), known).mean())}
    if searched is None:
        return copies
    asked = table.at_most(max_rows, seed=seed).features()
    nearest = searched[nearest_rows(searched, asked, 1)[:, 0]]
    # Computed again: the search subtracts large squares, and gives copies a small positive distance.
    distances = np.linalg.norm(asked.astype(np.float64) - nearest, axis=1)
    return {"mean": float(distances.mean()), "median": float(np.median(distances)), **copies}


def _shuffle_columns(table: EncodedTable, seed: int) -> EncodedTable:
    """Rows with the histograms of the table, whose columns do not depend on each other."""
    generator = np.random.default_rng([seed, 3])
    return EncodedTable(table.layout, {name: generator.permutation(values) for name, values in table.columns.items()})


def nearest_rows(
    known: Float[np.ndarray, "known f"], asked: Float[np.ndarray, "asked f"], count: int
) -> Int[np.ndarray, "asked k"]:
    """Which known rows are nearest, in order."""
    from sklearn.neighbors import NearestNeighbors

    index = NearestNeighbors(n_neighbors=min(count, len(known)), algorithm="brute").fit(known)
    return index.kneighbors(asked, return_distance=False)


def _ratio(synthetic: dict[str, float], holdout: dict[str, float] | None) -> Score:
    if holdout is None:
        return Score.none("There are no held-out real rows to compare with.")
    if not holdout["median"]:
        return Score.none(
            "Most held-out real rows equal another real row in all features, so their median distance is 0."
        )
    return Score(synthetic["median"] / holdout["median"])


def seen_fraction(real: EncodedTable, holdout: EncodedTable) -> tuple[float, float]:
    """The fraction of held-out rows that equal a real row; and of real rows that equal another, the chance level."""
    known = fingerprints(real)
    _, index, counts = np.unique(known, return_inverse=True, return_counts=True)
    return float(np.isin(fingerprints(holdout), known).mean()), float((counts[index] > 1).mean())


def rows_without(real: pa.Table, holdout: pa.Table) -> np.ndarray | None:
    """The real rows without those of a holdout that is part of the table; None: it is not, or chance may explain it.

    Rows are compared in all columns that both tables have, ids too. Twins count: a row that is held out once takes away
    one of its twins.
    """
    known, asked = _row_keys(real, holdout)
    if len(asked) >= len(known) or len(np.unique(known)) < len(known) / 2:
        return None
    return unmatched_rows(known, asked)


def unmatched_rows(known: np.ndarray, asked: np.ndarray) -> np.ndarray | None:
    """The rows left when each of the `asked` keys is removed once; None if too few of these are among them."""
    distinct, counts = np.unique(asked, return_counts=True)
    order = np.argsort(known, kind="stable")
    ordered = known[order]
    rank = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)  # 0 for the first of its twins
    at = np.minimum(np.searchsorted(distinct, ordered), len(distinct) - 1)
    taken = (distinct[at] == ordered) & (rank < counts[at])
    return np.sort(order[~taken]) if taken.sum() >= PART_OF * len(asked) else None


def _row_keys(*tables: pa.Table) -> list[np.ndarray]:
    """One number for each row, equal where the strings of all common columns are equal."""
    names = [name for name in tables[0].column_names if all(name in table.column_names for table in tables)]
    codes: list[list[np.ndarray]] = [[] for _ in tables]
    sizes = []
    for name in names:
        strings = pa.chunked_array([part for table in tables for part in table.column(name).cast(pa.string()).chunks])
        indices = strings.combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False) + 1
        sizes.append(int(indices.max(initial=0)) + 1)
        for each, part in zip(codes, np.split(indices, np.cumsum([t.num_rows for t in tables])[:-1]), strict=True):
            each.append(part)
    return joint_keys(codes, sizes)


def fingerprints(table: EncodedTable) -> UInt64[np.ndarray, " rows"]:
    """A 64-bit hash of each row: among a billion rows, some two collide with a probability of a few per cent."""
    state = np.full(table.num_rows, 0x9E3779B97F4A7C15, dtype=np.uint64)
    for spec in table.layout.columns:
        values = table[spec.name].astype(np.float64) + 0.0  # -0.0 is 0.0
        values[np.isnan(values)] = np.nan  # one pattern of bits
        state ^= values.view(np.uint64)
        # The finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = (state ^ (state >> np.uint64(31))) + np.uint64(0x9E3779B97F4A7C15)
    return state
