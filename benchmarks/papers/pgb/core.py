"""What the experiments of the boosting paper share: one training for several outputs, and how results are written.

Neunhoeffer, Wu and Dwork, "Private Post-GAN Boosting", 2021. The outputs are GAN (the last generator), DRS (its rows
rejected by the last critic), PGB (boosted rows) and PGB+DRS (boosted rows rejected by the mixture of selected critics).
Without privacy all four come from one training. With privacy GAN and DRS have the whole budget, and PGB and PGB+DRS
share one other training and one game: what was charged once is used twice.
"""

import argparse
import dataclasses
import datetime
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float, PRNGKeyArray

import understudy as us
from benchmarks.papers.command import require_tables
from understudy.models.pool import Pool
from understudy.privacy.accounting.events import Event, Selections, SubsampledGaussian
from understudy.privacy.accounting.ledger import Budget, Plan
from understudy.schema import Domain
from understudy.synthesizers.boosted import Boosted
from understudy.synthesizers.boosted.game import Outcome, Select, reject_exactly
from understudy.synthesizers.boosted.method import DRS
from understudy.synthesizers.dpgan import DPGAN
from understudy.synthesizers.protocol import Capabilities, HasTrajectory
from understudy.synthesizers.run import Run
from understudy.training.trajectory import Trajectory

ROOT = Path(__file__).parents[3]
RESULTS, IMAGES = ROOT / "benchmarks/results", ROOT / "docs/images"
OUTPUTS = ("GAN", "DRS", "PGB", "PGB+DRS")
VARIANTS = ("pool", "distinct", "pool x odds", "PGB+DRS of draws", "PGB x odds")
"""More outputs of the same game, to see which step of PGB+DRS changes what: the pool is not boosted, odds are exact."""
AS_PUBLISHED: dict[str, Any] = {"features": "typed", "arch": "plain", "marginals_fraction": 0.0, "marginal_weight": 0.0}
"""Numbers as numbers and plain networks; no marginals are measured."""
BINNING = us.Binning(bins="uniform")
"""Bins are not estimated either."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Profile:
    """How large a run is."""

    seeds: int
    steps: int
    checkpoints: int
    every: int
    samples_per_generator: int
    rounds: int
    proposals: int
    """Rows of the last generator among which DRS chooses."""
    max_rows: int | None = None
    """Real rows that are used; None: all."""
    minutes: float | None = None
    """No repetition begins later than this."""
    kinds: tuple[str, ...] = ()
    """Which parts of the experiment are run, where it has several; empty: all."""

    def boosted(self, inner: DPGAN, *, share: float = 0.2, **settings: Any) -> Boosted:
        sizes: dict[str, Any] = {"rounds": self.rounds, "checkpoints": self.checkpoints}
        sizes["checkpoint_every"] = self.every
        sizes["samples_per_generator"] = self.samples_per_generator
        return Boosted(inner, selection_fraction=share, **{**sizes, **settings})


# ------------------------------------------------------------------------------------------------------------ trainings


def trained(
    table: pa.Table,
    boosted: Boosted,
    guarantee: us.Guarantee,
    *,
    schema: us.Schema,
    seed: int,
    proposals: int,
    outputs: Sequence[str] = OUTPUTS,
    binning: us.Binning = BINNING,
) -> dict[str, us.Release]:
    """A release for each output, by one training, or two where GAN is not charged for selections. Seeded runs."""
    groups = [tuple(outputs)]
    if guarantee.is_private:
        groups = [tuple(name for name in outputs if (name in ("GAN", "DRS")) == alone) for alone in (True, False)]
    found: dict[str, us.Release] = {}
    for group in filter(None, groups):
        method: Any = OneTraining(boosted, group, proposals)  # its model is a dict of models
        release = us.fit(table, method, guarantee, schema=schema, binning=binning, seed=seed)
        models: Any = release.model
        found |= {name: dataclasses.replace(release, model=models[name]) for name in group}
    return {name: found[name] for name in outputs}


@dataclasses.dataclass(frozen=True)
class PublishedNoise:
    """A paper's noise instead of the least noise that the budget allows; the certificate states its privacy cost."""

    critic: float
    """The noise multiplier of a critic step."""
    selection: float
    """Epsilon of one selection by the paper's accounting, under replacement of a row. Under add-or-remove the same
    selection costs half of it."""

    def apply(self, plan: Plan) -> Plan:
        """The same queries with this noise; the notes of the plan are about other noise, and are left out."""
        return Plan(tuple(dataclasses.replace(query, event=self._event(query.event)) for query in plan.queries))

    def _event(self, event: Event) -> Event:
        if isinstance(event, SubsampledGaussian):
            return dataclasses.replace(event, noise_multiplier=self.critic)
        assert isinstance(event, Selections)
        return dataclasses.replace(event, epsilon=self.selection / 2)


def best_response(real_means: Float[np.ndarray, " distinguishers"]) -> Select:
    """The selection without privacy, for public rows: the distinguisher with the largest gain, the first on ties."""
    return lambda means: int(np.argmax(real_means + 1.0 - means))


@dataclasses.dataclass(frozen=True)
class OneTraining:
    """A method for `us.fit` that trains once and makes several models of it."""

    boosted: Boosted
    outputs: tuple[str, ...]
    proposals: int
    noise: PublishedNoise | None = None
    """None: the least noise for the budget."""

    @property
    def capabilities(self) -> Capabilities:
        return self.boosted.capabilities

    @property
    def picks(self) -> bool:
        return any("PGB" in name or name in VARIANTS for name in self.outputs)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        plan = self.boosted.plan(domain, budget) if self.picks else self.boosted.inner.plan(domain, budget)
        return plan if self.noise is None else self.noise.apply(plan)

    def fit(self, run: Run) -> dict[str, Any]:
        """Formal guarantee: the cost of the plan's queries. All that follows from one trajectory and one sequence of
        picks is post-processing of both."""
        once, models = _Once(self.boosted.inner, self.boosted.checkpoint_every), dict[str, Any]()
        if self.picks:
            settings = {field.name: getattr(self.boosted, field.name) for field in dataclasses.fields(Boosted)}
            both: Any = _Both(**{**settings, "inner": once}).fit(run)
            models |= both
        if "DRS" in self.outputs:
            models["DRS"] = DRS(once, proposals=self.proposals).fit(run)
        if "GAN" in self.outputs:
            models["GAN"] = once.last(run)
        return models


class _Both(Boosted):
    """The boosted rows, and what rejection makes of them, in several ways."""

    def _model(self, pool: Pool, outcome: Outcome, key: PRNGKeyArray) -> Any:
        def with_settings(**settings: Any) -> Pool:
            return Boosted._model(dataclasses.replace(self, **settings), pool, outcome, key)

        flat = np.full(len(pool.weights), 1 / len(pool.weights))
        return {
            "PGB": super()._model(pool, outcome, key),
            "PGB+DRS": with_settings(drs=True),
            "pool": dataclasses.replace(pool, weights=flat),
            "distinct": with_settings(output="distinct"),
            "pool x odds": dataclasses.replace(pool, weights=reject_exactly(flat, outcome.mixture)),
            "PGB+DRS of draws": with_settings(drs=True, rejection="draws"),
            "PGB x odds": with_settings(drs=True, rejection="exact"),
        }


class _Once:
    """A method that trains when it is first asked, and then hands out what that training left.

    Always in stretches of `every` steps, whatever is asked for: one compiled program serves all outputs.
    """

    def __init__(self, inner: HasTrajectory, every: int):
        self._inner, self._every, self._made = inner, every, list[Trajectory]()
        self.capabilities = inner.capabilities

    def fit(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("only its trajectory is used")

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        return self._inner.plan(domain, budget)

    def num_checkpoints(self, every: int) -> int:
        return self._inner.num_checkpoints(every)

    def trajectory(self, run: Run, *, checkpoints: int, every: int) -> Trajectory:
        if not self._made:
            self._made.append(self._inner.trajectory(run, checkpoints=checkpoints, every=self._every))
        whole = self._made[0]

        def last_critics(shown: np.ndarray) -> np.ndarray:
            assert whole.critics is not None
            return whole.critics(shown)[:, -checkpoints:]

        def last_fast_critics(shown: np.ndarray) -> np.ndarray:
            assert whole.fast_critics is not None
            return whole.fast_critics(shown)[:, -checkpoints:]

        fast = None if whole.fast_critics is None else last_fast_critics
        return dataclasses.replace(whole, models=whole.models[-checkpoints:], critics=last_critics, fast_critics=fast)

    def last(self, run: Run) -> Any:
        return self.trajectory(run, checkpoints=1, every=self._every).models[-1]


# ---------------------------------------------------------------------------------------------------------------- pages


def arguments(about: str, profiles: Mapping[str, Profile]) -> tuple[argparse.Namespace, Profile]:
    """What the command line says, and the profile it means."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--profile", choices=list(profiles), default="smoke")
    parser.add_argument("--seeds", type=int, help="number of repetitions, instead of the profile's")
    parser.add_argument("--minutes", type=float, help="start no repetition after this many minutes")
    parser.add_argument("--kinds", nargs="+", help="these parts of the experiment instead of all")
    parser.add_argument("--append", action="store_true", help="go on after the repetitions in the result file")
    parser.add_argument("--only", type=int, nargs="+", metavar="SEED", help="these repetitions alone, for --part")
    parser.add_argument("--part", type=Path, help="add the repetitions of --only to this file, and stop")
    parser.add_argument("--gather", type=Path, nargs="+", help="no run: make the page of these parts")
    parser.add_argument("--write", action="store_true", help="write the result file, and the picture if there is one")
    found = parser.parse_args()
    changes = {name: value for name in ("seeds", "minutes", "kinds") if (value := getattr(found, name)) is not None}
    return found, dataclasses.replace(profiles[found.profile], **changes)


def repetitions(
    profile: Profile, one: Callable[[int], dict[str, Any]], earlier: Sequence[dict[str, Any]] = ()
) -> Iterator[list[dict[str, Any]]]:
    """All repetitions so far, after each of them, with its seed and seconds."""
    began, results = time.monotonic(), list(earlier)
    for seed in range(len(results), profile.seeds):
        started = time.monotonic()
        if len(results) > len(earlier) and profile.minutes is not None and started - began > 60 * profile.minutes:
            return
        found = one(seed)
        results.append({"seed": seed, "seconds": round(time.monotonic() - started), "machine": machine(), **found})
        yield results


def gathered(parts: Sequence[Path]) -> list[dict[str, Any]]:
    """Repetitions that were run apart, and parts of one repetition brought together."""
    results: dict[int, dict[str, Any]] = {}
    for line in (line for part in parts for line in part.read_text().splitlines()):
        found = json.loads(line)
        whole = results.setdefault(found["seed"], {"seconds": 0})
        whole |= {**found, "seconds": whole["seconds"] + found["seconds"]}
    return [results[seed] for seed in sorted(results)]


def machine() -> str:
    """The machine, as text."""
    import jax

    device = jax.devices()[0].device_kind
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    shown = f"{cores} CPU core{'s' * (cores != 1)}" if device == "cpu" else device
    return f"{platform.machine()}, {shown}, Python {platform.python_version()}"


def run(
    module: str,
    about: str,
    profiles: Mapping[str, Profile],
    one: Callable[[Profile, int], dict[str, Any]],
    page: Callable[[Profile, Sequence[Mapping[str, Any]]], str],
    wrote: Callable[[Sequence[Mapping[str, Any]]], None] = lambda results: None,
    *,
    tables: Sequence[str] = (),
) -> None:
    """The command line of an experiment on one table. Results are written after every repetition.

    Without one of `tables` it runs nothing.
    """
    found, profile = arguments(about, profiles)
    require_tables(tables)
    if found.part:
        for seed in found.only or range(profile.seeds):

            def this(_: int, seed: int = seed) -> dict[str, Any]:
                return one(profile, seed)

            *_, results = repetitions(dataclasses.replace(profile, seeds=1), this)
            with found.part.open("a") as part:
                part.write(json.dumps({**results[0], "seed": seed}) + "\n")
        return
    if found.gather:
        results = gathered(found.gather)
        text = page(profile, results)
        if found.write:
            write(f"pgb_{module}", text, results)
            wrote(results)
        print(text)
        return
    file = RESULTS / f"pgb_{module}.jsonl"
    earlier = [json.loads(line) for line in file.read_text().splitlines()] if found.append and file.exists() else []
    text = ""
    for results in repetitions(profile, lambda seed: one(profile, seed), earlier):
        text = page(profile, results)
        print(f"seed {results[-1]['seed']}: {results[-1]['seconds']} s", flush=True)
        if found.write:
            write(f"pgb_{module}", text, results)
            wrote(results)
    print(text)


def write(name: str, page: str, results: Sequence[Mapping[str, Any]]) -> None:
    """The page, and beside it every figure as it came."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.md").write_text(page)
    (RESULTS / f"{name}.jsonl").write_text("".join(json.dumps(_figures(result)) + "\n" for result in results))


def _figures(result: Any) -> Any:
    """All but points, which are for pictures."""
    if not isinstance(result, dict):
        return result
    return {key: _figures(value) for key, value in result.items() if key != "points"}


def provenance(module: str, results: Sequence[Mapping[str, Any]]) -> str:
    """The command, the day, the machine, and the seeds."""
    words = [word for word in sys.argv[1:] if word != "--write"]
    if "--gather" in words:
        words = [*words[: words.index("--gather")], "--only", "SEED", "--part", "FILE"]
    command = shlex.join(["python", f"benchmarks/papers/pgb/{module}.py", *words])
    seeds, seconds = [result["seed"] for result in results], np.mean([result["seconds"] for result in results])
    where = " and ".join(sorted({result.get("machine", f"{platform.machine()}, shared") for result in results}))
    return (
        f"`{command}`, {datetime.date.today()}, {where}; seeds {seeds[0]} to {seeds[-1]}, {seconds:.0f} seconds each "
        "on average. Seeded runs on public data."
    )


def sizes(profile: Profile) -> str:
    rows = "all rows" if profile.max_rows is None else f"at most {profile.max_rows:,} rows"
    return (
        f"{profile.steps:,} critic steps, the last {profile.checkpoints} checkpoints (every {profile.every} steps), "
        f"{profile.samples_per_generator:,} rows of each, {profile.rounds} rounds; DRS chooses among "
        f"{profile.proposals:,} rows; {rows}."
    )


def table_of(header: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    """A Markdown table; numbers to the right."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(map(_shown, line)) + " |" for line in [header, rule, *lines])


def _shown(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else "" if value is None else str(value)


def median(results: Sequence[Mapping[str, Any]], *path: str) -> float:
    """Over the repetitions that have it, of the figure at this place."""
    return float(np.median([figure(result, *path) for result in results if path[0] in result]))


def figure(result: Any, *path: str) -> Any:
    for step in path:
        result = result[step]
    return result


COLOURS = ("#222222", "#c0392b", "#e08e0b", "#2471a3", "#1e8449", "#8e44ad", "#17a2a2")


def parallel(series: Mapping[str, Sequence[float]], labels: Sequence[str], title: str) -> str:
    """Lines over the same places as a small SVG: the first, for real rows, thick."""
    width, height, left, top, right, bottom = 760, 380, 60, 40, 120, 110
    values = np.asarray(list(series.values()), dtype=float)
    low, high = float(values.min()), float(values.max())
    low, high = low - 0.05 * (high - low), high + 0.05 * (high - low) + 1e-9
    xs = np.linspace(left, width - right, len(labels))
    ys = top + (height - top - bottom) * (high - values) / (high - low)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="11"><rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{left}" y="20" font-size="13">{title}</text>',
    ]
    for value in np.linspace(low, high, 5):
        y = top + (height - top - bottom) * (high - value) / (high - low)
        parts.append(f'<line x1="{left}" x2="{width - right}" y1="{y:.0f}" y2="{y:.0f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.0f}" text-anchor="end">{value:.4g}</text>')
    for x, label in zip(xs, labels, strict=True):
        parts.append(
            f'<text transform="translate({x:.0f},{height - bottom + 14}) rotate(35)" font-size="9">{label}</text>'
        )
    for number, (name, line) in enumerate(zip(series, ys, strict=True)):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{x:.0f},{y:.1f}" for x, y in zip(xs, line, strict=True))
        stroke = f'stroke="{colour}" stroke-width="{2.5 if number == 0 else 1.3}"'
        parts.append(f'<polyline points="{points}" fill="none" {stroke}/>')
        y = top + 12 + 16 * number
        parts.append(f'<line x1="{width - right + 10}" x2="{width - right + 28}" y1="{y - 4}" y2="{y - 4}" {stroke}/>')
        parts.append(f'<text x="{width - right + 32}" y="{y}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
