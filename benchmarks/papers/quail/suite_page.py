"""The page of the suite `quail-paper`: verdicts on the paper's punchlines, and its published figures beside ours.

    understudy benchmark run quail-paper
    python benchmarks/papers/quail/suite_page.py benchmark-results/quail-paper -o page.html

The page is the suite's report with the sections on the paper after its summary; with -o page.md, the pictures are
written beside it.
"""

import argparse
import dataclasses
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from benchmarks.papers.command import run_script
from benchmarks.papers.quail.evidence import (
    EVERY_METHOD,
    TABLES,
    TITLES,
    Clause,
    Status,
    Verdict,
    select_source,
    table_seconds,
)
from benchmarks.papers.quail.published import (
    Cell,
    compare_agreements,
    our_agreements,
    read_agreements,
    read_hours,
    read_real_scores,
    read_times,
)
from benchmarks.papers.quail.punchlines import judge_punchlines
from benchmarks.papers.quail.statements import judge_statements
from understudy.benchmark.pages import write_report_page
from understudy.benchmark.report.document import Heading, Part, Section, Text, TextTable
from understudy.benchmark.report.figures import format_seconds
from understudy.benchmark.report.records import REAL, Metrics, ReportInfo, Result
from understudy.benchmark.report.sections import build_sections
from understudy.benchmark.report.statistics import Summary, count_seeds, group_results, private_blocks
from understudy.benchmark.report.tables import NONE, format_mean
from understudy.report.text import count_of, listing

PAPER = "Differentially Private Synthetic Data: Applied Evaluations and Enhancements"
SIGNS = {
    status: f"{sign} {status.value}".replace(" ", "\N{NO-BREAK SPACE}")
    for status, sign in ((Status.HOLDS, "✓"), (Status.FAILS, "✗"), (Status.UNTESTED, "?"))
}


def build_quail_sections(results: Sequence[Result], info: ReportInfo, metrics: Metrics) -> list[Section]:
    """The sections of every report, with those on the paper after the summary.

    >>> sections = build_quail_sections([], ReportInfo(suite="quail-paper", title="QUAIL"), {})
    >>> [section.key for section in sections][:3]
    ['summary', 'punchlines', 'statements']
    """
    named = [dataclasses.replace(result, table=table_name(result.table)) for result in results]
    peers = dict.fromkeys(result.peer for result in named if result.peer is not None)
    sources = {"Understudy": select_source(named, None), **{peer: select_source(named, peer) for peer in peers}}
    sources = {name: found for name, found in sources.items() if name == "Understudy" or _is_rich(found)}
    ours = sources["Understudy"]
    own = [
        Section("punchlines", "Punchlines", _punchlines(sources)),
        Section("statements", "Statements on figures", _statements(sources)),
        Section("published-real", "Real data, published and ours", _real_scores(ours)),
        Section("published-sra", "SRA, published and ours", _agreements(sources)),
        Section("published-times", "Running times, published and ours", _times(ours)),
    ]
    first, *rest = build_sections(results, info, metrics)
    tally = Text(_count_verdicts(judge_punchlines(ours)), "lead")
    return [dataclasses.replace(first, parts=(tally, *first.parts)), *own, *rest]


def _count_verdicts(verdicts: Sequence[Verdict]) -> str:
    named = {
        status: listing([str(number) for number, verdict in enumerate(verdicts, 1) if verdict.status is status])
        for status in Status
    }
    parts = [
        f"{verb} {named[status]}"
        for status, verb in ((Status.HOLDS, "hold:"), (Status.FAILS, "do not hold:"), (Status.UNTESTED, "are open:"))
        if named[status]
    ]
    return f"Of the paper's six punchlines, these {'; these '.join(parts)}."


def table_name(table: str) -> str:
    """The paper's name of a table, or the table's own.

    >>> table_name("adult_train"), table_name("online-shopping"), table_name("nltcs")
    ('adult', 'shopping', 'nltcs')
    """
    return next((name for name in TABLES if name in table.lower()), table)


def _is_rich(results: Sequence[Result]) -> bool:
    """Whether a package has at least three of the paper's methods: with fewer, no claim can be tested."""
    return len({result.method for result in results} & set(EVERY_METHOD)) > 2


# Claims


def _punchlines(sources: dict[str, list[Result]]) -> tuple[Part, ...]:
    verdicts = {name: judge_punchlines(results) for name, results in sources.items()}
    first = next(iter(verdicts.values()))
    rows = [
        (f"{index + 1}. {verdict.title}", verdict.claim, *(SIGNS[found[index].status] for found in verdicts.values()))
        for index, verdict in enumerate(first)
    ]
    table = TextTable(
        f"The six punchlines of the paper, on {_seeds(next(iter(sources.values())))}",
        ("punchline", "in our words", *(_verdict_title(name, len(verdicts)) for name in verdicts)),
        tuple(rows),
        strong=frozenset((line, column) for line in range(len(rows)) for column in range(2, 2 + len(verdicts))),
        is_wordy=True,
    )
    intro = (
        f"“{PAPER}” ends in six punchlines. Each is split into clauses that the records can test; a punchline holds "
        "if all of its clauses do. The thresholds are ours, as the paper gives none. The synthesizers are "
        "not the paper's implementations, so a claim that does not hold here may still hold for the paper's own."
    )
    parts: list[Part] = [Text(intro), table]
    for name, found in verdicts.items():
        for index, verdict in enumerate(found):
            suffix = f", {name}" if len(verdicts) > 1 else ""
            caption = f"{index + 1}. {verdict.title}{suffix}: {verdict.status.value}"
            parts.append(_clause_table(caption, verdict.clauses, is_folded=name != "Understudy"))
    return tuple(parts)


def _verdict_title(name: str, count: int) -> str:
    return "verdict" if count == 1 else f"verdict, {name}"


def _clause_table(caption: str, clauses: Sequence[Clause], *, is_folded: bool = False) -> TextTable:
    rows = tuple(
        (
            clause.statement if clause.counts else f"{clause.statement} (not counted)",
            SIGNS[clause.status],
            clause.figures,
        )
        for clause in clauses
    )
    return TextTable(caption, ("clause", "verdict", "figures"), rows, num_labels=0, is_wordy=True, is_folded=is_folded)


def _statements(sources: dict[str, list[Result]]) -> tuple[Part, ...]:
    parts: list[Part] = []
    for name, results in sources.items():
        rows = tuple(
            (source, clause.statement, SIGNS[clause.status], clause.figures)
            for source, clause in judge_statements(results)
        )
        head = ("in the paper", "statement", "verdict", "figures")
        caption = f"{name}, {_seeds(results)}"
        parts.append(TextTable(caption, head, rows, num_labels=1, is_wordy=True, is_folded=name != "Understudy"))
    intro = "The paper's figures do not print their values. What its text says about them is tested here."
    return (Text(intro), *parts)


def _seeds(results: Sequence[Result]) -> str:
    private = [result for result in results if result.epsilon is not None]
    names = dict.fromkeys(name for result in private for name in result.metrics)
    grids = {block: found for name in names for block, found in private_blocks(group_results(private, name)).items()}
    return count_seeds(grids)


# Published figures


def _real_scores(results: Sequence[Result]) -> tuple[Part, ...]:
    rows = []
    for score in read_real_scores():
        found = group_results(results, score.metric).get((score.table, None), {}).get(REAL)
        mean = None if found is None else found.mean
        rows.append(
            (
                score.table,
                TITLES[score.metric],
                f"{score.printed:.2f}",
                f"{score.value:.2f}",
                NONE if found is None or mean is None else format_mean(found),
                NONE if mean is None else f"{mean - score.value:+.3f}".replace("-", "−"),
                NONE if found is None else str(found.num_seeds),
                score.source,
            )
        )
    head = ("table", "metric", "printed", "published", "ours", "difference", "our seeds", "source")
    note = (
        "Four of the five AUC values are printed for the wrong class: below one half for classifiers that are nearly "
        "perfect by F1. They are shown as one minus the printed value. Our F1 is that of the rarer class, or the mean "
        "over more than two classes, weighted by their frequency. The published F1 on Adult, Bank and Shopping is as "
        "high as that of the larger class would be, so the paper seems to count the larger class as positive: compare "
        "these F1 values only within a column."
    )
    return (TextTable("Scores of the real data", head, tuple(rows), num_labels=2, note=note),)


def _agreements(sources: dict[str, list[Result]]) -> tuple[Part, ...]:
    parts: list[Part] = []
    for name, results in sources.items():
        found = compare_agreements(results)
        if found.mean_difference is not None:
            relation = "undefined" if found.correlation is None else f"{found.correlation:.2f}"
            noise = (
                f" Two of our own seeds of one cell differ by {found.seed_difference:.2f} on average (standard "
                f"deviation over seeds {found.seed_std:.2f}): differences of that size are noise."
                if found.seed_difference is not None
                else " With a single seed the noise is unknown."
            )
            parts.append(
                Text(
                    f"**{name}**: over {count_of(len(found.pairs), 'cell')}, the mean absolute difference between "
                    f"published and our SRA is {found.mean_difference:.2f}, their correlation {relation}.{noise}"
                )
            )
    caveat = (
        "SRA is the fraction of the ten pairs of five models whose order agrees, so it changes in steps of 0.1, and "
        "models with nearly equal scores swap places by chance. The paper itself found its SRA hard to interpret."
    )
    ours = our_agreements(sources["Understudy"])
    parts.append(Text(caveat, "note"))
    parts += [_agreement_table(table, ours) for table in TABLES]
    return tuple(parts)


def _agreement_table(table: str, ours: Mapping[Cell, Summary]) -> TextTable:
    published = read_agreements()
    epsilons = sorted({epsilon for _, _, epsilon in published})
    rows = []
    for method in EVERY_METHOD:
        cells = []
        for epsilon in epsilons:
            summary = ours.get((table, method, epsilon))
            mean = NONE if summary is None or summary.mean is None else f"{summary.mean:.2f}"
            cells.append(f"{published[table, method, epsilon]:.1f} / {mean}")
        rows.append((method, *cells))
    counts = {summary.num_seeds for (name, _, _), summary in ours.items() if name == table}
    seeds = " to ".join(str(count) for count in sorted({min(counts), max(counts)})) if counts else "0"
    caption = f"SRA on {table}: published / our mean over {seeds} seeds"
    return TextTable(caption, ("method", *(f"ε = {epsilon:g}" for epsilon in epsilons)), tuple(rows), is_folded=True)


def _times(results: Sequence[Result]) -> tuple[Part, ...]:
    rows = []
    tables = [table for table in TABLES if any(result.table == table for result in results)]
    for time in read_times():
        if time.task != "classification":
            continue
        here = [result for result in results if result.epsilon == time.epsilon]
        seconds = table_seconds(here, time.method)
        fraction = NONE if time.classifier_fraction is None else f"{time.classifier_fraction:g}"
        printed = NONE if time.seconds is None else f"{time.seconds:,.0f}{'?' if time.reading == 'likely' else ''}"
        ours = [format_seconds(seconds[table]) if table in seconds else NONE for table in tables]
        rows.append((time.method, fraction, f"{time.epsilon:g}", printed, *ours))
    head = ("method", "p", "epsilon", "published, seconds", *(f"ours, {table}" for table in tables))
    note = (
        "p is the fraction of epsilon for the classifier in the paper; ours is that of the suite. The published times "
        "are for an internal table on other hardware, so only ratios within a column are comparable. “–” marks values "
        "that are illegible in the paper, “?” the most likely reading."
    )
    table = TextTable(f"Table 1 of the paper, beside our medians over {_seeds(results)}", head, tuple(rows), note=note)
    return (table, Heading("All synthesizers together"), _hours(results))


def _hours(results: Sequence[Result]) -> TextTable:
    rows = []
    for table, hours in read_hours().items():
        runs: dict[int, list[float]] = {}
        for result in results:
            if result.table == table and result.seconds is not None and result.method in EVERY_METHOD:
                runs.setdefault(result.seed, []).append(result.seconds)
        ours = format_seconds(statistics.fmean(sum(run) for run in runs.values())) if runs else NONE
        rows.append((table, f"{hours:g} h", ours, str(len(runs))))
    note = "Published: one run of all synthesizers. Ours: the sum of all cells of one seed, without scoring."
    return TextTable(
        "Time of one run of the paper's methods", ("table", "published", "ours", "our seeds"), tuple(rows), note=note
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="a results folder, or a Parquet file of results")
    parser.add_argument("-o", "--out", type=Path, required=True, help="output file: .html, or .md with pictures")
    parser.add_argument("--force", action="store_true", help="replace the output")
    arguments = parser.parse_args()
    written = write_report_page(arguments.results, arguments.out, force=arguments.force, build=build_quail_sections)
    print(f"Wrote {written[0]}.")


if __name__ == "__main__":
    run_script(main)
