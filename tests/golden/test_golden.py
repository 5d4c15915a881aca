"""Seeded runs come out as recorded: the arrays of the model and the synthetic rows, bit for bit.

`CASES` is the one place that names methods and their settings; each case has a file of that name beside this one.
`python tests/golden/record.py [CASE ...]` writes the files anew, for a change that is meant to change results.

Neither names nor JSON text count, so that both may be renamed: the arrays of a model are compared as a bag of (shape,
dtype, bytes), in any order; columns of rows by position. Where the processor or a library differs from the recorded
ones, arrays are compared in their recorded order to a tolerance of 1e-5, and rows by shares and means.
"""

import dataclasses
import hashlib
import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import understudy as us
from tests.builders import Killed, kill_at, make_guarantee
from understudy.synthesizers.registry import SYNTHESIZERS

FOLDER = Path(__file__).parent
RECORD = "UNDERSTUDY_RECORD_GOLDEN"
"""An environment variable; where it is set, files are written instead of compared."""
LIBRARIES = ("jax", "jaxlib", "numpy", "scipy", "equinox", "optax")
NUM_VALUES = 32
TOLERANCE = 1e-5
SEED = 20_240_229

# --- The table ---

REGIONS = ("east", "north", "south", "west")
NUM_ROWS = 360


def people(num_rows: int = NUM_ROWS, *, seed: int = 0) -> pa.Table:
    """A made table: categories, whole and real numbers, truth values, nulls; up to three rows for a person."""
    draw = np.random.default_rng(seed)
    region = draw.choice(4, num_rows, p=[0.1, 0.4, 0.3, 0.2])
    age = draw.integers(18, 80, num_rows)
    income = np.round(draw.gamma(2.0 + region, 8.0), 2)
    owner = draw.random(num_rows) < np.where(income > 25, 0.8, 0.25)
    level = np.where(income + draw.normal(0, 6, num_rows) > 32, "high", np.where(age > 45, "middle", "low"))
    return pa.table(
        {
            "person": [f"p{i // 3 if i % 7 else i}" for i in range(num_rows)],
            "region": [None if i % 23 == 0 else REGIONS[r] for i, r in enumerate(region)],
            "age": age,
            "income": [None if i % 11 == 0 else float(v) for i, v in enumerate(income)],
            "owner": owner,
            "level": level,
        }
    )


DECLARED = us.Schema(
    columns=(
        us.Column(name="person", kind="id"),
        us.Column(name="region", kind="categorical", categories=REGIONS, closed=True),
        us.Column(name="age", kind="integer", bounds=(18, 79), nullable=False),
        us.Column(name="income", kind="real", bounds=(0.0, 120.0)),
        us.Column(name="owner", kind="boolean", nullable=False),
        us.Column(name="level", kind="categorical", categories=("high", "low", "middle"), nullable=False, closed=True),
    ),
    rows=NUM_ROWS,
    target="level",
)
UNITS = dataclasses.replace(DECLARED, unit="person", max_rows_per_unit=2)
UNDECLARED = us.Schema(
    columns=tuple(us.Column(name=column.name, kind=column.kind) for column in DECLARED.columns),
    unit="person",
    max_rows_per_unit=2,
)
UNIFORM = us.Binning(bins="uniform", max_bins=8)

# --- The cases: every name of a method, of a setting or of a learner that this test uses ---

NETS = "latent=4, generator_widths=[12, 12], critic_widths=[6]"
SMALL = f"steps=12, sampling_rate=0.3, {NETS}"
VOTES = (
    "teachers=10, queries=24, iterations=12, teacher_batch=4, student_batch=16, memory=64, latent=4, "
    "generator_widths=[12, 12]"
)
GEM = "gem(steps=40, components=50, width=12, depth=1, latent=6, learning_rate=0.01"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A release: a method expression and what it is fitted to."""

    method: str
    schema: us.Schema = UNITS
    """With two rows for a unit one accountant alone has a figure: calibration takes moments."""
    epsilon: float = 3.0
    binning: us.Binning | None = UNIFORM
    public: bool = False
    killed_at: float | None = None
    """Stop the run there, and resume it from its checkpoint."""


CASES = {
    "independent": Case(method="independent", schema=DECLARED),
    "independent_undeclared": Case(method="independent", schema=UNDECLARED, binning=None, epsilon=40.0),
    "independent_bins": Case(method="independent", binning=None),
    "mst": Case(method="mst(iterations=60)", schema=DECLARED),
    "mst_undeclared": Case(method="mst(iterations=60)", schema=UNDECLARED, binning=None, epsilon=40.0),
    "aim": Case(method="aim(max_rounds=6, iterations=20)", schema=DECLARED),
    "aim_unit": Case(method="aim(max_rounds=4, iterations=20)"),
    "adaptive": Case(method="adaptive(rounds=3, iterations=20)", schema=DECLARED),
    "adaptive_unit": Case(method="adaptive(rounds=2, iterations=20)"),
    "privbayes": Case(method="privbayes", schema=DECLARED),
    "privbayes_undeclared": Case(method="privbayes", schema=UNDECLARED, binning=None, epsilon=40.0),
    "mwem": Case(method="mwem(rounds=6, mw_passes=5)"),
    "mwem_range": Case(method="mwem(workload=range, boxes=60, rounds=4, mw_passes=5, average_rounds=true)"),
    "gem": Case(method=f"{GEM})"),
    "gem_rounds": Case(method=f"{GEM}, rounds=2, num_selections=3, workload=[[region, income], [age, level]])"),
    "dpgan": Case(method=f"dpgan({SMALL})", schema=DECLARED, epsilon=0.3),
    "dpgan_undeclared": Case(method=f"dpgan({SMALL})", schema=UNDECLARED, binning=None, epsilon=40.0),
    "dpgan_wgan": Case(method=f"dpgan({SMALL}, loss=wgan, weight_clip=0.1)"),
    "dpgan_typed": Case(method=f"dpgan({SMALL}, features=typed, fake_term=paired)"),
    "dpgan_modes": Case(method=f"dpgan({SMALL}, features=modes, num_modes=4)"),
    "dpgan_adaptive": Case(method=f"dpgan({SMALL}, adaptive_clip=quantile, clip_groups=2)"),
    "dpgan_public": Case(method=f"dpgan({SMALL}, warm_steps=6, adaptive_clip=public)", public=True),
    "dpgan_resumed": Case(method=f"dpgan(steps=12, sampling_rate=0.3, {NETS})", killed_at=0.3),
    "dpctgan": Case(method=f"dpctgan({SMALL})"),
    "pategan": Case(method=f"pategan({VOTES})"),
    "patectgan": Case(method=f"patectgan({VOTES})"),
    "autogan": Case(method=f"autogan({SMALL}, autoencoder_steps=8)"),
    "autogan_pca": Case(method=f"autogan({SMALL}, encoder=dp_pca, code_size=4, autoencoder_steps=8)"),
    "bayesgan": Case(method=f"bayesgan({SMALL}, generator_chains=2, generator_batch=16)"),
    "boosted": Case(
        method=f"boosted(dpgan({SMALL}), rounds=12, checkpoints=3, checkpoint_every=4, samples_per_generator=300, "
        "distinguishers=one_way)"
    ),
    "drs": Case(method=f"drs(dpgan({SMALL}), proposals=2000)"),
    "selected": Case(method=f"selected(dpgan({SMALL}), task=accuracy, checkpoints=3)"),
    "quail": Case(
        method="quail(mst(iterations=60), learner=logistic(steps=20, sampling_rate=0.2), learner_fraction=0.5)"
    ),
    "quail_naive_bayes": Case(method="quail(independent, learner=naive_bayes, label=sample)"),
}


def learner(name: str) -> Any:
    few: dict[str, Any] = {"guarantee": us.Guarantee(3.0, 1e-6), "schema": UNITS, "seed": SEED}
    steps: dict[str, Any] = {"steps": 20, "sampling_rate": 0.2}
    makers: dict[str, Callable[[], Any]] = {
        "logistic": lambda: us.learners.LogisticRegression(**few, **steps, class_weight="private"),
        "logistic_objective": lambda: us.learners.LogisticRegression(**few, method="objective"),
        "naive_bayes": lambda: us.learners.NaiveBayes(**few),
        "mlp": lambda: us.learners.MLPClassifier(**few, **steps, widths=(6,)),
        "class_prior": lambda: us.learners.ClassPrior(**few),
        "linear": lambda: us.learners.LinearRegression(**few, target="income"),
        "mlp_regression": lambda: us.learners.MLPRegressor(**few, **steps, widths=(6,), target="income"),
    }
    return makers[name]()


LEARNERS = ("logistic", "logistic_objective", "naive_bayes", "mlp", "class_prior", "linear", "mlp_regression")

# --- Runs ---


def release_of(case: Case, folder: Path) -> us.Release:
    facts: dict[str, Any] = {"schema": case.schema, "binning": case.binning, "seed": SEED}
    if case.public:
        facts["public"] = people(120, seed=1)
    if case.killed_at is not None:
        facts |= {"checkpoint": folder / "checkpoint", "resume": True}
        with pytest.raises(Killed):
            us.fit(
                people(),
                case.method,
                make_guarantee(case.epsilon),
                **{**facts, "resume": False},
                progress=kill_at(case.killed_at),
            )
    return us.fit(people(), case.method, make_guarantee(case.epsilon), **facts)


# --- What is recorded ---


def machine() -> dict[str, str]:
    """What the last digits follow from besides the code."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    flags = hashlib.sha256(facts.get("flags", facts.get("Features", "")).encode()).hexdigest()[:16]
    return {
        "processor": f"{facts.get('model name', platform.machine())} {flags}",
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
        **{name: importlib.metadata.version(name) for name in LIBRARIES},
    }


def describe(array: np.ndarray) -> dict[str, Any]:
    array = np.ascontiguousarray(array)
    facts: dict[str, Any] = {"shape": list(array.shape), "dtype": str(array.dtype), "sha256": sha256(array.tobytes())}
    if array.dtype.kind in "fiub":
        values = array.astype(float).ravel()
        facts |= {"sum": values.sum(), "size": np.abs(values).sum(), "first": values[:NUM_VALUES].tolist()}
    return facts


def describe_column(values: pa.ChunkedArray) -> dict[str, Any]:
    """A hash of the values and of which are null, and a summary: the mean, or the share of each value."""
    nulls, present = pc.is_null(values).to_numpy(), values.drop_null()
    if pa.types.is_string(values.type):
        data = "\0".join(present.to_pylist()).encode()
    else:
        data = present.to_numpy().tobytes()
    facts: dict[str, Any] = {"type": str(values.type), "sha256": sha256(nulls.tobytes() + data), "nulls": nulls.mean()}
    if pa.types.is_floating(values.type) or pa.types.is_integer(values.type):
        numbers = present.to_numpy().astype(float)
        return facts | {"mean": numbers.mean(), "stddev": numbers.std()}
    counts = sorted((str(pair["values"]), pair["counts"]) for pair in pc.value_counts(present).to_pylist())
    return facts | {"shares": {value: count / len(values) for value, count in counts}}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def describe_release(release: us.Release) -> dict[str, Any]:
    rows = release.sample(300, seed=SEED)
    arrays = release.model.to_arrays()[1]
    return {
        "epsilon": release.statement.epsilon,
        "arrays": [{"name": name} | describe(array) for name, array in arrays.items()],
        "rows": [{"name": name} | describe_column(rows.column(name)) for name in rows.column_names],
    }


def describe_learner(fitted: Any) -> dict[str, Any]:
    arrays = dict(fitted.to_arrays()[1])
    predict = getattr(fitted, "predict_proba", fitted.predict)
    arrays["predictions"] = np.asarray(predict(people(40, seed=2)))
    return {
        "epsilon": fitted.statement_.epsilon,
        "arrays": [{"name": name} | describe(array) for name, array in arrays.items()],
        "rows": [],
    }


# --- Comparison ---


def check(name: str, found: dict[str, Any]) -> None:
    """Compare with the recorded results, or record these."""
    file, environment = FOLDER / f"{name}.json", FOLDER / "environment.json"
    if os.environ.get(RECORD):
        for path, content in ((file, found), (environment, machine())):
            path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        return
    recorded = json.loads(file.read_text(encoding="utf-8"))
    assert found["epsilon"] == pytest.approx(recorded["epsilon"], rel=1e-9)
    assert len(found["arrays"]) == len(recorded["arrays"])
    assert len(found["rows"]) == len(recorded["rows"])
    if machine() == json.loads(environment.read_text(encoding="utf-8")):
        assert bag(found["arrays"]) == bag(recorded["arrays"])
        assert [column["sha256"] for column in found["rows"]] == [column["sha256"] for column in recorded["rows"]]
    else:
        check_near(found, recorded)


def bag(arrays: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    return sorted((array["dtype"], tuple(array["shape"]), array["sha256"]) for array in arrays)


def check_near(found: Mapping[str, Any], recorded: Mapping[str, Any]) -> None:
    for one, other in zip(found["arrays"], recorded["arrays"], strict=True):
        assert (one["shape"], one["dtype"]) == (other["shape"], other["dtype"]), other["name"]
        if "first" in other:
            assert one["first"] == pytest.approx(other["first"], rel=TOLERANCE, abs=TOLERANCE), other["name"]
            assert one["sum"] == pytest.approx(other["sum"], abs=TOLERANCE * (1 + other["size"])), other["name"]
    for one, other in zip(found["rows"], recorded["rows"], strict=True):
        assert one["type"] == other["type"], other["name"]
        assert one["nulls"] == pytest.approx(other["nulls"], abs=0.02), other["name"]
        if "shares" in other:
            assert one["shares"] == pytest.approx(other["shares"], abs=0.02), other["name"]
        else:
            assert one["mean"] == pytest.approx(other["mean"], abs=0.05 * (1e-9 + other["stddev"])), other["name"]


def test_every_method_has_a_case() -> None:
    cased = {name for case in CASES.values() for name in re.findall(r"\w+", case.method)}
    assert set(SYNTHESIZERS) <= cased


@pytest.mark.parametrize("name", CASES)
def test_release(name: str, tmp_path: Path) -> None:
    check(name, describe_release(release_of(CASES[name], tmp_path)))


@pytest.mark.parametrize("name", LEARNERS)
def test_learner(name: str) -> None:
    check(f"learner_{name}", describe_learner(learner(name).fit(people())))
