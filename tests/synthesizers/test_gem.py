"""GEM: what its bundle may reveal, that its matrices are the marginals, and that it finds what was measured."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from scipy import optimize, stats

import understudy as us
from tests.builders import make_ledger as ledger
from understudy.errors import BudgetExceeded, ConfigError, SchemaError
from understudy.privacy.events import Gaussian
from understudy.privacy.filters import MOST_NOISE, ROOM, GaussianFilter, charge_marginals
from understudy.privacy.ledger import Budget, Ledger, Query
from understudy.privacy.noise import FINE, SeededNoise
from understudy.privacy.rows import Grouped, PrivateRows
from understudy.schema import Domain
from understudy.synthesizers.gem.allocation import allocate_extra_precision, allocate_noise
from understudy.synthesizers.gem.groups import merge_rare_codes
from understudy.synthesizers.gem.measurements import MAX_GROUPS, MAX_THREE_WAY_GROUPS, MarginalMeasurements
from understudy.synthesizers.gem.method import GEM
from understudy.synthesizers.run import Run
from understudy.training.critics import one_hot_blocks
from understudy.training.marginal_matching import Cells, Cross, Fit, Pairs, heads_of, init_state, loss_of

SIZES = (3, 4, 2, 5)
NAMES = ("a", "b", "t", "c")
SMALL: dict[str, Any] = {"steps": 40, "components": 64, "width": 16, "depth": 1, "latent": 8}


def table(num_rows: int = 2000, *, seed: int = 0, target: str | None = "t") -> PrivateRows:
    """Four columns, of which b follows a, and t depends on both together."""
    draw = np.random.default_rng(seed)
    a, c = draw.integers(0, 3, num_rows), draw.integers(0, 5, num_rows)
    b = np.where(draw.random(num_rows) < 0.7, a, draw.integers(0, 4, num_rows))
    t = ((a == b) ^ (draw.random(num_rows) < 0.2)).astype(int)
    domain = Domain(names=NAMES, sizes=SIZES, num_rows=max(1, num_rows), target=target, numeric=("c",))
    return PrivateRows(np.stack([a, b, t, c], axis=1).astype(np.int32), domain)


def bundle(multiplier: float = 5.0) -> Query:
    return Query("marginals", "marginals", Gaussian(multiplier))


# ---------------------------------------------------------------------------------------------------------- the bundle


@pytest.mark.parametrize("query", [("a",), ("a", "b"), Grouped(("t", "a", "b"), ((0, 1), (0, 0, 1), (0, 1, 1, 0)))])
def test_a_unit_moves_a_marginal_by_its_rows(query: tuple[str, ...] | Grouped) -> None:
    """Whichever rows leave, cells change by their number in all: the L2 norm is no more."""
    rows = table(50)
    for gone in ([0], [3, 17], [1, 2, 3]):
        left = PrivateRows(np.delete(rows._codes, gone, axis=0), rows.domain)
        moved = rows._exact_counts(query) - left._exact_counts(query)
        assert np.abs(moved).sum() == len(gone)
        assert np.all(moved >= 0)


def test_groups_count_what_their_codes_count() -> None:
    rows = table(300)
    fine = rows._exact_counts(("a", "b"))
    grouped = rows._exact_counts(Grouped(("a", "b"), ((0, 1, 0), (0, 0, 1, 1))))
    assert grouped.tolist() == [
        [fine[[0, 2]][:, :2].sum(), fine[[0, 2]][:, 2:].sum()],
        [fine[1, :2].sum(), fine[1, 2:].sum()],
    ]


@pytest.mark.parametrize("rows_per_unit", [1, 3])
def test_the_bundle_holds_no_more_than_its_cost(rows_per_unit: int) -> None:
    """sum_j (k / s_j)^2 fills 1 / multiplier^2 and not a bit more, in one call or in several."""
    rows = table(100)
    rows.max_rows_per_unit = rows_per_unit
    charged, queries = bundle(5.0), [("a",), ("b",), ("a", "b")]
    privacy_filter = charge_marginals(rows, charged, ledger(10.0, rows_per_unit=rows_per_unit))
    assert privacy_filter.precision == pytest.approx(1 / (5.0 * rows_per_unit) ** 2)
    stddevs = allocate_noise(privacy_filter.precision, [3, 4, 12])
    assert sum((rows_per_unit / stddev) ** 2 for stddev in stddevs) == pytest.approx(5.0**-2)
    for query, stddev in zip(queries, stddevs, strict=True):
        privacy_filter.noisy_counts([query], [stddev])
    assert privacy_filter.left == pytest.approx(0.0, abs=1e-9)
    with pytest.raises(BudgetExceeded, match="This query was not made"):
        privacy_filter.noisy_counts([("t",)], [1e3])
    again = charge_marginals(rows, charged, ledger(10.0, rows_per_unit=rows_per_unit))
    with pytest.raises(BudgetExceeded, match="This query was not made"):
        again.noisy_counts(queries, [0.99 * stddev for stddev in stddevs])


class Watched(PrivateRows):
    """Rows that remember that they were looked at."""

    looked = False

    def _exact_counts(self, query: object) -> np.ndarray:
        self.looked = True
        return super()._exact_counts(query)  # type: ignore[arg-type]


def test_refused_bundles_touch_no_row() -> None:
    """Neither a query that does not fit, nor rows of smaller units, nor noise that is none."""
    rows = table(100)
    watched = Watched(rows._codes, rows.domain)
    with pytest.raises(BudgetExceeded):
        charge_marginals(watched, bundle(0.1), ledger(1.0))
    with pytest.raises(BudgetExceeded, match="2"):
        charge_marginals(watched, bundle(), ledger(10.0, rows_per_unit=2))
    privacy_filter = charge_marginals(watched, bundle(), ledger(10.0))
    for stddev in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(BudgetExceeded):
            privacy_filter.noisy_counts([("a",)], [stddev])
    assert not watched.looked


def test_noise_has_the_stddev_that_is_asked_for() -> None:
    """Accept that scale and reject its neighbours; each test errs once in a thousand."""
    domain = Domain(names=("a",), sizes=(20_000,), num_rows=1)
    rows = PrivateRows(np.zeros((0, 1), dtype=np.int32), domain)
    noise = charge_marginals(rows, bundle(2.0), ledger(10.0)).noisy_counts([("a",)], [2.0])[0]
    pvalue = {scale: stats.kstest(noise, stats.norm(scale=scale).cdf).pvalue for scale in (1.9, 2.0, 2.1)}
    assert pvalue[2.0] > 1e-3
    assert max(pvalue[1.9], pvalue[2.1]) < 1e-3


def test_no_answer_is_too_noisy_to_count() -> None:
    """Beside what is used already its precision is below the last digit; it must not be free."""
    privacy_filter = charge_marginals(table(100), bundle(5.0), ledger(10.0))
    privacy_filter.noisy_counts([("a",)], [5.1])
    used = [privacy_filter._used]
    for _ in range(3):
        privacy_filter.noisy_counts([("a",)], [MOST_NOISE])
        used.append(privacy_filter._used)
    assert used == sorted(set(used))


class Heard(SeededNoise):
    """Remembers its draws, and the standard deviations they were drawn with."""

    def __init__(self, seed: int):
        super().__init__(seed)
        self.drawn: list[tuple[float, np.ndarray]] = []

    def discrete_gaussian(self, stddev: float, shape: tuple[int, ...]) -> np.ndarray:
        self.drawn.append((stddev, super().discrete_gaussian(stddev, shape)))
        return self.drawn[-1][1]


@pytest.mark.parametrize("stddev", [0.3, 2.0, 1e3, 1e7])
def test_noise_is_drawn_on_fine_steps(stddev: float) -> None:
    """The cost is that of a continuous Gaussian, which discrete noise has only where steps are fine."""
    rows, noise = table(100), Heard(0)
    book = Ledger(us.Guarantee(100.0, 1e-6), noise=noise)
    (found,) = charge_marginals(rows, bundle(0.2), book).noisy_counts([("a", "b")], [stddev])
    [(drawn_with, draws)] = noise.drawn
    assert drawn_with >= FINE
    steps = drawn_with / stddev / (1 + ROOM)
    assert math.log2(steps) == pytest.approx(round(math.log2(steps)), abs=1e-12)
    assert (1 + ROOM) ** -2 * (1 + ROOM / 2) < 1  # what the sum may pass its cost by, the noise makes up for
    steps = 2.0 ** round(math.log2(steps))
    np.testing.assert_array_equal(found, rows._exact_counts(("a", "b")) + draws / steps)


@pytest.mark.parametrize("rows_per_unit", [1, 3])
@pytest.mark.parametrize(
    ("target", "settings", "others"),
    [
        ("t", {"mode": "one_shot"}, [3 + 3]),
        ("t", {"mode": "one_shot", "three_way_fraction": 0.4}, [3 + 3 + 4]),
        ("t", {"mode": "one_shot", "remeasurement_fraction": 0.4}, range(3 + 3 + 1, 3 + 3 + 3 + 1)),
        ("t", {"mode": "adaptive", "num_selections": 2, "rounds": 2}, [3 + 2]),
        ("t", {"mode": "adaptive", "num_selections": 2, "rounds": 2, "three_way_fraction": 0.1}, [3 + 2 + 4]),
        (None, {"mode": "one_shot", "three_way_fraction": 0.2}, range(6 + 1 + 4, 6 + 6 + 4 + 1)),
        (
            None,
            {"mode": "adaptive", "num_selections": 50},
            range(6 + 1, 6 + 6 + 1),
        ),  # all are measured, and re-measured
    ],
)
def test_all_answers_of_a_run_are_within_what_was_charged(
    target: str | None, settings: dict, others: Sequence[int], rows_per_unit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what is really drawn, with rounds, groups, 3-way marginals, re-measurement, cliques: all is charged before."""
    rows = table(1000, target=target)
    rows.max_rows_per_unit = rows_per_unit
    run = ledger(2.0, rows_per_unit=rows_per_unit)
    gem = GEM(**settings, **SMALL, cliques=(("a", "b", "c"),))
    plan = gem.plan(rows.domain, run.remaining)
    answered: list[float] = []
    honest = GaussianFilter._count

    def heard(privacy_filter: GaussianFilter, query: Any, stddev: float) -> np.ndarray:
        assert run.queries == plan.queries
        answered.append(stddev)
        return honest(privacy_filter, query, stddev)

    monkeypatch.setattr(GaussianFilter, "_count", heard)
    gem.fit(Run(rows, plan, run, key=jax.random.key(0)))
    event = plan["marginals"].event
    assert isinstance(event, Gaussian)
    spent = math.fsum((rows_per_unit / stddev) ** 2 for stddev in answered) * event.noise_multiplier**2
    assert 1 - 1e-6 <= spent <= 1 + ROOM / 2
    assert len(answered) - (4 + 1) in others


def test_allotted_noise_is_the_best() -> None:
    """No other split of the same precision has a smaller sum of cells times noise."""
    cells, precision = [2, 40, 300], 0.3
    best = np.asarray(allocate_noise(precision, cells))
    assert np.sum(best**-2) == pytest.approx(precision)
    draw = np.random.default_rng(0)
    for _ in range(50):
        parts = draw.dirichlet(np.ones(3)) * 0.1 + 0.9 * best**-2 / precision
        other = (precision * parts) ** -0.5
        assert np.dot(cells, other) >= np.dot(cells, best) * (1 - 1e-12)


def test_dealt_precision_is_about_the_best() -> None:
    """Against a solver: tables that are seen, hidden, perhaps there and surely not, small and large."""
    cells = np.asarray([4.0, 4, 4, 40, 40, 9])
    known = np.asarray([1.0, 1.0, 1.0, 2.0, 2.0, 1.5])
    signal = np.asarray([[0.0, 50.0]] * 6)
    posterior = np.asarray([[0.0, 1.0], [0.9, 0.1], [1.0, 0.0], [0.2, 0.8], [1.0, 0.0], [0.5, 0.5]])

    def error(more: np.ndarray) -> float:
        seen = (1 / 50 + known + more) ** -0.5
        return float((cells * posterior[:, 1] * seen).sum())

    for precision in (0.5, 5.0, 500.0):
        found = allocate_extra_precision(precision, cells, known, posterior, signal)
        assert found.sum() == pytest.approx(precision)
        assert found[2] == found[4] == 0.0
        best = optimize.minimize(
            lambda logs, all_=precision: error(all_ * np.exp(logs) / np.exp(logs).sum()), np.zeros(6), method="BFGS"
        )
        assert error(found) - error(np.zeros(6)) <= 0.97 * (best.fun - error(np.zeros(6)))


@pytest.mark.parametrize("target", [None, "h"])
def test_pairs_are_counted_again_where_it_is_worth_it(target: str | None) -> None:
    """Those that stand out of their noise get more of what was kept back, and both counts are told as one."""
    draw = np.random.default_rng(0)
    codes = draw.integers(0, 2, (2000, 8)).astype(np.int32)
    codes[:, 1] = np.where(draw.random(2000) < 0.9, codes[:, 0], codes[:, 1])
    domain = Domain(names=tuple("abcdefgh"), sizes=(2,) * 8, num_rows=2000, target=target)
    answers: dict[tuple, list[tuple[float, np.ndarray]]] = {}

    class Listening(GaussianFilter):
        def noisy_counts(self, queries: Any, stddevs: Any) -> list[np.ndarray]:
            found = super().noisy_counts(queries, stddevs)
            for query, stddev, counts in zip(queries, stddevs, found, strict=True):
                answers.setdefault(query if isinstance(query, tuple) else query.clique, []).append((stddev, counts))
            return found

    run = ledger(1.0)
    rows, charged = PrivateRows(codes, domain), GEM().plan(domain, run.remaining)["marginals"]
    run.charge(charged)
    assert isinstance(charged.event, Gaussian)
    privacy_filter = Listening(rows, charged.event, run, run._recorder(charged))
    measurements = MarginalMeasurements(GEM(), domain, privacy_filter, max_pairs=None)
    measurements.measure(privacy_filter, measurements.pairs, measurements.left_for_pairs(privacy_filter) / 2)
    kept = measurements.left_for_pairs(privacy_filter)
    assert {len(answers[measurements.query(pair).clique]) for pair in measurements.pairs} == {1}
    measurements.remeasure(privacy_filter, kept)
    assert privacy_filter.left == pytest.approx(0.0, abs=1e-6 * privacy_filter.precision)
    told = {pair: answers[measurements.query(pair).clique] for pair in measurements.pairs}
    more = {pair: both[1][0] ** -2 for pair, both in told.items() if len(both) == 2}
    assert sum(more.values()) == pytest.approx(kept)
    assert more.pop(("a", "b")) > 1.3 * max(more.values(), default=0.0)
    for pair, both in told.items():
        a, b = (measurements._slices[name] for name in pair)
        parts = np.asarray([stddev**-2 for stddev, _ in both])
        joint = np.tensordot(parts, np.asarray([counts for _, counts in both]), 1) / parts.sum()
        np.testing.assert_allclose(measurements._noisy[:, a, b], joint.reshape(-1, 2, 2), rtol=1e-4)
        np.testing.assert_allclose(measurements._weights[a, b], parts.sum(), rtol=1e-5)


@pytest.mark.parametrize(
    ("target", "share", "three_way", "again"),
    [
        (None, None, 0.0, True),
        (None, None, 0.3, True),
        (None, 0.0, 0.0, False),
        ("a", None, 0.0, False),
        ("a", 0.3, 0.0, True),
    ],
)
def test_what_is_reserved_for_remeasurement(
    target: str | None, share: float | None, three_way: float, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unasked a half without a target, and nothing with one: what the plan, the settings and the pages say."""
    rows = table(500)
    domain = dataclasses.replace(rows.domain, target=target)
    shares: list[float] = []
    honest = MarginalMeasurements.remeasure

    def heard(measurements: MarginalMeasurements, privacy_filter: GaussianFilter, precision: float) -> None:
        before = privacy_filter.left
        honest(measurements, privacy_filter, precision)
        bought = sum(
            float(measurements._weights[measurements._slices[a].start, measurements._slices[b].start])
            for a, b in measurements.pairs
        )
        shares.append((before - privacy_filter.left) / bought)

    monkeypatch.setattr(MarginalMeasurements, "remeasure", heard)
    run, gem = ledger(2.0), GEM(mode="one_shot", remeasurement_fraction=share, three_way_fraction=three_way, **SMALL)
    plan = gem.plan(domain, run.remaining)
    gem.fit(Run(PrivateRows(rows._codes, domain), plan, run, key=jax.random.key(0)))
    assert shares == [pytest.approx(share or 0.5, rel=1e-3) if again else pytest.approx(0.0, abs=1e-5)]
    assert (
        any(
            f"A fraction of {share or 0.5} of the budget for 2-way marginals is reserved" in note.text
            for note in plan.notes
        )
        == again
    )


def test_merged_groups_hold_what_they_must() -> None:
    counts = np.asarray([50.0, 3, 8, 40, -2, 1, 9, 30])
    for ordered, floor in itertools.product((True, False), (1.0, 5.0, 20.0, 60.0, 1e9)):
        groups = merge_rare_codes(counts, floor, ordered=ordered)
        held = np.bincount(groups, weights=np.maximum(counts, 0))
        assert sorted(set(groups)) == list(range(len(held)))
        assert len(held) == 1 or held.min() >= min(floor, 8)
        if ordered:
            assert all(0 <= b - a <= 1 for a, b in itertools.pairwise(groups))


# -------------------------------------------------------------------------------------------------------- the matrices


def heads(num_rows: int = 30, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return np.concatenate([draw.dirichlet(np.ones(size), num_rows) for size in SIZES], axis=1).astype(np.float32)


def pairs(rows: int, at_once: int, *, gated: bool, own: bool) -> Pairs:
    draw = np.random.default_rng(1)
    groups = np.eye(sum(SIZES))[:, :12]
    gates = np.zeros((sum(SIZES), 2))
    gates[7, 0] = gates[8, 1] = 1.0
    noisy, weights = draw.random((2 if gated else 1, 12, 12)), draw.random((2 if own else 1, 12, 12))
    return Pairs.of(groups, gates if gated else None, noisy, weights, rows=rows, at_once=at_once)


@pytest.mark.parametrize(("gated", "own"), [(False, False), (True, False), (True, True)])
def test_chunks_add_up_to_the_whole(gated: bool, own: bool) -> None:
    """In stretches of any length, and on average over draws of some of them; against plain sums over rows. Weights are
    the same in all classes, or each class has its own."""
    p, key = jnp.asarray(heads()), jax.random.key(0)
    whole = pairs(12, 2, gated=gated, own=own)
    loss = float(whole.loss(p, key))
    exact = np.zeros_like(np.asarray(whole.noisy[:, 0]))
    for row in np.asarray(p):
        for at in range(len(exact)):
            exact[at] += (row[7 + at] if gated else 1.0) * np.outer(row[:12], row[:12]) / len(p)
    np.testing.assert_allclose(whole.shares(p), exact, rtol=1e-4, atol=1e-6)
    assert loss == pytest.approx(
        float(np.sum(np.asarray(whole.weights[:, 0]) * (exact - whole.noisy[:, 0]) ** 2)), rel=1e-4
    )
    for rows in (1, 5, 12):
        assert float(pairs(rows, 10**6, gated=gated, own=own).loss(p, key)) == pytest.approx(loss, rel=1e-5)
    some = pairs(4, 2, gated=gated, own=own)
    drawn = jax.vmap(lambda one: some.loss(p, one))(jax.random.split(key, 2000))
    assert float(drawn.mean()) == pytest.approx(loss, abs=4 * float(drawn.std()) / math.sqrt(2000) + 1e-5)


def test_cells_and_crosses_are_marginals() -> None:
    p = jnp.asarray(heads())
    triple = np.einsum("ri,rj,rk->ijk", *(np.asarray(p)[:, s] for s in (slice(0, 3), slice(3, 7), slice(9, 14)))) / 30
    at = np.indices(triple.shape).reshape(3, -1).T + np.asarray([0, 3, 9])
    exact = Cells.of(at, triple.reshape(-1), np.ones(triple.size), features=14, rows=7)
    assert float(exact.loss(p, jax.random.key(0))) == pytest.approx(0.0, abs=1e-9)
    off = Cells.of(at, triple.reshape(-1) + 0.1, np.ones(triple.size), features=14, rows=7)
    assert float(off.loss(p, jax.random.key(0))) == pytest.approx(0.01 * triple.size, rel=1e-4)
    cross = Cross(None, None, p.mean(axis=0)[None] + 0.1, jnp.ones((1, 14)))
    assert float(cross.loss(p, jax.random.key(0))) == pytest.approx(0.14, rel=1e-4)


# ---------------------------------------------------------------------------------------------------------- the method


@pytest.mark.parametrize("mode", ["one_shot", "adaptive"])
def test_without_noise_the_marginals_come_back(mode: str) -> None:
    """All pairs by target of a small domain, in the model's own law, to 0.02."""
    rows = table(3000)
    gem = GEM(
        mode=mode,
        num_selections=3,
        rounds=2,
        steps=300,
        components=200,
        width=32,
        depth=1,
        latent=8,
        learning_rate=1e-2,
    )
    run = ledger(math.inf)
    model = gem.fit(Run(rows, gem.plan(rows.domain, run.remaining), run, key=jax.random.key(0)))
    columns = dict(zip(NAMES, np.split(model.probabilities, np.cumsum(SIZES)[:-1], axis=1), strict=True))
    for a, b in itertools.combinations(("a", "b", "c"), 2):
        found = np.einsum("ri,rj,rk->ijk", columns[a], columns[b], columns["t"]) / len(model.probabilities)
        exact = rows._exact_counts((a, b, "t")) / 3000
        assert np.abs(found - exact).sum() / 2 < 0.02, (a, b)


@pytest.mark.parametrize(("share", "found"), [(0.0, False), (None, True)])
def test_triples_show_what_no_pair_shows(share: float | None, found: bool) -> None:
    """The parity of three columns, in the model's own law; with noise too. A small table measures them by default."""
    draw = np.random.default_rng(0)
    a, b, d = draw.integers(0, 2, (3, 4000))
    domain = Domain(names=("a", "b", "c", "d"), sizes=(2, 2, 2, 2), num_rows=4000)
    rows = PrivateRows(np.stack([a, b, a ^ b, d], axis=1).astype(np.int32), domain)
    gem = GEM(three_way_fraction=share, steps=150, components=200, width=32, depth=1, latent=8, learning_rate=1e-2)
    for epsilon in (math.inf, 2.0):
        run = ledger(epsilon)
        plan = gem.plan(domain, run.remaining)
        assert ("3-way" in plan["marginals"].what) == found
        model = gem.fit(Run(rows, plan, run, key=jax.random.key(0)))
        a, b, c = (model.probabilities[:, at : at + 2] for at in (0, 2, 4))
        distance = (
            np.abs(np.einsum("ri,rj,rk->ijk", a, b, c) / 200 - rows._exact_counts(("a", "b", "c")) / 4000).sum() / 2
        )
        assert distance < 0.1 if found else distance > 0.4


def test_whether_three_way_marginals_are_measured_follows_from_public_facts() -> None:
    """As the plan states; with a target, round by round, or with much noise none are measured unless requested."""

    def bought(columns: int = 16, rows: int | None = 16_000, epsilon: float = 1.0, size: int = 2, **more: Any) -> bool:
        names = tuple(f"c{at}" for at in range(columns))
        domain = Domain(
            names=names,
            sizes=(size,) * columns,
            num_rows=rows or 500,
            declared_rows=rows,
            target=more.pop("target", None),
        )
        some = dataclasses.replace(domain, estimated=("c1",))
        assert not GEM(**more)._measures_three_way(some, "one_shot", 1e-9)
        return "3-way" in GEM(**more).plan(domain, Budget(epsilon, 1e-5))["marginals"].what

    assert bought()
    assert bought(4, None)
    assert not bought(size=5)
    assert not bought(target="c3")
    assert not bought(epsilon=0.1)
    assert not bought(60)
    assert not bought(16, None)
    assert not bought(mode="adaptive")
    assert not bought(three_way_fraction=0.0)
    domain = Domain(names=("a", "b", "t"), sizes=(9, 9, 9), num_rows=9, target="t", estimated=("a",))
    plan = GEM(mode="adaptive", three_way_fraction=0.1).plan(domain, Budget(0.1, 1e-5))
    assert "3-way" in plan["marginals"].what


@pytest.mark.parametrize(("planned", "three_way"), [(2, 4), (9, 0)])
def test_what_the_plan_says_of_triples_is_done(planned: int, three_way: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bins of a number may turn out fewer than a plan can know; its word holds."""
    domain = Domain(names=("a", "b", "c", "d"), sizes=(2, 2, 2, 2), num_rows=2000)
    rows = PrivateRows(np.random.default_rng(0).integers(0, 2, (2000, 4)).astype(np.int32), domain)
    asked: list[Any] = []
    honest = GaussianFilter._count

    def heard(privacy_filter: GaussianFilter, query: Any, stddev: float) -> np.ndarray:
        asked.append(query)
        return honest(privacy_filter, query, stddev)

    monkeypatch.setattr(GaussianFilter, "_count", heard)
    run, gem = ledger(2.0), GEM(**SMALL)
    plan = gem.plan(dataclasses.replace(domain, sizes=(planned, 2, 2, 2)), run.remaining)
    gem.fit(Run(rows, plan, run, key=jax.random.key(0)))
    assert sum(isinstance(query, Grouped) and len(query.clique) == 3 for query in asked) == three_way


def test_three_way_marginals_lost_in_noise_are_not_measured() -> None:
    """Nothing is reserved for them where no three columns have levels frequent enough."""
    rows, run = table(30), ledger(0.1)
    gem = GEM(three_way_fraction=0.5)
    privacy_filter = charge_marginals(rows, gem.plan(rows.domain, run.remaining)["marginals"], run)
    measurements = MarginalMeasurements(gem, rows.domain, privacy_filter, max_pairs=None, three_way_fraction=0.5)
    assert not measurements.has_three_way
    assert measurements.left_for_pairs(privacy_filter) == privacy_filter.left


@pytest.mark.parametrize(("rare", "least", "most"), [(0, 0.09, 0.11), (45, 0.85, 0.91)])
def test_one_way_marginals_stand_for_pairs_that_are_not_measured(rare: int, least: float, most: float) -> None:
    """Where most columns have one level that noise leaves, the precision goes to single columns."""
    columns, num_rows = 48, 100_000
    draw = np.random.default_rng(0)
    codes = draw.random((num_rows, columns)) < np.where(np.arange(columns) < rare, 1e-4, 0.5)
    names = tuple(f"c{at}" for at in range(columns))
    domain = Domain(names=names, sizes=(2,) * columns, num_rows=num_rows, declared_rows=num_rows)
    rows, run = PrivateRows(codes.astype(np.int32), domain), ledger(1.0)
    privacy_filter = charge_marginals(rows, GEM().plan(domain, run.remaining)["marginals"], run)
    measurements = MarginalMeasurements(GEM(), domain, privacy_filter, max_pairs=None)
    assert len(measurements.pairs) == math.comb(columns - rare, 2)
    assert least <= 1 - privacy_filter.left / privacy_filter.precision <= most
    one_way = measurements.terms()[0]
    scale = num_rows**2 / one_way.weights.size  # nothing else was measured
    assert float(one_way.weights[0, ::2].sum()) / scale == pytest.approx(
        privacy_filter.precision - privacy_filter.left, rel=1e-4
    )


def test_weights_and_ledger_agree() -> None:
    """The weights of the loss are those of the noise that was drawn, and their precisions fill the one charged look."""
    rows, run = table(5000), ledger(2.0)
    gem = GEM(min_signal=1e-9)
    plan = gem.plan(rows.domain, run.remaining)
    privacy_filter = charge_marginals(rows, plan["marginals"], run)
    measurements = MarginalMeasurements(gem, rows.domain, privacy_filter, max_pairs=None)
    measurements.measure(privacy_filter, measurements.pairs, privacy_filter.left)
    assert run.queries == plan.queries
    one_way, with_target, between = measurements.terms()
    assert isinstance(between, Pairs)
    weights = [np.asarray(each.weights, dtype=float) for each in (one_way, with_target, between)]
    cells = sum(w.size for w in weights[:2]) + 2 * int((weights[2] > 0).sum())
    scale = 5000**2 / cells
    ends = np.cumsum([0, *SIZES])
    precision = sum(weights[0][0, start] for start in ends[:-1])  # one number for each column
    precision += sum(weights[1][0, start] for start in (0, 3, 7))
    precision += weights[2].reshape(12, 12)[[0, 0, 3], [3, 7, 7]].sum()
    event = plan["marginals"].event
    assert isinstance(event, Gaussian)
    assert precision / scale == pytest.approx(event.noise_multiplier**-2, rel=1e-5)


@pytest.mark.parametrize(("mode", "keys"), [("one_shot", ["marginals"]), ("adaptive", ["selections", "marginals"])])
def test_the_plan_is_what_is_charged(mode: str, keys: list[str]) -> None:
    rows, run = table(400), ledger(1.0)
    gem = GEM(mode=mode, num_selections=2, **SMALL)
    plan = gem.plan(rows.domain, run.remaining)
    gem.fit(Run(rows, plan, run, key=jax.random.key(0)))
    assert [query.key for query in run.queries] == keys
    assert run.queries == plan.queries
    assert 0.995 <= run.spent().epsilon <= 1.0


@pytest.mark.parametrize("num_rows", [0, 1])
def test_hardly_anybody(num_rows: int) -> None:
    """Nobody, or one person, is a table like any other; so is one column."""
    rows, run = table(num_rows), ledger(1.0)
    gem = GEM(**SMALL)
    model = gem.fit(Run(rows, gem.plan(rows.domain, run.remaining), run, key=jax.random.key(0)))
    codes = model.sample(100, key=jax.random.key(1)).codes
    assert codes.shape == (100, 4)
    assert (codes < SIZES).all()
    assert (codes >= 0).all()
    one, again = table(100, target=None).only(["a"]), ledger(1.0)
    gem.fit(Run(one, gem.plan(one.domain, again.remaining), again, key=jax.random.key(0)))


@pytest.mark.parametrize(("columns", "parts"), [(["a"], 1), (["a", "t"], 2)])
def test_nothing_is_left_over(columns: list[str], parts: int) -> None:
    """Where there are no pairs to measure, what was meant for them makes the rest more precise."""
    rows, run = table(2000).only(columns), ledger(1.0)
    privacy_filter = charge_marginals(rows, GEM().plan(rows.domain, run.remaining)["marginals"], run)
    terms = MarginalMeasurements(GEM(), rows.domain, privacy_filter, max_pairs=None).terms()
    assert privacy_filter.left == pytest.approx(0.0, abs=1e-6 * privacy_filter.precision)
    assert len(terms) == parts
    weights = [np.asarray(term.weights, dtype=float) for term in terms]
    scale = 2000**2 / sum(each.size for each in weights)
    precision = weights[0][0, 0] + (weights[0][0, 3] + weights[1][0, 0] if parts == 2 else 0.0)
    assert precision / scale == pytest.approx(privacy_filter.precision, rel=1e-4)


def test_the_mode_follows_from_public_facts() -> None:
    """Wide tables with few declared rows are measured adaptively; answers do not change that."""

    def mode(columns: int, rows: int | None, found: int = 500, epsilon: float = 1.0, size: int = 2) -> str:
        names = tuple(f"c{at}" for at in range(columns))
        domain = Domain(names=names, sizes=(size,) * columns, num_rows=rows or found, declared_rows=rows)
        stddev = Budget(epsilon, 1e-6).calibrate(lambda noise: [Gaussian(noise)])
        many = GEM().plan(domain, Budget(epsilon, 1e-6, max_rows_per_unit=10**6))  # their noise is theirs
        assert ("selections" in many) == (columns > 3)
        chosen, reason = GEM()._mode(domain, stddev)
        assert ("all at once" if chosen == "one_shot" else "in rounds") in reason
        assert chosen != "one_shot" or GEM().plan(domain, Budget(epsilon, 1e-6)).notes[0].text == reason
        return chosen

    assert mode(15, 5_000) == mode(15, 30_000) == mode(100, 10**6) == "one_shot"
    assert mode(100, 5_000) == mode(15, 1000) == "adaptive"
    assert mode(3, 100) == "one_shot"  # nothing to choose
    assert mode(25, 10_000, epsilon=0.1) == "adaptive"
    assert mode(100, None, 100) == mode(100, None, 10**8) == mode(100, None, 100, size=50)


@pytest.mark.parametrize(("order", "columns", "width"), [(2, 300, MAX_GROUPS), (3, 100, MAX_THREE_WAY_GROUPS)])
def test_groups_are_no_more_than_memory_holds(order: int, columns: int, width: int) -> None:
    """However little noise there is."""
    names = tuple(f"c{at}" for at in range(columns))
    domain = Domain(names=names, sizes=(8,) * columns, num_rows=5000, numeric=names)
    codes = np.random.default_rng(0).integers(0, 8, (5000, columns)).astype(np.int32)
    rows, run = PrivateRows(codes, domain), ledger(math.inf)
    gem = GEM(three_way_fraction=0.5, mode="one_shot")
    privacy_filter = charge_marginals(rows, gem.plan(domain, run.remaining)["marginals"], run)
    measurements = MarginalMeasurements(gem, domain, privacy_filter, max_pairs=None, three_way_fraction=0.5)
    groups = (
        measurements._groups
        if order == 2
        else measurements._three_way.groups
        if measurements._three_way is not None
        else {}
    )
    assert 0 < sum(max(each) + 1 for each in groups.values()) <= width


def test_groups_hold_more_rows_the_more_classes_and_marginals_share_them() -> None:
    """An even share of the rows in a cell is `min_signal` times the noise, or a little more than groups
    must hold: levels here are alike and fine."""
    domain = Domain(names=("a", "b", "c", "d"), sizes=(500,) * 4, num_rows=100_000, numeric=("a", "b", "c", "d"))
    rows, run = (
        PrivateRows(np.random.default_rng(0).integers(0, 500, (100_000, 4)).astype(np.int32), domain),
        ledger(math.inf),
    )
    privacy_filter = charge_marginals(rows, GEM().plan(domain, run.remaining)["marginals"], run)
    measurements = MarginalMeasurements(GEM(min_signal=2.0), domain, privacy_filter, max_pairs=None)
    for classes, most, order in [(1, None, 2), (6, None, 2), (1, 1, 2), (1, None, 3)]:
        groups = measurements._group(domain.names, 1e-4, order, classes=classes, most=most, width=10**6)
        count = min(most or 10**9, math.comb(4, order))
        smallest = min(min(np.bincount(each)) for each in groups.values()) / 500
        signal = 100_000 * smallest**order / classes / math.sqrt(count / 1e-4)
        assert 2.0 * 0.95 <= signal < 2.0 * 1.25**order


def test_triples_of_pure_noise_are_what_the_generator_has() -> None:
    """They are shrunk towards it; strong ones hardly."""
    names, draw = tuple("abcdefgh"), np.random.default_rng(0)
    domain = Domain(names=names, sizes=(2,) * 8, num_rows=4000)
    codes = draw.integers(0, 2, (4000, 8)).astype(np.int32)
    gem, even = GEM(), jnp.full((1, 16), 0.5)
    found = []
    for strong in (False, True):
        codes[:, 2] = codes[:, 0] ^ codes[:, 1] if strong else codes[:, 2]
        run = ledger(1.0)
        privacy_filter = charge_marginals(PrivateRows(codes, domain), gem.plan(domain, run.remaining)["marginals"], run)
        measurements = MarginalMeasurements(gem, domain, privacy_filter, max_pairs=None, three_way_fraction=0.5)
        measurements.measure(privacy_filter, measurements.pairs, measurements.left_for_pairs(privacy_filter))
        measurements.measure_three_way(privacy_filter, even)
        three_way = measurements._three_way
        assert three_way is not None
        assert privacy_filter.left == pytest.approx(0.0, abs=1e-6 * privacy_filter.precision)
        away = [np.abs(three_way.noisy[place] - 500.0).mean() for place in three_way.slices]
        found.append((away[0], float(np.mean(away[1:]))))
    noise = math.sqrt(math.comb(8, 3) / (0.5 * privacy_filter.precision))  # at least
    assert found[0][0] < noise / 4
    assert found[0][1] < noise / 4
    assert found[1][1] < 0.7 * noise  # pure noise would have 0.8 of it
    assert found[1][0] > 350


def test_pairs_that_were_not_measured_are_independent() -> None:
    """Of the margins that the others show; those that were measured are not, where they stand out."""
    domain = Domain(names=("a", "b", "c"), sizes=(2, 2, 2), num_rows=4000)
    bits = np.random.default_rng(0).integers(0, 2, (4000, 2))
    codes = np.stack([bits[:, 0], bits[:, 0], bits[:, 0] & bits[:, 1]], axis=1).astype(np.int32)
    run, gem = ledger(1.0), GEM()
    privacy_filter = charge_marginals(PrivateRows(codes, domain), gem.plan(domain, run.remaining)["marginals"], run)
    measurements = MarginalMeasurements(gem, domain, privacy_filter, max_pairs=1)
    measurements.measure(privacy_filter, [("a", "b")], privacy_filter.left)
    estimated, weights = measurements._estimate_pairs()
    between = estimated[0, :2, 4:]
    np.testing.assert_allclose(between, np.outer(between.sum(axis=1), between.sum(axis=0)) / between.sum(), rtol=1e-5)
    assert between[:, 1].sum() == pytest.approx(1000, abs=60)
    assert estimated[0, :2, 2:4] == pytest.approx(np.diag([2000.0, 2000.0]), abs=100)
    assert 0 < weights[0, 4] < weights[0, 2]


def test_levels_that_noise_hides_are_as_frequent_as_all_of_them() -> None:
    """Forty levels of ten rows each under noise of about as much: each gets about ten."""
    codes = np.concatenate([np.zeros(9600), np.repeat(np.arange(1, 41), 10)]).astype(np.int32)[:, None]
    domain = Domain(names=("a",), sizes=(41,), num_rows=10_000)
    run = ledger(0.5)
    privacy_filter = charge_marginals(PrivateRows(codes, domain), GEM().plan(domain, run.remaining)["marginals"], run)
    measurements = MarginalMeasurements(GEM(), domain, privacy_filter, max_pairs=None)
    hidden = measurements.shares[0][1:] * 10_000
    values, counts = np.unique(hidden.round(6), return_counts=True)
    assert counts.max() > 20
    assert values[counts.argmax()] == pytest.approx(10, abs=6)


@pytest.mark.parametrize("kind", ["integer", "real", "boolean"])
def test_plan_and_run_tell_the_same(kind: str) -> None:
    """Of triples too, though the bins of numbers turn out fewer than a plan reckons with."""
    values = np.random.default_rng(0).integers(0, 2, (2000, 5))
    made = {"boolean": values.astype(bool), "integer": values, "real": values.astype(float)}[kind]
    bounds = None if kind == "boolean" else (0.0, 1.0)
    columns = tuple(us.Column(name=f"c{at}", kind=kind, bounds=bounds, nullable=False) for at in range(5))
    schema = us.Schema(columns=columns, rows=2000)
    gem, guarantee = GEM(**SMALL), us.Guarantee(2.0, 1e-5)
    release = us.fit(pa.table({f"c{at}": made[:, at] for at in range(5)}), gem, guarantee, schema=schema, seed=0)
    planned = us.plan(schema, gem, guarantee)
    assert [query.what for query in release.statement.queries] == [query.what for query in planned.queries]
    assert ("3-way" in planned.queries[-1].what) == (kind == "boolean")


def test_target_of_many_levels_is_cut_into_classes() -> None:
    """Neighbours count as one where the target is a number."""
    rows = table(2000)
    wide = PrivateRows(
        rows._codes[:, [0, 1, 3]],
        Domain(names=("a", "b", "c"), sizes=(3, 4, 5), num_rows=2000, target="c", numeric=("c",)),
    )
    run = ledger(math.inf)
    gem = GEM(max_classes=2)
    privacy_filter = charge_marginals(wide, gem.plan(wide.domain, run.remaining)["marginals"], run)
    measurements = MarginalMeasurements(gem, wide.domain, privacy_filter, max_pairs=None)
    assert measurements.query(("a", "b")).shape == (2, 3, 4)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mode": "sometimes"}, "mode"),
        ({"steps": 0}, "steps"),
        ({"components": 2.5}, "components"),
        ({"num_selections": 0}, "num_selections"),
        ({"one_way_fraction": 0.0}, "one_way_fraction"),
        ({"one_way_fraction": 0.5, "target_fraction": 0.5}, "target_fraction"),
        ({"min_signal": -1.0}, "min_signal"),
        ({"three_way_fraction": 1.0}, "three_way_fraction"),
        ({"three_way_fraction": 1e-20}, "three_way_fraction"),
        ({"one_way_fraction": 1 - 2**-53}, "one_way_fraction"),
        ({"three_way_fraction": -0.1}, "three_way_fraction"),
        ({"learning_rate": math.nan}, "rate"),
        ({"ema_decay": 1.0}, "ema_decay"),
        ({"cliques": (("a",),)}, "cliques"),
        ({"cliques": (("a", "a"),)}, "cliques"),
    ],
)
def test_settings_are_checked(settings: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        GEM(**settings)


def test_unknown_columns_are_refused_in_the_plan() -> None:
    with pytest.raises(SchemaError, match="nowhere"):
        GEM(cliques=(("a", "nowhere"),)).plan(table(10).domain, Budget(1.0, 1e-6))


def test_begins_at_independent_columns() -> None:
    shares = [np.full(size, 1 / size) for size in SIZES]
    fit = Fit(one_hot_blocks(SIZES), (16,), 0.9)
    state = init_state(fit, shares, rows=200, latent=4, key=jax.random.key(0))
    made = np.asarray(heads_of(fit, state.average, state.latents))
    np.testing.assert_allclose(made.mean(axis=0), np.concatenate(shares), atol=0.05)
    exact = Cross(None, None, jnp.asarray(made.mean(axis=0)[None]), jnp.ones((1, 14)))
    assert float(loss_of((exact,), jnp.asarray(made), jax.random.key(0))) == pytest.approx(0.0, abs=1e-9)
