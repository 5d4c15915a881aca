"""GEM: a generator trained on privately measured marginals.

After Liu, Vietri and Wu, "Iterative methods for private synthetic data: unifying framework and new methods", 2021.
Deviations: unless the table is wide for its budget, all marginals of the workload are bought, and without a target some
pairs twice, under one Gaussian price that does not depend on their number or sizes; levels too rare for the noise are
counted together; with a target, pairs of columns are counted within its classes; the loss is that of
`training/marginal_matching.py`. With a `critic_fraction` a critic, trained by DP-SGD as that of `dpgan`, finds what the
marginals do not show.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Annotated

import jax
import numpy as np
import scipy.linalg
from jaxtyping import Float, PRNGKeyArray

from understudy.encoding.features import starts
from understudy.models.mixture import MixtureOfProducts
from understudy.notes import Note
from understudy.privacy.charges import charge_dpsgd
from understudy.privacy.clipping import LEAST_CLIP, MOST_CLIP
from understudy.privacy.events import Gaussian, Selections, SubsampledGaussian
from understudy.privacy.filters import GaussianFilter, charge_marginals
from understudy.privacy.ledger import Budget, Ledger, Plan, Query
from understudy.privacy.rows import Clique, Grouped, PrivateRows
from understudy.privacy.sampling import round_sampling_rate
from understudy.privacy.selection import Candidates, MarginalSelector, noisy_selections
from understudy.progress import Progress
from understudy.schema import Domain, Scale
from understudy.settings import (
    Between,
    Count,
    Fraction,
    InnerFraction,
    Listed,
    OneOf,
    Positive,
    SettingError,
    Widths,
    check_settings,
)
from understudy.synthesizers.dpgan import ledger_key
from understudy.synthesizers.protocol import Capabilities
from understudy.training.critics import one_hot_blocks
from understudy.training.gan import Dials, Kept, Settings, begun_with
from understudy.training.gan import train as train_both
from understudy.training.marginal_matching import (
    BETAS,
    Cells,
    Components,
    Cross,
    Fit,
    Held,
    Pairs,
    State,
    Terms,
    begun,
    by_chance,
    falling,
    heads_of,
    train,
)
from understudy.training.networks import Centred, Constant, Critic
from understudy.training.trajectory import Trajectory, judge

LEAST_SHARE = 0.001
"""Less of the budget than this for anything is a mistake."""
MODES = ("auto", "one_shot", "adaptive")
MOST_GROUPS = 1500
"""Groups of all columns together: their square is the size of the matrices that are compared."""
MOST_IN_TRIPLES = 256
"""The same where triples are compared: the third power of it."""
CELLS_AT_ONCE = 2**18
"""Cells of the matrices compared in one step; a part of them, drawn anew each time, if there are more."""
TOO_NOISY = 0.03
"""Noise of a cell, as a part of the rows, from which on buying everything at once is no longer worth it ..."""
TOO_NOISY_ALONE = 0.002
"""... and of a cell that would be bought alone: few rows for the budget, whatever the number of columns."""
ENOUGH_CELLS = 16
"""A table of so many cells tells as much of its own strength of dependence as all tables together do."""
STRENGTHS = 12
"""Strengths of dependence that a mixture knows, each a third of the last, besides none at all."""
HIDDEN = 2.0
"""A count of a single column below so many standard deviations of its noise is not believed."""
SINGLES_NOISE = 0.002
"""Noise of a count of a single column, as a part of the rows, that is aimed at ..."""
MOST_FOR_SINGLES = 0.4
"""... with at most this part of the precision, and with a target ..."""
FOR_A_SINGLE = 3.0
"""... at most this, divided by the number of columns: the more pairs a column is in, the more they tell of it."""
PAIRS_NOISE = 0.0015
"""With less noise than this of pairs in general, more training steps are worth their while."""
TARGET_NOISE = 0.001
"""The same of pairs with the target ..."""
MOST_FOR_TARGET = 0.35
"""... with at most this part, and ..."""
LEAST_FOR_PAIRS = 0.2
"""... this part of what is left over for pairs in general."""
WORTH_BUYING, MOST_WORTH = 0.02, 0.9
"""Single columns are counted again if so much of the precision more is worth it, for want of pairs; the few pairs that
there are keep a part, though on average over all pairs they hardly count."""
FEW_LEVELS, FEW_TRIPLES = 4, 10_000
"""Triples are bought of columns with so many levels at most, if there are no more than so many triples ..."""
TRIPLES_NOISE = 0.012
"""... where the noise of their cells is below this part of the rows ..."""
FOR_TRIPLES = 0.25
"""... with this part of what pairs would get, and a plan says so."""
FOR_RECOUNTS = 0.5
"""Without a target, so much of what pairs get is kept back for those that turn out to be worth more of it. With one it
makes pairs better by a few per cent, and what is learnt of the target worse."""
PRECISIONS = 1.4 ** -np.arange(40.0)[::-1]
"""Parts of what is left that may go to one pair."""
AND_TRIPLES = ", and of triples of columns, where noise lets them be seen"
WITH_TRIPLES = "3-way"
"""The kind of a query that 3-way marginals are measured by too."""
Part = Annotated[float, Between(LEAST_SHARE, 1 - LEAST_SHARE)]
UNKNOWN_SIZE = 10_000
"""Rows that a plan reckons with where their number is bought: the choice must not depend on what is found."""
SPREAD, WIDE_SPREAD = 0.1, 1.0
"""How far apart the products begin. A critic needs them apart: where all are alike, no step by step change of one
column shows anything of a parity of four."""
LEAST_SPREAD = 0.1
"""A level that nearly everybody has, or nobody, is not blown up by more than the inverse of this."""
SLOWER = 0.25
"""The generator's learning rate beside a critic, as a part of its own."""
GENERATOR_BATCH = 256
"""Rows that a critic judges in a step of the generator, with each of their levels exchanged in turn."""
Groups = tuple[int, ...]
"""For each code of a column the group it is counted in."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GEM:
    """A generator network trained on noisy marginals: pairs of columns, within classes of the target."""

    mode: Annotated[str, OneOf(*MODES)] = "auto"
    """one_shot: all pairs are bought at once. adaptive: round by round those that the generator gets most wrong, chosen
    under noise. auto: by the number of columns, the declared rows and the budget."""
    rounds: Count = 6
    """Of the adaptive mode."""
    num_selections: Count | None = None
    """Pairs that the adaptive mode buys in all. Left out: one for each column."""
    selection_fraction: Part = 0.1
    """The part of the budget for these choices."""
    one_way_fraction: Part = 0.1
    """The part of the precision for single columns ..."""
    target_fraction: InnerFraction = 0.2
    """... and for pairs with the target, if there is one. The rest is for pairs in general and the given cliques."""
    max_classes: Count = 6
    """Pairs are counted within so many classes of the target at most: rare levels, or neighbours, count as one."""
    min_signal: Positive = 0.1
    """How many times its noise an even share of the rows in a cell must be: rarer levels are counted together."""
    three_way_fraction: Annotated[float, Between(0, 0)] | Part | None = None
    """The part of what pairs would get for triples of columns; 0: there are none. Left out: a quarter without a target,
    if all pairs are bought at once, columns have few declared levels, and there are rows and budget for it."""
    remeasurement_fraction: Annotated[float, Between(0, 0)] | Part | None = None
    """The part of what pairs get that is kept back, where all are bought at once, to count those again of which a
    better count is worth most, by what the first one says. Left out: a half without a target, none with one."""
    cliques: tuple[Annotated[Clique, Listed(2, distinct=True)], ...] = ()
    """Further marginals to buy and match, each a list of columns."""
    steps: Count = 400
    """Training steps; up to twice as many where there is little noise. Post-processing, as all below."""
    components: Count = 1000
    """Latent vectors: the rows that are made have so many kinds, each a product of columns."""
    width: Count = 256
    depth: Count = 2
    """Width and number of the generator's hidden layers."""
    latent: Count = 64
    learning_rate: Positive = 4e-3
    ema_decay: Fraction = 0.98
    """Decay of the generator's running average, which is what is released."""
    critic_fraction: Fraction = 0.0
    """The part of the budget for a critic, which sees rows through clipped and noisy gradients and tells the generator,
    once it fits the marginals, what they do not show. 0: there is none, and what follows does not count."""
    critic_steps: Count = 1000
    """Its steps, each of which costs budget; after each the generator makes one too."""
    critic_sampling_rate: float = 1 / 32
    """The share of the units that enters a critic step: public, whatever the number of rows."""
    critic_widths: Widths = (32, 32)
    """Small on purpose: noise grows with the number of weights. It sees a number of any bins as one input."""
    critic_learning_rate: Positive = 5e-3
    """The critic's learning rate."""
    critic_weight: Positive = 3.0
    """How much the critic's word counts beside the marginals, whose error, in units of their noise and of the chance of
    so many rows, counts once."""
    clip_norm: Annotated[float, Between(LEAST_CLIP, MOST_CLIP)] = 1.0
    """How much one unit may add to the gradient of a critic step."""

    def __post_init__(self) -> None:
        check_settings(self)
        if self.target_fraction >= 1 - self.one_way_fraction:
            raise SettingError("target_fraction", self.target_fraction, "below 1 together with one_way_fraction")
        if self.critic_fraction >= 1 - self.selection_fraction:
            raise SettingError("critic_fraction", self.critic_fraction, "below 1 together with selection_fraction")
        round_sampling_rate(self.critic_sampling_rate)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        """One Gaussian query that fills the budget; in the adaptive mode choices before it; after it a critic's steps.

        Neither sizes nor numbers of marginals move a price; the mode follows from public facts alone.
        """
        for clique in self.cliques:
            domain.shape(clique)  # names the columns that are not there
        # In the adaptive mode this is not what is bought, but it is what decides for it.
        critic = self._critic_query(domain, budget) if self.critic_fraction else []
        left = budget.after(critic)
        alone = left.calibrate(lambda noise: [Gaussian(noise)])
        mode, reason = self._mode(domain, alone * budget.max_rows_per_unit)
        by = "" if domain.target is None else f", within classes of {domain.target!r}"
        kind = WITH_TRIPLES if self._wants_triples(domain, mode, alone * budget.max_rows_per_unit) else ""
        triples = AND_TRIPLES if kind else ""
        what, queries, noise = f"counts of every column, and of pairs of columns{by}{triples}", [], alone
        if mode == "adaptive":
            picks = self._num_picks(domain)
            least = budget.fraction(self.selection_fraction).calibrate(lambda noise: [Selections(1 / noise, picks)])
            choice = f"choice of {picks} pairs of columns, in {min(self.rounds, picks)} rounds"
            queries.append(Query("choices", choice, Selections(1 / least, picks), columns=domain.names))
            noise = left.after(queries).calibrate(lambda noise: [Gaussian(noise)])
            what = f"counts of every column, and of {picks} pairs of columns{by}{triples}"
        queries.append(Query("marginals", what, Gaussian(noise), columns=domain.names, kind=kind))
        return Plan((*queries, *critic), (Note(reason), *self._notes(domain, mode)))

    def _critic_query(self, domain: Domain, budget: Budget) -> list[Query]:
        """The critic's steps at their share, reserved before the marginals take what is left."""

        def steps(noise: float) -> SubsampledGaussian:
            return SubsampledGaussian(round_sampling_rate(self.critic_sampling_rate), noise, self.critic_steps)

        noise = budget.fraction(self.critic_fraction).calibrate(lambda noise: [steps(noise)])
        what = f"{self.critic_steps} critic steps, each on about one unit in {1 / self.critic_sampling_rate:.0f}"
        return [Query("critic", what, steps(noise), columns=domain.names)]

    def _mode(self, domain: Domain, stddev: float) -> tuple[str, str]:
        """One-shot or adaptive, and why; `stddev` is the noise of a count that is bought alone."""
        if self.mode != "auto":
            return self.mode, f"gem buys its marginals {_IN_WORDS[self.mode]}, as its settings say."
        pairs, rows = _num_pairs(domain), domain.declared_rows or UNKNOWN_SIZE
        together, picks = stddev * math.sqrt(max(1, pairs)), self._num_picks(domain)
        size = (
            f"{rows:,} declared rows" if domain.declared_rows else f"{rows:,} rows, reckoned with as none are declared"
        )
        mode = "adaptive"
        if pairs <= picks:
            mode, why = "one_shot", f"there are no more than {picks} pairs"
        elif together > TOO_NOISY * rows:
            why = (
                f"with all {pairs:,} pairs, noise would be {together:.3g} rows a count, above {TOO_NOISY:.0%} of {size}"
            )
        elif stddev > TOO_NOISY_ALONE * rows:
            why = f"noise would be {stddev:.3g} rows for a single pair, above {TOO_NOISY_ALONE:.1%} of {size}"
        else:
            mode = "one_shot"
            why = f"with all {pairs:,} pairs, noise is {together:.3g} rows a count, at most {TOO_NOISY:.0%} of {size}"
        return mode, f"gem buys its marginals {_IN_WORDS[mode]}: {why}."

    def _wants_triples(self, domain: Domain, mode: str, stddev: float) -> bool:
        """Whether triples are bought; `stddev` is the noise of a count that is bought alone.

        With a target, pairs within its classes are triples already.
        """
        if self.three_way_fraction is not None:
            return self.three_way_fraction > 0
        # Bins of numbers are bought like some categories: nothing that a plan says may follow from them.
        few = not domain.bought and not domain.numbers and max(domain.sizes) <= FEW_LEVELS
        triples = math.comb(len(domain.names), 3)
        noise = stddev * math.sqrt(triples / FOR_TRIPLES)
        quiet = noise <= TRIPLES_NOISE * (domain.declared_rows or UNKNOWN_SIZE)
        return mode == "one_shot" and domain.target is None and few and triples <= FEW_TRIPLES and quiet

    def _notes(self, domain: Domain, mode: str) -> tuple[Note, ...]:
        texts = []
        if domain.target is not None:
            texts.append(
                f"Pairs of columns are counted within classes of {domain.target!r}, at most {self.max_classes}."
            )
        if self._for_recounts(domain) and mode == "one_shot":
            part = f"{self._for_recounts(domain):.3g}"
            texts.append(
                f"A part of {part} of what pairs get is kept back, for those of which a better count is worth most."
            )
        return tuple(map(Note, texts))

    def _for_recounts(self, domain: Domain) -> float:
        unasked = FOR_RECOUNTS if domain.target is None else 0.0
        return unasked if self.remeasurement_fraction is None else self.remeasurement_fraction

    def _num_picks(self, domain: Domain) -> int:
        """Settings and names decide, never sizes, which may be bought."""
        return min(self.num_selections or len(domain.names), max(1, _num_pairs(domain)))

    def fit(
        self,
        rows: PrivateRows,
        plan: Plan,
        ledger: Ledger,
        *,
        key: PRNGKeyArray,
        progress: Progress | None = None,
    ) -> MixtureOfProducts:
        """Formal guarantee: the price of the plan's queries. Groups, the generator and its average follow from noisy
        answers and public facts."""
        state, _, model_of = self._trained(rows, plan, ledger, progress, key=key)
        return model_of(state)

    @property
    def has_critics(self) -> bool:
        """Whether checkpoints come with critics: marginals judge no single row."""
        return self.critic_fraction > 0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(trajectory=True, critics=self.has_critics, target=True)

    def num_checkpoints(self, every: int) -> int:
        """How many checkpoints there are if one is kept every so many steps of the last training."""
        return (self.critic_steps if self.has_critics else self.steps) // every

    def trajectory(
        self,
        rows: PrivateRows,
        plan: Plan,
        ledger: Ledger,
        *,
        key: PRNGKeyArray,
        checkpoints: int,
        every: int,
        progress: Progress | None = None,
    ) -> Trajectory:
        """Generators, averaged, and critics, if any, of the last `checkpoints` states. Formal guarantee: that of
        `fit`."""
        _, kept, model_of = self._trained(
            rows, plan, ledger, progress, key=key, keep_every=every, keep_last=checkpoints
        )
        critics = None
        if self.has_critics:
            critics = judge([state.critic for state in kept], one_hot_blocks(rows.domain.sizes))
        return Trajectory(tuple(model_of(state) for state in kept), critics)

    def _trained(
        self,
        rows: PrivateRows,
        plan: Plan,
        ledger: Ledger,
        progress: Progress | None,
        *,
        key: PRNGKeyArray,
        keep_every: int = 0,
        keep_last: int | None = None,
    ) -> tuple[Kept, list[Kept], Callable[[Kept], MixtureOfProducts]]:
        """The last state, those kept on the way, and what makes a model of one."""
        domain, tell = rows.domain, progress or (lambda share, words: None)
        tell_critic = _part(tell, 0.4, 0.6)
        tell = _part(tell, 0.0, 0.4) if self.has_critics else tell
        network_key, *keys, critic_key = jax.random.split(key, 2 + max(1, self.rounds))
        triples_key = jax.random.fold_in(keys[0], 1)
        choose = noisy_selections(rows, plan["choices"], ledger) if "choices" in plan else None
        purse = charge_marginals(rows, plan["marginals"], ledger)
        most_pairs = None if choose is None else self._num_picks(domain)
        # As the plan has it: by now some sizes may be bought, and would decide otherwise.
        wanted = FOR_TRIPLES if self.three_way_fraction is None else self.three_way_fraction
        three_way_fraction = wanted if plan["marginals"].kind == WITH_TRIPLES else 0.0
        board = Board(self, domain, purse, most_pairs=most_pairs, three_way_fraction=three_way_fraction)
        fit = Fit(one_hot_blocks(domain.sizes), (self.width,) * self.depth, self.ema_decay)
        spread = WIDE_SPREAD if self.has_critics else SPREAD
        state = begun(fit, board.shares, rows=self.components, latent=self.latent, key=network_key, spread=spread)
        counts = self._counts(domain, len(board.pairs)) if choose is not None else ()
        for number, count in enumerate(counts):  # each begins where the last one came to
            if number:
                rates = np.full(max(1, self.steps // 2 // len(counts)), self.learning_rate)
                told = _part(tell, number / 2 / len(counts), 1 / 2 / len(counts))
                state = train(fit, board.terms(), state.again(), rates, key=keys[number], progress=told)[0]
            assert choose is not None
            precision = board.for_pairs(purse) * count / sum(counts[number:])
            expected = board.expected(heads_of(fit, state.average, state.latents))
            board.buy(purse, board.worst(expected, choose, count, precision), precision)
        if not counts:
            board.buy(purse, board.pairs, board.for_pairs(purse) * (1 - self._for_recounts(domain)))
            board.recount(purse, board.for_pairs(purse))
        told = _part(tell, 0.5, 0.5) if counts else tell
        rates = falling(self.learning_rate, round(self.steps * board.patience))
        if board.has_triples:  # noise that hides them is told by what the pairs made of them
            first, told = _part(told, 0.0, 0.5), _part(told, 0.5, 0.5)
            state = train(fit, board.terms(), state.again(), rates, key=triples_key, progress=first)[0]
            board.buy_triples(purse, heads_of(fit, state.average, state.latents))
        state, kept = train(
            fit,
            board.terms(),
            state.again(),
            rates,
            key=keys[0],
            keep_every=0 if self.has_critics else keep_every,
            keep_last=keep_last,
            progress=told,
            slot=ledger.slot(),
        )
        latents, last = state.latents, Kept(state.average, None, state.iteration)
        if self.has_critics:
            last, kept = self._with_critic(
                rows,
                plan,
                ledger,
                state,
                board,
                key=critic_key,
                keep_every=keep_every,
                keep_last=keep_last,
                progress=tell_critic,
            )

        def model_of(state: Kept) -> MixtureOfProducts:
            return MixtureOfProducts(domain.names, domain.sizes, np.asarray(heads_of(fit, state.average, latents)))

        return last, kept, model_of

    def _with_critic(
        self,
        rows: PrivateRows,
        plan: Plan,
        ledger: Ledger,
        state: State,
        board: "Board",
        *,
        key: PRNGKeyArray,
        keep_every: int,
        keep_last: int | None,
        progress: Progress,
    ) -> tuple[Kept, list[Kept]]:
        """Critic steps and generator steps in turn, by the loop of all GANs, from where the marginals led."""
        charged, domain = charge_dpsgd(rows, plan["critic"], ledger), rows.domain
        blocks = one_hot_blocks(domain.sizes)
        settings = Settings(
            blocks=blocks,
            batch=max(1, round(charged.sampling_rate * rows.public_num_rows)),
            latent=1,
            critic_widths=self.critic_widths,
            generator_batch=GENERATOR_BATCH,
            average=self.ema_decay,
            betas=BETAS,
            heads="drawn",
        )
        dials = Dials.of(
            self.critic_learning_rate, self.learning_rate * SLOWER, self.clip_norm if charged.is_private else math.inf
        )
        centre, sums = _seen(domain, rows.scales, board.shares)
        critic = Centred(Critic(len(sums[0]), self.critic_widths, key=key), Constant(centre), Constant(sums))
        terms = board.terms()
        hold = 1 / self.critic_weight / (1 + by_chance(terms, rows.public_num_rows))
        fit = Fit(blocks, (self.width,) * self.depth, self.ema_decay)
        end, kept = train_both(
            settings,
            charged,
            dials,
            ledger_key(ledger),
            network_key=key,  # of fresh networks; these are given
            iterations=charged.num_steps,
            also=Held.by(fit, terms, hold),
            state=begun_with(settings, dials, Components(state.average, state.latents), critic),
            keep_every=keep_every,
            keep_last=keep_last,
            progress=progress,
            slot=ledger.slot(),
        )
        last, *kept = [Kept(each.average.generator, each.critic, each.iteration) for each in (Kept.of(end), *kept)]
        return last, kept

    def _counts(self, domain: Domain, num_pairs: int) -> tuple[int, ...]:
        """How many pairs each round chooses; none where all of those that noise leaves can be bought."""
        picks = self._num_picks(domain)
        if num_pairs <= picks:
            return ()
        rounds = min(self.rounds, picks)
        return tuple(picks // rounds + (number < picks % rounds) for number in range(rounds))


def _seen(
    domain: Domain, scales: Sequence[Scale | None], shares: Sequence[np.ndarray]
) -> tuple[tuple[float, ...], tuple[tuple[float, ...], ...]]:
    """What a critic sees of a row, from bought shares: their means, and sums of its features less these.

    A number is the place of its bin, and whether it is missing; a column of two levels is one of them; both in units
    of their spread. With each bin an input of its own, noise would hide what takes three columns to see.
    """
    parts = []
    for name, scale, share in zip(domain.names, scales, shares, strict=True):
        size, missing = len(share), scale is not None and scale.nullable
        inputs = np.eye(size)
        if name in domain.numbers and size > 2 + missing:
            place = np.arange(size - missing) - np.average(np.arange(size - missing), weights=share[: size - missing])
            inputs = np.concatenate([np.append(place, 0.0)[None, :size], inputs[size - missing :]])
        elif size == 2:
            inputs = inputs[1:]
        if len(inputs) <= 2:
            spread = np.sqrt(inputs**2 @ share - (inputs @ share) ** 2)
            inputs = inputs / np.maximum(spread, LEAST_SPREAD)[:, None]
        parts.append(inputs.T)
    sums = scipy.linalg.block_diag(*parts)
    return tuple(np.concatenate(shares).tolist()), tuple(map(tuple, sums.tolist()))


_IN_WORDS = {"one_shot": "all at once", "adaptive": "round by round, the worst fitted first"}


def _num_pairs(domain: Domain) -> int:
    """Of columns that are not the target."""
    return math.comb(len(domain.names) - (domain.target is not None), 2)


def _part(tell: Progress, start: float, share: float) -> Progress:
    return lambda done, words: tell(start + share * done, words)


class Board:
    """What was bought so far: noisy counts of single columns, pairs with the target, pairs in general."""

    def __init__(
        self,
        settings: GEM,
        domain: Domain,
        purse: GaussianFilter,
        *,
        most_pairs: int | None,
        three_way_fraction: float = 0.0,
    ):
        """Buys single columns, pairs with the target and given cliques, and lays out the pairs of all others."""
        self._settings, self._domain = settings, domain
        self._starts = starts(one_hot_blocks(domain.sizes))
        self._classes: Groups | None = None
        self._target: _WithTarget | None = None
        self.bought: set[tuple[str, str]] = set()
        enough = len(domain.names) / (SINGLES_NOISE * domain.num_rows) ** 2 / purse.precision
        few = MOST_FOR_SINGLES if domain.target is None else FOR_A_SINGLE / len(domain.names)
        share = min(enough, MOST_FOR_SINGLES, few)
        self._singles_noise = allotted(
            purse.precision * max(share, settings.one_way_fraction), [domain.size(single) for single in domain.singles]
        )
        self._singles = purse.noisy_counts(domain.singles, self._singles_noise)
        self._domain = domain = dataclasses.replace(domain, num_rows=purse.public_num_rows)
        self._clean()
        if domain.target is not None and len(domain.names) > 1:
            self._buy_target(purse, domain.target)
        self._cliques = self._buy_cliques(purse, most_pairs)
        self._triples = self._laid_out_triples(purse.left * three_way_fraction)
        self._lay_out(self.for_pairs(purse), most_pairs)
        pot = self.for_pairs(purse) + self._singles_precision
        more = self._worth_of_singles(most_pairs) * pot - self._singles_precision
        if self.pairs and more > WORTH_BUYING * purse.precision:
            self._buy_singles_again(purse, more)
            self._lay_out(self.for_pairs(purse), most_pairs)
        if not self.pairs:
            self._buy_again(purse)

    def _clean(self) -> None:
        """Shares of single columns. Levels that their noise hides are taken for as frequent as all of these are."""
        hidden = [counts < HIDDEN * stddev for counts, stddev in zip(self._singles, self._singles_noise, strict=True)]
        rare = np.concatenate([counts[mask] for counts, mask in zip(self._singles, hidden, strict=True)])
        usual = max(0.5, float(rare.mean())) if len(rare) else 0.5
        cleaned = [np.where(mask, usual, counts) for counts, mask in zip(self._singles, hidden, strict=True)]
        self.shares = [counts / counts.sum() for counts in cleaned]

    @property
    def patience(self) -> float:
        """How many times as many steps are worth their while: the less noise, the more there is to learn."""
        bought = self._weights[self._weights > 0]
        noise = float(np.median(bought)) ** -0.5 / self._domain.num_rows if len(bought) else math.inf
        return min(max(1.0 if self._target is not None else 2.0, PAIRS_NOISE / noise), 2.0)

    def _merged(self, name: str, floor: float) -> Groups:
        return merged(self._singles[self._domain.index(name)], floor, ordered=name in self._domain.numbers)

    def _buy_target(self, purse: GaussianFilter, target: str) -> None:
        """Pairs with the target, whose levels are kept where they are few."""
        domain, settings = self._domain, self._settings
        few = domain.shape((target,))[0] <= 2 * settings.max_classes
        levels = tuple(range(domain.shape((target,))[0])) if few else self._merged(target, domain.num_rows / 40)
        classes = self._merged(target, domain.num_rows / (settings.max_classes + 0.5)) if not few else levels
        while max(classes) >= settings.max_classes:
            classes = self._fewer(target, classes)
        self._classes = classes if max(classes) else None
        others = [name for name in domain.names if name != target]
        enough = (len(domain.names) - 1) / (TARGET_NOISE * domain.num_rows) ** 2
        precision = max(purse.precision * settings.target_fraction, min(enough, purse.precision * MOST_FOR_TARGET))
        precision = min(precision, purse.left * (1 - LEAST_FOR_PAIRS))
        stddev = math.sqrt(len(others) / precision)
        groups = {name: self._merged(name, settings.min_signal * stddev * (max(levels) + 1)) for name in others}
        self._target = _WithTarget(levels, groups, [], [])
        queries = self._target.queries(domain)
        noise = allotted(precision, [math.prod(query.shape) for query in queries])
        self._target = _WithTarget(levels, groups, purse.noisy_counts(queries, noise), noise)

    def _fewer(self, target: str, classes: Groups) -> Groups:
        """The two rarest classes as one."""
        counts = np.bincount(classes, weights=self._singles[self._domain.index(target)])
        first, second = sorted(np.argsort(counts, kind="stable")[:2].tolist())
        joined = [first if group == second else group for group in classes]
        return tuple(group - (group > second) for group in joined)

    def _buy_cliques(self, purse: GaussianFilter, most_pairs: int | None) -> list[tuple[Clique, np.ndarray, float]]:
        """Given cliques share what is left with the pairs, one for one."""
        cliques = self._settings.cliques
        if not cliques:
            return []
        columns = len(self._domain.names)
        pairs = most_pairs or columns * (columns - 1) // 2
        noise = allotted(purse.left * len(cliques) / (len(cliques) + pairs), [self._domain.size(c) for c in cliques])
        return list(zip(cliques, purse.noisy_counts(cliques, noise), noise, strict=True))

    @property
    def _singles_precision(self) -> float:
        return math.fsum(noise**-2 for noise in self._singles_noise)

    def _worth_of_singles(self, most_pairs: int | None) -> float:
        """The part of the precision, of what pairs and single columns have together, that is best for the latter.

        They stand for all pairs that will not be counted. The least sum of errors, as in `allotted`.
        """
        domain, pairs = self._domain, self.pairs
        counted = min(len(pairs), most_pairs or len(pairs))
        others = len(domain.names) - 1 - (self._classes is not None)
        per_column = counted / len(pairs) * (len(self._groups) - 1) if pairs else 0.0
        alone = [
            size * (others - per_column * (name in self._groups))
            for name, size in zip(domain.names, domain.sizes, strict=True)
            if self._classes is None or name != domain.target
        ]
        for_singles = sum(cells ** (2 / 3) for cells in alone)
        cells = [self._num_classes * self._widths[a] * self._widths[b] for a, b in pairs]
        for_pairs = counted * float(np.mean(np.asarray(cells) ** (2 / 3))) if pairs else 0.0
        return min(MOST_WORTH, for_singles / max(for_singles + for_pairs, 1e-12))

    def _buy_singles_again(self, purse: GaussianFilter, precision: float) -> None:
        noise = allotted(precision, self._domain.sizes)
        again = purse.noisy_counts(self._domain.singles, noise)
        self._singles, self._singles_noise = _together(self._singles, self._singles_noise, again, noise)
        self._clean()

    def _buy_again(self, purse: GaussianFilter) -> None:
        """Without pairs to buy, what is left makes single columns, and pairs with the target, more precise."""
        target = self._target
        left = self.for_pairs(purse)
        self._buy_singles_again(purse, left * (1.0 if target is None else 0.5))
        if target is not None:
            queries = target.queries(self._domain)
            more = allotted(self.for_pairs(purse), [math.prod(query.shape) for query in queries])
            noisy, noise = _together(target.noisy, target.stddevs, purse.noisy_counts(queries, more), more)
            self._target = dataclasses.replace(target, noisy=noisy, stddevs=noise)

    def _lay_out(self, precision: float, most_pairs: int | None) -> None:
        """Groups for pairs of columns: as fine as the noise of the pairs that are left, and memory, allow.

        Columns of which all but one group are too rare are left out; the fewer are left, the less noise.
        """
        target = self._domain.target if self._classes is not None else None
        names = [name for name in self._domain.names if name != target]
        self._num_classes = 1 if self._classes is None else max(self._classes) + 1
        self._groups = self._coarse(names, precision, 2, classes=self._num_classes, most=most_pairs, width=MOST_GROUPS)
        self._widths = {name: max(each) + 1 for name, each in self._groups.items()}
        self._slices = _slices(self._groups)
        width = sum(self._widths.values())
        self._noisy = np.zeros((self._num_classes, width, width), np.float32)
        self._weights = np.zeros((width, width), np.float32)

    def _coarse(
        self, names: Sequence[str], precision: float, order: int, *, classes: int, most: int | None, width: int
    ) -> dict[str, Groups]:
        """Groups for all marginals of an order, `most` of them at once: an even share of the rows in a cell is
        `min_signal` times their noise at least, and there are no more than `width` groups."""
        rows = self._domain.num_rows

        def floor_of(marginals: int) -> float:
            stddev = math.sqrt(marginals / precision) if precision else math.inf
            return (self._settings.min_signal * classes * stddev * rows ** (order - 1)) ** (1 / order)

        floor = floor_of(1)
        while True:
            groups = {name: self._merged(name, floor) for name in names}
            groups = {name: each for name, each in groups.items() if max(each)}
            marginals = max(1, math.comb(len(groups), order))
            fits = sum(max(each) + 1 for each in groups.values()) <= width
            if not groups or (floor >= floor_of(min(marginals, most or marginals)) and fits):
                return groups
            floor *= 1.1

    def _laid_out_triples(self, precision: float) -> "_Triples | None":
        if not precision:
            return None
        groups = self._coarse(self._domain.names, precision, 3, classes=1, most=None, width=MOST_IN_TRIPLES)
        return _Triples(groups, precision) if len(groups) >= 3 else None

    @property
    def has_triples(self) -> bool:
        return self._triples is not None

    def for_pairs(self, purse: GaussianFilter) -> float:
        """What is left, but for what triples are to have."""
        return max(0.0, purse.left - (self._triples.precision if self._triples is not None else 0.0))

    def buy_triples(self, purse: GaussianFilter, heads: Float[jax.Array, "rows features"]) -> None:
        """Counts of all triples, drawn towards what a generator that was trained on the rest makes of them."""
        triples = self._triples
        assert triples is not None
        noise = allotted(purse.left, [math.prod(query.shape) for query in triples.queries])
        noisy = purse.noisy_counts(triples.queries, noise)
        shares = np.asarray(self._compared_triples(triples, 1.0).shares(heads), dtype=np.float64)
        expected = [shares[place] * self._domain.num_rows for place in triples.places]
        drawn = drawn_in(noisy, expected, [stddev**2 for stddev in noise]).tables
        for place, table, stddev in zip(triples.places, drawn, noise, strict=True):
            triples.noisy[place] = table
            triples.weights[place] = stddev**-2

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """All pairs that could be bought."""
        return list(itertools.combinations(self._groups, 2))

    def query(self, pair: tuple[str, str]) -> Grouped:
        groups = tuple(self._groups[name] for name in pair)
        if self._classes is None or self._domain.target is None:
            return Grouped(pair, groups)
        return Grouped((self._domain.target, *pair), (self._classes, *groups))

    def buy(self, purse: GaussianFilter, pairs: Sequence[tuple[str, str]], precision: float) -> None:
        """Counts of these pairs, with this precision shared among them."""
        if not pairs:
            return
        queries = [self.query(pair) for pair in pairs]
        noise = allotted(precision, [math.prod(query.shape) for query in queries])
        for pair, counts, stddev in zip(pairs, purse.noisy_counts(queries, noise), noise, strict=True):
            a, b = (self._slices[name] for name in pair)
            self._noisy[:, a, b] = counts.reshape(self._num_classes, a.stop - a.start, b.stop - b.start)
            self._weights[a, b] = stddev**-2
        self.bought.update(pairs)

    def recount(self, purse: GaussianFilter, precision: float) -> None:
        """Counts pairs again, each with a part of this precision that follows from what is known of it."""
        bought = [pair for pair in self.pairs if pair in self.bought]
        if not bought or precision <= LEAST_SHARE**2 * purse.precision:  # nothing but rounding is left
            return
        places = [(self._slices[a], self._slices[b]) for a, b in bought]
        known = np.asarray([float(self._weights[a.start, b.start]) for a, b in places])
        queries = [self.query(pair) for pair in bought]
        cells = np.asarray([math.prod(query.shape) for query in queries], dtype=float)
        _, drawn, _ = self._drawn()
        more = dealt(precision, cells, known, drawn.belief, drawn.signal)
        chosen = np.flatnonzero(more)
        found = purse.noisy_counts([queries[at] for at in chosen], (more[chosen] ** -0.5).tolist())
        for at, counts in zip(chosen, found, strict=True):
            a, b = places[at]
            second = counts.reshape(self._num_classes, a.stop - a.start, b.stop - b.start)
            self._noisy[:, a, b] = (self._noisy[:, a, b] * known[at] + second * more[at]) / (known[at] + more[at])
            self._weights[a, b] = known[at] + more[at]

    def worst(
        self, expected: dict[tuple[str, str], np.ndarray], choose: MarginalSelector, count: int, precision: float
    ) -> list[tuple[str, str]]:
        """Pairs not yet bought that the generator gets most wrong, less what the noise of counting them would add."""
        left = [pair for pair in self.pairs if pair not in self.bought]
        queries = [self.query(pair) for pair in left]
        cells = np.asarray([math.prod(query.shape) for query in queries], dtype=float)
        offsets = math.sqrt(2 / math.pi * count / precision) * cells
        tables = [expected[pair] for pair in left]
        return [left[at] for at in choose.several(Candidates(queries, tables, np.ones(len(left)), offsets), count)]

    def expected(self, heads: Float[jax.Array, "rows features"]) -> dict[tuple[str, str], np.ndarray]:
        """What the generator makes of every pair, as counts."""
        shares = np.asarray(self._compared(1.0).shares(heads), dtype=np.float64) * self._domain.num_rows
        found = {}
        for pair in self.pairs:
            a, b = (self._slices[name] for name in pair)
            found[pair] = shares[:, a, b].reshape(self.query(pair).shape)
        return found

    def terms(self) -> Terms:
        """What the generator is compared with, in shares. A cell weighs the square of the rows over its noise, divided
        by the number of cells: at the level of the noise the whole is one."""
        rows, domain = self._domain.num_rows, self._domain
        singles = np.concatenate(self.shares)[None] * rows
        parts: list[tuple[np.ndarray | None, np.ndarray | None, np.ndarray, np.ndarray]] = [
            (None, None, singles, np.repeat(np.asarray(self._singles_noise) ** -2.0, domain.sizes)[None])
        ]
        if self._target is not None:
            noisy = np.concatenate(self._with_target(), axis=1)
            weights = [
                np.full(table.shape, noise**-2)
                for table, noise in zip(self._target.noisy, self._target.stddevs, strict=True)
            ]
            parts.append(
                (
                    self._matrix(self._target.groups),
                    self._gates(self._target.levels),
                    noisy,
                    np.concatenate(weights, axis=1),
                )
            )
        cells = sum(weights.size for *_, weights in parts) + int((self._weights > 0).sum()) * self._num_classes
        cells += 0 if self._triples is None else int((self._triples.weights > 0).sum())
        scale = rows**2 / (cells + sum(counts.size for _, counts, _ in self._cliques))
        made: list[Cross | Pairs | Cells] = [
            Cross.of(groups, gates, noisy / rows, weights * scale) for groups, gates, noisy, weights in parts
        ]
        made += [self._compared(scale)] if self._weights.any() else []
        if self._triples is not None and self._triples.weights.any():
            made.append(self._compared_triples(self._triples, scale))
        made += [self._cells(scale)] if self._cliques else []
        return tuple(made)

    def _compared(self, scale: float) -> Pairs:
        believed, weights = self._believed()
        gates = None if self._classes is None else self._gates(self._classes)
        return self._in_stretches(self._matrix(self._groups), gates, believed, weights[None] * scale)

    def _compared_triples(self, triples: "_Triples", scale: float) -> Pairs:
        """Pairs within each group of a third column."""
        groups = self._matrix(triples.groups)
        return self._in_stretches(groups, groups, triples.noisy, triples.weights * scale)

    def _in_stretches(
        self, groups: np.ndarray, gates: np.ndarray | None, counts: np.ndarray, weights: np.ndarray
    ) -> Pairs:
        width = groups.shape[1]
        stretch = max(1, min(width, CELLS_AT_ONCE // max(1, width)))
        at_once = max(1, CELLS_AT_ONCE // max(1, stretch * width))
        return Pairs.of(groups, gates, counts / self._domain.num_rows, weights, rows=stretch, at_once=at_once)

    def _believed(self) -> tuple[np.ndarray, np.ndarray]:
        """Pairs as the generator is to have them, in rows, and their weights.

        Noisy counts are drawn towards columns that are independent within a class; pairs that were not bought are
        taken for independent, with less weight. Otherwise a generator with more freedom than there is signal would make
        up what was not asked for, and repeat the noise.
        """
        believed, weights = self._noisy.copy(), self._weights.copy()
        independent, drawn, variances = self._drawn()
        tables, most = iter(drawn.tables), max(variances, default=0.0)
        for pair, expected in independent.items():
            a, b = (self._slices[name] for name in pair)
            if pair in self.bought:
                believed[:, a, b] = next(tables)
            elif self.bought:
                believed[:, a, b] = expected
                weights[a, b] = 1 / (most + drawn.usual * float(expected.mean()))
        return believed, weights

    def _drawn(self) -> tuple[dict[tuple[str, str], np.ndarray], "Drawn", list[float]]:
        """All pairs as if columns were independent; those that were bought, drawn towards that; their variances."""
        alone = self._alone()
        sizes = alone[:, : self._domain.sizes[0]].sum(axis=1)
        grouped = alone @ self._matrix(self._groups)
        if self._classes is None:
            grouped = self._pooled(grouped)
        places = {pair: (self._slices[pair[0]], self._slices[pair[1]]) for pair in self.pairs}
        independent = {
            pair: grouped[:, a, None] * grouped[:, None, b] / sizes[:, None, None] for pair, (a, b) in places.items()
        }
        bought = [places[pair] for pair in places if pair in self.bought]
        variances = [1 / float(self._weights[a.start, b.start]) for a, b in bought]
        noisy = [self._noisy[:, a, b] for a, b in bought]
        expected = [table for pair, table in independent.items() if pair in self.bought]
        draw = _drawn_apart if self._classes is None else drawn_in
        return independent, draw(noisy, expected, variances), variances

    def _pooled(self, grouped: Float[np.ndarray, "1 groups"]) -> Float[np.ndarray, "1 groups"]:
        """Rows of each group, by single columns and by the margins of all pairs that were bought."""
        sums, precision = np.zeros(grouped.shape[1]), np.zeros(grouped.shape[1])
        for name, at in self._slices.items():
            noise = self._singles_noise[self._domain.index(name)]
            precision[at] = 1 / (noise**2 * np.bincount(self._groups[name]))
            sums[at] = grouped[0, at] * precision[at]
        for pair in (pair for pair in self.pairs if pair in self.bought):  # in one order, to the last digit
            places = [self._slices[name] for name in pair]
            table = self._noisy[0, places[0], places[1]]
            for axis, at in enumerate(places):
                own = self._weights[places[0].start, places[1].start] / table.shape[1 - axis]
                sums[at] += table.sum(axis=1 - axis) * own
                precision[at] += own
        pooled = np.maximum(sums / precision, 0.5)
        for at in self._slices.values():
            pooled[at] *= grouped[0, at].sum() / pooled[at].sum()
        return pooled[None]

    def _with_target(self) -> list[np.ndarray]:
        """Counts of every other column with the target, drawn towards independence."""
        domain, target = self._domain, self._target
        assert target is not None
        assert domain.target is not None
        levels = np.bincount(target.levels, weights=self.shares[domain.index(domain.target)])
        independent = [
            np.outer(levels, np.bincount(groups, weights=self.shares[domain.index(name)])) * domain.num_rows
            for name, groups in target.groups.items()
        ]
        return drawn_in(target.noisy, independent, [stddev**2 for stddev in target.stddevs]).tables

    def _alone(self) -> Float[np.ndarray, "classes features"]:
        """Rows of each level of each column within each class, from single columns and pairs with the target."""
        domain = self._domain
        singles = np.concatenate(self.shares)[None]
        if self._classes is None or self._target is None or domain.target is None:
            return singles * domain.num_rows
        own = self.shares[domain.index(domain.target)]
        within = _spread(own, self._target.levels).T @ np.eye(max(self._classes) + 1)[list(self._classes)]
        total = np.bincount(self._classes, weights=own)[:, None]
        blocks = []
        for name, shares in zip(domain.names, self.shares, strict=True):
            if name == domain.target:
                blocks.append(np.eye(len(total))[list(self._classes)].T * own)
                continue
            at = list(self._target.groups).index(name)
            counts = np.maximum(self._with_target()[at], self._target.stddevs[at] / 10)
            block = within.T @ counts @ _spread(shares, self._target.groups[name]).T
            blocks.append(block / block.sum(axis=1, keepdims=True) * total)
        return np.concatenate(blocks, axis=1) * domain.num_rows

    def _cells(self, scale: float) -> Cells:
        order = max(len(clique) for clique, _, _ in self._cliques)
        features = sum(self._domain.sizes)
        codes = []
        for clique, counts, _ in self._cliques:
            at = np.indices(counts.shape).reshape(len(clique), -1).T
            at = at + np.asarray([self._starts[self._domain.index(name)] for name in clique])
            codes.append(np.pad(at, ((0, 0), (0, order - len(clique))), constant_values=features))
        noisy = np.concatenate([counts.reshape(-1) for _, counts, _ in self._cliques]) / self._domain.num_rows
        weights = np.concatenate([np.full(counts.size, noise**-2) for _, counts, noise in self._cliques]) * scale
        return Cells.of(np.concatenate(codes), noisy, weights, features=features, rows=CELLS_AT_ONCE // 2**8)

    def _gates(self, levels: Groups) -> np.ndarray:
        assert self._domain.target is not None
        return self._matrix({self._domain.target: levels})

    def _matrix(self, groups: dict[str, Groups]) -> Float[np.ndarray, "features groups"]:
        """Which features make each group, columns side by side."""
        matrix, end = np.zeros((sum(self._domain.sizes), sum(max(each) + 1 for each in groups.values()))), 0
        for name, each in groups.items():
            matrix[self._starts[self._domain.index(name)] + np.arange(len(each)), end + np.asarray(each)] = 1.0
            end += max(each) + 1
        return matrix


@dataclasses.dataclass(frozen=True)
class _WithTarget:
    """Noisy counts of the target with every other column, and their noise."""

    levels: Groups
    groups: dict[str, Groups]
    noisy: list[np.ndarray]
    stddevs: list[float]

    def queries(self, domain: Domain) -> list[Grouped]:
        assert domain.target is not None
        return [Grouped((domain.target, name), (self.levels, groups)) for name, groups in self.groups.items()]


class _Triples:
    """Noisy counts of all triples of columns, in groups of codes: each at the places of its three columns in a cube."""

    def __init__(self, groups: dict[str, Groups], precision: float):
        self.groups, self.precision = groups, precision
        names = list(itertools.combinations(groups, 3))
        self.queries = [Grouped(three, tuple(groups[name] for name in three)) for three in names]
        slices = _slices(groups)
        self.places = [tuple(slices[name] for name in three) for three in names]
        width = sum(max(each) + 1 for each in groups.values())
        self.noisy, self.weights = np.zeros((2, width, width, width), np.float32)


def _slices(groups: dict[str, Groups]) -> dict[str, slice]:
    """Where the groups of each column lie, side by side."""
    ends = np.cumsum([0, *(max(each) + 1 for each in groups.values())]).tolist()
    return {name: slice(a, b) for name, (a, b) in zip(groups, itertools.pairwise(ends), strict=True)}


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Noisy counts, drawn towards expected ones, and what is believed of how far the true ones are from these."""

    tables: list[np.ndarray]
    usual: float
    """The usual strength: the variance of a count for each row that is expected in it."""
    belief: Float[np.ndarray, "tables strengths"]
    """How likely each strength is."""
    signal: Float[np.ndarray, "tables strengths"]
    """The variance of a count of usual size that it means."""


NOTHING = Drawn([], 0.0, np.ones((0, 1)), np.ones((0, 1)))


def _drawn_apart(noisy: Sequence[np.ndarray], independent: Sequence[np.ndarray], variances: Sequence[float]) -> Drawn:
    """As `drawn_in`, for tables whose margins are known better than they tell, and so small that one says little of its
    own strength of dependence: what is not in the margins, by strengths that are a mixture of a few.

    The parts of the mixture are fitted to all tables together (after Stephens, "False discovery rates: a new deal",
    2017): most pairs of a wide table are nearly independent, and a few are not.

    >>> even = np.full((1, 2, 2), 50.0)
    >>> strong, weak = np.array([[[90.0, 10], [10, 90]]]), np.array([[[51.0, 49], [49, 51]]])
    >>> drawn = _drawn_apart([strong, *[weak] * 50], [even] * 51, [100.0] * 51)
    >>> [table.round().tolist() for table in drawn.tables[:2]]
    [[[[89.0, 11.0], [11.0, 89.0]]], [[[50.0, 50.0], [50.0, 50.0]]]]
    """
    if not noisy:
        return NOTHING
    away = [_interaction(counts - expected) for counts, expected in zip(noisy, independent, strict=True)]
    free = np.asarray([math.prod(size - 1 for size in table.shape[1:]) for table in away])
    squares = np.asarray([float((distance**2).sum()) for distance in away])
    rows = np.asarray([float(expected.mean()) for expected in independent])
    most = float((squares / free / rows).max())
    strengths = np.concatenate([[0.0], most * 3.0 ** -np.arange(STRENGTHS)])
    signals = rows[:, None] * strengths
    spread = np.asarray(variances)[:, None] + signals + 1e-12  # without noise, no division by zero
    logs = -free[:, None] / 2 * np.log(spread) - squares[:, None] / 2 / spread
    likely = np.exp(logs - logs.max(axis=1, keepdims=True))
    parts = np.full(len(strengths), 1 / len(strengths))
    for _ in range(200):  # steps of expectation and maximisation
        belief = likely * parts
        belief /= belief.sum(axis=1, keepdims=True)
        parts = belief.mean(axis=0)
    drawn = []
    for distance, expected, variance, own in zip(away, independent, variances, belief, strict=True):
        signal = strengths * expected[..., None]
        drawn.append(expected + distance * ((signal / (signal + variance + 1e-12)) @ own))
    return Drawn(drawn, float(parts @ strengths), belief, signals)


def _interaction(distance: Float[np.ndarray, "classes a b"]) -> Float[np.ndarray, "classes a b"]:
    """What a table says beside its margins."""
    distance = distance - distance.mean(axis=1, keepdims=True)
    return distance - distance.mean(axis=2, keepdims=True)


def drawn_in(noisy: Sequence[np.ndarray], independent: Sequence[np.ndarray], variances: Sequence[float]) -> Drawn:
    """Noisy counts, drawn towards those of independent columns by how far they stand out of their noise, and how far
    they usually do.

    After James and Stein: the squared distance of a cell is taken to grow with its expected rows; how fast is read off
    the noisy counts themselves, of small tables mostly off all of them together.

    >>> even = np.full((2, 2), 50.0)
    >>> drawn_in([np.array([[90.0, 10], [10, 90]])], [even], [1.0]).tables[0].round(1).tolist()
    [[90.0, 10.0], [10.0, 90.0]]
    >>> drawn_in([np.array([[51.0, 49], [49, 51]])], [even], [100.0]).tables[0].tolist()
    [[50.0, 50.0], [50.0, 50.0]]
    """
    if not noisy:
        return NOTHING
    away = [counts - expected for counts, expected in zip(noisy, independent, strict=True)]
    own = [
        (float((distance**2).sum()) - variance * distance.size) / float(expected.sum())
        for distance, expected, variance in zip(away, independent, variances, strict=True)
    ]
    usual = max(0.0, float(np.mean(own)))
    drawn, signals = [], []
    for distance, expected, variance, alone in zip(away, independent, variances, own, strict=True):
        strength = max(0.0, (distance.size * alone + ENOUGH_CELLS * usual) / (distance.size + ENOUGH_CELLS))
        signal = strength * expected
        drawn.append(expected + distance * signal / (signal + variance + 1e-12))  # without noise, no division by zero
        signals.append([float(signal.mean())])
    return Drawn(drawn, usual, np.ones((len(drawn), 1)), np.asarray(signals))


def _spread(shares: Float[np.ndarray, " codes"], groups: Groups) -> Float[np.ndarray, "codes groups"]:
    """The part of each group that each code is."""
    within = np.bincount(groups, weights=shares)
    return np.eye(len(within))[list(groups)] * (shares / within[list(groups)])[:, None]


def _together(
    first: Sequence[np.ndarray], noise: Sequence[float], second: Sequence[np.ndarray], more: Sequence[float]
) -> tuple[list[np.ndarray], list[float]]:
    """Two measurements of the same counts as one, each by its precision."""
    joint = [(a**-2 + b**-2) ** -0.5 for a, b in zip(noise, more, strict=True)]
    counts = [
        (x / a**2 + y / b**2) * both**2 for x, a, y, b, both in zip(first, noise, second, more, joint, strict=True)
    ]
    return counts, joint


def allotted(precision: float, cells: Sequence[int]) -> list[float]:
    """Standard deviations s_j for the least sum of expected errors m_j s_j, over sum_j 1 / s_j^2 = precision.

    >>> [round(stddev, 3) for stddev in allotted(2.0, [8, 8])]
    [1.0, 1.0]
    """
    third = np.asarray(cells, dtype=float) ** (1 / 3)
    return (math.sqrt(float(np.sum(third**2)) / precision) / third).tolist()


def dealt(
    precision: float,
    cells: Float[np.ndarray, " tables"],
    known: Float[np.ndarray, " tables"],
    belief: Float[np.ndarray, "tables strengths"],
    signal: Float[np.ndarray, "tables strengths"],
) -> Float[np.ndarray, " tables"]:
    """More precision for each table, this much in all, for about the least sum of expected errors.

    The error of a count with signal v, counted with precision p so far and q more, is about (1 / v + p + q)^(-1/2). The
    last of q is worth the same everywhere, and less than that where there is none.

    >>> one = np.ones(3)
    >>> dealt(6.0, 4 * one, one, np.ones((3, 1)), np.array([[0.0], [100.0], [100.0]])).round(2).tolist()
    [0.0, 3.0, 3.0]
    """
    steps = precision * PRECISIONS
    worth = np.zeros((len(cells), len(steps)))
    for part, variance in zip(belief.T, np.maximum(signal, 1e-30).T, strict=True):
        worth += part[:, None] * (1 / variance[:, None] + known[:, None] + steps) ** -1.5
    worth *= cells[:, None]
    amounts = np.concatenate([[0.0], steps])
    low, high = math.log(max(worth.min(), 1e-300)) - 1, math.log(max(worth.max(), 1e-300)) + 1
    for _ in range(60):
        price = (low + high) / 2
        enough = amounts[(worth > math.exp(price)).sum(axis=1)].sum() > precision
        low, high = (price, high) if enough else (low, price)
    more = amounts[(worth > math.exp(high)).sum(axis=1)]
    if not more.any():
        more = np.asarray(allotted(precision, cells.astype(int).tolist())) ** -2.0
    return more * (precision / more.sum())


def merged(counts: Float[np.ndarray, " codes"], floor: float, *, ordered: bool) -> Groups:
    """Groups of codes that hold at least `floor` rows each by these noisy counts, as far as there are so many.

    Neighbours are merged where codes have an order; elsewhere those that are too rare are counted together.

    >>> merged(np.array([5.0, 2, 2, 9]), 4, ordered=False), merged(np.array([3.0, 3, 1, 9]), 4, ordered=True)
    ((0, 2, 2, 1), (0, 0, 1, 1))
    """
    if ordered:
        groups, held, group = [], 0.0, 0
        for code, count in enumerate(counts):
            if held >= floor and counts[code:].sum() >= floor:
                held, group = 0.0, group + 1
            groups.append(group)
            held += max(0.0, float(count))
        return tuple(groups)
    kept = np.flatnonzero(counts >= floor).tolist()
    rest = np.flatnonzero(counts < floor).tolist()
    if rest and kept and sum(counts[code] for code in rest) < floor:
        rest.append(kept.pop(int(np.argmin([counts[code] for code in kept]))))
    at = {code: group for group, code in enumerate(kept)} | dict.fromkeys(rest, len(kept))
    return tuple(at[code] for code in range(len(counts)))
