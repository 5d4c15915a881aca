"""Text as safe HTML, and HTML tables."""

import html

from understudy.report.text import shorten


def esc(text: object) -> str:
    """Any text, safe inside elements and quoted attributes; control characters become spaces."""
    plain = "".join(c if c.isprintable() or c in "\u00a0\u200d\ufe0f" else " " for c in str(text))
    return html.escape(plain, quote=True)


def name_tag(name: object, most: int = 28) -> str:
    """A name, shortened if it is very long, with the whole of it on hover."""
    short = shorten(str(name), most)
    full = f' title="{esc(name)}"' if short != str(name) else ""
    return f"<span{full}>{esc(short)}</span>"


def scroll_table(label: str, head: str, rows: str, kind: str) -> str:
    """An HTML table that scrolls sideways where it is wider than the page. `head` and `rows` are HTML."""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table class="{kind}"><thead><tr>'
        f"{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
