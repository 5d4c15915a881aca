"""How long all pairs of columns take to count: on the processors, and on JAX's default device.

    python benchmarks/counting.py --rows 1000000 10000000 --write

Codes are drawn from a seed: no table is read. The counts of both are compared, bit for bit.
"""

import argparse
import datetime
import itertools
import os
import platform
import shlex
import statistics
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "src"))
SIZES = (2, 3, 5, 8, 12, 16, 20, 32, 64, 100)
PAIRS = list(itertools.combinations(range(len(SIZES)), 2))


def seconds(num_rows: int, repeats: int) -> tuple[float, float]:
    """The median time on the processors and on the device, after a first count that compiles."""
    import numpy as np

    from understudy.privacy.rows.kernel import count_workload

    draw = np.random.default_rng(0)
    codes = np.stack([draw.integers(0, size, num_rows, dtype=np.uint8) for size in SIZES]).T
    expected = count_workload(codes, PAIRS, SIZES)
    if not np.array_equal(count_workload(codes, PAIRS, SIZES, on_device=True), expected):
        raise SystemExit("The counts differ.")
    found: dict[bool, list[float]] = {False: [], True: []}
    for on_device in [False, True] * repeats:
        began = time.perf_counter()
        count_workload(codes, PAIRS, SIZES, on_device=on_device)
        found[on_device].append(time.perf_counter() - began)
    return statistics.median(found[False]), statistics.median(found[True])


def main(arguments: argparse.Namespace) -> None:
    import jax

    device, cores = jax.devices()[0].device_kind, len(os.sched_getaffinity(0))
    lines = [
        f"# Time to count {len(PAIRS)} pairs of columns",
        "",
        f"`python benchmarks/counting.py {shlex.join(sys.argv[1:])}`, {datetime.date.today()}, {platform.machine()}, "
        f"{cores} CPU cores, {device}, JAX {jax.__version__}; load average {os.getloadavg()[0]:.0f} at the start.",
        "",
        f"{len(SIZES)} columns of {SIZES[0]} to {SIZES[-1]} values, drawn from seed 0. Median of {arguments.repeats} "
        "counts each, in turn, with the transfer to the device. The counts are equal.",
        "",
        f"| rows | processors, s | {device}, s |",
        "|---:|---:|---:|",
    ]
    for num_rows in arguments.rows:
        lines.append("| {:,} | {:.2f} | {:.2f} |".format(num_rows, *seconds(num_rows, arguments.repeats)))
        print(lines[-1], flush=True)
    print("\n".join(lines))
    if arguments.write:
        name = "".join(c if c.isalnum() else "_" for c in device.lower())
        (HERE / "results" / f"counting_{name}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    main(parser.parse_args())
