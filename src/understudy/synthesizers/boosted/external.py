"""Post-GAN boosting for any GAN: `plan_boost` lists the selections, and `boost` weights generated rows by them.

Generators and discriminators were trained elsewhere, with any package. What comes in are samples of the checkpoints,
and discriminators as functions of a row or as scores that were computed already. The private rows are used by the
selections alone, which are charged; whether generators and discriminators are private is not known here, and the
certificate says so.
"""

import dataclasses
import datetime
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import narwhals as nw
import numpy as np
import pyarrow as pa
from jaxtyping import Float

from understudy import certificate
from understudy.errors import ConfigError
from understudy.institution.book.book import BudgetBook
from understudy.institution.book.policy import Policy
from understudy.institution.book.proposal import ProposedRun
from understudy.models.pool import draw_indices
from understudy.notes import Note
from understudy.privacy.accounting.events import Selections
from understudy.privacy.accounting.ledger import Budget, Guarantee, Plan, PublicFacts, Query, Statement
from understudy.privacy.mechanisms.scoring import (
    PrivateScores,
    RowScore,
    noisy_score_selections,
    trace_scores,
    unit_scores,
)
from understudy.privacy.mechanisms.selection import check_num_rows
from understudy.privacy.noise.source import fresh_key
from understudy.release import check_seed, check_size
from understudy.run.plan import read_guarantee
from understudy.run.run import open_run
from understudy.synthesizers.boosted.game import (
    Constant,
    LearningRate,
    Together,
    Values,
    play,
    promised_gap,
    reject_exactly,
)
from understudy.synthesizers.boosted.method import gap_sentences
from understudy.synthesizers.settings import check_value
from understudy.tables import Frame, Label, Origin, attach_label, read_table, to_frame

METHOD = "boost"
Rows: TypeAlias = "np.ndarray | Frame"
"""Generated rows: an array with a line for each, or a frame."""


@dataclasses.dataclass(frozen=True)
class BoostedSamples:
    """Generated rows with weights that were selected privately, and the statement of the selections.

    `us.boost` makes one.

    >>> import understudy as us
    >>> real, generated = np.asarray([[0.0], [1.0]] * 50), np.asarray([[0.0], [0.0], [1.0]] * 20)
    >>> boosted = us.boost(real, [generated], discriminators=[lambda row: row[0]], num_rows=100, epsilon=1, rounds=10)
    >>> boosted.weights.shape, boosted.sample(3).shape
    ((60,), (3, 1))
    """

    weights: Float[np.ndarray, " samples"]
    """The probability of each generated row, in the order of the checkpoints."""
    mixture: Float[np.ndarray, " samples"]
    """The mean score, from 0 to 1, of each row by the selected discriminators."""
    statement: Statement
    """What the selections cost. The generators and discriminators are not covered."""
    notes: tuple[Note, ...] = dataclasses.field(default=(), repr=False)
    """What was chosen, and why."""
    _rows: "np.ndarray | pa.Table" = dataclasses.field(default_factory=lambda: np.zeros((0, 0)), repr=False)
    _origin: Origin | None = dataclasses.field(default=None, repr=False)

    @property
    def certificate(self) -> str:
        """The certificate of the selections as Markdown."""
        return certificate.to_markdown(self.statement)

    @property
    def rejected_weights(self) -> Float[np.ndarray, " samples"]:
        """The weights after discriminator rejection sampling by `mixture`, exactly and without sampling."""
        return reject_exactly(self.weights, self.mixture)

    def sample(self, num_rows: int, *, seed: int | None = None) -> Any:
        """Rows drawn by weight, in the form of the samples that were given. Post-processing, so it has no
        privacy cost. `seed` makes the sample reproducible and does not affect the guarantee."""
        check_size(num_rows, "The number of synthetic rows")
        check_seed(seed)
        key = fresh_key() if seed is None else jax.random.key(seed)
        chosen = draw_indices(self.weights, num_rows, np.random.default_rng(np.asarray(jax.random.key_data(key))))
        if isinstance(self._rows, np.ndarray):
            return self._rows[chosen]
        assert self._origin is not None
        label = Label(certificate=self.statement.headline)
        return to_frame(attach_label(self._rows.take(pa.array(chosen)), label), self._origin)


def plan_boost(
    guarantee: Guarantee | None = None,
    *,
    num_rows: int,
    num_samples: int,
    num_discriminators: int,
    epsilon: float | None = None,
    delta: float | None = None,
    rounds: int = 400,
    learning_rate: str | float = "paper",
) -> Plan:
    """State the query of `boost`, with its privacy cost and a bound on the duality gap. Reads no data.

    Args:
        guarantee: The guarantee. Give either this, or `epsilon` and, if you want, `delta`.
        epsilon: The epsilon of the guarantee.
        delta: Its delta. Default: derived from `num_rows`.
        num_rows: The declared number of private rows.
        num_samples: The number of all generated rows.
        num_discriminators: The number of discriminators.
        rounds: The number of private selections.
        learning_rate: Of the game; "paper" or "sqrt", or a number.

    Returns:
        The plan, of one query.

    Raises:
        ConfigError: An argument cannot be honoured.

    >>> [query.what for query in plan_boost(num_rows=1000, num_samples=5000, num_discriminators=9, epsilon=1)]
    ['400 selections among 9 discriminators and a constant']
    """
    game = _Game(num_rows, num_samples, num_discriminators, rounds, learning_rate)
    return game.plan(read_guarantee(guarantee, epsilon, delta).with_delta_for(num_rows).budget())


def boost(
    real: Rows,
    samples: "Sequence[Rows]",
    guarantee: Guarantee | None = None,
    *,
    num_rows: int,
    discriminators: "Sequence[RowScore] | None" = None,
    scores: "Sequence[np.ndarray] | None" = None,
    score_range: tuple[float, float] = (0.0, 1.0),
    epsilon: float | None = None,
    delta: float | None = None,
    rounds: int = 400,
    learning_rate: str | float = "paper",
    seed: int | None = None,
    book: "BudgetBook | str | os.PathLike[str] | None" = None,
    policy: "Policy | str | os.PathLike[str] | None" = None,
) -> BoostedSamples:
    """Weight generated rows until no discriminator separates them from the private rows (post-GAN boosting).

    Give the discriminators in one of two ways: as `discriminators`, or by their `scores`.

    Formal guarantee: (epsilon, delta)-differential privacy of the selections, and of all that follows from them, under
    add-or-remove of one private row, provided that no seed was given. Not covered: `samples` and the discriminators.
    Unless they were trained under differential privacy themselves, nothing is private; add their cost to this one.

    Args:
        real: The private rows: an array or a frame. With `scores`, their scores, which are as private as the rows; the
            scores of a row must depend on that row alone.
        samples: The generated rows of each checkpoint, as arrays or frames.
        guarantee: The guarantee. Give either this, or `epsilon` and, if you want, `delta`.
        epsilon: The epsilon of the guarantee.
        delta: Its delta. Default: derived from `num_rows`.
        num_rows: The declared, public number of private rows.
        discriminators: Functions of one row, written with `jax.numpy`, that return one number. `real` and all
            `samples` are then arrays with the values of a row in each line.
        scores: For each checkpoint an array with one line per generated row and one column per discriminator.
        score_range: The public range to which scores are clamped: low where a row looks generated, high where it looks
            real.
        rounds: The number of private selections.
        learning_rate: Of the game; "paper" or "sqrt", or a number.
        seed: Makes the run reproducible, and not private.
        book: The `BudgetBook` of the data set, or its path. It covers the selections alone.
        policy: A `Policy`, or the path of its file.

    Returns:
        The weighted samples, and the statement of what the selections cost.

    Raises:
        ConfigError: An argument cannot be honoured.
        BudgetExceeded: The guarantee or the book has no room for the selections.
        SpentError: The run failed after its first charge.

    >>> import understudy as us
    >>> fair, biased = np.asarray([[0.0], [1.0]] * 50), np.asarray([[0.0]] * 90 + [[1.0]] * 10)
    >>> boosted = us.boost(fair, [biased], discriminators=[lambda row: row[0]], num_rows=100, epsilon=50, seed=0)
    >>> bool(boosted.weights[biased[:, 0] == 1].sum() > 0.3)
    True
    """
    check_size(num_rows, "num_rows")
    wanted = read_guarantee(guarantee, epsilon, delta).with_delta_for(num_rows)
    check_seed(seed)
    low, high = _check_range(score_range)
    generated = _Generated.read(samples, discriminators, scores)
    _check_generated(samples, real)
    game = _Game(num_rows, generated.num_samples, generated.num_discriminators, rounds, learning_rate)
    plan = game.plan(wanted.budget())
    values = Values(unit_scores(generated.scores, (low, high)).T.astype(np.float32))
    proposed = ProposedRun(
        METHOD,
        wanted,
        lambda guarantee: game.plan(guarantee.budget()).queries,
        {"sizes": list(dataclasses.astuple(game)), "score_range": [low, high]},
    )
    with open_run(seed=seed, book=book, policy=policy, proposed=proposed) as run:
        run.start(METHOD, wanted, plan.queries, _facts(num_rows, (low, high), generated))
        private = PrivateScores(_private_array(real, generated), num_rows, (low, high), generated.functions)
        select = noisy_score_selections(private, plan["selections"], run.ledger)
        together = Together([values, Constant(generated.num_samples)])
        outcome = play(together, select, rounds=rounds, learning_rate=learning_rate)
        if wanted.is_private:
            run.ledger.state_accuracy(*(note.text for note in plan.notes))
        statement = run.finish(run.statement())
    return BoostedSamples(outcome.weights, outcome.mixture, statement, plan.notes, generated.rows, generated.origin)


@dataclasses.dataclass(frozen=True)
class _Game:
    """The public numbers of a game."""

    num_rows: int
    num_samples: int
    num_discriminators: int
    rounds: int
    learning_rate: LearningRate

    def __post_init__(self) -> None:
        for name in ("num_rows", "num_samples", "num_discriminators", "rounds"):
            check_size(getattr(self, name), name)
        check_num_rows(int(self.num_rows))
        check_value("learning_rate", self.learning_rate, LearningRate)

    def plan(self, budget: Budget) -> Plan:
        """All selections as one query, and a bound on the duality gap."""
        event = Selections(1 / budget.calibrate(lambda noise: [Selections(1 / noise, self.rounds)]), self.rounds)
        what = f"{self.rounds} selections among {self.num_discriminators} discriminators and a constant"
        query = Query("selections", what, event, path=(METHOD,))
        if not budget.is_private:
            return Plan((query,))
        exponent, count = event.epsilon * self.num_rows, self.num_discriminators + 1
        gap = promised_gap(self.num_samples, count, self.rounds, exponent, self.learning_rate)
        return Plan((query,), tuple(map(Note, gap_sentences(gap, self.num_rows))))


# --------------------------------------------------------------------------------------------------------------- inputs


@dataclasses.dataclass(frozen=True)
class _Generated:
    """Generated rows of all checkpoints, and the scores of each row by every discriminator."""

    rows: "np.ndarray | pa.Table"
    origin: Origin | None
    scores: Float[np.ndarray, "samples discriminators"]
    functions: Callable[[Any], np.ndarray] | None
    width: int
    """The number of values that a line of the private array has."""

    @property
    def num_samples(self) -> int:
        return len(self.scores)

    @property
    def num_discriminators(self) -> int:
        return int(self.scores.shape[1])

    @classmethod
    def read(
        cls,
        samples: "Sequence[Rows]",
        discriminators: "Sequence[RowScore] | None",
        scores: "Sequence[np.ndarray] | None",
    ) -> "_Generated":
        if (discriminators is None) == (scores is None):
            raise ConfigError(
                "Give the discriminators once: either as functions (discriminators), or as scores.",
                setting="discriminators",
            )
        if not isinstance(samples, Sequence) or not len(samples):
            raise ConfigError(
                "samples must be a list with the generated rows of each checkpoint, found none.", setting="samples"
            )
        if scores is not None:
            if len(scores) != len(samples):
                raise ConfigError(
                    f"scores must be a list of {len(samples)} arrays, one per checkpoint.", setting="scores"
                )
            rows, origin, sizes = _concatenate(samples)
            parts = [_numbers(part, "scores") for part in scores]
            if [len(part) for part in parts] != sizes or len({part.shape[1] for part in parts}) != 1:
                raise ConfigError(
                    "scores must have one line per generated row and one column per discriminator.", setting="scores"
                )
            together = np.concatenate(parts)
            return cls(rows, origin, _at_least_two(together), None, together.shape[1])
        assert discriminators is not None
        parts = [_numbers(part, "samples").astype(np.float32) for part in samples]
        if len({part.shape[1] for part in parts}) != 1:
            raise ConfigError("All samples must have the same number of columns.", setting="samples")
        array = _at_least_two(np.concatenate(parts))
        if not len(discriminators):
            raise ConfigError(
                "discriminators must be a list of functions of one row, found none.", setting="discriminators"
            )
        functions = trace_scores(list(discriminators), jax.ShapeDtypeStruct(array.shape[1:], jnp.float32))
        original = np.concatenate([np.asarray(part) for part in samples])
        return cls(original, None, functions(array), functions, array.shape[1])


def _concatenate(samples: "Sequence[Rows]") -> "tuple[np.ndarray | pa.Table, Origin | None, list[int]]":
    if all(isinstance(part, np.ndarray) for part in samples):
        return np.concatenate([np.asarray(part) for part in samples]), None, [len(part) for part in samples]
    read = [read_table(part) for part in samples]
    try:
        together = pa.concat_tables([part for part, _ in read], promote_options="permissive")
    except pa.ArrowException:
        raise ConfigError("All samples must have columns of the same names and types.", setting="samples") from None
    return together, read[0][1], [len(part) for part, _ in read]


def _numbers(values: Rows, setting: str, what: str = "") -> Float[np.ndarray, "rows columns"]:
    """As floats, NaN for null. Types and the number of columns decide what is refused, never a value: it may be of a
    private row."""
    if getattr(values, "ndim", 2) != 2:
        raise ConfigError(
            f"{what or setting} must be an array of 2 dimensions: one line per row and one column per value.",
            setting=setting,
        )
    array = _as_floats(values)
    if array is None:
        raise ConfigError(
            f"{what or setting} must be numbers by their type: an array, or a frame, of numbers or booleans. Encode "
            "categories first, or give scores.",
            setting=setting,
        )
    return array


def _as_floats(values: Rows) -> Float[np.ndarray, "rows columns"] | None:
    with np.errstate(over="ignore"):  # a warning would say that some value is large
        if hasattr(values, "dtype"):
            array = np.asarray(values)
            return array.astype(np.float64) if array.dtype.kind in "biuf" else None
        try:
            frame = nw.from_native(values, eager_only=True)
        except (TypeError, ValueError):  # no frame, or one with two columns of the same name
            return None
        columns = [frame[name] for name in frame.columns]
        if not columns or not all(column.dtype.is_numeric() or column.dtype == nw.Boolean for column in columns):
            return None
        return np.stack([_float_column(column) for column in columns], axis=1)


def _float_column(column: "nw.Series[Any]") -> Float[np.ndarray, " rows"]:
    """A cast by Arrow would fail on large integers."""
    if column.implementation.is_pandas_like():
        return column.to_native().to_numpy(dtype=np.float64, na_value=np.nan)
    return np.asarray(column.to_numpy()).astype(np.float64)


def _check_generated(samples: "Sequence[Rows]", real: Rows) -> None:
    """Refuses the private rows in the place of generated ones: they would be released."""
    for rows in samples:
        arrays = isinstance(rows, np.ndarray) and isinstance(real, np.ndarray)
        if rows is real or (arrays and np.may_share_memory(rows, real)):
            raise ConfigError(
                "samples has the real rows themselves. Give rows that generators made.", setting="samples"
            )


def _at_least_two(rows: np.ndarray) -> np.ndarray:
    if len(rows) < 2:
        raise ConfigError("A pool of one row cannot be reweighted. Give more generated rows.", setting="samples")
    return rows


def _private_array(real: Rows, generated: _Generated) -> np.ndarray:
    """The private rows, or their scores. Messages name the number of columns, never that of rows."""
    what = "real rows" if generated.functions is not None else "scores of the real rows"
    array = _numbers(real, "real", f"The {what}")
    if array.shape[1] != generated.width:
        raise ConfigError(f"The {what} must have {generated.width} columns, found {array.shape[1]}.", setting="real")
    if generated.functions is None:
        return array
    with np.errstate(over="ignore"):  # a warning would say that some value is large
        return array.astype(np.float32)


def _facts(num_rows: int, score_range: tuple[float, float], generated: _Generated) -> PublicFacts:
    return PublicFacts(
        selections_only=True,
        rows_declared=num_rows,
        declared=(
            f"number of rows: {num_rows:,}",
            f"the generated rows: {generated.num_samples:,}",
            f"the discriminators: {generated.num_discriminators:,}, and that their scores of a row depend on that row "
            "alone",
            f"the range of scores: {score_range[0]:g} to {score_range[1]:g}",
        ),
        date=datetime.date.today().isoformat(),
    )


def _check_range(score_range: tuple[float, float]) -> tuple[float, float]:
    try:
        low, high = (float(end) for end in score_range)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not (low < high and math.isfinite(high - low)):
        raise ConfigError(
            f"score_range must be two numbers, the lower one first, found {score_range!r}.", setting="score_range"
        )
    return low, high
