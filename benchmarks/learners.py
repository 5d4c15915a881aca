"""Private learners on public tables: Adult by AUC, ACS income by R squared, beside learners without privacy.

    UNDERSTUDY_DATA=... python benchmarks/learners.py                    # prints the tables of results/learners.md
    UNDERSTUDY_DATA=... python benchmarks/learners.py --export FOLDER    # inputs for benchmarks/learners_diffprivlib.py

Seeds make the runs repeatable, which is right for public data and for nothing else.
"""

import argparse
import dataclasses
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sklearn import linear_model
from sklearn.metrics import r2_score, roc_auc_score

import understudy as us
from understudy.benchmark.sources import read_source
from understudy.benchmark.tables import declared_schema, load_table, split_rows
from understudy.models.inputs import inputs_of
from understudy.schema import Column

DELTA = 1e-5
WIDE = 50
"""Columns of more levels than this are left out of the narrow regression."""


def adult() -> tuple[us.Schema, pa.Table, pa.Table]:
    table = load_table("adult")
    return table.schema, table.train, table.test


def bank() -> tuple[us.Schema, pa.Table, pa.Table]:
    table = load_table("bank")
    return table.schema, table.train, table.test


def acs(logarithm: bool, narrow: bool) -> tuple[us.Schema, pa.Table, pa.Table]:
    """Income as a number between public bounds, plain (up to 200,000) or as a logarithm (1,000 to 1,000,000)."""
    schema = declared_schema("acs_income_2018")
    train, test = split_rows(read_source("acs_income_2018"))
    name = "Income"
    target = Column(name=name, kind="integer", nullable=False, bounds=(0, 200_000))
    if logarithm:
        target = Column(name=name, kind="real", nullable=False, bounds=(3.0, 6.0))
        train, test = (
            table.set_column(table.column_names.index(name), name, pc.log10(table.column(name).cast(pa.float64())))
            for table in (train, test)
        )
    columns = [target if column.name == name else column for column in schema.columns]
    if narrow:
        columns = [column for column in columns if column.categories is None or len(column.categories) <= WIDE]
        names = [column.name for column in columns]
        train, test = train.select(names), test.select(names)
    schema = dataclasses.replace(schema, columns=tuple(columns), target=name, positive=None)
    low, high = target.bounds  # type: ignore[misc]
    at = test.column_names.index(name)
    clamped = pc.min_element_wise(pc.max_element_wise(test.column(name), pa.scalar(low)), pa.scalar(high))
    return schema, train, test.set_column(at, name, clamped)


def auc(learner: us.learners.LogisticRegression, table: pa.Table, target: str) -> float:
    truth = np.asarray(table.column(target).to_pylist()) == learner.classes_[1]
    return float(roc_auc_score(truth, learner.predict_proba(table)[:, 1]))


def encoded(learner: us.learners.ClassPrior, table: pa.Table, numbers: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs of norm one at most and labels, for learners of others."""
    codec = learner.codec_
    assert codec.schema.target is not None
    inputs = inputs_of(codec.domain, codec.scales, codec.schema.target, numbers=numbers)
    codes, positions = codec.encode(table), codec.positions(table)
    at = codec.domain.index(codec.schema.target)
    label = codes[:, at] if np.isnan(positions[:, at]).all() else 2 * positions[:, at] - 1
    return inputs.encode(codes, positions), label


def classifiers(name: str, seeds: int, *, all_budgets: bool) -> None:
    schema, train, test = {"adult": adult, "bank": bank}[name]()
    assert schema.target is not None
    print(f"\n### {name}, {train.num_rows:,} rows, AUC on {test.num_rows:,} test rows\n")
    print("| learner | epsilon | AUC, mean (least to greatest) | seconds for a fit |\n|---|---|---|---|", flush=True)
    open_prior = us.learners.ClassPrior(schema=schema, guarantee=us.Guarantee.not_private()).fit(train)
    for numbers in ("positions", "both"):
        x, y = encoded(open_prior, train, numbers)
        test_x, test_y = encoded(open_prior, test, numbers)
        begun = time.time()
        other = linear_model.LogisticRegression(C=1e3, max_iter=3000).fit(x, y)
        score = roc_auc_score(test_y, other.predict_proba(test_x)[:, 1])
        print(f"| scikit-learn, numbers={numbers} | none | {score:.4f} | {time.time() - begun:.1f} |", flush=True)
    make = us.learners
    rows = [
        ("logistic, sgd", make.LogisticRegression(), (0.1, 1.0, 10.0) if all_budgets else (1.0,)),
        ("logistic, sgd, numbers=positions", make.LogisticRegression(numbers="positions"), (1.0,)),
        ("logistic, objective", make.LogisticRegression(method="objective"), (1.0,)),
        ("naive Bayes, bins", make.NaiveBayes(), (0.1, 1.0) if all_budgets else (1.0,)),
        ("naive Bayes, gaussian", make.NaiveBayes(numbers="gaussian"), (1.0,)),
        ("MLP 64, 64", make.MLPClassifier(), (1.0,)),
    ]
    for words, learner, budgets in rows:
        for epsilon in budgets:
            scores, times = [], []
            for seed in range(seeds):
                learner.set_params(schema=schema, guarantee=us.Guarantee(epsilon, DELTA), seed=seed)
                begun = time.time()
                learner.fit(train)
                times.append(time.time() - begun)
                scores.append(auc(learner, test, schema.target))
            shown = f"{np.mean(scores):.4f} ({min(scores):.4f} to {max(scores):.4f})"
            print(f"| {words} | {epsilon:g} | {shown} | {times[0]:.1f}, then {np.mean(times[1:]):.1f} |", flush=True)


def regressions(seeds: int) -> None:
    print("\n### ACS income 2018, R squared on the test part, epsilon 1\n")
    print("| learner | target | columns | R2 without privacy | R2 | ratio | seconds |\n|---|---|---|---|---|---|---|")
    for narrow in (True, False):
        for logarithm in (False, True):
            schema, train, test = acs(logarithm, narrow)
            truth = np.asarray(test.column("Income").to_pylist(), dtype=float)
            open_fit = us.learners.LinearRegression(schema=schema, guarantee=us.Guarantee.not_private()).fit(train)
            base = r2_score(truth, open_fit.predict(test))
            learners = {"linear": us.learners.LinearRegression()}
            if narrow:
                learners["MLP 64, 64"] = us.learners.MLPRegressor()  # type: ignore[assignment]
            for words, learner in learners.items():
                scores, begun = [], time.time()
                count = seeds if narrow and words == "linear" else 2
                for seed in range(count):
                    learner.set_params(schema=schema, guarantee=us.Guarantee(1.0, 1e-6), seed=seed)
                    scores.append(r2_score(truth, learner.fit(train).predict(test)))
                shown = f"{np.mean(scores):.4f} ({min(scores):.4f} to {max(scores):.4f})"
                facts = ["log10" if logarithm else "plain", str(len(schema.columns) - 1), f"{base:.4f}", shown]
                spent = (time.time() - begun) / count
                print(f"| {words} | {' | '.join(facts)} | {np.mean(scores) / base:.3f} | {spent:.1f} |", flush=True)


def export(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (schema, train, test) in {"adult": adult(), "acs": acs(False, True)}.items():
        kind = us.learners.ClassPrior if name == "adult" else us.learners.LinearRegression
        learner = kind(schema=schema, guarantee=us.Guarantee.not_private()).fit(train)
        for numbers in ("positions", "both"):
            (x, y), (test_x, test_y) = (encoded(learner, table, numbers) for table in (train, test))
            inputs = inputs_of(learner.codec_.domain, learner.codec_.scales, schema.target or "", numbers=numbers)
            low = np.where(inputs.of_column < len(inputs.columns), 0.0, -inputs.scale)  # levels are never below zero
            high = np.full(inputs.width, inputs.scale)
            file = folder / f"{name}_{numbers}.npz"
            np.savez(file, x=x, y=y, test_x=test_x, test_y=test_y, low=low, high=high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--export", type=Path)
    parser.add_argument("--part", choices=("adult", "bank", "acs"))
    arguments = parser.parse_args()
    if arguments.export is not None:
        export(arguments.export)
        return
    if arguments.part in (None, "adult"):
        classifiers("adult", arguments.seeds, all_budgets=True)
    if arguments.part in (None, "bank"):
        classifiers("bank", arguments.seeds, all_budgets=False)
    if arguments.part in (None, "acs"):
        regressions(arguments.seeds)


if __name__ == "__main__":
    main()
