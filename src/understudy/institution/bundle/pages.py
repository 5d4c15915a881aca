"""The pages of a bundle for people: README.md, and the page on which decisions are signed.

Both are made from the statement of the release and the manifest alone, so a reader can make them again and compare.
"""

import dataclasses
import importlib.resources
import string
from collections.abc import Mapping, Sequence

from understudy.certificate import escape_markdown, head_facts, round_up, statement_conditions, verdict
from understudy.certificate.page import escape_html, html_document
from understudy.privacy.accounting.ledger import Statement

IN_HOUSE = "in-house: contains figures computed from real rows; not for publication"
"""How the manifest marks a bundle with an `in-house/` folder."""

DESCRIPTIONS: Mapping[str, str] = {
    "CERTIFICATE.md": "The privacy certificate as text: what is guaranteed, to whom, and where the budget went.",
    "README.md": "This page.",
    "SHA256SUMS": "The SHA-256 of every file, for `sha256sum`.",
    "audit.json": "Attacks on this version of the method, recorded by its authors. They concern the software and "
    "were made on invented data.",
    "certificate.html": "The certificate as a web page. It loads nothing from elsewhere.",
    "certificate.json": "The certificate for programs.",
    "in-house/disclosure.json": "Attacks on the synthetic table, computed from real rows.",
    "in-house/report.html": "Charts and scores that compare the synthetic table with the real one.",
    "in-house/scores.json": "Scores that compare the synthetic table with the real one.",
    "manifest.json": "What this bundle is about, and the SHA-256 and size of every file. A signature signs this file.",
    "manifest.json.sig": "The signature, if there is one (SSH format, namespace `understudy-bundle`).",
    "plan.json": "Every query that was charged, with its mechanism and its privacy cost.",
    "schema.toml": "What was declared public about the table before the run, and what was left to be estimated.",
    "sign-off.html": "A page to print and sign.",
    "versions.json": "Versions of the software that made the release, and of the software that made this bundle.",
}
"""Every file that a bundle may have, apart from `tables/`. No other file gets in, and `verify` accepts no other."""


@dataclasses.dataclass(frozen=True)
class Table:
    """A synthetic table of the release."""

    name: str
    sha256: str
    size: int
    included: bool
    """Whether its rows are in the bundle, or only its checksum."""


@dataclasses.dataclass(frozen=True)
class Facts:
    """What the pages say beyond the statement."""

    release_sha256: str
    """Of release.json, which has the checksums of all other files of the release folder."""
    in_house: bool
    tables: tuple[Table, ...]


def marks(statement: Statement, *, in_house: bool) -> list[str]:
    """What must be known before anything else is read."""
    marks = []
    if not statement.is_private:
        reason = "the noise of this run was seeded" if statement.seeded else "real rows were used without noise"
        marks.append(f"NOT PRIVATE: {reason}; there is no guarantee")
    return [*marks, IN_HOUSE] if in_house else marks


def release_facts(statement: Statement) -> dict[str, str]:
    """What was released, as pages and the terminal show it."""
    figures = "none"
    if statement.strength is not None:
        figures = f"epsilon {round_up(statement.epsilon, 4)} at delta {round_up(statement.delta, 2)}"
        figures += f" ({statement.strength.value})"
    unit = statement.summary().facts["privacy unit"]
    facts = {**head_facts(statement), "Method": statement.method, "Guarantee": figures, "Privacy unit": unit}
    conditions = statement_conditions(statement.facts) if statement.is_private else []
    return {**facts, "Condition": " ".join(conditions)} if conditions else facts


def make_readme(statement: Statement, facts: Facts, names: Sequence[str]) -> str:
    """README.md of a bundle with files of these names."""
    name = statement.facts.name
    stated = {what: value for what, value in release_facts(statement).items() if what != "Condition"}  # it is below
    about = [f"- {what}: {escape_markdown(value)}" for what, value in stated.items()]
    return string.Template(_read("readme.md")).substitute(
        title="Evidence bundle" if name is None else f"Evidence bundle: {escape_markdown(name)}",
        marks="".join(f"> **{mark}.**\n\n" for mark in _capitalized_marks(statement, facts)),
        about="\n".join([*about, f"- SHA-256 of release.json: `{facts.release_sha256}`"]),
        verdict="\n\n".join(verdict(statement)),
        coverage=_coverage(statement, facts),
        files="\n".join(map(_file_row, sorted(names))),
        absent=_absent_tables(facts.tables),
    )


def _coverage(statement: Statement, facts: Facts) -> str:
    if not statement.is_private:
        return "No file of this bundle is covered by a guarantee."
    if statement_conditions(statement.facts):
        start, rest = "Under the condition above, the guarantee", "apart from that, nothing was"
    else:
        start, rest = "The guarantee", "nothing was"
    covered = (
        f"{start} covers every file of this bundle except those in `in-house/`. Those were computed from real "
        "rows: do not publish them, and do not give this bundle to anyone who may not see them."
        if facts.in_house
        else f"{start} covers every file of this bundle: {rest} computed from real rows in any other way."
    )
    return f"{covered} CERTIFICATE.md lists what no such guarantee covers."


def _file_row(name: str) -> str:
    text = "A synthetic table of this release." if name.startswith("tables/") else DESCRIPTIONS[name]
    return f"| {escape_markdown(name)} | {text} |"


def _absent_tables(tables: Sequence[Table]) -> str:
    """Synthetic tables that are named and not included."""
    absent = [each for each in tables if not each.included]
    lines = [f"- {escape_markdown(each.name)}, {each.size:,} bytes, SHA-256 `{each.sha256}`\n" for each in absent]
    return f"Synthetic tables of this release that are not included:\n\n{''.join(lines)}\n" if absent else ""


def make_sign_off(statement: Statement, facts: Facts) -> str:
    """The page to sign, as HTML."""
    name = statement.facts.name
    rows = {what: escape_html(value) for what, value in release_facts(statement).items()}
    rows["SHA-256 of release.json"] = f"<code>{escape_html(facts.release_sha256)}</code>"
    page = "".join(line.strip() for line in _read("sign_off.html").splitlines())
    warnings = map(escape_html, _capitalized_marks(statement, facts))
    body = string.Template(page).substitute(
        style=_read("sign_off.css"),
        name=escape_html(name or "Synthetic data release"),
        warnings="".join(f"<blockquote><p><strong>{text}.</strong></p></blockquote>" for text in warnings),
        about="".join(f"<div><dt>{what}</dt><dd>{value}</dd></div>" for what, value in rows.items()),
    )
    return html_document("Sign-off" if name is None else f"Sign-off: {name}", body)


def _capitalized_marks(statement: Statement, facts: Facts) -> list[str]:
    return [f"{mark[:1].upper()}{mark[1:]}" for mark in marks(statement, in_house=facts.in_house)]


def _read(name: str) -> str:
    return importlib.resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
