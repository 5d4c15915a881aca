"""After the first charge a run ends in a release, or in a record of what it has spent: never in a refusal by sizes."""

import ast
import importlib.resources
import itertools
import json
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Never

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import understudy as us
from tests.builders import raises
from tests.examples import scaled
from understudy import certificate, learners
from understudy.cli import run
from understudy.encoding import assumed_domain, merge_rarest
from understudy.encoding import fit as encoding_fit
from understudy.errors import CheckpointError, ConfigError, Diverged, ReleaseError, TrainingError, UnderstudyError
from understudy.models.predictors import Predictor
from understudy.privacy.accounting import accountants
from understudy.privacy.accounting.events import DiscreteGaussian
from understudy.privacy.accounting.ledger import Budget, Guarantee, Ledger, Plan, Query, spent_by
from understudy.privacy.mechanisms.counts import noisy_counts
from understudy.privacy.noise.source import SecureNoise
from understudy.privacy.rows.rows import PrivateRows
from understudy.run.failure import FailedRun, SpentError, read_record
from understudy.schema import MERGED_SIZE, Domain
from understudy.synthesizers.mwem import MAX_CELLS, MWEM
from understudy.synthesizers.run import Run

SOURCE = Path(us.__file__).parent
GUARANTEE = us.Guarantee(3.0, 1e-6)
ROUGH = us.Guarantee(0.3, 1e-6)  # much noise: the accountant is quick about training
NETS = "latent=2, generator_widths=[4, 4], critic_widths=[4]"
DIVERGES = f"dpgan(steps=4, sampling_rate=0.25, critic_learning_rate=1e38, generator_learning_rate=1e38, {NETS})"
AUTOGAN = f"steps=2, autoencoder_steps=2, {NETS}"
PATE = "teachers=2, iterations=2, queries=2, latent=2, generator_widths=[4, 4], teacher_widths=[2], critic_widths=[2]"


@pytest.fixture
def charged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of all queries that have been charged."""
    keys: list[str] = []
    charge = Ledger.charge

    def noted(self: Ledger, query: Query) -> None:
        charge(self, query)
        keys.append(query.key)

    monkeypatch.setattr(Ledger, "charge", noted)
    return keys


def open_schema(**kinds: str) -> us.Schema:
    return us.Schema(columns=tuple(us.Column(name=name, kind=kind) for name, kind in kinds.items()))


def texts(num_columns: int = 6, num_values: int = 25, each: int = 60) -> tuple[us.Schema, pa.Table]:
    """Columns of many values that are all frequent enough to be listed, some more than others."""
    draw = np.random.default_rng(0)
    counts = each + 4 * np.arange(num_values)
    column = np.repeat([f"v{i:02}" for i in range(num_values)], counts)
    table = pa.table({f"c{k}": draw.permutation(column) for k in range(num_columns)})
    return open_schema(**dict.fromkeys(table.column_names, "categorical")), table


def numbers(num_rows: int = 300) -> tuple[us.Schema, pa.Table]:
    draw = np.random.default_rng(1)
    table = pa.table({"x": draw.normal(50, 20, num_rows), "y": draw.normal(-3, 1, num_rows)})
    return open_schema(x="real", y="real"), table


def planned_epsilon(schema: us.Schema, method: str, guarantee: us.Guarantee = GUARANTEE) -> float:
    return spent_by(us.plan(schema, method, guarantee), guarantee).epsilon


# ---------------------------------------------------------------------- estimated sizes refuse nothing after a charge


def test_a_histogram_over_estimated_categories_is_fitted_by_merging_the_rarest(charged: list[str]) -> None:
    schema, table = texts()
    method = f"mwem(splits=[[{', '.join(schema.names)}]], mw_passes=1, rounds=1)"
    assert any("become 'other'" in note.text for note in us.plan(schema, method, GUARANTEE).notes)
    release = us.fit(table, method, GUARANTEE, schema=schema, seed=3)
    assert charged == ["size", "categories", "counts", "selections"]
    domain = release.codec.domain
    assert MAX_CELLS * 0.3 < domain.size(domain.names) <= MAX_CELLS
    whole = us.fit(table, "independent", GUARANTEE, schema=schema, seed=3)  # the same noise on the same counts
    for column, full in zip(release.codec.columns, whole.codec.columns, strict=True):
        kept, found = (set(codec.to_dict()["categories"]) for codec in (column, full))  # type: ignore[call-overload]  # JSON, typed as objects
        assert kept < found
        assert {f"v{i:02}" for i in range(20, 25)} <= kept  # the most frequent
        assert not {"v00", "v01", "v02"} & kept
    assert release.statement.epsilon == planned_epsilon(schema, method)


def test_what_merging_cannot_fit_is_refused_before_the_first_charge(charged: list[str]) -> None:
    schema, table = texts(num_columns=16)
    assert MERGED_SIZE**16 > MAX_CELLS
    for call in (us.plan, lambda *given: us.fit(table, *given[1:], schema=schema)):
        with raises(ConfigError, setting="splits"):
            call(schema, f"mwem(splits=[[{', '.join(schema.names)}]])", GUARANTEE)
    assert not charged


def test_a_code_is_refused_by_what_may_be_estimated_and_else_fits_what_was(charged: list[str]) -> None:
    schema, table = texts(num_columns=2, num_values=3)
    with raises(ConfigError, setting="code_size"):
        us.fit(table, f"autogan(code_size=2005, {AUTOGAN})", ROUGH, schema=schema)
    assert not charged
    release = us.fit(table, f"autogan(code_size=2000, {AUTOGAN})", ROUGH, schema=schema, seed=1)
    assert "autoencoder" in charged
    assert release.sample(5, seed=0).num_rows == 5


def test_conditions_over_estimated_numbers_find_a_column(charged: list[str]) -> None:
    schema, table = numbers()
    release = us.fit(table, f"patectgan({PATE}, features=modes)", ROUGH, schema=schema, seed=1)
    assert {"size", "bounds", "histograms", "votes"} <= set(charged)
    assert release.sample(5, seed=0).num_rows == 5


def test_class_weights_need_declared_classes(charged: list[str]) -> None:
    schema, table = texts(num_columns=2, num_values=3)
    with raises(ConfigError, setting="class_weight"):
        us.fit(table, "quail(mst, target=c0, learner=mlp(class_weight=[1, 2]))", GUARANTEE, schema=schema)
    assert not charged


@given(
    lists=st.lists(st.dictionaries(st.integers(0, 99), st.integers(0, 50), min_size=1), min_size=1, max_size=4),
    most=st.integers(16, 3000),
)
def test_merging_stops_as_soon_as_the_method_holds_the_columns(lists: list[dict[int, int]], most: int) -> None:
    """Whatever was found: what is kept fits, are the largest counts of each list, and fitted no step before."""
    found: dict[str, Any] = {f"c{at}": counts for at, counts in enumerate(lists)}
    sizes = tuple(len(counts) + 1 for counts in lists)
    domain = Domain(names=tuple(found), sizes=sizes, num_rows=9, estimated=tuple(found))
    kept = merge_rarest(domain, found, lambda domain: domain.names if domain.size(domain.names) > most else ())
    cells = np.prod([len(counts) + 1 for counts in kept.values()])
    assert cells <= most or all(len(counts) == 1 for counts in kept.values())
    for name, counts in kept.items():
        gone = {value: count for value, count in found[name].items() if value not in counts}
        assert counts.items() <= found[name].items()
        assert not gone or max(gone.values()) <= min(counts.values())
    if np.prod(sizes) <= most:
        assert kept == found


def test_the_largest_sizes_bound_what_a_codec_can_get() -> None:
    """Of every kind of column, whatever is found; and the stand-ins of a plan are no larger."""
    kinds = {"a": "categorical", "b": "boolean", "c": "integer", "d": "real", "e": "date"}
    schema, binning = open_schema(**kinds), us.Binning(max_bins=5, max_categories=4)
    assumed = assumed_domain(schema, binning)
    assert assumed.largest.sizes == (6, 3, 6, 6, 6)
    assert all(size <= most for size, most in zip(assumed.sizes, assumed.largest.sizes, strict=True))
    draw = np.random.default_rng(0)
    table = pa.table(
        {
            "a": draw.choice([f"v{i}" for i in range(9)], 900),
            "b": draw.random(900) < 0.5,
            "c": draw.integers(0, 1000, 900),
            "d": draw.normal(size=900),
            "e": np.datetime64("2020-01-01") + draw.integers(0, 999, 900).astype("timedelta64[D]"),
        }
    )
    release = us.fit(table, "independent", GUARANTEE, schema=schema, binning=binning, seed=0)
    sizes = release.codec.domain.sizes
    assert sizes[0] == 6
    assert all(size <= most for size, most in zip(sizes, assumed.largest.sizes, strict=True))
    assert assumed.only(["a", "d"]).largest.sizes == (6, 6)


# --------------------------------------------------------------------------------------------- what fails all the same


def test_a_diverged_training_is_a_spending(charged: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERSTUDY_DEBUG", "1")  # keeps the cause
    schema, table = numbers()
    with pytest.raises(SpentError) as caught:
        us.fit(table, DIVERGES, ROUGH, schema=schema)
    error = caught.value
    assert "critic" in charged
    assert isinstance(error.__cause__, TrainingError)
    assert isinstance(error, UnderstudyError)
    assert error.record is None
    plan = us.plan(schema, DIVERGES, ROUGH)
    assert error.statement.queries == plan.queries
    assert error.statement.epsilon == planned_epsilon(schema, DIVERGES, ROUGH)
    assert not error.statement.released
    assert re.fullmatch(
        r"Training diverged before step \d+: .* Nothing was released, but epsilon 0\.3 at delta 1e-06 is spent\. "
        r"To record this, call error\.save\(folder\)\.",
        str(error),
    )
    error.save(tmp_path / "record")
    assert read_record(tmp_path / "record") == error.statement
    with pytest.raises(us.TableError):
        error.save(tmp_path / "record")


class Broken(MWEM):
    """Plans as mwem does, and refuses by what was estimated."""

    def fit(self, *given: Any, **more: Any) -> Any:
        raise ConfigError("A row has 63 features and the table 1,234 rows.")


def test_the_whole_plan_is_spent_however_early_the_run_fails(tmp_path: Path) -> None:
    """The first query of four is made; the record has the cost of all of them, and nothing that was estimated."""
    schema, table = texts(num_columns=2, num_values=5)

    with pytest.raises(SpentError) as caught:
        us.fit(table, Broken(rounds=1), GUARANTEE, schema=schema, checkpoint=tmp_path / "run.checkpoint")
    statement = read_record(tmp_path / "run.spent")
    assert statement == caught.value.statement
    assert [query.key for query in statement.queries] == ["size", "categories", "counts", "selections"]
    assert statement.epsilon > 2.99
    assert not statement.facts.estimated
    assert "63" not in caught.value.failure  # the whole text names a folder, which may hold any number
    assert "an internal error of Understudy (ConfigError)" in str(caught.value)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError("317 bytes"), "does not fit in memory"),
        (ValueError("row 317 is odd"), r"internal error of Understudy \(ValueError\)"),
        (us.BudgetExceeded("Nothing was looked at."), r"internal error of Understudy \(BudgetExceeded\)"),
    ],
)
def test_other_errors_are_spendings_too_and_their_texts_are_not_shown(error: Exception, words: str) -> None:
    schema, table = texts(num_columns=3, num_values=3)
    told = itertools.count()

    def fails(share: float, now: str) -> None:
        if next(told) == 1:  # the first is that the table is read
            raise error

    with pytest.raises(SpentError, match=words) as caught:
        us.fit(table, "mwem", GUARANTEE, schema=schema, progress=fails)
    assert "317" not in str(caught.value)
    assert "looked at" not in str(caught.value)


@pytest.mark.made_up_figures  # that of privacy losses is the guarantee
def test_a_run_without_memory_leaves_a_record_that_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even for the exact cost: then the guarantee stands for it, and the figure that needs no memory is exact."""
    schema, table = texts(num_columns=3, num_values=3)
    told = itertools.count()

    def no_memory(*arguments: object) -> Never:
        monkeypatch.undo()  # what the run held is free once its statement is made
        raise MemoryError

    def fails(fraction: float, text: str) -> None:
        if next(told) == 1:
            accountants._pld_epsilon.cache_clear()
            monkeypatch.setattr(accountants, "composed_pld", no_memory)
            raise MemoryError

    with pytest.raises(SpentError) as caught:
        us.fit(table, "mwem", GUARANTEE, schema=schema, progress=fails, checkpoint=tmp_path / "run.checkpoint")
    statement = caught.value.statement
    assert statement.epsilon_pld == GUARANTEE.epsilon
    assert caught.value.record == tmp_path / "run.spent"
    assert read_record(tmp_path / "run.spent") == statement
    exact = spent_by(statement.queries, GUARANTEE)
    assert (statement.epsilon_rdp, statement.epsilon >= exact.epsilon) == (exact.rdp, True)


@pytest.mark.parametrize("debug", [False, True])
def test_the_original_error_is_attached_only_for_debugging(debug: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error inside a mechanism may quote the exact number of rows, and a traceback prints what is attached."""
    monkeypatch.delenv("UNDERSTUDY_DEBUG", raising=False)
    if debug:
        monkeypatch.setenv("UNDERSTUDY_DEBUG", "1")
    monkeypatch.setattr(PrivateRows, "_count_ahead", lambda self, queries: np.zeros(len(self._codes)) + np.zeros(3))
    schema = us.Schema(columns=(us.Column(name="a", kind="categorical", categories=("x", "y"), closed=True),))
    table = pa.table({"a": ["x"] * 1237})
    with pytest.raises(SpentError, match=r"internal error of Understudy \(ValueError\)") as caught:
        us.fit(table, "independent", GUARANTEE, schema=schema)
    attached = (caught.value.__cause__, caught.value.__context__)
    assert all(isinstance(each, ValueError) if debug else each is None for each in attached)
    assert ("(1237,)" in "".join(traceback.format_exception(caught.value))) == debug


def test_before_the_first_charge_and_without_a_guarantee_errors_stay_what_they_are(tmp_path: Path) -> None:
    schema, table = numbers()

    def fails(share: float, now: str) -> None:
        raise ConfigError("stop", setting="progress")

    with raises(ConfigError, setting="progress"):
        us.fit(table, "independent", GUARANTEE, schema=schema, progress=fails, checkpoint=tmp_path / "run.checkpoint")
    with pytest.raises(Diverged):
        us.fit(table, DIVERGES, us.Guarantee.not_private(), schema=schema, checkpoint=tmp_path / "run.checkpoint")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("debug", [False, True])
def test_before_the_first_charge_the_text_of_a_library_is_not_shown(
    debug: bool, charged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERSTUDY_DEBUG", "1") if debug else monkeypatch.delenv("UNDERSTUDY_DEBUG", raising=False)
    monkeypatch.setattr(
        encoding_fit, "noisy_size", lambda table, *_: np.full(next(iter(table._batches)).num_rows, "a") + 1
    )
    schema, table = numbers(1237)
    with pytest.raises(FailedRun, match=r"\(\w+Error\)\. Please report it\. Nothing was charged\.$") as caught:
        us.fit(table, "independent", GUARANTEE, schema=schema)
    assert not charged
    assert (caught.value.__cause__ is not None, caught.value.__context__ is not None) == (debug, debug)


def test_an_interrupted_run_is_no_failed_one(tmp_path: Path) -> None:
    schema, table = texts(num_columns=3, num_values=3)
    told = itertools.count()

    def interrupted(share: float, now: str) -> None:
        if next(told) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        us.fit(table, "mwem", GUARANTEE, schema=schema, progress=interrupted, checkpoint=tmp_path / "run.checkpoint")
    assert [path.name for path in tmp_path.iterdir()] == ["run.checkpoint"]
    us.fit(table, "mwem", GUARANTEE, schema=schema, checkpoint=tmp_path / "run.checkpoint", resume=True)


def test_the_checkpoint_of_a_failed_run_serves_the_identical_run_alone(tmp_path: Path) -> None:
    """Resumed, it fails with the same noise and has one record; a new run needs the folder gone, and has its own."""
    schema, table = numbers()
    folder = tmp_path / "run.checkpoint"

    def fit(**more: Any) -> SpentError:
        with pytest.raises(SpentError) as caught:
            us.fit(table, DIVERGES, ROUGH, schema=schema, checkpoint=folder, **more)
        return caught.value

    first = fit()
    assert first.record == tmp_path / "run.spent"
    record = {path.name: path.read_bytes() for path in first.record.iterdir()}
    assert set(record) == {"certificate.json", "CERTIFICATE.md", "certificate.html"}
    noise = (folder / "run.json").read_bytes()
    again = fit(resume=True)
    assert str(again) == str(first)
    assert (folder / "run.json").read_bytes() == noise
    with raises(CheckpointError, reason="spent"):
        us.fit(table, DIVERGES, ROUGH, schema=schema, checkpoint=folder)
    with raises(CheckpointError, reason="other run"):
        us.fit(table.slice(1), DIVERGES, ROUGH, schema=schema, checkpoint=folder, resume=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.checkpoint", "run.spent"]
    for path in folder.iterdir():
        path.unlink()
    assert fit().record == tmp_path / "run-2.spent"
    assert {path.name: path.read_bytes() for path in first.record.iterdir()} == record


def test_a_record_that_cannot_be_written_does_not_hide_the_spending(tmp_path: Path) -> None:
    """The name of the checkpoint is as long as names may be: there is no room for that of a file beside it."""
    schema, table = texts(num_columns=2, num_values=5)
    folder = tmp_path / f"{'x' * 244}.checkpoint"
    with pytest.raises(SpentError, match=r"the name is too long.*error\.save\(folder\)") as caught:
        us.fit(table, Broken(rounds=1), GUARANTEE, schema=schema, checkpoint=folder)
    assert caught.value.record is None
    caught.value.save(tmp_path / "record")
    assert read_record(tmp_path / "record") == caught.value.statement


def test_the_command_says_what_is_spent_and_where_it_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    schema, table = numbers()
    pyarrow.csv.write_csv(table, "people.csv")
    schema.write("people.toml")
    command = [
        "fit",
        "people.csv",
        "--schema",
        "people.toml",
        "--epsilon",
        "0.3",
        "--method",
        DIVERGES,
        "-o",
        "out",
        "-q",
    ]
    assert run(command) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "Nothing was released, but epsilon 0.3 at" in said
    assert said.endswith("The record is out.spent/.\n")
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out.checkpoint", "out.spent"]
    content = json.loads(Path("out.spent/certificate.json").read_text())
    assert content["released"] is False
    rules = (
        importlib.resources.files("understudy.certificate")
        .joinpath("certificate.schema.json")
        .read_text(encoding="utf-8")
    )
    jsonschema.Draft202012Validator(json.loads(rules)).validate(content)
    assert "SPENT, NOTHING RELEASED" in Path("out.spent/CERTIFICATE.md").read_text()
    assert run(["certificate", "out.spent"]) == 0
    assert "SPENT, NOTHING RELEASED" in capsys.readouterr().out
    assert run(["certificate", "out.spent", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == content
    with raises(ReleaseError, reason="unknown kind"):
        us.Release.load("out.spent")
    assert run(["sample", "out.spent", "-o", "fake.csv"]) == 2
    capsys.readouterr()
    assert run([*command, "--resume"]) == 2
    assert capsys.readouterr().err == said
    assert run(command) == 2
    assert "spent its budget" in capsys.readouterr().err


def test_the_certificate_of_a_failed_run_claims_no_release() -> None:
    query = Query("counts", "counts of a marginal", DiscreteGaussian(10.0))
    ledger = Ledger(Guarantee(1.0, 1e-6), noise=SecureNoise())
    statement = ledger.statement(method="mst", planned=[query])
    assert not ledger.queries
    words = certificate.to_markdown(statement)
    assert words.index("SPENT, NOTHING RELEASED") < words.index("epsilon = ")
    assert "Everything in this release" not in words
    assert certificate.from_json(certificate.to_json(statement)) == statement


# ------------------------------------------------------------------------------------------------------------ learners


class Failing:
    """A learner that makes its query and then cannot go on."""

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        stddev = budget.calibrate(lambda noise: [DiscreteGaussian(noise)])
        return Plan((Query("classes", "counts of the target", DiscreteGaussian(stddev), domain.names),))

    def fit(self, run: Run) -> Predictor:
        noisy_counts(run.rows, [(run.domain.names[0],)], run.plan["classes"], run.ledger)
        raise TrainingError("The minimum was not reached.")


class FailingClassifier(learners.LogisticRegression):
    def _method(self, target: us.Column) -> Any:
        return Failing()


def test_a_learner_that_fails_after_its_query_carries_the_statement() -> None:
    schema = us.Schema(
        columns=(
            us.Column(name="x", kind="real"),
            us.Column(name="y", kind="categorical", categories=("a", "b"), closed=True),
        ),
        target="y",
    )
    table = pa.table({"x": np.linspace(0, 1, 50), "y": ["a", "b"] * 25})
    with pytest.raises(SpentError, match=r"^The minimum was not reached\. Nothing was released, but epsilon") as caught:
        FailingClassifier(guarantee=GUARANTEE, schema=schema).fit(table)
    statement = caught.value.statement
    assert [query.key for query in statement.queries] == ["size", "bounds", "classes"]
    assert 2.9 < statement.epsilon <= 3.0
    assert not statement.released
    assert not statement.facts.estimated


# ----------------------------------------------------------------------------------- settings by what may be estimated

SPLITS = ("", "splits=[[a, b, n, r]]", "splits=[[a, b], [n, r]]", "split_factor=3")
COUNTING = [
    "independent",
    *(f"mwem({', '.join(filter(None, (split, 'mw_passes=1, rounds=1')))})" for split in SPLITS),
    "quail(independent, target=a, learner=naive_bayes)",
    "quail(mwem(splits=[[b, n, r]], mw_passes=1, rounds=1), target=a, learner=prior)",
    "quail(independent, target=n, learner=linear)",
]
TRAINING = [
    *(f"autogan({AUTOGAN}, code_size={code})" for code in (1, 20, 100, 1500)),
    f"autogan({AUTOGAN}, encoder=dp_pca, code_size=9)",
    f"autogan({AUTOGAN}, code_size=40, features=modes)",
    *(f"patectgan({PATE}, features={features})" for features in ("binned", "typed", "modes")),
    f"boosted(dpgan(steps=4, sampling_rate=0.25, {NETS}), rounds=2, checkpoint_every=1, checkpoints=2, "
    "samples_per_generator=20)",
    f"boosted(autogan({AUTOGAN}, encoder=dp_pca), rounds=2, checkpoint_every=1, checkpoints=2, "
    "samples_per_generator=20)",
    f"drs(dpctgan(steps=4, sampling_rate=0.25, {NETS}), proposals=50)",
    f"selected(dpgan(steps=4, sampling_rate=0.25, {NETS}), checkpoints=2, task=marginals)",
    "quail(independent, target=a, learner=mlp(steps=2))",
    "quail(independent, target=b, learner=logistic(steps=2))",
    "mst(iterations=5)",
    "aim(max_rounds=3, iterations=5)",
    "gem(steps=2)",
    DIVERGES,
]


@st.composite
def tables(draw: st.DrawFn) -> tuple[us.Schema, pa.Table]:
    """Few rows or many, values that are listed or not, bounds that are found or not; everything is estimated."""
    num_rows, random = draw(st.sampled_from([1, 40, 700])), np.random.default_rng(draw(st.integers(0, 9)))

    def text(most: int) -> np.ndarray:
        return random.choice([f"v{i}" for i in range(draw(st.integers(1, most)))], num_rows)

    nullable = draw(st.booleans())
    top = draw(st.sampled_from([1, 9, 100_000]))
    table = pa.table(
        {
            "a": text(4),
            "b": text(40),
            "n": random.integers(0, top + 1, num_rows),
            "r": random.normal(0, 10.0 ** draw(st.integers(-3, 6)), num_rows),
        }
    )
    kinds = {"a": "categorical", "b": "categorical", "n": "integer", "r": "real"}
    columns = tuple(us.Column(name=name, kind=kind, nullable=nullable) for name, kind in kinds.items())
    return us.Schema(columns=columns), table


def check_outcome(method: str, data: tuple[us.Schema, pa.Table], binning: us.Binning, fails_at: int | None) -> None:
    """A release, a refusal before the first charge that the plan makes too, or a record of all that was planned."""
    schema, table = data
    told = itertools.count()
    charges: list[Query] = []
    charge = Ledger.charge

    def noted(self: Ledger, query: Query) -> None:
        charge(self, query)
        charges.append(query)

    def fails(share: float, now: str) -> None:
        if next(told) == fails_at:
            raise ConfigError(f"A histogram would have 987654 cells. {'Nothing was'} looked at.")

    def outcome() -> us.Release | UnderstudyError:
        try:
            return us.fit(table, method, GUARANTEE, schema=schema, binning=binning, progress=fails, seed=7)
        except UnderstudyError as error:
            return error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "charge", noted)
        patch.setenv("UNDERSTUDY_DEBUG", "1")  # keeps the cause
        ended = outcome()
    if isinstance(ended, UnderstudyError) and not charges:
        assert not isinstance(ended, SpentError)
        if fails_at is None:
            with pytest.raises(UnderstudyError, match=re.escape(str(ended))):
                us.plan(schema, method, GUARANTEE, binning=binning)
        return
    assert isinstance(ended, us.Release | SpentError), ended
    queries = us.plan(schema, method, GUARANTEE, binning=binning).queries
    costs = [(query.key, query.event, query.delta) for query in queries]
    assert [(query.key, query.event, query.delta) for query in ended.statement.queries] == costs
    assert ended.statement.epsilon == spent_by(queries, GUARANTEE).epsilon
    assert ended.statement.released == isinstance(ended, us.Release)
    if isinstance(ended, SpentError):
        assert {(query.key, query.event, query.delta) for query in charges} <= set(costs)
        assert "looked at" not in str(ended)
        assert "987654" not in str(ended)
        assert fails_at is not None or isinstance(ended.__cause__, TrainingError), ended.__cause__


BINNINGS = st.builds(us.Binning, max_bins=st.sampled_from([2, 32]), max_categories=st.sampled_from([1, 3, 1000]))
FAILS = st.sampled_from([None, None, None, 0, 1, 2])


@settings(max_examples=scaled(60))
@given(method=st.sampled_from(COUNTING), data=tables(), binning=BINNINGS, fails_at=FAILS)
def test_after_a_charge_there_is_a_release_or_a_record(
    method: str, data: tuple[us.Schema, pa.Table], binning: us.Binning, fails_at: int | None
) -> None:
    check_outcome(method, data, binning, fails_at)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Rejection sampling accepted no row")  # errors in tests, and no failure of a run
@settings(max_examples=scaled(100))
@given(method=st.sampled_from(COUNTING + TRAINING), data=tables(), binning=BINNINGS, fails_at=FAILS)
def test_after_a_charge_there_is_a_release_or_a_record_of_every_method(
    method: str, data: tuple[us.Schema, pa.Table], binning: us.Binning, fails_at: int | None
) -> None:
    check_outcome(method, data, binning, fails_at)


# ---------------------------------------------------------------------------------------------------------- the source


def _strings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_no_text_says_that_nothing_was_read() -> None:
    """Whoever says it cannot know: other queries may have been answered before the one that is refused."""
    strings = [(path.name, string) for path in SOURCE.rglob("*.py") for string in _strings(path)]
    assert not [where for where in strings if "nothing was looked at" in " ".join(where[1].lower().split())]


def test_an_error_that_is_shown_after_queries_holds_no_numbers_but_steps() -> None:
    """Texts of TrainingError and ClusterError are quoted after a charge. What is computed of them: the step, advice,
    the type of an error, the version of this package, and the name of a module that this process has imported."""
    shown: list[str] = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("ClusterError", "Diverged", "TrainingError"):
                shown += [ast.unparse(part.value) for part in ast.walk(node) if isinstance(part, ast.FormattedValue)]
    of_clusters = ["__version__", "missing[1].split('.')[0]", "type(error).__name__"]
    assert sorted(shown) == sorted(["advice", "done * steps_each", *of_clusters])
