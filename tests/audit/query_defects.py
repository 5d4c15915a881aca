"""Planted defects in queries: noise, selections, charges and accounting. See `defects.py`."""

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import jax
import numpy as np
from dp_accounting import rdp

from tests.audit.defects import NOWHERE, Defect, Patch
from understudy import release
from understudy.encoding import fit
from understudy.privacy.accounting import accountants as accounting
from understudy.privacy.accounting import events, ledger
from understudy.privacy.mechanisms import counts, discovery, filters, moments, selection
from understudy.privacy.noise import source as noise
from understudy.run import run as owner
from understudy.synthesizers import mst

# ---------------------------------------------------------------------------------------------------- noise and draws


def _halved_count_noise(patch: Patch) -> None:
    sound = counts.count_with_noise
    patch.setattr(counts, "count_with_noise", lambda rows, query, stddev, *rest: sound(rows, query, stddev / 2, *rest))


def _laplace_for_gaussian(patch: Patch) -> None:
    def laplace(self: noise.NoiseSource, stddev: float, shape: tuple[int, ...]) -> np.ndarray:
        return self.discrete_laplace(Fraction(stddev / math.sqrt(2)), shape)

    patch.setattr(noise.NoiseSource, "discrete_gaussian", laplace)


def _exact_moments(patch: Patch) -> None:
    patch.setattr(moments, "with_noise", lambda exact, stddev, source: np.asarray(exact, dtype=np.int64))


def _float_mean_of_noise(patch: Patch) -> None:
    def averaged(exact: np.ndarray, repeats: int, stddev: float, book: Any) -> np.ndarray:
        return exact + book.noise.discrete_gaussian(stddev, (repeats, *exact.shape)).mean(axis=0)

    patch.setattr(discovery, "_averaged_counts", averaged)


def _noise_reused(patch: Patch) -> None:
    sound = noise.NoiseSource._next

    def without_number(self: noise.NoiseSource, kind: str, *parameters: int | float) -> object:
        self.num_draws = 0
        return sound(self, kind, *parameters)

    patch.setattr(noise.NoiseSource, "_next", without_number)


def _key_from_an_integer(patch: Patch) -> None:
    def key(self: noise.NoiseSource) -> object:
        return jax.random.key(int(self._next("key").words(1)[0]) % 2**32)

    patch.setattr(noise.NoiseSource, "key", key)


def _seed_in_release(patch: Patch) -> None:
    sound = release.Release.to_files
    seeds: list[int | None] = []
    source = owner.noise_source

    def remembered(seed: int | None, secret: bytes | None = None) -> noise.NoiseSource:
        seeds.append(seed)
        return source(seed, secret)

    def with_seed(self: release.Release) -> dict[str, bytes]:
        return {**sound(self), "settings.json": f'{{"seed": {seeds[-1]}}}'.encode()}

    patch.setattr(owner, "noise_source", remembered)
    patch.setattr(release.Release, "to_files", with_seed)
    patch.setattr(release, "RELEASE_FILES", (*release.RELEASE_FILES, "settings.json"))


# ---------------------------------------------------------------------------------------------------------- selections


def _half_the_sensitivity(patch: Patch) -> None:
    sound = selection.select_candidates
    patch.setattr(
        selection, "select_candidates", lambda rows, each, epsilon, *rest: sound(rows, each, 2 * epsilon, *rest)
    )


SAMPLE = 10


def _means_of_a_sample(patch: Patch) -> None:
    sound = selection._exact_sums

    def scaled(rows: Any, functions: Any, key: Any) -> np.ndarray:
        few = rows._part(np.arange(len(rows._codes)) < SAMPLE, rows._partition, rows.domain.num_rows, 1.0)
        return sound(few, functions, key) * len(rows._codes) // SAMPLE

    patch.setattr(selection, "_exact_sums", scaled)


# ---------------------------------------------------------------------------------------------------------- accounting


def _forgotten_charge(patch: Patch) -> None:
    def uncharged(table: Any, query: Any, book: Any) -> int:
        return max(1, table._table.num_rows + int(book.noise.discrete_gaussian(query.event.stddev, (1,))[0]))

    patch.setattr(fit, "noisy_size", uncharged)


def _once_for_a_loop(patch: Patch) -> None:
    def once(rows: Any, query: Any, book: Any) -> selection.MarginalSelector:
        book.charge(dataclasses.replace(query, event=dataclasses.replace(query.event, rounds=1)))
        return selection.MarginalSelector(rows, query.event.epsilon, query.event.rounds, book)

    patch.setattr(mst, "noisy_selections", once)


def _filter_counts_half(patch: Patch) -> None:
    sound = filters.ZCDPFilter._spend
    patch.setattr(filters.ZCDPFilter, "_spend", lambda self, rho: sound(self, rho / 2))


def _checked_afterwards(patch: Patch) -> None:
    patch.setattr(ledger, "_check_fits", lambda budget, query: None)


def _phase_left_out(patch: Patch) -> None:
    sound = accounting._rdp_epsilon.__wrapped__
    patch.setattr(accounting, "_rdp_epsilon", lambda run, delta: max(sound((event,), delta) for event in run))


def _orders_of_each_phase(patch: Patch) -> None:
    def apart(run: Sequence[events.Event], delta: float) -> float:
        curves = [event.rdp() for event in run]
        orders = [rdp.compute_epsilon(events.ORDERS, curve, delta)[1] for curve in curves]
        total = sum(curve[events.ORDERS.index(order)] for curve, order in zip(curves, orders, strict=True))
        return float(rdp.compute_epsilon([max(orders)], [total], delta)[0])

    patch.setattr(accounting, "_rdp_epsilon", apart)


def _leading_term(patch: Patch) -> None:
    def small_rate(self: events.SubsampledGaussian) -> np.ndarray:
        return self.steps * self.sampling_rate**2 * np.asarray(events.ORDERS) / (2 * self.noise_multiplier**2)

    patch.setattr(events.SubsampledGaussian, "rdp", small_rate)


def _discrete_as_continuous(patch: Patch) -> None:
    def continuous(self: events.DiscreteGaussian, grid: float) -> Any:
        return events.subsampled_gaussian(1.0, self.stddev / np.sqrt(self.count), grid)

    patch.setattr(events.DiscreteGaussian, "pld", continuous)


DEFECTS: tuple[Defect, ...] = (
    Defect(
        "half the noise on counts",
        "counts get noise with half the charged standard deviation",
        NOWHERE,
        "audit of counts",
        _halved_count_noise,
    ),
    Defect(
        "Laplace noise for Gaussian",
        "counts get Laplace noise with the charged standard deviation",
        NOWHERE,
        "noise on counts",
        _laplace_for_gaussian,
    ),
    Defect(
        "exact second moments",
        "the second moments that an encoder is computed from have no noise",
        "DP-auto-GAN: an encoder learned without noise",
        "noise on second moments",
        _exact_moments,
    ),
    Defect(
        "float mean of repeated noise",
        "the mean of several draws is added to a count as a float, so the two are rounded separately",
        "an earlier version of this package",
        "sums of averaged counts",
        _float_mean_of_noise,
    ),
    Defect(
        "noise used twice",
        "draws are not numbered, so two answers share their noise",
        NOWHERE,
        "independence of noise",
        _noise_reused,
    ),
    Defect(
        "32-bit key",
        "a key is made from a 32-bit integer",
        "`jax.random.key(int)` without 64-bit mode",
        "key bits",
        _key_from_an_integer,
    ),
    Defect(
        "seed in the release",
        "the release folder states the seed of the noise",
        NOWHERE,
        "scan of the release",
        _seed_in_release,
    ),
    Defect(
        "half the sensitivity of scores",
        "the exponential mechanism divides by once the sensitivity, not twice",
        NOWHERE,
        "selection probabilities",
        _half_the_sensitivity,
    ),
    Defect(
        "means over a sample",
        "scores are means over a sample of the rows, with the sensitivity of means over all rows",
        "PGB, census scripts: 2,000 rows of 39,660",
        "selection probabilities, functions of a row",
        _means_of_a_sample,
    ),
    Defect(
        "a forgotten charge",
        "the noisy number of rows is not charged",
        "a public AIM script: the number of initial marginals charged is not the number measured",
        "plan and charges",
        _forgotten_charge,
    ),
    Defect(
        "one charge for a loop of selections",
        "all selections are charged as one",
        "SmartNoise, MWEM: up to 11 repeated selections charged as one",
        "draws and charges",
        _once_for_a_loop,
    ),
    Defect(
        "a filter that counts half",
        "the privacy filter counts adaptive queries at half their privacy cost",
        NOWHERE,
        "draws and charges",
        _filter_counts_half,
    ),
    Defect(
        "budget checked afterwards",
        "a query beyond the budget is made",
        "DP-CTGAN: epsilon is checked at the start of the next epoch",
        "refusal before rows are read",
        _checked_afterwards,
    ),
    Defect(
        "a phase left out",
        "the Renyi figure of a run is that of its most expensive query",
        "DP-auto-GAN, Proposition 3: training of the encoder is not accounted",
        "second accountant",
        _phase_left_out,
    ),
    Defect(
        "orders chosen per phase",
        "the divergences of two phases are added at different orders",
        NOWHERE,
        "second accountant",
        _orders_of_each_phase,
    ),
    Defect(
        "amplification by its leading term",
        "a subsampled step costs q^2 / (2 sigma^2) times the order, at all orders",
        "DP-GAN (Boob et al.): training stops by an asymptotic bound",
        "second accountant",
        _leading_term,
    ),
    Defect(
        "discrete noise as continuous",
        "the privacy-loss distribution of discrete noise is that of normal noise",
        NOWHERE,
        "second accountant",
        _discrete_as_continuous,
    ),
)
