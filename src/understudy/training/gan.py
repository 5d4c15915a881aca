"""The one loop that trains every neural method: critic steps, a generator step, and the generator's running average.

`start` makes a state, `advance` runs it for some iterations as one compiled scan. Both are pure in their key, their
`Dials` and the rows, so `jax.vmap` trains a population: seeds, budgets, settings. Between calls the host shows
progress, keeps checkpoints and handles Ctrl-C. The critic step hands a loss of one row to `noisy_gradient` and gets a
noisy sum back; the generator learns from the critic and from fresh randomness, so every state is covered by what the
critic steps cost.
"""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from understudy.encoding.features import Blocks, is_one_hot, num_features, starts
from understudy.errors import ConfigError, Diverged, TrainingError
from understudy.models.networks import GENERATORS, Generator, activate, block_log_softmax, sample_features
from understudy.privacy.clipping import LEAST_CLIP, MOST_CLIP, Clip, clip_from_public
from understudy.privacy.dpsgd import ChargedSteps, PublicSteps, noisy_gradient, public_gradient, sample_batches
from understudy.privacy.rows import PublicUnits
from understudy.privacy.sampling import Batches
from understudy.progress import Compiling, Progress
from understudy.training.critics import Conditions, row_loss
from understudy.training.losses import LOSSES
from understudy.training.networks import Critic, spectral_scaled

if TYPE_CHECKING:
    from understudy.run.checkpoint import Slot  # reads tables; training alone must not need to

ADAPTIVE = ("none", "public", "quantile", "noisy_norm")
FAKE_TERMS = ("separate", "paired")
HEADS = ("soft", "drawn")
Also = Callable[[Any, PRNGKeyArray], Float[Array, ""]]
"""A further loss of a generator, of it and of randomness alone: a module, whose arrays are arguments of the program."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What is compiled into the program. All of it is public."""

    blocks: Blocks
    batch: int
    """The public batch size, sampling rate times the public number of units: the denominator, and a batch of fakes."""
    chunk: int | None = None
    """Units handled at once; fewer need less memory and more time. None: nearly every batch at once."""
    loss: str = "gan"
    fake_term: str = "separate"
    latent: int = 64
    generator: str = "residual"
    generator_widths: tuple[int, ...] = (256, 256)
    critic_widths: tuple[int, ...] = (64, 64)
    dropout: float = 0.0
    critic_steps: int = 1
    """Critic steps for each generator step."""
    generator_batch: int = 512
    temperature: float = 0.5
    heads: str = "soft"
    """soft: Gumbel-softmax, whose gradient the generator follows. drawn: critics see drawn levels, as real rows have
    them, and the generator learns what they would say of each other level; dearer, for rows of levels alone."""
    average: float = 0.99
    """Decay of the generator's running average."""
    optimiser: str = "adam"
    betas: tuple[float, float] = (0.5, 0.9)
    weight_clip: float = 0.0
    """Critic weights are held within this; 0: not at all."""
    spectral: bool = False
    groups: int = 1
    """Groups of parameters with clip bounds of their own."""
    allocation: str = "optimal"
    adaptive: str = "none"
    """Where clip bounds come from: "none" (fixed), "public", "quantile" or "noisy_norm"."""
    quantile: float = 0.5
    quantile_rate: float = 0.2
    regroup_every: int = 200
    anchor: float = 0.0
    """How strongly the generator is held to noisy marginals, where they were bought."""
    held_with: int | None = None
    """The block, if any, whose pairs with all others were bought too: that of the target."""
    condition_weight: float = 1.0
    """How much the generator is told to meet its condition, where it has one."""

    def __post_init__(self) -> None:
        for name, known in (
            ("loss", LOSSES),
            ("generator", GENERATORS),
            ("adaptive", ADAPTIVE),
            ("fake_term", FAKE_TERMS),
            ("heads", HEADS),
        ):
            if getattr(self, name) not in known:
                raise ConfigError(f"{name} must be one of {', '.join(known)}, found {getattr(self, name)!r}.")
        for name in ("generator_widths", "critic_widths"):
            widths = getattr(self, name)
            if not all(isinstance(width, int) and not isinstance(width, bool) and width >= 1 for width in widths):
                raise ConfigError(f"{name} must be whole numbers of at least 1 each, found {list(widths)}.")
        if self.generator == "residual" and len(set(self.generator_widths)) != 1:
            raise ConfigError(
                f"The layers of a residual generator have one width, found {list(self.generator_widths)}. Write "
                "generator_widths=[128, 128], or use arch=plain."
            )
        if self.heads == "drawn" and not (is_one_hot(self.blocks).all() and not LOSSES[self.loss].couples_fakes):
            raise ConfigError(f"heads 'drawn' needs rows of levels alone, and another loss than {self.loss}.")
        if self.fake_term == "paired" and LOSSES[self.loss].couples_fakes:
            raise ConfigError(f"fake_term 'paired' does not go with {self.loss}: its fakes depend on each other.")

    @property
    def needs_fakes(self) -> bool:
        """Whether a private row's term holds a generated row."""
        return self.fake_term == "paired" or LOSSES[self.loss].penalty == "between"


class Dials(eqx.Module):
    """What may differ from member to member of a population."""

    critic_learning_rate: Float[Array, ""]
    generator_learning_rate: Float[Array, ""]
    clip: Float[Array, ""]
    """The clip bound; infinite without privacy."""
    is_private: bool = eqx.field(static=True, default=True)
    """False: critic steps neither clip nor add noise. The same for the whole population, since it is compiled in."""

    @classmethod
    def of(cls, critic_learning_rate: float, generator_learning_rate: float, clip: float) -> "Dials":
        critic, generator, bound = (
            jnp.asarray(value, jnp.float32) for value in (critic_learning_rate, generator_learning_rate, clip)
        )
        return cls(critic, generator, bound, is_private=bool(np.isfinite(clip)))


class State(eqx.Module):
    """Everything that training changes. Covered by the guarantee, all of it."""

    generator: Any
    critic: Any
    average: Any
    generator_moments: PyTree
    critic_moments: PyTree
    clip: Clip
    iteration: Array


class Kept(eqx.Module):
    """What is kept of a state on the way: what a release or a judgement can be made of, and nothing to go on from."""

    average: Any
    critic: Any
    iteration: Array

    @classmethod
    def of(cls, state: State) -> "Kept":
        return cls(state.average, state.critic, state.iteration)


def start(
    settings: Settings, dials: Dials, key: PRNGKeyArray, *, conditioned: bool = False, marginal: Array | None = None
) -> State:
    """Fresh networks. Where marginals were bought, the generator begins at independent columns."""
    features = num_features(settings.blocks)
    generator_key, critic_key = jax.random.split(key)
    condition = features if conditioned else 0
    make = GENERATORS[settings.generator]
    generator = make(settings.latent, condition, settings.generator_widths, features, key=generator_key)
    if marginal is not None and isinstance(generator, Generator):
        level = is_one_hot(settings.blocks)  # of other features the marginals say nothing
        assert generator.exit.bias is not None
        bias = jnp.where(level, jnp.log(jnp.where(level, _single(marginal), 1.0)), generator.exit.bias)
        weight = generator.exit.weight * jnp.where(level, 0.1, 1.0)[:, None]
        generator = eqx.tree_at(lambda net: (net.exit.bias, net.exit.weight), generator, (bias, weight))
    critic = Critic(features + condition, settings.critic_widths, dropout=settings.dropout, key=critic_key)
    return begun_with(settings, dials, generator, critic)


def begun_with(settings: Settings, dials: Dials, generator: Any, critic: Any) -> State:
    """The start of a training of these networks, whatever their architecture; all else is fresh.

    The generator takes one row's latent numbers (and condition) to its logits; the critic takes one row's features, and
    `key=` for dropout, to a score. Settings about widths do not count then.
    """
    moments = _moments(settings, generator, critic)
    clip = _first_clip(settings, critic, dials)
    return State(generator, critic, generator, *moments, clip, jnp.asarray(0, jnp.int32))


def carried_over(settings: Settings, dials: Dials, state: State) -> State:
    """The networks of a training on public rows as the start of one on private rows."""
    return begun_with(settings, dials, state.average, state.critic)


def _moments(settings: Settings, generator: Any, critic: Any) -> tuple[PyTree, PyTree]:
    adam = direction_of(settings)
    return adam.init(trained_part(generator)), adam.init(trained_part(critic))


def _first_clip(settings: Settings, critic: Any, dials: Dials) -> Clip:
    leaves = jax.tree_util.tree_leaves(trained_part(critic))
    groups = None
    if settings.groups > 1:
        groups = tuple(jnp.full(leaf.shape[0], number % settings.groups) for number, leaf in enumerate(leaves))
    bounds = jnp.broadcast_to(dials.clip, (settings.groups,))
    return Clip(bounds, groups, settings.allocation, dials.is_private)


def trained_part(network: Any) -> PyTree:
    return eqx.filter(network, eqx.is_inexact_array)


def direction_of(settings: Settings) -> optax.GradientTransformation:
    """Without a learning rate, which is a dial."""
    if settings.optimiser == "adam":
        return optax.scale_by_adam(b1=settings.betas[0], b2=settings.betas[1])
    known = {"sgd": optax.identity, "rmsprop": optax.scale_by_rms, "momentum": lambda: optax.trace(decay=0.9)}
    if settings.optimiser not in known:
        raise ConfigError(f"optimiser must be adam, {', '.join(known)}, found {settings.optimiser!r}.")
    return known[settings.optimiser]()


def generated(
    settings: Settings, generator: Any, num_rows: int, key: PRNGKeyArray, conditions: Conditions | None = None
) -> tuple[Float[Array, "rows features"], Float[Array, "rows features"], Float[Array, "rows features"] | None]:
    """Logits, features, and the conditions they were made for."""
    latent_key, head_key, condition_key = jax.random.split(key, 3)
    inputs = jax.random.normal(latent_key, (num_rows, settings.latent))
    drawn = None
    if conditions is not None:
        drawn = conditions.draw(condition_key, num_rows)
        inputs = jnp.concatenate([inputs, drawn], axis=1)
    logits = jax.vmap(generator)(inputs)
    if settings.heads == "drawn":
        features = sample_features(logits, settings.blocks, key=head_key)
    else:
        features = activate(logits, settings.blocks, temperature=settings.temperature, key=head_key)
    return logits, features, drawn


def seen_by_critic(features: Array, condition: Array | None) -> Array:
    return features if condition is None else jnp.concatenate([features, condition], axis=1)


def advance(
    settings: Settings,
    state: State,
    steps: ChargedSteps | PublicSteps,
    dials: Dials,
    key: PRNGKeyArray,
    batches: Batches,
    conditions: Conditions | None = None,
    public: PublicUnits | None = None,
    marginal: Array | None = None,
    also: Also | None = None,
) -> State:
    """`critic_steps` critic steps and one generator step for each of the batches, which come from `batches_of`.

    `also` is what the generator minimises beside what the critic tells it. The key belongs to the whole run. Iteration
    t always uses the t-th key, so a run that is cut anywhere goes on to the same result.
    """
    steps_key, _ = jax.random.split(key)

    def iteration(state: State, batches: Batches) -> tuple[State, None]:
        step_key = jax.random.fold_in(steps_key, state.iteration)
        keys = jax.random.split(step_key, settings.critic_steps + 1)
        state = _new_clip(settings, state, conditions, public, keys[-1])
        for number in range(settings.critic_steps):
            state = _critic_step(settings, state, steps, dials, keys[number], batches[number], conditions)
        return generator_step(settings, state, dials, keys[-1], conditions, marginal, also), None

    return jax.lax.scan(iteration, state, batches)[0]


def batches_of(
    settings: Settings, key: PRNGKeyArray, steps: ChargedSteps | PublicSteps, first: int, count: int
) -> Batches:
    """Which units enter iterations `first` to `first + count` of the run with this key, or of each run of many keys."""

    def keys_of(run: PRNGKeyArray) -> PRNGKeyArray:
        numbers = first * settings.critic_steps + jnp.arange(count * settings.critic_steps)
        return jax.vmap(functools.partial(jax.random.fold_in, jax.random.split(run)[1]))(numbers)

    keys = jax.vmap(keys_of)(key.reshape(-1)).reshape(*key.shape, count, settings.critic_steps)
    end = (first + count) * settings.critic_steps
    return sample_batches(steps, keys, end=end, batch_size=settings.batch, chunk=settings.chunk)


def _critic_step(
    settings: Settings,
    state: State,
    steps: ChargedSteps | PublicSteps,
    dials: Dials,
    key: PRNGKeyArray,
    batch: Batches,
    conditions: Conditions | None,
) -> State:
    loss = LOSSES[settings.loss]
    private_key, fake_key, drop_key = jax.random.split(key, 3)

    def fakes_for(pair_key: PRNGKeyArray, num_rows: int) -> Array:
        _, features, condition = generated(settings, state.generator, num_rows, pair_key, conditions)
        return seen_by_critic(features, condition)

    of_row = row_loss(loss, settings.blocks, conditions, paired=settings.fake_term == "paired")
    fakes_fn, within = fakes_for if settings.needs_fakes else None, None
    if isinstance(steps, ChargedSteps):
        noisy, within = noisy_gradient(
            steps, of_row, state.critic, state.clip, batch=batch, fakes_fn=fakes_fn, key=private_key
        )
    else:
        noisy = public_gradient(steps, of_row, state.critic, batch=batch, fakes_fn=fakes_fn, key=private_key)
    direction = jax.tree_util.tree_map(lambda leaf: leaf / settings.batch, noisy)
    if settings.fake_term == "separate":
        fakes = fakes_for(fake_key, settings.batch)
        trained, rest = eqx.partition(state.critic, eqx.is_inexact_array)

        def fake_loss(inside: PyTree) -> Array:
            critic, drops = eqx.combine(inside, rest), jax.random.split(drop_key, settings.batch)
            return loss.fake(jax.vmap(lambda row, drop: critic(row, key=drop))(fakes, drops))

        direction = jax.tree_util.tree_map(jnp.add, direction, jax.grad(fake_loss)(trained))
    critic, moments = stepped(settings, state.critic, direction, state.critic_moments, dials.critic_learning_rate)
    if settings.weight_clip:
        held = settings.weight_clip
        critic = jax.tree_util.tree_map(
            lambda leaf: jnp.clip(leaf, -held, held) if eqx.is_inexact_array(leaf) else leaf, critic
        )
    critic = spectral_scaled(critic) if settings.spectral else critic
    clip = _adapted(settings, state.clip, noisy, within, dials, steps)
    return dataclasses.replace(state, critic=critic, critic_moments=moments, clip=clip)


def stepped(settings: Settings, network: Any, gradient: PyTree, moments: PyTree, rate: Array) -> tuple[Any, PyTree]:
    updates, moments = direction_of(settings).update(gradient, moments, trained_part(network))
    return eqx.apply_updates(network, jax.tree_util.tree_map(lambda leaf: -rate * leaf, updates)), moments


def generator_step(
    settings: Settings,
    state: State,
    dials: Dials,
    key: PRNGKeyArray,
    conditions: Conditions | None,
    marginal: Array | None,
    also: Also | None = None,
) -> State:
    def scores_of(rows: Array) -> Array:
        return jax.vmap(state.critic)(rows)

    gradient = generator_gradient(settings, state.generator, scores_of, key, conditions, marginal, also)
    generator, moments = stepped(
        settings, state.generator, gradient, state.generator_moments, dials.generator_learning_rate
    )
    # Early iterates weigh less: the average begins as a plain mean.
    decay = jnp.minimum(settings.average, (1.0 + state.iteration) / (10.0 + state.iteration))
    average = jax.tree_util.tree_map(
        lambda old, new: decay * old + (1 - decay) * new if eqx.is_inexact_array(new) else new, state.average, generator
    )
    return dataclasses.replace(
        state, generator=generator, generator_moments=moments, average=average, iteration=state.iteration + 1
    )


def generator_gradient(
    settings: Settings,
    generator: Any,
    scores_of: Callable[[Array], Array],
    key: PRNGKeyArray,
    conditions: Conditions | None,
    marginal: Array | None,
    also: Also | None = None,
) -> PyTree:
    """The gradient of what a generator minimises, given the scores of rows by one critic or by several."""
    trained, rest = eqx.partition(generator, eqx.is_inexact_array)

    def loss_of(inside: PyTree) -> Array:
        logits, features, condition = generated(
            settings, eqx.combine(inside, rest), settings.generator_batch, key, conditions
        )
        if settings.heads == "soft":
            value = LOSSES[settings.loss].generator(scores_of(seen_by_critic(features, condition)))
        else:
            value = _expected_loss(settings, logits, features, condition, scores_of)
        if condition is not None:
            # The condition is a function of bought marginals, so nothing private is compared with it.
            logs = block_log_softmax(logits, settings.blocks)
            value = value - settings.condition_weight * jnp.mean(jnp.sum(condition * logs, axis=1))
        if marginal is not None and settings.anchor:
            # Features that are no levels have no share, and add nothing.
            logs = jnp.where(is_one_hot(settings.blocks), block_log_softmax(logits, settings.blocks), 0.0)
            levels = jnp.exp(logs)
            shares = _mean(levels, condition, conditions)
            value = value - settings.anchor * jnp.sum(_single(marginal) * jnp.log(shares + 1e-8))
            if settings.held_with is not None:
                begin, size = starts(settings.blocks)[settings.held_with], settings.blocks[settings.held_with].size
                pairs = levels[:, begin : begin + size, None] * levels[:, None]
                shares = _mean(pairs.reshape(len(pairs), -1), condition, conditions)
                value = value - settings.anchor * jnp.sum(marginal[1:].reshape(-1) * jnp.log(shares + 1e-8))
        # Eight: what is generated splits the same key into three, and clip bounds are renewed with the seventh.
        return value if also is None else value + also(eqx.combine(inside, rest), jax.random.fold_in(key, 8))

    return jax.grad(loss_of)(trained)


def _expected_loss(
    settings: Settings,
    logits: Float[Array, "rows features"],
    drawn: Float[Array, "rows features"],
    condition: Array | None,
    scores_of: Callable[[Array], Array],
) -> Float[Array, ""]:
    """A value with the gradient of the expected loss of drawn rows, without bias.

    Within a row columns are drawn independently, so the derivative by the probability of a level is the expected loss
    of rows with that level: what is drawn, with each level of each column in its place in turn (local expectation
    gradients, Titsias and Lazaro-Gredilla 2015). A softened row would be told from real ones by its softness.
    """
    column = np.repeat(np.arange(len(settings.blocks)), [block.size for block in settings.blocks])
    loss = LOSSES[settings.loss]

    def with_level(number: Array) -> Float[Array, " rows"]:
        level = jnp.arange(len(column)) == number
        rows = jnp.where(jnp.asarray(column) == jnp.asarray(column)[number], level.astype(drawn.dtype), drawn)
        return jax.vmap(lambda score: loss.generator(score[None]))(scores_of(seen_by_critic(rows, condition)))

    losses = jax.lax.stop_gradient(jax.lax.map(with_level, jnp.arange(len(column))))
    probabilities = jnp.exp(block_log_softmax(logits, settings.blocks))
    return jnp.mean(jnp.sum(probabilities * losses.T, axis=1))


def _single(marginal: Array) -> Array:
    """Shares of single columns: all there is, or the line above shares together with each of a block's levels."""
    return marginal if marginal.ndim == 1 else marginal[0]


def _mean(rows: Array, condition: Array | None, conditions: Conditions | None) -> Array:
    """The mean over a batch; of conditional rows, as it will be when conditions follow the noisy marginals."""
    if condition is None or conditions is None:
        return rows.mean(axis=0)
    odds = conditions.marginal / conditions.num_blocks / jnp.maximum(conditions.target, 1e-12)
    weights = jnp.sum(condition * odds, axis=1)
    return weights @ rows / jnp.maximum(weights.sum(), 1e-6)


def _new_clip(
    settings: Settings, state: State, conditions: Conditions | None, public: PublicUnits | None, key: PRNGKeyArray
) -> State:
    """Bounds and groups from public or generated rows, on a public schedule."""
    if settings.adaptive != "public" and settings.groups == 1:
        return state

    def renewed(clip: Clip) -> Clip:
        row_key, fake_key, clip_key = jax.random.split(jax.random.fold_in(key, 7), 3)
        num_rows = 256
        if public is not None:
            at = jax.random.randint(row_key, (num_rows,), 0, len(public.rows))
            rows = public.rows[at, 0]
        else:
            rows = generated(settings, state.generator, num_rows, row_key, conditions)[1]
        units = PublicUnits(rows[:, None], jnp.ones((num_rows, 1), dtype=bool))
        fakes = None
        if settings.needs_fakes:
            _, features, condition = generated(settings, state.generator, num_rows, fake_key, conditions)
            fakes = seen_by_critic(features, condition)
        of_row = row_loss(LOSSES[settings.loss], settings.blocks, conditions, paired=settings.fake_term == "paired")
        regroup = settings.groups > 1
        return clip_from_public(of_row, state.critic, units, fakes, clip, regroup=regroup, key=clip_key)

    due = state.iteration % max(1, settings.regroup_every // settings.critic_steps) == 0
    return dataclasses.replace(state, clip=jax.lax.cond(due, renewed, lambda clip: clip, state.clip))


def _adapted(
    settings: Settings,
    clip: Clip,
    noisy: PyTree,
    within: Array | None,
    dials: Dials,
    steps: ChargedSteps | PublicSteps,
) -> Clip:
    """Bounds from what is already noisy. Post-processing: the multiplier, and so the cost, stays."""
    if settings.adaptive == "quantile":
        assert within is not None
        share = within / settings.batch + 0.5
        bounds = clip.bounds * jnp.exp(-settings.quantile_rate * (jnp.clip(share, 0.0, 1.0) - settings.quantile))
    elif settings.adaptive == "noisy_norm" and settings.groups == 1:
        leaves = jax.tree_util.tree_leaves(noisy)
        squared = sum(jnp.sum(leaf**2) for leaf in leaves)
        expected = sum(leaf.size for leaf in leaves) * (steps.noise_multiplier * clip.bounds[0]) ** 2
        norm = jnp.sqrt(jnp.maximum(squared - expected, 0.0)) / settings.batch
        bounds = 0.99 * clip.bounds + 0.01 * jnp.maximum(norm, 0.1 * dials.clip)
    else:
        return clip
    return dataclasses.replace(clip, bounds=jnp.clip(bounds, LEAST_CLIP, MOST_CLIP))


# ------------------------------------------------------------------------------------------------------------ the host


def train(
    settings: Settings,
    steps: ChargedSteps | PublicSteps,
    dials: Dials,
    key: PRNGKeyArray,
    *,
    network_key: PRNGKeyArray,
    iterations: int,
    conditions: Conditions | None = None,
    public: PublicUnits | None = None,
    marginal: Array | None = None,
    also: Also | None = None,
    state: State | None = None,
    keep_every: int = 0,
    keep_last: int | None = None,
    chunk: int = 100,
    progress: Progress | None = None,
    slot: "Slot | None" = None,
) -> tuple[State, list[Kept]]:
    """Runs to the last iteration; returns the final state and the trajectory: what is kept every `keep_every`
    iterations, of the last `keep_last` such moments if that is given.

    With a `slot` it goes on from what was saved there, to the same result. Stops with an error when a network is no
    longer finite: the noisy state is post-processing, so looking is free.

    `key` makes batches and noise; fresh networks come from another one, of which `key` must not be a function or a
    part: a released generator remembers its first weights, and a guessed key could be checked by them.
    """
    if state is None:
        state = start(settings, dials, network_key, conditioned=conditions is not None, marginal=marginal)
    run = _compiled(settings)

    def more(state: State, first: int, count: int) -> State:
        batches = batches_of(settings, key, steps, first, count)
        return run(state, steps, dials, key, batches, conditions, public, marginal, also)

    return driven(
        more,
        state,
        iterations=iterations,
        steps_each=settings.critic_steps,
        keep_every=keep_every,
        keep_last=keep_last,
        chunk=chunk,
        progress=progress,
        slot=slot,
    )


Whole = TypeVar("Whole", bound=eqx.Module)


def driven(
    more: Callable[[Whole, int, int], Whole],
    state: Whole,
    *,
    iterations: int,
    steps_each: int = 1,
    learned: Callable[[Whole], State] = lambda state: state,  # type: ignore[assignment, return-value]
    advice: str = "Lower critic_learning_rate or generator_learning_rate, or use fewer critic_steps.",
    keep_every: int = 0,
    keep_last: int | None = None,
    chunk: int = 100,
    progress: Progress | None = None,
    slot: "Slot | None" = None,
) -> tuple[Whole, list[Kept]]:
    """The host's side of a training, as `train` has it: `more(state, first, count)` runs so many iterations on.

    `learned` is the part of a state that is covered by what was paid: only that is looked at, and kept on the way.
    """
    # What comes from a file has firm types; so has what is fresh, lest one program become two.
    state = jax.tree_util.tree_map(lambda leaf: jnp.asarray(leaf, leaf.dtype) if eqx.is_array(leaf) else leaf, state)
    trajectory: list[Kept] = []
    if slot is not None and (saved := slot.load(state, Kept.of(learned(state)))) is not None:
        state, trajectory = saved
    done = int(learned(state).iteration)
    clock = _Clock(iterations * steps_each, done * steps_each)
    if progress is not None:
        progress(done / iterations, Compiling(f"{clock.words(done * steps_each)}, compiling"))
    first = 0 if keep_last is None or not keep_every else iterations // keep_every - keep_last
    chunk = min(chunk, iterations) if not keep_every else min(chunk, keep_every)
    while done < iterations:
        length = min(chunk, iterations - done, *([keep_every - done % keep_every] if keep_every else []))
        try:
            with _explained_memory():
                after = more(state, done, length)
                leaves = jax.tree_util.tree_leaves(trained_part(learned(after).average))
                finite = all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in leaves)
        except KeyboardInterrupt:
            if slot is not None:
                slot.offer(state, trajectory, now=True)
            raise
        state = after
        done += length
        if not finite:
            raise Diverged(
                f"Training diverged before step {done * steps_each}: a network is no longer finite. {advice}"
            )
        if keep_every and done % keep_every == 0 and done // keep_every > first:
            trajectory.append(jax.device_get(Kept.of(learned(state))))
        if progress is not None:
            progress(done / iterations, clock.words(done * steps_each))
        if slot is not None:
            slot.offer(state, trajectory)
    if slot is not None:  # what follows must find this very training, however quick it was
        slot.offer(state, trajectory, now=True)
    return state, trajectory


class _Clock:
    """Steps and their rate, in words. The time to the first of them is mostly that of compiling, so it tells none."""

    def __init__(self, steps: int, done: int):
        self._steps, self._began = steps, done
        self._first: tuple[int, float] | None = None

    def words(self, done: int) -> str:
        now, rate = time.monotonic(), ""
        if self._first is not None and now > self._first[1]:
            rate = f", {(done - self._first[0]) / (now - self._first[1]):.3g} a second"
        elif done > self._began:
            self._first = (done, now)
        return f"step {done:,} of {self._steps:,}{rate}"


@contextlib.contextmanager
def _explained_memory() -> Iterator[None]:
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise TrainingError(
            "The training does not fit into memory. Set a smaller chunk (rows handled at once: less memory, the same "
            "guarantee), such as chunk=256, or a smaller rate, which also changes the plan."
        ) from None


@functools.lru_cache(maxsize=32)
def _compiled(settings: Settings) -> Callable[..., State]:
    @eqx.filter_jit
    def run(state, steps, dials, key, batches, conditions, public, marginal, also):  # type: ignore[no-untyped-def]
        return advance(settings, state, steps, dials, key, batches, conditions, public, marginal, also)

    return run
