"""The page of a utility benchmark, with a comparison of one method with the others. Reads only results.

A *cell* is a table at an epsilon; its figures are means over seeds. Standard errors are those of the difference of two
means; with a single seed they are 0.
"""

import dataclasses
import datetime
import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

FIGURES = {
    "auc": "AUC",
    "f1": "F1",
    "r2": "R2",
    "tvd1": "tvd1",
    "tvd2": "tvd2",
    "worst2": "worst2",
    "v_loss": "V loss",
    "v_worst": "worst V loss",
    "tvd3": "tvd3",
}
HIGHER_IS_BETTER = frozenset({"auc", "f1", "r2"})
TASK = ("auc", "r2")
"""The figure for prediction; each table has one of them, or none."""
MARGIN, RATIO, ERRORS = 0.005, 1.05, 2.0
"""A cell is lost if its prediction is worse by more than the margin, or its error is larger by more than the ratio, in
both cases by more than two standard errors."""
REAL = "real data"
"""The training rows scored as if they were synthetic: they have no epsilon and are left out of comparisons."""

Result = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Runs:
    """The runs of one method in one cell, one for each seed."""

    results: tuple[Result, ...]

    @property
    def good(self) -> list[Result]:
        return [result for result in self.results if "failed" not in result]

    def values(self, figure: str) -> list[float]:
        return [result[figure] for result in self.good if figure in result]

    def mean(self, figure: str) -> float:
        """NaN if no run has this figure."""
        values = self.values(figure)
        return statistics.fmean(values) if values else math.nan

    def squared_error(self, figure: str) -> float:
        """The squared standard error of the mean."""
        values = self.values(figure)
        return statistics.variance(values) / len(values) if len(values) > 1 else 0.0


Cell = Mapping[str, Runs]
Cells = Mapping[tuple[str, float | None], Cell]


@dataclasses.dataclass(frozen=True)
class Lost:
    """A cell in which the method is behind the best other one."""

    table: str
    epsilon: float
    figure: str
    mean: float
    best: float
    best_method: str


def group_results(results: Iterable[Result]) -> dict[tuple[str, float | None], dict[str, Runs]]:
    """The runs of each cell and method.

    >>> cells = group_results([{"table": "car", "epsilon": 1.0, "method": "mst", "seed": 0, "auc": 0.9}])
    >>> cells["car", 1.0]["mst"].mean("auc")
    0.9
    """
    groups: dict[tuple[str, float | None], dict[str, list[Result]]] = {}
    for result in results:
        methods = groups.setdefault((result["table"], result["epsilon"]), {})
        methods.setdefault(result["method"], []).append(result)
    return {cell: {method: Runs(tuple(runs)) for method, runs in methods.items()} for cell, methods in groups.items()}


def compared(cells: Cells, method: str) -> Iterator[tuple[str, float, Runs, dict[str, Runs]]]:
    """Cells with runs of this method and of others: table, epsilon, its runs, theirs."""
    for (table, epsilon), runs in sorted(cells.items(), key=_order):
        others = {name: each for name, each in runs.items() if name not in (method, REAL)}
        if epsilon is not None and method in runs and others:
            yield table, epsilon, runs[method], others


def gap(ours: Runs, theirs: Runs, figure: str) -> tuple[float, float]:
    """By how much our mean is worse than theirs, and the standard error of that. A failure is infinitely worse."""
    if not ours.values(figure):
        return math.inf, 0.0
    if not theirs.values(figure):
        return -math.inf, 0.0
    sign = 1 if figure in HIGHER_IS_BETTER else -1
    error = math.sqrt(ours.squared_error(figure) + theirs.squared_error(figure))
    return sign * (theirs.mean(figure) - ours.mean(figure)), error


def best_of(others: Mapping[str, Runs], figure: str) -> str | None:
    """The method with the best mean, None if no method has the figure."""
    known = {name: runs.mean(figure) for name, runs in others.items() if runs.values(figure)}
    choose = max if figure in HIGHER_IS_BETTER else min
    return choose(known, key=lambda name: known[name]) if known else None


def task_figure(runs: Iterable[Runs]) -> str | None:
    """AUC or R2, whichever these runs have; None for a table without a target."""
    return next((figure for figure in TASK for each in runs if each.values(figure)), None)


def compared_figures(cells: Cells, method: str) -> Iterator[tuple[str, float, str, Runs, dict[str, Runs]]]:
    """Each cell once for its prediction, if it has one, and once for its 2-way error."""
    for table, epsilon, ours, others in compared(cells, method):
        for figure in (task_figure([ours, *others.values()]), "tvd2"):
            if figure is not None and best_of(others, figure) is not None:
                yield table, epsilon, figure, ours, others


def lost_cells(cells: Cells, method: str) -> list[Lost]:
    """Cells in which this method is behind the best other one by more than the rule allows (see `MARGIN`)."""
    found = []
    for table, epsilon, figure, ours, others in compared_figures(cells, method):
        best = best_of(others, figure)
        assert best is not None
        behind, error = gap(ours, others[best], figure)
        allowed = MARGIN if figure in TASK else (RATIO - 1) * others[best].mean(figure)
        if behind > allowed and behind > ERRORS * error:
            found.append(Lost(table, epsilon, figure, ours.mean(figure), others[best].mean(figure), best))
    return found


def count_wins(cells: Cells, method: str, rival: str, figure: str, epsilon: float) -> tuple[int, int, int, int]:
    """Cells in which this method's mean is better and worse than the rival's, and those beyond two standard errors.

    A method that failed is worse than one that did not.
    """
    wins = losses = clear_wins = clear_losses = 0
    for _, at, ours, others in compared(cells, method):
        if at != epsilon or rival not in others or not (ours.values(figure) or others[rival].values(figure)):
            continue
        behind, error = gap(ours, others[rival], figure)
        wins, losses = wins + (behind < 0), losses + (behind > 0)
        clear_wins += behind < 0 and -behind > ERRORS * error
        clear_losses += behind > 0 and behind > ERRORS * error
    return wins, losses, clear_wins, clear_losses


def mean_ranks(cells: Cells, methods: Sequence[str]) -> dict[str, tuple[dict[str, float], int]]:
    """The mean rank of each method for the prediction ("task") and for "tvd2", and the number of cells.

    1 is the best. Equal means share their ranks, failed methods the last ones. Only cells with all methods count.
    """
    ranks: dict[str, list[list[float]]] = {"task": [], "tvd2": []}
    for _, runs in sorted(cells.items(), key=_order):
        if not set(methods) <= set(runs):
            continue
        entered = [runs[method] for method in methods]
        for key, figure in (("task", task_figure(entered)), ("tvd2", "tvd2")):
            if figure is not None and any(each.values(figure) for each in entered):
                ranks[key].append(_ranks(entered, figure))
    return {
        key: (
            {method: statistics.fmean(column) for method, column in zip(methods, zip(*rows, strict=True), strict=True)},
            len(rows),
        )
        for key, rows in ranks.items()
        if rows
    }


def _ranks(entered: Sequence[Runs], figure: str) -> list[float]:
    worst = -math.inf if figure in HIGHER_IS_BETTER else math.inf
    means = [runs.mean(figure) if runs.values(figure) else worst for runs in entered]
    losses = [-mean if figure in HIGHER_IS_BETTER else mean for mean in means]
    return [1 + sum(x < loss for x in losses) + (losses.count(loss) - 1) / 2 for loss in losses]


def worst_ratios(cells: Cells, method: str, figure: str) -> dict[tuple[str, float], float]:
    """The mean of this method over that of the best other one, by table and epsilon: below 1 it is the best."""
    ratios = {}
    for table, epsilon, ours, others in compared(cells, method):
        best = best_of(others, figure)
        if best is not None and ours.values(figure) and others[best].mean(figure) > 0:
            ratios[table, epsilon] = ours.mean(figure) / others[best].mean(figure)
    return ratios


def as_markdown(results: Sequence[Result], name: str, suite: Mapping[str, Any], *, earlier: int = 0) -> str:
    """The page: one line for each cell and method, and a comparison if the suite names two methods.

    `earlier` is the number of results that were run with an earlier revision of their method.
    """
    cells = group_results(results)
    sections = [_heading(results, name, suite, earlier)]
    if "compare" in suite:
        method, rival = suite["compare"]
        epsilons = sorted({epsilon for _, epsilon in cells if epsilon is not None})
        sections += [
            _wins_section(cells, method, rival, epsilons),
            _lost_section(cells, method, epsilons),
            _ranks_section(cells, _methods_run(results, suite["methods"])),
            _ratios_section(cells, method, epsilons),
            ["## All results"],
        ]
    sections.append(_results_table(cells, suite["methods"]))
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def _methods_run(results: Sequence[Result], methods: Sequence[str]) -> list[str]:
    """The methods with results in at least half of the cells, in the order of the suite, without real data."""
    cells = {method: {(r["table"], r["epsilon"]) for r in results if r["method"] == method} for method in methods}
    all_cells = set().union(*(found for method, found in cells.items() if method != REAL))
    return [method for method in methods if method != REAL and len(cells[method]) >= len(all_cells) / 2]


def _heading(results: Sequence[Result], name: str, suite: Mapping[str, Any], earlier: int) -> list[str]:
    machines = sorted({result["machine"] for result in results if "machine" in result})
    lines = [
        f"# {suite['title']}",
        "",
        "Seeded runs on public data with declared schemas; means over the seeds. Delta is 1e-5, or 1e-6 for tables of "
        "more than 100,000 rows. The figures are explained in [scorer.py](../scorer.py). Seconds are for fitting and "
        "sampling, on shared machines.",
    ]
    if any("worst2" not in result for result in results if "failed" not in result):
        lines[-1] += (
            " Runs without worst2 predate that scorer: for tables without a target, their tvd2 is over all pairs or "
            "500 fixed ones, and their tvd3 over 500 fixed sets of three columns. Some ran one after the other in "
            "one process, and so did not compile again."
        )
    if any(result["method"] == REAL for result in results):
        lines[-1] += f" *{REAL}*: the training rows, scored as if they were synthetic."
    if earlier:
        lines += [
            "",
            f"**{earlier:,} of the {len(results):,} results were run with an earlier revision of their method**: today "
            "it would give slightly different ones. The command below runs them again.",
        ]
    return [
        *lines,
        "",
        f"Command: `python benchmarks/utility.py {name}`, in several runs. "
        f"Date: {datetime.date.today()}. Machines: {'; '.join(machines)}.",
    ]


def _wins_section(cells: Cells, method: str, rival: str, epsilons: Sequence[float]) -> list[str]:
    lines = [
        f"## `{method}` against `{rival}`",
        "",
        f"The number of tables on which the mean of `{method}` is better : worse; in parentheses, by more than two "
        "standard errors of the difference. A method that failed is worse than one that did not.",
        "",
        _header(["figure", *(f"epsilon {epsilon:g}" for epsilon in epsilons)], texts=1),
    ]
    for figure, label in FIGURES.items():
        if not any(ours.values(figure) for _, _, ours, _ in compared(cells, method)):
            continue
        counts = [count_wins(cells, method, rival, figure, epsilon) for epsilon in epsilons]
        lines.append(_line([label, *(f"{a} : {b} ({c} : {d})" for a, b, c, d in counts)]))
    return lines


def _lost_section(cells: Cells, method: str, epsilons: Sequence[float]) -> list[str]:
    candidates = [(table, epsilon, figure) for table, epsilon, figure, _, _ in compared_figures(cells, method)]
    lost = lost_cells(cells, method)
    missed = {(each.table, each.epsilon, each.figure) for each in lost}
    lines = [
        f"## Cells that `{method}` lost",
        "",
        "A cell is a table at an epsilon. AUC or R2 is lost if it is more than "
        f"{MARGIN:g} below that of the best other method, and tvd2 if it is more than {RATIO:g} times that of the "
        f"best, in both cases by more than {ERRORS:g} standard errors of the difference.",
        "",
        _header(["lost", *(f"epsilon {epsilon:g}" for epsilon in epsilons), "all"], texts=1),
    ]
    for label, figures in (("AUC or R2", TASK), ("tvd2", ("tvd2",)), ("either", (*TASK, "tvd2"))):
        shown = []
        for chosen in (*([epsilon] for epsilon in epsilons), epsilons):
            asked = {(t, e) for t, e, figure in candidates if e in chosen and figure in figures}
            gone = {(t, e) for t, e, figure in missed if e in chosen and figure in figures}
            shown.append(f"{len(gone)} of {len(asked)} ({len(gone) / len(asked):.0%})" if asked else "")
        lines.append(_line([label, *shown]))
    if lost:
        lines += ["", _header(["table", "epsilon", "figure", f"`{method}`", "best", "method"], texts=1)]
    for each in lost:
        mean = "failed" if math.isnan(each.mean) else f"{each.mean:.4f}"
        shown = [f"{each.epsilon:g}", FIGURES[each.figure], mean, f"{each.best:.4f}", each.best_method]
        lines.append(_line([each.table, *shown]))
    return lines


def _ranks_section(cells: Cells, methods: Sequence[str]) -> list[str]:
    ranks = mean_ranks(cells, methods)
    labels = {"task": "AUC or R2", "tvd2": "tvd2"}
    lines = [
        "## Mean ranks",
        "",
        f"1 is the best of {len(methods)}; failed methods share the last ranks. Only cells with all methods count.",
        "",
        _header(["method", *(f"{labels[key]}, {count} cells" for key, (_, count) in ranks.items())], texts=1),
    ]
    return lines + [_line([method, *(f"{means[method]:.2f}" for means, _ in ranks.values())]) for method in methods]


def _ratios_section(cells: Cells, method: str, epsilons: Sequence[float]) -> list[str]:
    columns = list(itertools.product(("worst2", "v_worst"), epsilons))
    ratios = {figure: worst_ratios(cells, method, figure) for figure in ("worst2", "v_worst")}
    tables = sorted({table for each in ratios.values() for table, _ in each})
    lines = [
        "## Largest errors",
        "",
        f"The mean of `{method}` divided by that of the best other method, for the largest 2-way error and the largest "
        f"loss of Cramer's V. Below 1, `{method}` is the best.",
        "",
        _header(["table", *(f"{FIGURES[figure]}, epsilon {epsilon:g}" for figure, epsilon in columns)], texts=1),
    ]
    for table in tables:
        found = [ratios[figure].get((table, epsilon)) for figure, epsilon in columns]
        lines.append(_line([table, *("" if ratio is None else f"{ratio:.2f}" for ratio in found)]))
    middles = []
    for figure, epsilon in columns:
        values = [ratio for (_, at), ratio in ratios[figure].items() if at == epsilon]
        middles.append(f"{statistics.median(values):.2f}" if values else "")
    return [*lines, _line(["*median*", *middles])]


def _results_table(cells: Cells, methods: Sequence[str]) -> list[str]:
    every = [runs for cell in cells.values() for runs in cell.values()]
    figures = [figure for figure in FIGURES if any(runs.values(figure) for runs in every)]
    labels = [FIGURES[figure] for figure in figures]
    lines = [_header(["table", "epsilon", "method", "seeds", *labels, "CPU s", "wall s"], texts=4)]
    order = {method: place for place, method in enumerate(methods)}
    for (table, epsilon), runs in sorted(cells.items(), key=_order):
        for method in sorted(runs, key=lambda name: (order.get(name, len(order)), name)):
            each, start = runs[method], [table, "" if epsilon is None else f"{epsilon:g}", method]
            if not each.good:
                lines.append(_line([*start, "", each.results[0]["failed"]]))
                continue
            shown = [_format(each, figure, 4) for figure in figures] + [
                _format(each, key, 0) for key in ("cpu", "wall")
            ]
            lines.append(_line([*start, _seeds(each), *shown]))
    return lines


def _seeds(runs: Runs) -> str:
    numbers = sorted(result["seed"] for result in runs.good)
    whole = numbers == list(range(len(numbers))) and len(numbers) > 3
    return f"0 to {numbers[-1]}" if whole else ", ".join(map(str, numbers))


def _format(runs: Runs, figure: str, digits: int) -> str:
    return f"{runs.mean(figure):.{digits}f}" if runs.values(figure) else ""


def _order(item: tuple[tuple[str, float | None], Any]) -> tuple[str, float]:
    (table, epsilon), _ = item
    return table, 0.0 if epsilon is None else epsilon


def _header(names: Sequence[str], *, texts: int) -> str:
    """The first `texts` columns contain text, the others numbers."""
    return _line(names) + "\n|" + "---|" * texts + "---:|" * (len(names) - texts)


def _line(values: Iterable[str]) -> str:
    return "| " + " | ".join(values) + " |"
