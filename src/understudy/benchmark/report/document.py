"""The blocks of a report, and the report as one HTML page that opens offline or as Markdown with pictures."""

import dataclasses
import importlib.resources
import re
from collections.abc import Sequence

from understudy.benchmark.report.records import ReportInfo
from understudy.certificate.markdown import escape_markdown
from understudy.report import svg
from understudy.report.markup import esc
from understudy.report.page import document

BANNER = "Seeded runs on public data. Nothing on this page is private."


@dataclasses.dataclass(frozen=True)
class Drawing:
    """One picture as SVG, with its alternative text and the table of its data."""

    name: str
    """Of its file, without the extension."""
    label: str
    """What a screen reader says."""
    svg: str
    """The picture, as it stands in a file of its own."""
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def to_html(self) -> str:
        """A figure of a page, with its data folded away below it."""
        inline = re.sub(r' xmlns(:xlink)?="[^"]*"', "", self.svg)
        return svg.figure([f'<div class="panel">{inline}</div>'], self.head, self.rows)


@dataclasses.dataclass(frozen=True)
class Text:
    """A paragraph. Back quotes mark code, two asterisks strong text."""

    text: str
    kind: str = ""
    """Class of the paragraph in HTML, such as "lead" or "note"."""


@dataclasses.dataclass(frozen=True)
class Bullets:
    """A list of sentences."""

    items: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Facts:
    """Names with values: the numbers of the first screen."""

    items: tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True)
class TextTable:
    """A table of text; the first `num_labels` columns are names, the others numbers."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    num_labels: int = 1
    strong: frozenset[tuple[int, int]] = frozenset()
    """Cells to emphasise, by row and column."""
    soft: frozenset[tuple[int, int]] = frozenset()
    """Cells to mute."""
    note: str = ""
    is_folded: bool = False
    """Whether a page shows it only on request."""
    is_wordy: bool = False
    """Whether all columns hold sentences rather than numbers."""


@dataclasses.dataclass(frozen=True)
class Drawings:
    """Drawings side by side, with a note on how to read them."""

    drawings: tuple[Drawing, ...]
    note: str = ""
    columns: int = 2


@dataclasses.dataclass(frozen=True)
class Heading:
    """A heading inside a section."""

    text: str


Part = Text | Bullets | Facts | TextTable | Drawings | Heading


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of the page with an anchor and a title."""

    key: str
    title: str
    parts: tuple[Part, ...]


# ----------------------------------------------------------------------------------------------------------------- HTML


def render_html(sections: Sequence[Section], info: ReportInfo) -> str:
    """A page."""
    css = importlib.resources.files("understudy.benchmark.report").joinpath("page.css").read_text(encoding="utf-8")
    drawn = [(section.key, esc(section.title), "".join(map(_render_part, section.parts))) for section in sections]
    return document(info.title, _head(info), drawn, "", warning=BANNER, css=css)


def _head(info: ReportInfo) -> str:
    about = f'<p class="about">{render_inline(info.description)}</p>' if info.description else ""
    command = f'<p class="about"><code>{esc(info.command)}</code></p>' if info.command else ""
    return f"<header><h1>{esc(info.title)}</h1>{about}{command}</header>"


def render_inline(text: str) -> str:
    """Text as HTML, with code between back quotes and strong text between two asterisks."""
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


# ------------------------------------------------------------------------------------------------------------- Markdown


def render_markdown(sections: Sequence[Section], info: ReportInfo, *, image_folder: str) -> tuple[str, dict[str, str]]:
    """Markdown, and its pictures as SVG by file name. `image_folder`: where these will be, as seen from the page."""
    pictures: dict[str, str] = {}
    parts = [f"# {escape_markdown(info.title)}", BANNER]
    parts += [escape_inline(info.description)] if info.description else []
    parts += [f"```console\n$ {info.command}\n```"] if info.command else []
    for section in sections:
        parts.append(f"## {escape_markdown(section.title)}")
        parts += [_markdown(part, image_folder, pictures) for part in section.parts]
    return "\n\n".join(parts) + "\n", pictures


def _markdown(part: Part, image_folder: str, pictures: dict[str, str]) -> str:
    match part:
        case Text(text):
            return escape_inline(text)
        case Heading(text):
            return f"### {escape_markdown(text)}"
        case Bullets(items):
            return "\n".join(f"- {escape_inline(item)}" for item in items)
        case Facts(items):
            return markdown_table(TextTable("", tuple(name for name, _ in items), (tuple(v for _, v in items),), 99))
        case TextTable():
            return markdown_table(part)
        case Drawings(drawings, note):
            lines = []
            for drawing in drawings:
                name = f"{drawing.name}.svg"
                pictures[name] = drawing.svg
                alt = escape_markdown(drawing.label)
                lines.append(f"![{alt}]({image_folder.rstrip('/')}/{name})")
            return "\n\n".join([*lines, note] if note else lines)


def escape_inline(text: str) -> str:
    """Text that Markdown shows as it is, but for code between back quotes and strong text between two asterisks."""
    parts = re.split(r"((?<!`)`[^`]+`(?!`)|\*\*)", text)
    return "".join(part if at % 2 else re.sub(r"([\\\[\]<>])", r"\\\1", part) for at, part in enumerate(parts))


def markdown_table(table: TextTable) -> str:
    """A table as GitHub and MyST read it."""

    def cell(row: int, column: int, text: str) -> str:
        plain = escape_markdown(text)
        return f"**{plain}**" if (row, column) in table.strong and plain else plain

    rules = ["---" if i < table.num_labels or table.is_wordy else "---:" for i in range(len(table.head))]
    lines = [
        f"| {' | '.join(cell(-1, i, name) for i, name in enumerate(table.head))} |",
        f"| {' | '.join(rules)} |",
        *(
            f"| {' | '.join(cell(row, i, text) for i, text in enumerate(cells))} |"
            for row, cells in enumerate(table.rows)
        ),
    ]
    caption = [f"**{table.caption}**", ""] if table.caption else []
    note = ["", table.note] if table.note else []
    return "\n".join([*caption, *lines, *note])
