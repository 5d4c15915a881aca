"""A critic beside the marginals of gem: where it sees what they do not, and what it costs elsewhere.

    python benchmarks/gem_hybrid.py --seeds 2

Two simulated tables of 50,000 rows. `parity`: four fair bits whose sum is even, so that any three of them are
independent, and four further bits. `causal`: seven columns of all kinds, of which the outcome follows by an interaction
of three (the product of their signs) and by weaker effects of two. Both also `small`, with 5,000 rows. And `survey`,
7,000 rows of the embedded one, in which 2-way marginals carry nearly all. Every method gets the declared schema; one
names in `cliques` the columns to measure together. Figures: total variation distance of four columns that belong
together, mean distance of all pairs of columns, and the accuracy of boosted trees that predict the target of new real
rows, trained on synthetic ones. Cells that are already in the results are not run again. Runs are seeded, on public
data: repeatable, and not private.
"""

import argparse
import dataclasses
import datetime
import functools
import itertools
import json
import math
import os
import platform
import statistics
import time
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
ROWS = {"parity": (50_000, 20_000), "causal": (50_000, 20_000), "survey": (7_000, 1_802)}
ROWS |= {"small parity": (5_000, 20_000), "small causal": (5_000, 20_000)}
"""To learn from, and to test on."""
TOGETHER = {
    "parity": ["a", "b", "c", "d"],
    "causal": ["sex", "smokes", "dose", "outcome"],
    "survey": ["health", "limit", "married", "insurance"],
}
TARGETS = {"parity": "d", "causal": "outcome", "survey": "insurance"}
for each in (TOGETHER, TARGETS):
    each.update({f"small {table}": each[table] for table in ("parity", "causal")})
EDGES = {"age": [30, 40, 50, 60, 70], "dose": [51], "lungs": [2, 3, 4, 5], "family": [2, 3, 4, 5]}
"""Numbers are compared in these bins."""
EPSILONS = (1.0, 3.0, math.inf)
FIGURES = {"four": "4-way distance", "pairs": "2-way distance", "accuracy": "accuracy", "cpu": "CPU s"}


def methods(table: str) -> dict[str, str]:
    together = ", ".join(TOGETHER[table])
    return {
        "gem": "gem",
        "gem, critic 0.2": "gem(critic_fraction=0.2)",
        "gem, critic 0.5": "gem(critic_fraction=0.5)",
        "gem, cliques": f"gem(cliques=[[{together}]])",
        "dpgan": "dpgan",
    }


# ---------------------------------------------------------------------------------------------------------- the tables


def parity(num_rows: int, draw: np.random.Generator) -> dict[str, np.ndarray]:
    bits = draw.random((num_rows, 3)) < 0.5
    further = draw.random((num_rows, 4)) < [0.3, 0.5, 0.6, 0.2]
    columns = [*bits.T, bits.sum(axis=1) % 2 == 1, *further.T]
    return dict(zip("abcdefgh", columns, strict=True))


def causal(num_rows: int, draw: np.random.Generator) -> dict[str, np.ndarray]:
    """Age and sex lead to smoking, smoking and site to lungs; sex, smoking and dose together to the outcome."""
    age = np.clip(draw.gamma(9.0, 5.0, num_rows) + 10, 18, 90)
    sex = draw.choice(["f", "m"], num_rows)
    smokes = draw.random(num_rows) < np.where(sex == "m", 0.55, 0.4) + 0.1 * (age < 45)
    site = draw.choice(["north", "east", "south", "west"], num_rows, p=[0.4, 0.3, 0.2, 0.1])
    dose = np.round(draw.beta(2.0, 2.0, num_rows) * 100)
    lungs = np.clip(6 - 0.03 * age - 0.8 * smokes - 0.3 * (site == "east") + 0.5 * draw.normal(size=num_rows), 0, 8)
    sign = np.where(sex == "m", 1, -1) * np.where(smokes, 1, -1) * np.where(dose > 50, 1, -1)
    odds = 1.8 * sign + 0.02 * (age - 50) - 0.4 * (lungs - 4)
    outcome = draw.random(num_rows) < 1 / (1 + np.exp(-odds))
    return {
        "age": age.astype(int),
        "sex": sex,
        "smokes": smokes,
        "site": site,
        "dose": dose.astype(int),
        "lungs": lungs,
        "outcome": outcome,
    }


def survey(num_rows: int, draw: np.random.Generator) -> dict[str, np.ndarray]:
    from understudy.demo import demo_table

    table = demo_table()
    chosen = draw.permutation(table.num_rows)[:num_rows]
    return {name: table[name].to_numpy(zero_copy_only=False)[chosen] for name in table.column_names}


MADE = {"parity": parity, "causal": causal, "survey": survey, "small parity": parity, "small causal": causal}


def tables_of(table: str, draw: np.random.Generator) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Rows to learn from and others to test on."""
    num_rows, num_test = ROWS[table]
    both = MADE[table](num_rows + num_test, draw)
    cuts = slice(0, num_rows), slice(num_rows, None)
    return tuple({name: values[cut] for name, values in both.items()} for cut in cuts)  # type: ignore[return-value]


@functools.cache
def schema_of(table: str):
    import understudy as us
    from understudy.demo import demo_schema

    if table == "survey":
        return dataclasses.replace(demo_schema(), rows=ROWS[table][0])
    if table.endswith("parity"):
        columns = [us.Column(name=name, kind="boolean", nullable=False) for name in "abcdefgh"]
    else:
        columns = [
            us.Column(name="age", kind="integer", bounds=(18, 90), nullable=False),
            us.Column(name="sex", kind="categorical", categories=("f", "m"), nullable=False),
            us.Column(name="smokes", kind="boolean", nullable=False),
            us.Column(name="site", kind="categorical", categories=("north", "east", "south", "west"), nullable=False),
            us.Column(name="dose", kind="integer", bounds=(0, 100), nullable=False),
            us.Column(name="lungs", kind="real", bounds=(0.0, 8.0), nullable=False),
            us.Column(name="outcome", kind="boolean", nullable=False),
        ]
    return us.Schema(columns=tuple(columns), rows=ROWS[table][0], target=TARGETS[table])


# ------------------------------------------------------------------------------------------------------------- scoring


def levels(table: str, name: str, values: np.ndarray) -> np.ndarray:
    """Numbers by public edges, the rest by its list, all as small whole numbers."""
    if name in EDGES:
        return np.searchsorted(EDGES[name], values.astype(float), side="right")
    known = {value: at for at, value in enumerate(schema_of(table)[name].categories or (False, True))}
    return np.asarray([known[value] for value in values.tolist()])


def distance(first: dict[str, np.ndarray], second: dict[str, np.ndarray], names) -> float:
    sizes = [int(max(first[name].max(), second[name].max())) + 1 for name in names]
    shares = []
    for table in (first, second):
        cells = np.ravel_multi_index([table[name] for name in names], sizes)
        shares.append(np.bincount(cells, minlength=math.prod(sizes)) / len(cells))
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def accuracy(table: str, train: dict[str, np.ndarray], test: dict[str, np.ndarray]) -> float:
    """Of boosted trees; numbers as numbers."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    def inputs(rows: dict[str, np.ndarray]) -> np.ndarray:
        return np.stack(
            [
                values.astype(float) if name in EDGES else levels(table, name, values)
                for name, values in rows.items()
                if name != TARGETS[table]
            ],
            axis=1,
        )

    labels = [levels(table, TARGETS[table], rows[TARGETS[table]]) for rows in (train, test)]
    if len(set(labels[0].tolist())) < 2:
        return float(np.mean(labels[1] == labels[0][0]))
    model = HistGradientBoostingClassifier(random_state=0, max_iter=100).fit(inputs(train), labels[0])
    return float(np.mean(model.predict(inputs(test)) == labels[1]))


def run_cell(table: str, name: str, epsilon: float, seed: int) -> dict:
    import pyarrow as pa

    import understudy as us

    draw = np.random.default_rng(1000 + seed)
    real, test = tables_of(table, draw)
    guarantee = us.Guarantee.not_private() if math.isinf(epsilon) else us.Guarantee(epsilon, 1e-6)
    began = time.process_time()
    if name == "real rows":
        fake = real if table == "survey" else tables_of(table, draw)[0]
    else:
        release = us.fit(pa.table(real), methods(table)[name], guarantee, schema=schema_of(table), seed=seed)
        made = release.sample_arrow(ROWS[table][0], seed=seed)
        fake = {column: made[column].to_numpy(zero_copy_only=False) for column in real}
    cpu = time.process_time() - began
    shown = [{column: levels(table, column, values) for column, values in rows.items()} for rows in (real, fake)]
    pairs = [distance(*shown, pair) for pair in itertools.combinations(real, 2)]
    return {
        "table": table,
        "method": name,
        "epsilon": "none" if math.isinf(epsilon) else epsilon,
        "seed": seed,
        "four": distance(*shown, TOGETHER[table]),
        "pairs": statistics.fmean(pairs),
        "accuracy": accuracy(table, fake, test),
        "cpu": cpu,
        "date": str(datetime.date.today()),
    }


def as_markdown(results: list[dict], command: str) -> str:
    lines = [
        "# A critic beside the marginals of gem",
        "",
        "Declared schemas, delta 1e-6, means over the seeds; seeded runs. *parity*, *causal*: 50,000 made rows, "
        "*small* 5,000; *survey*: 7,000 of the embedded one. *4-way distance*: total variation of the four columns "
        "that belong together (parity: a, b, c, d; causal: sex, smokes, dose in halves, outcome; survey: health, "
        "limit, married, insurance). *2-way distance*: mean over all pairs of columns, numbers in a few bins. "
        "*accuracy*: boosted trees trained on synthetic rows, of the target in new real rows. *critic 0.2*: "
        "`gem(critic_fraction=0.2)`. *cliques*: `gem(cliques=...)` with the four columns named. *real rows*: as many "
        "fresh ones (survey: the same). Epsilon *none*: without noise.",
        "",
        f"Command: `{command}`. Date: {max(row['date'] for row in results)}. Machine: {platform.machine()}, "
        f"{len(os.sched_getaffinity(0))} cores shared with other work, no GPU, Python {platform.python_version()}.",
        "",
        f"| table | epsilon | method | seeds | {' | '.join(FIGURES.values())} |",
        "|---|---:|---|---|" + "---:|" * len(FIGURES),
    ]
    order = [*methods("parity"), "real rows"]
    groups: dict[tuple, list[dict]] = {}
    for row in results:
        groups.setdefault((row["table"], str(row["epsilon"]), order.index(row["method"])), []).append(row)
    for (table, epsilon, number), rows in sorted(groups.items(), reverse=False):
        shown = [statistics.fmean(row[key] for row in rows) for key in FIGURES]
        seeds = ", ".join(str(row["seed"]) for row in sorted(rows, key=lambda row: row["seed"]))
        figures = " | ".join(f"{value:.3f}" for value in shown[:-1])
        lines.append(f"| {table} | {epsilon} | {order[number]} | {seeds} | {figures} | {shown[-1]:.0f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="*", default=list(MADE))
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS), help="inf: without privacy")
    parser.add_argument("--methods", nargs="*", default=[*methods("parity"), "real rows"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    record = arguments.out / "gem_hybrid.jsonl"
    results = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    done = {(row["table"], row["method"], str(row["epsilon"]), row["seed"]) for row in results}
    for seed, epsilon, table, name in itertools.product(
        range(arguments.seeds), arguments.epsilons, arguments.tables, arguments.methods
    ):
        shown = "none" if math.isinf(epsilon) else str(epsilon)
        if (table, name, shown, seed) in done or (name == "real rows" and not math.isinf(epsilon)):
            continue
        results.append(run_cell(table, name, epsilon, seed))
        with record.open("a") as file:
            file.write(json.dumps(results[-1]) + "\n")
        print({key: round(value, 3) if isinstance(value, float) else value for key, value in results[-1].items()})
        (arguments.out / "gem_hybrid.md").write_text(
            as_markdown(results, "python benchmarks/gem_hybrid.py, in several runs")
        )


if __name__ == "__main__":
    main()
