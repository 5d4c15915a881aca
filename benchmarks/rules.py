"""What rules cost or gain: the same table fitted with the rules of its schema and without them.

    UNDERSTUDY_DATA=folder python benchmarks/rules.py --method auto --method mst --seeds 3 --write

Tables: `adult` with three rules of its code book (a dependency, a condition and a skip pattern); `stays`, made hospital
stays with dates in order, an age that follows from them and parts that add up; `chain`, a made table in which rules
make 30% of the cells of nine of 45 pairs of columns impossible; `zeros`, one with 30% in every pair. The figures are
those of `scorer.py`, on 50,000 synthetic rows; `broken` is the fraction of rows that break at least one rule. Runs are
seeded, on public data: repeatable, and not private. With --write the results are kept in results/rules.jsonl, cells
that are there are not run again, and results/rules.md shows them.
"""

import argparse
import dataclasses
import datetime
import itertools
import json
import platform
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

import understudy as us
from benchmarks.scorer import score
from understudy.schema import Column, Combinations, Determines, Keep, Rule, Skip, Sum, WhenThen

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "rules.jsonl"
SAMPLED = 50_000
"""Synthetic rows: enough that the distances are those of the model and not of the sample."""
KEYS = ("table", "method", "rules", "epsilon", "seed")
EDUCATION = (
    *("Preschool", "1st-4th", "5th-6th", "7th-8th", "9th", "10th", "11th", "12th", "HS-grad", "Some-college"),
    *("Assoc-voc", "Assoc-acdm", "Bachelors", "Masters", "Prof-school", "Doctorate"),
)


class Task(NamedTuple):
    """A table with rules, and rows to test classifiers on."""

    train: pa.Table
    test: pa.Table | None
    schema: us.Schema
    rules: tuple[Rule, ...]
    target: str | None


def adult() -> Task:
    """Adult with what its code book says: years of education, who is married, who has no occupation."""
    from understudy.benchmark.tables import load_table

    table = load_table("adult")
    rules = (
        Determines(
            determines=("education",),
            gives=("education-num",),
            table=tuple((name, years) for years, name in enumerate(EDUCATION, start=1)),
        ),
        WhenThen(
            when="relationship IN ('Husband', 'Wife')",
            then="\"marital-status\" IN ('Married-civ-spouse', 'Married-AF-spouse')",
        ),
        Skip(skip="occupation", when="workclass IS NULL OR workclass = 'Never-worked'"),
    )
    return Task(table.train, table.test, table.schema, rules, table.target)


def stays(seed: int) -> Task:
    """Hospital stays: dates in order, an age, a bill in three parts, and whether the patient comes back."""

    def make(num_rows: int, own_seed: int) -> pa.Table:
        random = np.random.default_rng([own_seed, 1])
        born = np.datetime64("1930-01-01") + random.integers(0, 365 * 85, num_rows)
        admitted = np.datetime64("2020-01-01") + random.integers(0, 1400, num_rows)
        age = (admitted - born).astype(int) // 365
        ward = random.choice(["surgery", "medicine", "maternity"], num_rows, p=[0.4, 0.5, 0.1])
        sex = np.where(ward == "maternity", "female", random.choice(["female", "male"], num_rows))
        days = 1 + random.poisson(2 + age / 15 + 4 * (ward == "surgery"))
        care, drugs, theatre = 300 * days, random.poisson(40 * days), 2000 * (ward == "surgery")
        again = random.random(num_rows) < 1 / (1 + np.exp(3 - age / 30 - days / 8))
        return pa.table(
            {
                "born": born,
                "admitted": admitted,
                "discharged": admitted + days,
                "age": age,
                "ward": ward,
                "sex": sex,
                "care": care,
                "drugs": drugs,
                "theatre": theatre,
                "bill": care + drugs + theatre,
                "again": np.where(again, "yes", "no"),
            }
        )

    def day(text: str) -> datetime.date:
        return datetime.date.fromisoformat(text)

    columns = (
        Column(name="born", kind="date", bounds=(day("1910-01-01"), day("2023-12-31")), nullable=False),
        Column(name="admitted", kind="date", bounds=(day("2020-01-01"), day("2023-12-31")), nullable=False),
        Column(name="discharged", kind="date", bounds=(day("2020-01-01"), day("2024-12-31")), nullable=False),
        Column(name="age", kind="integer", bounds=(0, 115), nullable=False),
        *(
            Column(name=name, kind="categorical", categories=values, closed=True, nullable=False)
            for name, values in (
                ("ward", ("surgery", "medicine", "maternity")),
                ("sex", ("female", "male")),
                ("again", ("no", "yes")),
            )
        ),
        *(
            Column(name=name, kind="integer", bounds=(0, most), nullable=False)
            for name, most in (("care", 20_000), ("drugs", 5_000), ("theatre", 2_000), ("bill", 27_000))
        ),
    )
    train = make(10_000, seed)
    schema = us.Schema(columns=columns, rows=train.num_rows, target="again")
    rules = (
        Keep(keep="born <= admitted AND discharged >= admitted"),
        Keep(keep="age = date_diff('day', born, admitted) // 365"),
        Sum(sum=("care", "drugs", "theatre"), equals="bill"),
        WhenThen(when="ward = 'maternity'", then="sex = 'female'"),
    )
    return Task(train, make(5_000, seed + 1000), schema, rules, "again")


def chain(seed: int) -> Task:
    """Ten columns of six categories: in the nine pairs of neighbours, 30% of the cells are impossible."""
    random = np.random.default_rng([seed, 2])
    size, num_columns, num_rows = 6, 10, 5_000
    names = [f"c{number}" for number in range(num_columns)]
    forbidden = {}
    codes = [random.choice(size, num_rows, p=random.dirichlet(np.full(size, 2.0)))]
    for at in range(1, num_columns):
        impossible = np.zeros((size, size), dtype=bool)
        impossible.ravel()[random.choice(size * size, round(0.3 * size * size), replace=False)] = True
        impossible[impossible.all(axis=1), 0] = False
        odds = random.dirichlet(np.full(size, 1.0), size) * ~impossible
        odds = np.cumsum(odds / odds.sum(axis=1, keepdims=True), axis=1)
        draws = random.random(num_rows) * np.nextafter(odds[codes[-1], -1], 0)
        codes.append((odds[codes[-1]] <= draws[:, None]).sum(axis=1))
        forbidden[names[at - 1], names[at]] = np.argwhere(impossible)
    values = tuple(f"v{code}" for code in range(size))
    train = pa.table({name: np.asarray(values)[own] for name, own in zip(names, codes, strict=True)})
    rules = tuple(
        Combinations(combinations=pair, forbidden=tuple((values[a], values[b]) for a, b in cells))
        for pair, cells in forbidden.items()
    )
    return Task(train, None, _listed_schema(names, values, num_rows), rules, None)


def zeros(seed: int) -> Task:
    """Six columns of seven categories: in each of the 15 pairs, 30% of the cells are impossible."""
    random = np.random.default_rng([seed, 3])
    size, num_columns, num_rows = 7, 6, 5_000
    rows = np.indices([size] * num_columns).reshape(num_columns, -1).T
    odds = random.lognormal(sigma=1.0, size=len(rows))
    rules = []
    values = tuple(f"v{code}" for code in range(size))
    names = [f"c{number}" for number in range(num_columns)]
    for a, b in itertools.combinations(range(num_columns), 2):
        cells = random.choice(size * size, round(0.3 * size * size), replace=False)
        odds[np.isin(rows[:, a] * size + rows[:, b], cells)] = 0
        listed = tuple((values[cell // size], values[cell % size]) for cell in cells)
        rules.append(Combinations(combinations=(names[a], names[b]), forbidden=listed))
    chosen = rows[random.choice(len(rows), num_rows, p=odds / odds.sum())]
    train = pa.table({name: np.asarray(values)[chosen[:, at]] for at, name in enumerate(names)})
    return Task(train, None, _listed_schema(names, values, num_rows), tuple(rules), None)


def _listed_schema(names: Sequence[str], values: tuple[str, ...], num_rows: int) -> us.Schema:
    columns = [Column(name=name, kind="categorical", categories=values, closed=True, nullable=False) for name in names]
    return us.Schema(columns=tuple(columns), rows=num_rows)


def task_of(table: str, seed: int) -> Task:
    return adult() if table == "adult" else {"stays": stays, "chain": chain, "zeros": zeros}[table](seed)


def run_cell(cell: dict) -> dict:
    """Fits with or without the rules, samples and scores."""
    task = task_of(cell["table"], cell["seed"])
    fake, times = task.train, {}
    if cell["method"] != "real rows":
        schema = dataclasses.replace(task.schema, rules=task.rules if cell["rules"] else ())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            began = time.monotonic()
            release = us.fit(task.train, cell["method"], epsilon=cell["epsilon"], schema=schema, seed=cell["seed"])
            fake = release.sample_arrow(SAMPLED, seed=cell["seed"])
            times = {"seconds": time.monotonic() - began, "kept_at_once": release.acceptance()}
    broken = np.any([rule.broken(fake) for rule in task.rules], axis=0).mean()
    test = None if task.test is None else _as_pandas(task.test)
    scores = score(_as_pandas(task.train), test, _as_pandas(fake), task.target)
    return {**cell, **scores, "broken": float(broken), **times}


def _as_pandas(table: pa.Table) -> pd.DataFrame:
    """Dates as days, which the scorer cuts into bins like any other number."""
    dates = [field.name for field in table.schema if pa.types.is_date(field.type)]
    for name in dates:
        days = table.column(name).cast(pa.int32())
        table = table.set_column(table.column_names.index(name), name, days)
    return table.to_pandas()


def as_markdown(records: Sequence[dict], command: str) -> str:
    """One line for each table and method: means over seeds without and with rules."""
    lines = [
        "# Rules: what they cost or gain",
        "",
        f"Made by `{command}` on {datetime.date.today()}, {platform.machine()}, Python {platform.python_version()}, "
        f"Understudy {us.__version__}; seeds {', '.join(str(s) for s in sorted({r['seed'] for r in records}))}. "
        f"Means over seeds. `tvd2` and AUC as `benchmarks/scorer.py` computes them on {SAMPLED:,} synthetic rows; real "
        "rows beside them. `broken`: the fraction of synthetic rows that break at least one rule. `satisfied at once`: "
        "the fraction of the model's rows that satisfy all rules before any is drawn again.",
        "",
        "| table | method | epsilon | tvd2 without | with rules | ratio | AUC without | with rules | broken without | "
        "with | satisfied at once |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for table, method, epsilon in dict.fromkeys((r["table"], r["method"], r["epsilon"]) for r in records):
        own = [r for r in records if (r["table"], r["method"], r["epsilon"]) == (table, method, epsilon)]
        without, with_rules = ([r for r in own if r["rules"] is kept] for kept in (False, True))
        if method == "real rows":
            auc = f"{mean(r['auc'] for r in without):.4f}" if "auc" in without[0] else ""
            lines.append(f"| {table} | real rows | | 0 | | | {auc} | | {mean(r['broken'] for r in without):.4f} | | |")
            continue
        if not without or not with_rules:
            continue
        tvd = [mean(r["tvd2"] for r in part) for part in (without, with_rules)]
        aucs = ["", ""]
        if "auc" in without[0]:
            aucs = [f"{mean(r['auc'] for r in part):.4f}" for part in (without, with_rules)]
        broken = [f"{mean(r['broken'] for r in part):.4f}" for part in (without, with_rules)]
        kept = mean(r["kept_at_once"] for r in with_rules)
        lines.append(
            f"| {table} | {method} | {epsilon} | {tvd[0]:.4f} | {tvd[1]:.4f} | {tvd[1] / tvd[0]:.2f} | {aucs[0]} | "
            f"{aucs[1]} | {broken[0]} | {broken[1]} | {kept:.3f} |"
        )
    return "\n".join(lines) + "\n"


def cells_of(options: argparse.Namespace) -> Iterator[dict]:
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    for table, method, seed in itertools.product(options.table, ["real rows", *options.method], seeds):
        for rules in (False,) if method == "real rows" else (False, True):
            yield {"table": table, "method": method, "rules": rules, "epsilon": options.epsilon, "seed": seed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="append", choices=("adult", "stays", "chain", "zeros"))
    parser.add_argument("--method", action="append")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    options.table = options.table or ["adult", "stays", "chain", "zeros"]
    options.method = options.method or ["auto", "mst"]
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    records = [json.loads(line) for line in lines] if options.write else []
    done = {tuple(record[key] for key in KEYS) for record in records}
    for cell in cells_of(options):
        if tuple(cell[key] for key in KEYS) in done:
            continue
        record = run_cell(cell)
        records.append(record)
        print(json.dumps(record), flush=True)
        if options.write:
            with RESULTS.open("a") as file:
                file.write(json.dumps(record) + "\n")
    page = as_markdown(records, "UNDERSTUDY_DATA=folder python benchmarks/rules.py " + " ".join(sys.argv[1:]))
    if options.write:
        RESULTS.with_suffix(".md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()
