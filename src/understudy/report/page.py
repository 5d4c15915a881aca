"""The page: sentences, charts, the table of all scores, and at its end, apart, the certificate."""

import base64
import collections
import hashlib
import importlib.resources
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from understudy import certificate
from understudy.errors import ConfigError, TableError
from understudy.evaluation.scores import FORMAT, VERSION, checked
from understudy.privacy.ledger import Statement
from understudy.report import charts, markdown, words
from understudy.report.charts import Look, esc, name_tag
from understudy.report.words import Scores, detail, finite, number, written
from understudy.run.atomic import atomic_write

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


KEY_SCORES = (
    ("tv1",), ("tv2",), ("tv3",), ("corr_diff",), ("invalid_cells",), ("tstr_auc",), ("tstr_f1", "tstr_r2"),
    ("pmse_cart_ratio", "pmse_logit_ratio"),
)  # fmt: skip
"""Those that a reader in a hurry sees, each the first that was computed."""


class HasJson(Protocol):
    def to_json(self) -> Mapping[str, Any]: ...


class HasStatement(Protocol):
    @property
    def statement(self) -> Statement: ...


def write_report(
    path: str | os.PathLike[str],
    scores: Mapping[str, Any] | HasJson,
    statement: Statement | HasStatement | None = None,
    *,
    force: bool = False,
    of: str | None = None,
) -> None:
    """Writes the report as one HTML file that opens offline. Not private: it shows statistics of the real rows.

    Args:
        path: The file to write, outside of release folders: those may be published. With `force` it may exist.
        scores: A scorecard, or the JSON document of one.
        statement: A release, or its statement; the certificate then stands at the end of the page.
        force: Replace the file.
        of: The name of the judged table that was drawn from this release, where several were judged.
    """
    inside = next(
        (folder for folder in Path(os.path.realpath(path)).parents if (folder / "release.json").exists()), None
    )
    if inside is not None:
        raise TableError(f"{inside} is a release, and the report must not travel with it. Choose another folder.")
    page = render(scores, statement, of=of)
    with atomic_write(path, force=force) as file:
        file.write(page.encode())


def render(
    scores: Mapping[str, Any] | HasJson, statement: Statement | HasStatement | None = None, *, of: str | None = None
) -> str:
    """The report as text: the same scorecard always gives the same page."""
    card = _sound(scores.to_json() if hasattr(scores, "to_json") else scores)
    methods = charts.looks([table["name"] for table in card["synthetic"]])
    if of is not None and of not in [look.name for look in methods]:
        judged = words.listing([words.quoted(look.name) for look in methods])
        raise ConfigError(f"No table named {words.quoted(of)} was judged, only {judged}. Name one of these.")
    drawn = [
        ("verdict", "In words", _verdict(card, methods)),
        ("key", "Key scores", _key_scores(card, methods)),
        ("scores", "Scores beside real data", _bars(card, methods)),
        ("columns", "Single columns", _columns(card, methods)),
        ("pairs", "Pairs of columns", _pairs(card, methods)),
        ("cloud", "The table as a cloud", _cloud(card, methods)),
        ("levels", "Level by level", _levels(card, methods)),
        ("prediction", "Predicting every column", _prediction(card, methods)),
        ("learning", "Learning from synthetic rows", _learning(card, methods)),
        ("all", "All scores", _table(card, methods)),
    ]
    absent = [title for _, title, content in drawn if not content]
    sections = [section for section in drawn if section[2]]
    sections.append(("settings", "Settings and notes", _settings(card, absent)))
    certified = _certificate(statement, methods, of)
    script, style = _asset("report.js"), _asset("report.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; base-uri 'none'"
    )
    contents = "".join(f'<li><a href="#{key}">{title}</a></li>' for key, title, _ in sections)
    if certified:
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
        f"{certified}</main></div>"
        f'<div id="tip" role="status" hidden></div><script>{script}</script></body></html>\n'
    )


def _asset(name: str) -> str:
    return importlib.resources.files("understudy.report").joinpath(name).read_text(encoding="utf-8")


# Head and words


def _head(card: Scores, methods: Sequence[Look]) -> str:
    real, holdout = card["real"], card["holdout"]
    seen = (
        "the synthesizer has seen them, so scores on them may be too good" if holdout.get("seen") else "given as unseen"
    )
    facts = [
        ("Real table", _rows_of(real)),
        ("Held out for testing", f"{_rows_of(holdout)}; {seen}"),
    ]
    for look, table in zip(methods, card["synthetic"], strict=True):
        of = "synthetic" if not table.get("file") else f"synthetic, {esc(table['file'])}"
        facts.append((f"{look.key}{name_tag(look.name)}", f"{of}, {words.counted(table['rows'], 'row')}"))
    if card.get("target") is not None:
        positive = f", positive class {esc(card['positive'])}" if card.get("positive") is not None else ""
        facts.append(("Target", f"{esc(card['target'])}{positive}"))
    facts.append(
        (
            "Scorecard",
            f"{esc(card.get('effort', ''))}, seed {esc(card.get('seed', ''))}, Understudy "
            f"{esc(card.get('understudy', ''))}" + (f", {esc(card['created'])}" if card.get("created") else ""),
        )
    )
    rows = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    count = len(methods)
    what = "One synthetic table" if count == 1 else f"{_COUNTS.get(count, count)} synthetic tables"
    return f"<header><h1>{what} beside the real one</h1><dl>{rows}</dl></header>"


def _rows_of(table: Scores) -> str:
    """A table by its file, where it came from one, and its number of rows."""
    return f"{esc(table.get('file') or table['name'])}, {words.counted(table['rows'], 'row')}"


_COUNTS = {2: "Two", 3: "Three", 4: "Four", 5: "Five", 6: "Six"}


def _verdict(card: Scores, methods: Sequence[Look]) -> str:
    names = [look.name for look in methods]
    warned = "".join(f"<li><strong>Warning.</strong> {esc(said)}</li>" for said in card.get("warnings") or ())
    parts = [f'<ul class="warnings">{warned}</ul>'] if warned else []
    several = len(methods) > 1
    if several:
        parts += [f'<p class="lead">{esc(said)}</p>' for said in [" ".join(words.best_first(card, names))] if said]
    verdicts = []
    for look in methods:
        said = "".join(f"<li>{esc(sentence)}</li>" for sentence in words.verdict(card, look.name))
        verdicts.append(f'<div class="verdict"><h3>{look.key}{name_tag(look.name, 60)}</h3><ul>{said}</ul></div>')
    parts.append(f'<div class="verdicts">{"".join(verdicts)}</div>')
    rest = [*([" ".join(words.comparison(card, names))] if several else ()), *words.absences(card, names)]
    parts += [f"<p>{esc(said)}</p>" for said in rest]
    parts.append(
        '<p class="note">These sentences follow from the scores by fixed rules. They are about usefulness; none of '
        "them says anything about privacy.</p>"
    )
    return "".join(parts)


def _key_scores(card: Scores, methods: Sequence[Look]) -> str:
    """The scores that sum up the page, methods side by side."""
    keyed = {m["key"]: m for m in card["metrics"] if any(_value(s) is not None for s in m["values"].values())}
    chosen = [next((keyed[key] for key in keys if key in keyed), None) for keys in KEY_SCORES]
    shown = [metric for metric in chosen if metric is not None]
    if not shown:
        return ""
    rows = "".join(_key_row(metric, methods) for metric in shown)
    head = "".join(f"<th scope=col>{look.key}{name_tag(look.name, 20)}</th>" for look in methods)
    best = " The best of the tables is in bold." if len(methods) > 1 else ""
    return (
        "<p>The scores to look at first. Real rows are held-out ones in the place of the synthetic table, or, for "
        f"learning, models trained on real rows.{best}</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Key scores"><table class="all board"><thead><tr>'
        f"<th scope=col>score</th><th scope=col>real rows</th>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>{_rough_note(card, shown)}"
    )


def _key_row(metric: Scores, methods: Sequence[Look]) -> str:
    values = {look.name: _value(metric["values"][look.name]) for look in methods}
    ranks = {name: words.badness(metric, value) for name, value in values.items() if value is not None}
    least = min((rank for rank in ranks.values() if rank is not None), default=None)
    best = [name for name, rank in ranks.items() if rank is not None and least is not None and rank <= least + 1e-12]
    cells = []
    for name, value in values.items():
        said = written(metric, value)
        shown = f"<b>{said}</b>" if best == [name] and len(methods) > 1 else said
        cells.append(f'<td class=n data-name="{esc(words.shortened(name, 40))}">{shown}</td>')
    reference = metric.get("reference") or {}
    real = written(metric, reference.get("value")) + ("" if words.comparable(metric) else _ROUGH)
    return (
        f"<tr><th scope=row><span>{esc(metric['title'])}</span><small>{esc(metric['direction'])}</small></th>"
        f'<td class=n data-name="real rows">{real}</td>{"".join(cells)}</tr>'
    )


_ROUGH = "\N{NO-BREAK SPACE}†"
"""Marks a reference that is further off by chance alone."""


def _rough_note(card: Scores, metrics: Sequence[Scores]) -> str:
    if all(map(words.comparable, metrics)):
        return ""
    return (
        f'<p class="note">† The held-out table has {words.counted(card["holdout"]["rows"], "row")}, far fewer than the '
        "synthetic one, and is further off by chance alone: passing it proves nothing.</p>"
    )


def _value(score: Scores) -> float | None:
    return finite(score.get("value"))


# Scores as bars


def _bars(card: Scores, methods: Sequence[Look]) -> str:
    drawn = [
        metric
        for metric in card["metrics"]
        if words.counts(metric) and any(_value(each) is not None for each in metric["values"].values())
    ]
    grouped = families(drawn)
    if not grouped:
        return "<p>No score could be computed; the table of all scores says why.</p>"
    parts = [
        "<p>Each bar is a score of one synthetic table. The black line is what real rows score: held-out real rows in "
        "place of synthetic ones, or models trained on real rows. A dotted line is the best value, where a score says "
        "which one that is; the bar then starts there. Whiskers are two standard errors.</p>"
    ]
    if not all(map(words.comparable, drawn)):
        parts.append(
            "<p>Where the line of real rows is grey and dashed, the held-out table has far fewer rows than the "
            "synthetic one. It is further off by chance alone, so passing it proves nothing.</p>"
        )
    for family, metrics in grouped.items():
        usual = _usual(metrics)
        cards = "".join(_bar_card(metric, methods, usual) for metric in metrics)
        of = f'<p class="small">Real: {esc(usual)}, where nothing else is said.</p>' if usual else ""
        parts.append(f'<div class="group"><h3>{family}</h3>{of}<div class="bars">{cards}</div></div>')
    return "".join(parts)


def _usual(metrics: Sequence[Scores]) -> str:
    """What stands for real rows in most of these, so that it need not be repeated."""
    found = [str(metric["reference"].get("what") or "") for metric in metrics if metric.get("reference")]
    return collections.Counter(found).most_common(1)[0][0] if found else ""


def families(metrics: Sequence[Scores]) -> dict[str, list[Scores]]:
    """Metrics under their headings, in the order of these; empty headings are left out."""
    of = {group: family for family, groups in FAMILIES.items() for group in groups}
    found: dict[str, list[Scores]] = {family: [] for family in FAMILIES}
    for metric in metrics:
        found[of.get(metric["group"], "Other scores")].append(metric)
    return {family: each for family, each in found.items() if each}


def _bar_card(metric: Scores, methods: Sequence[Look], usual: str) -> str:
    reference = metric.get("reference") or {}
    real, goal = _value(reference), words.GOALS.get(metric["direction"])
    values = {look.name: _value(metric["values"][look.name]) for look in methods}
    low, high = _axis(metric, [v for v in (*values.values(), real) if v is not None])

    def at(value: float) -> float:
        return round(100 * min(max((value - low) / (high - low), 0.0), 1.0), 2)

    start = at(goal if goal is not None else min(max(0.0, low), high))
    rough = "" if words.comparable(metric) else " rough"
    lines = f'<i class="goal" style="left:{start}%"></i>' if goal is not None else ""
    lines += f'<i class="real{rough}" style="left:{at(real)}%"></i>' if real is not None else ""
    rows = []
    for look in methods:
        score, value = metric["values"][look.name], values[look.name]
        if value is None:
            why = esc(score.get("why") or "not computed")
            rows.append(f'<dt>{look.key}{name_tag(look.name, 16)}</dt><dd class="none">not computed: {why}</dd>')
            continue
        left, right = sorted((start, at(value)))
        bar = f'<i class="bar" style="left:{left}%;width:{max(right - left, 0.4):.2f}%;background:{look.colour}"></i>'
        error = finite(score.get("error"))
        if error:
            left, right = at(value - 2 * error), at(value + 2 * error)
            bar += f'<i class="whisker" style="left:{left}%;width:{right - left:.2f}%"></i>'
        rows.append(
            f'<dt>{look.key}{name_tag(look.name, 16)}</dt><dd><span class="track">{bar}{lines}</span>'
            f"<b>{written(metric, value)}</b></dd>"
        )
    what = str(reference.get("what") or "")
    said = (
        f"{esc(what) if what != usual else 'real'}: {written(metric, real)}"
        if real is not None
        else "no real reference"
    )
    return (
        f'<div class="bar-card" tabindex="0" data-tip="{esc(metric["meaning"])}"><h4>{esc(metric["title"])}</h4>'
        f'<p class="small">{esc(metric["direction"])} · {said}</p><dl>{"".join(rows)}'
        f'<dt></dt><dd class="ends"><span><i>{_end(metric, low)}</i><i>{_end(metric, high)}</i></span></dd></dl></div>'
    )


def _axis(metric: Scores, values: Sequence[float]) -> tuple[float, float]:
    """The whole range where large is good; else only as far as there are values, or nothing could be seen."""
    low, high, goal = finite(metric.get("low")), finite(metric.get("high")), words.GOALS.get(metric["direction"])
    reached = [*values, *([] if goal is None else [goal])]
    bottom, top = min([*reached, 0.0 if low is None else low]), max(reached)
    if bottom < 0 and bottom != low:
        bottom = -rounded_up(-bottom)
    whole = metric["direction"] == "higher is better" or goal == 0.5
    if high is not None and whole and high <= 10 * max(top, 1e-9):
        top = max(top, high)
    elif top > 0:
        top = rounded_up(top)
        top = min(top, high) if high is not None and high > bottom else top
    return bottom, top if top > bottom else bottom + 1.0


def rounded_up(value: float) -> float:
    """The next round number, where a scale may end."""
    scale = 10.0 ** math.floor(math.log10(value))
    steps = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
    return float(f"{next(step * scale for step in steps if step * scale >= value * (1 - 1e-9)):.3g}")


# Sections with charts


def _absent(card: Scores, *groups: str) -> str:
    """Why there is no chart; nothing at all where these groups were left out."""
    why = words.why_absent(card, groups)
    return f'<p class="absent">Not drawn: {esc(why)}</p>' if why else ""


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
            f"<span>{look.key}{number(tv) if tv is None else words.percent(tv)}</span>"
            for look in methods
            if look.name in by_column[name]
            for tv in [finite(by_column[name][look.name].get("tv"))]
        )
        tags, outside = f'<span class="tvs">{tags}</span>', _outside(card, methods, name)
        figures.append(charts.histogram(name, by_column[name], methods, tags, outside))
    cut = f" Of {len(order)} columns the {MAX_COLUMNS} furthest off are drawn." if len(order) > MAX_COLUMNS else ""
    return (
        "<p>Shares of the values of each column, the column that is furthest off first. Beside its name stands the "
        "total variation: the share of rows that would have to change their value to match the real shares."
        f'{cut}</p>{charts.legend(methods)}<div class="columns">{"".join(figures)}</div>'
    )


def _outside(card: Scores, methods: Sequence[Look], column: str) -> str:
    """Who has numbers that the end cells hold though they do not belong there."""
    shares = {
        look.name: finite(
            ((detail(card, "validity", look.name).get("columns") or {}).get(column) or {}).get("out_of_range")
        )
        for look in methods
    }
    named = [f"{words.shortened(name, 28)} {words.percent(share)}" for name, share in shares.items() if share]
    return f"Numbers outside the range stand in the end cells: {words.listing(named)}." if named else ""


def _pairs(card: Scores, methods: Sequence[Look]) -> str:
    found = _found(card, "two_way", methods, "tv")
    parts = []
    if found and len(names := next(iter(found.values()))["columns"]) > 1:
        parts.append(
            "<p>How far the joint shares of two columns are from the real ones. Where both columns are close by "
            "themselves and their pair is dark, the dependence between them was lost.</p>"
        )
        matrices = {method: each["tv"] for method, each in found.items()}
        parts.append(charts.heat_maps(names, matrices, methods, signed=False, what="total variation of the pair"))
    else:
        parts.append(_absent(card, "two_way"))
    found = {m: each for m, each in _found(card, "correlations", methods, "synthetic").items() if each.get("real")}
    if found:
        names = next(iter(found.values()))["columns"]
        differences = {m: _difference(each["synthetic"], each["real"]) for m, each in found.items()}
        if len(names) > 1:
            parts.append("<h3>Correlations</h3>")
            what = "difference to the real association; below zero it is weaker, so some was lost, above it was gained"
            parts.append(charts.heat_maps(names, differences, methods, signed=True, what=what))
    return "".join(parts)


def _difference(ours: Sequence[Sequence[object]], real: Sequence[Sequence[object]]) -> list[list[float | None]]:
    """How far associations are off: above zero where ours is the stronger one, of whatever sign, else below."""

    def off(ours: float | None, real: float | None) -> float | None:
        return None if ours is None or real is None else math.copysign(abs(ours - real), abs(ours) - abs(real))

    return [
        [off(finite(a), finite(b)) for a, b in zip(row, other, strict=True)]
        for row, other in zip(ours, real, strict=True)
    ]


def _cloud(card: Scores, methods: Sequence[Look]) -> str:
    found = _found(card, "pca", methods, "synthetic")
    if not found:
        return _absent(card, "pca")
    if all(len(point) < 2 for each in found.values() for point in each["synthetic"]):
        why = "The real table varies in one direction only, so it has one principal component and no plane to draw on."
        return f'<p class="absent">Not drawn: {why}</p>'
    return (
        "<p>Rows seen from where the real ones differ most: their first two principal components. A good table fills "
        f"the same places, equally densely.</p>{charts.clouds(found, methods)}"
    )


def _levels(card: Scores, methods: Sequence[Look]) -> str:
    found = _found(card, "dimension_probability", methods, "points")
    if not found:
        return _absent(card, "dimension_probability")
    rows = _points(found, lambda point: (str(point["column"]), str(point.get("level", ""))))
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
    rows = _points(kept, lambda point: (str(point["column"]), charts.model_name(str(point.get("kind", "")))))
    left_out = sorted({str(p["column"]) for each in found.values() for p in each["points"]} - {r[0][0] for r in rows})
    note = ""
    if left_out:
        names = words.listing([words.quoted(name) for name in left_out[:8]])
        more = f" and {len(left_out) - 8} more" if len(left_out) > 8 else ""
        note = esc(
            f"Not drawn: {names}{more}. The model for numbers here, the Lasso with penalty 1, is too stiff for them: "
            "it predicts them hardly at all even when trained on real rows. Other models may do so well."
        )
    chart = charts.scatters(
        ["column", "kind"], rows[:MAX_POINTS], methods, what="score of predicting each column", note=note
    )
    return (
        "<p>Each column predicted from all others, by a model trained on real rows (across) and one trained on "
        "synthetic rows (up), both scored on held-out real rows: a small forest for categories, scored by F1, and the "
        "Lasso for numbers, scored by R²; where all columns have two values, logistic regressions scored by ROC AUC. "
        f"Below the diagonal, the synthetic table teaches less.</p>{chart or _absent(card, 'dimension_prediction')}"
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
    for family, metrics in families([m for m in card["metrics"] if not _left_out(m)]).items():
        usual = _usual(metrics)
        rows.append(
            f'<tr class="head"><th scope=rowgroup>{family}</th><td class=n><small>{esc(usual)}</small></td>'
            f'<td colspan="{len(methods)}"></td></tr>'
        )
        rows += [_row(metric, methods, usual) for metric in metrics]
    if not rows:
        return ""
    return (
        "<p>Every score with what it means, its best direction and range, what real rows score, and its standard error "
        "(±) where one was estimated. What stands for real rows is said at the head of each part, and where it is "
        "something else.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="All scores"><table class="all"><thead><tr>'
        f"<th scope=col>score</th><th scope=col>real rows</th>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>{_rough_note(card, card['metrics'])}"
    )


def _left_out(metric: Scores) -> bool:
    return all(words.is_left_out(score) for score in metric["values"].values())


def _row(metric: Scores, methods: Sequence[Look], usual: str) -> str:
    scores = [metric["values"][look.name] for look in methods]
    reasons = {score.get("why") if finite(score["value"]) is None else None for score in scores}
    if len(methods) > 1 and len(reasons) == 1 and None not in reasons:  # one reason for all
        cells = f'<td class=n colspan="{len(methods)}" data-name="all">{_cell(metric, scores[0])}</td>'
    else:
        cells = "".join(
            f'<td class=n data-name="{esc(words.shortened(look.name, 40))}">{_cell(metric, score)}</td>'
            for look, score in zip(methods, scores, strict=True)
        )
    reference = metric.get("reference")
    real = _cell(metric, reference, "" if words.comparable(metric) else _ROUGH) if reference else "–"
    if reference and str(reference.get("what") or "") != usual:
        real += f"<small>{esc(reference.get('what') or '')}</small>"
    low, high = finite(metric.get("low")), finite(metric.get("high"))
    span = f"from {'−∞' if low is None else _end(metric, low)} to {'∞' if high is None else _end(metric, high)}"
    twin = f"; the same as {esc(metric['same_as'])}" if metric.get("same_as") else ""
    return (
        f"<tr><th scope=row><span>{esc(metric['title'])}</span> <code>{esc(metric['key'])}</code>"
        f"<small>{esc(metric['meaning'])}</small><small>{esc(metric['direction'])}; {span}{twin}</small></th>"
        f'<td class=n data-name="real rows">{real}</td>{cells}</tr>'
    )


def _cell(metric: Scores, score: Scores, mark: str = "") -> str:
    value, error = _value(score), finite(score.get("error"))
    if value is None:
        return f'<span class="why">not computed: {esc(score.get("why") or "no reason is given")}</span>'
    spread = f"<small>± {written(metric, error)}</small>" if error is not None else ""
    return f"<b>{written(metric, value)}{mark}</b>{spread}"


def _end(metric: Scores, value: float) -> str:
    """The end of a scale: 1 rather than 1.00."""
    if metric["key"] in words.SHARES:
        return words.minus(f"{100 * value:.3g}\N{NO-BREAK SPACE}%")
    return charts.tick_label(value) if float(f"{value:.3g}") == value else number(value)


def _settings(card: Scores, absent: Sequence[str]) -> str:
    names = {"real", *(table["name"] for table in card["synthetic"])}
    notes = "".join(f"<li>{esc(note)}</li>" for note in words.merged(card.get("notes") or (), names))
    parts = [f"<ul>{notes}</ul>" if notes else "<p>There are no notes.</p>"]
    settings, seconds = card.get("settings") or {}, card.get("seconds") or {}
    rows = []
    for group in dict.fromkeys([*settings, *seconds]):
        each = "; ".join(f"{key} = {_plain(value)}" for key, value in (settings.get(group) or {}).items())
        took = f"{finite(seconds.get(group)) or 0.0:.1f}"
        if each or took != "0.0":  # else it was left out
            rows.append(f"<tr><td>{esc(charts.model_name(group))}<td>{esc(each)}<td class=n>{took}")
    if rows:
        parts.append(
            '<div class="scroll" tabindex="0" role="region" aria-label="Settings"><table class="plain settings">'
            "<thead><tr><th scope=col>scores</th><th scope=col>settings</th><th scope=col>seconds</th></tr></thead>"
            f"<tbody>{''.join(rows)}</tbody></table></div>"
        )
    left_out = [metric["title"] for metric in card["metrics"] if _left_out(metric)]
    if absent or left_out:
        named = [f"the sections {words.listing([words.quoted(title) for title in absent])}"] if absent else []
        named += [f"the scores {words.listing([words.quoted(title, 70) for title in left_out])}"] if left_out else []
        parts.append(
            f'<p class="note">Not on this page, as the {esc(card.get("effort") or "")} scorecard leaves them out: '
            f"{esc('; '.join(named))}.</p>"
        )
    return "".join(parts)


def _plain(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return words.shortened(text, 160)


def _certificate(given: Statement | HasStatement | None, methods: Sequence[Look], of: str | None) -> str:
    """What the release spent; only a private one may be published, and never what stands before it."""
    if given is None:
        return ""
    statement = given if isinstance(given, Statement) else getattr(given, "statement", None)
    if not isinstance(statement, Statement):
        raise ConfigError(f"A certificate is drawn from a release or its statement, found {type(given).__name__}.")
    of = methods[0].name if of is None and len(methods) == 1 else of
    whose = f"It belongs to {words.quoted(of, 60)}" if of is not None else "It belongs to one of the tables above"
    whose += f", made by the method {words.quoted(statement.method, 60)}." if statement.method else "."
    if statement.is_private:
        kind, said = (
            "publishable",
            "The privacy certificate of the release: this part may be published; everything above may not.",
        )
    else:
        kind, said = "unsafe", "This release is NOT PRIVATE: publish neither this part nor anything above."
    content = markdown.to_html(certificate.to_markdown(statement), top=3)
    return f'<section id="certificate" class="{kind}"><p class="apart">{said}</p><p>{esc(whose)}</p>{content}</section>'


# Whether a scorecard holds all that the page draws, told before anything is drawn

NUMBER = (int, float, type(None))
PLAIN = (str, int, float, bool, type(None))
SCORE = {"value": NUMBER, "error?": NUMBER, "why?": str}
TABLE = {"name": str, "rows": int, "file?": str}
POINT = {"column": PLAIN, "level?": PLAIN, "kind?": str, "real": NUMBER, "synthetic": NUMBER}
MATRICES = {"columns?": [str], "tv?": [[NUMBER]], "real?": [[NUMBER]], "synthetic?": [[NUMBER]]}
COLUMN = {
    "kind": str,
    "type?": str,
    "real": [NUMBER],
    "synthetic": [NUMBER],
    "labels?": [PLAIN],
    "edges?": [NUMBER],
    "missing?": [NUMBER],
    "tv?": NUMBER,
}
METRIC = {
    "key": str,
    "group": str,
    "title": str,
    "direction": str,
    "meaning": str,
    "low?": NUMBER,
    "high?": NUMBER,
    "same_as?": str,
    "reference?": {**SCORE, "what?": str, "rows?": int, "comparable?": bool},
    "values": {...: SCORE},
}
CARD = {
    "real": TABLE,
    "holdout": {**TABLE, "seen?": bool},
    "synthetic": [TABLE],
    "metrics": [METRIC],
    "details": {...: dict},
    "target?": str,
    "positive?": PLAIN,
    "effort?": str,
    "seed?": PLAIN,
    "understudy?": str,
    "created?": str,
    "notes?": [str],
    "warnings?": [str],
    "settings?": {...: dict},
    "seconds?": {...: NUMBER},
}
"""A type, or several; a list of things of one shape; an object with keys, which with "?" may be absent or null, or with
`...` as key any keys."""
DETAILS = {
    "one_way": {"columns?": {...: COLUMN}},
    "two_way": {**MATRICES, "worst?": [{"columns": [str], "tv": NUMBER}]},
    "correlations": MATRICES,
    "pca": {"explained?": [NUMBER], "real?": [[NUMBER]], "synthetic?": [[NUMBER]], "loadings?": [[[PLAIN]]]},
    "dimension_probability": {"points?": [POINT]},
    "dimension_prediction": {"points?": [POINT]},
    "learning": {
        "models?": {...: dict},
        "roc?": {...: {"fpr": [NUMBER], "tpr": [NUMBER]}},
        "importance?": {...: NUMBER},
    },
    "parallel_rmse": {"models?": [{"regressors": (str, list), "real": NUMBER, "synthetic": NUMBER}]},
    "validity": {"columns?": {...: {"out_of_range?": NUMBER}}},
}
"""The same for what the charts are drawn from, by group; in each, for a synthetic table or for the real one."""


def _sound(content: object) -> dict[str, Any]:
    """The document, if all that the page needs of it can be drawn."""
    if isinstance(content, Mapping) and (content.get("format"), content.get("version")) == (FORMAT, VERSION):
        found = next(_damages(content), None)
        if found is not None:
            raise ConfigError(f"This scorecard is damaged: {words.shortened(found, 200)}. Evaluate again.")
    return checked(content)


def _damages(card: Mapping[str, Any]) -> Iterator[str]:
    found = _misfit(card, CARD, "")
    if found:
        yield found
        return
    names = [table["name"] for table in card["synthetic"]]
    if len(set(names)) < len(names):
        yield "two entries of 'synthetic' have one name"
    for group, shape in DETAILS.items():
        each = {name: card["details"].get(group, {}).get(name) for name in (*names, "real")}
        each = {name: part for name, part in each.items() if part is not None}
        for name, part in each.items():
            found = _misfit(part, shape, f"details.{group}.{name}")
            if found:
                yield found
                return
        yield from _lengths(group, {name: part for name, part in each.items() if name in names or group == "learning"})


def _misfit(value: object, shape: object, path: str) -> str:
    """The first place that has not the shape; empty if there is none."""
    if isinstance(shape, dict):
        if not isinstance(value, Mapping):
            return _wrong(path, value, "an object")
        if ... in shape:
            parts = [(value[key], shape[...], f"{path}.{key}") for key in value]
        else:
            for key in shape:
                if not key.endswith("?") and key not in value:
                    return f"{key!r} is missing or malformed" if not path else f"{path} has no {key!r}"
            named = [(key.removesuffix("?"), key) for key in shape]
            parts = [
                (value[name], shape[key], f"{path}.{name}" if path else repr(name))
                for name, key in named
                if name in value and not (key.endswith("?") and value[name] is None)
            ]
    elif isinstance(shape, list):
        if not isinstance(value, Sequence) or isinstance(value, str):
            return _wrong(path, value, "a list")
        parts = [(item, shape[0], f"{path}[{i}]") for i, item in enumerate(value)]
    else:
        kinds = shape if isinstance(shape, tuple) else (shape,)
        fits = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        return "" if fits else _wrong(path, value, _EXPECTED.get(kinds, "something else"))
    return next(filter(None, (_misfit(*part) for part in parts)), "")


_EXPECTED: dict[tuple[type, ...], str] = {
    (str,): "text", (int,): "a whole number", (bool,): "true or false", NUMBER: "a number", (dict,): "an object",
    PLAIN: "text or a number", (str, list): "text or a list",
}  # fmt: skip


def _wrong(path: str, value: object, expected: str) -> str:
    found = {type(None): "null", str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list"}
    return f"{path} is {found.get(type(value), 'an object')}, expected {expected}"


def _lengths(group: str, details: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Lists that are drawn against each other and are not equally long."""
    sizes: dict[str, object] = {}
    for name, each in details.items():
        path = f"details.{group}.{name}"
        columns = each.get("columns") or {}
        for column, shares in columns.items() if group == "one_way" else ():
            numeric = shares["kind"] == "numeric"
            cells = len(shares.get("edges") or ()) - 1 if numeric else len(shares.get("labels") or ())
            same = cells if numeric else "levels"  # levels are matched by name, cells by their place
            if cells < 1 or {len(shares["real"]), len(shares["synthetic"])} != {cells}:
                yield f"the lists of {path}.columns.{column} differ in length"
            if sizes.setdefault(column, same) != same or len(shares.get("missing") or (0, 0)) != 2:
                yield f"{path}.columns.{column} is not as in the other tables"
        if group in ("two_way", "correlations"):
            lengths = {len(row) for key in ("tv", "real", "synthetic") for row in each.get(key) or ()}
            lengths |= {len(each[key]) for key in ("tv", "real", "synthetic") if each.get(key)}
            if not lengths <= {len(columns)} or sizes.setdefault("", len(columns)) != len(columns):
                yield f"the matrices of {path} have not the size of its columns"
            if any(len(pair["columns"]) != 2 for pair in each.get("worst") or ()):
                yield f"a pair of {path} has not two columns"
        if any(len(curve["fpr"]) != len(curve["tpr"]) for curve in (each.get("roc") or {}).values()):
            yield f"a curve of {path} differs in length"
