"""How large a MNIST run is, and what its training and its selections cost.

The noise of a profile is what `mnist.py --calibrate` prints for it; a ledger refuses less, but where there is no
accountant (dp-accounting) there is none.
"""

import dataclasses
import importlib.util
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parents[3] / "src")]

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jaxtyping import Float  # noqa: E402

from benchmarks.papers.pgb.mnist_networks import PIXELS, Codes, features_of  # noqa: E402
from understudy.encoding.features import Block  # noqa: E402
from understudy.errors import ConfigError  # noqa: E402
from understudy.privacy.gradients.poisson import round_sampling_rate  # noqa: E402
from understudy.privacy.noise.source import SeededNoise  # noqa: E402
from understudy.privacy.rows.rows import PrivateUnits  # noqa: E402
from understudy.synthesizers.boosted.game import Select, Values, evaluate_critics  # noqa: E402
from understudy.training.settings import Settings  # noqa: E402

EPSILON = 10.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Profile:
    """How large a run is, and the settings of its training."""

    noise: float = 0.559419
    """The noise multiplier of a private critic step."""
    picks: float = 0.024624
    """Epsilon of one selection."""
    tried: tuple[tuple[float, float], ...] = ((2e-4, 2e-4), (5e-4, 2e-4), (2e-4, 5e-4), (5e-4, 5e-4))
    """Learning rates of critic and generator among which `--tune` chooses."""
    images: int | None = None
    """Real images that are used; None: all 60,000."""
    batch: int = 256
    epochs: float = 30
    boosted_epochs: float = 25
    """Of a private run: how many of the epochs PGB is charged for, and takes checkpoints of."""
    every: int = 47
    """Steps from one checkpoint to the next: a fifth of an epoch."""
    checkpoints: int = 100
    samples_per_generator: int = 1000
    rounds: int = 1000
    proposals: int = 50_000
    """Images of the last generator among which DRS chooses."""
    scored: int = 5000
    latent: int = 100
    channels: tuple[int, int] = (64, 128)
    """Of the critic's two layers; of the generator's in reverse."""
    critic_learning_rate: float = 2e-4
    generator_learning_rate: float = 2e-4
    private_critic_rate: float = 2e-4
    betas: tuple[float, float] = (0.5, 0.999)
    clip: float = 1.0
    adaptive: str = "public"
    """Of a private run: the clip bound follows the norms of generated images, which costs nothing; "none": it stays."""
    average: float = 0.0
    """Weights are not averaged, so that checkpoints differ."""
    classifier_channels: tuple[int, int] = (32, 64)
    classifier_epochs: int = 20

    def steps(self, images: int, epochs: float) -> int:
        """Whole stretches between checkpoints, so that all are one compiled program."""
        return self.every * math.ceil(epochs * images / self.batch / self.every)

    def settings(self, images: int, *, private: bool) -> Settings:
        return Settings(
            blocks=(Block("tanh", PIXELS),),
            batch_size=self.batch,
            loss="kl_wgan",
            latent=self.latent,
            generator_batch=self.batch,
            ema_decay=self.average,
            betas=self.betas,
            adaptive_clip=self.adaptive if private else "none",
        )


PROFILES = {
    "smoke": Profile(
        noise=0.390940,
        picks=0.278596,
        images=600,
        batch=32,
        epochs=0.6,
        boosted_epochs=0.3,
        every=4,
        checkpoints=2,
        samples_per_generator=50,
        rounds=20,
        proposals=200,
        scored=100,
        latent=8,
        channels=(4, 8),
        adaptive="none",
        classifier_channels=(4, 8),
        classifier_epochs=10,
    ),
    "paper": Profile(),
}


def sampling_rate(profile: Profile, images: int) -> float:
    return round_sampling_rate(profile.batch / images)


def delta(images: int) -> float:
    return 1 / (2 * images)


# --------------------------------------------------------------------------------------------------------- privacy cost


def has_accountant() -> bool:
    return importlib.util.find_spec("dp_accounting") is not None


def units_of(codes: Codes) -> PrivateUnits:
    """Every image is a unit of one row."""
    return PrivateUnits(features_of(codes)[:, None], jnp.ones((len(codes), 1), dtype=bool))


def _steps(profile: Profile, images: int, epochs: float, noise: float | None = None) -> Any:
    from understudy.privacy.accounting.events import SubsampledGaussian
    from understudy.privacy.accounting.ledger import Query

    steps, rate = profile.steps(images, epochs), round_sampling_rate(profile.batch / images)
    return Query("critic", f"{steps} critic steps", SubsampledGaussian(rate, noise or profile.noise, steps))


def _picks(profile: Profile, epsilon: float | None = None) -> Any:
    from understudy.privacy.accounting.events import Selections
    from understudy.privacy.accounting.ledger import Query

    return Query(
        "selections", f"{profile.rounds} selections among critics", Selections(epsilon or profile.picks, profile.rounds)
    )


def calibrated(profile: Profile, images: int) -> tuple[float, float]:
    """The least noise of the whole training, and the largest epsilon of a selection, both within epsilon 10."""
    from understudy.privacy.accounting.ledger import Budget

    budget = Budget(EPSILON, delta(images))
    noise = budget.calibrate(lambda s: [_steps(profile, images, profile.epochs, s).event])
    part = _steps(profile, images, profile.boosted_epochs, noise)
    picks = 1 / budget.after([part]).calibrate(lambda s: [_picks(profile, 1 / s).event])
    return math.ceil(noise * 1e6) / 1e6, math.floor(picks * 1e6) / 1e6


def calibration(profile: Profile, images: int) -> str:
    """What `--calibrate` prints: the costs of the profile, and of 25 epochs alone."""
    from understudy.privacy.accounting.events import SubsampledGaussian
    from understudy.privacy.accounting.ledger import Budget

    rate, steps = round_sampling_rate(profile.batch / images), math.ceil(25 * images / profile.batch)
    alone = Budget(EPSILON, delta(images)).calibrate(lambda s: [SubsampledGaussian(rate, s, steps)])
    noise, picks = calibrated(profile, images)
    whole, part = (profile.steps(images, epochs) for epochs in (profile.epochs, profile.boosted_epochs))
    return (
        f"{steps:,} steps at {profile.batch}/{images:,}, epsilon {EPSILON:g}, delta {delta(images):.3g}: {alone:.4f}\n"
        f"{whole:,} steps: {noise}; after {part:,} of them {profile.rounds:,} selections of epsilon {picks} each\n"
        f"--noise {noise} --picks {picks}"
    )


def paid_for_training(profile: Profile, images: int) -> float:
    """Charges the whole training, on a ledger of its own: what GAN and DRS are made of."""
    from understudy.privacy.accounting.ledger import Guarantee, Ledger

    ledger = Ledger(Guarantee(EPSILON, delta(images)), noise=SeededNoise(0))
    ledger.charge(_steps(profile, images, profile.epochs))
    return ledger.spent().epsilon


def picks_of(
    profile: Profile, judge: Callable[[np.ndarray], np.ndarray], count: int, codes: Codes, seed: int
) -> tuple[Select, dict[str, Any]]:
    """Charged selections, or the same without a ledger; and what they cost, or why nothing was charged."""
    why = "there was no accountant here"
    if has_accountant():
        try:
            return private_pick(profile, judge, count, codes, seed)
        except ConfigError as error:  # a device that rounds a row by its place: a long training is not thrown away
            why = f"the ledger's check refused: {error}"
    return unpriced_pick(profile, evaluate_critics(judge, count, codes), seed), {"not charged": why}


def private_pick(
    profile: Profile, judge: Callable[[np.ndarray], np.ndarray], count: int, codes: Codes, seed: int
) -> tuple[Select, dict[str, float]]:
    """Selections of a ledger that was charged for the first part of the training, and what both cost."""
    from understudy.privacy.accounting.ledger import Guarantee, Ledger
    from understudy.privacy.mechanisms.selection import RowFunctions, noisy_function_selections
    from understudy.privacy.rows.rows import PrivateRows
    from understudy.schema import Domain

    images = len(codes)
    domain = Domain(names=tuple(map(str, range(PIXELS))), sizes=(256,) * PIXELS, num_rows=images)
    ledger = Ledger(Guarantee(EPSILON, delta(images)), noise=SeededNoise(seed))
    ledger.charge(_steps(profile, images, profile.boosted_epochs))
    trained = ledger.spent().epsilon
    pick = noisy_function_selections(
        PrivateRows(codes, domain), RowFunctions(judge, count, constant=True), _picks(profile), ledger
    )
    return pick, {"epsilon, training": trained, "epsilon, with picks": ledger.spent().epsilon}


def unpriced_pick(profile: Profile, real: Values, seed: int) -> Select:
    """The same law where there is no accountant, so no ledger: odds exp(epsilon * sum), for public images alone."""
    noise, means = SeededNoise(seed), means_of(real)
    return lambda public: noise.noisy_argmax(real.num_samples * (means - public), 1 / profile.picks)


def means_of(real: Values) -> Float[np.ndarray, " critics"]:
    """Of each critic over public images, and of the constant one."""
    return np.append(real.means(np.full(real.num_samples, 1 / real.num_samples)), 0.5)
