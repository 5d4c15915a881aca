"""What a scorecard says, in sentences that follow from its numbers by fixed rules."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

Scores = Mapping[str, Any]
"""A scorecard's JSON document, or a part of it."""


def number(value: object) -> str:
    """About three digits; powers of ten only for what is very small or very large."""
    found = finite(value)
    if found is None:
        return "–"
    size = abs(found)
    if found == 0:
        return "0"
    if size < 1e-4 or size >= 1e15:
        mantissa, exponent = f"{found:.1e}".split("e")
        return minus(f"{mantissa}e{int(exponent)}")
    if size >= 1e6:
        return minus(f"{found / 1e6:,.1f}M")
    decimals = (
        0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3 if size >= 0.01 else 4 if size >= 1e-3 else 5
    )
    if 0.9995 <= size < 1:
        decimals = 5  # almost all is not all
    return minus(f"{found:,.{decimals}f}")


def minus(text: str) -> str:
    return text.replace("-", "\N{MINUS SIGN}")


def percent(share: float) -> str:
    """A share in percent; what is not nothing never reads as 0 %, nor what is not all as 100 %."""
    if 0 < share < 0.0005:
        return "less than 0.1\N{NO-BREAK SPACE}%"
    if 0.9995 <= share < 1:
        return "more than 99.9\N{NO-BREAK SPACE}%"
    return f"{100 * share:.{0 if share in (0, 1) else 1}f}\N{NO-BREAK SPACE}%"


def finite(value: object) -> float | None:
    """The number, or None for null, NaN, infinities and anything that is no number."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def counted(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listing(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def quoted(name: object, most: int = 40) -> str:
    """A column's or level's name inside a sentence, cut where it is very long."""
    return f"“{shortened(str(name), most)}”"


def shortened(text: str, most: int) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= most else plain[: most - 1].rstrip() + "…"


# Judging by the reference


def badness(metric: Scores, value: float) -> float | None:
    """How far from best, comparable among values of one metric; None where that needs a reference that is missing."""
    match metric["direction"]:
        case "higher is better":
            return -value
        case "1 is best":
            return abs(value - 1)
        case "nearer to real is better":
            reference = finite((metric.get("reference") or {}).get("value"))
            return None if reference is None else abs(value - reference)
    return value


def no_worse(metric: Scores, score: Scores) -> bool | None:
    """Whether a score is as good as real data's, within two standard errors; None: there is nothing to compare."""
    reference = metric.get("reference") or {}
    value, real = finite(score.get("value")), finite(reference.get("value"))
    if value is None or real is None:
        return None
    ours, theirs = badness(metric, value), badness(metric, real)
    assert ours is not None
    assert theirs is not None
    error = math.hypot(finite(score.get("error")) or 0.0, finite(reference.get("error")) or 0.0)
    return ours <= theirs + 2 * error + 1e-12


# Sentences


def verdict(scores: Scores, method: str) -> list[str]:
    """What the scores say about one synthetic table."""
    sentences = [
        *_against_real(scores, method),
        *_learning(scores, method),
        *_columns(scores, method),
        *_pairs(scores, method),
        *_validity(scores, method),
    ]
    missing = sum(finite(metric["values"][method]["value"]) is None for metric in scores["metrics"])
    if missing:
        sentences.append(f"{counted(missing, 'score')} could not be computed or did not apply; the table says why.")
    return sentences


def comparison(scores: Scores, methods: Sequence[str]) -> list[str]:
    """Several synthetic tables beside each other."""
    wins, ties, compared = dict.fromkeys(methods, 0), 0, 0
    for metric in scores["metrics"]:
        values = [finite(metric["values"][method]["value"]) for method in methods]
        ranks = [None if value is None else badness(metric, value) for value in values]
        known = [rank for rank in ranks if rank is not None]
        if len(known) < len(methods):
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
    sentences = [f"On the {counted(compared, 'score')} that all of them have, {won}{tied}."]
    metric = headline(scores)
    if metric is not None:
        found = {method: finite(metric["values"][method]["value"]) for method in methods}
        known_values = {method: value for method, value in found.items() if value is not None}
        if known_values:
            order = sorted(known_values, key=lambda m: badness(metric, known_values[m]) or 0.0)
            each = listing([f"{method} {number(known_values[method])}" for method in order])
            sentences.append(f"{metric['title']}, best first: {each}{_real_score(metric)}.")
    sentences.append(
        "Scores measure different things and some measure nearly the same one, so counting them is a rough summary. "
        "Choose by the scores that matter for the intended use."
    )
    return sentences


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
    return "" if not reference else f" (real: {number(reference['value'])})"


def _against_real(scores: Scores, method: str) -> list[str]:
    verdicts = [no_worse(metric, metric["values"][method]) for metric in scores["metrics"]]
    known = [each for each in verdicts if each is not None]
    if not known:
        return []
    good = "none" if not any(known) else "all" if all(known) else str(sum(known))
    return [
        f"Of {counted(len(known), 'score')} that can be set beside the same score of real rows, {good} "
        f"{'is' if good == '1' else 'are'} at least as good, within two standard errors where these are known."
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
    kept = (value - 0.5) / (reference - 0.5)
    if no_worse(metric, score):
        return [f"{start} No loss is measurable."]
    if kept <= 0:
        return [f"{start} Nothing of what real rows gain over chance (0.5) is kept."]
    return [f"{start} Of what real rows gain over chance (0.5), {percent(1 - kept)} is lost."]


def _columns(scores: Scores, method: str) -> list[str]:
    columns = detail(scores, "one_way", method).get("columns") or {}
    found = {name: value for name, column in columns.items() if (value := finite(column.get("tv"))) is not None}
    if not found:
        return []
    worst = sorted(found, key=lambda name: -found[name])[:3]
    each = listing([f"{quoted(name)} ({percent(found[name])})" for name in worst])
    return [
        f"Column by column, {percent(sum(found.values()) / len(found))} of the rows on average would have to change "
        f"their value to match the real shares{_floor(scores, 'one_way')}; furthest off: {each}."
    ]


def _pairs(scores: Scores, method: str) -> list[str]:
    worst = [pair for pair in detail(scores, "two_way", method).get("worst") or () if finite(pair["tv"]) is not None]
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
            return f" (other real rows: {percent(reference)})"
    return ""


def _validity(scores: Scores, method: str) -> list[str]:
    """Values that no real row could have: by the scores that count them, else by the histograms."""
    wrong, checked, compared = [], False, []
    for metric in scores["metrics"]:
        value = finite(metric["values"][method]["value"])
        if metric["group"] not in ("validity", "constraints") or value is None:
            continue
        if metric["direction"] == "lower is better":
            checked = True
            wrong += [f"{metric['title'][:1].lower()}{metric['title'][1:]} {percent(value)}"] if value else []
        elif metric.get("reference"):
            compared.append(f"{metric['title']}: {percent(value)} (other real rows: {percent(_reference(metric))}).")
    if checked:
        return [f"Invalid values occur: {listing(wrong)}." if wrong else "No invalid value was found.", *compared]
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
    return sentences


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
    """A sentence on why nothing of these groups can be drawn."""
    wanted = set(groups)
    for metric in scores["metrics"]:
        if metric["group"] in wanted:
            for score in metric["values"].values():
                if finite(score["value"]) is None and score.get("why"):
                    return str(score["why"])
    if "learning" in wanted and scores.get("target") is None:
        return "No target column was named, so there is nothing to predict."
    if scores.get("effort") == "quick":
        return "Left out by the quick scorecard. Evaluate with effort \u201cdefault\u201d to have it."
    return "The scorecard holds nothing to draw here."
