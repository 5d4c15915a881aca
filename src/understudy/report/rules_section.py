"""The section on rules: how many rows of every table break each of them, real rows beside synthetic ones."""

from collections.abc import Sequence

from understudy.evaluation.scores import Json
from understudy.report.markup import esc, scroll_table
from understudy.report.parts import detail
from understudy.report.summary import CheckedRule, checked_rules
from understudy.report.svg import Style
from understudy.report.text import count_of, finite, percent, shorten


def section(card: Json, methods: Sequence[Style]) -> str:
    """A table with a row for each rule; empty if no table was checked for one."""
    rules = {style.name: checked_rules(card, style.name) for style in methods}
    first = rules[methods[0].name]
    if not first:
        return ""
    rows = [_row(each, methods) for each in zip(*(rules[style.name] for style in methods), strict=True)]
    if len(first) > 1:
        rows.append(_total(card, methods))
    head = "".join(f"<th scope=col>{style.heading(20)}</th>" for style in methods)
    titles = f"<th scope=col>rule</th><th scope=col>real rows</th>{head}"
    lead = (
        "<p>The fraction and the number of rows that break each rule, among all rows of each table. A missing value "
        "that leaves a rule unknown does not break it. A rule of the schema should hold in every synthetic row, even "
        "if some real rows break it; a condition given with --constraint counts as broken if clearly more synthetic "
        "than real rows break it.</p>"
    )
    return lead + scroll_table("Rules", titles, "".join(rows), "all rules")


def _row(found: Sequence[CheckedRule], methods: Sequence[Style]) -> str:
    """One rule: real rows, then each synthetic table."""
    first = found[0]
    cells = [_cell("real rows", first.real_broken, first.real, why="–" if first.why else "")]
    for rule, style in zip(found, methods, strict=True):
        cells.append(_cell(style.name, rule.synthetic_broken, rule.synthetic, broken=rule.is_broken, why=rule.why))
    source = "" if first.is_declared else "<small>given with --constraint</small>"
    return f"<tr><th scope=row><code>{esc(first.text)}</code>{source}</th>{''.join(cells)}</tr>"


def _total(card: Json, methods: Sequence[Style]) -> str:
    """The rows that break at least one rule."""
    found = [(style, detail(card, "constraints", style.name).get("any") or {}) for style in methods]
    first = found[0][1]
    real = "" if finite(first.get("real")) is not None else "–"
    cells = [_cell("real rows", _count(first, "real_broken"), finite(first.get("real")) or 0.0, why=real)]
    for style, each in found:
        fraction = finite(each.get("synthetic"))
        why = "" if fraction is not None else "–"
        cells.append(_cell(style.name, _count(each, "synthetic_broken"), fraction or 0.0, why=why))
    return f'<tr class="total"><th scope=row><span>Any of these rules</span></th>{"".join(cells)}</tr>'


def _count(found: Json, key: str) -> int:
    return int(finite(found.get(key)) or 0)


def _cell(name: str, count: int, fraction: float, *, broken: bool = False, why: str = "") -> str:
    """Number and fraction of the rows of one table; a bar shows the fraction."""
    start = f'<td class="n{" broken" if broken else ""}" data-name="{esc(shorten(name, 40))}">'
    if why:
        return f'{start}<span class="why">{esc(why if why == "–" else f"not checked: {why}")}</span></td>'
    if not count:
        return f'{start}<span class="none">none</span></td>'
    state = "broken in " if broken else ""
    bar = f'<span class="track"><i class="bar" style="left:0;width:{max(100 * fraction, 0.5):.2f}%"></i></span>'
    return f"{start}<b>{percent(fraction)}</b><small>{state}{count_of(count, 'row')}</small>{bar}</td>"
