"""What the experiments of the QUAIL paper share: how labels are scored, learners alone, and how results are written.

Rosenblatt et al., "Differentially private synthetic data: applied evaluations and enhancements", 2020. The paper's
public library is no part of these runs: all methods and learners are this package's, on one accountant.
"""

import argparse
import dataclasses
import datetime
import json
import os
import platform
import shlex
import struct
import sys
import warnings
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pyarrow as pa

import understudy as us
from benchmarks.papers.experiment import Line, Public
from benchmarks.simulated import made_classes
from understudy.encoding import Codec, fit_codec
from understudy.learners.methods import Learner
from understudy.models.predictors import Predictor
from understudy.privacy.mechanisms.discovery import plan_discovery
from understudy.privacy.noise.source import SeededNoise
from understudy.privacy.rows.table import PrivateTable
from understudy.synthesizers.run import Run
from understudy.tables import conform

ROOT = Path(__file__).parents[3]
RESULTS, IMAGES = ROOT / "benchmarks/results", ROOT / "docs/images"
BINNING = us.Binning(bins="uniform")
"""Bins of equal width between public bounds: nothing is estimated for them."""
DELTA = 1e-5
INNER = ("patectgan", "mwem", "dpctgan", "dpgan", "pategan")
"""The paper's five synthesizers, with this package's default settings."""
ALONE = "learner alone"
"""The method, and the expression, of a cell whose learner has the whole budget and no synthesizer."""

# --------------------------------------------------------------------------------------------------------------- scores


def classifiers(seed: int, names: Sequence[str] = ("lr", "gb", "rf")) -> list[Any]:
    """Those that are trained on synthetic rows."""
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    known = {
        "lr": lambda: LogisticRegression(max_iter=1000),
        "gb": lambda: HistGradientBoostingClassifier(random_state=seed),
        "rf": lambda: RandomForestClassifier(n_estimators=100, min_samples_leaf=5, random_state=seed),
    }
    return [known[name]() for name in names]


def tstr_f1(
    train: pa.Table,
    test: pa.Table,
    fake: pa.Table,
    target: str,
    *,
    seed: int = 0,
    models: Sequence[str] = ("lr", "gb", "rf"),
) -> float:
    """Classifiers trained on synthetic rows, tested on real ones: their mean F1.

    Of the rarer real class where there are two, else the mean over all classes. Numbers are standardised and the others
    one-hot, by the real training table, so that no synthetic table changes the features.
    """
    real, held, made = (table.to_pandas() for table in (train, test, fake))
    inputs = features(real, target)
    labels, wanted = made[target].astype(str).to_numpy(), held[target].astype(str).to_numpy()
    found = []
    for model in classifiers(seed, models):
        if len(set(labels)) < 2:
            guesses = np.full(len(wanted), labels[0])
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                guesses = model.fit(inputs(made), labels).predict(inputs(held))
        found.append(f1_of(wanted, guesses, sorted(set(real[target].astype(str)))))
    return float(np.mean(found))


def tstr_scores(public: Public, fake: pa.Table, *, seed: int = 0, model: str = "rf") -> dict[str, float]:
    """F1 and AUC on real test rows of one classifier that was trained on synthetic rows."""
    target = str(public.schema.target)
    real, held, made = (table.to_pandas() for table in (public.train, public.test, fake))
    inputs = features(real, target)
    labels, wanted = made[target].astype(str).to_numpy(), held[target].astype(str).to_numpy()
    classes = sorted(set(real[target].astype(str)))
    if len(set(labels)) < 2:
        return {"f1": f1_of(wanted, np.full(len(wanted), labels[0]), classes), "auc": 0.5}
    fitted = classifiers(seed, (model,))[0].fit(inputs(made), labels)
    chances = np.zeros((len(wanted), len(classes)))
    chances[:, [classes.index(label) for label in fitted.classes_]] = fitted.predict_proba(inputs(held))
    guesses = np.asarray(classes)[chances.argmax(axis=1)]
    return {"f1": f1_of(wanted, guesses, classes), "auc": auc_of(wanted, chances, classes)}


def auc_of(wanted: np.ndarray, chances: np.ndarray, classes: Sequence[Any]) -> float:
    """The area under the ROC curve of each class against the others, and their mean over the classes that occur."""
    from sklearn.metrics import roc_auc_score

    found = [
        roc_auc_score(wanted == label, chances[:, at])
        for at, label in enumerate(classes)
        if (wanted == label).sum() > 0
    ]
    return float(np.mean(found))


def f1_of(wanted: np.ndarray, guesses: np.ndarray, classes: Sequence[Any]) -> float:
    from sklearn.metrics import f1_score

    if len(classes) == 2:
        rare = min(classes, key=lambda label: (wanted == label).sum())
        return float(f1_score(wanted, guesses, pos_label=rare, zero_division=0))
    return float(f1_score(wanted, guesses, labels=list(classes), average="macro", zero_division=0))


def _texts(values: pd.Series) -> pd.Series:
    """A missing value is a value of its own."""
    return values.astype(object).where(values.notna(), "missing").astype(str)


def features(real: pd.DataFrame, target: str) -> Any:
    numbers = [name for name in real if name != target and pd.api.types.is_numeric_dtype(real[name])]
    others = [name for name in real if name != target and name not in numbers]
    levels = {name: sorted(_texts(real[name]).unique()) for name in others}
    mean, spread = real[numbers].mean(), real[numbers].std().replace(0, 1)

    def inputs(table: pd.DataFrame) -> np.ndarray:
        parts = [((table[numbers] - mean) / spread).fillna(0.0).to_numpy()]
        parts += [
            (_texts(table[name]).to_numpy()[:, None] == np.asarray(levels[name])).astype(float) for name in others
        ]
        return np.concatenate(parts, axis=1)

    return inputs


# ------------------------------------------------------------------------------------------------------------- learners


@dataclasses.dataclass(frozen=True)
class Learned:
    """A learner by itself, with the whole budget, on real rows."""

    model: Predictor
    codec: Codec

    def f1(self, test: pa.Table) -> float:
        codes, places = self.codec.encode(test), self.codec.positions(test)
        assert self.codec.schema.target is not None
        at = self.codec.domain.index(self.codec.schema.target)
        guesses: Any = self.model.predict(codes, places)
        return f1_of(codes[:, at], guesses, range(self.codec.domain.sizes[at]))

    def scores(self, test: pa.Table) -> dict[str, float]:
        """F1 and AUC on real rows."""
        codes, places = self.codec.encode(test), self.codec.positions(test)
        at = self.codec.domain.index(str(self.codec.schema.target))
        chances = np.asarray(self.model.predict_proba(codes, places))  # type: ignore[union-attr]
        classes = range(self.codec.domain.sizes[at])
        return {
            "f1": f1_of(codes[:, at], chances.argmax(axis=1), classes),
            "auc": auc_of(codes[:, at], chances, classes),
        }


def learned(table: pa.Table, learner: Learner, guarantee: us.Guarantee, *, schema: us.Schema, seed: int) -> Learned:
    """Seeded: for public data."""
    ledger = us.Ledger(guarantee, noise=SeededNoise(seed))
    buying = plan_discovery(schema, ledger.remaining, BINNING)
    codec, rows = fit_codec(PrivateTable(conform(table, schema)), schema, buying, ledger, BINNING)
    plan = learner.plan(codec.domain, ledger.remaining)
    return Learned(learner.fit(Run(rows, plan, ledger, key=jax.random.key(seed))), codec)


# --------------------------------------------------------------------------------------------------------------- tables


def load_classes(name: str, seed: int) -> Public:
    """`classes_10000`: scikit-learn's made classes, 10,000 training and 5,000 test rows; one table per seed."""
    return Public(*made_classes(int(name.removeprefix("classes_")), seed=seed))


def no_table(public: Public, seed: int) -> pa.Table:
    """In place of synthetic rows, for a learner alone: it has none."""
    return public.train.slice(0, 0)


# ---------------------------------------------------------------------------------------------------------------- pages


def mean_of(lines: Sequence[Line], score: str, **which: Any) -> float | None:
    """The mean of a score over all lines with these values; None where there is none."""
    found = values_of(lines, score, **which)
    return float(np.mean(found)) if found else None


def values_of(lines: Sequence[Line], score: str, **which: Any) -> list[float]:
    return [
        float(line["scores"][score])
        for line in lines
        if score in line["scores"] and all(line[name] == value for name, value in which.items())
    ]


def seeds_of(lines: Sequence[Line]) -> str:
    """How often the cells were repeated: 10, or 3 to 10."""
    counts: dict[tuple[str, str, float], int] = {}
    for line in lines:
        at = (line["table"], line["method"], line["epsilon"])
        counts[at] = counts.get(at, 0) + 1
    low, high = (min(counts.values()), max(counts.values())) if counts else (0, 0)
    return str(high) if low == high else f"{low} to {high}"


def arguments(about: str, profiles: Sequence[str] = ("smoke", "paper")) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--profile", choices=list(profiles), default="smoke")
    parser.add_argument("--append", action="store_true", help="go on after the cells in the result file")
    parser.add_argument("--write", action="store_true", help="write the result file, and the picture if there is one")
    return parser.parse_args()


def provenance(module: str) -> str:
    """The command, the day and the machine."""
    device = jax.devices()[0].device_kind
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    shown = f"{cores} shared CPU cores" if device == "cpu" else device
    words = [word for word in sys.argv[1:] if word not in ("--write", "--append")]
    command = shlex.join(["python", f"benchmarks/papers/quail/{module}.py", *words])
    return (
        f"`{command}`, {datetime.date.today()}, {platform.machine()}, {shown}, Python {platform.python_version()}. "
        f"Seeded runs on public data; delta {DELTA:g}."
    )


def earlier(name: str) -> list[dict[str, Any]]:
    """The cells of a result file."""
    file = RESULTS / f"quail_{name}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def write(name: str, page: str, results: Sequence[Mapping[str, Any]]) -> None:
    """The page, and beside it every figure as it came."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"quail_{name}.md").write_text(page)
    (RESULTS / f"quail_{name}.jsonl").write_text("".join(json.dumps(result) + "\n" for result in results))


def table_of(header: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    """A Markdown table; numbers to the right."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(map(_shown, line)) + " |" for line in [header, rule, *lines])


def _shown(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else "" if value is None else str(value)


# ------------------------------------------------------------------------------------------------------------- pictures


COLOURS = ("#222222", "#c0392b", "#e08e0b", "#2471a3", "#1e8449", "#8e44ad", "#17a2a2", "#7f8c8d", "#d35400", "#2c3e50")


def lines_svg(series: Mapping[str, Sequence[float]], places: Sequence[str], title: str, *, across: str, up: str) -> str:
    """Lines over named places as a small SVG."""
    width, height, left, top, right, bottom = 640, 320, 60, 40, 170, 50
    values = np.asarray(list(series.values()), dtype=float)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    low, high = low - 0.05 * (high - low) - 1e-9, high + 0.05 * (high - low) + 1e-9
    xs = np.linspace(left + 10, width - right - 10, len(places))
    parts = [_head(width, height, title)]
    for value in np.linspace(low, high, 5):
        y = top + (height - top - bottom) * (high - value) / (high - low)
        parts.append(f'<line x1="{left}" x2="{width - right}" y1="{y:.0f}" y2="{y:.0f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.0f}" text-anchor="end">{value:.3g}</text>')
    for x, place in zip(xs, places, strict=True):
        parts.append(f'<text x="{x:.0f}" y="{height - bottom + 16}" text-anchor="middle">{place}</text>')
    parts.append(f'<text x="{(left + width - right) / 2:.0f}" y="{height - 12}" text-anchor="middle">{across}</text>')
    middle = (top + height - bottom) / 2
    parts.append(f'<text transform="translate(14,{middle:.0f}) rotate(-90)" text-anchor="middle">{up}</text>')
    for number, (name, line) in enumerate(series.items()):
        ys = top + (height - top - bottom) * (high - np.asarray(line, dtype=float)) / (high - low)
        colour = COLOURS[number % len(COLOURS)]
        shown = [(x, y) for x, y in zip(xs, ys, strict=True) if np.isfinite(y)]
        points = " ".join(f"{x:.0f},{y:.1f}" for x, y in shown)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        parts += [f'<circle cx="{x:.0f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in shown]
        y = top + 12 + 16 * number
        parts.append(f'<rect x="{width - right + 10}" y="{y - 9}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{width - right + 26}" y="{y}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def heat_svg(panels: Mapping[str, np.ndarray], down: Sequence[str], across: Sequence[str], title: str) -> str:
    """Grids of numbers side by side: blue below zero, red above, empty for NaN; a grid of NaN alone is left out."""
    cell, left, top, gap = 58, 72, 74, 34
    panels = {name: grid for name, grid in panels.items() if np.isfinite(grid).any()}
    span = max((float(np.nanmax(np.abs(grid))) for grid in panels.values()), default=0.0) or 1.0
    width = left + len(panels) * (len(across) * cell + gap)
    parts = [_head(width, top + len(down) * cell + 40, title)]
    for number, (name, grid) in enumerate(panels.items()):
        x0 = left + number * (len(across) * cell + gap)
        parts.append(f'<text x="{x0 + len(across) * cell / 2:.0f}" y="{top - 24}" text-anchor="middle">{name}</text>')
        for column, word in enumerate(across):
            parts.append(f'<text x="{x0 + (column + 0.5) * cell:.0f}" y="{top - 6}" text-anchor="middle">{word}</text>')
        for line, word in enumerate(down):
            y = top + line * cell
            if number == 0:
                parts.append(f'<text x="{x0 - 6}" y="{y + cell / 2 + 4:.0f}" text-anchor="end">{word}</text>')
            for column in range(len(across)):
                value = float(grid[line, column])
                if np.isnan(value):
                    continue
                pale = round(255 * (1 - 0.75 * min(1.0, abs(value) / span)))
                colour = f"rgb({pale},{pale},255)" if value < 0 else f"rgb(255,{pale},{pale})"
                x = x0 + column * cell
                parts.append(f'<rect x="{x}" y="{y}" width="{cell}" height="{cell}" fill="{colour}" stroke="white"/>')
                parts.append(
                    f'<text x="{x + cell / 2:.0f}" y="{y + cell / 2 + 4:.0f}" text-anchor="middle">{value:+.3f}</text>'
                )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _head(width: int, height: int, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="11"><rect width="{width}" height="{height}" fill="white"/>'
        f'<text x="12" y="20" font-size="13">{title}</text>'
    )


def scatter_png(panels: Sequence[tuple[np.ndarray, np.ndarray]], side: int = 320) -> bytes:
    """Points coloured by label, panels side by side, as a small PNG."""
    canvas = np.full((side, len(panels) * side, 3), 255, dtype=np.uint8)
    for number, (points, labels) in enumerate(panels):
        low, high = points.min(axis=0), points.max(axis=0)
        at = ((points - low) / np.maximum(high - low, 1e-9) * (side - 9) + 4).astype(int)
        for (x, y), label in zip(at, labels, strict=True):
            colour = COLOURS[int(label) % len(COLOURS)]
            shade = [int(colour[start : start + 2], 16) for start in (1, 3, 5)]
            canvas[side - y - 3 : side - y, number * side + x : number * side + x + 3] = shade
        canvas[:, number * side] = 128
    canvas[:, -1] = canvas[0] = canvas[-1] = 128

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + line.tobytes() for line in canvas)
    header = struct.pack(">IIBBBBB", canvas.shape[1], canvas.shape[0], 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")
