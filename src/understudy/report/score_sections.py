"""The sections of the report that show scores: the key scores, all scores as bars, and the table of all scores."""

import collections
import math
from collections.abc import Iterable, Sequence

from understudy.evaluation.scores import Direction, Json, Status
from understudy.report import summary, verdict
from understudy.report.markup import esc, scroll_table
from understudy.report.parts import detail, real_value
from understudy.report.svg import Style
from understudy.report.text import count_of, finite, format_score, minus, number, percent, shorten, tick_label

FAMILIES = {
    "Marginals and associations": (
        "one_way",
        "numbers",
        "two_way",
        "three_way",
        "nist",
        "cell_accuracy",
        "correlations",
        "dimension_probability",
        "gaussians",
        "locations",
    ),
    "Learning from synthetic rows": ("learning", "dimension_prediction", "parallel_rmse", "inception"),
    "Separating real from synthetic rows": ("pmse_logit", "pmse_cart", "jensen_shannon", "pca", "wasserstein"),
    "Invalid values and copies": ("validity", "constraints", "closest_record"),
    "Other scores": (),
}
"""Headings for groups of scores; a group that is not named here is among the others."""

_ROUGH = "\N{NO-BREAK SPACE}†"
"""Marks a reference that scores worse by chance alone."""


def is_skipped(metric: Json) -> bool:
    """Whether the effort left the metric out for all tables."""
    return all(map(verdict.is_skipped, metric["values"].values()))


def _applies(metric: Json) -> bool:
    """Whether the metric is for this kind of target and table."""
    return any(score.get("status") != Status.NOT_APPLICABLE for score in metric["values"].values())


def key_scores(card: Json, methods: Sequence[Style]) -> str:
    """The scores that sum up the page, methods side by side."""
    shown = [m for m in card["metrics"] if m.get("key_score") and not m.get("same_as") and _is_computed(m)]
    if not shown:
        return ""
    rows = [_key_row(metric, methods) for metric in shown]
    best = " The best of the tables is in bold." if len(methods) > 1 else ""
    return (
        "<p>The scores to read first. The column of real rows shows the score of held-out real rows in place of the "
        "synthetic table or, for learning, of models trained on real "
        f"rows.{best}</p>{_score_table('Key scores', rows, methods, 'all board')}{_rough_note(card, shown)}"
    )


def _is_computed(metric: Json) -> bool:
    return any(finite(score["value"]) is not None for score in metric["values"].values())


def _score_table(label: str, rows: Iterable[str], methods: Sequence[Style], kind: str, first: str = "score") -> str:
    return scroll_table(label, [first, "real rows", *(style.heading(20) for style in methods)], rows, kind)


def _key_row(metric: Json, methods: Sequence[Style]) -> str:
    values = {style.name: finite(metric["values"][style.name]["value"]) for style in methods}
    ranks = {name: verdict.badness(metric, value) for name, value in values.items() if value is not None}
    least = min((rank for rank in ranks.values() if rank is not None), default=None)
    best = [name for name, rank in ranks.items() if rank is not None and least is not None and rank <= least + 1e-12]
    cells = []
    for name, value in values.items():
        text = format_score(metric, value)
        shown = f"<b>{text}</b>" if best == [name] and len(methods) > 1 else text
        cells.append(f'<td class=n data-name="{esc(shorten(name, 40))}">{shown}</td>')
    real = format_score(metric, real_value(metric)) + ("" if verdict.is_comparable(metric) else _ROUGH)
    return (
        f"<tr><th scope=row><span>{esc(metric['title'])}</span><small>{_direction_text(metric)}</small></th>"
        f'<td class=n data-name="real rows">{real}</td>{"".join(cells)}</tr>'
    )


def _direction_text(metric: Json) -> str:
    return esc(Direction(metric["direction"]).text)


def _rough_note(card: Json, metrics: Sequence[Json]) -> str:
    if all(map(verdict.is_comparable, metrics)):
        return ""
    return (
        f'<p class="note">† Only {count_of(card["holdout"]["rows"], "real row")} could be held out, too few to compare '
        "with: smaller tables score worse by chance alone. Hold out more with --holdout (see understudy split).</p>"
    )


def bars(card: Json, methods: Sequence[Style]) -> str:
    drawn = [metric for metric in card["metrics"] if not metric.get("same_as") and _is_computed(metric)]
    if not drawn:
        return "<p>No score could be computed; the table of all scores gives the reasons.</p>"
    parts = [
        "<p>Each bar is the score of one synthetic table. The black line is the score of real rows: held-out real rows "
        "in place of synthetic ones, or models trained on real rows. Where a score has a best value, a dotted line "
        "marks it and the bar starts there. Whiskers are two standard errors.</p>"
    ]
    if not all(map(verdict.is_comparable, drawn)):
        parts.append(
            "<p>Where the line of real rows is grey and dashed, the held-out table has far fewer rows than the "
            "synthetic one. It scores worse by chance alone, so beating it proves nothing.</p>"
        )
    for family, metrics in families(drawn).items():
        usual = _usual_reference(metrics)
        cards = "".join(_bar_card(metric, methods, usual, _remark(card, metric, methods)) for metric in metrics)
        of = f'<p class="small">Real: {esc(usual)}, unless noted otherwise.</p>' if usual else ""
        parts.append(f'<div class="group"><h3>{family}</h3>{of}<div class="bars">{cards}</div></div>')
    return "".join(parts)


def _usual_reference(metrics: Sequence[Json]) -> str:
    """What most of these scores are compared with, so that it need not be repeated."""
    references = [str(metric["reference"].get("what") or "") for metric in metrics if metric.get("reference")]
    return collections.Counter(references).most_common(1)[0][0] if references else ""


def families(metrics: Sequence[Json]) -> dict[str, list[Json]]:
    """Metrics under their headings, in the order of these; empty headings are omitted."""
    of = {group: family for family, groups in FAMILIES.items() for group in groups}
    by_family: dict[str, list[Json]] = {family: [] for family in FAMILIES}
    for metric in metrics:
        by_family[of.get(metric["group"], "Other scores")].append(metric)
    return {family: each for family, each in by_family.items() if each}


def _bar_card(metric: Json, methods: Sequence[Style], usual: str, remark: str) -> str:
    reference = metric.get("reference") or {}
    real, goal = real_value(metric), Direction(metric["direction"]).goal
    values = [finite(score["value"]) for score in metric["values"].values()]
    low, high = _axis(metric, [v for v in (*values, real) if v is not None])

    def at(value: float) -> float:
        return round(100 * min(max((value - low) / (high - low), 0.0), 1.0), 2)

    start = at(goal if goal is not None else min(max(0.0, low), high))
    rough = "" if verdict.is_comparable(metric) else " rough"
    lines = f'<i class="goal" style="left:{start}%"></i>' if goal is not None else ""
    lines += f'<i class="real{rough}" style="left:{at(real)}%"></i>' if real is not None else ""
    rows = []
    for style in methods:
        score = metric["values"][style.name]
        value, error, tag = finite(score["value"]), finite(score.get("error")), style.heading(16)
        if value is None:
            why = esc(score.get("why") or "no reason is given")
            rows.append(f'<dt>{tag}</dt><dd class="none">not computed: {why}</dd>')
            continue
        left, right = sorted((start, at(value)))
        bar = f'<i class="bar" style="left:{left}%;width:{max(right - left, 0.4):.2f}%;background:{style.colour}"></i>'
        if error:
            left, right = at(value - 2 * error), at(value + 2 * error)
            bar += f'<i class="whisker" style="left:{left}%;width:{right - left:.2f}%"></i>'
        shown = format_score(metric, value)
        rows.append(f'<dt>{tag}</dt><dd><span class="track">{bar}{lines}</span><b>{shown}</b></dd>')
    what = str(reference.get("what") or "")
    named = esc(what) if what != usual else "real"
    text = "no score of real rows" if real is None else f"{named}: {format_score(metric, real)}"
    return (
        f'<div class="bar-card" tabindex="0" data-tip="{esc(metric["meaning"])}"><h4>{esc(metric["title"])}</h4>'
        f'<p class="small">{_direction_text(metric)} · {text}</p><dl>{"".join(rows)}'
        f'<dt></dt><dd class="ends"><span><i>{_end(metric, low)}</i><i>{_end(metric, high)}</i></span></dd></dl>'
        f"{remark}</div>"
    )


def _axis(metric: Json, values: Sequence[float]) -> tuple[float, float]:
    """The whole range where large is good; otherwise only as far as there are values, or nothing would be visible."""
    low, high, direction = finite(metric.get("low")), finite(metric.get("high")), Direction(metric["direction"])
    reached = [*values, *([] if direction.goal is None else [direction.goal])]
    bottom, top = min([*reached, 0.0 if low is None else low]), max(reached)
    if bottom < 0 and bottom != low:
        bottom = -round_up(-bottom)
    whole = direction in (Direction.HIGHER, Direction.NEAR_HALF)
    if high is not None and whole and high <= 10 * max(top, 1e-9):
        top = max(top, high)
    elif top > 0:
        top = round_up(top)
        top = min(top, high) if high is not None and high > bottom else top
    return bottom, top if top > bottom else bottom + 1.0


def round_up(value: float) -> float:
    """The next round number, where a scale may end."""
    scale = 10.0 ** math.floor(math.log10(value))
    steps = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
    return float(f"{next(step * scale for step in steps if step * scale >= value * (1 - 1e-9)):.3g}")


def table(card: Json, methods: Sequence[Style]) -> str:
    rows = []
    shown = [metric for metric in card["metrics"] if not is_skipped(metric) and _applies(metric)]
    for family, metrics in families(shown).items():
        usual = _usual_reference(metrics)
        rows.append(
            f'<tr class="head"><th scope=rowgroup>{family}</th><td class=n><small>{esc(usual)}</small></td>'
            f'<td colspan="{len(methods)}"></td></tr>'
        )
        rows += [_row(metric, methods, usual, _remark(card, metric, methods)) for metric in metrics]
    if not rows:
        return ""
    return (
        "<p>Every score with its meaning, its direction and range, the score of real rows, and its standard error "
        "(±) where one was estimated. The head of each part states what the score of real rows is; exceptions are "
        f"noted.</p>{_score_table('All scores', rows, methods, 'all')}{_rough_note(card, card['metrics'])}"
    )


def _remark(card: Json, metric: Json, methods: Sequence[Style]) -> str:
    """What a score means here, where its number alone misleads; HTML."""
    if metric["key"] != "exact_copies":
        return ""
    parts = []
    for style in methods:
        whose = f"{style.heading(20)}: " if len(methods) > 1 else ""
        if text := summary.chance_of_copies(card, style.name):
            parts.append(f"<small>{whose}{esc(text)}</small>")
    return "".join(parts)


def _row(metric: Json, methods: Sequence[Style], usual: str, remark: str) -> str:
    scores = [metric["values"][style.name] for style in methods]
    reasons = {score.get("why") if finite(score["value"]) is None else None for score in scores}
    if len(methods) > 1 and len(reasons) == 1 and None not in reasons:  # one reason for all
        cells = f'<td class=n colspan="{len(methods)}" data-name="all">{_cell(metric, scores[0])}</td>'
    else:
        cells = "".join(
            f'<td class=n data-name="{esc(shorten(style.name, 40))}">{_cell(metric, score)}</td>'
            for style, score in zip(methods, scores, strict=True)
        )
    reference = metric.get("reference")
    real = _cell(metric, reference, "" if verdict.is_comparable(metric) else _ROUGH) if reference else "–"
    if reference and str(reference.get("what") or "") != usual:
        real += f"<small>{esc(reference.get('what') or '')}</small>"
    low, high = finite(metric.get("low")), finite(metric.get("high"))
    span = f"from {'−∞' if low is None else _end(metric, low)} to {'∞' if high is None else _end(metric, high)}"
    twin = f"; repeats {esc(metric['same_as'])}" if metric.get("same_as") else ""
    return (
        f"<tr><th scope=row><span>{esc(metric['title'])}</span> <code>{esc(metric['key'])}</code>"
        f"<small>{esc(metric['meaning'])}</small><small>{_direction_text(metric)}; {span}{twin}</small>{remark}</th>"
        f'<td class=n data-name="real rows">{real}</td>{cells}</tr>'
    )


def _cell(metric: Json, score: Json, mark: str = "") -> str:
    value, error = finite(score.get("value")), finite(score.get("error"))
    if value is None:
        return f'<span class="why">not computed: {esc(score.get("why") or "no reason is given")}</span>'
    spread = f"<small>± {format_score(metric, error)}</small>" if error is not None else ""
    return f"<b>{format_score(metric, value)}{mark}</b>{spread}"


def _end(metric: Json, value: float) -> str:
    """The end of a scale: 1 rather than 1.00."""
    if metric.get("fraction"):
        return minus(f"{100 * value:.3g}%")
    return tick_label(value) if float(f"{value:.3g}") == value else number(value)


# Rules


def rules(card: Json, methods: Sequence[Style]) -> str:
    """A table with a row for each rule; empty if no table was checked for one."""
    checked = {style.name: summary.checked_rules(card, style.name) for style in methods}
    first = checked[methods[0].name]
    if not first:
        return ""
    rows = []
    for same in zip(*(checked[style.name] for style in methods), strict=True):
        source = "" if same[0].is_declared else "<small>given with --constraint</small>"
        cells = _rule_cells(same, [rule.is_broken for rule in same], methods)
        rows.append(f"<tr><th scope=row><code>{esc(same[0].text)}</code>{source}</th>{cells}</tr>")
    if len(first) > 1:
        anywhere = [detail(card, "constraints", style.name).get("any") or {} for style in methods]
        found = [
            summary.read_rule({**each, "why": "" if finite(each.get("real")) is not None else "–"}) for each in anywhere
        ]
        cells = _rule_cells(found, [False] * len(found), methods)
        rows.append(f'<tr class="total"><th scope=row><span>Any of these rules</span></th>{cells}</tr>')
    lead = (
        "<p>The fraction and the number of rows that break each rule, among all rows of each table. A missing value "
        "that leaves a rule unknown does not break it. A rule of the schema should hold in every synthetic row, even "
        "if some real rows break it; a condition given with --constraint counts as broken if clearly more synthetic "
        "than real rows break it.</p>"
    )
    return lead + _score_table("Rules", rows, methods, "all rules", "rule")


def _rule_cells(checked: Sequence[summary.CheckedRule], broken: Sequence[bool], methods: Sequence[Style]) -> str:
    """Real rows, then each synthetic table."""
    cells = [_rule_cell("real rows", checked[0].real_broken, checked[0].real, why="–" if checked[0].why else "")]
    for rule, is_broken, style in zip(checked, broken, methods, strict=True):
        cells.append(_rule_cell(style.name, rule.synthetic_broken, rule.synthetic, broken=is_broken, why=rule.why))
    return "".join(cells)


def _rule_cell(name: str, count: int, fraction: float, *, broken: bool = False, why: str = "") -> str:
    """Number and fraction of the rows of one table; a bar shows the fraction."""
    start = f'<td class="n{" broken" if broken else ""}" data-name="{esc(shorten(name, 40))}">'
    if why:
        return f'{start}<span class="why">{esc(why if why == "–" else f"not checked: {why}")}</span></td>'
    if not count:
        return f'{start}<span class="none">none</span></td>'
    state = "broken in " if broken else ""
    bar = f'<span class="track"><i class="bar" style="left:0;width:{max(100 * fraction, 0.5):.2f}%"></i></span>'
    return f"{start}<b>{percent(fraction)}</b><small>{state}{count_of(count, 'row')}</small>{bar}</td>"
