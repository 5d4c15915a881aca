"""What commands print and write: costs, notes, plans, synthetic tables, certificates, JSON."""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from understudy.cli.terminal import echo, say, show_progress
from understudy.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from understudy.cli.fit import FitCommand
    from understudy.institution.book import BudgetBook
    from understudy.institution.book.proposal import ProposedRun
    from understudy.privacy.accounting.ledger import Guarantee, Plan, PublicFacts, Statement
    from understudy.release import AnyRelease, Release
    from understudy.schema import Schema
    from understudy.steward.findings import Finding
    from understudy.tables import ReadOptions


def warn_if_not_private(release: "AnyRelease") -> None:
    if not release.statement.is_private:
        reason = "its noise was seeded" if release.statement.seeded else "it was made without noise"
        say(f"NOT PRIVATE: {reason}. Do not share this release as private.", err=True)


def show_spent(release: "AnyRelease", quiet: bool) -> None:
    """Prints the privacy cost and the notes of a run; the warning that it is not private even when quiet."""
    from understudy.certificate import round_up

    statement = release.statement
    warn_if_not_private(release)
    for note in () if quiet else release.notes:
        text = str(note)
        say(text[:1].upper() + text[1:], err=True)
    if statement.facts.public_table is not None and not quiet:
        rows = f"{statement.facts.public_table:,} row{'s' if statement.facts.public_table > 1 else ''}"
        say(f"Started from a public table of {rows}. Its rows are not protected.", err=True)
    if statement.epsilon != float("inf") and not quiet:
        say(
            f"Spent epsilon {round_up(statement.epsilon, 4)} of {statement.epsilon_target:g} at delta "
            f"{round_up(statement.delta, 2)}, "
            f"method {statement.method}.",
            err=True,
        )


def show_book(path: "Path", release: "AnyRelease", quiet: bool) -> None:
    """Prints what a budget book has left after this run."""
    from understudy.errors import BookError
    from understudy.institution.book import BudgetBook

    entry = release.statement.facts.book
    if not quiet and entry is not None:
        try:
            left = f"{BudgetBook.open(path).fraction_left:.2%} of its limit left"
        except BookError as error:  # the release is saved: nothing may end the command before its output is written
            left = f"reserved. {error}".rstrip(".")
        say(f"Budget book {path}: entry {entry.number}, {left}.", err=True)


def require_hash(book: "BudgetBook", run: "ProposedRun", wanted: str | None) -> None:
    """Refuses to show any plan but the one with this hash."""
    if wanted is not None and (plan_hash := run.plan_hash(book)) != wanted:
        raise ConfigError(
            f"This plan has the hash {plan_hash}, not {wanted}. Ask for the schema, the method with its settings, "
            "epsilon and delta of the plan to approve, and the version of Understudy."
        )


def _show_plan_hash(book: "BudgetBook", run: "ProposedRun") -> None:
    """Prints what a run would use of a budget book, and the hash by which a second person approves its plan."""
    from understudy.institution.book.book import percent

    needed = percent(book.terms.cost(run.queries, run.guarantee), book.limit)
    say(f"Budget book {book.path}: this run needs {needed} of the limit; {book.fraction_left:.2%} is left.")
    say(f"Plan hash: {run.plan_hash(book)}")


def _book_plan_to_json(book: "BudgetBook", run: "ProposedRun") -> dict[str, object]:
    """The same for machines, with all that the hash covers."""
    return {
        "plan_hash": run.plan_hash(book),
        "hash_covers": run.to_json(book),
        "needed": book.terms.cost(run.queries, run.guarantee).fraction_of(book.limit),
        "left": book.fraction_left,
    }


def note_if_synthetic(source: str, *, quiet: bool) -> None:
    """Says so if the table to fit has the label of a synthetic one: often it was named by mistake."""
    from understudy.tables import says_synthetic

    if says_synthetic(source):
        echo(f"Note: {source} says that it is synthetic. It is treated like real data.", quiet=quiet)


def hint_at_decimals(table: "pa.Table", reading: "ReadOptions") -> None:
    """Says which columns look like numbers with decimal commas. Reads values: for the steward only."""
    from understudy.tables.infer import with_decimal_commas

    names = with_decimal_commas(table) if reading.decimal is None else []
    if names:
        columns = "Column" if len(names) == 1 else "Columns"
        listed = f"{', '.join(map(repr, names[:5]))}{' and others' * (len(names) > 5)}"
        say(f"{columns} {listed}: the values look like numbers with decimal commas. Give --decimal ','.", err=True)


def note_on_decimals(delimiter: str, schema: "Schema | None", decimal: str | None, *, quiet: bool) -> None:
    """Files with semicolons often have decimal commas, which are nulls without --decimal. Reads no value."""
    has_reals = schema is None or any(column.kind == "real" for column in schema.modelled)
    if delimiter == ";" and decimal is None and has_reals:
        echo("Numbers are read with decimal points. If this file has decimal commas, give --decimal ','.", quiet=quiet)


def say_findings(findings: "Sequence[Finding]", none: str) -> None:
    """Prints the findings of a check; `none` if there are none."""
    say("For the steward only: these findings are computed from the rows and are not private.")
    for finding in findings:
        say(str(finding))
    counted = "1 finding." if len(findings) == 1 else f"{len(findings)} findings."
    say(counted if findings else none)


def note_on_units(release: "Release", quiet: bool) -> None:
    """States which rows of a unit were used, and what synthetic units are."""
    from understudy.encoding import describe_units

    if release.schema.unit is not None:
        echo(describe_units(release.schema), quiet=quiet)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """The options of `sample`, in the order in which --help lists them; `synth` has them too."""

    rows: int | None = None
    where: str | None = None
    seed: int | None = None
    id_prefix: str | None = None
    escape_formulas: bool = False
    no_sidecar: bool = False
    force: bool = False
    quiet: bool = False


def write_synthetic(release: "Release", out: str, options: SampleOptions) -> str:
    """Samples and writes a table, batch by batch. Returns its number of rows and, where they are linked, of units."""
    from understudy.release import BATCH_ROWS

    num_rows = release.codec.num_rows if options.rows is None else options.rows
    batches = release.sample_batches(num_rows, where=options.where, seed=options.seed, id_prefix=options.id_prefix)
    title, delimiter, num_units = release.statement.facts.name, release.origin.delimiter, 0

    def counted() -> "Iterator[pa.Table]":
        nonlocal num_units
        for number, batch in enumerate(batches, start=1):
            if release.codec.rows_per_unit:
                num_units += len(batch.column(release.schema.unit).unique())  # no unit is in two batches
            yield batch
            written = min(number * BATCH_ROWS, num_rows)
            progress(written / num_rows, f"sampling: {written:,} of {num_rows:,} rows")

    with show_progress(options.quiet or num_rows <= BATCH_ROWS, "sampling") as progress:
        formulas = write_rows(counted(), out, options, schema=release.schema, title=title, delimiter=delimiter)
    note_on_formulas(formulas, out, options)
    rows = f"{num_rows:,} synthetic row{'s' * (num_rows != 1)}"
    return f"{rows} of {num_units:,} unit{'s' * (num_units != 1)}" if release.codec.rows_per_unit else rows


def write_rows(
    batches: "Iterable[pa.Table]",
    out: str,
    options: "SampleOptions | FitCommand",
    *,
    schema: "Schema | None" = None,
    title: str | None,
    delimiter: str = ",",
) -> set[str]:
    """Writes synthetic rows and what describes them. Returns the names of columns with formulas."""
    from understudy.institution.metadata.table_schema import describe_synthetic
    from understudy.tables import write_batches
    from understudy.tables.delimited import formula_columns

    # The names and categories of the schema may not be those of a file with escaped ones.
    escape, formulas = options.escape_formulas, set[str]()
    describe = None if options.no_sidecar else describe_synthetic(None if escape else schema, title=title)

    def watched() -> "Iterator[pa.Table]":
        for batch in batches:
            formulas.update(formula_columns(batch))
            yield batch

    write_batches(watched(), out, delimiter=delimiter, force=options.force, escape_formulas=escape, describe=describe)
    return formulas


def note_on_formulas(formulas: Iterable[str], out: str, options: "SampleOptions | FitCommand") -> None:
    """Names the columns of a text file that a spreadsheet may treat as formulas, unless they are escaped."""
    from understudy.tables.path import TEXT_SUFFIXES, TablePath

    if formulas and not options.escape_formulas and TablePath.parse(out).suffix in TEXT_SUFFIXES:
        echo(
            f"Note: spreadsheets treat values that begin with = + - or @ as formulas, and columns of {out} have such "
            f"names or values: {', '.join(sorted(formulas))}. To put an apostrophe before each, use --escape-formulas.",
            quiet=options.quiet,
        )


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
    names = [column.name for column in release.schema.modelled if column.kind == "categorical"]
    listed = f"; text columns are treated as categorical ({', '.join(names)})" if names else ""
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
    from understudy.certificate import plan_statement, plan_to_json
    from understudy.cli import show
    from understudy.privacy.accounting.ledger import spent_by

    statement = plan_statement(made, guarantee, spent_by(made, guarantee), facts)
    if json_file is not None:
        book = {} if proposed is None else {"book": _book_plan_to_json(*proposed)}
        write_json({**plan_to_json(made, statement), **book}, json_file, force=force)
    if json_file == "-":
        return
    show.show_plan(made, guarantee, statement, num_rows)
    if proposed is not None:
        _show_plan_hash(*proposed)


def write_certificate_json(
    statement: "Statement", checksums: Mapping[str, str], json_file: str | None, force: bool
) -> None:
    from understudy.certificate import to_json

    write_json(to_json(statement, checksums), json_file, force=force)


def write_json(content: object, json_file: str | None, *, force: bool) -> None:
    """Writes what --json asks for, if it is given."""
    if json_file is None:
        return
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    if json_file == "-":
        say(text, nl=False)
        return
    from understudy.tables import write_file

    write_file(json_file, text.encode(), force=force)
