"""The sections of the report that show charts, from single columns to models of the target."""

import math
from collections.abc import Callable, Mapping, Sequence

from understudy.evaluation.scores import Json
from understudy.report import charts, svg, verdict
from understudy.report.markup import esc, scroll_table
from understudy.report.parts import detail
from understudy.report.svg import Style, legend
from understudy.report.text import finite, format_fraction, listing, model_name, number, percent, quote, shorten

MAX_COLUMNS = 60
MAX_POINTS = 1_000
MAP_SIZE = 400.0
"""The longer side of a map, in CSS pixels."""


def _absent(card: Json, *groups: str) -> str:
    """Why there is no chart; nothing at all if these groups were skipped."""
    why = verdict.why_absent(card, groups)
    return f'<p class="absent">Not drawn: {esc(why)}</p>' if why else ""


def _details(card: Json, group: str, methods: Sequence[Style], key: str) -> dict[str, Json]:
    """The details of each method that has this key."""
    by_method = {style.name: detail(card, group, style.name) for style in methods}
    return {name: details for name, details in by_method.items() if details.get(key)}


def columns(card: Json, methods: Sequence[Style]) -> str:
    by_method = _details(card, "one_way", methods, "columns")
    if not by_method:
        return _absent(card, "one_way")
    by_column: dict[str, dict[str, Json]] = {}
    for method, details in by_method.items():
        for name, column in details["columns"].items():
            by_column.setdefault(name, {})[method] = column

    def distance(name: str) -> float:
        return max(finite(column.get("tv")) or 0.0 for column in by_column[name].values())

    order = sorted(by_column, key=lambda name: -distance(name))
    figures = []
    for name in order[:MAX_COLUMNS]:
        distances = {style: by_column[name][style.name].get("tv") for style in methods if style.name in by_column[name]}
        tags = "".join(f"<span>{style.key}{format_fraction(tv)}</span>" for style, tv in distances.items())
        tags, note = f'<span class="tvs">{tags}</span>', _out_of_range(card, methods, name)
        figures.append(charts.histogram(name, by_column[name], methods, tags, note))
    cut = f" The {MAX_COLUMNS} worst of {len(order)} columns are shown." if len(order) > MAX_COLUMNS else ""
    return (
        "<p>The histogram of each column, the worst first. Next to its name is the total variation: the fraction of "
        f"rows whose value would have to change to match the real histogram.{cut}</p>{legend(methods)}"
        f'<div class="columns">{"".join(figures)}</div>'
    )


def _out_of_range(card: Json, methods: Sequence[Style], column: str) -> str:
    """Which methods have numbers out of range, which are drawn in the first and last bin."""
    by_method = {style.name: detail(card, "validity", style.name).get("columns") or {} for style in methods}
    fractions = {name: finite((columns.get(column) or {}).get("out_of_range")) for name, columns in by_method.items()}
    named = [f"{shorten(name, 28)} {percent(fraction)}" for name, fraction in fractions.items() if fraction]
    return f"Numbers out of range are counted in the first or last bin: {listing(named)}." if named else ""


def pairs(card: Json, methods: Sequence[Style]) -> str:
    by_method = _details(card, "two_way", methods, "tv")
    parts = []
    if by_method and len(names := next(iter(by_method.values()))["columns"]) > 1:
        parts.append(
            "<p>The distance of the joint histogram of two columns from the real one, in fractions of the rows. A "
            "dependence between rare values affects few rows and hardly shows here, even if it is lost: see the "
            "correlations below.</p>"
        )
        matrices = {method: details["tv"] for method, details in by_method.items()}
        parts.append(charts.heat_maps(names, matrices, methods, signed=False, what="Total variation of the pair"))
    else:
        parts.append(_absent(card, "two_way"))
    by_method = _details(card, "correlations", methods, "synthetic")
    by_method = {method: details for method, details in by_method.items() if details.get("real")}
    if by_method and len(names := next(iter(by_method.values()))["columns"]) > 1:
        differences = {m: _difference(details["synthetic"], details["real"]) for m, details in by_method.items()}
        what = "Difference to the real association: negative where the synthetic one is weaker, positive where stronger"
        parts.append(
            "<h3>Correlations</h3><p>Associations of two columns, corrected for chance: correlations of numbers, "
            "Cramér's V of categories, correlation ratios of both. They do not depend on how rare a value is.</p>"
        )
        parts.append(charts.heat_maps(names, differences, methods, signed=True, what=what))
        parts.append(_lost_values(card, methods))
    return "".join(parts)


def _lost_values(card: Json, methods: Sequence[Style]) -> str:
    """Single values that go together in real rows and not in synthetic ones, however rare they are."""
    rows = []
    for style in methods:
        for pair in detail(card, "correlations", style.name).get("values") or ():
            first, second = (
                f"{column} = {value}" for column, value in zip(pair["columns"], pair["values"], strict=True)
            )
            whose = f"<td>{style.heading(20)}</td>" if len(methods) > 1 else ""
            numbers = "".join(
                f"<td class=n>{format_fraction(pair[key])}</td>" for key in ("real_fraction", "synthetic_fraction")
            )
            rows.append(
                f"<tr>{whose}<td>{esc(shorten(first, 60))}</td><td>{esc(shorten(second, 60))}</td>{numbers}"
                f"<td class=n>{pair['real_rows']:,}</td></tr>"
            )
    if not rows:
        return ""
    label = "Lost dependences of single values"
    titles = [*(["table"] if len(methods) > 1 else []), "of rows with", "these have", "real", "synthetic", "real rows"]
    return (
        f"<h3>{label}</h3><p>For each pair of columns, the two values whose dependence was "
        "lost most. Values may be rare: the last column shows how many real rows have the first.</p>"
        f"{scroll_table(label, titles, rows, 'plain', num_numeric=3)}"
    )


def _difference(ours: Sequence[Sequence[object]], real: Sequence[Sequence[object]]) -> list[list[float | None]]:
    """The absolute differences of associations: positive where ours is the stronger one, of whatever sign."""

    def signed(ours: float | None, real: float | None) -> float | None:
        return None if ours is None or real is None else math.copysign(abs(ours - real), abs(ours) - abs(real))

    return [
        [signed(finite(a), finite(b)) for a, b in zip(row, other, strict=True)]
        for row, other in zip(ours, real, strict=True)
    ]


def cloud(card: Json, methods: Sequence[Style]) -> str:
    by_method = _details(card, "pca", methods, "synthetic")
    if not by_method:
        return _absent(card, "pca")
    if all(len(point) < 2 for details in by_method.values() for point in details["synthetic"]):
        return '<p class="absent">Not drawn: the real table has only one principal component.</p>'
    return (
        "<p>Rows projected on the first two principal components of the real table. A good table fills the same area "
        f"with the same density.</p>{charts.clouds(by_method, methods)}"
    )


def categories(card: Json, methods: Sequence[Style]) -> str:
    by_method = _details(card, "dimension_probability", methods, "points")
    if not by_method:
        return _absent(card, "dimension_probability")
    rows = _points(by_method, lambda point: (str(point["column"]), str(point["category"])))
    rows.sort(key=lambda row: -max(abs(v - row[1]) for v in row[2].values() if v is not None))
    cut = f"The {MAX_POINTS:,} worst of {len(rows):,} categories are shown." if len(rows) > MAX_POINTS else ""
    head, what = ["column", "category"], "frequency of each category"
    chart = charts.scatters(head, rows[:MAX_POINTS], methods, what=what, low=0.0, high=1.0, note=cut)
    return f"<p>The frequency of each category of each column. On the diagonal both tables agree.</p>{chart}"


def prediction(card: Json, methods: Sequence[Style]) -> str:
    by_method = _details(card, "dimension_prediction", methods, "points")
    if not by_method:
        return _absent(card, "dimension_prediction")
    kept = {
        method: {"points": [point for point in details["points"] if point.get("plotted", True)]}
        for method, details in by_method.items()
    }
    rows = _points(kept, lambda point: (str(point["column"]), model_name(str(point.get("kind", "")))))
    named = {str(point["column"]) for details in by_method.values() for point in details["points"]}
    excluded = sorted(named - {row[0][0] for row in rows})
    note = ""
    if excluded:
        names = listing([quote(name) for name in excluded[:8]])
        more = f" and {len(excluded) - 8} more" if len(excluded) > 8 else ""
        note = esc(
            f"Not drawn: {names}{more}. The Lasso with penalty 1, the model for numbers here, hardly predicts them "
            "even when trained on real rows. Other models may."
        )
    head, what = ["column", "kind"], "score of predicting each column"
    chart = charts.scatters(head, rows[:MAX_POINTS], methods, what=what, note=note)
    return (
        "<p>Each column predicted from all others by a model trained on real rows (across) and one trained on "
        "synthetic rows (up), both scored on held-out real rows: a small random forest for categories, scored by F1, "
        "and the Lasso for numbers, scored by R²; if all columns are binary, logistic regressions scored by ROC AUC. "
        "Below the diagonal, models learn less from the synthetic table.</p>"
        f"{chart or _absent(card, 'dimension_prediction')}"
    )


def _points(
    by_method: Mapping[str, Json], name_of: Callable[[Json], tuple[str, ...]]
) -> list[tuple[tuple[str, ...], float, dict[str, float | None]]]:
    """Points of several methods, those of one name in one row."""
    rows: dict[tuple[str, ...], tuple[float, dict[str, float | None]]] = {}
    for method, details in by_method.items():
        for point in details["points"]:
            real, value = finite(point["real"]), finite(point["synthetic"])
            if real is not None and value is not None:
                rows.setdefault(name_of(point), (real, {}))[1][method] = value
    return [(name, real, values) for name, (real, values) in rows.items()]


def learning(card: Json, methods: Sequence[Style]) -> str:
    sources = {name: detail(card, "learning", name) for name in ("real", *(style.name for style in methods))}
    sources = {name: details for name, details in sources.items() if details}
    parts = [_roc(sources, methods), _importance(sources, methods), _models(sources)]
    if not any(parts):
        parts = [_absent(card, "learning")]
    regressions = _details(card, "parallel_rmse", methods, "models")
    if regressions:
        target = ((card.get("settings") or {}).get("parallel_rmse") or {}).get("target")
        of = "" if target is None else f" of {esc(quote(target))}"
        models = {method: {"points": details["models"]} for method, details in regressions.items()}
        rows = _points(models, lambda model: (", ".join(model["regressors"]),))
        chart = charts.scatters(["regressors"], rows, methods, what="root mean squared error of each regression")
        parts.append(
            f"<h3>Errors of regressions</h3><p>Each point is a linear regression{of}: its error on held-out real rows "
            "after training on real rows (across), and after training on synthetic ones (up). On the diagonal both are "
            f"equal. The scales do not start at zero.</p>{chart}"
        )
    return "".join(parts)


def _roc(sources: Mapping[str, Json], methods: Sequence[Style]) -> str:
    curves: dict[str, dict[str, Json]] = {}
    for source, details in sources.items():
        for model, curve in (details.get("roc") or {}).items():
            curves.setdefault(model, {})[source] = curve
    if not curves:
        return '<p class="absent">ROC curves are not drawn: they need a target with two classes.</p>' if sources else ""
    return (
        "<h3>ROC curves</h3><p>Classifiers trained on real rows (grey) and on each synthetic table, all tested on the "
        f"same held-out real rows.</p>{legend(methods, 'line')}{charts.roc_curves(curves, methods)}"
    )


def _importance(sources: Mapping[str, Json], methods: Sequence[Style]) -> str:
    importances = {source: details["importance"] for source, details in sources.items() if details.get("importance")}
    if "real" not in importances or len(importances) < 2:
        why = "Feature importances are not drawn: this scorecard has no random forest."
        return f'<p class="absent">{why}</p>' if sources else ""
    return (
        "<h3>Feature importances</h3><p>The importance of each column to a random forest that predicts the target. "
        "Markers close to the grey dot mean that models of synthetic and of real rows rely on the same columns.</p>"
        f"{legend(methods, 'dot')}{charts.importances(importances, methods)}"
    )


def _models(sources: Mapping[str, Json]) -> str:
    """The scores of each model, if the scorecard has them."""
    rows: dict[str, dict[str, dict[str, object]]] = {}
    for source, details in sources.items():
        for model, scores in (details.get("models") or {}).items():
            for key, value in scores.items():
                rows.setdefault(model, {}).setdefault(key, {})[source] = value
    if not rows:
        return ""
    body = []
    for model, by_key in rows.items():
        named = f'<th scope=rowgroup rowspan="{len(by_key)}">{esc(model_name(model))}</th>'
        for i, (key, values) in enumerate(by_key.items()):
            cells = "".join(f"<td class=n>{number(values.get(source))}</td>" for source in sources)
            body.append(f"<tr>{'' if i else named}<td>{esc(model_name(key))}</td>{cells}</tr>")
    label, titles = "Scores of each model", ["model", "score", *map(esc, sources)]
    return f"<h3>{label}</h3>{scroll_table(label, titles, body, 'plain', num_numeric=len(sources))}"


# Locations


def maps(card: Json, methods: Sequence[Style]) -> str:
    """A figure for each location; empty if no table has one."""
    by_method = {style.name: detail(card, "locations", style.name).get("locations") or {} for style in methods}
    names = list(dict.fromkeys(name for locations in by_method.values() for name in locations))
    if not names:
        return ""
    figures = []
    for name in names:
        drawn = {method: locations[name] for method, locations in by_method.items() if name in locations}
        figures.append(_maps_of(name, drawn, methods))
    return (
        "<p>The fraction of points in each cell, over the outline of the public region. Darker cells hold more; all "
        "maps of a location share one scale. The density error is the fraction of points that would have to move to "
        f"another square to match the real density.</p>{''.join(figures)}"
    )


def _maps_of(name: str, by_method: dict[str, Json], methods: Sequence[Style]) -> str:
    drawn_maps = {method: drawn_map["map"] for method, drawn_map in by_method.items()}
    first = next(iter(drawn_maps.values()))
    fractions = [first["real"], *(drawn_map["synthetic"] for drawn_map in drawn_maps.values())]
    peak = max((value for grid in fractions for row in grid for value in row), default=0.0) or 1.0
    panels = [_map(first, first["real"], peak, "real rows", "Real rows")]
    drawn = [style for style in methods if style.name in drawn_maps]
    for style in drawn:
        drawn_map = drawn_maps[style.name]
        panels.append(_map(drawn_map, drawn_map["synthetic"], peak, style.name, style.heading()))
    sides = list(by_method[drawn[0].name]["errors"])
    head = ["table", *(f"density error, {side} km" for side in sides), "inside the region"]
    rows = [
        [
            style.name,
            *(format_fraction(finite(by_method[style.name]["errors"][side])) for side in sides),
            percent(finite(by_method[style.name]["inside"]) or 0.0),
        ]
        for style in drawn
    ]
    return svg.figure(panels, head, rows, title=esc(name), kind="map")


def _map(drawn: Json, grid: Sequence[Sequence[float]], peak: float, label: str, heading: str) -> str:
    body, width, height = draw_map(drawn, grid, peak)
    return svg.panel(body, f"Map of the density of {label}.", width=max(width, 120.0), height=height, heading=heading)


def draw_map(drawn: Json, grid: Sequence[Sequence[float]], peak: float) -> tuple[str, float, float]:
    """Cells from south to north, drawn upwards, the outline above them, and a scale; as SVG, with width and height."""
    width, height = (max(float(part), 1e-6) for part in drawn["km"])
    scale = MAP_SIZE / max(width, height)
    side, down = float(drawn["side"]) * scale, height * scale
    cells = [
        svg.rect(column * side, down - (row + 1) * side, side + 0.3, side + 0.3, _fill(value, peak))
        for row, values in enumerate(grid)
        for column, value in enumerate(values)
        if value
    ]
    rings = ["M" + "L".join(f"{x * scale:.1f} {down - y * scale:.1f}" for x, y in ring) for ring in drawn["outline"]]
    outline = f'<path d="{"".join(rings)}" fill="none" stroke="{svg.GREY_LINE}" stroke-width="0.8"/>' if rings else ""
    bar = _round_length(width / 3)
    end = 4 + bar * scale
    ruler = svg.line(4, down + 10, end, down + 10, svg.INK)
    label = svg.text(end + 4, down + 14, f"{number(bar)} km", size=10.0)
    return "".join(cells) + outline + ruler + label, width * scale, down + 20


def _fill(value: float, peak: float) -> str:
    return f'fill="{charts.shade(value, peak, signed=False)}"'


def _round_length(max_length: float) -> float:
    """The largest of 1, 2 and 5 times a power of ten that is not longer."""
    power = 10.0 ** math.floor(math.log10(max_length))
    return next(factor * power for factor in (5.0, 2.0, 1.0) if factor * power <= max_length)
