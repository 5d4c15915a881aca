"""Whether synthetic rows could be real ones: values in their range, pairs that occur, conditions, nearest real rows.

Distances to real rows are here as a measure of fidelity. They prove nothing about privacy.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float, UInt64

from understudy.errors import ConfigError
from understudy.evaluation.judged import Judged, Trait
from understudy.evaluation.marginals import DENSE_CELLS, dense_counts, joint_keys
from understudy.evaluation.scores import LOWER, NEAR_ONE, NEAR_REAL, Metric, Result, Score
from understudy.tables import filter_where, where_columns

WORST_PAIRS = 10
REAL_ROWS_PER_QUERY = 50
"""Real rows searched, at most, for each row that `closest_record` asks about: a bound on its time."""

ONLY_COPIES = "Distances were left out; copies were counted."
NOT_PRIVACY = "Distances to real rows and counts of copies measure fidelity: they prove nothing about privacy."


# ---------------------------------------------------------------------------------------------------- cells and pairs


def validity(real: Judged, synthetic: Judged) -> Result:
    """The share of synthetic cells that no real cell could be, by cause; and of rows with a pair never seen together.

    A value is out of range or unlisted by the layout: the schema, or the real table where that is silent. A null is
    unexpected where real rows have none.
    """
    faults = {trait.name: _faults(synthetic, trait) for trait in real.layout.traits}
    columns = {
        name: {cause: None if mask is None else float(mask.mean()) for cause, mask in causes.items()}
        for name, causes in faults.items()
    }
    # A cell has one fault at most: a null is neither out of range nor unlisted.
    invalid = [sum(share for share in causes.values() if share is not None) for causes in columns.values()]
    pairs, pair_score = _impossible_pairs(real, synthetic)
    why = {
        "out_of_range": "There is no numeric column.",
        "unlisted": "There is no discrete column.",
        "unexpected_nulls": "Every column has nulls in the real table, so none is unexpected.",
    }
    scores = {"invalid_cells": Score(float(np.mean(invalid)))}
    for cause, reason in why.items():
        shares = [share for causes in columns.values() if (share := causes[cause]) is not None]
        scores[cause] = Score(float(np.mean(shares))) if shares else Score.none(reason)
    scores["impossible_pairs"] = pair_score
    return Result(
        scores=scores,
        settings={"real_rows": real.num_rows, "synthetic_rows": synthetic.num_rows},
        details={"columns": columns, "pairs": pairs},
    )


def _faults(table: Judged, trait: Trait) -> dict[str, Bool[np.ndarray, " rows"] | None]:
    """Which cells of a column have which fault; None: it cannot have it."""
    values = table[trait.name]
    if trait.is_numeric:
        null = np.isnan(values)
        return {
            "out_of_range": (values < trait.lower) | (values > trait.upper),
            "unlisted": None,
            "unexpected_nulls": None if trait.has_nulls else null,
        }
    return {
        "out_of_range": None,
        "unlisted": values == len(trait.levels) + 1,
        "unexpected_nulls": None if trait.has_nulls else values == len(trait.levels),
    }


def _impossible_pairs(real: Judged, synthetic: Judged) -> tuple[list[dict[str, object]], Score]:
    """The pairs of discrete columns with most such rows; the share of rows that have any."""
    discrete = real.layout.discrete
    if len(discrete) < 2:
        return [], Score.none("There are fewer than two discrete columns, so there are no pairs.")
    unseen = np.zeros(synthetic.num_rows, dtype=bool)
    shares = {}
    for a, b in itertools.combinations(discrete, 2):
        here = _never_together(real, synthetic, a, b)
        shares[a.name, b.name] = float(here.mean())
        unseen |= here
    worst = sorted((pair for pair in shares if shares[pair]), key=lambda pair: -shares[pair])[:WORST_PAIRS]
    return [{"columns": list(pair), "share": shares[pair]} for pair in worst], Score(float(unseen.mean()))


def _never_together(real: Judged, synthetic: Judged, a: Trait, b: Trait) -> Bool[np.ndarray, " rows"]:
    sizes = (len(a.levels) + 2, len(b.levels) + 2)
    pairs = [(table[a.name], table[b.name]) for table in (real, synthetic)]
    if math.prod(sizes) <= DENSE_CELLS:
        return (dense_counts(pairs[0], sizes) == 0).reshape(sizes)[pairs[1]]
    seen, asked = joint_keys(pairs, sizes)
    return ~np.isin(asked, seen)


# ----------------------------------------------------------------------------------------------------------- conditions


def constraint_violations(real_table: pa.Table, synthetic_table: pa.Table, conditions: Sequence[str]) -> Result:
    """The share of synthetic rows that break any of some SQL conditions, each of which rows should meet.

    As in a CHECK of SQL, a row breaks a condition that is false, not one that is unknown because of a null.
    """
    settings = {
        "real_rows": real_table.num_rows,
        "synthetic_rows": synthetic_table.num_rows,
        "conditions": list(conditions),
    }
    if not conditions or not synthetic_table.num_rows:
        why = "There is no condition to check." if not conditions else "There is no synthetic row to check."
        return Result(scores={"constraint_violations": Score.none(why)}, settings=settings, details={"conditions": []})
    found, broken = (
        [],
        {"real": np.zeros(real_table.num_rows, bool), "synthetic": np.zeros(synthetic_table.num_rows, bool)},
    )
    for condition in conditions:
        entry: dict[str, object] = {"condition": condition}
        for name, table in (("real", real_table), ("synthetic", synthetic_table)):
            met, breaks = _checked(table, condition)
            broken[name] |= breaks
            entry[name] = _share(breaks)
            entry[f"{name}_unknown"] = _share(~met & ~breaks)
        found.append(entry)
    return Result(
        scores={"constraint_violations": Score(float(broken["synthetic"].mean()))},
        settings=settings,
        details={"conditions": found, "real": _share(broken["real"])},
    )


def _checked(table: pa.Table, condition: str) -> tuple[np.ndarray, np.ndarray]:
    """Which rows meet a condition, and which break it; where a null leaves it unknown, neither."""
    met = filter_where(table, condition)  # the call whose errors quote what was written
    parts = where_columns(condition, table.column_names)  # parsed, so that NOT takes hold of the whole
    return met, filter_where(table, f"NOT ({' AND '.join(part.sql for part in parts)})")


def _share(rows: np.ndarray) -> float | None:
    return float(rows.mean()) if len(rows) else None


# --------------------------------------------------------------------------------------------------------- nearest rows


def closest_record(
    real: Judged,
    synthetic: Judged,
    *,
    holdout: Judged | None = None,
    max_rows: int = 2000,
    distances: bool = True,
    seed: int = 0,
) -> Result:
    """How far synthetic rows are from their nearest real row, against held-out real rows; and how many are copies.

    Distance is Euclidean on the layout's features, for at most `max_rows` rows of each table, drawn without
    replacement, against at most 50 times as many real rows. Copies are counted over all rows: they equal a real row in
    all judged columns, where nulls equal nulls and all unlisted values are one. `distances=False` counts the copies
    only. The holdout must not be among the real rows. This proves nothing about privacy.
    """
    if max_rows < 1:
        raise ConfigError(f"max_rows must be at least 1, found {max_rows}.")
    searched = real.at_most(REAL_ROWS_PER_QUERY * max_rows, seed=seed)
    asked = {"synthetic": synthetic, "holdout": holdout}
    features = searched.features() if distances else None
    known = fingerprints(real)
    found = {name: _closeness(known, features, t, max_rows, seed) for name, t in asked.items() if t is not None}
    return Result(
        scores={
            "dcr_ratio": _ratio(found["synthetic"], found.get("holdout")) if distances else Score.none(ONLY_COPIES),
            "exact_copies": Score(found["synthetic"]["exact_copies"]),
        },
        settings={
            "real_rows": real.num_rows,
            "synthetic_rows": synthetic.num_rows,
            "holdout_rows": None if holdout is None else holdout.num_rows,
            "max_rows": max_rows,
            "distances": distances,
            "seed": seed,
            "real_rows_searched": searched.num_rows,
            "synthetic_rows_asked": min(max_rows, synthetic.num_rows),
            "holdout_rows_asked": None if holdout is None else min(max_rows, holdout.num_rows),
        },
        details=found,
        notes=(NOT_PRIVACY,),
    )


def _closeness(
    known: np.ndarray, searched: np.ndarray | None, table: Judged, max_rows: int, seed: int
) -> dict[str, float]:
    copies = {"exact_copies": float(np.isin(fingerprints(table), known).mean())}
    if searched is None:
        return copies
    distances = _nearest(searched, table.at_most(max_rows, seed=seed).features())
    return {"mean": float(distances.mean()), "median": float(np.median(distances)), **copies}


def _nearest(rows: Float[np.ndarray, "rows f"], asked: Float[np.ndarray, "asked f"]) -> Float[np.ndarray, " asked"]:
    from sklearn.neighbors import NearestNeighbors

    index = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(rows)
    near = index.kneighbors(asked, return_distance=False)[:, 0]
    # Computed again: the search subtracts large squares, and would put copies at a small distance.
    return np.linalg.norm(asked.astype(np.float64) - rows[near], axis=1)


def _ratio(synthetic: dict[str, float], holdout: dict[str, float] | None) -> Score:
    if holdout is None:
        return Score.none("There are no held-out real rows to compare with.")
    if not holdout["median"]:
        return Score.none(
            "Most held-out real rows equal one of the other real rows in all features, so the distances of synthetic"
            " rows have nothing to be measured by."
        )
    return Score(synthetic["median"] / holdout["median"])


def seen_share(real: Judged, holdout: Judged) -> tuple[float, float]:
    """The share of held-out rows that equal a real row; and of real rows that equal another: what chance gives."""
    known = fingerprints(real)
    _, places, counts = np.unique(known, return_inverse=True, return_counts=True)
    return float(np.isin(fingerprints(holdout), known).mean()), float((counts[places] > 1).mean())


def fingerprints(table: Judged) -> UInt64[np.ndarray, " rows"]:
    """A 64-bit hash of each row: two different rows of a billion collide with a chance of a few per cent."""
    state = np.full(table.num_rows, 0x9E3779B97F4A7C15, dtype=np.uint64)
    for trait in table.layout.traits:
        values = table[trait.name].astype(np.float64) + 0.0  # -0.0 is 0.0
        values[np.isnan(values)] = np.nan  # one pattern of bits
        state ^= values.view(np.uint64)
        # The finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = (state ^ (state >> np.uint64(31))) + np.uint64(0x9E3779B97F4A7C15)
    return state


METRICS: tuple[Metric, ...] = (
    Metric(
        key="invalid_cells",
        title="Invalid cells",
        direction=LOWER,
        low=0.0,
        high=1.0,
        meaning="The share of cells whose value is out of range, not listed, or missing where no real one is.",
    ),
    Metric(
        key="out_of_range",
        title="Numbers out of range",
        direction=LOWER,
        low=0.0,
        high=1.0,
        meaning="The share of the cells of numeric columns that lie outside the declared, or else the real, range.",
    ),
    Metric(
        key="unlisted",
        title="Unlisted categories",
        direction=LOWER,
        low=0.0,
        high=1.0,
        meaning="The share of the cells of discrete columns with a value that is not declared, or else not a real one.",
    ),
    Metric(
        key="unexpected_nulls",
        title="Unexpected missing values",
        direction=LOWER,
        low=0.0,
        high=1.0,
        meaning="The share of missing cells in the columns of which no real value is missing.",
    ),
    Metric(
        key="impossible_pairs",
        title="Rows with a pair never seen",
        direction=NEAR_REAL,
        low=0.0,
        high=1.0,
        meaning="The share of rows that hold two values no real row holds together. A pair that is rare but possible"
        " counts too, so fresh real rows do not score 0: compare with theirs.",
    ),
    Metric(
        key="constraint_violations",
        title="Broken conditions",
        direction=LOWER,
        low=0.0,
        high=1.0,
        meaning="The share of rows that break at least one of the conditions that were given. A condition that cannot"
        " be decided because a value is missing is not broken.",
    ),
    Metric(
        key="dcr_ratio",
        title="Distance to the closest real row",
        direction=NEAR_ONE,
        low=0.0,
        high=math.inf,
        meaning="The typical distance of a synthetic row to its nearest real row, over that of a held-out real row to"
        " the other real rows. Above 1: less like real rows than held-out ones are. This is fidelity, and proves"
        " nothing about privacy.",
    ),
    Metric(
        key="exact_copies",
        title="Rows equal to a real row",
        direction=NEAR_REAL,
        low=0.0,
        high=1.0,
        meaning="The share of rows that equal a real row in every judged column. Held-out real rows have such twins"
        " among the others too: compare with theirs. This proves nothing about privacy.",
    ),
)
