"""What commands print and write: plans, costs, scores, certificates, JSON."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from understudy.cli.terminal import echo, show_progress
from understudy.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from rich.console import Console
    from rich.table import Table

    from understudy.book import BudgetBook
    from understudy.book.reservation import ProposedRun
    from understudy.evaluation.scorecard import Scorecard
    from understudy.graphs import GraphRelease
    from understudy.privacy.ledger import Guarantee, Plan, PublicFacts, Statement
    from understudy.privacy.marginal_noise import ExpectedNoise
    from understudy.release import Release


def warn_if_not_private(release: "Release | GraphRelease") -> None:
    if not release.statement.is_private:
        reason = "its noise was seeded" if release.statement.seeded else "it was made without noise"
        typer.echo(f"NOT PRIVATE: {reason}. Do not share this release as private.", err=True)


def show_spent(release: "Release | GraphRelease", quiet: bool) -> None:
    """Prints the privacy cost and the notes of a run; the warning that it is not private even when quiet."""
    from understudy.certificate import round_up

    statement = release.statement
    warn_if_not_private(release)
    for note in () if quiet else getattr(release, "notes", ()):
        text = str(note)
        typer.echo(text[:1].upper() + text[1:], err=True)
    if statement.facts.public_table is not None and not quiet:
        rows = f"{statement.facts.public_table:,} row{'s' if statement.facts.public_table > 1 else ''}"
        typer.echo(f"Started from a public table of {rows}. Its rows are not protected.", err=True)
    if statement.epsilon != float("inf") and not quiet:
        typer.echo(
            f"Spent epsilon {round_up(statement.epsilon, 4)} of {statement.epsilon_target:g} at delta "
            f"{round_up(statement.delta, 2)}, "
            f"method {statement.method}.",
            err=True,
        )


def show_book(path: "Path", release: "Release | GraphRelease", quiet: bool) -> None:
    """Prints what a budget book has left after this run."""
    from understudy.book import BudgetBook
    from understudy.errors import BookError

    entry = release.statement.facts.book
    if not quiet and entry is not None:
        try:
            left = f"{BudgetBook.open(path).fraction_left:.2%} of its limit left"
        except BookError as error:  # the release is saved: nothing may end the command before its output is written
            left = f"reserved. {error}".rstrip(".")
        typer.echo(f"Budget book {path}: entry {entry.number}, {left}.", err=True)


def require_hash(book: "BudgetBook", run: "ProposedRun", wanted: str | None) -> None:
    """Refuses to show another plan than the one with this hash."""
    if wanted is not None and (found := run.plan_hash(book)) != wanted:
        raise ConfigError(
            f"This plan has the hash {found}, not {wanted}. Ask for the schema, the method with its settings, epsilon "
            "and delta of the plan to approve, and the version of Understudy."
        )


def _show_plan_hash(book: "BudgetBook", run: "ProposedRun") -> None:
    """Prints what a run would use of a budget book, and the hash by which a second person approves its plan."""
    from understudy.book.book import percent

    needed = percent(book.terms.cost(run.queries, run.guarantee), book.limit)
    typer.echo(f"Budget book {book.path}: this run needs {needed} of the limit; {book.fraction_left:.2%} is left.")
    typer.echo(f"Plan hash: {run.plan_hash(book)}")


def _book_plan_to_json(book: "BudgetBook", run: "ProposedRun") -> dict[str, object]:
    """The same for machines, with all that the hash covers."""
    return {
        "plan_hash": run.plan_hash(book),
        "hash_covers": run.to_json(book),
        "needed": book.terms.cost(run.queries, run.guarantee).fraction_of(book.limit),
        "left": book.fraction_left,
    }


def note_on_units(release: "Release", quiet: bool) -> None:
    """States which rows of a unit were used, and what synthetic units are."""
    from understudy.encoding import describe_units

    if release.schema.unit is not None:
        echo(describe_units(release.schema), quiet=quiet)


def write_synthetic(
    release: "Release",
    out: str,
    num_rows: int | None,
    *,
    where: str | None,
    seed: int | None,
    id_prefix: str | None,
    sidecar: bool,
    force: bool,
    quiet: bool,
) -> str:
    """Samples and writes a table, batch by batch. Returns its number of rows and, where they are linked, of units."""
    from understudy.metadata.table_schema import describe_synthetic
    from understudy.release import BATCH_ROWS
    from understudy.tables import write_batches

    num_rows = release.codec.num_rows if num_rows is None else num_rows
    batches = release.sample_batches(num_rows, where=where, seed=seed, id_prefix=id_prefix)
    describe = describe_synthetic(release.schema, title=release.statement.facts.name) if sidecar else None
    num_units = 0

    def counted() -> "Iterator[pa.Table]":
        nonlocal num_units
        for number, batch in enumerate(batches, start=1):
            if release.codec.rows_per_unit:
                num_units += len(batch.column(release.schema.unit).unique())  # no unit is in two batches
            yield batch
            written = min(number * BATCH_ROWS, num_rows)
            progress(written / num_rows, f"sampling: {written:,} of {num_rows:,} rows")

    with show_progress(quiet or num_rows <= BATCH_ROWS, "sampling") as progress:
        write_batches(counted(), out, delimiter=release.origin.delimiter, force=force, describe=describe)
    rows = f"{num_rows:,} synthetic row{'s' * (num_rows != 1)}"
    return f"{rows} of {num_units:,} unit{'s' * (num_units != 1)}" if release.codec.rows_per_unit else rows


def note_on_draft(release: "Release", quiet: bool, *, given: bool) -> None:
    """States what was assumed by a run without a schema, or with an unreviewed draft."""
    if not release.schema.drafted:
        return
    if given:
        echo(
            "The schema is an unreviewed draft (drafted = true), and the certificate says so. Review it, then delete "
            "that line.",
            quiet=quiet,
        )
        return
    texts = [column.name for column in release.schema.modelled if column.kind == "categorical"]
    listed = f"; text columns are treated as categorical ({', '.join(texts)})" if texts else ""
    echo(
        f"No schema: each row counts as one person{listed}. To declare ids, free text and the privacy unit, start with "
        "'understudy schema draft'.",
        quiet=quiet,
    )


def show_plan(
    made: "Plan",
    guarantee: "Guarantee",
    facts: "PublicFacts",
    num_rows: int | None,
    json_file: str | None,
    *,
    force: bool,
    proposed: "tuple[BudgetBook, ProposedRun] | None" = None,
) -> None:
    """Prints every query of a plan with its privacy cost, the total and its meaning, and the noise to expect.

    `num_rows`: the declared or assumed number of rows, which percentages refer to. `proposed`: the budget book that the
    run would use, and the run.
    """
    from understudy import certificate as words
    from understudy.privacy.ledger import spent_by

    spent = spent_by(made, guarantee)
    statement = words.plan_statement(made, guarantee, spent, facts)
    if json_file is not None:
        book = {} if proposed is None else {"book": _book_plan_to_json(*proposed)}
        write_json({**words.plan_to_json(made, statement), **book}, json_file, force=force)
        if json_file == "-":
            return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    total = f"epsilon {words.round_up(spent.epsilon, 4)} of {guarantee.epsilon:g}"
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title_justify="left",
        title=f"Plan: {total} at delta {words.round_up(statement.delta, 2)}",
    )
    table.add_column("query")
    table.add_column("mechanism")
    table.add_column("standalone epsilon", justify="right")
    table.add_column("added delta", justify="right")
    for query in made:
        alone = words.round_up(words.standalone_epsilon(query, statement), 3)
        added = words.round_up(query.delta, 2) if query.delta else ""
        table.add_row(Text(query.label), query.event.describe(), alone, added)
    console = Console()
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
    if proposed is not None:
        _show_plan_hash(*proposed)


def _show_meaning(statement: "Statement", console: "Console") -> None:
    """What the planned guarantee will mean for one unit."""
    from rich import box
    from rich.table import Table

    from understudy.certificate import statement_meaning

    meaning = statement_meaning(statement)
    if meaning is None:
        return
    sentence = " ".join(meaning.sentences)
    console.print(f"What it means: {sentence[:1].lower()}{sentence[1:]}", markup=False)
    heads, *rows = meaning.belief_table()
    table = Table(*heads, box=box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for cells in rows:
        table.add_row(*cells)
    console.print(table)
    tests = " and ".join(f"{most} (at {rate} false positives)" for rate, most in meaning.test_table()[1:])
    console.print(f"Largest true-positive rate of any test of presence: {tests}.\n")


def _noise_table(expected: "Sequence[ExpectedNoise]", num_rows: int | None) -> "Table":
    """The noise of a typical count of each kind of marginal, with percentages if there is a number of rows."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("marginals")
    for name in ("number", "noise (rows)", *(("% of all rows", "number at 1%") if num_rows else ())):
        table.add_column(name, justify="right")
    for each in expected:
        lower = "" if each.min_order == each.max_order else f"{each.min_order}- to "
        cells = [f"{'' if each.exact else 'up to '}{each.marginals:,}", f"{each.stddev:.3g}"]
        if num_rows:
            cells += [f"{100 * each.stddev / num_rows:.2g}", f"{each.affordable(num_rows / 100):,}"]
        table.add_row(f"{lower}{each.max_order}-way", *cells)
    return table


def show_markdown(text: str) -> None:
    """Prints Markdown: rendered on a terminal, as it is elsewhere."""
    if not sys.stdout.isatty():
        typer.echo(text, nl=False)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))


def show_comparison(real: "pa.Table", fake: "pa.Table") -> None:
    """Prints real beside synthetic percentages: allowed, because the demo's table is public."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from understudy.demo import compared_shares

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("percent of the people who are")
    table.add_column("real", justify="right")
    table.add_column("synthetic", justify="right")
    for question, real_share, fake_share in compared_shares(real, fake):
        table.add_row(question, f"{100 * real_share:.1f}", f"{100 * fake_share:.1f}")
    Console(stderr=True).print(table)


def show_scores(scorecard: "Scorecard", *, all_of_them: bool) -> None:
    """Scores beside those of real rows, which get a column of their own where they are too few to compare with.

    By default the key scores of the catalogue; of absent ones, those for another kind of target are not mentioned.
    """
    from rich.console import Console
    from rich.text import Text

    from understudy.evaluation.scores import Status

    entries = [entry for entry in scorecard.to_json()["metrics"] if all_of_them or entry["key_score"]]
    absent: dict[str, list[str]] = {}
    shown = []
    for entry in entries:
        if entry["reference"] or any(score["value"] is not None for score in entry["values"].values()):
            shown.append(entry)
            continue
        score = next(iter(entry["values"].values()))
        if all_of_them or score["status"] != Status.NOT_APPLICABLE:
            absent.setdefault(score["why"], []).append(entry["title"])
    console = Console()
    console.print(_score_table(scorecard.methods, shown))
    for why, titles in absent.items():
        console.print(Text(f"Not computed: {', '.join(titles)}. {why}"))


def _score_table(methods: Sequence[str], entries: Sequence[Mapping]) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from understudy.evaluation.scores import Direction

    comparable = {bool(entry["reference"]["comparable"]) for entry in entries if entry["reference"]}
    references = [known for known in (True, False) if known in comparable]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for name in (*methods, *("real" if known else "real, fewer rows" for known in references)):
        table.add_column(Text(name), justify="right")
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


def write_certificate_json(
    statement: "Statement", checksums: Mapping[str, str], json_file: str | None, force: bool
) -> None:
    from understudy.certificate import to_json

    if json_file is not None:
        write_json(to_json(statement, checksums), json_file, force=force)


def write_json(content: object, json_file: str, *, force: bool) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    if json_file == "-":
        typer.echo(text, nl=False)
        return
    from understudy.tables import atomic_write

    with atomic_write(json_file, force=force) as file:
        file.write(text.encode())
