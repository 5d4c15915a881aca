"""The verdict on one synthetic table: what is good, what is lost, which rules are broken, and what it is not for.

Four sentences that follow from the scores by the rules of this file.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from understudy.evaluation.associations import KEPT, LOST, NOTICEABLE
from understudy.evaluation.scores import Json
from understudy.evaluation.validity import is_copied
from understudy.report.averages import Averages, averages
from understudy.report.densities import Density, densities, outside_regions
from understudy.report.parts import detail, find, is_close, is_far, method_value, real_value
from understudy.report.text import count_of, finite, listing, minus, percent, quote

BROKEN = 0.005
"""A condition is broken if more rows than this break it beyond twice the fraction of real rows that do."""
LEARNT, UNLEARNT = 0.05, 0.2
"""Fractions of the advantage over guessing: models that lose no more have learnt, those that lose more have not."""
NAMED = 3
"""How many columns, pairs or rules a sentence names."""
ASSOCIATIONS = {
    ("numeric", "numeric"): "correlation",
    ("discrete", "discrete"): "Cramér's V",
    ("numeric", "discrete"): "correlation ratio",
}


@dataclasses.dataclass(frozen=True)
class Pair:
    """The association of two columns, corrected for chance, in real and in synthetic rows."""

    columns: tuple[str, str]
    kind: str
    real: float
    synthetic: float

    @property
    def fraction(self) -> float:
        """How much of the real association is there; negative if its sign is reversed."""
        return self.synthetic / self.real

    @property
    def names(self) -> str:
        return f"{quote(self.columns[0])} with {quote(self.columns[1])}"


@dataclasses.dataclass(frozen=True)
class ValuePair:
    """Two categories that go together in real rows and not in synthetic ones."""

    columns: tuple[str, str]
    values: tuple[str, str]
    real: float
    synthetic: float | None
    """The fraction of the rows with the first category that have the second; None: no row has the first."""

    @property
    def sentence(self) -> str:
        given = f"{self.columns[0]} = {quote(self.values[0])}"
        here = f"but no synthetic row has {given}"
        if self.synthetic is not None:
            here = f"compared with {percent(self.synthetic)} of synthetic rows"
        then = f"{self.columns[1]} = {quote(self.values[1])}"
        return f"{percent(self.real)} of real rows with {given} have {then}, {here}"


@dataclasses.dataclass(frozen=True)
class CheckedRule:
    """A rule, and the fractions and numbers of real and of synthetic rows that break it."""

    text: str
    real: float
    synthetic: float
    real_broken: int = 0
    synthetic_broken: int = 0
    is_declared: bool = False
    """Whether it is a rule of the schema, which every synthetic row should satisfy."""
    why: str = ""
    """Why it was not checked; empty: it was."""

    @property
    def is_broken(self) -> bool:
        """By any row, if the rule is declared; else by clearly more synthetic than real rows."""
        return self.synthetic > 0 if self.is_declared else self.synthetic > 2 * self.real + BROKEN


@dataclasses.dataclass(frozen=True)
class Summary:
    """The four sentences, and what they were made from; a sentence is empty if nothing is known about its subject."""

    good: str
    lost: str
    rules: str
    avoid: str
    columns: tuple[int, int, int]
    """The numbers of columns that are close to the real ones, in between, and far from them."""
    pairs: tuple[int, int, int]
    """The numbers of dependences that are kept, weakened and lost."""
    lost_pairs: tuple[Pair, ...]
    """The largest losses first."""
    lost_values: tuple[ValuePair, ...]
    rules_found: tuple[CheckedRule, ...]
    """All rules in their order: those of the schema, then further conditions."""

    @property
    def sentences(self) -> dict[str, str]:
        """Those that are not empty, by heading."""
        by_title = {"Good": self.good, "Lost": self.lost, "Rules": self.rules, "Not for": self.avoid}
        return {heading: sentence for heading, sentence in by_title.items() if sentence}


def summarise(scores: Json, method: str) -> Summary | None:
    """The summary of one table; None if its columns or their dependences were not scored."""
    distances = _distances(scores, method)
    pairs = dependences(scores, method)
    if not distances or pairs is None:
        return None
    means = averages(scores, method)
    close = [name for name, (tv, real) in distances.items() if is_close(tv, real) and means.are_close(name)]
    far = [name for name, (tv, real) in distances.items() if is_far(tv, real)]
    far.sort(key=lambda name: -distances[name][0])
    num_far = len({*far, *(each.name for each in (*means.off, *means.without_shared(far)))})
    kept = [pair for pair in pairs if pair.fraction >= KEPT]
    lost = sorted((pair for pair in pairs if pair.fraction < LOST), key=lambda p: -abs(p.real - p.synthetic))
    values, rules = _value_pairs(scores, method), checked_rules(scores, method)
    learnt, located = _fraction_unlearnt(scores, method), densities(scores, method)
    broken = [rule for rule in rules if rule.is_broken]
    return Summary(
        good=_good(distances, close, pairs, kept, located, (scores.get("target"), learnt)),
        lost=_lost(distances, far, means, lost, values, located, (scores.get("target"), learnt)),
        rules=" ".join(filter(None, (_rules(scores, method, rules, broken), outside_regions(located)))),
        avoid=_avoid(
            _do_not_share(scores, method),
            far,
            means,
            lost,
            values,
            located,
            broken,
            scores.get("target") if (learnt or 0.0) > UNLEARNT else None,
        ),
        columns=(len(close), len(distances) - len(close) - num_far, num_far),
        pairs=(len(kept), len(pairs) - len(kept) - len(lost), len(lost)),
        lost_pairs=tuple(lost),
        lost_values=tuple(values),
        rules_found=tuple(rules),
    )


def _distances(scores: Json, method: str) -> dict[str, tuple[float, float]]:
    """Each column's total variation, and that of held-out real rows (0 if it is not known)."""
    columns = detail(scores, "one_way", method).get("columns") or {}
    real = detail(scores, "one_way", "real").get("columns") or {}
    return {
        name: (tv, finite((real.get(name) or {}).get("tv")) or 0.0)
        for name, column in columns.items()
        if (tv := finite(column.get("tv"))) is not None
    }


def dependences(scores: Json, method: str) -> list[Pair] | None:
    """The pairs of columns that depend on each other in the real table; None if this was not computed."""
    details = detail(scores, "correlations", method)
    if not details.get("real") or not details.get("synthetic"):
        return None
    names, kinds = details["columns"], details.get("kinds") or ()
    pairs = []
    for i in range(len(names)):
        for j in range(i):
            real, ours = finite(details["real"][i][j]), finite(details["synthetic"][i][j])
            if real is None or abs(real) < NOTICEABLE:
                continue
            kind = ASSOCIATIONS.get((kinds[j], kinds[i]), "correlation ratio") if kinds else "association"
            pairs.append(Pair((str(names[j]), str(names[i])), kind, real, ours or 0.0))
    return pairs


def _value_pairs(scores: Json, method: str) -> list[ValuePair]:
    pairs = detail(scores, "correlations", method).get("values") or ()
    return [
        ValuePair(tuple(each["columns"]), tuple(each["values"]), real, finite(each.get("synthetic_fraction")))
        for each in pairs
        if (real := finite(each.get("real_fraction"))) is not None
    ]


def checked_rules(scores: Json, method: str) -> list[CheckedRule]:
    """The rules of the schema and further conditions, with the rows that break them."""
    return [read_rule(each) for each in detail(scores, "constraints", method).get("rules") or ()]


def read_rule(entry: Json) -> CheckedRule:
    """What the details of a scorecard say about one rule, or about all rules together, which have no text."""
    return CheckedRule(
        text=str(entry.get("rule") or ""),
        real=finite(entry.get("real")) or 0.0,
        synthetic=finite(entry.get("synthetic")) or 0.0,
        real_broken=int(finite(entry.get("real_broken")) or 0),
        synthetic_broken=int(finite(entry.get("synthetic_broken")) or 0),
        is_declared=entry.get("source") == "schema",
        why=str(entry.get("why") or ""),
    )


def _fraction_unlearnt(scores: Json, method: str) -> float | None:
    """The fraction of the advantage over guessing that models lose; None if there is no advantage or no model.

    By ROC AUC, whose guess is 0.5, or for a numeric target by R squared, whose guess is 0.
    """
    for key, guess in (("tstr_auc", 0.5), ("tstr_r2", 0.0)):
        metric = find(scores, key)
        ours, real = method_value(metric, method), real_value(metric)
        if ours is not None and real is not None and real - guess > 0.02:
            return min(1.0, max(0.0, (real - ours) / (real - guess)))
    return None


def _good(
    distances: Mapping[str, object],
    close: Sequence[str],
    pairs: Sequence[Pair],
    kept: Sequence[Pair],
    located: Sequence[Density],
    learning: tuple[object, float | None],
) -> str:
    parts = []
    if close:
        which = "the column" if len(distances) == 1 else _of_all(len(close), len(distances), "columns")
        parts.append(f"{which} closely {'matches the real one' if len(close) == 1 else 'match the real ones'}")
    if kept:
        which = "the only dependence" if len(pairs) == 1 else _of_all(len(kept), len(pairs), "dependences")
        parts.append(f"{which} between columns {'is' if len(kept) == 1 else 'are'} kept")
    parts += [each.good for each in located if each.good]
    target, lost = learning
    if lost is not None and lost <= LEARNT:
        parts.append(f"models of {quote(target)} are nearly as accurate as if trained on real rows")
    return f"{_capital(listing(parts))}." if parts else "Nothing: no column and no dependence is close to the real one."


def _lost(
    distances: Mapping[str, tuple[float, float]],
    far: Sequence[str],
    means: Averages,
    lost: Sequence[Pair],
    values: Sequence[ValuePair],
    located: Sequence[Density],
    learning: tuple[object, float | None],
) -> str:
    parts = []
    if lost:
        what = "the dependence of" if len(lost) == 1 else "the dependences of"
        parts.append(f"{what} {_some(_lost_pairs(lost, values), 'pair')}")
    elif values:
        parts.append(f"a dependence between single values: {values[0].sentence}")
    if far:
        each = [f"{quote(name)} ({percent(distances[name][0])} of the rows differ)" for name in far]
        parts.append(f"the {'histogram' if len(far) == 1 else 'histograms'} of {_some(each, 'column')}")
    if off := [each.lost for each in means.off]:
        parts.append(f"the {'average' if len(off) == 1 else 'averages'} of {_some(off, 'column')}")
    if shared := [each.lost_value for each in means.without_shared(far)]:
        parts.append(f"the {'fraction' if len(shared) == 1 else 'fractions'} of rows with {_some(shared, 'column')}")
    parts += [each.lost for each in located if each.lost]
    target, unlearnt = learning
    if unlearnt is not None and unlearnt > UNLEARNT:
        parts.append(f"{percent(unlearnt)} of what models can learn about {quote(target)}")
    none = "No dependence, histogram or average is lost." if means.columns else "No dependence or histogram is lost."
    return f"{_capital('; '.join(parts))}." if parts else none


def _lost_pairs(lost: Sequence[Pair], values: Sequence[ValuePair]) -> list[str]:
    """The pairs with their associations; the first that has an example of two values has it in its parentheses."""
    examples = {frozenset(each.columns): each.sentence for each in reversed(values)}
    shown = next((pair for pair in lost if frozenset(pair.columns) in examples), None)
    texts = []
    for pair in lost:
        example = f"; for example, {examples[frozenset(pair.columns)]}" if pair is shown else ""
        strength = f"{pair.kind} {minus(f'{pair.real:.2f}')}, here {minus(f'{pair.synthetic:.2f}')}"
        texts.append(f"{pair.names} ({strength}{example})")
    return texts


def _rules(scores: Json, method: str, rules: Sequence[CheckedRule], broken: Sequence[CheckedRule]) -> str:
    """Which rules are broken, how many could not be checked, and how many cells are invalid."""
    cells = _invalid_cells(scores, method)
    checked = [rule for rule in rules if not rule.why]
    unchecked = len(rules) - len(checked)
    rest = f" {count_of(unchecked, 'rule')} could not be checked." if unchecked else ""
    if not rules:
        return f"No rules were checked. Declare them in the schema ([[rules]]), or add --constraint.{cells}"
    if not checked:
        return f"{rest.lstrip()}{cells}"
    if not broken:
        return f"{_hold(checked)}.{rest}{cells}"
    worst = sorted(broken, key=lambda rule: rule.real - rule.synthetic)
    each = [
        f"{quote(rule.text, 60)} in {percent(rule.synthetic)} of the rows (real: {percent(rule.real)})"
        for rule in worst
    ]
    return f"Broken: {_some(each, 'rule')}.{rest}{cells}"


_FAULTS = {
    "out_of_range": "out of range",
    "unlisted": "not in the list",
    "unexpected_nulls": "null, but never in real rows",
}


def _invalid_cells(scores: Json, method: str) -> str:
    """The fraction of cells that no real row could have, with the columns and causes; empty if there are none."""
    invalid = method_value(find(scores, "invalid_cells"), method)
    if not invalid:
        return ""
    columns = detail(scores, "validity", method).get("columns") or {}
    found = {
        f"{quote(name)} {percent(fraction)} {words}": fraction
        for name, causes in columns.items()
        for cause, words in _FAULTS.items()
        if (fraction := finite(causes.get(cause)))
    }
    worst = sorted(found, key=lambda text: -found[text])
    why = f" ({_some(worst, 'cause')})" if worst else ""
    return f" {percent(invalid)} of all cells are invalid{why}."


def _hold(checked: Sequence[CheckedRule]) -> str:
    """How the rules hold, none of which is broken: in every row, or as often as in real rows."""
    in_every = sum(rule.synthetic == 0 for rule in checked)
    if 0 < in_every < len(checked):
        verb = "holds" if in_every == 1 else "hold"
        return (
            f"{count_of(in_every, 'rule')} {verb} in every row and {len(checked) - in_every} as often as in real rows"
        )
    which = {1: "The rule holds", 2: "Both rules hold"}.get(len(checked), f"All {len(checked)} rules hold")
    return f"{which} {'in every row' if in_every else 'as often as in real rows'}"


def _do_not_share(scores: Json, method: str) -> str:
    """One sentence on a table of copies, by the rule of the warning; else empty."""
    details = detail(scores, "closest_record", method)
    ours, held = (finite((details.get(each) or {}).get("exact_copies")) for each in ("synthetic", "holdout"))
    if ours is None or held is None or not is_copied(ours, held):
        return ""
    return (
        f"Do not share: {percent(ours)} of the rows equal a real row, compared with {percent(held)} of held-out real "
        "rows, so real rows have been copied."
    )


def _avoid(
    do_not_share: str,
    far: Sequence[str],
    means: Averages,
    lost: Sequence[Pair],
    values: Sequence[ValuePair],
    located: Sequence[Density],
    broken: Sequence[CheckedRule],
    target: object,
) -> str:
    parts = []
    if lost:
        parts.append(f"analyses of {_some([pair.names for pair in lost], 'pair')}")
    elif values:
        pair = values[0]
        parts.append(f"analyses of {quote(pair.columns[0])} with {quote(pair.columns[1])}")
    if uneven := [*far, *(each.name for each in means.without_shared(far))]:
        parts.append(f"histograms of {_some([quote(name) for name in uneven], 'column')}")
    if off := [quote(each.name) for each in means.off]:
        parts.append(f"totals or averages of {_some(off, 'column')}")
    parts += [f"maps of {quote(each.name)} as fine as {each.far_up_to:g} km" for each in located if each.far_up_to]
    if target is not None:
        parts.append(f"models of {quote(target)}")
    if broken:
        parts.append(f"anything that relies on the broken {'rules' if len(broken) > 1 else 'rule'}")
    if parts:
        return f"{do_not_share} Do not use it for {'; or for '.join(parts)}.".lstrip()
    return do_not_share or (
        "No limits were found, but never use it for conclusions about individuals or very small groups."
    )


def _some(items: Sequence[str], what: str) -> str:
    """The first of these, and how many more there are."""
    more = [count_of(len(items) - NAMED, f"more {what}")] if len(items) > NAMED else []
    return listing([*items[:NAMED], *more])


def _of_all(count: int, total: int, what: str) -> str:
    return f"{'all' if count == total else f'{count} of'} {total:,} {what}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def chance_of_copies(scores: Json, method: str) -> str:
    """What the fraction of rows that equal a real row means, beside what chance alone gives; empty if not computed."""
    metric = find(scores, "exact_copies")
    ours, of_holdout = method_value(metric, method), real_value(metric)
    if ours is None or of_holdout is None:
        return ""
    drawn = finite((detail(scores, "closest_record", method).get("independent") or {}).get("exact_copies"))
    others = f", as do {percent(drawn)} of rows whose columns are sampled independently" if drawn is not None else ""
    start = f"By chance alone, {percent(of_holdout)} of held-out real rows equal another real row{others}."
    rows = max(1, int(scores["holdout"]["rows"]))
    if ours <= of_holdout + 2 * math.sqrt(max(of_holdout * (1 - of_holdout), 1 / rows) / rows) + 0.01:
        return f"{start} Here it is {percent(ours)}, no more than chance explains."
    return f"{start} Here it is {percent(ours)}, more than chance explains: rows may have been copied."
