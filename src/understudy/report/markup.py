"""Text as safe HTML, and HTML tables."""

import html
from collections.abc import Iterable, Mapping, Sequence

from understudy.report.text import shorten


def esc(text: object) -> str:
    """Any text, safe inside elements and quoted attributes; control characters become spaces."""
    plain = "".join(c if c.isprintable() or c in "\u00a0\u200d\ufe0f" else " " for c in str(text))
    return html.escape(plain, quote=True)


def name_tag(name: object, max_length: int = 28) -> str:
    """A name, shortened if it is very long, with the whole of it on hover."""
    short = shorten(str(name), max_length)
    full = f' title="{esc(name)}"' if short != str(name) else ""
    return f"<span{full}>{esc(short)}</span>"


def finding(kind: str, title: str, text: str, drawing: str = "") -> str:
    """A sentence with its heading and a drawing; the kind sets the colour."""
    return f'<div class="finding {kind}"><h4>{title}</h4><p>{esc(text)}</p>{drawing}</div>'


def findings(heading: str, sentences: Mapping[str, str], drawings: Mapping[str, str]) -> str:
    """The sentences of a verdict with their titles, and drawings for some of them. The heading is HTML."""
    cards = (
        finding(title.lower().replace(" ", "-"), title, sentence, drawings.get(title, ""))
        for title, sentence in sentences.items()
    )
    return f'<div class="summary">{heading}<div class="findings">{"".join(cards)}</div></div>'


def warning_list(warnings: Iterable[str]) -> str:
    """Nothing if there are none."""
    items = "".join(f"<li><strong>Warning.</strong> {esc(text)}</li>" for text in warnings)
    return f'<ul class="warnings">{items}</ul>' if items else ""


def scroll_table(label: str, titles: Sequence[str], rows: Iterable[str], kind: str, *, num_numeric: int = 0) -> str:
    """An HTML table that scrolls sideways where it is wider than the page; the last columns are numeric.

    Titles and rows are HTML.
    """
    first = len(titles) - num_numeric
    head = "".join(f"<th scope=col{' class=n' if at >= first else ''}>{title}</th>" for at, title in enumerate(titles))
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table class="{kind}"><thead><tr>'
        f"{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
