"""The little Markdown that certificates are written in, as HTML. Whatever is no markup is text, and escaped."""

import itertools
import re
from collections.abc import Sequence

from understudy.report.charts import esc

_HEADING = re.compile(r"(#{1,6}) +(.*)")
_INLINE = re.compile(r"`([^`]+)`|\*\*(.+?)\*\*")
_CELL = re.compile(r"(?<!\\)\|")


def to_html(source: str, *, top: int = 1) -> str:
    """Headings (the first level as `top`), paragraphs, quotes, lists and tables; in them, bold and code.

    >>> to_html("# A\\n\\nis **b** & `c`", top=3)
    '<h3>A</h3><p>is <strong>b</strong> &amp; <code>c</code></p>'
    """
    blocks = re.split(r"\n\s*\n", source.strip())
    return "".join(_block(block.splitlines(), top) for block in blocks if block.strip())


def _block(lines: Sequence[str], top: int) -> str:
    if heading := _HEADING.fullmatch(lines[0].strip()):
        level = min(len(heading[1]) + top - 1, 6)
        rest = _block(lines[1:], top) if len(lines) > 1 else ""
        return f"<h{level}>{_inline(heading[2])}</h{level}>{rest}"
    if all(line.startswith(">") for line in lines):
        return f"<blockquote>{_inline(' '.join(line[1:].strip() for line in lines))}</blockquote>"
    if all(line.startswith("- ") for line in lines):
        return f"<ul>{''.join(f'<li>{_inline(line[2:])}</li>' for line in lines)}</ul>"
    if len(lines) > 1 and all(line.startswith("|") for line in lines):
        return _table(lines)
    return f"<p>{_inline(' '.join(lines))}</p>"


def _table(lines: Sequence[str]) -> str:
    head, rule, *body = [
        [cell.strip().replace("\\|", "|") for cell in _CELL.split(line.strip())[1:-1]] for line in lines
    ]
    sides = [" class=n" if cell.endswith(":") else "" for cell in rule]
    heads = "".join(f"<th scope=col>{_inline(cell)}</th>" for cell in head)
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td{side or ''}>{_inline(cell)}</td>" for cell, side in itertools.zip_longest(row, sides[: len(row)])
        )
        + "</tr>"
        for row in body
    )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Table"><table class="plain"><thead>'
        f"<tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _inline(text: str) -> str:
    parts, at = [], 0
    for found in _INLINE.finditer(text):
        parts.append(esc(text[at : found.start()]))
        code, bold = found.groups()
        parts.append(f"<code>{esc(code)}</code>" if code is not None else f"<strong>{_inline(bold)}</strong>")
        at = found.end()
    return "".join([*parts, esc(text[at:])])
