"""The figures of the QUAIL paper beside ours, from committed results."""

import csv
import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.rows import RESULTS, Row, joined, mean, read

SUITE = "understudy benchmark run quail-paper"
PAGE = "[all cells](../../benchmarks/results/suite_quail-paper.md)"
TABLES = {"Q1": "car", "Q2": "mushroom", "Q4": "adult", "Q5": "bank", "Q6": "shopping"}
FIGURES = {
    "Q1": "Figures 3, 28b and 29a",
    "Q2": "Figures 4, 28a and 29b",
    "Q4": "Figures 30 and 31a",
    "Q5": "Figures 31b and 32",
    "Q6": "Figures 33 and 34",
}
INNER = ("patectgan", "mwem", "dpctgan", "dpgan", "pategan")
TEN = (*INNER, *(f"quail({name})" for name in INNER))
ALONE = "learner alone"


def rows() -> list[Row]:
    return [*_suite_rows(), _sra_row(), *_internal_rows(), *_regression_rows(), *_split_rows(), *_other_rows()]


def verdicts() -> list[tuple[str, str]]:
    found = [
        _punchlines(),
        _quail_as_published(),
        _grid(),
        _splits(),
        _scales(),
        _best_internal(),
        _best_regression(),
        _fewer_steps(),
    ]
    return [each for each in found if each]


def pictures() -> dict[str, str]:
    """Those whose results are committed."""
    found = {}
    for size in _split_sizes():
        found[f"quail_splits_{size // 1000}k.svg"] = f"Q10: F1 of the learner alone minus F1 of QUAIL, {size:,} rows"
    for name, title in (("scales", "Q12: F1 by rows"), ("regression", "Q9: RMSE by epsilon")):
        if _lines(f"quail_{name}"):
            found[f"quail_{name}.svg"] = title
    return found


# ---------------------------------------------------------------------------------------------------------- the suite


@functools.cache
def _records() -> list[dict[str, Any]]:
    from understudy.benchmark.results import read_records

    source = RESULTS / "suites" / "quail-paper.parquet"
    return [dict(record) for record in read_records(source)] if source.exists() else []


def _published(name: str) -> list[dict[str, str]]:
    text = (Path(__file__).parent / "figures" / f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _suite_rows() -> list[Row]:
    records = _records()
    seeds = str(len({record["seed"] for record in records if record["epsilon"] is not None}))
    found = []
    for number, table in TABLES.items():
        printed = {
            row["metric"]: row["printed"] + (" (printed inverted)" if row["is_inverted"] == "yes" else "")
            for row in _published("quail_real")
            if row["table"] == table
        }
        real = [r["metrics"] for r in records if r["table"] == table and r["epsilon"] is None]
        ours = joined([mean([m[key] for m in real if key in m], 2) for key in ("f1", "auc")])
        found.append(
            Row(
                id=f"{number}, Q3" if number == "Q1" else number,
                what=f"{FIGURES[number]}, {table}: F1 / AUC of real rows, and of the best method; all methods and "
                f"epsilons: {PAGE}",
                published=joined([printed.get("f1", ""), printed.get("auc", "")]),
                as_published="; ".join(filter(None, (f"real rows {ours}" if ours else "", _best_published(table)))),
                sound=_best(records, table),
                seeds=seeds,
                command=SUITE + ("; as_published.py" if _best_published(table) else ""),
            )
        )
    return found


def _best_published(table: str) -> str:
    """The same of the paper's networks, noise and schedules."""
    lines = [line for line in _lines("quail_as_published") if line["table"] == table]
    records = [{**line, "metrics": line["scores"]} for line in lines]
    return _best(records, table)


def _quail_as_published() -> tuple[str, str] | None:
    """QUAIL against its inner method, both with the paper's networks and kinds of noise."""
    lines = _lines("quail_as_published")
    places = sorted({(x["table"], x["epsilon"]) for x in lines if x["epsilon"] != float("inf")})
    pairs = [
        [float(np.mean(_values(lines, "f1", table=t, epsilon=e, method=name))) for name in (f"quail({inner})", inner)]
        for t, e in places
        for inner in INNER
        if _values(lines, "f1", table=t, epsilon=e, method=f"quail({inner})")
    ]
    if not pairs:
        return None
    won = sum(quail > plain for quail, plain in pairs)
    quail, plain = (float(np.median([pair[at] for pair in pairs])) for at in (0, 1))
    where = " and ".join(dict.fromkeys(t for t, _ in places))
    return (
        "QUAIL improves the paper's synthesizers as published.",
        f"On {where} F1 is higher with QUAIL than without it in {won} of {len(pairs)} combinations of table, "
        f"synthesizer and epsilon (medians {quail:.2f} and {plain:.2f}, "
        "[all figures](../../benchmarks/results/quail_as_published.md)).",
    )


def _best(records: Sequence[dict[str, Any]], table: str) -> str:
    """The method with the best mean F1, and its AUC, at two epsilons."""
    parts = []
    for epsilon in (1.0, 9.0):
        methods: dict[str, list[dict[str, float]]] = {}
        for record in records:
            if record["table"] == table and record["epsilon"] == epsilon and "f1" in record["metrics"]:
                methods.setdefault(record["method"], []).append(record["metrics"])
        if methods:
            best = max(methods, key=lambda name: float(np.mean([m["f1"] for m in methods[name]])))
            figures = joined([mean([m[key] for m in methods[best] if key in m], 2) for key in ("f1", "auc")])
            parts.append(f"epsilon {epsilon:g}: {best} {figures}")
    return "; ".join(parts)


def _sra_row() -> Row:
    printed = {(r["table"], r["method"], float(r["epsilon"])): float(r["sra"]) for r in _published("quail_sra")}
    ours: dict[tuple[str, str, float], list[float]] = {}
    for record in _records():
        at = (record["table"], record["method"], record["epsilon"])
        if at in printed and "sra" in record["metrics"]:
            ours.setdefault(at, []).append(record["metrics"]["sra"])
    return Row(
        id="Q7",
        what=f"SRA tables, five classifiers, mean over {len(ours)} of {len(printed)} cells: {PAGE}",
        published=mean([printed[at] for at in ours], 2),
        sound=mean([float(np.mean(values)) for values in ours.values()], 2),
        seeds=str(max((len(values) for values in ours.values()), default=0) or ""),
        command=SUITE,
    )


def _punchlines() -> tuple[str, str]:
    page = (RESULTS / "suite_quail-paper.md").read_text(encoding="utf-8")
    found = re.search(r"Of the paper's six punchlines, .*?\.\n", page)
    return "The six punchlines.", f"{found.group(0).strip()} Details: {PAGE}." if found else "Not run."


# -------------------------------------------------------------------------------------------------------- other results


def _lines(name: str) -> list[dict[str, Any]]:
    return [line for line in read(name) if "scores" in line]


def _values(lines: Sequence[dict[str, Any]], score: str, **which: Any) -> list[float]:
    return [
        float(line["scores"][score])
        for line in lines
        if line["scores"].get(score) is not None and all(line[key] == value for key, value in which.items())
    ]


def _seeds(lines: Sequence[dict[str, Any]]) -> str:
    counts: dict[tuple[Any, ...], int] = {}
    for line in lines:
        at = (line["table"], line["method"], line["epsilon"])
        if line["epsilon"] != float("inf"):
            counts[at] = counts.get(at, 0) + 1
    low, high = (min(counts.values()), max(counts.values())) if counts else (0, 0)
    return "" if not high else str(high) if low == high else f"{low} to {high}"


def _signed(difference: Any) -> str:
    """With three digits and a sign; zero is positive."""
    return f"{round(float(difference), 3) + 0.0:+.3f}"


def _leaders(lines: Sequence[dict[str, Any]], score: str, *, highest: bool) -> dict[float, tuple[str, float]]:
    """The best of the paper's ten methods at each epsilon, where most of them were run."""
    found = {}
    for epsilon in sorted({line["epsilon"] for line in lines if line["epsilon"] != float("inf")}):
        every = {name: _values(lines, score, method=name, epsilon=epsilon) for name in TEN}
        means = {name: values for name, values in every.items() if values}
        if len(means) > len(TEN) / 2:
            order = sorted(means, key=lambda name: float(np.mean(means[name])), reverse=highest)
            found[epsilon] = (order[0], float(np.mean(means[order[0]])))
    return found


def _not_run(lines: Sequence[dict[str, Any]]) -> str:
    """Which of the ten methods have no line, as a clause."""
    missing = [name for name in TEN if not any(line["method"] == name for line in lines)]
    return f" ({' and '.join(missing)} not run)" if missing and lines else ""


def _internal_rows() -> list[Row]:
    lines = _lines("quail_internal")
    parts = [f"epsilon {e:g}: {name} {value:.3f}" for e, (name, value) in _leaders(lines, "f1", highest=True).items()]
    return [
        Row(
            id="Q8",
            what="Figures 5a, 26 and 27a, internal classification table (a simulated substitute): best F1"
            + _not_run(lines),
            sound="; ".join(parts),
            seeds=_seeds(lines),
            command="internal.py",
        )
    ]


def _best_internal() -> tuple[str, str] | None:
    leaders = _leaders(_lines("quail_internal"), "f1", highest=True)
    if not leaders:
        return None
    won = sum(name == "quail(dpctgan)" for name, _ in leaders.values())
    return (
        "QUAIL around DP-CTGAN is best on the internal table.",
        f"Here it is at {won} of {len(leaders)} epsilons (Q8).",
    )


def _regression_rows() -> list[Row]:
    lines = _lines("quail_regression")
    epsilons = (0.5, 1.0, 3.0, 10.0)

    def figures(method: str) -> str:
        return joined([mean(_values(lines, "rmse", method=method, epsilon=e), 2) for e in epsilons])

    names = [name for name in (ALONE, "patectgan", "quail(patectgan)", "quail(independent)") if figures(name)]
    real = mean(_values(lines, "rmse", method="real rows"), 2)
    parts = [f"{name} {figures(name)}" for name in names] + ([f"real rows {real}"] if real and names else [])
    return [
        Row(
            id="Q9",
            what="Figures 5b and 27b, internal regression table (a simulated substitute): RMSE at epsilon "
            "0.5 / 1 / 3 / 10",
            sound="; ".join(parts),
            seeds=_seeds(lines) if names else "",
            command="regression.py",
        )
    ]


def _best_regression() -> tuple[str, str] | None:
    lines = _lines("quail_regression")
    leaders = _leaders(lines, "rmse", highest=False)
    if not leaders:
        return None
    pairs = [
        (np.mean(_values(lines, "rmse", method=f"quail({name})", epsilon=epsilon)), values)
        for epsilon in leaders
        for name in INNER
        if (values := np.mean(_values(lines, "rmse", method=name, epsilon=epsilon)))
    ]
    better = sum(quail < plain for quail, plain in pairs)
    best = "; ".join(f"{name} at epsilon {epsilon:g}" for epsilon, (name, _) in leaders.items())
    return (
        "For a numeric target PATE-CTGAN is best, and QUAIL is poor below epsilon 10.",
        f"Of the paper's ten methods, these have the lowest RMSE here: {best}. QUAIL has a lower RMSE than its inner "
        f"method by itself in {better} of {len(pairs)} pairs (Q9).",
    )


def _difference(
    lines: Sequence[dict[str, Any]], table: str, inner: str, epsilon: float, fraction: float
) -> float | None:
    """F1 of the learner alone less that of QUAIL, over the seeds that have both."""
    alone = {x["seed"]: x["scores"]["f1"] for x in lines if _at(x, table, ALONE, epsilon)}
    quail = {x["seed"]: x["scores"]["f1"] for x in lines if _at(x, table, f"quail({inner}), {fraction:g}", epsilon)}
    both = sorted(set(alone) & set(quail))
    return float(np.mean([alone[seed] - quail[seed] for seed in both])) if both else None


def _at(line: dict[str, Any], table: str, method: str, epsilon: float) -> bool:
    return bool(line["table"] == table and line["method"] == method and line["epsilon"] == epsilon)


def _split_sizes() -> list[int]:
    """Numbers of rows for which QUAIL was run."""
    return sorted({int(x["table"].removeprefix("classes_")) for x in _lines("quail_splits") if x["method"] != ALONE})


def _split_rows() -> list[Row]:
    lines = _lines("quail_splits")
    found = []
    for inner in INNER:
        parts = []
        for size in _split_sizes():
            values = [_difference(lines, f"classes_{size}", inner, 3.0, fraction) for fraction in (0.1, 0.5, 0.9)]
            if any(value is not None for value in values):
                parts.append(f"{size:,} rows {joined([f'{v:+.3f}' if v is not None else '' for v in values])}")
        own = [line for line in lines if line["method"].startswith(f"quail({inner})")]
        found.append(
            Row(
                id="Q10",
                what=f"Figures 6, 7 and 11 to 25, {inner} inside, epsilon 3: F1 of the learner alone minus F1 of a "
                "random forest on QUAIL's rows (positive: QUAIL is worse), learner's fraction 0.1 / 0.5 / 0.9",
                sound="; ".join(parts),
                seeds=_seeds(own),
                command="splits.py",
            )
        )
    return found


def _splits() -> tuple[str, str] | None:
    lines = _lines("quail_splits")
    grid = [(f"classes_{n}", inner, e) for n in _split_sizes() for inner in INNER for e in (1.0, 3.0, 10.0)]
    pairs = [(_difference(lines, *at, 0.1), _difference(lines, *at, 0.9)) for at in grid]
    known = [(low, high) for low, high in pairs if low is not None and high is not None]
    if not known:
        return None
    larger = sum(high < low for low, high in known)
    won = sum(high < 0 for _, high in known)
    return (
        "A larger fraction for the learner is better, and QUAIL exceeds the learner alone on large tables.",
        f"Fraction 0.9 is better than 0.1 in {larger} of {len(known)} combinations of table, synthesizer and epsilon; "
        f"at 0.9 QUAIL exceeds the learner alone in {won} of them (Q10).",
    )


def _other_rows() -> list[Row]:
    lines = _lines("quail_scales")
    tables = ("classes_20000", "classes_50000", "classes_100000")

    def figures(score: str, method: str, epsilon: float) -> str:
        return joined([mean(_values(lines, score, table=t, method=method, epsilon=epsilon)) for t in tables])

    parts = {
        "alone": figures("f1", ALONE, 3.0),
        "inside": figures("inside", "quail(patectgan)", 3.0),
        "forest": figures("f1", "quail(patectgan)", 3.0),
    }
    hours = {row["table"]: row["hours"] for row in _published("quail_hours")}
    return [
        Row(id="Q11", what="Figures 8 and 9, t-SNE", sound="plot below", seeds="1", command="views.py"),
        Row(
            id="Q12",
            what="Figure 10, F1 at 20,000 / 50,000 / 100,000 rows, patectgan inside: learner alone, learner inside, "
            "forest on QUAIL's rows",
            published="forest about 0.03 above at 50,000 and more",
            sound="; ".join(f"{name} {part}" for name, part in parts.items() if part),
            seeds=_seeds(lines),
            command="scales.py",
        ),
        Row(
            id="Q13",
            what="Table 1, training time by the learner's fraction, epsilon 3: by itself / 0.5 / 0.9",
            published="seconds of dpgan 1130 / 305 / –; of dpctgan 15689 / 4478 / 199?",
            as_published=_times(),
            seeds="none needed",
            command="times.py",
        ),
        Row(
            id="Q14",
            what="hours of a run of all methods: car / mushroom / bank / adult / shopping",
            published=joined([hours.get(t, "") for t in ("car", "mushroom", "bank", "adult", "shopping")]),
            sound=f"{PAGE}, other hardware",
            seeds="3",
            command=SUITE,
        ),
    ]


def _times() -> str:
    """Steps, and seconds where they were taken, by itself and by two fractions of the learner."""
    lines = [line for line in read("quail_times") if line["epsilon"] == 3.0]
    parts = []
    for method in ("dpgan", "dpctgan"):
        by_fraction = {line["fraction"]: line for line in lines if line["method"] == method}
        found = [by_fraction.get(fraction, {}) for fraction in (0.0, 0.5, 0.9)]
        seconds = joined([f"{each['seconds']:.0f}" if "seconds" in each else "" for each in found])
        steps = joined([f"{each['steps']:,}" if "steps" in each else "" for each in found])
        parts += [f"seconds of {method} {seconds}"] * bool(seconds) + [f"steps of {method} {steps}"] * bool(steps)
    return "; ".join(parts)


def _fewer_steps() -> tuple[str, str] | None:
    lines = read("quail_times")
    steps = {(x["method"], x["epsilon"], x["fraction"]): x["steps"] for x in lines}
    pairs = [(steps[m, e, 0.5] / plain, steps[m, e, 0.9] / plain) for (m, e, f), plain in steps.items() if not f]
    if not pairs:
        return None
    half, most = (float(np.median([pair[at] for pair in pairs])) for at in (0, 1))
    return (
        "QUAIL makes training faster, more so with a larger learner's fraction.",
        f"With the paper's noise multipliers the steps of DPGAN and DP-CTGAN fall to {half:.0%} at fraction 0.5 and to "
        f"{most:.0%} at 0.9 (medians); with this package's defaults steps are fixed, and none is saved (Q13).",
    )


def _scales() -> tuple[str, str] | None:
    lines = _lines("quail_scales")
    parts = []
    for table in ("classes_20000", "classes_50000", "classes_100000"):
        alone = _values(lines, "f1", table=table, method=ALONE, epsilon=3.0)
        inside = _values(lines, "inside", table=table, method="quail(patectgan)")
        forest = _values(lines, "f1", table=table, method="quail(patectgan)")
        if alone and inside and forest:
            size = int(table.removeprefix("classes_"))
            parts.append(
                f"at {size:,} rows {_signed(np.mean(inside) - np.mean(alone))} for the learner inside and "
                f"{_signed(np.mean(forest) - np.mean(alone))} for the forest"
            )
    if not parts:
        return None
    claim = "From 50,000 rows on the learner inside matches the learner alone, and a forest on QUAIL's rows gains 0.03."
    return claim, f"F1 here minus F1 of the learner alone: {'; '.join(parts)} (Q12)."


def _grid() -> tuple[str, str] | None:
    from benchmarks.papers.quail.grid import complete_grids, explained, trained_learners

    lines = _lines("quail_grid")
    grids = list(complete_grids(lines).values()) if lines else []
    if not grids:
        return None
    parts = []
    for which, found in (
        ("with `prior`, which learns class frequencies alone:", [explained(grid) for grid in grids]),
        ("without it:", [explained(trained_learners(grid)) for grid in grids]),
    ):
        learner, inner = (float(np.median([each[at] for each in found])) for at in (0, 1))
        more = sum(each[0] > each[1] for each in found)
        parts.append(
            f"{which} {learner:.0%} and {inner:.0%} (larger for the learner in {more} of {len(grids)} pairs of table "
            "and epsilon)"
        )
    return (
        "QUAIL depends far more on the learner than on the synthesizer (punchline 5).",
        f"Proportion of the variation of F1 explained by the learner and by the synthesizer: {'; '.join(parts)}. "
        "Medians over tables and epsilons, [all cells](../../benchmarks/results/quail_grid.md).",
    )
