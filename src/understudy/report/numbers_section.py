"""The section of the report on numeric columns: means, totals, quantiles and shared values beside the real ones."""

from collections.abc import Callable, Iterator, Sequence

from understudy.evaluation.scores import Json
from understudy.report.averages import averages, show_shared, show_value
from understudy.report.markup import esc, name_tag, scroll_table
from understudy.report.parts import detail
from understudy.report.svg import DATES, Style
from understudy.report.text import finite, format_fraction, number, shorten

MAX_COLUMNS, MAX_ROWS = 30, 5
"""How many columns are listed, and how many shared values and groups of each; the JSON has more."""
DAYS = {"date": 1.0, "datetime": 86_400e6}
"""The length of a day in the numbers of such a column."""


def section(card: Json, methods: Sequence[Style]) -> str:
    """A table with a part for each column, the worst first; empty if no numeric column was compared."""
    by_method = {style.name: detail(card, "numbers", style.name).get("columns") or {} for style in methods}
    worst: dict[str, float] = {}
    for style in methods:
        for name, mean in averages(card, style.name).columns.items():
            worst[name] = max(worst.get(name, 0.0), mean.severity, mean.shared_error)
    if not worst:
        return ""
    held = detail(card, "numbers", "real").get("columns") or {}
    order = sorted(worst, key=lambda name: -worst[name])
    rows = []
    for name in order[:MAX_COLUMNS]:
        columns = [by_method[style.name].get(name) or {} for style in methods]
        first = next(column for column in columns if column)
        rows.append(f'<tr class="head"><th scope=rowgroup colspan="{3 + len(methods)}">{name_tag(name, 60)}</th></tr>')
        rows += _rows(first, [held.get(name) or {}, *columns], str(card.get("target")))
    cut = f" The {MAX_COLUMNS} worst of {len(order)} columns are shown." if len(order) > MAX_COLUMNS else ""
    titles = ["statistic", "real", "held-out real rows", *(style.heading(20) for style in methods)]
    return (
        "<p>Each numeric column, the worst first. Totals are scaled to the number of real rows. Below them are the "
        f"values that most real rows share, and the means by category of the target, {MAX_ROWS} of each at most."
        f"{cut}</p>{scroll_table('Numbers', titles, rows, 'plain', num_numeric=2 + len(methods))}"
    )


def _rows(first: Json, tables: Sequence[Json], target: str) -> Iterator[str]:
    """The rows of one column: the real statistic, then those of held-out rows and of each table."""
    kind = str(first.get("type"))

    def statistic(key: str, show: Callable[[object, str], str]) -> str:
        values = [(first.get("real") or {}).get(key), *((table.get("synthetic") or {}).get(key) for table in tables)]
        return _row(key, [show(value, kind) for value in values])

    yield statistic("mean", show_value)
    if kind not in DATES:
        yield statistic("total", show_value)
    yield statistic("stddev", _duration)
    for label in (first.get("real") or {}).get("quantiles") or {}:
        parts = [first.get("real") or {}, *(table.get("synthetic") or {} for table in tables)]
        values = [(part.get("quantiles") or {}).get(label) for part in parts]
        yield _row(f"quantile {label}", [show_value(value, kind) for value in values])
    for entry in (first.get("values") or ())[:MAX_ROWS]:
        found = [_entry(table, "values", "value", entry["value"]) for table in tables]
        texts = [format_fraction(value) for value in (entry.get("real"), *found)]
        yield _row(f"rows with {show_shared(entry['value'], kind)}", texts)
    for entry in (first.get("groups") or ())[:MAX_ROWS]:
        found = [_entry(table, "groups", "group", entry["group"]) for table in tables]
        where = f"{shorten(target, 30)} = {shorten(str(entry['group']), 30)}"
        yield _row(f"mean where {where}", [show_value(value, kind) for value in (entry.get("real"), *found)])


def _entry(table: Json, part: str, key: str, wanted: object) -> object:
    """The synthetic figure of one shared value or group; None: the table has none."""
    return next((each.get("synthetic") for each in table.get(part) or () if each.get(key) == wanted), None)


def _duration(value: object, kind: str) -> str:
    """A standard deviation, of dates in days."""
    known = finite(value)
    return number(known) if known is None or kind not in DAYS else f"{number(known / DAYS[kind])} days"


_NAMES = {"stddev": "standard deviation"}


def _row(name: str, texts: Sequence[str]) -> str:
    cells = "".join(f"<td class=n>{esc(text)}</td>" for text in texts)
    return f"<tr><td>{esc(_NAMES.get(name, name))}</td>{cells}</tr>"
