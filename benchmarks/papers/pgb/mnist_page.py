"""Results of the MNIST experiments: their file, their page, their pictures."""

import datetime
import json
import os
import platform
import shlex
import struct
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parents[3] / "src")]

import jax  # noqa: E402
import numpy as np  # noqa: E402

from benchmarks.papers.pgb.mnist_budget import Profile  # noqa: E402
from benchmarks.papers.pgb.mnist_networks import SIDE, Codes  # noqa: E402

NAME = "pgb_mnist"
OUTPUTS = ("GAN", "DRS", "PGB", "PGB+DRS")
PUBLISHED = {
    "not private": {"GAN": 8.41, "DRS": 8.21, "PGB": 8.76, "PGB+DRS": 8.77},
    "epsilon 10": {"GAN": 8.07, "DRS": 8.18, "PGB": 8.58, "PGB+DRS": 8.66},
}
IN_DOCS = "../../docs/images"
"""Where pictures are, seen from the folder of results."""
REAL, ACCURACY = 9.93, 0.9965
"""Published, of the test images and of the classifier."""


def page(profile: Profile, results: Sequence[Mapping[str, Any]], classifier: Mapping[str, float]) -> str:
    command = shlex.join(["python", "benchmarks/papers/pgb/mnist.py", *_without_kinds(sys.argv[1:])])
    days = " and ".join(sorted({result["day"] for result in results}))
    parts = [
        f"""# Private post-GAN boosting: MNIST (P3, P4)

`{command}`, {days}, {" and ".join(sorted({result["machine"] for result in results}))}.
Seeded runs on public data. Inception scores of at most {profile.scored:,} images each, by a classifier that gets
{100 * classifier["accuracy"]:.2f}% of the test images right (published: {100 * ACCURACY:.2f}%); real test images score
{classifier["real"]:.2f} (published: {REAL}). {profile.epochs:g} epochs, Poisson batches of {profile.batch} on average,
channels {profile.channels[0]} and {profile.channels[1]}; the last {profile.checkpoints} checkpoints
(every {profile.every} steps), {profile.samples_per_generator:,} images of each, {profile.rounds:,} rounds;
DRS chooses among {profile.proposals:,}.
Confidence: the mean of the largest probability that the classifier gives to an image.
"""
    ]
    for kind in (kind for kind in PUBLISHED if any(result["kind"] == kind for result in results)):
        here = [result for result in results if result["kind"] == kind]
        lines = [f"| {'output':<18} | score | images, of | confidence |", "|---|---:|---:|---:|"]
        for name in OUTPUTS:
            scores = [result[name]["score"] for result in here]
            of = f"{here[0][name]['images']:,}, {here[0][name]['of']:,}"
            confidence = np.median([result[name]["sureness"] for result in here])
            lines.append(f"| {name}, published | {PUBLISHED[kind][name]:.2f} | | |")
            lines.append(f"| {name}, here | {np.median(scores):.2f} | {of} | {confidence:.3f} |")
        parts.append(f"## {kind[0].upper()}{kind[1:]}\n\n" + "\n".join(lines) + "\n\n" + _facts(profile, here))
        parts.append(
            f"![{', '.join(OUTPUTS)}, and the 100 images with the largest weights]({IN_DOCS}/{_picture_file(kind)})\n"
        )
    return "\n".join(parts)


def provenance() -> dict[str, str]:
    """The day and the machine of a run."""
    device = jax.devices()[0]
    machine = f"{platform.machine()}, {os.cpu_count()} CPU cores" if device.platform == "cpu" else device.device_kind
    versions = f"Python {platform.python_version()}, JAX {jax.__version__}"
    return {"day": str(datetime.date.today()), "machine": f"{machine}, {versions}"}


def _without_kinds(words: Sequence[str]) -> list[str]:
    """A page has all kinds, which may have been run one after the other.

    >>> _without_kinds(["--kinds", "private", "not_private", "--tune", "9"])
    ['--tune', '9']
    """
    found, skips = [], False
    for word in words:
        skips = word == "--kinds" or (skips and not word.startswith("--"))
        found += [] if skips else [word]
    return found


def _facts(profile: Profile, here: Sequence[Mapping[str, Any]]) -> str:
    last = here[-1]
    seeds = ", ".join(str(result["seed"]) for result in here)
    text = f"Seeds {seeds}; {last['seconds']['scored']} seconds for the last of them. "
    if "noise" in last:
        text += (
            f"Noise multiplier {last['noise']:.4f}, {profile.rounds:,} selections of epsilon "
            f"{last['epsilon of a pick']:.4g}"
        )
        if "epsilon, with picks" in last:
            text += (
                f". Epsilon of GAN and DRS {last['epsilon, GAN']:.3f}; of PGB and PGB+DRS "
                f"{last['epsilon, with picks']:.3f}, and {last['epsilon, training']:.3f} for"
                f" its {profile.boosted_epochs:g} epochs alone"
            )
        else:
            text += f", not charged: {last['not charged']}"
        text += ". "
    scores = [score for _, score, _ in last["checkpoints"]]
    text += (
        f"Single checkpoints score {min(scores):.2f} to {max(scores):.2f}, the last one {scores[-1]:.2f} "
        f"({profile.samples_per_generator:,} images each); {last['critics picked']} critics were selected.\n"
    )
    return text


# ------------------------------------------------------------------------------------------------------------- pictures


def grid(images: Codes) -> np.ndarray:
    """A hundred images as ten lines of ten, with a rim."""
    squares = np.zeros((100, SIDE, SIDE), dtype=np.uint8)
    squares[: len(images)] = images[:100].reshape(-1, SIDE, SIDE)
    lines = squares.reshape(10, 10, SIDE, SIDE).transpose(0, 2, 1, 3).reshape(10 * SIDE, 10 * SIDE)
    return np.pad(lines, 4, constant_values=128)


def png(grey: np.ndarray) -> bytes:
    """Bytes as a grey picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + line.tobytes() for line in grey)
    header = struct.pack(">IIBBBBB", grey.shape[1], grey.shape[0], 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def _picture_file(kind: str) -> str:
    return f"{NAME}_{kind.replace(' ', '_')}.png"


def picture(panels: Mapping[str, Codes]) -> bytes:
    """The grids side by side, in few shades: a small file."""
    return png(np.concatenate([grid(images) for images in panels.values()], axis=1) // 16 * 17)


# ---------------------------------------------------------------------------------------------------------------- files


def write(
    folder: Path,
    profile: Profile,
    results: Sequence[Mapping[str, Any]],
    classifier: Mapping[str, float],
    panels: Mapping[str, Mapping[str, Codes]],
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"classifier": dict(classifier), **result}) + "\n" for result in results]
    part = folder / f"{NAME}.part"
    part.write_text("".join(lines))
    os.replace(part, folder / f"{NAME}.jsonl")
    (folder / f"{NAME}.md").write_text(page(profile, results, classifier))
    for kind, grids in panels.items():
        images = (folder / IN_DOCS).resolve()
        ((images if images.is_dir() else folder) / _picture_file(kind)).write_bytes(picture(grids))


def finished(folder: Path | None, terms: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Results of a run on the same terms that was cut short."""
    file = None if folder is None else folder / f"{NAME}.jsonl"
    if file is None or not file.exists():
        return []
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [line for line in lines if all(line.get(name, ...) == value for name, value in terms.items())]
