"""A small table about people, its schema, and learners of it."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone

import understudy as us
from understudy.privacy.accounting.ledger import Guarantee, Ledger
from understudy.privacy.noise.source import SeededNoise
from understudy.privacy.rows.rows import PrivateRows
from understudy.schema import Column, Schema

JOBS = ("cook", "driver", "nurse", "teacher")
CLASSES = ("high", "low", "middle")
SCHEMA = Schema(
    columns=(
        Column(name="job", kind="categorical", nullable=False, categories=JOBS, closed=True),
        Column(name="age", kind="integer", nullable=False, bounds=(18, 77)),
        Column(name="pay", kind="real", bounds=(0.0, 10.0)),
        Column(name="level", kind="categorical", nullable=False, categories=CLASSES, closed=True),
    ),
    rows=600,
    target="level",
)
OPEN = Guarantee.not_private()
PRIVATE = Guarantee(0.3, 1e-6)
FEW: dict[str, Any] = {"steps": 60, "sampling_rate": 0.25}


def people(size: int = 600, seed: int = 0) -> pd.DataFrame:
    """A table in which the level follows from job, age and pay; `pay` may be missing."""
    generator = np.random.default_rng(seed)
    job = generator.integers(0, 4, size)
    age = generator.integers(18, 78, size)
    pay = np.clip(generator.normal(2 + job + age / 40, 1.0, size), 0.0, 10.0)
    score = pay + generator.normal(0, 0.7, size)
    level = np.where(score > 6.0, "high", np.where(score > 4.2, "middle", "low"))
    shown = np.where(generator.random(size) < 0.05, np.nan, pay)
    return pd.DataFrame({"job": np.asarray(JOBS)[job], "age": age, "pay": shown, "level": level})


TABLE = people()
TEST = people(seed=1)
CLASSIFIERS = [
    us.learners.LogisticRegression(schema=SCHEMA, **FEW),
    us.learners.LogisticRegression(schema=SCHEMA, method="objective", numbers="positions"),
    us.learners.NaiveBayes(schema=SCHEMA),
    us.learners.NaiveBayes(schema=SCHEMA, numbers="gaussian"),
    us.learners.ClassPrior(schema=SCHEMA),
]
NUMBERS = dataclasses.replace(SCHEMA, target="pay")
QUICK = [*CLASSIFIERS, us.learners.LinearRegression(schema=NUMBERS, residual=True)]
NETWORKS = [
    us.learners.MLPClassifier(schema=SCHEMA, widths=(8,), **FEW),
    us.learners.MLPRegressor(schema=NUMBERS, widths=(8,), **FEW),
]
"""They go the same way as logistic regression by steps, and take longer."""
ALL = [*QUICK, *(pytest.param(learner, marks=pytest.mark.slow) for learner in NETWORKS)]


def named(learner: Any) -> str:
    return f"{type(learner).__name__}-{getattr(learner, 'method', getattr(learner, 'numbers', ''))}"


def with_settings(learner: Any, **settings: Any) -> Any:
    return clone(learner).set_params(**settings)


def encoded(table: pd.DataFrame = TABLE, schema: Schema = SCHEMA, **settings: Any) -> tuple[PrivateRows, us.Codec]:
    learner = us.learners.ClassPrior(schema=schema.with_target("level"), guarantee=OPEN, **settings).fit(table)
    arrow = pa.Table.from_pandas(table)
    codec = learner.codec_
    codec = dataclasses.replace(codec, schema=schema)
    rows = PrivateRows(codec.encode(arrow), codec.domain, positions=lambda: codec.positions(arrow), scales=codec.scales)
    return rows, codec


def ledger(guarantee: Guarantee = OPEN, seed: int = 0) -> Ledger:
    return Ledger(guarantee, noise=SeededNoise(seed))


def key() -> Any:
    return jax.random.key(0)
