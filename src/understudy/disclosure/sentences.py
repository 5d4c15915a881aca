"""What the figures of a disclosure report show, in sentences that follow from the figures by fixed rules."""

import math
from collections.abc import Sequence

from understudy.disclosure.attacks import ATTACK_NAMES as ATTACK_NAMES
from understudy.disclosure.attacks import ATTACKS
from understudy.disclosure.attributes import SecretColumn
from understudy.disclosure.combinations import Combinations, SmallCells
from understudy.disclosure.membership import Copies, Membership, OperatingPoint
from understudy.disclosure.rates import CONFIDENCE, Rate
from understudy.notes import count_of, percent
from understudy.privacy.accounting.statement import round_up


def percents(point: OperatingPoint) -> tuple[str, str]:
    """Both rates with their intervals."""
    return with_interval(point.true_positives), with_interval(point.false_positives)


def with_interval(rate: Rate) -> str:
    """In percent."""
    low, high = (percent(end).removesuffix("%") for end in (rate.low, rate.high))
    return f"{percent(rate.value)} ({low} to {high})"


def percent_up(bound: float) -> str:
    """An upper bound in percent."""
    return percent(min(math.ceil(1000 * bound - 1e-9) / 1000, 1.0))


def membership(measured: Membership, *, is_found: bool, is_beyond: bool) -> str:
    """How well training rows were recognised, and what the guarantee allows."""
    point = max(measured.points, key=lambda candidate: candidate.advantage.value) if is_found else measured.points[0]
    attack = ATTACK_NAMES[point.attack]
    first = (
        "Training rows can be recognised."
        if is_found
        else f"None of {len(ATTACKS)} attacks recognised training rows beyond chance."
    )
    rates = (
        f"The attack chosen for {chosen_for(point.aim)}, '{attack}', recognised {percent(point.true_positives.value)} "
        f"({percent(CONFIDENCE)} interval {percent(point.true_positives.low)} to {percent(point.true_positives.high)}) "
        f"of the training rows at {percent(point.false_positives.value)} false positives among held-out rows."
    )
    return f"{first} {rates} {_ceiling(measured, point, is_beyond=is_beyond)}"


def chosen_for(aim: str) -> str:
    """What an attack was chosen for, on the half of the rows that is not reported."""
    return "the largest advantage" if aim == "advantage" else f"{aim} false positives"


def _ceiling(measured: Membership, point: OperatingPoint, *, is_beyond: bool) -> str:
    if measured.ceiling.statement is None:
        return measured.ceiling.why_not
    if is_beyond:
        attacks = ", ".join(f"'{ATTACK_NAMES[name]}'" for name in measured.beyond_ceiling)
        return (
            f"With {attacks}, more was recognised than the guarantee allows on average over releases, so the guarantee "
            "does not explain this table. Check that the table was made from this release alone, and that the rows "
            "were held out at random."
        )
    assert point.ceiling is not None
    return (
        f"The guarantee (epsilon {round_up(measured.ceiling.statement.epsilon, 3)}) allows an attack at most "
        f"{percent_up(point.ceiling)} at this false-positive rate, on average over releases."
    )


def copies(measured: Copies, *, is_found: bool) -> str:
    """Whether rows that occur only once are repeated."""
    if not measured.training.total:
        return "No training row, or no held-out row, occurs only once among all real rows, so copies are no evidence."
    rates = (
        f"Of the training rows that occur once among all real rows, {percent(measured.training.value)} "
        f"({measured.training.count:,} of {measured.training.total:,}) are in the synthetic table; of such held-out "
        f"rows {percent(measured.held_out.value)} ({measured.held_out.count:,} of {measured.held_out.total:,})."
    )
    if is_found:
        return f"The synthetic table repeats training rows. {rates}"
    return f"{rates} Chance alone can make a difference as large as this."


def attributes(columns: Sequence[SecretColumn], *, is_found: bool) -> str:
    """The column with the largest excess; only an excess is disclosure."""
    if not columns:
        return "No column could be guessed: there is no other column to guess from, or there are no values."
    most = min(columns, key=lambda column: column.p_value if is_found else -column.difference.value)
    rates = (
        f"{most.column!r} is guessed correctly for {percent(most.training.value)} of the training rows and for "
        f"{percent(most.control.value)} of held-out rows"
    )
    if is_found:
        return f"Values of training rows can be guessed better than those of held-out rows: {rates}."
    which = "the column is" if len(columns) == 1 else f"none of {len(columns)} columns is"
    not_better = "not " if len(columns) == 1 else ""
    return (
        f"From the nearest synthetic row, {which} {not_better}guessed better for training rows than for held-out rows "
        f"beyond chance. The largest difference: {rates}. What succeeds for both follows from the population."
    )


def combinations(measured: Combinations, *, is_found: bool) -> str:
    """Rare combinations of the quasi-identifiers."""
    text = f"{_cells(measured.unique)} {_cells(measured.small)}"
    once = measured.once
    if not once.training.total:
        return text
    rates = (
        f"Of combinations that occur once among all real rows, the synthetic table has "
        f"{percent(once.training.value)} of those of training rows and {percent(once.held_out.value)} of those of "
        "held-out rows"
    )
    if is_found:
        return f"{text} {rates}: it repeats combinations of training rows."
    return f"{text} {rates}. Chance alone can make a difference as large as this."


def _cells(cells: SmallCells) -> str:
    occur = "occurs" if cells.combinations == 1 else "occur"
    if cells.most_rows == 1:
        what = f"{count_of(cells.combinations, 'combination')} {occur} in one training row only"
    else:
        what = f"{cells.combinations:,} {occur} in fewer than {cells.most_rows + 1} training rows"
    have = "has" if cells.synthetic.count == 1 else "have"
    return (
        f"{what}: {count_of(cells.synthetic.count, 'synthetic row')} {have} one, against {cells.expected:,.0f} "
        f"({cells.expected_low:,.0f} to {cells.expected_high:,.0f}) expected in as many held-out rows."
    )


def limits() -> tuple[str, ...]:
    """What every reader should know."""
    return (
        "A report without findings is not proof of privacy: other attacks may find more. A guarantee "
        "holds against all attacks.",
        "Small distances to real rows are no evidence by themselves: held-out rows may be as close.",
        "Attack and threshold were chosen on one half of the rows, and the figures are from the other half. Half of "
        "the held-out rows were reference rows for the attacks and were not scored.",
    )
