"""What commands print as tables: plans, scores, verdicts, attacks, audits. Loading it takes time, so they import it
late."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markdown import Markdown
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from understudy import certificate as words
from understudy.certificate.audit_section import LIMITS, Audit, round_down
from understudy.cli.terminal import printable, say
from understudy.notes import percent

if TYPE_CHECKING:
    import pyarrow as pa

    from understudy.disclosure.disclose import Disclosure
    from understudy.evaluation.scorecard import Scorecard
    from understudy.graphs.metrics import GraphScores
    from understudy.privacy.accounting.ledger import Guarantee, Plan, Statement
    from understudy.privacy.accounting.marginal_noise import ExpectedNoise
    from understudy.report.summary import CheckedRule
    from understudy.steward.preview import ColumnPreview, Outlook, Preview


class PlainConsole(Console):
    """A console that ignores control characters in what it shows; its own styles are added later."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))

    def print_sentences(self, sentences: Mapping[str, str], *, title: str = "") -> None:
        """Sentences beside their headings, below a title."""
        grid = Table.grid(padding=(0, 2))
        for heading, sentence in sentences.items():
            grid.add_row(Text(heading, style="bold"), Text(sentence))
        if title:
            self.print(Text(title, style="bold"))
        self.print(grid)


def make_table(words: Iterable[str], numbers: Iterable[str]) -> Table:
    """A table without rows: columns of words and, to the right of them, columns of numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in words:
        table.add_column(Text(name))
    for name in numbers:
        table.add_column(Text(name), justify="right")
    return table


def show_markdown(text: str) -> None:
    """Prints Markdown: rendered on a terminal, as it is elsewhere."""
    if sys.stdout.isatty():
        PlainConsole().print(Markdown(text))
    else:
        say(text, nl=False)


def show_comparison(real: "pa.Table", fake: "pa.Table") -> None:
    """Prints real beside synthetic percentages: allowed, because the demo's table is public."""
    from understudy.demo import compared_shares

    table = make_table(["percent of the people who are"], ["real", "synthetic"])
    for question, real_share, fake_share in compared_shares(real, fake):
        table.add_row(question, f"{100 * real_share:.1f}", f"{100 * fake_share:.1f}")
    PlainConsole(stderr=True).print(table)


# Plans


def show_plan(made: "Plan", guarantee: "Guarantee", statement: "Statement", num_rows: int | None) -> None:
    """Every query of a plan with its privacy cost, the total and its meaning, and the noise to expect.

    `num_rows`: the declared or assumed number of rows, which percentages refer to.
    """
    console, table = PlainConsole(), make_table(["query", "mechanism"], ["standalone epsilon", "added delta"])
    total = f"epsilon {words.round_up(statement.epsilon, 4)} of {guarantee.epsilon:g}"
    table.title, table.title_justify = f"Plan: {total} at delta {words.round_up(statement.delta, 2)}", "left"
    for query in made:
        alone = words.round_up(words.standalone_epsilon(query, statement), 3)
        added = words.round_up(query.delta, 2) if query.delta else ""
        table.add_row(Text(query.label), query.event.describe(), alone, added)
    console.print(table)
    _show_meaning(statement, console)
    if made.expected:
        console.print("Expected noise: the standard deviation of a typical count")
        console.print(_noise_table(made.expected, num_rows))
        if num_rows:
            console.print(
                "Number at 1%: how many marginals the same budget could measure with noise of 1% of all rows."
            )
    for note in made.notes:
        console.print(f"- {note}", markup=False)
    console.print("Only the schema was read. The standalone costs do not add up; the total is the figure above.")


def _show_meaning(statement: "Statement", console: PlainConsole) -> None:
    meaning = words.statement_meaning(statement)
    if meaning is None:
        return
    sentence = " ".join(meaning.sentences)
    console.print(f"What it means: {sentence[:1].lower()}{sentence[1:]}", markup=False)
    heads, *rows = meaning.belief_table()
    table = make_table(heads[:1], heads[1:])
    for cells in rows:
        table.add_row(*cells)
    console.print(table)
    tests = " and ".join(f"{most} (at {rate} false positives)" for rate, most in meaning.test_table()[1:])
    console.print(f"Largest true-positive rate of any test of presence: {tests}.\n")


def _noise_table(expected: "Sequence[ExpectedNoise]", num_rows: int | None) -> Table:
    """The noise of a typical count of each kind of marginal, with percentages if there is a number of rows."""
    table = make_table(
        ["marginals"], ["number", "noise (rows)", *(("% of all rows", "number at 1%") if num_rows else ())]
    )
    for noise in expected:
        lower = "" if noise.min_order == noise.max_order else f"{noise.min_order}- to "
        cells = [f"{'' if noise.exact else 'up to '}{noise.marginals:,}", f"{noise.stddev:.3g}"]
        if num_rows:
            cells += [f"{100 * noise.stddev / num_rows:.2g}", f"{noise.affordable(num_rows / 100):,}"]
        table.add_row(f"{lower}{noise.max_order}-way", *cells)
    return table


# Previews


def show_preview(preview: "Preview") -> None:
    """Prints what a release would keep of a table. For the steward only: it is computed from the rows."""
    from understudy.steward.preview import WARNING

    console, chosen = PlainConsole(), preview.chosen
    console.print(WARNING)
    used = "" if preview.used_rows == preview.num_rows else f", of which {preview.used_rows:,} are used"
    console.print(f"\nThe table has {preview.num_rows:,} rows{used}. At epsilon {chosen.epsilon:g}:")
    if chosen.columns is None:
        console.print("This epsilon is too small for the method.")
    else:
        console.print(_column_table(chosen.columns))
    console.print("By epsilon:")
    console.print(_epsilon_table(preview.outlooks, preview.used_rows))
    console.print("'other' is the mean over categorical columns. Values in fewer rows than needed become 'other'.")
    if (few := chosen.note(preview.used_rows)) is not None:
        console.print(str(few), markup=False)


def _column_table(columns: "Sequence[ColumnPreview]") -> Table:
    table = make_table(("column", "kind"), ("values", "values kept", "rows unchanged", "'other'"))
    for column in columns:
        unchanged = "bounds estimated" if column.unchanged is None else percent(column.unchanged)
        if column.num_values is None:
            table.add_row(Text(column.name), column.kind, "", "", unchanged, "")
        else:
            values = (f"{column.num_values:,}", f"{column.values_kept:,.0f}")
            table.add_row(Text(column.name), column.kind, *values, unchanged, percent(column.other))
    return table


def _epsilon_table(outlooks: "Sequence[Outlook]", num_rows: int) -> Table:
    table = make_table((), ("epsilon", "noise in a count (rows)", "% of all rows", "rows a value needs", "'other'"))
    for outlook in outlooks:
        cells = ["cannot run", "", "", ""]
        if outlook.columns is not None:
            cells = ["", "", "", "" if outlook.other is None else percent(outlook.other)]
            if outlook.stddev is not None:
                cells[:2] = [f"{outlook.stddev:.3g}", f"{100 * outlook.stddev / max(num_rows, 1):.2g}"]
            if outlook.rows_to_be_listed is not None:
                cells[2] = f"{outlook.rows_to_be_listed:,}"
        table.add_row(f"{outlook.epsilon:g}", *cells)
    return table


# Scores


def show_scorecard(scorecard: "Scorecard", *, all_scores: bool) -> None:
    """The sentences about each table, if enough was scored; every rule that was checked; and scores.

    By default the key scores of the catalogue; of absent ones, those for another kind of target are not mentioned.
    """
    from understudy.evaluation.scores import Status
    from understudy.report.summary import checked_rules, summarise

    console, card = PlainConsole(), scorecard.to_json()
    for name in scorecard.methods:
        if (summary := summarise(card, name)) is not None:
            console.print_sentences(summary.sentences, title=name if len(scorecard.methods) > 1 else "")
    rules = {name: checked_rules(card, name) for name in scorecard.methods}
    if any(rules.values()):
        console.print(_rule_table(rules))
    shown, absent = [], dict[str, list[str]]()
    for entry in card["metrics"]:
        if not (all_scores or entry["key_score"]):
            continue
        if entry["reference"] or any(score["value"] is not None for score in entry["values"].values()):
            shown.append(entry)
            continue
        score = next(iter(entry["values"].values()))
        if all_scores or score["status"] != Status.NOT_APPLICABLE:
            absent.setdefault(score["why"], []).append(entry["title"])
    console.print(_score_table(scorecard.methods, shown))
    for why, titles in absent.items():
        console.print(Text(f"Not computed: {', '.join(titles)}. {why}"))


def _rule_table(rules: "Mapping[str, Sequence[CheckedRule]]") -> Table:
    """The rows of each table that break each rule: their number and fraction."""
    from understudy.report.text import broken_rows

    table = make_table(["rows that break the rule"], [*rules, "real"])
    for checked in zip(*rules.values(), strict=True):
        text, first = Text(checked[0].text), checked[0]
        for why in dict.fromkeys(rule.why for rule in checked if rule.why):
            text.append(f"\nnot checked: {why}", style="dim")
        cells = ["-" if rule.why else broken_rows(rule.synthetic_broken, rule.synthetic) for rule in checked]
        table.add_row(text, *cells, "-" if first.why else broken_rows(first.real_broken, first.real))
    return table


def _score_table(methods: Sequence[str], entries: Sequence[Mapping[str, Any]]) -> Table:
    """Scores beside those of real rows, which get a column of their own where they are too few to compare with."""
    from understudy.evaluation.scores import Direction

    comparable = {bool(entry["reference"]["comparable"]) for entry in entries if entry["reference"]}
    references = [known for known in (True, False) if known in comparable]
    table = make_table([""], [*methods, *("real" if known else "real, fewer rows" for known in references)])
    for entry in entries:
        reference = entry["reference"]
        real = [
            "-" if reference is None else _cell(reference["value"]) if reference["comparable"] == known else ""
            for known in references
        ]
        cells = [_cell(entry["values"][name]["value"]) for name in methods]
        table.add_row(Text(f"{entry['title']} {Direction(entry['direction']).arrow}"), *cells, *real)
    return table


def _cell(value: float | None) -> str:
    """A number to three digits; "-" for none."""
    return "-" if value is None else f"{value:.3g}"


def show_graph_scores(scores: "GraphScores", names: Sequence[str]) -> None:
    """The sentences about each synthetic graph, and metrics beside those of the real graph and of a random one."""
    from understudy.graphs.metrics import METRICS
    from understudy.report.graph_page import graph_verdict

    console = PlainConsole()
    for name in names:
        console.print_sentences(graph_verdict(scores, name), title=name if len(names) > 1 else "")
    table = make_table([""], scores.values)
    for metric in METRICS:
        if metric in scores["real"]:
            table.add_row(metric, *(f"{values[metric]:.4g}" for values in scores.values.values()))
    console.print(table)


# Attacks


def show_disclosure(disclosure: "Disclosure") -> None:
    """Prints the sentences and the operating points of the attacks."""
    from understudy.disclosure.sentences import ATTACK_NAMES, percent_up, percents

    console = PlainConsole()
    for warning in disclosure.warnings:
        console.print(Text(f"Warning: {warning}"))
    for note in disclosure.notes:
        console.print(Text(f"Note: {note}"))
    console.print_sentences(disclosure.sentences)
    has_ceiling = disclosure.membership.ceiling.statement is not None
    table = make_table(["chosen for", "attack"], ["true positives", "false positives", *["allowed"] * has_ceiling])
    for point in disclosure.membership.points:
        allowed = [] if point.ceiling is None else [percent_up(point.ceiling)]
        rates = [rate.replace(" (", "\n(") for rate in percents(point)]  # an interval is not broken at its end
        table.add_row(point.aim, ATTACK_NAMES[point.attack], *rates, *allowed)
    console.print(table)


def show_audits(audits: Sequence[Audit]) -> None:
    """Prints the audits as a table, what they show, and what they cannot show."""
    if not audits:
        say("No audit of this version is recorded. Make one: understudy audit --method mst --epsilon 1")
        return
    table = make_table(["method", "canary", "threat"], ["runs", "AUC", "epsilon ≥", "claim", "mu ≥"])
    table.collapse_padding = True
    for column in table.columns:
        column.no_wrap = True
    for audit in audits:
        figures = (round_down(audit.epsilon), f"{audit.claimed_epsilon:.2f}", round_down(audit.mu))
        table.add_row(audit.label, audit.canary, audit.threat, f"{audit.num_runs:,}", f"{audit.auc:.2f}", *figures)
    console = PlainConsole()
    console.print(table)
    for audit in audits:
        if len(audits) == 1 or audit.refutes_claim:
            console.print(audit.sentence, markup=False)
    if len(audits) == 1:
        console.print(f"Score of the attack, chosen on other runs: {audits[0].score}.", markup=False)
    deltas = ", ".join(f"{delta:g}" for delta in sorted({audit.claimed_delta for audit in audits}))
    console.print(
        f"The claim is the largest epsilon that the runs state, at delta {deltas}. {_confidence(audits)} {LIMITS}"
    )
    console.print("mu: the same on the scale of Gaussian noise; 0 is guessing, and a larger mu is less private.")
    if any(audit.seeded for audit in audits):
        console.print("The noise of these runs was seeded: the same samplers, with secrets that follow from the seed.")


def _confidence(audits: Sequence[Audit]) -> str:
    level, together = f"{audits[0].confidence:.0%}", audits[0].num_audits
    one_by_one = f"Each bound holds with {level} confidence by itself."
    if together == 1:
        return one_by_one
    refuted = sum(audit.refutes_claim for audit in audits)
    verdict = f"{refuted} claims are refuted" if refuted else "no claim is refuted"
    return f"{one_by_one} At {level} confidence for all {together} audits together, {verdict}."
