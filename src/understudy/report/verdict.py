"""Findings of a scorecard: sentences that follow from its numbers by fixed rules."""

import math
from collections.abc import Iterable, Sequence

from understudy.evaluation.scores import Direction, Json, Status
from understudy.report.densities import density_sentences
from understudy.report.parts import detail, find, method_value, real_value
from understudy.report.text import count_of, finite, format_score, listing, number, percent, quote

TOO_SMALL = "the held-out table has far fewer rows than the synthetic one and scores worse by chance alone"


def badness(metric: Json, value: float) -> float | None:
    """The distance from the best value, comparable among values of one metric; None if it is not known."""
    direction = Direction(metric["direction"])
    if direction.goal is not None:
        return abs(value - direction.goal)
    if direction is Direction.NEAR_REAL:
        reference = real_value(metric)
        return None if reference is None else abs(value - reference)
    return value if direction is Direction.LOWER else -value


def no_worse(metric: Json, score: Json) -> bool | None:
    """Whether a score is as good as that of real rows, within two standard errors; None: nothing to compare with."""
    value, real = finite(score.get("value")), real_value(metric)
    if value is None or real is None:
        return None
    ours, theirs = badness(metric, value), badness(metric, real)
    return None if ours is None or theirs is None else ours <= theirs + 2 * _error(score, metric["reference"]) + 1e-12


def is_comparable(metric: Json) -> bool:
    """Whether the reference has enough rows: a much smaller table scores worse by chance alone."""
    return (metric.get("reference") or {}).get("comparable") is not False


def is_skipped(score: Json) -> bool:
    """Whether the effort left the score out."""
    return score.get("status") == Status.SKIPPED


def _error(score: Json, reference: Json) -> float:
    """The standard error of their difference, as far as it is known."""
    return math.hypot(finite(score.get("error")) or 0.0, finite(reference.get("error")) or 0.0)


def verdict(scores: Json, method: str) -> list[str]:
    """The findings about one synthetic table, the most important first."""
    rules = (_copies, _learning, _columns, _pairs, density_sentences, _validity, _against_real)
    return [sentence for rule in rules for sentence in rule(scores, method)]


def rankings(scores: Json, methods: Sequence[str]) -> list[str]:
    """Several synthetic tables ranked by the most wanted scores."""
    sentences = []
    keys = ("tv2", "invalid_cells", "constraint_violations")
    for metric in (_learning_score(scores), *(find(scores, key) for key in keys)):
        values = {m: value for m in methods if (value := method_value(metric, m)) is not None}
        if metric is None or not any(values.values()):
            continue
        order = sorted(values, key=lambda method: badness(metric, values[method]) or 0.0)
        each = listing([f"{method} {format_score(metric, values[method])}" for method in order])
        reference = metric.get("reference")
        real = f" (real: {format_score(metric, reference['value'])})" if reference else ""
        sentences.append(f"{metric['title']}, best first: {each}{real}.")
    return sentences


def comparison(scores: Json, methods: Sequence[str]) -> list[str]:
    """On how many scores each of several synthetic tables is best."""
    wins, ties, compared = dict.fromkeys(methods, 0), 0, 0
    for metric in scores["metrics"]:
        by_real = Direction(metric["direction"]) is Direction.NEAR_REAL
        values = [method_value(metric, method) for method in methods]
        ranks = [None if value is None else badness(metric, value) for value in values]
        known = [rank for rank in ranks if rank is not None]
        if len(known) < len(methods) or metric.get("same_as") or (by_real and not is_comparable(metric)):
            continue
        compared += 1
        best = [method for method, rank in zip(methods, known, strict=True) if rank <= min(known) + 1e-12]
        if len(best) == 1:
            wins[best[0]] += 1
        else:
            ties += 1
    if not compared:
        return ["No score was computed for all of them, so they are not compared."]
    ranking = sorted(methods, key=lambda method: -wins[method])
    won = listing([f"{method} {'is best ' if i == 0 else ''}on {wins[method]}" for i, method in enumerate(ranking)])
    tied = f"; {ties} {'is a tie' if ties == 1 else 'are ties'}" if ties else ""
    return [
        f"Of the {count_of(compared, 'score')} that all of them have, {won}{tied}.",
        "Many scores measure nearly the same thing, so this count is a rough summary. Choose by the scores that matter"
        " for the intended use.",
    ]


def absences(scores: Json, methods: Sequence[str]) -> list[str]:
    """Which scores are missing, grouped by the reason; skipped ones apart from those that cannot be computed."""
    reasons: dict[str, dict[str, list[str]]] = {}
    skipped = set()
    for metric in scores["metrics"]:
        for method in methods:
            score = metric["values"][method]
            if is_skipped(score):
                skipped.add(metric["key"])
            elif score.get("status") == Status.NOT_APPLICABLE:
                continue
            elif finite(score["value"]) is None:
                why = str(score.get("why") or "No reason is given.")
                reasons.setdefault(why, {}).setdefault(metric["key"], []).append(method)
    each = []
    for why, keys in sorted(reasons.items(), key=lambda item: -len(item[1])):
        concerned = list(dict.fromkeys(method for found in keys.values() for method in found))
        who = "" if len(concerned) == len(methods) else f" of {listing(concerned)}"
        each.append(f"“{why}” ({len(keys)}{who})")
    sentences = []
    if each:
        total = count_of(len({key for keys in reasons.values() for key in keys}), "score")
        sentences.append(f"{total} could not be computed: {listing(each)}.")
    if skipped:
        were = "was" if len(skipped) == 1 else "were"
        sentences.append(
            f"{count_of(len(skipped), 'score')} {were} skipped by the {scores.get('effort')} scorecard to save time;"
            " they are listed at the end of this page."
        )
    return sentences


def _against_real(scores: Json, method: str) -> list[str]:
    compared = [m for m in scores["metrics"] if not m.get("same_as") and no_worse(m, m["values"][method]) is not None]
    known = [no_worse(metric, metric["values"][method]) for metric in compared if is_comparable(metric)]
    rough = len(compared) - len(known)
    if not known:
        return [f"No score can be compared with that of real rows: {TOO_SMALL}."] if rough else []
    good = "none" if not any(known) else "all" if all(known) else str(sum(map(bool, known)))
    rest = f" Another {rough} {'is' if rough == 1 else 'are'} not counted: {TOO_SMALL}." if rough else ""
    return [
        f"Of {count_of(len(known), 'score')} that can be compared with that of real rows, {good} "
        f"{'is' if good == '1' else 'are'} at least as good, within two standard errors where these are known.{rest}"
    ]


def _copies(scores: Json, method: str) -> list[str]:
    """Whether far more rows equal a real one than by chance."""
    metric = find(scores, "exact_copies")
    fraction, by_chance = method_value(metric, method), real_value(metric) or 0.0
    if fraction is None or fraction - by_chance < 0.1:
        return []
    return [
        f"{percent(fraction)} of these rows equal a real row (held-out real rows: {percent(by_chance)}): this table "
        "contains copies of the real one, so its other scores say little."
    ]


def _learning_score(scores: Json) -> Json | None:
    """The learning score that people ask for first: the ROC AUC if there is one."""
    found = [
        metric
        for metric in scores["metrics"]
        if metric["group"] == "learning" and any(finite(s["value"]) is not None for s in metric["values"].values())
    ]
    found.sort(key=lambda metric: (metric["key"] != "tstr_auc", not metric.get("reference")))
    return next(iter(found), None)


def _learning(scores: Json, method: str) -> list[str]:
    metric = _learning_score(scores)
    value, reference = method_value(metric, method), real_value(metric)
    if metric is None or value is None:
        return []
    score = metric["values"][method]
    error = finite(score.get("error"))
    text = number(value) + (f" (standard error {number(error)})" if error else "")
    if reference is None:
        return [f"{metric['title']}: {text}. There is no score of real rows to compare with."]
    if metric["key"] != "tstr_auc":
        gap = number(abs(value - reference))
        return [f"{metric['title']}: {text}; after training on real rows {number(reference)}, a difference of {gap}."]
    start = (
        f"Models trained on these rows reach a ROC AUC of {text} on held-out real rows; trained on real rows they "
        f"reach {number(reference)}."
    )
    if reference <= 0.5:
        return [f"{start} Even real rows do not predict the target better than chance, so this says little."]
    if abs(value - reference) <= 2 * _error(score, metric["reference"]):
        return [f"{start} The difference is within the error of the {scores['holdout']['rows']:,} test rows."]
    if value >= reference:
        return [f"{start} That is at least as good."]
    if value <= 0.5:
        return [f"{start} All of the advantage over chance (0.5) is lost."]
    return [f"{start} {percent((reference - value) / (reference - 0.5))} of the advantage over chance (0.5) is lost."]


def _columns(scores: Json, method: str) -> list[str]:
    columns = detail(scores, "one_way", method).get("columns") or {}
    distances = {name: value for name, column in columns.items() if (value := finite(column.get("tv"))) is not None}
    if not distances:
        return []
    worst = [name for name in sorted(distances, key=lambda name: -distances[name])[:3] if distances[name]]
    each = listing([f"{quote(name)} ({percent(distances[name])})" for name in worst])
    return [
        f"For single columns, {percent(sum(distances.values()) / len(distances))} of the rows on average would have to "
        f"change their value to match the real histogram{_of_real(scores, 'tv1')}"
        f"{f'; the worst are {each}' if worst else ''}."
    ]


def _pairs(scores: Json, method: str) -> list[str]:
    details = detail(scores, "two_way", method)
    worst = [pair for pair in details.get("worst") or () if finite(pair["tv"])]
    if not worst:
        return []
    each = listing([f"{quote(p['columns'][0])} with {quote(p['columns'][1])} ({percent(p['tv'])})" for p in worst[:3]])
    mean = method_value(find(scores, "tv2"), method)
    start = "" if mean is None else f"it is {percent(mean)} on average{_of_real(scores, 'tv2')}; "
    return [f"For pairs of columns, {start}the worst are {each}."]


def _of_real(scores: Json, key: str) -> str:
    """The score of held-out real rows, in parentheses."""
    metric = find(scores, key)
    reference = real_value(metric)
    if metric is None or reference is None:
        return ""
    rows = "" if is_comparable(metric) else f"{scores['holdout']['rows']:,} "
    return f" ({rows}held-out real rows: {percent(reference)})"


def _validity(scores: Json, method: str) -> list[str]:
    """Values that no real row could have."""
    fractions: dict[str, tuple[str, float]] = {}
    compared = []
    for metric in scores["metrics"]:
        value = method_value(metric, method)
        if metric["group"] not in ("validity", "constraints") or value is None:
            continue
        if Direction(metric["direction"]) is Direction.LOWER:
            fractions[metric["key"]] = f"{metric['title'][:1].lower()}{metric['title'][1:]}", value
        elif metric.get("reference"):
            real = percent(real_value(metric) or 0.0)
            compared.append(f"{metric['title']}: {percent(value)} (held-out real rows: {real}).")
    wrong = [f"{title} {percent(value)}" for title, value in fractions.values() if value]
    if wrong:
        return [f"There are invalid values: {listing(wrong)}.", *compared]
    if "invalid_cells" in fractions:
        return ["There are no invalid values.", *compared]
    return [*([f"None found: {listing([title for title, _ in fractions.values()])}."] if fractions else ()), *compared]


def why_absent(scores: Json, groups: Iterable[str]) -> str:
    """Why nothing of these groups can be drawn; empty if they were skipped or not asked for."""
    wanted = set(groups)
    candidates = [
        score for metric in scores["metrics"] if metric["group"] in wanted for score in metric["values"].values()
    ]
    asked = [score for score in candidates if not is_skipped(score)]
    why = next((str(score["why"]) for score in asked if finite(score["value"]) is None and score.get("why")), "")
    return why or ("The scorecard has no data for it." if asked else "")
