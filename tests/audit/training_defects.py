"""Planted defects in training: batches, clipping, noise, steps, partitions and teachers. See `defects.py`."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from tests.audit.defects import NOWHERE, Defect, Patch
from tests.privacy.gradients import test_pate
from understudy.privacy.gradients import charges, clipping, dpsgd, langevin, sums
from understudy.privacy.gradients import poisson as sampling
from understudy.privacy.gradients.clipping import Clip
from understudy.privacy.gradients.poisson import Batches
from understudy.privacy.rows import rows
from understudy.privacy.rows import stored as held
from understudy.privacy.rows.rows import PrivateRows, PrivateUnits
from understudy.training import dpsgd as training
from understudy.training import pate as votes
from understudy.training.loop import RunOptions

# --------------------------------------------------------------------------------------------------------------- noise


def _halved_noise(patch: Patch) -> None:
    sound = dpsgd.add_noise

    def halved(*args: Any, noise_multiplier: Any, **more: Any) -> Any:
        return sound(*args, noise_multiplier=noise_multiplier / 2, **more)

    patch.setattr(dpsgd, "add_noise", halved)


def _noise_free_encoder(patch: Patch) -> None:
    sound = training.noisy_gradient

    def without_noise(charged: Any, loss: Any, network: Any, clip: Clip, **more: Any) -> Any:
        noisy = sound(charged, loss, network, clip, **more)
        if not hasattr(network, "encoder"):
            return noisy
        noiseless = eqx.tree_at(lambda it: it._noise_multiplier, charged, jnp.zeros(()))
        exact = sound(noiseless, loss, network, clip, **more)
        return eqx.tree_at(lambda it: it.gradient.encoder, noisy, exact.gradient.encoder)

    patch.setattr(training, "noisy_gradient", without_noise)


def _groups_for_free(patch: Patch) -> None:
    patch.setattr(clipping, "group_stddevs", lambda leaves, clip, noise_multiplier: noise_multiplier * clip.bounds)


def _noise_of_the_chain(patch: Patch) -> None:
    def alone(self: langevin.Law, schedule: Any, charged: Any) -> list[float]:
        return [stage.langevin_multiplier(self.drift_sensitivity, self.temperature) for stage in schedule]

    patch.setattr(langevin.Law, "noise_multipliers", alone)


def _variance_for_deviation(patch: Patch) -> None:
    def inverted(ledger: Any, event: Any, *, num_queries: int, num_teachers: int) -> tuple[np.ndarray, int]:
        return ledger.noise.discrete_gaussian(1 / event.noise_multiplier, (num_queries,)), 1

    patch.setattr(charges, "_vote_noise", inverted)


# ------------------------------------------------------------------------------------------------------------ clipping


def _no_clipping(patch: Patch) -> None:
    sound = clipping._coefficients

    def unclipped(squares: Array, *rest: Any) -> Any:
        return sound(jnp.where(jnp.isfinite(squares), 0.0, squares), *rest)

    patch.setattr(clipping, "_coefficients", unclipped)


def _nothing_is_infinite(patch: Patch) -> None:
    sound = clipping._coefficients

    def trusting(squares: Array, taken: Array, clip: Clip, margin: float) -> Any:
        _, finite, within = sound(squares, taken, clip, margin)
        scale = jnp.minimum(1.0, clip.bounds * (1 - margin) / jnp.maximum(jnp.sqrt(squares), clipping.TINY))
        return jnp.where(taken[:, None], scale, 0.0), jnp.ones_like(finite), within

    patch.setattr(clipping, "_coefficients", trusting)


def _clip_together(patch: Patch, units_at_once: int | None) -> None:
    """The gradients of this many consecutive units, or of all units, are summed before clipping."""
    sound = dpsgd._exact_sum

    def together(
        loss: Any, network: Any, units: Any, clip: Clip, batch: Batches, fakes_fn: Any, key: PRNGKeyArray
    ) -> Any:
        size = units_at_once or len(units[0])
        padding = (0, -len(units[0]) % size)
        stacked = [
            jnp.pad(array, [padding, *[(0, 0)] * (array.ndim - 1)]).reshape(-1, size * array.shape[1], *array.shape[2:])
            for array in units
        ]
        everybody = Batches(jnp.arange(len(stacked[0]))[None], jnp.ones((1, len(stacked[0])), dtype=bool))
        return sound(loss, network, (stacked[0], stacked[1]), clip, everybody, fakes_fn, key)

    patch.setattr(dpsgd, "_exact_sum", together)


def _clip_per_batch(patch: Patch) -> None:
    _clip_together(patch, None)


def _clip_per_pair(patch: Patch) -> None:
    _clip_together(patch, 2)


def _bound_of_this_batch(patch: Patch) -> None:
    sound = training.noisy_gradient

    def adaptive(charged: Any, loss: Any, network: Any, clip: Clip, **more: Any) -> Any:
        norms = jnp.linalg.norm(charged._units._rows.reshape(len(charged._units._rows), -1), axis=1)
        mean = jnp.mean(jnp.where(jnp.isfinite(norms), norms, 0.0))
        return sound(charged, loss, network, dataclasses.replace(clip, bounds=mean[None]), **more)

    patch.setattr(training, "noisy_gradient", adaptive)


def _sums_of_all_chains(patch: Patch) -> None:
    sound = dpsgd.sum_over_batch

    def twice(*args: Any) -> Any:
        total = sound(*args)
        return sums.add_totals(total, total)

    patch.setattr(dpsgd, "sum_over_batch", twice)


def _plain_float_sums(patch: Patch) -> None:
    def added_as_floats(values: Array, step: Array | None) -> Any:
        total = values.sum(axis=0)
        return total if step is None else sums.to_grid(total, step)

    def as_floats(first: Any, second: Any) -> Any:
        def add(one: Any, other: Any) -> Any:
            if not sums.is_fixed(one):
                return one + other
            step = jnp.float32(2.0**-sums.FINENESS)
            return sums.to_grid(sums.to_float(one, step) + sums.to_float(other, step), step)

        return jax.tree_util.tree_map(add, first, second, is_leaf=sums.is_fixed)

    patch.setattr(clipping, "total_of_blocks", added_as_floats)
    patch.setattr(clipping, "num_blocks", lambda num_units, block: 1)
    patch.setattr(clipping, "rounding_margin", lambda *args, **named: 2.0**-9)
    patch.setattr(sampling, "add_totals", as_floats)


# ------------------------------------------------------------------------------------------------------------- batches


def _fixed_size_batches(patch: Patch) -> None:
    def shuffled(keys: PRNGKeyArray, num_units: int, *, sampling_rate: float, chunk: int, slots: int) -> Batches:
        size = round(sampling_rate * num_units)
        at = jax.vmap(lambda key: jax.random.permutation(key, num_units)[:size])(keys)
        return Batches(at[:, None], jnp.ones((len(keys), 1, size), dtype=bool))

    patch.setattr(dpsgd, "poisson_batches", shuffled)


def _batches_with_replacement(patch: Patch) -> None:
    def drawn(keys: PRNGKeyArray, num_units: int, *, sampling_rate: float, chunk: int, slots: int) -> Batches:
        size = np.random.default_rng(0).binomial(num_units, sampling_rate, len(keys))
        at = jax.vmap(lambda key: jax.random.randint(key, (num_units,), 0, num_units))(keys)
        return Batches(at[:, None], (jnp.arange(num_units) < size[:, None])[:, None])

    patch.setattr(dpsgd, "poisson_batches", drawn)


def _coin_per_row(patch: Patch) -> None:
    def one_by_one(private: PrivateRows, encoded: np.ndarray) -> PrivateUnits:
        return PrivateUnits(jnp.asarray(encoded[:, None]), jnp.ones((len(encoded), 1), dtype=bool))

    patch.setattr(held, "arrange_units", one_by_one)


def _divided_by_the_batch(patch: Patch) -> None:
    sound = training.row_gradient

    def mean(loss: Any, network: Any, steps: Any, batch: Batches, *rest: Any) -> Any:
        total, within = sound(loss, network, steps, batch, *rest)
        expected = steps.sampling_rate * len(COMMON_UNITS)
        size = jnp.maximum(batch._taken.sum(), 1)
        return jax.tree_util.tree_map(lambda leaf: leaf * expected / size, total), within

    patch.setattr(training, "row_gradient", mean)


COMMON_UNITS = range(3)


# --------------------------------------------------------------------------------------------------------------- steps


def _exact_loss(loss: Any, network: Any, steps: Any) -> float:
    rows_of_units = steps._units._rows[:, 0]
    return float(jnp.mean(jax.vmap(lambda row: loss.of_row(network, row, None, jax.random.key(0)))(rows_of_units)))


def _early_stopping(patch: Patch) -> None:
    sound = training.train_network

    def stopped(network: Any, loss: Any, steps: Any, descent: Any, *, options: RunOptions | None, **more: Any) -> Any:
        few = abs(_exact_loss(loss, network, steps)) < 1
        changed = dataclasses.replace(options or RunOptions(), iterations=1 if few else None)
        return sound(network, loss, steps, descent, options=changed, **more)

    patch.setattr(training, "train_network", stopped)


def _loss_reported(patch: Patch) -> None:
    sound = training.train_network

    def telling(network: Any, loss: Any, steps: Any, descent: Any, *, options: RunOptions | None, **more: Any) -> Any:
        if options is not None and options.progress is not None:
            options.progress(0.0, f"loss {_exact_loss(loss, network, steps):.3f}")
        return sound(network, loss, steps, descent, options=options, **more)

    patch.setattr(training, "train_network", telling)


def _once_for_all_steps(patch: Patch) -> None:
    sound = charges.charge_dpsgd

    def once(private: Any, query: Any, book: Any, *args: Any, **more: Any) -> Any:
        with patch.context() as inner:
            charge = book.charge
            single = dataclasses.replace(query, event=dataclasses.replace(query.event, steps=1))
            inner.setattr(book, "charge", lambda query: charge(single))
            return sound(private, query, book, *args, **more)

    patch.setattr(charges, "charge_dpsgd", once)


# ---------------------------------------------------------------------------------------------- partitions and teachers


def _equal_parts(patch: Patch) -> None:
    def cut(unit_of_row: np.ndarray, num_teachers: int, *, key: PRNGKeyArray) -> np.ndarray:
        numbers, unit_of_row = np.unique(unit_of_row, return_inverse=True)
        order = np.asarray(jax.random.permutation(key, len(numbers)))
        return (order * num_teachers // len(numbers))[unit_of_row]

    patch.setattr(charges, "assign_teachers", cut)


def _teacher_per_row(patch: Patch) -> None:
    sound = charges.assign_teachers
    patch.setattr(charges, "assign_teachers", lambda units, *rest, **more: sound(np.arange(len(units)), *rest, **more))


def _equal_holdout(patch: Patch) -> None:
    def shuffled(key: PRNGKeyArray, shape: tuple[int, ...], dtype: Any) -> Array:
        ranks = jax.random.permutation(key, shape[0])
        return np.asarray((np.asarray(ranks) + 0.5) / shape[0] * 2.0**32, dtype=np.float64)  # type: ignore[return-value]  # a NumPy array does as well

    class Shuffling:
        bits = staticmethod(shuffled)

    class Jax:
        random = Shuffling

    patch.setattr(rows, "jax", Jax)


def _shared_teachers(patch: Patch) -> None:
    patch.setattr(votes, "teacher_step", test_pate._averaged_step)


def _one_part_for_all(patch: Patch) -> None:
    patch.setattr(votes, "teacher_step", test_pate._first_part_for_all)


def _shared_statistics(patch: Patch) -> None:
    patch.setattr(votes, "teacher_step", test_pate._shared_statistics)


def _shared_student(patch: Patch) -> None:
    sound = votes.advance

    def advance(settings: Any, voting: Any, state: Any, *rest: Any) -> Any:
        state = sound(settings, voting, state, *rest)
        teacher_bias = state.teachers._networks.layers[-1].bias.mean()
        return eqx.tree_at(
            lambda it: it.learned.critic.layers[-1].bias,
            state,
            jnp.full_like(state.learned.critic.layers[-1].bias, teacher_bias),
        )

    patch.setattr(votes, "advance", advance)


DEFECTS: tuple[Defect, ...] = (
    Defect(
        "half the noise on steps",
        "gradients get half the charged noise",
        "DP-GAN (Boob et al.): a variance where the analysis needs a standard deviation",
        "audit of training steps",
        _halved_noise,
    ),
    Defect(
        "no clipping",
        "gradients are summed as they are",
        "DP-BayesGAN: a Lipschitz constant is assumed",
        "audit of training steps",
        _no_clipping,
    ),
    Defect(
        "no clipping (exact sums)",
        "gradients are summed as they are",
        "DP-BayesGAN: a Lipschitz constant is assumed",
        "sensitivity of training steps",
        _no_clipping,
    ),
    Defect(
        "noise-free encoder",
        "the encoder of an autoencoder is trained on exact gradients",
        "DP-auto-GAN, Proposition 3",
        "noise on training steps",
        _noise_free_encoder,
    ),
    Defect(
        "noise on parameter groups",
        "each of several parameter groups gets the noise for one clip bound over all of them",
        "DP-GAN (Boob et al.): the noise of grouped clipping",
        "noise on training steps",
        _groups_for_free,
    ),
    Defect(
        "private for free",
        "Langevin updates have only the noise of the sampler",
        "DP-BayesGAN: privacy from the noise of posterior sampling, whatever the step size",
        "updates and charges",
        _noise_of_the_chain,
    ),
    Defect(
        "clipping per batch",
        "the gradients of a batch are summed and then clipped",
        "DP-GAN (Boob et al.), Algorithm 2",
        "sensitivity of training steps",
        _clip_per_batch,
    ),
    Defect(
        "microbatches",
        "the gradients of two units are clipped as one",
        "PGB, script for the 2010 census; DP-auto-GAN",
        "sensitivity of training steps",
        _clip_per_pair,
    ),
    Defect(
        "clip bound from the batch",
        "the clip bound is the mean norm of the private gradients",
        "DP-GAN (Boob et al.): bounds from the last step; DP-auto-GAN: the median of a run without privacy",
        "sensitivity of training steps",
        _bound_of_this_batch,
    ),
    Defect(
        "gradients of all chains",
        "the gradient of a unit is added once for each of two chains",
        "DP-BayesGAN: a sum over J_d times J_g chains",
        "sensitivity of training steps",
        _sums_of_all_chains,
    ),
    Defect(
        "NaN gradients",
        "gradients are not checked to be finite, and NaN passes clipping",
        NOWHERE,
        "sensitivity of training steps",
        _nothing_is_infinite,
    ),
    Defect(
        "float32 sums",
        "the clipped gradients of a batch are summed in float32",
        "Casacuberta et al. 2022; an earlier version of this package",
        "sensitivity of long sums",
        _plain_float_sums,
    ),
    Defect(
        "batches of fixed size",
        "batches are cut from a shuffled table and accounted as Poisson samples",
        "published code of DP-GAN, PGB and DP-CTGAN",
        "batch sampling",
        _fixed_size_batches,
    ),
    Defect(
        "batches with replacement",
        "a batch is drawn with replacement",
        "DP-auto-GAN, Adult",
        "batch sampling",
        _batches_with_replacement,
    ),
    Defect(
        "sampling per row",
        "each row of a unit is sampled and clipped separately",
        NOWHERE,
        "sensitivity of training steps",
        _coin_per_row,
    ),
    Defect(
        "division by the batch size",
        "a sum is divided by the number of units in the batch",
        "DP-auto-GAN, published code: the generator's batch has the size of the private one",
        "steps depend only on noisy sums",
        _divided_by_the_batch,
    ),
    Defect(
        "early stopping",
        "training stops when the loss on the private rows is small",
        "DP-auto-GAN, MIMIC: checkpoints compared on real rows",
        "number of steps and progress",
        _early_stopping,
    ),
    Defect(
        "reported loss",
        "progress shows the loss on the private rows",
        "DP-CTGAN: losses printed at each epoch",
        "number of steps and progress",
        _loss_reported,
    ),
    Defect(
        "one charge for all steps",
        "many training steps are charged as one",
        "DP-BayesGAN: chains and inner updates are not counted",
        "steps and charges",
        _once_for_all_steps,
    ),
    Defect(
        "equal partitions for teachers",
        "teachers get equal partitions of a shuffled table",
        "PATE-GAN: partitions of equal size",
        "partition sampling",
        _equal_parts,
    ),
    Defect(
        "a teacher for each row",
        "rows of one unit go to several teachers",
        NOWHERE,
        "partition sampling",
        _teacher_per_row,
    ),
    Defect(
        "fixed-size holdout",
        "a fixed number of shuffled units is held out",
        NOWHERE,
        "partition sampling",
        _equal_holdout,
    ),
    Defect(
        "teachers that share a network",
        "all teachers end a step with the same weights",
        "SmartNoise, PATE-CTGAN: a list of one object",
        "independence of teachers",
        _shared_teachers,
    ),
    Defect(
        "one partition for all teachers",
        "every teacher learns from the same partition",
        "PATE-GAN, code of 2020: an index error",
        "independence of teachers",
        _one_part_for_all,
    ),
    Defect(
        "statistics shared by teachers",
        "teachers see rows minus the mean of all rows",
        "SmartNoise, PATE-CTGAN: frequencies of the whole table",
        "independence of teachers",
        _shared_statistics,
    ),
    Defect(
        "a student that shares weights",
        "the student takes a weight of the teachers",
        "SmartNoise, PATE-CTGAN: teachers and student are one network",
        "learners see only votes",
        _shared_student,
    ),
    Defect(
        "inverted noise on votes",
        "votes get noise whose scale is the reciprocal of the right one",
        "PATE-GAN, code of 2020: noise with a scale, accounted with its reciprocal",
        "noise on votes",
        _variance_for_deviation,
    ),
)
