"""Membership: how much better than chance an attacker distinguishes training rows from held-out rows.

Attack and threshold are chosen on one half of the rows, and every figure is from the other half, so the choice does
not inflate it. Half of the held-out rows are reference rows for the attacks and are never scored.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import bootstrap, mannwhitneyu, rankdata

from understudy.disclosure.attacks import ATTACKS, Attacked, classify, count_copies
from understudy.disclosure.rates import CONFIDENCE, Difference, Rate, difference, excess_p_value
from understudy.evaluation.scores import Json
from understudy.evaluation.table import EncodedTable
from understudy.evaluation.validity import fingerprints
from understudy.privacy.accounting.ledger import Statement
from understudy.privacy.accounting.tradeoff import statement_tradeoff

FALSE_POSITIVE_RATES = (0.01, 0.05)
"""True-positive rates are reported at these."""
MAX_SCORED, MAX_SEARCHED = 10_000, 30_000
"""The most rows of each kind that attacks score, and that they search, to limit time and memory."""
CURVE_POINTS = 60
RESAMPLES = 500
"""Of the bootstrap of the AUC."""


@dataclasses.dataclass(frozen=True)
class Ceiling:
    """The largest true-positive rate that a guarantee allows at each false-positive rate; or why there is none."""

    statement: Statement | None = None
    """Of a private release."""
    why_not: str = ""

    @classmethod
    def of(cls, statement: Statement | None) -> Self:
        if statement is None:
            return cls(None, "There is no certificate, so there is no ceiling to compare with.")
        if statement.seeded:
            return cls(None, "The noise of the release was seeded, so its certificate gives no ceiling.")
        if not statement.is_private:
            return cls(None, "The release is not private, so its certificate gives no ceiling.")
        if not statement.released:
            return cls(None, "The run of this certificate released nothing, so it gives no ceiling.")
        return cls(statement)

    def at(self, fpr: float) -> float | None:
        """None: there is no ceiling."""
        if self.statement is None:
            return None
        # The table has the training row and lacks the held-out one, so an attack distinguishes tables that differ
        # in both: the bound for one row applies twice.
        bound = statement_tradeoff(self.statement).largest_true_positive_rate
        return bound(min(bound(fpr), 1.0))

    def to_json(self) -> Json:
        """The guarantee, and the ceiling as a curve to draw."""
        if self.statement is None:
            return {"why_not": self.why_not}
        rates = np.geomspace(1e-4, 1.0, CURVE_POINTS).tolist()
        curve = {"fpr": rates, "tpr": [self.at(min(rate, 1.0)) for rate in rates]}
        return {"epsilon": self.statement.epsilon, "delta": self.statement.delta, "curve": curve}


@dataclasses.dataclass(frozen=True)
class OperatingPoint:
    """One attack at one threshold, both chosen on the other half of the rows."""

    aim: str
    """What was largest on the other half: "1%" and "5%" of false positives, or "advantage"."""
    attack: str
    true_positives: Rate
    false_positives: Rate
    advantage: Difference
    p_value: float
    """Of the hypothesis that training rows are recognised no more often than held-out rows."""
    ceiling: float | None
    """The largest true-positive rate that the guarantee allows at the upper end of the interval of the false-positive
    rate."""

    @property
    def exceeds_ceiling(self) -> bool:
        return self.ceiling is not None and self.true_positives.low > self.ceiling


@dataclasses.dataclass(frozen=True)
class Copies:
    """Rows that occur once among all real rows, and whether the synthetic table repeats them."""

    training: Rate
    held_out: Rate
    p_value: float


@dataclasses.dataclass(frozen=True)
class Membership:
    """All figures about membership."""

    points: tuple[OperatingPoint, ...]
    auc: Difference
    auc_attack: str
    curves: Mapping[str, Mapping[str, Sequence[float]]]
    """False and true positives, at all thresholds, of the attacks that were chosen, on the half that is reported."""
    attacks: Mapping[str, float]
    """The AUC of every attack, on the half used for the choice: for orientation only."""
    copies: Copies
    ceiling: Ceiling
    rows: Mapping[str, int]
    drift_p_value: float
    """Of the hypothesis that the held-out rows are from the same population as the training rows."""

    @property
    def beyond_ceiling(self) -> tuple[str, ...]:
        """Attacks, and copies, whose true-positive rate is above what the guarantee allows on average over releases."""
        attacks = [point.attack for point in self.points if point.exceeds_ceiling]
        most = self.ceiling.at(self.copies.held_out.high)
        if most is not None and self.copies.training.low > most:
            attacks.append("exact_copies")
        return tuple(dict.fromkeys(attacks))


def measure_membership(
    real: EncodedTable, holdout: EncodedTable, synthetic: EncodedTable, ceiling: Ceiling, *, seed: int
) -> Membership:
    """Run all attacks and report the best of them without the bias of having chosen it.

    Every test is exact if the held-out rows were held out at random, because then chance alone decides which of the
    rows with a given score are training rows.
    """
    reference, outside = holdout.split(0.5, seed=seed)
    members, others = (table.at_most(MAX_SCORED, seed=seed) for table in (real, outside))
    joined = {name: np.concatenate([members[name], others[name]]) for name in members.layout.names}
    rows = EncodedTable(members.layout, joined)
    seen = Attacked(
        rows=rows,
        synthetic=synthetic.at_most(MAX_SEARCHED, seed=seed),
        reference=reference.at_most(MAX_SEARCHED, seed=seed),
        copies=count_copies(rows, synthetic),
        seed=seed,
    )
    is_member = np.arange(rows.num_rows) < members.num_rows
    scores = {name: attack(seen) for name, attack in ATTACKS.items()}
    chosen_on = _random_half(is_member, seed)
    choice = {name: _Split.of(score, is_member, chosen_on) for name, score in scores.items()}
    report = {name: _Split.of(score, is_member, ~chosen_on) for name, score in scores.items()}
    aims: dict[str, Callable[[_Split], tuple[float, float]]] = {
        **{f"{100 * rate:g}%": _largest_at(rate) for rate in FALSE_POSITIVE_RATES},
        "advantage": _largest_advantage,
    }
    points = tuple(_point(aim, best, choice, report, ceiling) for aim, best in aims.items())
    areas = {name: split.auc for name, split in choice.items()}
    strongest = max(areas, key=lambda name: areas[name])
    return Membership(
        points=points,
        auc=_auc_interval(report[strongest], seed),
        auc_attack=strongest,
        curves={point.attack: report[point.attack].curve() for point in points},
        attacks={name: round(area, 4) for name, area in areas.items()},
        copies=measure_copies(real, holdout, synthetic),
        ceiling=ceiling,
        rows={
            "training_rows": members.num_rows,
            "held_out_rows": others.num_rows,
            "reference_rows": seen.reference.num_rows,
            "synthetic_rows": seen.synthetic.num_rows,
        },
        drift_p_value=_drift_p_value(members, holdout.at_most(MAX_SCORED, seed=seed), seed),
    )


def measure_copies(real: EncodedTable, holdout: EncodedTable, synthetic: EncodedTable) -> Copies:
    """Whether the synthetic table repeats training rows more often than held-out rows that are just as unusual.

    Only rows that occur once among the training and held-out rows together count: rows that many people share are
    repeated by every good table.
    """
    keys = [fingerprints(table) for table in (real, holdout)]
    distinct, counts = np.unique(np.concatenate(keys), return_counts=True)
    once, copied = distinct[counts == 1], fingerprints(synthetic)
    single = [key[np.isin(key, once)] for key in keys]
    if not all(map(len, single)):
        return Copies(Rate(0, 0, 0.0, 0.0, 1.0), Rate(0, 0, 0.0, 0.0, 1.0), 1.0)
    training, held_out = (Rate.of(int(np.isin(key, copied).sum()), len(key)) for key in single)
    return Copies(training, held_out, excess_p_value(training, held_out))


# -------------------------------------------------------------------------------------------------------------- choice


@dataclasses.dataclass(frozen=True, eq=False)
class _Split:
    """Scores of members and of others, on one half of the rows."""

    members: Float[np.ndarray, " members"]
    others: Float[np.ndarray, " others"]

    @classmethod
    def of(cls, scores: np.ndarray, is_member: np.ndarray, half: np.ndarray) -> Self:
        return cls(scores[is_member & half], scores[~is_member & half])

    @property
    def auc(self) -> float:
        return _auc(self.members, self.others)

    def rates(self, threshold: float) -> tuple[Rate, Rate]:
        """True and false positives: scores above the threshold."""
        true, false = (Rate.of(int((part > threshold).sum()), len(part)) for part in (self.members, self.others))
        return true, false

    def curve(self) -> dict[str, list[float]]:
        """False- and true-positive rates, at thresholds spaced evenly in the logarithm of the former."""
        wanted = np.concatenate([[0.0], np.geomspace(1 / len(self.others), 1.0, CURVE_POINTS)])
        thresholds = np.unique(np.quantile(self.others, 1 - wanted, method="higher"))[::-1]
        pairs = {((self.others > t).mean(), (self.members > t).mean()) for t in [*thresholds, -np.inf]}
        fpr, tpr = zip(*sorted(pairs), strict=True)
        return {"fpr": [round(float(x), 5) for x in fpr], "tpr": [round(float(x), 5) for x in tpr]}


def _largest_at(rate: float) -> Callable[[_Split], tuple[float, float]]:
    """The true-positive rate, and its threshold, at no more than this false-positive rate."""

    def best(split: _Split) -> tuple[float, float]:
        threshold = np.sort(split.others)[::-1][int(rate * len(split.others))]
        return float((split.members > threshold).mean()), float(threshold)

    return best


def _largest_advantage(split: _Split) -> tuple[float, float]:
    """The largest difference of true- and false-positive rate, and its threshold."""
    thresholds = np.unique(np.concatenate([split.members, split.others]))
    rates = [
        1 - np.searchsorted(np.sort(part), thresholds, "right") / len(part) for part in (split.members, split.others)
    ]
    at = int(np.argmax(rates[0] - rates[1]))
    return float(rates[0][at] - rates[1][at]), float(thresholds[at])


def _point(
    aim: str,
    best: Callable[[_Split], tuple[float, float]],
    choice: Mapping[str, _Split],
    report: Mapping[str, _Split],
    ceiling: Ceiling,
) -> OperatingPoint:
    by_attack = {name: best(split) for name, split in choice.items()}
    attack = max(by_attack, key=lambda name: by_attack[name][0])
    true, false = report[attack].rates(by_attack[attack][1])
    return OperatingPoint(
        aim, attack, true, false, difference(true, false), excess_p_value(true, false), ceiling.at(false.high)
    )


def _random_half(is_member: Bool[np.ndarray, " rows"], seed: int) -> Bool[np.ndarray, " rows"]:
    """Half of the members and half of the others."""
    half = np.zeros(len(is_member), dtype=bool)
    generator = np.random.default_rng([seed, 5])
    for rows in (np.flatnonzero(is_member), np.flatnonzero(~is_member)):
        half[generator.permutation(rows)[: len(rows) // 2]] = True
    return half


# ----------------------------------------------------------------------------------------------------------------- AUC


def _auc(members: np.ndarray, others: np.ndarray) -> float:
    """The probability that a member has the higher score; ties count half."""
    ranks = rankdata(np.concatenate([members, others]))[: len(members)]
    return float((ranks.sum() - len(members) * (len(members) + 1) / 2) / (len(members) * len(others)))


def _auc_interval(split: _Split, seed: int) -> Difference:
    samples = (split.members, split.others)
    drawn = bootstrap(
        samples,
        _auc,
        n_resamples=RESAMPLES,
        vectorized=False,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng([seed, 6]),
    ).confidence_interval
    return Difference(split.auc, float(drawn.low), float(drawn.high))


def _drift_p_value(real: EncodedTable, holdout: EncodedTable, seed: int) -> float:
    """Whether the scores of a classifier, trained on half of both tables, differ on the other halves."""
    (train_real, test_real), (train_held, test_held) = (table.split(0.5, seed=seed) for table in (real, holdout))
    scores = classify(train_real, train_held, [test_held, test_real], seed=seed)
    return float(mannwhitneyu(*scores, alternative="greater").pvalue)
