"""The certificate as one web page that opens offline, prints well and may be published; and all files of a certificate.

Like the text, it is made from a `Statement` and checksums alone.
"""

import html
import importlib.resources
import os
import re
from collections.abc import Mapping

from markdown_it import MarkdownIt

from understudy.certificate.json import to_json
from understudy.certificate.markdown import NO_CHECKSUMS, head_facts, sections, to_markdown, verdict
from understudy.privacy.accounting.ledger import Statement
from understudy.privacy.accounting.statement import round_up
from understudy.run.atomic import json_bytes, write_file

CERTIFICATE_FILES = ("certificate.json", "CERTIFICATE.md", "certificate.html")


def to_files(statement: Statement, checksums: Mapping[str, str] = NO_CHECKSUMS) -> dict[str, bytes]:
    """The certificate for machines, for people, and as a page to publish: three files, by name."""
    contents = (
        json_bytes(to_json(statement, checksums)),
        to_markdown(statement, checksums).encode(),
        to_html(statement, checksums).encode(),
    )
    return dict(zip(CERTIFICATE_FILES, contents, strict=True))


def to_html(statement: Statement, checksums: Mapping[str, str] = NO_CHECKSUMS) -> str:
    """The whole page. It loads nothing and runs no script."""
    name = statement.facts.name
    facts = "".join(
        f"<div><dt>{escape_html(what)}</dt><dd>{escape_html(value)}</dd></div>"
        for what, value in (head_facts(statement) | {"Method": statement.method}).items()
    )
    digests = "".join(
        f"<div><dt>SHA-256 of {escape_html(file)}</dt><dd><code>{escape_html(digest)}</code></dd></div>"
        for file, digest in checksums.items()
    )
    title = "Privacy certificate" if name is None else f"Privacy certificate: {name}"
    head = f"<h1>{escape_html(name or 'Synthetic data release')}</h1>"
    summary = markdown_to_html("\n\n".join(verdict(statement, with_figures=False)))
    details = markdown_to_html("\n\n".join(sections(statement)))
    body = (
        f'<header><p class="kind">Privacy certificate</p>{head}{_seal(statement)}</header>'
        f'<section class="verdict">{summary}</section><dl>{facts}{digests}</dl>'
        f'<section class="details">{details}</section>'
    )
    return html_document(title, body)


def html_document(title: str, body: str) -> str:
    """A whole page in the style of the certificate. It loads nothing and runs no script."""
    style = importlib.resources.files("understudy.certificate").joinpath("certificate.css").read_text(encoding="utf-8")
    head = html_head(escape_html(title), style, "img-src data:; base-uri 'none'; form-action 'none'")
    return f"{head}<body><main>{_keep_exponents(body)}</main></body></html>\n"


def html_head(title: str, style: str, policy: str) -> str:
    """The start of a page that loads nothing; `policy` is what else it may do. Title and style are HTML and CSS."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        f'{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">'
        f"<title>{title}</title><style>{style}</style></head>"
    )


def _keep_exponents(body: str) -> str:
    """No line break inside a number such as 2e-06, where browsers break after the hyphen."""
    return re.sub(r"(?<![\w.-])\d[\d.]*e-\d+(?![\w-])", r'<span class="number">\g<0></span>', body)


def write_page(
    path: str | os.PathLike[str], statement: Statement, checksums: Mapping[str, str], *, force: bool = False
) -> None:
    """Writes the page, whole or not at all."""
    write_file(path, to_html(statement, checksums).encode(), force=force)


def _seal(statement: Statement) -> str:
    """What the page says at a glance: the strength of the guarantee and its figures, or that there is none."""
    figures = (
        f"epsilon {round_up(statement.epsilon, 4)} (requested: at most {statement.epsilon_target:g}), "
        f"delta {round_up(statement.delta, 2)}"
    )
    if not statement.released:
        kind, word = "none", "Spent, nothing released"
    elif statement.strength is None:
        kind, word, figures = "none", "Not private", "There is no guarantee."
    else:
        kind, word = statement.strength.value, f"{statement.strength.value.capitalize()} guarantee"
    return f'<p class="seal {kind}"><strong>{word}</strong> <span>{figures}</span></p>'


def escape_html(text: str) -> str:
    """Text on one line that HTML shows as it is."""
    return html.escape(" ".join(text.split()))


def markdown_to_html(source: str, *, down: int = 0) -> str:
    """Markdown with tables as HTML, headings `down` levels lower. Raw HTML and links are off: they come out as text."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["link", "autolink", "image"])
    parser.disable(["html_block", "html_inline", "reference", "entity"])
    tokens = parser.parse(source)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1]) + down, 6)}"
        if token.type in ("th_open", "td_open") and token.attrs.pop("style", "") == "text-align:right":
            token.attrs["class"] = "n"
        if token.type == "table_open":
            token.attrs["class"] = "plain"
    page: str = parser.renderer.render(tokens, parser.options, {})
    scroll = '<div class="scroll" tabindex="0" role="region" aria-label="Table">'
    return page.replace("<table", f"{scroll}<table").replace("</table>", "</table></div>")
