"""The figures for Adult in docs/benchmarks.md, from the results of `utility.py default`.

    python benchmarks/adult_table.py

Replaces the text between the comments `BEGIN` and `END`.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.utility_page import REAL, Result, group_results

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "benchmarks" / "results" / "utility_default.jsonl"
BEGIN, END = "<!-- adult: begin -->", "<!-- adult: end -->"
TABLE, EPSILON = "adult", 1.0
METHODS = ("auto", "aim", "mst", "gem", "independent", REAL)
FIGURES = {
    "auc": ("AUC", 3),
    "tvd2": ("2-way error", 3),
    "worst2": ("largest 2-way error", 3),
    "v_loss": ("loss of Cramer's V", 3),
    "cpu": ("CPU seconds", 0),
}
"""The title of each figure, and the number of its decimals."""
TEXT = """\
Measured on Adult (32,561 rows, 15 columns) at epsilon 1 and delta 1e-5 with a declared schema, mean of {seeds}.
*AUC*: three classifiers trained on synthetic rows and tested on real ones. *2-way error*: mean
total variation distance over all pairs of columns. *Loss of Cramer's V*: mean over all pairs of columns. *CPU seconds*:
fit and sample. *Real data*: the training rows, scored as if they were synthetic. Command, date and machine are in
[benchmarks/results](../benchmarks/results/utility_default.md), with other tables and epsilons."""


def make_block(results: Iterable[Result]) -> str:
    """The explanation and the table."""
    cells = group_results(results)
    runs = {**cells.get((TABLE, None), {}), **cells.get((TABLE, EPSILON), {})}
    lacking = [method for method in METHODS if method not in runs or not runs[method].good]
    if lacking:
        raise ValueError(
            f"Expected results of {', '.join(METHODS)} on {TABLE} at epsilon {EPSILON:g}, found none of "
            f"{', '.join(lacking)}. Run: python benchmarks/utility.py default --tables {TABLE}"
        )
    lines = ["| | " + " | ".join(title for title, _ in FIGURES.values()) + " |", "|---|" + "---:|" * len(FIGURES)]
    for method in METHODS:
        means = [(runs[method].mean(figure), digits) for figure, (_, digits) in FIGURES.items()]
        shown = ["" if mean != mean else f"{mean:.{digits}f}" for mean, digits in means]
        lines.append(f"| {method if method == REAL else f'`{method}`'} | " + " | ".join(shown) + " |")
    return (
        TEXT.format(seeds=_describe_seeds({m: len(runs[m].good) for m in METHODS if m != REAL}))
        + "\n\n"
        + "\n".join(lines)
    )


def _describe_seeds(numbers: dict[str, int]) -> str:
    """The number of seeds of most methods, and of those that have fewer.

    >>> _describe_seeds({"auto": 3, "gem": 2})
    '3 seeds (`gem`: 2)'
    """
    most = max(numbers.values())
    fewer = [f"`{method}`: {number}" for method, number in numbers.items() if number < most]
    return f"{most} seeds" + f" ({', '.join(fewer)})" * bool(fewer)


def replace_block(text: str, block: str) -> str:
    """The text with this block between the two comments.

    >>> replace_block(f"a\\n{BEGIN}\\nold\\n{END}\\nb", "new").splitlines()[2]
    'new'
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"Expected the lines {BEGIN} and {END} once each and in this order. Add them to the file.")
    return text[: text.index(BEGIN)] + f"{BEGIN}\n{block}\n" + text[text.index(END) :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args()
    try:
        results = [json.loads(line) for line in given.results.read_text().splitlines()]
        given.page.write_text(replace_block(given.page.read_text(), make_block(results)))
    except (ValueError, OSError) as problem:
        print(f"benchmarks/adult_table.py: {problem}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
