"""The commands on budget books: `book create`, `show`, `verify`, `policy` and `approve`."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from understudy.cli.options import check_json, refuse_book, with_options
from understudy.cli.output import write_json
from understudy.cli.terminal import echo, say
from understudy.errors import BookError

if TYPE_CHECKING:
    from understudy.institution.book import BudgetBook

book_app = typer.Typer(help="Keep one privacy budget for all releases of a data set.", no_args_is_help=True)
BOOK = typer.Argument(help="The budget book of a data set.")


@book_app.command("create")
@with_options(
    path=typer.Argument(help="The book to create, such as people.book."),
    epsilon="The limit of epsilon for all releases together.",
    delta="The limit of delta for all releases together.",
    unit="The column that identifies the privacy unit, as in the schema. Default: each row.",
    dataset="The name of the data set. Default: that of the file.",
    composition="How releases add up: renyi, zcdp or basic.",
    order="The order of the Renyi divergence. Default: the best for Gaussian noise.",
    policy="A policy file (TOML) that binds every run with this book.",
    protect="For a graph: edge, or node (all edges of one node).",
)
def book_create(
    path: Path,
    epsilon: float,
    delta: float,
    unit: str | None = None,
    dataset: str | None = None,
    composition: str = "renyi",
    order: float | None = None,
    policy: Path | None = None,
    protect: str | None = None,
    quiet: bool = False,
) -> None:
    """Create the budget book of a data set: one file, with a limit that all its releases share.

    Names are declared; nothing is read from the data. Limit, unit and composition cannot be changed later.
    """
    from understudy.institution.book import BudgetBook

    book = BudgetBook.create(
        path,
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        dataset=dataset,
        composition=composition,
        order=order,
        policy=policy,
        protect=protect,
    )
    echo(f"Created {path}: epsilon {epsilon:g} at delta {delta:g} for all releases of {book.dataset}.", quiet=quiet)
    if policy is not None:
        echo(f"Policy for every run with it: {_rules(book)}.", quiet=quiet)
    echo(f"Next: understudy fit ... --book {path}. Keep a backup outside this machine.", quiet=quiet)


@book_app.command("show")
@with_options(path=BOOK)
def book_show(path: Path, json_file: str | None = None, force: bool = False) -> None:
    """Show the limit of a book, what is used of it, and every run."""
    from understudy.institution.book import BudgetBook

    refuse_book(path, json_file)
    check_json(json_file, force)
    book = BudgetBook.open(path)
    write_json(book.to_json(), json_file, force=force)
    if json_file == "-":
        return
    summary = book.summary()
    say("\n".join([summary.title, *(f"{name}: {value}" for name, value in summary.facts.items())]))
    if summary.rows:
        table = [summary.head, *summary.rows]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        say("\n".join(["", *("  ".join(map(str.ljust, row, widths)).rstrip() for row in table)]))
        others = book.num_entries - len(book.reservations)
        say(f"\nThe other {others} entries create the book, end these runs, approve plans or set policies.")


@book_app.command("verify")
@with_options(path=BOOK, certificates="A folder of releases: compare their certificates with the book.")
def book_verify(path: Path, certificates: Path | None = None) -> None:
    """Check every entry of a book, and with --certificates that it is the book that the releases were made with.

    A book that was edited, truncated or rolled back is refused with exit code 2.
    """
    from understudy.institution.book import BudgetBook
    from understudy.institution.book.certificate_checks import approval_notes, verify_certificates

    book = BudgetBook.open(path)
    for note in approval_notes(book):
        say(f"Note: {note}", err=True)
    if certificates is None:
        say(f"{_whole(book)} An older copy of the book would look the same: compare it with --certificates DIR.")
        return
    faults, notes = verify_certificates(book, certificates)
    for note in notes:
        say(f"Note: {note}", err=True)
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise BookError(f"{path} does not agree with the releases: {faults[0]}{more}")
    say(f"{_whole(book)} The certificates in {certificates} agree with it.")


def _whole(book: "BudgetBook") -> str:
    return f"{book.path}: {book.num_entries} entries, all consistent; the last hash is {book.head}."


@book_app.command("approve")
@with_options(
    path=BOOK,
    plan=typer.Argument(help="The hash of the plan, as 'understudy plan --book' prints it."),
    by="Who approves it. The name is recorded, not verified.",
)
def book_approve(path: Path, plan: str, by: str, quiet: bool = False) -> None:
    """Approve one run of a plan, or another policy, for a policy that requires a second person.

    To see the plan first: 'understudy plan SCHEMA ... --book BOOK --hash PLAN'. The name and your account are recorded.
    They do not prove who you are.
    """
    from understudy.institution.book import BudgetBook
    from understudy.institution.book.book import account_name

    BudgetBook.open(path).approve(plan, by)
    account = account_name()
    echo(f"Recorded: {by.strip()} approves one run of the plan {plan[:12]}... (account {account}).", quiet=quiet)
    if by.strip() == account:
        echo(f"It does not allow a run by {account}: the second person must be somebody else.", quiet=quiet)


@book_app.command("policy")
@with_options(
    path=BOOK, policy=typer.Option("--set", help="A policy file (TOML) that binds every later run with this book.")
)
def book_policy(path: Path, policy: Path | None = None, quiet: bool = False) -> None:
    """Show the policies of a book, or set another one.

    Policies are entries of the book: earlier ones stay visible. If the policy in force requires a second person, a
    new policy needs approval too.
    """
    from understudy.institution.book import BudgetBook, Policy

    book = BudgetBook.open(path)
    if policy is not None:
        book.set_policy(policy)
        echo(f"Entry {book.num_entries} of {path} binds every later run: {_rules(book)}.", quiet=quiet)
        return
    for each in book.policies:
        approved = f", approved by {each.facts['approved_by']}" if each.facts.get("approved_by") else ""
        facts = f"entry {each.number}, {each.facts['time']}, set by {each.facts.get('by')}{approved}"
        say(f"{facts}: {Policy.from_dict(each.policy).describe()}")
    if not book.policies:
        say(f"{path} has no policy: every run that fits is allowed.")


def _rules(book: "BudgetBook") -> str:
    policy = book.policy
    assert policy is not None
    return policy.describe()
