"""MNIST: inception scores of a boosted DCGAN. Experiments P3 (not private) and P4 (epsilon 10) of the boosting paper.

    python benchmarks/papers/pgb/mnist.py --profile paper --calibrate
    python benchmarks/papers/pgb/mnist.py --profile paper --tune 9 --seeds 0 1 2 --out benchmarks/results

A DCGAN (KL-WGAN loss) without batch normalisation, which no private critic may have: the generator has layer
normalisation, the critic none. Images go to the package's training loop as arrays; batches, clipped gradients, noise,
selections and game are those of every table. With privacy there is one training of 30 epochs. GAN and DRS take its
last state; PGB takes checkpoints of the first 25, and the selections cost what the last five would have: each output
has epsilon 10 by itself. All critics are evaluated on one real image at a time: the value of an image is then a
function of that image on every device, and the ledger charges the selections. All seeds of a kind train as one
program. With `--tune SEED`, learning rates are chosen on that seed by the score of the last generator. Scores are
those of a classifier that is trained here. The noise of a profile is what `--calibrate` prints for it; a ledger
refuses less, but where there is no accountant (dp-accounting) there is none. Seeded, on public images.
"""

import argparse
import ast
import dataclasses
import functools
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parents[3] / "src")]

import equinox as eqx  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jaxtyping import Array, Float, PRNGKeyArray  # noqa: E402

from benchmarks.papers.command import run_script  # noqa: E402
from benchmarks.papers.pgb.core import best_response  # noqa: E402
from benchmarks.papers.pgb.mnist_budget import (  # noqa: E402
    PROFILES,
    Profile,
    calibration,
    has_accountant,
    means_of,
    paid_for_training,
    picks_of,
    sampling_rate,
    units_of,
)
from benchmarks.papers.pgb.mnist_networks import (  # noqa: E402
    Codes,
    Critic,
    Generator,
    codes_of,
    features_of,
    inception_score,
    predictions,
    real_images,
    trained_classifier,
)
from benchmarks.papers.pgb.mnist_page import OUTPUTS, finished, page, provenance, write  # noqa: E402
from understudy.benchmark.population import Population  # noqa: E402
from understudy.models.pool import draw_indices  # noqa: E402
from understudy.privacy.gradients.dpsgd import ChargedSteps  # noqa: E402
from understudy.synthesizers.boosted.game import (  # noqa: E402
    Constant,
    Outcome,
    Together,
    draw_distinct,
    evaluate_critics,
    play,
    reject_exactly,
    rejection_sample,
)
from understudy.training.gan import Hyperparameters, init_from_networks, train  # noqa: E402
from understudy.training.generation import generate  # noqa: E402
from understudy.training.loop import RunOptions, TrainingCheckpoint  # noqa: E402
from understudy.training.settings import Settings  # noqa: E402

MIN_ACCURACY = 0.995
KINDS = {"not_private": "not private", "private": "epsilon 10"}


# ------------------------------------------------------------------------------------------------------------- training


def trained(
    profile: Profile, codes: Codes, *, private: bool, seed: int, progress: Callable[[float, str], None]
) -> tuple[TrainingCheckpoint, list[TrainingCheckpoint]]:
    """The last state, and the checkpoints that PGB may use."""
    settings = profile.settings(len(codes), private=private)
    noise, clip, critic_learning_rate = 0.0, math.inf, profile.critic_learning_rate
    if private:
        noise, clip, critic_learning_rate = profile.noise, profile.clip, profile.private_critic_rate
    hyperparameters = Hyperparameters.of(critic_learning_rate, profile.generator_learning_rate, clip)
    steps = profile.steps(len(codes), profile.epochs)
    key, network_key = jax.random.split(jax.random.key(seed))
    generator_key, critic_key = jax.random.split(network_key)
    generator = Generator(profile.latent, profile.channels[::-1], key=generator_key)
    state, kept = train(
        settings,
        ChargedSteps(units_of(codes), jnp.float32(noise), sampling_rate(profile, len(codes)), steps),
        hyperparameters,
        key,
        network_key=network_key,
        state=init_from_networks(settings, hyperparameters, generator, Critic(profile.channels, key=critic_key)),
        options=RunOptions(keep_every=profile.every, progress=progress),
    )
    last = profile.steps(len(codes), profile.boosted_epochs) if private else math.inf
    return jax.device_get(TrainingCheckpoint.of(state)), [one for one in kept if one.iteration <= last][
        -profile.checkpoints :
    ]


@eqx.filter_jit
def _made(settings: Settings, generator: Any, count: int, key: PRNGKeyArray) -> Array:
    return codes_of(generate(settings, generator, count, key)[1])


def sampler(profile: Profile, images: int) -> Callable[[Any, int, PRNGKeyArray], Codes]:
    """From a generator to new images, in one compiled shape."""
    settings, size = profile.settings(images, private=False), profile.samples_per_generator

    def made(generator: Any, count: int, key: PRNGKeyArray) -> Codes:
        keys = (jax.random.fold_in(key, number) for number in range(-(-count // size)))
        return np.concatenate([np.asarray(_made(settings, generator, size, one)) for one in keys])[:count]

    return made


def _told(kind: str) -> Callable[[float, str], None]:
    shown = [-1]

    def tell(share: float, words: str) -> None:
        if int(10 * share) > shown[0]:
            shown[0] = int(10 * share)
            print(f"{kind}: {words}", flush=True)

    return tell


Training = tuple[TrainingCheckpoint, list[TrainingCheckpoint]]


def trainings(profiles: Sequence[tuple[Profile, int]], codes: Codes, *, private: bool) -> list[Training]:
    """A training for each profile and seed, all as one program: they differ in learning rates and seeds."""
    fits = [
        functools.partial(trained, profile, codes, private=private, seed=seed, progress=lambda share, words: None)
        for profile, seed in profiles
    ]
    found = Population[Training]().run(fits)
    for result in found:
        if isinstance(result, Exception):
            raise result
    return [result for result in found if not isinstance(result, Exception)]


def tune(
    profile: Profile, kind: str, codes: Codes, predict: Callable[[Codes], np.ndarray], seed: int
) -> tuple[Profile, dict[str, float]]:
    """The profile with the learning rates whose last generator scores best on this seed, and all scores."""
    tried = [dataclasses.replace(profile, **_rates(kind, *rates)) for rates in profile.tried]
    several = trainings([(each, seed) for each in tried], codes, private=kind != "not private")
    made, scores = sampler(profile, len(codes)), {}
    for rates, (last, _) in zip(profile.tried, several, strict=True):
        images = made(last.average, profile.scored, jax.random.key(1000 + seed))
        scores[f"{rates[0]:g}, {rates[1]:g}"] = inception_score(predict(images))
    print(f"{kind}, seed {seed}: {scores}", flush=True)
    return tried[int(np.argmax(list(scores.values())))], scores


def _rates(kind: str, critic: float, generator: float) -> dict[str, Any]:
    name = "critic_learning_rate" if kind == "not private" else "private_critic_rate"
    return {name: critic, "generator_learning_rate": generator}


# -------------------------------------------------------------------------------------------------------------- outputs


def one(
    profile: Profile,
    kind: str,
    codes: Codes,
    predict: Callable[[Codes], np.ndarray],
    seed: int,
    training: Training | None = None,
) -> tuple[dict[str, Any], dict[str, Codes]]:
    """One training and what becomes of it: figures and images."""
    began, private = time.monotonic(), kind != "not private"
    result: dict[str, Any] = {"kind": kind, "seed": seed}
    seconds: dict[str, int] = {}

    def timed(name: str) -> None:
        seconds[name] = round(time.monotonic() - began)
        print(f"{kind}, seed {seed}: {name} after {seconds[name]} s", flush=True)

    if private:
        result |= {"noise": profile.noise, "epsilon of a pick": profile.picks}
        if has_accountant():
            result["epsilon, GAN"] = paid_for_training(profile, len(codes))
            timed("paid")
    last, kept = training or trained(profile, codes, private=private, seed=seed, progress=_told(kind))
    timed("trained")
    pool_key, proposal_key = jax.random.split(jax.random.key(1000 + seed))
    made, each = sampler(profile, len(codes)), profile.samples_per_generator
    pool = np.concatenate([made(k.average, each, jax.random.fold_in(pool_key, n)) for n, k in enumerate(kept)])
    proposals = made(last.average, profile.proposals, proposal_key)
    timed("drawn")

    judge = judge_of([one.critic for one in kept])
    critics = evaluate_critics(judge, len(kept), pool)
    of_last = evaluate_critics(judge_of([last.critic]), 1, proposals).mixture(np.ones(1))
    timed("judged")
    judge_real = judge_of([one.critic for one in kept], one_by_one=True)
    if private:
        pick, spent = picks_of(profile, judge_real, len(kept), codes, seed)
        result |= spent
    else:
        pick = best_response(means_of(evaluate_critics(judge, len(kept), codes)))
    outcome = play(Together([critics, Constant(len(pool))]), pick, rounds=profile.rounds)
    timed("boosted")

    found = chosen(profile, pool, proposals, of_last, outcome, np.random.default_rng(seed))
    result |= {name: figures(predict(images), kept) for name, (images, kept) in found.items()}
    result["rates"] = [profile.private_critic_rate if private else profile.critic_learning_rate]
    result["rates"] += [profile.generator_learning_rate]
    by_generator = predict(pool).reshape(len(kept), each, 10)
    result["checkpoints"] = [
        [int(one.iteration), inception_score(p), float(w)]
        for one, p, w in zip(kept, by_generator, outcome.weights.reshape(len(kept), each).sum(axis=1), strict=True)
    ]
    result["critics picked"] = int((outcome.shares > 0).sum())
    timed("scored")
    best = np.argsort(-outcome.weights, kind="stable")[:100]
    panels = {name: images[:100] for name, (images, _) in found.items() if name in OUTPUTS}
    return result | {"seconds": seconds}, panels | {"largest weights": pool[best]}


@eqx.filter_jit
def _probabilities(critics: Critic, codes: Array) -> Float[Array, "images critics"]:
    leaves, rest = eqx.partition(critics, eqx.is_array)
    shown = features_of(codes)
    return jax.lax.map(lambda one: jax.nn.sigmoid(jax.vmap(eqx.combine(one, rest))(shown)), leaves).T


@eqx.filter_jit
def _probabilities_one_by_one(critics: Critic, codes: Array) -> Float[Array, "images critics"]:
    leaves, rest = eqx.partition(critics, eqx.is_array)

    def of_image(image: Array) -> Float[Array, " critics"]:
        return jax.nn.sigmoid(jax.vmap(lambda one: eqx.combine(one, rest)(image))(leaves))

    return jax.lax.map(of_image, features_of(codes))


def judge_of(
    critics: Sequence[Critic], *, one_by_one: bool = False
) -> Callable[[np.ndarray], Float[np.ndarray, "images critics"]]:
    """The sigmoid of every critic's score. `one_by_one`: no digit of an image's value depends on other images."""
    stacked = jax.tree_util.tree_map(lambda *each: jnp.stack(each) if eqx.is_array(each[0]) else each[0], *critics)
    function = _probabilities_one_by_one if one_by_one else _probabilities
    return lambda codes: np.asarray(function(stacked, jnp.asarray(codes, dtype=jnp.uint8)))


def chosen(
    profile: Profile,
    pool: Codes,
    proposals: Codes,
    of_last: np.ndarray,
    outcome: Outcome,
    generator: np.random.Generator,
) -> dict[str, tuple[Codes, int]]:
    """At most `scored` images of each output, and among how many they were chosen."""

    def some(images: Codes, kept: np.ndarray) -> tuple[Codes, int]:
        return images[generator.permutation(kept)[: profile.scored]], len(kept)

    rejected = rejection_sample(of_last, generator)
    boosted = draw_distinct(outcome.weights, generator)
    flat = np.full(len(pool), 1 / len(pool))
    exact = {
        "pool": flat,
        "pool x odds": reject_exactly(flat, outcome.mixture),
        "PGB x odds": reject_exactly(outcome.weights, outcome.mixture),
    }
    variants = {
        name: (pool[draw_indices(weights, profile.scored, generator)], len(pool)) for name, weights in exact.items()
    }
    variants["distinct"] = some(pool, boosted)
    return variants | {
        "GAN": (proposals[: profile.scored], len(proposals)),
        "DRS": some(proposals, rejected),
        "PGB": (pool[draw_indices(outcome.weights, profile.scored, generator)], len(pool)),
        "PGB+DRS": some(pool, boosted[rejection_sample(outcome.mixture[boosted], generator)]),
    }


def figures(probabilities: np.ndarray, kept: int) -> dict[str, Any]:
    digits = np.bincount(probabilities.argmax(axis=1), minlength=10)
    return {
        "score": inception_score(probabilities),
        "images": len(probabilities),
        "of": kept,
        "sureness": float(probabilities.max(axis=1).mean()),
        "digits": digits.tolist(),
    }


# --------------------------------------------------------------------------------------------------------- command line


def arguments() -> tuple[argparse.Namespace, Profile]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", choices=list(PROFILES), default="smoke")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no training after this many minutes")
    parser.add_argument("--noise", type=float, help="noise multiplier of a private run, instead of the profile's")
    parser.add_argument("--picks", type=float, help="epsilon of a pick, instead of the profile's")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the profile")
    parser.add_argument("--out", type=Path, help="folder for results; left out: none are written")
    parser.add_argument("--tune", type=int, metavar="SEED", help="choose learning rates on this seed first")
    parser.add_argument("--calibrate", action="store_true", help="print what noise the profile needs, and stop")
    found = parser.parse_args()
    changes = {name: _value(text) for name, text in (pair.split("=", 1) for pair in found.set)}
    changes |= {name: value for name in ("noise", "picks") if (value := getattr(found, name)) is not None}
    return found, dataclasses.replace(PROFILES[found.profile], **changes)


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def main() -> None:
    began = time.monotonic()
    found, profile = arguments()
    if found.calibrate:
        print(calibration(profile, profile.images or 60_000))
        return
    codes, digits, test_codes, test_digits = real_images(profile.images)
    size = profile.classifier_channels, profile.classifier_epochs
    predict = predictions(trained_classifier(codes, digits, *size, seed=0))
    of_test = predict(test_codes)
    accuracy = float((of_test.argmax(axis=1) == test_digits).mean())
    classifier = {"accuracy": accuracy, "real": inception_score(of_test[: profile.scored])}
    print(
        f"classifier: {accuracy:.4f} right, real {classifier['real']:.3f}, {time.monotonic() - began:.0f} s", flush=True
    )
    if profile == PROFILES["paper"] and accuracy < MIN_ACCURACY:
        print(f"Scores of a classifier below {MIN_ACCURACY} are not comparable.")
    terms = {"profile": found.profile, "changed": sorted(found.set), "tuned on": found.tune}
    results = finished(found.out, terms)
    panels: dict[str, dict[str, Codes]] = {}
    for kind in (KINDS[name] for name in found.kinds):
        known = {result["seed"]: result for result in results if result["kind"] == kind}
        seeds = [seed for seed in found.seeds if seed not in known]
        if not seeds:
            continue
        if results and time.monotonic() - began > 60 * found.minutes:
            print(f"Left out for time: {kind}.")
            continue
        chosen, tried = profile, dict[str, float]()
        if known:
            first = next(iter(known.values()))
            chosen, tried = dataclasses.replace(profile, **_rates(kind, *first["rates"])), first["tried"]
        elif found.tune is not None:
            chosen, tried = tune(profile, kind, codes, predict, found.tune)
        several = trainings([(chosen, seed) for seed in seeds], codes, private=kind != "not private")
        print(f"{kind}: {len(several)} trainings after {time.monotonic() - began:.0f} s", flush=True)
        for seed, training in zip(seeds, several, strict=True):
            result, grids = one(chosen, kind, codes, predict, seed, training)
            results.append(result | terms | {"tried": tried} | provenance())
            if not known:
                panels.setdefault(kind, grids)
            if found.out is not None:
                write(found.out, profile, results, classifier, panels)
    print(page(profile, results, classifier))


if __name__ == "__main__":
    run_script(main)
