"""The pages of a bundle for people: README.md, and the page on which decisions are signed.

Both are made from the statement of the release and the manifest alone, so a reader can make them again and compare.
"""

import dataclasses
import importlib.resources
from collections.abc import Mapping, Sequence

from understudy.certificate import escape_markdown, head_facts, round_up, statement_conditions, verdict
from understudy.certificate_page import escape_html, html_document
from understudy.privacy.ledger import Statement

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
    "certificate.pdf": "The web page of the certificate, printed.",
    "in-house/disclosure.json": "Attacks on the synthetic table, computed from real rows.",
    "in-house/report.html": "Charts and scores that compare the synthetic table with the real one.",
    "in-house/report.pdf": "The same report, printed.",
    "in-house/scores.json": "Scores that compare the synthetic table with the real one.",
    "manifest.json": "What this bundle is about, and the SHA-256 and size of every file. A signature signs this file.",
    "manifest.json.sig": "The signature, if there is one (SSH format, namespace `understudy-bundle`).",
    "plan.json": "Every query that was charged, with its mechanism and its privacy cost.",
    "schema.toml": "What was declared public about the table before the run, and what was left to be estimated.",
    "sign-off.html": "A page to print and sign.",
    "sign-off.pdf": "The same page, printed.",
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
    found = []
    if not statement.is_private:
        reason = "the noise of this run was seeded" if statement.seeded else "real rows were used without noise"
        found.append(f"NOT PRIVATE: {reason}; there is no guarantee")
    return [*found, IN_HOUSE] if in_house else found


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
    title = "# Evidence bundle" if name is None else f"# Evidence bundle: {escape_markdown(name)}"
    stated = {what: value for what, value in release_facts(statement).items() if what != "Condition"}  # it is below
    about = [f"- {what}: {escape_markdown(value)}" for what, value in stated.items()]
    about.append(f"- SHA-256 of release.json: `{facts.release_sha256}`")
    blocks = [
        title,
        *(f"> **{mark[:1].upper()}{mark[1:]}.**" for mark in marks(statement, in_house=facts.in_house)),
        "This bundle documents one release of synthetic data, for the people who decide about it.",
        "\n".join(about),
        "## What is guaranteed",
        *verdict(statement),
        _coverage(statement, facts),
        "## What each file is",
        "\n".join(["| file | content |", "|---|---|", *(_file_row(each) for each in sorted(names))]),
        *_tables(facts.tables),
        "## How to check it",
        "`understudy verify BUNDLE.zip` checks the files, whether they agree with each other, the total privacy cost "
        "and the signature. Without Understudy, unpack the bundle and run:",
        "```\nsha256sum -c SHA256SUMS\nssh-keygen -Y verify -f ALLOWED_SIGNERS -I NAME -n understudy-bundle "
        "-s manifest.json.sig < manifest.json\n```",
        "The second command needs a signed bundle and a list of the keys that you trust. Checksums show damage, "
        "but anyone can compute new ones: only a signature shows who made the bundle. Neither shows that the run "
        "was made as described.",
    ]
    return "\n\n".join(blocks) + "\n"


def _coverage(statement: Statement, facts: Facts) -> str:
    """Which files the guarantee covers."""
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


def _tables(tables: Sequence[Table]) -> list[str]:
    """Synthetic tables that are named and not included."""
    absent = [each for each in tables if not each.included]
    if not absent:
        return []
    lines = [f"- {escape_markdown(each.name)}, {each.size:,} bytes, SHA-256 `{each.sha256}`" for each in absent]
    return ["Synthetic tables of this release that are not included:", "\n".join(lines)]


_ROLES = ("Prepared by", "Reviewed by", "Approved by")
_QUESTIONS = (
    "The declared facts in schema.toml were known before the run, and not read from the private table.",
    "The privacy unit is the one that must be protected.",
    "Earlier releases about the same people were taken into account.",
)


def make_sign_off(statement: Statement, facts: Facts) -> str:
    """The page to sign, as HTML."""
    style = importlib.resources.files("understudy").joinpath("bundle", "sign_off.css").read_text(encoding="utf-8")
    name = statement.facts.name
    rows = {what: escape_html(value) for what, value in release_facts(statement).items()}
    rows["SHA-256 of release.json"] = f"<code>{escape_html(facts.release_sha256)}</code>"
    about = "".join(f"<div><dt>{what}</dt><dd>{value}</dd></div>" for what, value in rows.items())
    warnings = "".join(
        f"<blockquote><p><strong>{escape_html(mark[:1].upper() + mark[1:])}.</strong></p></blockquote>"
        for mark in marks(statement, in_house=facts.in_house)
    )
    boxes = "".join(f'<li><span class="box"></span>{escape_html(text)}</li>' for text in _QUESTIONS)
    blank = "".join(f'<td><span class="label">{label}</span></td>' for label in ("Name", "Date", "Signature"))
    lines = "".join(f"<tr><th>{role}</th>{blank}</tr>" for role in _ROLES)
    body = (
        f"<style>{style}</style>"
        f'<header><p class="kind">Sign-off</p><h1>{escape_html(name or "Synthetic data release")}</h1></header>'
        f"{warnings}<dl>{about}</dl><h2>Confirmed</h2><ul>{boxes}</ul>"
        '<h2>Decision</h2><p><span class="box"></span>Release <span class="box"></span>Release with conditions '
        '<span class="box"></span>Do not release</p><p class="blank">Conditions:</p>'
        f'<table class="signatures">{lines}</table>'
    )
    return html_document("Sign-off" if name is None else f"Sign-off: {name}", body)
