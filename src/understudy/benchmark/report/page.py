"""A benchmark report as one HTML page that opens offline."""

import base64
import hashlib
import importlib.resources
import re
from collections.abc import Iterable, Sequence

from understudy.benchmark.report.document import (
    Bullets,
    Drawings,
    Facts,
    Heading,
    Part,
    Section,
    Text,
    TextTable,
)
from understudy.benchmark.report.records import Metrics, Record, ReportInfo, read_records
from understudy.benchmark.report.sections import build_sections
from understudy.report.markup import esc

BANNER = "Seeded runs on public data. Nothing on this page is private."


def render_html(records: Iterable[Record], info: ReportInfo, metrics: Metrics) -> str:
    """The report of a suite as HTML: a pure function of its arguments.

    Args:
        records: Result records, as read from `results.jsonl`.
        info: What the records do not say.
        metrics: Title and direction of each metric; the order is that of the page.

    >>> page = render_html([], ReportInfo(suite="smoke", title="Smoke test"), {})
    >>> "There are no results yet." in page
    True
    """
    return render_sections(build_sections(read_records(records), info, metrics), info)


def render_sections(sections: Sequence[Section], info: ReportInfo) -> str:
    """A page of these sections, in the style of every report."""
    script = _asset("understudy.report", "report.js")
    style = _asset("understudy.report", "report.css").replace("{WARNING}", BANNER)
    style += _asset("understudy.benchmark.report", "page.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; base-uri 'none'"
    )
    contents = "".join(f'<li><a href="#{section.key}">{esc(section.title)}</a></li>' for section in sections)
    body = "".join(
        f'<section id="{section.key}"><h2>{esc(section.title)}</h2>'
        f"{''.join(_render_part(part) for part in section.parts)}</section>"
        for section in sections
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f'<link rel="icon" href="data:,"><title>{esc(info.title)}</title><style>{style}</style></head><body>'
        f'<p class="banner"><strong>{BANNER}</strong></p>'
        f'<div class="page"><nav aria-label="Contents"><ol>{contents}</ol></nav><main>{_head(info)}{body}</main></div>'
        f'<div id="tip" role="status" hidden></div><script>{script}</script></body></html>\n'
    )


def _asset(package: str, name: str) -> str:
    return importlib.resources.files(package).joinpath(name).read_text(encoding="utf-8")


def _head(info: ReportInfo) -> str:
    about = f'<p class="about">{render_inline(info.description)}</p>' if info.description else ""
    command = f'<p class="about"><code>{esc(info.command)}</code></p>' if info.command else ""
    return f"<header><h1>{esc(info.title)}</h1>{about}{command}</header>"


def render_inline(text: str) -> str:
    """Text as HTML, with code between back quotes and strong text between two asterisks.

    >>> render_inline("**a** & `b`")
    '<strong>a</strong> &amp; <code>b</code>'
    """
    strong = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", esc(text))
    return re.sub(r"`(.+?)`", r"<code>\1</code>", strong)


def _render_part(part: Part) -> str:
    match part:
        case Text(text, kind):
            return f"<p{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}>{render_inline(text)}</p>"
        case Heading(text):
            return f"<h3>{esc(text)}</h3>"
        case Bullets(items):
            return f"<ul>{''.join(f'<li>{render_inline(item)}</li>' for item in items)}</ul>"
        case Facts(items):
            return _facts(items)
        case TextTable():
            return _table(part)
        case Drawings(drawings, note, columns):
            kind = "drawings one" if columns == 1 else "drawings"
            remark = f'<p class="note">{render_inline(note)}</p>' if note else ""
            return f'<div class="{kind}">{"".join(drawing.to_html() for drawing in drawings)}</div>{remark}'


def _facts(items: Sequence[tuple[str, str]]) -> str:
    each = "".join(
        f"<div{' class=long' if len(value) > 12 else ''}><dt>{esc(name)}</dt><dd>{esc(value)}</dd></div>"
        for name, value in items
    )
    return f'<dl class="numbers">{each}</dl>'


def _table(table: TextTable) -> str:
    head = "".join(f"<th scope=col{_kind(table, -1, i)}>{esc(name)}</th>" for i, name in enumerate(table.head))
    rows = "".join(
        f"<tr>{''.join(_cell(table, line, column, text) for column, text in enumerate(cells))}</tr>"
        for line, cells in enumerate(table.rows)
    )
    name = f"grid{' wordy' if table.is_wordy else ''}"
    caption = f"<caption>{esc(table.caption)}</caption>" if table.caption else ""
    made = (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{esc(table.caption or "Table")}">'
        f'<table class="{name}">{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )
    made += f'<p class="note">{render_inline(table.note)}</p>' if table.note else ""
    if table.is_folded:
        return f'<details class="more"><summary>{esc(table.caption)}</summary>{made}</details>'
    return made


def _kind(table: TextTable, line: int, column: int) -> str:
    number = column >= table.num_labels and not table.is_wordy
    kinds = [*(["n"] if number else []), *(["soft"] if (line, column) in table.soft else [])]
    return f' class="{" ".join(kinds)}"' if kinds else ""


def _cell(table: TextTable, line: int, column: int, text: str) -> str:
    inner = "<br>".join(render_inline(line) for line in text.split("\n"))
    if (line, column) in table.strong:
        inner = f"<b>{inner}</b>"
    if column < table.num_labels:
        return f"<th scope=row>{inner}</th>"
    return f"<td{_kind(table, line, column)}>{inner}</td>"
