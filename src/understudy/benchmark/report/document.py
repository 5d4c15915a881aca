"""Blocks of a report, which HTML and Markdown render alike: paragraphs, lists, tables, drawings."""

import dataclasses

from understudy.report import svg
from understudy.report.markup import esc

PAPER, MARGIN = "#fdfdfb", 14
"""Background and margin of drawings in files of their own."""
STANDALONE = (
    "text{font:11px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:#5c5c57}text.axis{fill:#2a2a28}"
    "text.title{font-size:13px;font-weight:600;fill:#2a2a28}text.dark{fill:#22221f}text.light{fill:#fff}"
    "text.sure{font-weight:700}.hit{fill:transparent}.hollow{fill:#fdfdfb}"
)
"""Styles of drawings in files of their own, where the style sheet of the page is absent."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawing:
    """One SVG drawing with its alternative text and the table of its data."""

    name: str
    """Of its file, without the extension."""
    title: str
    label: str
    """What a screen reader says."""
    body: str
    """SVG elements."""
    width: float
    height: float
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def to_html(self) -> str:
        """A figure of a page, with its data folded away below it."""
        drawn = svg.panel(self.body, self.label, width=self.width, height=self.height)
        return svg.figure([drawn], self.head, self.rows, title=f'<span class="name">{esc(self.title)}</span>')

    def to_svg(self) -> str:
        """A file of its own, on a light background."""
        width, height = self.width + 2 * MARGIN, self.height + 2 * MARGIN + 22
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
            f'height="{height:g}" role="img" aria-label="{esc(self.label)}"><title>{esc(self.title)}</title>'
            f'<style>{STANDALONE}</style><rect width="{width:g}" height="{height:g}" fill="{PAPER}"/>'
            f'<text x="{MARGIN}" y="{MARGIN + 10}" class="title">{esc(self.title)}</text>'
            f'<g transform="translate({MARGIN} {MARGIN + 22})">{self.body}</g></svg>\n'
        )


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
    """A table of text; the first `num_labels` columns are names, the others numbers.

    >>> print(markdown_table(TextTable("Scores", ("method", "F1"), (("mst", "0.5"),))))
    **Scores**
    <BLANKLINE>
    | method | F1 |
    | --- | ---: |
    | mst | 0.5 |
    """

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


def markdown_table(table: TextTable) -> str:
    """A table as GitHub and MyST read it.

    >>> markdown_table(TextTable("", ("a", "b"), (("x|y", "1"),))).splitlines()[-1]
    '| x\\\\|y | 1 |'
    """

    def cell(row: int, column: int, text: str) -> str:
        plain = " ".join(text.split()).replace("|", "\\|")
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
