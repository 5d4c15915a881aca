"""Runs of the audits of all methods, saved as JSON files in a folder; bounds are computed from them later.

Every method at its small settings against two canaries; some methods also against the others. Runs are spread over
processes of one thread each. Finished runs are kept, and the same command continues.

    python benchmarks/audit.py FOLDER --jobs 16 --seconds 420
    understudy audit --from FOLDER
    python benchmarks/audit.py FOLDER --write

The last one makes no runs: it writes what `understudy audit --table` shows. Bounds need the extra `audit`; runs do not.
"""

import argparse
import concurrent.futures
import dataclasses
import functools
import math
import time
from collections.abc import Iterator
from pathlib import Path

from understudy.audit.audited_runs import Runs, Target
from understudy.audit.neighbours import CANARIES, make_neighbours
from understudy.audit.pipeline import AUDITED, make_runs, make_target, worker_processes
from understudy.errors import ConfigError
from understudy.run.atomic import json_bytes, write_file

RECORD = Path(__file__).parent.parent / "src" / "understudy" / "certificate" / "recorded_audits.json"
WITHOUT_NETWORKS = ("independent", "adaptive", "mst", "aim", "privbayes", "mwem", "quail")
"""They take tenths of a second, so they can be run more often."""
SLOWEST_FIRST = ("boosted", "dpctgan", "drs", "gem", "autogan", "selected", "bayesgan", "pategan", "dpgan", "patectgan")
FOR_ALL = ("combination", "row")
"""Canaries that every method is audited with."""
MORE_CANARIES = ("independent", "adaptive", "mst", "dpgan")
SHARD = 500
"""Runs of one process: networks are compiled in each."""


@dataclasses.dataclass(frozen=True)
class Shard:
    """Some runs of one audit, in a file of their own."""

    name: str
    target: Target
    numbers: range

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.target.canary}-{self.numbers.start:05}.json"


def list_shards(arguments: argparse.Namespace) -> list[Shard]:
    """All runs to make, the most important first: every method, then other canaries."""
    methods = [*SLOWEST_FIRST, *WITHOUT_NETWORKS]
    chosen = [name for name in methods if arguments.methods is None or name in arguments.methods]
    pairs = [(name, each) for each in FOR_ALL if each in arguments.canaries for name in chosen]
    others = [each for each in arguments.canaries if each not in FOR_ALL]
    pairs += [(name, each) for each in others for name in chosen if name in MORE_CANARIES and _is_quick(name, each)]
    shards = []
    for name, canary in pairs:
        target = make_target(name, arguments.epsilon, canary=canary)
        fits = arguments.fits if name in SLOWEST_FIRST else max(arguments.fits, arguments.fast_fits)
        for start in range(0, fits, SHARD):
            shards.append(Shard(name, target, range(start, min(start + SHARD, fits))))
    return shards


def _is_quick(name: str, canary: str) -> bool:
    """Networks are compiled for every number of bins: too slow where that number is estimated privately."""
    return name in WITHOUT_NETWORKS or make_neighbours(canary).binning.bins == "uniform"


def run_shard(shard: Shard, folder: Path, seed: int | None, end: float) -> tuple[Runs, float]:
    """Runs what the file of the shard does not have yet, until the end (of `time.time`, which processes share)."""
    began = time.time()
    deadline = time.monotonic() + end - began
    return continue_runs(folder / shard.file_name, shard.target, shard.numbers, seed=seed, deadline=deadline), began


def continue_runs(
    path: Path,
    target: Target,
    numbers: range,
    *,
    seed: int | None = None,
    deadline: float = math.inf,
    every: int = 100,
) -> Runs:
    """Makes the runs that the file does not have yet, and saves them there from time to time."""
    done = Runs.read(path) if path.exists() else Runs(target, seeded=seed is not None, seed=seed)
    if done.target != target or (done.seeded, done.seed) != (seed is not None, seed):
        raise ConfigError(f"{path} has runs of another audit. Name another file, or delete it.", setting="path")
    missing = sorted(set(numbers) - set(done.numbers))
    for start in range(0, len(missing), every):
        if time.monotonic() > deadline:
            break
        block = missing[start : start + every]
        for first, last in _ranges(block):
            done = done.merge(make_runs(target, range(first, last), seed=seed, deadline=deadline))
        done.write(path)
    return done


def _ranges(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Ranges of consecutive numbers: the first number, and the last one plus one."""
    cuts = [i for i in range(1, len(numbers)) if numbers[i] != numbers[i - 1] + 1]
    for start, end in zip([0, *cuts], [*cuts, len(numbers)], strict=True):
        yield numbers[start], numbers[end - 1] + 1


def main(arguments: argparse.Namespace) -> None:
    began = time.time()
    end = began + arguments.seconds
    arguments.out.mkdir(parents=True, exist_ok=True)
    shards = list_shards(arguments)
    run = functools.partial(run_shard, folder=arguments.out, seed=arguments.seed, end=end)
    with worker_processes(arguments.jobs) as pool:
        futures = {pool.submit(run, shard): shard for shard in shards}
        for future in concurrent.futures.as_completed(futures):
            shard, now = futures[future], time.time()
            try:
                runs, started = future.result()
            except Exception as error:  # one method that fails must not end the others
                print(f"{now - began:6.0f} s  {shard.file_name}: {type(error).__name__}: {error}", flush=True)
                continue
            print(
                f"{now - began:6.0f} s  {shard.file_name}: {len(runs.numbers)} of {len(shard.numbers)} runs, "
                f"{runs.num_failed} failed, {now - started:.0f} s",
                flush=True,
            )


def write_record(folder: Path) -> None:
    """Writes the bounds that the runs in the folder show into the package."""
    from understudy.audit.audit import bound_files
    from understudy.certificate.audit_section import audits_to_json

    audits = bound_files([folder])
    write_file(RECORD, json_bytes(audits_to_json(audits)), force=True)
    print(*(each.sentence for each in audits), sep="\n")


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="FOLDER")
    parser.add_argument("--methods", nargs="+", choices=list(AUDITED), default=None)
    parser.add_argument("--canaries", nargs="+", choices=list(CANARIES), default=list(CANARIES))
    parser.add_argument("--fits", type=int, default=500, help="Runs of each audit, half of them with the canary.")
    parser.add_argument("--fast-fits", type=int, default=0, help="The same for methods without networks, if more.")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf, help="Start no run after this time.")
    parser.add_argument("--seed", type=int, default=None, help="Default: secure noise.")
    parser.add_argument("--write", action="store_true", help="Only write recorded_audits.json, from FOLDER.")
    return parser.parse_args()


if __name__ == "__main__":
    given = read_arguments()
    write_record(given.out) if given.write else main(given)
