"""The experiments of the boosting paper at its own lengths: all seeds of a part train as one program.

    UNDERSTUDY_DATA=folder python benchmarks/papers/pgb/populations.py --profile paper --folder results --jobs 4

A part is one table, one kind of networks and one guarantee. With privacy GAN and DRS train for more steps than
PGB, as in the paper. Noise is calibrated to the guarantee; in parts with "published noise" it is
the paper's, and the certificate states the smaller epsilon that this noise has by our accounting. Beside the paper's
four outputs every part has those that separate the steps of PGB+DRS (`core.VARIANTS`): the pool without boosting, its
distinct rows, exact odds instead of sampled rejection. A line is written for each seed as soon as it is scored, and
what has a line is not run again. Seeded runs on public data.
"""

import argparse
import contextlib
import dataclasses
import datetime
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parents[3] / "src")]

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

import understudy as us  # noqa: E402
from benchmarks.papers.command import require_tables, run_script  # noqa: E402
from benchmarks.papers.pgb import census1940, census2010, core, gaussians, titanic  # noqa: E402
from benchmarks.papers.published import (  # noqa: E402
    PGB_CENSUS1940,
    PGB_CENSUS2010,
    PGB_GAUSSIANS,
    PGB_GAUSSIANS_PRIVATE,
    PGB_TITANIC,
)
from benchmarks.papers.workers import Failure, Workers, use_one_core  # noqa: E402
from benchmarks.simulated import gaussians25  # noqa: E402
from understudy.errors import ConfigError  # noqa: E402
from understudy.evaluation.cells import _cell_errors  # noqa: E402
from understudy.synthesizers import express  # noqa: E402
from understudy.synthesizers.boosted import Boosted  # noqa: E402
from understudy.synthesizers.dpgan import DPGAN  # noqa: E402

NAME = "pgb_populations"
ALONE, GAME = ("GAN", "DRS"), ("PGB", "PGB+DRS", *core.VARIANTS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """One table, one kind of networks, one guarantee."""

    name: str
    table: str
    boosted: Boosted
    gan: DPGAN
    """The GAN behind the outputs GAN and DRS; without privacy they share the training of `boosted`."""
    guarantee: us.Guarantee
    seeds: int
    noise: core.PublishedNoise | None = None
    """None: the least noise for the guarantee."""
    proposals: int = 10_000
    max_rows: int | None = None
    bins: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
    """How large the runs of a profile are."""

    seeds: Mapping[str, int]
    shorter: int = 1
    """Steps are divided by this."""
    checkpoints: int | None = None
    samples: int | None = None
    rounds: int | None = None
    max_rows: int | None = None


TABLES = ("titanic", "gaussians", "census1940", "census2010")
SIZES = {
    "smoke": Size(
        seeds=dict.fromkeys(TABLES, 1),
        shorter=200,
        checkpoints=2,
        samples=50,
        rounds=10,
        max_rows=1500,
    ),
    "paper": Size(seeds=dict.fromkeys(TABLES, 5)),
}


# ---------------------------------------------------------------------------------------------------------------- parts


TITANIC, CENSUS1940, CENSUS2010 = "titanic, epsilon 2", "census1940, epsilon 1", "census2010, epsilon 0.795"
POINTS = "gaussians, the code's networks, critics"


def _published_noise(method: DPGAN, epsilon: float) -> core.PublishedNoise:
    """Of a critic step, and of one of 400 selections with this total epsilon by basic composition."""
    assert method.noise_multiplier is not None
    return core.PublishedNoise(method.noise_multiplier, epsilon / ROUNDS)


ROUNDS = 400
PUBLISHED_NOISE = {
    TITANIC: _published_noise(PGB_TITANIC, 0.4),
    CENSUS1940: _published_noise(PGB_CENSUS1940, 0.2),
    CENSUS2010: _published_noise(PGB_CENSUS2010, 0.09),
    POINTS: _published_noise(PGB_GAUSSIANS_PRIVATE, 0.199662),
}
"""Of the authors' code, by part."""
COVERS = 2.0
"""No published noise has a larger epsilon by our accounting, on our tables."""


def parts(size: Size) -> list[Part]:
    """In the order of importance; last those with the noise of the authors' code."""
    calibrated = calibrated_parts(size)
    return [*calibrated, *(_with_published_noise(part) for part in calibrated if part.name in PUBLISHED_NOISE)]


def published_name(part: str) -> str:
    """The name of the part with published noise, whose epsilon is in its results.

    >>> published_name("titanic, epsilon 2")
    'titanic, published noise'
    """
    return f"{part.split(', epsilon')[0]}, published noise"


def _with_published_noise(part: Part) -> Part:
    return dataclasses.replace(
        part,
        name=published_name(part.name),
        boosted=dataclasses.replace(part.boosted, rounds=min(part.boosted.rounds, ROUNDS)),
        noise=PUBLISHED_NOISE[part.name],
        guarantee=us.Guarantee(COVERS, part.guarantee.delta),
    )


def calibrated_parts(size: Size) -> list[Part]:
    """Those with the least noise for their guarantee."""

    def with_steps(inner: DPGAN, steps: int) -> DPGAN:
        """Noise is the least that the guarantee needs for this many steps: less than published, at the same epsilon."""
        return dataclasses.replace(inner, noise_multiplier=None, steps=max(6, steps // size.shorter))

    def of(
        table: str, name: str, inner: DPGAN, guarantee: us.Guarantee, *, steps: int, alone: int, **settings: Any
    ) -> Part:
        game = {
            "checkpoints": size.checkpoints,
            "samples_per_generator": size.samples,
            "rounds": size.rounds,
            "checkpoint_every": None if size.checkpoints is None else 2,
            "window": None if size.rounds is None or "window" not in settings else size.rounds,
        }
        chosen = {**settings, **{name: value for name, value in game.items() if value is not None}}
        own = {key: chosen.pop(key) for key in ("proposals", "bins") if key in chosen}
        return Part(
            name=name,
            table=table,
            boosted=Boosted(with_steps(inner, steps), **chosen),
            gan=with_steps(inner, alone),
            guarantee=guarantee,
            seeds=size.seeds[table],
            max_rows=size.max_rows,
            **own,
        )

    not_private = us.Guarantee.not_private()
    one = us.Guarantee(1.0, 2e-5)
    usual: dict[str, Any] = {"checkpoints": 100, "samples_per_generator": 1000, "distinguishers": "none"}
    points: dict[str, Any] = {"checkpoints": 100, "samples_per_generator": 300, "proposals": 20_000, "bins": 72}
    own_gan = gaussians.own(gaussians.PROFILES["paper"]).inner
    assert isinstance(own_gan, DPGAN)
    text_gan = dataclasses.replace(PGB_GAUSSIANS, ema_decay=0.0)
    networks: dict[str, tuple[us.DPGAN, int, int]] = {
        "the text's": (text_gan, 8000, 8000),
        "the code's": (PGB_GAUSSIANS_PRIVATE, 12_250, 19_000),
    }
    networks["own"] = own_gan, 8000, 8000
    on_points = [
        of(
            "gaussians",
            f"gaussians, {nets} networks, {distinguishers}",
            inner,
            one,
            steps=steps,
            alone=alone,
            selection_fraction=0.1,
            rounds=1000,
            distinguishers={"critics": "none", "critics and cells": "one_way"}[distinguishers],
            **points,
        )
        for nets, (inner, steps, alone) in networks.items()
        for distinguishers in ("critics", "critics and cells")
    ]
    game: dict[str, Any] = {"learning_rate": "sqrt", "after_update": True}  # as in the authors' code
    return [
        of(
            "titanic",
            TITANIC,
            PGB_TITANIC,
            titanic.GUARANTEE,
            steps=2960,
            alone=4535,
            selection_fraction=0.2,
            **game,
            **{**usual, "samples_per_generator": 500},
        ),
        of(
            "titanic",
            "titanic, not private",
            dataclasses.replace(PGB_TITANIC, critic_learning_rate=0.001),
            not_private,
            steps=4535,
            alone=4535,
            **game,
            **{**usual, "samples_per_generator": 500},
        ),
        *on_points[:4],
        of(
            "census1940",
            CENSUS1940,
            PGB_CENSUS1940,
            us.Guarantee(1.0, 1 / (2 * 39_660)),
            steps=7945,
            alone=12_655,
            selection_fraction=0.2,
            **game,
            **{**usual, "checkpoints": 150},
        ),
        of(
            "census2010",
            CENSUS2010,
            dataclasses.replace(PGB_CENSUS2010, sampling_rate=500 / 295_243),
            us.Guarantee(census2010.EPSILON, 1 / (2 * 295_243)),
            steps=7445,
            alone=22_335,
            selection_fraction=0.1,
            averaging="last_window",
            window=150,
            **game,
            **{**usual, "checkpoints": 150, "samples_per_generator": 500},
        ),
        *on_points[4:],
        of(
            "gaussians",
            "gaussians, not private",
            text_gan,
            not_private,
            steps=10_000,
            alone=10_000,
            rounds=1000,
            distinguishers="none",
            **points,
        ),
    ]


# ---------------------------------------------------------------------------------------------------- tables and scores


def load(part: Part) -> tuple[pa.Table, us.Schema]:
    """Training rows, the same for all seeds, and what is declared about them."""
    if part.table == "titanic":
        found, layout = titanic._loaded()
        return found.train, layout.schema
    if part.table == "gaussians":
        whole = gaussians25()
        kept = np.random.default_rng(0).permutation(whole.train.num_rows)[: part.max_rows]
        rows = whole.train.take(np.sort(kept))
        return rows, dataclasses.replace(whole.schema, rows=rows.num_rows)
    if part.table == "census1940":
        train, _, schema = census1940.load("census1940_ca", 0, part.max_rows)
        return train, schema
    return census2010.load(part.max_rows)


def score(part: Part, seed: int, files: Mapping[str, Path]) -> dict[str, Any]:
    """The figures of every output; in a process of its own."""
    warnings.simplefilter("ignore")
    tables = {name: pq.read_table(file) for name, file in files.items()}
    if part.table == "titanic":
        judge = titanic.judge(seed)
        return {name: judge(table) for name, table in tables.items()}
    if part.table == "gaussians":
        keys = {"capped": "quality", "uncapped": "quality_uncapped", "modes": "modes"}
        found = {}
        for name, table in tables.items():
            xy = np.stack([table["x"].to_numpy(), table["y"].to_numpy()], axis=1)
            scores = gaussians.gaussian_quality(xy).scores
            found[name] = {short: scores[key].value for short, key in keys.items()}
        return found
    if part.table == "census1940":
        scored = census1940.scorer("census1940_ca", *census1940.load("census1940_ca", 0, part.max_rows), seed)
        return {name: scored(table) for name, table in tables.items()}
    table, schema = load(part)
    layout = census2010.Layout.of(table, schema)
    real = layout.read(table, "real rows")
    fakes = {name: layout.read(rows, name) for name, rows in tables.items()}
    found = {}
    for name, fake in fakes.items():
        cells = census2010.cell_accuracy(real, fake, census2010.CELLS).scores
        ratio = census2010.pmse_cart(real, fake, num_permutations=10, seed=seed).scores["pmse_cart_ratio"].value
        found[name] = {"pmse": ratio, "accuracy": 100 * cells["cell_accuracy"].value, "tv": cells["cell_tv"].value}
        found[name]["errors"] = (
            _cell_errors(real, fake, census2010.CELLS).round(1).tolist()
        )  # who wins a cell is seen later
    return found


# ----------------------------------------------------------------------------------------------------------------- runs


Outputs = Mapping[tuple[str, int], set[str]]
"""What has a line, by part and seed."""


def run_part(
    part: Part, wanted: Sequence[int], done: Outputs, scoring: Workers[dict[str, Any]], folder: Path
) -> Iterator[dict[str, Any]]:
    """One line for each of these seeds and each training that has none yet, as soon as it is scored."""
    from understudy.benchmark.population import fit_population
    from understudy.errors import UnderstudyWarning

    train, schema = load(part)
    binning = us.Binning(bins="uniform") if part.bins is None else us.Binning(bins="uniform", max_bins=part.bins)
    groups: list[tuple[Boosted, tuple[str, ...]]] = [(part.boosted, (*ALONE, *GAME))]
    if part.guarantee.is_private:
        # One checkpoint, at the end: the training is not cut into short pieces.
        alone = dataclasses.replace(part.boosted, inner=part.gan, checkpoints=1, checkpoint_every=part.gan.num_steps)
        groups = [(part.boosted, GAME), (alone, ALONE)]
    for boosted, outputs in groups:
        seeds = missing(done, part, wanted, outputs)
        if not seeds:
            continue
        began = time.monotonic()
        method: Any = core.OneTraining(boosted, outputs, part.proposals, part.noise)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnderstudyWarning)
            members = [(part.guarantee, seed) for seed in seeds]
            releases = fit_population(train, schema, method, members, binning=binning)
        seconds = time.monotonic() - began
        print(f"{part.name}: {len(seeds)} seeds of {', '.join(outputs[:2])} in {seconds:.0f} s", flush=True)
        for seed, release in zip(seeds, releases, strict=True):
            if isinstance(release, Exception):
                print(f"{part.name}, seed {seed}: {type(release).__name__}: {release}", file=sys.stderr, flush=True)
                continue
            files = write_samples(part, release, outputs, seed, folder)
            facts = {
                "part": part.name,
                "seed": seed,
                "outputs": list(outputs),
                "epsilon": release.statement.epsilon if math.isfinite(release.statement.epsilon) else None,
                "queries": [query.label for query in release.statement.queries],
                "method": express(boosted),
                "seconds": round(seconds / len(seeds), 1),
                "machine": core.machine(),
                "day": str(datetime.date.today()),
            }
            scoring.submit(facts, score, part, seed, files)
        for facts, figures in scoring.finished():
            if isinstance(figures, Failure):
                print(f"{part.name}, seed {facts['seed']}: {figures.reason}", file=sys.stderr, flush=True)
            else:
                yield facts | {"figures": figures}


def write_samples(part: Part, release: us.Release, outputs: Sequence[str], seed: int, folder: Path) -> dict[str, Path]:
    models: Any = release.model
    num_rows = {"titanic": titanic.ROWS, "gaussians": gaussians.POINTS}.get(part.table)
    files = {}
    for number, name in enumerate(outputs):
        rows = dataclasses.replace(release, model=models[name]).sample_arrow(num_rows, seed=seed)
        files[name] = folder / f"{abs(hash(part.name))}_{seed}_{number}.parquet"
        pq.write_table(rows, files[name])
    return files


def finished(file: Path) -> Outputs:
    """The outputs that a result file has."""
    found: dict[tuple[str, int], set[str]] = {}
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            known = json.loads(line)
        except json.JSONDecodeError:  # the last line of a run that was killed
            continue
        found.setdefault((known["part"], known["seed"]), set()).update(known["outputs"])
    return found


def missing(done: Outputs, part: Part, seeds: Sequence[int], outputs: Sequence[str] = (*ALONE, *GAME)) -> list[int]:
    """The seeds of a part that lack one of these outputs."""
    return [seed for seed in seeds if not {*outputs} <= done.get((part.name, seed), set())]


def run(part: Part, wanted: Sequence[int], folder: Path, workers: int) -> None:
    file = folder / f"{NAME}.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, Workers[dict[str, Any]](workers, use_one_core) as scoring:
        for line in run_part(part, wanted, finished(file), scoring, Path(scratch)):
            with file.open("a") as out:  # one write of one line: processes may share the file
                out.write(json.dumps(line) + "\n")


def blocks(chosen: Sequence[Part], size: int) -> list[tuple[Part, list[int]]]:
    """The first seeds of every part, then the next ones: a run that is cut short has some of each."""
    most = max(part.seeds for part in chosen)
    return [
        (part, list(range(first, min(first + size, part.seeds))))
        for first in range(0, most, size)
        for part in chosen
        if first < part.seeds
    ]


def run_apart(tasks: Sequence[tuple[Part, list[int]]], words: Sequence[str], jobs: int, end: float) -> None:
    """Each block in a process of its own, `jobs` at a time; none is begun, and none goes on, after `end`."""
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    environment.setdefault("JAX_COMPILATION_CACHE_DIR", tempfile.mkdtemp())  # blocks of one part are one program
    environment.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "1")
    waiting, running = list(tasks), list[subprocess.Popen[bytes]]()
    try:
        while waiting or running:
            running = [process for process in running if process.poll() is None]
            while waiting and len(running) < jobs and time.monotonic() < end:
                part, seeds = waiting.pop(0)
                command = [sys.executable, __file__, *words, "--parts", part.name, "--only", *map(str, seeds)]
                running.append(subprocess.Popen(command, env=environment))
            if time.monotonic() >= end:
                print(f"Time is up: {len(running)} blocks are cut, {len(waiting)} not begun.", file=sys.stderr)
                return
            time.sleep(1)
    finally:
        for process in running:
            process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", choices=list(SIZES), default="smoke")
    parser.add_argument("--parts", nargs="+", help="these parts alone; --list names them")
    parser.add_argument("--list", action="store_true", help="name the parts, in the order of importance")
    parser.add_argument("--seeds", type=int, help="seeds of each part, instead of the profile's")
    parser.add_argument("--only", type=int, nargs="+", metavar="SEED", help="these seeds alone, in this process")
    parser.add_argument("--block", type=int, default=5, help="seeds that are trained as one program")
    parser.add_argument(
        "--folder", type=Path, help=f"where {NAME}.jsonl is; left out: benchmarks/results (smoke: nothing is kept)"
    )
    parser.add_argument("--jobs", type=int, default=1, help="blocks of seeds at once, each in a process of its own")
    parser.add_argument("--workers", type=int, default=2, help="scores at once, of each block")
    parser.add_argument("--limit-seconds", type=float, default=math.inf)
    found = parser.parse_args()
    known = parts(SIZES[found.profile])
    if found.list:
        print("\n".join(f"{part.name}: {part.seeds} seeds, {express(part.boosted)}" for part in known))
        return
    if unknown := {*(found.parts or ())} - {part.name for part in known}:
        raise ConfigError(f"There is no part {', '.join(sorted(unknown))}. --list names them.")
    chosen = [part for part in known if not found.parts or part.name in found.parts]
    if found.profile == "smoke" and not found.parts:
        chosen = list({part.table: part for part in reversed(known)}.values())  # one of each table
    if found.seeds:
        chosen = [dataclasses.replace(part, seeds=found.seeds) for part in chosen]
    sources = {"titanic": "titanic", "census1940": "census1940_ca", "census2010": "acs_income_2018"}
    require_tables(sorted({sources[part.table] for part in chosen if part.table in sources}))
    with contextlib.ExitStack() as stack:
        scratch = found.folder is None and found.profile == "smoke"
        nowhere = Path(stack.enter_context(tempfile.TemporaryDirectory())) if scratch else core.RESULTS
        run_parts(found, chosen, found.folder or nowhere)


def run_parts(found: argparse.Namespace, chosen: Sequence[Part], folder: Path) -> None:
    """In this process, or block by block in others; what has a line in the folder's file is not run again."""
    if found.only is not None:
        for part in chosen:
            run(part, found.only, folder, found.workers)
        return
    words = ["--profile", found.profile, "--folder", str(folder), "--workers", str(found.workers)]
    done = finished(folder / f"{NAME}.jsonl")
    tasks = [(part, seeds) for part, seeds in blocks(chosen, found.block) if missing(done, part, seeds)]
    if not tasks:
        print(f"All of these have results in {folder.name}. Give another --folder to run them again.")
    run_apart(tasks, words, found.jobs, time.monotonic() + found.limit_seconds)


if __name__ == "__main__":
    run_script(main)
