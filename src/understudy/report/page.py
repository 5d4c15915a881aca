"""The page: sentences, charts, the table of all scores, and at its end, apart, the certificate."""

import base64
import hashlib
import importlib.resources
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from understudy import certificate
from understudy.evaluation.scores import checked
from understudy.files import atomic_write
from understudy.privacy.ledger import Statement
from understudy.report import charts, markdown, words
from understudy.report.charts import Look, esc, name_tag
from understudy.report.words import Scores, detail, finite, number

WARNING = "Contains statistics of the real rows: not private, do not publish."
MAX_COLUMNS = 60
MAX_POINTS = 1_000

FAMILIES = {
    "Shares and dependence": (
        "one_way",
        "two_way",
        "three_way",
        "nist",
        "cell_accuracy",
        "correlations",
        "dimension_probability",
        "gaussians",
    ),
    "Learning from synthetic rows": ("learning", "dimension_prediction", "parallel_rmse", "inception"),
    "Telling real from synthetic rows": ("pmse_logit", "pmse_cart", "jensen_shannon", "pca", "wasserstein"),
    "Invalid values and close copies": ("validity", "constraints", "closest_record"),
    "Other scores": (),
}
"""Headings under which groups of scores stand; a group that is not named here is among the others."""


class HasJson(Protocol):
    def to_json(self) -> Mapping[str, Any]: ...


def write_report(
    path: str | os.PathLike[str],
    scores: Mapping[str, Any] | HasJson,
    statement: Statement | None = None,
    *,
    force: bool = False,
) -> None:
    """Writes the report as one HTML file that opens offline. Not private: it shows statistics of the real rows.

    Args:
        path: The file to write; with `force` it may exist.
        scores: A scorecard, or the JSON document of one.
        statement: What the release spent; its certificate then stands at the end of the page.
        force: Replace the file.
    """
    page = render(scores, statement)
    with atomic_write(path, force=force) as file:
        file.write(page.encode())


def render(scores: Mapping[str, Any] | HasJson, statement: Statement | None = None) -> str:
    """The report as text: the same scorecard always gives the same page."""
    card = checked(scores.to_json() if hasattr(scores, "to_json") else scores)
    methods = charts.looks([table["name"] for table in card["synthetic"]])
    sections = [
        ("verdict", "In words", _verdict(card, methods)),
        ("scores", "Scores beside real data", _bars(card, methods)),
        ("columns", "Single columns", _columns(card, methods)),
        ("pairs", "Pairs of columns", _pairs(card, methods)),
        ("cloud", "The table as a cloud", _cloud(card, methods)),
        ("levels", "Level by level", _levels(card, methods)),
        ("prediction", "Predicting every column", _prediction(card, methods)),
        ("learning", "Learning from synthetic rows", _learning(card, methods)),
        ("all", "All scores", _table(card, methods)),
        ("settings", "Settings and notes", _settings(card)),
    ]
    script, style = _asset("report.js"), _asset("report.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; base-uri 'none'"
    )
    contents = "".join(f'<li><a href="#{key}">{title}</a></li>' for key, title, _ in sections)
    if statement is not None:
        contents += '<li><a href="#certificate">Privacy certificate</a></li>'
    title = f"Report on {words.listing([words.shortened(look.name, 40) for look in methods])}"
    body = "".join(f'<section id="{key}"><h2>{heading}</h2>{content}</section>' for key, heading, content in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f'<link rel="icon" href="data:,"><title>{esc(title)}</title><style>{style}</style></head><body>'
        f'<p class="banner"><strong>{WARNING}</strong></p>'
        f'<div class="page"><nav aria-label="Contents"><ol>{contents}</ol></nav><main>{_head(card, methods)}{body}'
        f"{_certificate(statement)}</main></div>"
        f'<div id="tip" role="status" hidden></div><script>{script}</script></body></html>\n'
    )


def _asset(name: str) -> str:
    return importlib.resources.files("understudy.report").joinpath(name).read_text(encoding="utf-8")


# Head and words


def _head(card: Scores, methods: Sequence[Look]) -> str:
    real, holdout = card["real"], card["holdout"]
    seen = "the synthesizer has seen them" if holdout.get("seen") else "the synthesizer never saw them"
    facts = [
        ("Real table", f"{esc(real['name'])}, {words.counted(real['rows'], 'row')}"),
        ("Held out for testing", f"{esc(holdout['name'])}, {words.counted(holdout['rows'], 'row')}; {seen}"),
    ]
    for look, table in zip(methods, card["synthetic"], strict=True):
        facts.append((f"{look.key}{name_tag(look.name)}", f"synthetic, {words.counted(table['rows'], 'row')}"))
    if card.get("target") is not None:
        positive = f", positive class {esc(card['positive'])}" if card.get("positive") is not None else ""
        facts.append(("Target", f"{esc(card['target'])}{positive}"))
    facts.append(
        (
            "Scorecard",
            f"{esc(card.get('effort', ''))}, seed {esc(card.get('seed', ''))}, Understudy "
            f"{esc(card.get('understudy', ''))}",
        )
    )
    rows = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    count = len(methods)
    what = "One synthetic table" if count == 1 else f"{_COUNTS.get(count, count)} synthetic tables"
    return f"<header><h1>{what} beside the real one</h1><dl>{rows}</dl></header>"


_COUNTS = {2: "Two", 3: "Three", 4: "Four", 5: "Five", 6: "Six"}


def _verdict(card: Scores, methods: Sequence[Look]) -> str:
    parts = []
    if len(methods) > 1:
        said = " ".join(words.comparison(card, [look.name for look in methods]))
        parts.append(f'<p class="lead">{esc(said)}</p>')
    verdicts = []
    for look in methods:
        said = "".join(f"<li>{esc(sentence)}</li>" for sentence in words.verdict(card, look.name))
        verdicts.append(f'<div class="verdict"><h3>{look.key}{name_tag(look.name, 60)}</h3><ul>{said}</ul></div>')
    parts.append(f'<div class="verdicts">{"".join(verdicts)}</div>')
    parts.append(
        '<p class="note">These sentences follow from the scores by fixed rules. They are about usefulness; none of '
        "them says anything about privacy.</p>"
    )
    return "".join(parts)


# Scores as bars


def _bars(card: Scores, methods: Sequence[Look]) -> str:
    drawn = [
        metric
        for metric in card["metrics"]
        if any(finite(each["value"]) is not None for each in metric["values"].values())
    ]
    grouped = families(drawn)
    if not grouped:
        return "<p>No score could be computed; the table of all scores says why.</p>"
    intro = (
        "<p>Each bar is a score of one synthetic table. The black line is what real rows score: held-out real rows in "
        "place of synthetic ones, or models trained on real rows. Whiskers are two standard errors.</p>"
    )
    parts = [intro]
    for family, metrics in grouped.items():
        cards = "".join(_bar_card(metric, methods) for metric in metrics)
        parts.append(f'<div class="group"><h3>{family}</h3><div class="bars">{cards}</div></div>')
    return "".join(parts)


def families(metrics: Sequence[Scores]) -> dict[str, list[Scores]]:
    """Metrics under their headings, in the order of these; empty headings are left out."""
    of = {group: family for family, groups in FAMILIES.items() for group in groups}
    found: dict[str, list[Scores]] = {family: [] for family in FAMILIES}
    for metric in metrics:
        found[of.get(metric["group"], "Other scores")].append(metric)
    return {family: each for family, each in found.items() if each}


def _bar_card(metric: Scores, methods: Sequence[Look]) -> str:
    reference = metric.get("reference") or {}
    real = finite(reference.get("value"))
    values = {look.name: finite(metric["values"][look.name]["value"]) for look in methods}
    low, high = _axis(metric, [v for v in (*values.values(), real) if v is not None])

    def at(value: float) -> float:
        return round(100 * min(max((value - low) / (high - low), 0.0), 1.0), 2)

    zero = at(min(max(0.0, low), high))
    rows = []
    for look in methods:
        score, value = metric["values"][look.name], values[look.name]
        if value is None:
            why = esc(score.get("why") or "not computed")
            rows.append(f'<dt>{look.key}{name_tag(look.name, 16)}</dt><dd class="none">not computed: {why}</dd>')
            continue
        start, end = sorted((zero, at(value)))
        bar = f'<i class="bar" style="left:{start}%;width:{max(end - start, 0.4):.2f}%;background:{look.colour}"></i>'
        error = finite(score.get("error"))
        if error:
            left, right = at(value - 2 * error), at(value + 2 * error)
            bar += f'<i class="whisker" style="left:{left}%;width:{right - left:.2f}%"></i>'
        if real is not None:
            bar += f'<i class="real" style="left:{at(real)}%"></i>'
        rows.append(
            f'<dt>{look.key}{name_tag(look.name, 16)}</dt><dd><span class="track">{bar}</span>'
            f"<b>{number(value)}</b></dd>"
        )
    what = esc(reference.get("what", "real rows"))
    said = f"{what}: {number(real)}" if real is not None else "no real reference"
    return (
        f'<div class="bar-card" tabindex="0" data-tip="{esc(metric["meaning"])}"><h4>{esc(metric["title"])}</h4>'
        f'<p class="small">{esc(metric["direction"])} · {said}</p><dl>{"".join(rows)}'
        f'<dt></dt><dd class="ends"><span><i>{_end(low)}</i><i>{_end(high)}</i></span></dd></dl></div>'
    )


def _axis(metric: Scores, values: Sequence[float]) -> tuple[float, float]:
    """The whole range where large is good; else only as far as there are values, or nothing could be seen."""
    low, high = finite(metric.get("low")), finite(metric.get("high"))
    bottom = min([*values, 0.0 if low is None else low])
    top = max(values)
    if high is not None and metric["direction"] == "higher is better" and high <= 10 * max(top, 1e-9):
        top = max(top, high)
    elif top > 0:
        step = 10.0 ** (math.floor(math.log10(top)) - 1)
        top = math.ceil(1.04 * top / step) * step  # two digits, so that the end can be read
        top = min(top, high) if high is not None and high > bottom else top
    return bottom, top if top > bottom else bottom + 1.0


# Sections with charts


def _absent(card: Scores, *groups: str) -> str:
    return f'<p class="absent">Not drawn: {esc(words.why_absent(card, groups))}</p>'


def _found(card: Scores, group: str, methods: Sequence[Look], key: str) -> dict[str, Scores]:
    """The details of each method that has them."""
    found = {look.name: detail(card, group, look.name) for look in methods}
    return {name: each for name, each in found.items() if each.get(key)}


def _columns(card: Scores, methods: Sequence[Look]) -> str:
    found = _found(card, "one_way", methods, "columns")
    if not found:
        return _absent(card, "one_way")
    by_column: dict[str, dict[str, Scores]] = {}
    for method, each in found.items():
        for name, column in each["columns"].items():
            by_column.setdefault(name, {})[method] = column

    def distance(name: str) -> float:
        return max(finite(column.get("tv")) or 0.0 for column in by_column[name].values())

    order = sorted(by_column, key=lambda name: -distance(name))
    figures = []
    for name in order[:MAX_COLUMNS]:
        tags = "".join(
            f"<span>{look.key}{number(by_column[name][look.name].get('tv'))}</span>"
            for look in methods
            if look.name in by_column[name]
        )
        figures.append(charts.histogram(name, by_column[name], methods, f'<span class="tvs">{tags}</span>'))
    cut = f" Of {len(order)} columns the {MAX_COLUMNS} furthest off are drawn." if len(order) > MAX_COLUMNS else ""
    return (
        "<p>Shares of the values of each column, the column that is furthest off first. Beside its name stands the "
        "total variation: the share of rows that would have to change their value to match the real shares."
        f'{cut}</p>{charts.legend(methods)}<div class="columns">{"".join(figures)}</div>'
    )


def _pairs(card: Scores, methods: Sequence[Look]) -> str:
    found = _found(card, "two_way", methods, "tv")
    parts = []
    if found:
        names = next(iter(found.values()))["columns"]
        parts.append(
            "<p>How far the joint shares of two columns are from the real ones. Where both columns are close by "
            "themselves and their pair is dark, the dependence between them was lost.</p>"
        )
        matrices = {method: each["tv"] for method, each in found.items()}
        parts.append(charts.heat_maps(names, matrices, methods, signed=False, what="total variation of the pair"))
    else:
        parts.append(_absent(card, "two_way"))
    found = _found(card, "correlations", methods, "synthetic")
    if found:
        names = next(iter(found.values()))["columns"]
        differences = {m: _difference(each["synthetic"], each["real"]) for m, each in found.items()}
        if len(names) > 1:
            parts.append("<h3>Correlations</h3>")
            what = "association in the synthetic table less that in the real one"
            parts.append(charts.heat_maps(names, differences, methods, signed=True, what=what))
    return "".join(parts)


def _difference(ours: Sequence[Sequence[object]], real: Sequence[Sequence[object]]) -> list[list[float | None]]:
    return [
        [
            None if (x := finite(a)) is None or (y := finite(b)) is None else x - y
            for a, b in zip(row, other, strict=True)
        ]
        for row, other in zip(ours, real, strict=True)
    ]


def _cloud(card: Scores, methods: Sequence[Look]) -> str:
    found = _found(card, "pca", methods, "synthetic")
    if not found:
        return _absent(card, "pca")
    return (
        "<p>Rows seen from where the real ones differ most: their first two principal components. A good table fills "
        f"the same places, equally densely.</p>{charts.clouds(found, methods)}"
    )


def _levels(card: Scores, methods: Sequence[Look]) -> str:
    found = _found(card, "dimension_probability", methods, "points")
    if not found:
        return _absent(card, "dimension_probability")
    rows = _points(found, lambda point: (str(point["column"]), str(point["level"])))
    rows.sort(key=lambda row: -max(abs(v - row[1]) for v in row[2].values() if v is not None))
    cut = f"Of {len(rows):,} levels the {MAX_POINTS:,} furthest off are drawn." if len(rows) > MAX_POINTS else ""
    chart = charts.scatters(
        ["column", "level"], rows[:MAX_POINTS], methods, what="share of each level", low=0.0, high=1.0, note=cut
    )
    return f"<p>The share of each level of each column. On the diagonal both tables agree.</p>{chart}"


def _prediction(card: Scores, methods: Sequence[Look]) -> str:
    found = _found(card, "dimension_prediction", methods, "points")
    if not found:
        return _absent(card, "dimension_prediction")
    kept = {method: {"points": [p for p in each["points"] if p.get("plotted", True)]} for method, each in found.items()}
    rows = _points(kept, lambda point: (str(point["column"]), str(point["kind"])))
    left_out = sorted({str(p["column"]) for each in found.values() for p in each["points"]} - {r[0][0] for r in rows})
    note = ""
    if left_out:
        names = words.listing([words.quoted(name) for name in left_out[:8]])
        more = f" and {len(left_out) - 8} more" if len(left_out) > 8 else ""
        note = esc(f"Not drawn, as a model trained on real rows hardly predicts them either: {names}{more}.")
    chart = charts.scatters(
        ["column", "kind"], rows[:MAX_POINTS], methods, what="score of predicting each column", note=note
    )
    return (
        "<p>Each column predicted from all others, by a model trained on real rows (across) and one trained on "
        "synthetic rows (up), both scored on held-out real rows: F1 for categories, R² for numbers, and the "
        f"area under the ROC curve where all columns have two values. Below the diagonal, the synthetic "
        f"table teaches less.</p>{chart or _absent(card, 'dimension_prediction')}"
    )


def _points(
    found: Mapping[str, Scores], name_of: Callable[[Scores], tuple[str, str]]
) -> list[tuple[tuple[str, str], float, dict[str, float | None]]]:
    """Points of several methods, those of one name in one row."""
    rows: dict[tuple[str, str], tuple[float, dict[str, float | None]]] = {}
    for method, each in found.items():
        for point in each["points"]:
            real, value = finite(point["real"]), finite(point["synthetic"])
            if real is not None and value is not None:
                rows.setdefault(name_of(point), (real, {}))[1][method] = value
    return [(name, real, values) for name, (real, values) in rows.items()]


def _learning(card: Scores, methods: Sequence[Look]) -> str:
    sources = {name: detail(card, "learning", name) for name in ("real", *(look.name for look in methods))}
    sources = {name: each for name, each in sources.items() if each}
    parts = [_roc(sources, methods), _importance(sources, methods), _models(sources)]
    if not any(parts):
        parts = [_absent(card, "learning")]
    found = _found(card, "parallel_rmse", methods, "models")
    if found:
        target = ((card.get("settings") or {}).get("parallel_rmse") or {}).get("target")
        of = "" if target is None else f" of {esc(words.quoted(target))}"
        chart = charts.slopes({method: each["models"] for method, each in found.items()}, methods)
        parts.append(
            f"<h3>Errors of regressions</h3><p>Each line is a linear regression{of}: its error on held-out real rows "
            "when trained on real rows, and when trained on synthetic ones. Flat is best. The scale does not start at "
            f"zero.</p>{chart}"
        )
    return "".join(parts)


def _roc(sources: Mapping[str, Scores], methods: Sequence[Look]) -> str:
    curves: dict[str, dict[str, Any]] = {}
    for source, each in sources.items():
        for model, curve in (each.get("roc") or {}).items():
            curves.setdefault(model, {})[source] = curve
    if not curves:
        return '<p class="absent">ROC curves are not drawn: they need a target with two classes.</p>' if sources else ""
    return (
        "<h3>ROC curves</h3><p>Classifiers trained on real rows (grey) and on each synthetic table, all tested on the "
        f"same held-out real rows.</p>{charts.legend(methods, 'line')}{charts.roc_curves(curves, methods)}"
    )


def _importance(sources: Mapping[str, Scores], methods: Sequence[Look]) -> str:
    found = {source: each["importance"] for source, each in sources.items() if each.get("importance")}
    if "real" not in found or len(found) < 2:
        why = "Which columns matter is not drawn: no forest is among the models of this scorecard."
        return f'<p class="absent">{why}</p>' if sources else ""
    return (
        "<h3>Which columns matter</h3><p>The importance of each column to a model of the target. Markers close to the "
        "grey dot mean that a model learned from synthetic rows looks at the same columns.</p>"
        f"{charts.legend(methods, 'dot')}{charts.importances(found, methods)}"
    )


def _models(sources: Mapping[str, Scores]) -> str:
    """The scores of each model by itself, where the scorecard has them."""
    rows: dict[str, dict[str, dict[str, object]]] = {}
    for source, each in sources.items():
        for model, scores in (each.get("models") or {}).items():
            for key, value in scores.items() if isinstance(scores, Mapping) else ():
                if value is None or finite(value) is not None:
                    rows.setdefault(model, {}).setdefault(key, {})[source] = value
    if not rows:
        return ""
    head = "".join(f"<th scope=col class=n>{esc(name)}</th>" for name in sources)
    body = []
    for model, by_key in rows.items():
        named = f'<th scope=rowgroup rowspan="{len(by_key)}">{esc(charts.model_name(model))}</th>'
        for i, (key, values) in enumerate(by_key.items()):
            cells = "".join(f"<td class=n>{number(values.get(source))}</td>" for source in sources)
            body.append(f"<tr>{'' if i else named}<td>{esc(charts.model_name(key))}</td>{cells}</tr>")
    return (
        "<h3>Each model by itself</h3>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Scores of each model"><table class="plain"><thead>'
        f"<tr><th scope=col>model</th><th scope=col>score</th>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


# Tables


def _table(card: Scores, methods: Sequence[Look]) -> str:
    head = "".join(f"<th scope=col>{look.key}{name_tag(look.name, 20)}</th>" for look in methods)
    rows = []
    for family, metrics in families(card["metrics"]).items():
        rows.append(f'<tr class="head"><th colspan="{len(methods) + 2}" scope=rowgroup>{family}</th></tr>')
        rows += [_row(metric, methods) for metric in metrics]
    return (
        "<p>Every score with what it means, its best direction and range, what real rows score, and its standard error "
        "(±) where one was estimated.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="All scores"><table class="all"><thead><tr>'
        f"<th scope=col>score</th><th scope=col>real rows</th>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _row(metric: Scores, methods: Sequence[Look]) -> str:
    scores = [metric["values"][look.name] for look in methods]
    reasons = {score.get("why") if finite(score["value"]) is None else None for score in scores}
    if len(methods) > 1 and len(reasons) == 1 and None not in reasons:  # one reason for all
        cells = f'<td class=n colspan="{len(methods)}" data-name="all">{_cell(scores[0])}</td>'
    else:
        cells = "".join(
            f'<td class=n data-name="{esc(words.shortened(look.name, 40))}">{_cell(score)}</td>'
            for look, score in zip(methods, scores, strict=True)
        )
    reference = metric.get("reference")
    real = f"{_cell(reference)}<small>{esc(reference.get('what', ''))}</small>" if reference else "–"
    low, high = metric.get("low"), metric.get("high")
    span = f"from {'−∞' if finite(low) is None else _end(low)} to {'∞' if finite(high) is None else _end(high)}"
    return (
        f"<tr><th scope=row><span>{esc(metric['title'])}</span> <code>{esc(metric['key'])}</code>"
        f"<small>{esc(metric['meaning'])}</small><small>{esc(metric['direction'])}; {span}</small></th>"
        f'<td class=n data-name="real rows">{real}</td>{cells}</tr>'
    )


def _cell(score: Scores) -> str:
    value, error = finite(score.get("value")), finite(score.get("error"))
    if value is None:
        return f'<span class="why">not computed: {esc(score.get("why") or "no reason is given")}</span>'
    return f"<b>{number(value)}</b>" + (f"<small>± {number(error)}</small>" if error is not None else "")


def _end(value: object) -> str:
    """The end of a range: 1 rather than 1.00."""
    found = finite(value)
    return charts.tick_label(found) if found is not None and found == int(found) else number(found)


def _settings(card: Scores) -> str:
    names = {"real", *(table["name"] for table in card["synthetic"])}
    notes = "".join(f"<li>{esc(note)}</li>" for note in words.merged(card.get("notes") or (), names))
    parts = [f"<ul>{notes}</ul>" if notes else "<p>There are no notes.</p>"]
    settings, seconds = card.get("settings") or {}, card.get("seconds") or {}
    rows = []
    for group in dict.fromkeys([*settings, *seconds]):
        each = "; ".join(f"{key} = {_plain(value)}" for key, value in (settings.get(group) or {}).items())
        rows.append(f"<tr><td>{esc(charts.model_name(group))}<td>{esc(each)}<td class=n>{number(seconds.get(group))}")
    if rows:
        parts.append(
            '<div class="scroll" tabindex="0" role="region" aria-label="Settings"><table class="plain settings">'
            "<thead><tr><th scope=col>scores</th><th scope=col>settings</th><th scope=col>seconds</th></tr></thead>"
            f"<tbody>{''.join(rows)}</tbody></table></div>"
        )
    return "".join(parts)


def _plain(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return words.shortened(text, 160)


def _certificate(statement: Statement | None) -> str:
    if statement is None:
        return ""
    content = markdown.to_html(certificate.to_markdown(statement), top=3)
    return (
        '<section id="certificate"><p class="apart">The privacy certificate of the release — this part may be '
        f"published; everything above may not.</p>{content}</section>"
    )
