"""Boosted, drs and selected: features other than codes, public rows, tasks with numbers, and the command line."""

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from jaxtyping import PRNGKeyArray

import understudy as us
from tests.builders import RowsRead, over_budget
from tests.synthesizers.walk import DOMAIN, REAL, Law, Walk, book, real_rows
from understudy.cli import run
from understudy.encoding.features import Bits, Layout, Line, Modes, OneHot, num_features
from understudy.errors import ConfigError
from understudy.models.pool import Pool
from understudy.models.protocol import Sample
from understudy.privacy.accounting.events import Selections
from understudy.privacy.accounting.ledger import Query
from understudy.privacy.mechanisms.selection import CHUNK, STEPS, RowFunctions, noisy_function_selections
from understudy.privacy.rows.rows import PrivateRows, PublicRows
from understudy.schema import Domain, NumericDomain
from understudy.synthesizers import read_method
from understudy.synthesizers.boosted import Boosted
from understudy.synthesizers.boosted.game import acceptance
from understudy.synthesizers.boosted.method import DRS
from understudy.synthesizers.run import Run
from understudy.synthesizers.selected.method import Selected
from understudy.synthesizers.selected.tasks import _points, cluster_score, find_centres, number_score, numbers
from understudy.training.neural import Critic
from understudy.training.trajectory import Trajectory, score_by_critics

# ----------------------------------------------------------------------------------- what critics see of a private row

EDGES = (0.0, 0.25, 1.0)
LAYOUT = Layout((OneHot(3), Modes(EDGES, None, True, (), (0.3, 0.5), (0.15, 0.2), (0.5, 0.5))))
"""Two components that overlap nearly everywhere: the row's own number decides."""
MIXED = Domain(names=("city", "income"), sizes=(3, 3), num_rows=9000)
INCOME = NumericDomain(fine_edges=EDGES, fine_masses=(0.5, 0.5), first_fine_bin=(0, 1, 2), nullable=True)
QUERY = Query("p", "selections", Selections(1.0))


def mixed_rows(num_rows: int) -> PrivateRows:
    generator = np.random.default_rng(3)
    codes = generator.integers(3, size=(num_rows, 2)).astype(np.int32)
    along = np.where(codes[:, 1] == 2, np.nan, generator.random(num_rows))
    positions = np.stack([np.full(num_rows, np.nan), along], axis=1)
    return PrivateRows(codes, MIXED, positions=lambda: positions, scales=(None, INCOME))


def exact_sums(rows: PrivateRows, functions: RowFunctions, seed: int = 0) -> np.ndarray:
    """White box: what no one else may see."""
    return noisy_function_selections(rows, functions, QUERY, book(50.0, seed))._exact_sums


WEIGHTS = np.random.default_rng(0).random((num_features(LAYOUT.blocks), 4))


def of_features(features: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-(features[:, :, None] * WEIGHTS).sum(axis=1)))


@dataclasses.dataclass(frozen=True)
class Recording:
    """A layout that remembers its calls."""

    inner: Layout
    calls: list[tuple[int, bytes, np.ndarray]]

    def encode(self, codes: np.ndarray, positions: np.ndarray, key: PRNGKeyArray) -> np.ndarray:
        found = self.inner.encode(codes, positions, key)
        self.calls.append((len(codes), np.asarray(jax.random.key_data(key)).tobytes(), found))
        return found


def test_each_row_is_encoded_once_with_randomness_of_its_own() -> None:
    """Two chunks have keys of their own, and the sums are those of exactly the features that were made."""
    recording = Recording(LAYOUT, [])
    rows = mixed_rows(CHUNK + 500)
    found = exact_sums(rows, RowFunctions(of_features, 4, layout=recording))
    made = [call for call in recording.calls if call[0] != CHUNK or call[1] != np.zeros(2, np.uint32).tobytes()]
    assert [size for size, _, _ in made] == [CHUNK, 500]  # the probe, on rows made up, came before
    assert made[0][1] != made[1][1]
    features = np.concatenate([each for _, _, each in made])
    np.testing.assert_array_equal(found, np.rint(of_features(features) * STEPS).sum(axis=0))
    other = exact_sums(rows, RowFunctions(of_features, 4, layout=LAYOUT), seed=1)
    assert not np.array_equal(found, other)  # components are drawn anew in another run


def test_one_row_more_moves_sums_of_features_one_way_and_no_other_row() -> None:
    """With the same draws for the rows that stay: by the values of the one that came, each from 0 to 1."""
    functions = RowFunctions(of_features, 4, layout=LAYOUT)
    for size in (10, CHUNK, CHUNK + 3):
        moved = exact_sums(mixed_rows(size + 1), functions) - exact_sums(
            first_of(mixed_rows(size + 1), size), functions
        )
        assert np.all((moved >= 0) & (moved <= STEPS))


def first_of(rows: PrivateRows, size: int) -> PrivateRows:
    return PrivateRows(rows._codes[:size], MIXED, positions=lambda: rows._positions[:size], scales=rows.scales)


class Standardised(Layout):
    """Encodes a row by the others."""

    def encode(self, codes: np.ndarray, positions: np.ndarray, key: PRNGKeyArray) -> np.ndarray:
        features = super().encode(codes, positions, key)
        return features - features.mean(axis=0)


def test_a_layout_that_mixes_rows_is_refused_before_any_query() -> None:
    ledger = book(50.0)
    with pytest.raises(ConfigError, match="mix rows"):
        noisy_function_selections(
            mixed_rows(20), RowFunctions(of_features, 4, layout=Standardised(LAYOUT.columns)), QUERY, ledger
        )
    assert ledger.queries == ()


def test_rows_are_encoded_after_the_charge() -> None:
    def positions() -> np.ndarray:
        raise RowsRead

    rows = PrivateRows(np.zeros((4, 2), np.int32), MIXED, positions=positions, scales=(None, INCOME))
    with over_budget("p"):
        noisy_function_selections(
            rows, RowFunctions(of_features, 4, layout=LAYOUT), Query("p", "p", Selections(1.0, 99)), book(0.1)
        )
    with pytest.raises(RowsRead):
        noisy_function_selections(rows, RowFunctions(of_features, 4, layout=LAYOUT), QUERY, book(50.0))


def test_functions_of_codes_ask_for_no_places() -> None:
    def positions() -> np.ndarray:
        raise AssertionError("places were made")

    rows = PrivateRows(np.zeros((4, 2), np.int32), MIXED, positions=positions, scales=(None, INCOME))
    assert exact_sums(rows, RowFunctions(lambda codes: codes[:, :1] == 0, 1)) == [4 * STEPS]


@pytest.mark.parametrize("conditional", [False, True])
def test_critics_of_features_are_each_critic_alone(conditional: bool) -> None:
    """Numbers pass as they are; a conditional critic is asked with the levels that stand in the row one by one."""
    layout = Layout((OneHot(2), Line((0.0, 1.0), None, True, ()), OneHot(3), Bits((0.0, 1.0), 4, False, ())))
    blocks, width = layout.blocks, num_features(layout.blocks)
    assert [block.size for block in blocks] == [2, 2, 1, 3, 2]
    nets = [Critic(width * (1 + conditional), (7,), key=jax.random.key(seed)) for seed in range(3)]
    codes = np.asarray(list(itertools.product(range(2), range(2), range(3), [0])), dtype=np.int32)
    along = np.random.default_rng(0).random((len(codes), 4))
    features = layout.encode(codes, np.where(codes == [9, 1, 9, 9], np.nan, along), jax.random.key(0))
    wanted = [column is not None for column in layout.discrete]
    found = score_by_critics(nets, blocks, conditional=conditional, wanted=wanted)(features)
    first, second = np.arange(width) < 2, (np.arange(width) >= 5) & (np.arange(width) < 8)
    for (row, seen), (column, net) in itertools.product(enumerate(features), enumerate(nets)):
        shown = [np.concatenate([seen, seen * mask]) for mask in (first, second)] if conditional else [seen]
        scores = [1 / (1 + np.exp(-float(net(jnp.asarray(each))))) for each in shown]
        assert found[row, column] == pytest.approx(np.mean(scores), abs=1e-6)


def test_generated_rows_are_shown_like_real_ones() -> None:
    rows = mixed_rows(50)
    path = Trajectory((), of_features, LAYOUT)
    shown = path.shown(rows._codes, rows._positions, jax.random.key(1))(slice(8, 24))
    assert shown.shape == (16, num_features(LAYOUT.blocks))
    codes, positions = LAYOUT.decode(shown)
    np.testing.assert_array_equal(codes[:, 0], rows._codes[8:24, 0])
    np.testing.assert_allclose(positions[:, 1], rows._positions[8:24, 1], atol=1e-6)
    codes_only = Trajectory((), of_features).shown(rows._codes, None, jax.random.key(1))(slice(8, 24))
    np.testing.assert_array_equal(codes_only, rows._codes[8:24])


# ---------------------------------------------------------------------------------------------------------------- tasks


def three_columns(num_rows: int, seed: int = 0) -> tuple[Sample, Domain, tuple[NumericDomain | None, ...]]:
    """A city, a number of four bins that may be missing, and one more that follows both."""
    generator = np.random.default_rng(seed)
    city, bins = generator.integers(3, size=num_rows), generator.integers(5, size=num_rows)
    along = (bins + generator.random(num_rows)) / 4
    size = np.clip(0.2 * city + 0.3 * along + 0.1 * generator.random(num_rows), 0, 1)
    four = NumericDomain(
        fine_edges=(0.0, 0.25, 0.5, 0.75, 1.0), fine_masses=(0.25,) * 4, first_fine_bin=(0, 1, 2, 3, 4), nullable=True
    )
    ten = NumericDomain(
        fine_edges=tuple(np.linspace(0, 1, 11).tolist()), fine_masses=(0.1,) * 10, first_fine_bin=tuple(range(11))
    )
    codes = np.stack([city, bins, np.minimum(10 * size, 9)], axis=1).astype(np.int32)
    positions = np.stack([np.full(num_rows, np.nan), np.where(bins == 4, np.nan, along), size], axis=1)
    domain = Domain(names=("city", "income", "size"), sizes=(3, 5, 10), num_rows=500, target="size", numeric=("size",))
    return Sample(codes, positions), domain, (None, four, ten)


def test_numbers_are_places_or_the_middles_of_bins() -> None:
    (codes, positions), _, scales = three_columns(200)
    assert scales[1] is not None
    np.testing.assert_array_equal(numbers(Sample(codes, positions), 1, scales[1]), positions[:, 1])  # type: ignore[index]  # with positions
    middles = numbers(Sample(codes, None), 1, scales[1])
    np.testing.assert_array_equal(np.isnan(middles), codes[:, 1] == 4)
    assert set(middles[codes[:, 1] < 4]) == {0.125, 0.375, 0.625, 0.875}


@pytest.mark.parametrize("placed", [True, False])
def test_a_regression_scores_each_row_by_itself(placed: bool) -> None:
    """Against least squares on one-hot columns; places are relative to the bounds, so the range is one."""
    from sklearn.linear_model import LinearRegression

    (codes, positions), domain, scales = three_columns(4000)
    table = Sample(codes, positions if placed else None)
    onehot = np.concatenate([np.eye(3)[codes[:, 0]], np.eye(5)[codes[:, 1]]], axis=1)
    assert scales[2] is not None
    wanted = numbers(table, 2, scales[2])
    oracle = LinearRegression().fit(onehot, wanted)
    score = number_score(table, domain, scales)
    rows, _, _ = three_columns(1000, seed=1)
    seen = np.concatenate([np.eye(3)[rows[0][:, 0]], np.eye(5)[rows[0][:, 1]]], axis=1)
    expected = 1 - (rows[1][:, 2] - oracle.predict(seen)) ** 2  # type: ignore[index]  # with positions
    np.testing.assert_allclose(score(rows), expected, atol=2e-3)
    one_by_one = [float(score(Sample(rows[0][i : i + 1], rows[1][i : i + 1]))[0]) for i in range(50)]  # type: ignore[index]  # with positions
    np.testing.assert_array_equal(score(rows)[:50], one_by_one)


def test_a_regression_of_nothing_and_of_nulls() -> None:
    (codes, positions), domain, scales = three_columns(50)
    gone = dataclasses.replace(domain, target="income", numeric=("income", "size"))
    missing = np.where(np.arange(3) == 1, 4, codes).astype(np.int32)
    score = number_score(Sample(missing, None), gone, scales)
    assert set(score(Sample(missing, None))) == {0.0}  # no number, no score
    np.testing.assert_allclose(score(Sample(codes, positions))[codes[:, 1] < 4].max(), 1.0, atol=0.01)  # 1/2 for all
    with pytest.raises(ConfigError):
        number_score(Sample(codes, positions), dataclasses.replace(domain, target="city"), scales)


def test_centres_score_each_row_by_its_distance() -> None:
    """Two far groups have two centres; the farthest rows there can be score 0, and a row on a centre scores 1."""
    (codes, positions), domain, scales = three_columns(300)
    seed, points = np.asarray([1, 2], np.uint32), _points(Sample(codes, positions), domain, scales)
    centres = find_centres(points, 4, seed)
    assert len(centres) == 4
    np.testing.assert_array_equal(centres, find_centres(points, 4, seed))
    score = cluster_score(Sample(codes, positions), domain, scales, 4, seed)
    scores = score(Sample(codes, positions))
    assert scores.min() >= 0
    assert scores.max() <= 1
    again = [float(score(Sample(codes[i : i + 1], positions[i : i + 1]))[0]) for i in range(50)]  # type: ignore[index]  # with positions
    np.testing.assert_array_equal(scores[:50], again)
    better = cluster_score(Sample(codes, positions), domain, scales, 40, seed)
    assert better(Sample(codes, positions)).mean() > scores.mean() + 0.02
    ends = np.asarray([[0, 0, 0], [2, 3, 9]], np.int32)
    at = np.asarray([[np.nan, 0.0, 0.0], [np.nan, 1.0, 1.0]])
    alone = Sample(ends[:1], at[:1])
    assert len(find_centres(_points(alone, domain, scales), 3, seed)) == 1  # no more centres than there are points
    one = cluster_score(alone, domain, scales, 3, seed)
    np.testing.assert_allclose(one(Sample(ends, at)), [1.0, 0.0], atol=1e-12)
    null = Sample(np.asarray([[0, 4, 0]], np.int32), np.asarray([[np.nan, np.nan, 0.0]]))
    np.testing.assert_allclose(one(null), 1 - np.sqrt(1 / 3))


# ------------------------------------------------------------------------------------------------------------------ drs


def test_rejection_follows_the_last_critic_and_costs_nothing() -> None:
    """Kept shares of each cell against the stated law of acceptance, each within five standard deviations."""
    method, ledger = DRS(Walk(), proposals=40_000), book(3.0)
    plan = method.plan(DOMAIN, ledger.remaining)
    inner = Walk().plan(DOMAIN, ledger.remaining)
    assert plan.events == inner.events
    assert [query.path for query in plan] == [("walk",)]
    pool = method.fit(Run(real_rows(), plan, ledger, key=jax.random.key(2)))
    assert ledger.queries == plan.queries
    np.testing.assert_allclose(pool.weights, 1 / len(pool.codes))
    # The walk's last checkpoint has the real law, and its critic takes the first cell for real: 0.9, others 0.1.
    odds = acceptance(np.where(np.arange(40_000) < 40_000 * REAL[0, 0], 0.9, 0.1))
    kept = np.bincount(3 * pool.codes[:, 0] + pool.codes[:, 1], minlength=6)
    for cell, share in enumerate(REAL.ravel()):
        likely = share * (odds[0] if cell == 0 else odds[-1])
        assert abs(kept[cell] - 40_000 * likely) < 5 * np.sqrt(40_000 * likely * (1 - likely)) + 1
    assert odds[0] == pytest.approx(0.5)


# --------------------------------------------------------------------------------------------------------------- public


@pytest.mark.parametrize(
    "method",
    [
        lambda inner: Boosted(inner, rounds=5, checkpoints=3, checkpoint_every=1, samples_per_generator=50),
        lambda inner: Selected(inner, checkpoints=3, task="marginals"),
        lambda inner: DRS(inner, proposals=100),
    ],
    ids=["boosted", "selected", "drs"],
)
def test_public_rows_reach_the_inner_method(method) -> None:
    seen: list[PublicRows | None] = []

    class Told(Walk):
        def trajectory(self, run: Run, *, checkpoints: int, every: int) -> Trajectory:
            seen.append(run.public)
            return super().trajectory(run, checkpoints=checkpoints, every=every)

    codes = Law(REAL).sample(10, key=jax.random.key(0)).codes
    public = PublicRows(codes, np.full(codes.shape, np.nan))
    wrapped = method(Told())
    for given in (public, None):
        ledger = book()
        plan = wrapped.plan(DOMAIN, ledger.remaining)
        wrapped.fit(Run(real_rows(), plan, ledger, key=jax.random.key(0), public=given))
    assert seen[0] is public
    assert seen[1] is None


# ----------------------------------------------------------------------------------------------------- the command line

NETS = "latent=4, generator_widths=[8, 8], critic_widths=[4]"


def people(num_rows: int = 300, seed: int = 0) -> pa.Table:
    draw = np.random.default_rng(seed)
    city = draw.choice(["ham", "ulm"], num_rows)
    income = np.where(city == "ham", 2000, 7000) + draw.normal(0, 500, num_rows)
    return pa.table({"city": city, "income": pa.array(np.round(income, 2), mask=draw.random(num_rows) < 0.1)})


SCHEMA = us.Schema(
    columns=(
        us.Column(name="city", kind="categorical", categories=("ham", "ulm"), nullable=False, closed=True),
        us.Column(name="income", kind="real", bounds=(0.0, 10_000.0), decimals=2),
    ),
    rows=300,
    target="income",
)

# All rows in each step: the cost is quickly found.
EXPRESSIONS = {
    "boosted": f"boosted(dpgan(steps=8, sampling_rate=1, features=modes, num_modes=3, {NETS}, warm_steps=4), rounds=6, "
    "checkpoints=4, checkpoint_every=2, samples_per_generator=300)",
    "drs": f"drs(dpgan(steps=8, sampling_rate=1, features=typed, {NETS}), proposals=2000)",
    "selected": f"selected(dpgan(steps=8, sampling_rate=1, features=typed, {NETS}), task=squared_loss, k=2, "
    "checkpoints=4)",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(EXPRESSIONS))
def test_from_the_command_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """plan, fit, sample and certificate, with numbers as they were generated, and public rows for one of them."""
    table, schema, release = tmp_path / "t.parquet", tmp_path / "t.toml", tmp_path / "r"
    pq.write_table(people(), table)
    SCHEMA.write(schema)
    method = ["--method", EXPRESSIONS[name], "--epsilon", "3", "--delta", "1e-6"]
    assert run(["plan", str(schema), *method]) == 0
    assert name in capsys.readouterr().out
    public = []
    if name == "boosted":
        pq.write_table(people(100, seed=5), tmp_path / "open.parquet")
        public = ["--public", str(tmp_path / "open.parquet")]
    fit = ["fit", str(table), "--schema", str(schema), *method, "-o", str(release), "--quiet", *public]
    assert run(fit) == 0, capsys.readouterr().err
    assert run(["sample", str(release), "-n", "500", "-o", str(tmp_path / "fake.parquet"), "--quiet"]) == 0
    assert run(["certificate", str(release), "--json", str(tmp_path / "c.json")]) == 0
    stated = json.loads((tmp_path / "c.json").read_text())
    assert stated["private"] is True
    assert name in json.dumps(stated)
    assert (stated["public"]["table_rows"] is not None) == bool(public)
    fake = pq.read_table(tmp_path / "fake.parquet")
    incomes = [value for value in fake["income"].to_pylist() if value is not None]
    assert all(0 <= value <= 10_000 for value in incomes)
    loaded = us.Release.load(release)
    assert read_method(loaded.statement.method) == read_method(EXPRESSIONS[name])
    assert 2.98 <= loaded.statement.epsilon <= 3
    if isinstance(loaded.model, Pool):
        assert loaded.model.positions is not None
        # The generated numbers, to the declared decimals, and not draws inside bins.
        made = loaded.codec.decode(loaded.model.codes, loaded.model.positions, key=jax.random.key(0))["income"]
        assert set(incomes) <= set(pc.round(made, 2).to_pylist())
        known = ~np.isnan(loaded.model.positions[:, 1])
        np.testing.assert_allclose(made.to_numpy()[known], 1e4 * loaded.model.positions[known, 1], atol=0.011)
    some = loaded.sample(40, where="city = 'ham' and income is not null", seed=1)
    assert set(some["city"].to_pylist()) == {"ham"}
    assert None not in some["income"].to_pylist()


@pytest.mark.slow
def test_a_boosted_run_goes_on_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while training and again while picking: one result, one set of draws and charges."""

    class Killed(BaseException):
        """Nothing catches it."""

    def killed_at(share: float):
        def progress(done: float, words: str) -> None:
            if done >= share:
                raise Killed

        return progress

    monkeypatch.setenv("UNDERSTUDY_CHECKPOINT_SECONDS", "0")
    method = EXPRESSIONS["boosted"]
    whole = us.fit(people(), method, us.Guarantee(3.0, 1e-6), schema=SCHEMA, seed=4)
    where = tmp_path / "run.checkpoint"
    for share, resume in ((0.4, False), (0.95, True), (2.0, True)):
        arguments = (people(), method, us.Guarantee(3.0, 1e-6))
        rest: dict[str, Any] = {"schema": SCHEMA, "seed": 4, "checkpoint": where, "resume": resume}
        if share < 1:
            with pytest.raises(Killed):
                us.fit(*arguments, progress=killed_at(share), **rest)
        else:
            again = us.fit(*arguments, **rest)
    assert again.statement.queries == whole.statement.queries
    for name, array in whole.model.to_arrays()[1].items():
        np.testing.assert_array_equal(array, again.model.to_arrays()[1][name])
