"""What a scorecard says, in sentences that follow from its numbers by fixed rules."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

Scores = Mapping[str, Any]
"""A scorecard's JSON document, or a part of it."""

SHARES = {
    "tv1", "tv1_max", "tv2", "tv2_max", "tv3", "cell_tv", "mode_tv", "dwp_zero_share", "invalid_cells", "out_of_range",
    "unlisted", "unexpected_nulls", "impossible_pairs", "constraint_violations", "exact_copies",
}  # fmt: skip
"""Keys of metrics that are shares of rows, cells or levels."""

GOALS = {"0 is best": 0.0, "0.5 is best": 0.5, "1 is best": 1.0}
"""Directions that name the best value."""


def number(value: object) -> str:
    """Three digits; no powers of ten, but for what is astronomically large."""
    found = finite(value)
    if found is None:
        return "–"
    size = abs(found)
    if found == 0:
        return "0"
    if size < 1e-4:
        return "<\N{NO-BREAK SPACE}0.0001" if found > 0 else minus(">\N{NO-BREAK SPACE}-0.0001")
    if 0.99995 <= size < 1:  # almost all is not all
        return ">\N{NO-BREAK SPACE}0.9999" if found > 0 else minus("<\N{NO-BREAK SPACE}-0.9999")
    if size >= 1e15:
        mantissa, exponent = f"{found:.1e}".split("e")
        return minus(f"{mantissa}e{int(exponent)}")
    if size >= 1e6:
        return minus(f"{found / 1e6:,.1f}M")
    return minus(f"{found:,.{4 if 0.9995 <= size < 1 else _decimals(size)}f}")


def _decimals(size: float) -> int:
    """How many show three digits of it."""
    return max(0, 2 - math.floor(math.log10(float(f"{size:.3g}"))))


def minus(text: str) -> str:
    return text.replace("-", "\N{MINUS SIGN}")


def percent(share: float) -> str:
    """A share in percent; what is not nothing never reads as 0 %, nor what is not all as 100 %."""
    if 0 < share < 1e-4:
        return "<\N{NO-BREAK SPACE}0.01\N{NO-BREAK SPACE}%"
    if 0.9995 <= share < 1:
        return ">\N{NO-BREAK SPACE}99.9\N{NO-BREAK SPACE}%"
    return f"{100 * share:.{0 if share in (0, 1) else _decimals(100 * abs(share))}f}\N{NO-BREAK SPACE}%"


def written(metric: Scores, value: object) -> str:
    """A value of this metric: shares of rows, cells or levels in percent, all else as a number."""
    found = finite(value)
    return percent(found) if metric["key"] in SHARES and found is not None and found >= 0 else number(value)


def finite(value: object) -> float | None:
    """The number, or None for null, NaN, infinities and anything that is no number."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def counted(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listing(parts: Sequence[str]) -> str:
    return "".join(parts) if len(parts) < 2 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def quoted(name: object, most: int = 40) -> str:
    """A column's or level's name inside a sentence, cut where it is very long."""
    return f"“{shortened(str(name), most)}”"


def shortened(text: str, most: int) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= most else plain[: most - 1].rstrip() + "…"


# Judging by the reference


def badness(metric: Scores, value: float) -> float | None:
    """How far from best, comparable among values of one metric; None where that cannot be said."""
    direction = metric["direction"]
    if direction in GOALS:
        return abs(value - GOALS[direction])
    match direction:
        case "lower is better":
            return value
        case "higher is better":
            return -value
        case "nearer to real is better":
            reference = finite((metric.get("reference") or {}).get("value"))
            return None if reference is None else abs(value - reference)
    return None


def no_worse(metric: Scores, score: Scores) -> bool | None:
    """Whether a score is as good as real data's, within two standard errors; None: there is nothing to compare."""
    reference = metric.get("reference") or {}
    value, real = finite(score.get("value")), finite(reference.get("value"))
    if value is None or real is None:
        return None
    ours, theirs = badness(metric, value), badness(metric, real)
    return None if ours is None or theirs is None else ours <= theirs + 2 * _error(score, reference) + 1e-12


def _error(score: Scores, reference: Scores) -> float:
    """The standard error of their difference, as far as it is known."""
    return math.hypot(finite(score.get("error")) or 0.0, finite(reference.get("error")) or 0.0)


def counts(metric: Scores) -> bool:
    """Whether it tells something of its own about the synthetic table."""
    return not metric.get("same_as") and not metric["key"].endswith("_real")


def comparable(metric: Scores) -> bool:
    """Whether the table behind the reference is large enough: a much smaller one is further off by chance alone."""
    return (metric.get("reference") or {}).get("comparable") is not False


# Sentences


def verdict(scores: Scores, method: str) -> list[str]:
    """What the scores say about one synthetic table, what people ask for first."""
    return [
        *_copies(scores, method),
        *_learning(scores, method),
        *_columns(scores, method),
        *_pairs(scores, method),
        *_validity(scores, method),
        *_against_real(scores, method),
    ]


def best_first(scores: Scores, methods: Sequence[str]) -> list[str]:
    """Several synthetic tables by the scores that people ask for first."""
    keyed = {metric["key"]: metric for metric in scores["metrics"]}
    sentences = []
    for metric in (headline(scores), keyed.get("tv2"), keyed.get("invalid_cells")):
        found = {m: v for m in methods if metric and (v := finite(metric["values"][m]["value"])) is not None}
        if metric is None or not found or not any(found.values()):
            continue
        order = sorted(found, key=lambda method: badness(metric, found[method]) or 0.0)
        each = listing([f"{method} {written(metric, found[method])}" for method in order])
        sentences.append(f"{metric['title']}, best first: {each}{_real_score(metric)}.")
    return sentences


def comparison(scores: Scores, methods: Sequence[str]) -> list[str]:
    """On how many scores each of several synthetic tables is best."""
    wins, ties, compared = dict.fromkeys(methods, 0), 0, 0
    for metric in scores["metrics"]:
        by_real = metric["direction"] == "nearer to real is better"
        values = [finite(metric["values"][method]["value"]) for method in methods]
        ranks = [None if value is None else badness(metric, value) for value in values]
        known = [rank for rank in ranks if rank is not None]
        if len(known) < len(methods) or not counts(metric) or (by_real and not comparable(metric)):
            continue
        compared += 1
        best = [method for method, rank in zip(methods, known, strict=True) if rank <= min(known) + 1e-12]
        if len(best) == 1:
            wins[best[0]] += 1
        else:
            ties += 1
    if not compared:
        return ["No score could be computed for all of them, so they are not compared."]
    ranking = sorted(methods, key=lambda method: -wins[method])
    won = listing([f"{method} {'is best ' if i == 0 else ''}on {wins[method]}" for i, method in enumerate(ranking)])
    tied = f"; on {ties} the best are equal" if ties else ""
    return [
        f"On the {counted(compared, 'score')} that all of them have, {won}{tied}.",
        "Scores measure different things and some measure nearly the same one, so counting them is a rough summary. "
        "Choose by the scores that matter for the intended use.",
    ]


def absences(scores: Scores, methods: Sequence[str]) -> list[str]:
    """Which scores there are none of, grouped by the reason; what the effort left out apart from what cannot be."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for metric in scores["metrics"]:
        for method in methods:
            score = metric["values"][method]
            if finite(score["value"]) is None:
                why = "" if is_left_out(score) else str(score.get("why") or "No reason is given.")
                reasons.setdefault(why, {}).setdefault(metric["key"], []).append(method)
    left_out = len(reasons.pop("", ()))
    sentences = []
    each = []
    for why, keys in sorted(reasons.items(), key=lambda item: -len(item[1])):
        concerned = list(dict.fromkeys(method for found in keys.values() for method in found))
        who = "" if len(concerned) == len(methods) else f" of {listing(concerned)}"
        each.append(f"“{why}” ({len(keys)}{who})")
    if each:
        total = counted(len({key for keys in reasons.values() for key in keys}), "score")
        sentences.append(f"{total} could not be computed or did not apply: {listing(each)}.")
    if left_out:
        were = "was" if left_out == 1 else "were"
        sentences.append(
            f"{counted(left_out, 'score')} {were} left out by the {scores.get('effort')} scorecard, to save time; "
            "the end of the page lists them."
        )
    return sentences


def is_left_out(score: Scores) -> bool:
    """Whether there is no number only because the effort does not include it."""
    return finite(score.get("value")) is None and "left out" in str(score.get("why") or "").lower()


def headline(scores: Scores) -> Scores | None:
    """The score for learning that people ask for first: the area under the ROC curve where there is one."""
    usable = [
        metric
        for metric in scores["metrics"]
        if metric["group"] == "learning" and any(finite(s["value"]) is not None for s in metric["values"].values())
    ]
    with_reference = [metric for metric in usable if metric.get("reference")]
    areas = [metric for metric in with_reference if _is_auc(metric)]
    return next(iter([*areas, *with_reference, *usable]), None)


def _is_auc(metric: Scores) -> bool:
    return metric["key"].startswith("tstr") and "auc" in metric["key"] and "pr" not in metric["key"].split("_")


def _reference(metric: Scores) -> float:
    return finite(metric["reference"]["value"]) or 0.0


def _real_score(metric: Scores) -> str:
    reference = metric.get("reference")
    return "" if not reference else f" (real: {written(metric, reference['value'])})"


def _against_real(scores: Scores, method: str) -> list[str]:
    judged = [m for m in scores["metrics"] if counts(m) and no_worse(m, m["values"][method]) is not None]
    known = [no_worse(metric, metric["values"][method]) for metric in judged if comparable(metric)]
    rough = len(judged) - len(known)
    too_small = "the held-out table has far fewer rows than the synthetic one and is further off by chance alone"
    if not known:
        return [f"No score is set beside that of real rows: {too_small}."] if rough else []
    good = "none" if not any(known) else "all" if all(known) else str(sum(map(bool, known)))
    left = f" Another {rough} {'is' if rough == 1 else 'are'} not counted: {too_small}." if rough else ""
    return [
        f"Of {counted(len(known), 'score')} that can be set beside the same score of real rows, {good} "
        f"{'is' if good == '1' else 'are'} at least as good, within two standard errors where these are known.{left}"
    ]


def _copies(scores: Scores, method: str) -> list[str]:
    """Whether far more rows equal a real one than chance would have it."""
    metric = next((metric for metric in scores["metrics"] if metric["key"] == "exact_copies"), None)
    share = finite(metric["values"][method]["value"]) if metric else None
    by_chance = finite(((metric or {}).get("reference") or {}).get("value")) or 0.0
    if metric is None or share is None or share - by_chance < 0.1:
        return []
    return [
        f"{percent(share)} of these rows are equal to a real row (held-out real rows: {percent(by_chance)}): this "
        "table holds copies of the real one, so its other scores say little."
    ]


def _learning(scores: Scores, method: str) -> list[str]:
    metric = headline(scores)
    score = metric["values"][method] if metric else {}
    value, reference = finite(score.get("value")), finite(((metric or {}).get("reference") or {}).get("value"))
    if metric is None or value is None:
        return []
    error = finite(score.get("error"))
    said = number(value) + (f" (standard error {number(error)})" if error else "")
    if reference is None:
        return [f"{metric['title']}: {said}. There is no figure of real rows to set it against."]
    if not _is_auc(metric):
        return [
            f"{metric['title']}: {said}; with real rows {number(reference)}, a difference of "
            f"{number(abs(value - reference))}."
        ]
    start = (
        f"Models trained on these rows reach an area under the ROC curve of {said} on held-out real rows; trained on "
        f"real rows they reach {number(reference)}."
    )
    if reference <= 0.5:
        return [f"{start} Real rows do not predict the target better than chance here, so this says little."]
    if abs(value - reference) <= 2 * _error(score, metric["reference"]):
        return [f"{start} The difference lies within the error of the {scores['holdout']['rows']:,} test rows."]
    if value >= reference:
        return [f"{start} That is not less."]
    if value <= 0.5:
        return [f"{start} Nothing of what real rows gain over chance (0.5) is kept."]
    return [
        f"{start} Of what real rows gain over chance (0.5), {percent((reference - value) / (reference - 0.5))} is lost."
    ]


def _columns(scores: Scores, method: str) -> list[str]:
    columns = detail(scores, "one_way", method).get("columns") or {}
    found = {name: value for name, column in columns.items() if (value := finite(column.get("tv"))) is not None}
    if not found:
        return []
    worst = [name for name in sorted(found, key=lambda name: -found[name])[:3] if found[name]]
    each = listing([f"{quoted(name)} ({percent(found[name])})" for name in worst])
    furthest = f"; furthest off: {each}" if worst else ""
    return [
        f"Column by column, {percent(sum(found.values()) / len(found))} of the rows on average would have to change "
        f"their value to match the real shares{_floor(scores, 'one_way')}{furthest}."
    ]


def _pairs(scores: Scores, method: str) -> list[str]:
    worst = [pair for pair in detail(scores, "two_way", method).get("worst") or () if finite(pair["tv"])]
    if not worst:
        return []
    each = listing(
        [f"{quoted(p['columns'][0])} with {quoted(p['columns'][1])} ({percent(p['tv'])})" for p in worst[:3]]
    )
    matrix = detail(scores, "two_way", method).get("tv") or []
    cells = [v for i, row in enumerate(matrix) for value in row[:i] if (v := finite(value)) is not None]
    mean = f"{percent(sum(cells) / len(cells))} on average{_floor(scores, 'two_way')}, and " if cells else ""
    return [f"For pairs of columns it is {mean}most for {each}."]


def _floor(scores: Scores, group: str) -> str:
    """What held-out real rows score on the same comparison."""
    for metric in scores["metrics"]:
        reference = finite((metric.get("reference") or {}).get("value"))
        if metric["group"] == group and metric["key"].startswith("tv") and reference is not None:
            rows = "" if comparable(metric) else f"{scores['holdout']['rows']:,} "
            return f" ({rows}other real rows: {percent(reference)})"
    return ""


def _validity(scores: Scores, method: str) -> list[str]:
    """Values that no real row could have: by the scores that count them, else by the histograms."""
    found: dict[str, tuple[str, float]] = {}
    compared = []
    for metric in scores["metrics"]:
        value = finite(metric["values"][method]["value"])
        if metric["group"] not in ("validity", "constraints") or value is None:
            continue
        if metric["direction"] in ("lower is better", "0 is best"):
            found[metric["key"]] = f"{metric['title'][:1].lower()}{metric['title'][1:]}", value
        elif metric.get("reference"):
            real = percent(_reference(metric))
            compared.append(f"{metric['title']}: {percent(value)} (other real rows: {real}).")
    wrong = [f"{title} {percent(value)}" for title, value in found.values() if value]
    if wrong:
        return [f"Invalid values occur: {listing(wrong)}.", *compared]
    if "invalid_cells" in found:
        return ["No invalid value was found.", *compared]
    if found:
        return [f"Looked for and not found: {listing([title for title, _ in found.values()])}.", *compared]
    columns = detail(scores, "one_way", method).get("columns") or {}
    unlisted = {name: share for name, column in columns.items() if (share := _share(column, "(unlisted)"))}
    sentences = []
    if unlisted:
        each = listing([f"{quoted(name)} ({percent(share)})" for name, share in list(unlisted.items())[:3]])
        more = f", and {len(unlisted) - 3} more" if len(unlisted) > 3 else ""
        sentences.append(f"Categories that are not on the list occur in {each}{more}.")
    emptied = [name for name, column in columns.items() if _emptied(column)]
    if emptied:
        more = f", and {len(emptied) - 3} more" if len(emptied) > 3 else ""
        names = listing([quoted(name) for name in emptied[:3]])
        sentences.append(f"Values are missing where no real row lacks one: {names}{more}.")
    return [*sentences, *compared]


def _share(column: Scores, label: str) -> float:
    labels = column.get("labels") or []
    if column.get("kind") == "numeric" or label not in labels:
        return 0.0
    return finite(column["synthetic"][labels.index(label)]) or 0.0


def _emptied(column: Scores) -> bool:
    if column.get("kind") == "numeric":
        real, synthetic = column.get("missing") or (0.0, 0.0)
        return not real and bool(synthetic)
    labels = column.get("labels") or []
    return "(missing)" in labels and not column["real"][labels.index("(missing)")] and _share(column, "(missing)") > 0


# Where things stand in a scorecard


def merged(notes: Iterable[object], names: Collection[str]) -> list[str]:
    """Notes of the form "group, table: words", once for all tables that have the same one."""
    found: dict[tuple[str, str], list[str]] = {}
    for note in map(str, notes):
        group, _, rest = note.partition(", ")
        name = next((name for name in names if rest.startswith(f"{name}: ")), None)
        if name is None:
            found[note, ""] = []
        else:
            found.setdefault((group, rest.removeprefix(f"{name}: ")), []).append(name)
    return [f"{group} ({', '.join(tables)}): {said}" if tables else group for (group, said), tables in found.items()]


def detail(scores: Scores, group: str, method: str) -> Scores:
    """What a group found for one table beyond its scores; empty where it found nothing."""
    return ((scores.get("details") or {}).get(group) or {}).get(method) or {}


def why_absent(scores: Scores, groups: Iterable[str]) -> str:
    """A sentence on why nothing of these groups can be drawn; empty where nobody asked for them."""
    wanted = set(groups)
    found = [score for metric in scores["metrics"] if metric["group"] in wanted for score in metric["values"].values()]
    asked = [score for score in found if not is_left_out(score)]
    why = next((str(score["why"]) for score in asked if finite(score["value"]) is None and score.get("why")), "")
    return why or ("The scorecard holds nothing to draw here." if asked else "")
