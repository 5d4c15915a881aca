"""Exact values and noise meet as whole numbers: what is released is a function of their sum and of nothing else.

Each mechanism with discrete noise answers about a table with some noise, and about a neighbouring table with the noise
that makes up for the difference: everything that comes out must be the same, byte for byte. Added as floats, counts and
noise are rounded apart, and the last bits then tell the two tables apart for certain, whatever epsilon is.
"""

import ast
import dataclasses
import math
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

from tests.builders import loose_guarantee
from tests.privacy.test_surface import CHARGES, PRIVACY
from tests.test_architecture import FREE_DRAWS
from understudy.encoding.columns import NumericCodec
from understudy.encoding.features import Modes, layout_of
from understudy.models.inputs import bin_middles
from understudy.privacy.accounting.events import (
    ZCDP,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Gaussian,
    LaplaceCounts,
    LaplaceMarginals,
    UnitHistogram,
)
from understudy.privacy.accounting.ledger import Ledger, Query
from understudy.privacy.gradients import clipping
from understudy.privacy.gradients.charges import charge_votes
from understudy.privacy.gradients.clipping import Clip
from understudy.privacy.gradients.pate import add_vote_noise, passes_test
from understudy.privacy.gradients.sums import WORD, Fixed
from understudy.privacy.mechanisms import discovery
from understudy.privacy.mechanisms.counts import noisy_answers, noisy_counts, noisy_size
from understudy.privacy.mechanisms.discovery import discover_bounds, discover_categories, discover_histograms
from understudy.privacy.mechanisms.filters import MIN_COUNT_NOISE, charge_marginals, charge_zcdp
from understudy.privacy.mechanisms.graph import (
    GraphUnit,
    PrivateGraph,
    noisy_block_counts,
    noisy_degree_tails,
    noisy_degrees,
    noisy_tail_counts,
)
from understudy.privacy.mechanisms.moments import ClassBlock, noisy_class_sums, noisy_gram, noisy_moments
from understudy.privacy.mechanisms.rows_per_unit import noisy_rows_per_unit
from understudy.privacy.noise import source as noise
from understudy.privacy.noise.source import SeededNoise, with_laplace_noise, with_noise
from understudy.privacy.rows.rows import Box, PrivateRows
from understudy.privacy.rows.table import PrivateColumns, PrivateTable
from understudy.schema import Domain, NumericDomain
from understudy.schema.grid import Grid, Histogram

# -------------------------------------------------------------------------------------------- where noise may be drawn

DRAWS = FREE_DRAWS | {"discrete_laplace", "normals", "normals_of", "normals_and_words"}
DRAWN_IN = {
    ("source.py", "with_noise"): "adds whole numbers",
    ("source.py", "with_laplace_noise"): "adds whole numbers",
    ("source.py", "NoiseSource.discrete_gaussian"): "is the draw",
    ("source.py", "NoiseSource.discrete_laplace"): "is the draw",
    ("device.py", "normals"): "is the draw",
    ("device.py", "normals_and_words.made"): "is the draw",
    ("charges.py", "_vote_noise"): "whole numbers, which `pate._with_noise` adds to whole numbers",
    ("clipping.py", "add_noise"): "is rounded to the grid of the sum, and added to it as a whole number",
    ("langevin.py", "langevin_step"): "is added to a sum that has its noise",
    ("source.py", "NoiseSource.noisy_argmax"): "selects: an index is released, drawn from its exact law",
    ("selection.py", "select_candidates"): "selects",
    ("selection.py", "FunctionSelector._select"): "selects",
    ("dependence.py", "DependenceSelector.__call__"): "selects",
}
"""Every function of `privacy/` that names a draw of noise, and why it adds no floats to an exact value."""
TWICE = {("charges.py", "_vote_noise"), ("clipping.py", "add_noise"), ("rows.py", "partition_rows")}
"""Functions that name two: of two distributions; of sums and counts; bits and a key to them. All others name one."""

BITS = {"noise.key", "key()", "word_pairs", "ndtri", "erfinv", "erf_inv", "uniform", "bits", "randint"}
BITS_IN = {
    ("source.py", "fresh_key"): "a key of sampling or of a split, which nothing exact is added to",
    ("charges.py", "charge_votes"): "the teacher of each unit",
    ("pate.py", "assign_teachers"): "the teacher of each unit",
    ("pate.py", "teacher_step.one"): "which rows of its own a teacher sees; it is never released",
    ("gaps.py", "positions.words_of"): "gaps between the units of a batch",
    ("poisson.py", "_arrange.toss"): "which units are in a batch",
    ("poisson.py", "coins"): "which units are in a batch",
    ("rows.py", "partition_rows"): "the part of each unit",
    ("rows.py", "PrivateRows._encoded"): "positions within bins",
    ("moments.py", "exact_examples"): "positions within bins",
    ("selection.py", "noisy_function_selections"): "positions within bins",
    ("objective.py", "noisy_minimisers"): "the random term of an objective, whose minimum alone is released",
    ("objective.py", "random_term"): "the same",
    ("objective.py", "_words"): "the same",
}
"""Every function of `privacy/` that takes random bits or a key to them, and what for."""


def uses(source: str, wanted: set[str]) -> Iterator[str]:
    """The functions that name one of these, methods with their class; an import under another name counts by itself."""
    tree = ast.parse(source)
    made = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    made |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}

    def walk(node: ast.AST, place: tuple[str, ...]) -> Iterator[str]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            place = (*place, node.name)
        if isinstance(node, ast.Name | ast.Attribute):
            named = ast.unparse(node) if isinstance(node, ast.Name) else node.attr
            owner = ast.unparse(node.value).rpartition(".")[2] if isinstance(node, ast.Attribute) else ""
            is_one = named in wanted if owner or named in made else False
            if is_one or f"{owner}.{named}" in wanted:
                yield ".".join(place)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not (node.args or node.keywords):
            owner = ast.unparse(node.func.value).rpartition(".")[2]
            if f"{node.func.attr}()" in wanted and f"{owner}.{node.func.attr}" not in wanted:  # the latter counts above
                yield ".".join(place)
        elif isinstance(node, ast.alias) and node.name in wanted and node.asname not in (None, node.name):
            yield "import"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
            yield from [
                ".".join(place) for name in node.args if isinstance(name, ast.Constant) and name.value in wanted
            ]
        for child in ast.iter_child_nodes(node):
            yield from walk(child, place)

    return walk(tree, ())


def draws_in_privacy(wanted: set[str]) -> Counter[tuple[str, str]]:
    """Every function of `privacy/` that names one of these, and how often."""
    return Counter((file.name, place) for file in PRIVACY for place in uses(file.read_text(), wanted))


def expected(places: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], int]:
    return {place: 1 + (place in TWICE) for place in places}


def test_noise_is_drawn_where_it_is_added_to_whole_numbers() -> None:
    assert draws_in_privacy(DRAWS) == expected(DRAWN_IN)


def test_random_bits_are_taken_where_no_exact_value_is_added_to() -> None:
    assert draws_in_privacy(BITS) == expected(BITS_IN)


@pytest.mark.parametrize(
    "bad",
    [
        "return exact + ledger.noise.discrete_gaussian(2.0, (3, 4)).mean(axis=0)",
        "draw = ledger.noise.discrete_gaussian; return exact + draw(2.0, (3,))",
        "return exact + functools.partial(normals, key)(3)",
        "return exact + jax.random.normal(key, (3,))",
        'return exact + getattr(ledger.noise, "discrete_gaussian")(2.0, (3,))',
    ],
)
def test_the_rule_about_draws_can_fail(bad: str) -> None:
    imported = "from understudy.privacy.noise.device import normals"
    assert set(uses(f"{imported}\ndef f(exact, ledger, key):\n    {bad}", DRAWS)) == {"f"}
    assert list(uses("from understudy.privacy.noise.device import normals as draw", DRAWS)) == ["import"]
    assert list(uses("def f(ledger):\n    return ledger.noise.key()", BITS)) == ["f"]
    twice = "def f(exact, ledger):\n    return exact + normals(a, 3) + normals(b, 3)"
    assert list(uses(f"{imported}\n{twice}", DRAWS)) == ["f", "f"], "a second draw in an allowed function is seen"


@pytest.mark.parametrize(
    ("bad", "seen"),
    [
        ("s = ledger.noise; k = s.key(); return exact + ndtri(jax.random.uniform(k, (3,)))", 3),
        ("take = ledger.noise.key; return exact + special.erfinv(word(take()))", 2),
        ("return exact + jax.lax.erf_inv(jax.random.bits(SecureNoise().key(), (3,)))", 3),
        ("return exact + jax.random.randint(key, (3,), -9, 10)", 1),
        ("return exact + np.random.default_rng(3).uniform(-9, 9)", 1),
    ],
)
def test_the_rule_about_bits_can_fail(bad: str, seen: int) -> None:
    imported = "from scipy.special import ndtri"
    assert list(uses(f"{imported}\ndef f(exact, ledger, key):\n    {bad}", BITS)) == ["f"] * seen
    assert list(uses("from scipy.special import ndtri as normal_quantile", BITS)) == ["import"]


@pytest.mark.parametrize("add", [with_noise, lambda exact, _, source: with_laplace_noise(exact, Fraction(3), source)])
def test_noise_is_added_to_whole_numbers_only(add: Callable[..., np.ndarray]) -> None:
    """Of any type and size; what is beyond 64 bits is held within them."""
    for exact in (np.zeros(3), np.zeros(3, dtype=np.float32), np.asarray([1, 0.5], dtype=object), np.ones(2, bool)):
        with pytest.raises(AssertionError, match="whole numbers only"):
            add(exact, 3.0, SeededNoise(0))
    for large in (np.asarray([2**63]), np.asarray([2**70], dtype=object)):
        assert abs(int(add(large, 3.0, SeededNoise(0))[0]) - 2**62) < 100
    assert add(np.asarray([5], dtype=np.uint8), 1e-3, SeededNoise(0)).dtype == np.int64


# --------------------------------------------------------------------------------------------------- noise that answers


class Chosen(SeededNoise):
    """Noise of all magnitudes: for half of the cells powers of two, give or take two, so that sums cross them too."""

    def __init__(self, seed: int):
        super().__init__(seed)
        self._generator = np.random.default_rng(seed)
        self.drawn: list[np.ndarray] = []

    def discrete_gaussian(self, stddev: float, shape: tuple[int, ...]) -> np.ndarray:
        return self._chosen(super().discrete_gaussian(stddev, shape), stddev)

    def discrete_laplace(self, scale: Fraction, shape: tuple[int, ...]) -> np.ndarray:
        return self._chosen(super().discrete_laplace(scale, shape), float(scale))

    def _chosen(self, lawful: np.ndarray, scale: float) -> np.ndarray:
        draw = self._generator
        powers = 2 ** draw.integers(0, max(2, math.ceil(math.log2(scale)) + 3), lawful.shape)
        near = draw.choice([-1, 1], lawful.shape) * (powers + draw.integers(-2, 3, lawful.shape))
        self.drawn.append(np.where(draw.random(lawful.shape) < 0.5, lawful, near))
        return self.drawn[-1]


class MadeUp(SeededNoise):
    """The noise that gives other exact values the same sums; all else is drawn as before."""

    def __init__(self, seed: int, sums: list[np.ndarray], exact: list[np.ndarray]):
        super().__init__(seed)
        self._sums, self._exact = sums, exact
        self.drawn: list[np.ndarray] = []

    def discrete_gaussian(self, stddev: float, shape: tuple[int, ...]) -> np.ndarray:
        self._next("discrete_gaussian", stddev, *shape)
        # Noise of votes is drawn before they are counted: the case itself makes up for the difference.
        self.drawn.append(self._sums[len(self.drawn)] - (self._exact[-1] if self._exact else 0))
        return self.drawn[-1]

    def discrete_laplace(self, scale: Fraction, shape: tuple[int, ...]) -> np.ndarray:
        return self.discrete_gaussian(float(scale), shape)


@dataclasses.dataclass
class Answer:
    """What came out, as bytes; the exact values in steps; the noise; and which functions had it added."""

    released: list[bytes]
    exact: list[np.ndarray]
    noise: list[np.ndarray]
    sites: set[tuple[str, str]]


def answer(case: "Case", *, without_one: bool, seed: int, first: Answer | None = None) -> Answer:
    """With noise of its own, or with that which makes up for the difference to the first answer."""
    exact: list[np.ndarray] = []
    sites: set[tuple[str, str]] = set()
    held = noise._held

    def remembered(values: np.ndarray) -> np.ndarray:
        exact.append(held(values))
        above = (frame.f_code for frame, _ in traceback.walk_stack(sys._getframe(1)))
        in_privacy = ((Path(code.co_filename), code.co_name) for code in above)  # checks of types stand between them
        sites.add(
            next((file.name, name) for file, name in in_privacy if file in PRIVACY and file != Path(noise.__file__))
        )
        return exact[-1]

    source: Chosen | MadeUp = Chosen(seed)
    if first is not None:
        exact_before = first.exact or [np.zeros_like(each) for each in first.noise]
        source = MadeUp(seed, [one + other for one, other in zip(exact_before, first.noise, strict=True)], exact)
    ledger = Ledger(loose_guarantee(1e9, 0.5), noise=source, max_rows_per_unit=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "_held", remembered)
        released = list(as_bytes(case.release(without_one, ledger)))
    released += as_bytes([dataclasses.astuple(each) for each in ledger._record.measured])
    return Answer(released, exact, source.drawn, sites)


def as_bytes(released: object) -> Iterator[bytes]:
    """All numbers of an answer, bit for bit."""
    if isinstance(released, Mapping):
        released = list(released.items())
    if dataclasses.is_dataclass(released) and not isinstance(released, type):
        released = [getattr(released, field.name) for field in dataclasses.fields(released)]
    if isinstance(released, list | tuple):
        for each in released:
            yield from as_bytes(each)
    elif isinstance(released, float | np.ndarray | np.generic):
        yield np.asarray(released).tobytes()
    else:
        yield repr(released).encode()


# ------------------------------------------------------------------------------------------------------- the mechanisms


@dataclasses.dataclass(frozen=True)
class Case:
    """A mechanism on a table, or on the same one without its last row, edge or unit."""

    mechanism: str
    release: Callable[[bool, Ledger], object]


DOMAIN = Domain(names=("y", "job", "age"), sizes=(3, 4, 5), num_rows=300, target="y", numeric=("age",), declared_rows=9)
SCALE = NumericDomain(fine_edges=(0.0, 0.5, 1.0), fine_masses=(0.5, 0.5), first_fine_bin=(0, 1, 2), nullable=True)


def rows(without_one: bool) -> PrivateRows:
    draw = np.random.default_rng(1)
    size = 300 - without_one
    codes = draw.integers(DOMAIN.sizes, size=(300, 3), dtype=np.int32)[:size]
    positions = np.c_[np.full((300, 2), np.nan), draw.random(300)][:size]
    units = np.arange(300)[:size] // 2
    return PrivateRows(
        codes, DOMAIN, units=units, positions=lambda: positions, scales=(None, None, SCALE), max_rows_per_unit=2
    )


class Layout:
    """Three inputs and a label."""

    def encode(self, codes: np.ndarray, positions: np.ndarray, key: object) -> np.ndarray:
        return np.c_[codes / 7.3, np.nan_to_num(positions[:, 2:]) - 0.3]


def query(event: Event, *, delta: float = 0.0) -> Query:
    return Query("q", "what is asked", event, delta=delta)


def graph(without_one: bool, unit: GraphUnit = GraphUnit.EDGE) -> PrivateGraph:
    """Less one edge, or less all edges of one node."""
    draw = np.random.default_rng(2)
    pairs = np.stack(np.triu_indices(12, 1), axis=1)
    edges = pairs[draw.random(len(pairs)) < 0.3]
    if without_one:
        edges = edges[:-1] if unit is GraphUnit.EDGE else edges[(edges != 0).all(axis=1)]
    return PrivateGraph(edges, np.arange(12) // 4, unit)


def numbers(without_one: bool, spread: int) -> PrivateColumns[np.ndarray]:
    draw = np.random.default_rng(3)
    return PrivateColumns({"x": draw.binomial(spread, 0.4, 3000)[: -1 if without_one else None]})


def histogram_of(
    spread: int, stddev: float, levels: int, **grid: Any
) -> Callable[[bool, Ledger], dict[str, Histogram]]:
    def release(without_one: bool, ledger: Ledger) -> dict[str, Histogram]:
        grids = {"x": Grid(0, spread, **grid)}
        values = numbers(without_one, spread)
        event = query(DiscreteGaussian(stddev, levels, 2))
        return discover_histograms(values, grids, {"x": levels}, event, ledger, num_rows=3000)

    return release


def averaged(without_one: bool, ledger: Ledger) -> object:
    """Before masses are rounded: six figures could hide the rest."""
    exact = np.arange(2**15) // 7 - without_one
    return [discovery._averaged_counts(exact, repeats, 21.7, ledger) for repeats in (1, 2, 3, 5, 7)]


def answers(event: Event) -> Callable[[bool, Ledger], object]:
    def release(without_one: bool, ledger: Ledger) -> object:
        table = rows(without_one)
        given = noisy_answers(table, query(event), ledger)
        box = Box(("age", "job"), ((0, 5), (0, 4)))
        return [given(("job",)), given(("y", "age")), given(box), table.totals.measured, table.public_num_rows]

    return release


def adaptive(without_one: bool, ledger: Ledger) -> object:
    table = rows(without_one)
    filled = charge_zcdp(table, query(ZCDP(400.0)), ledger)
    return [filled.noisy_counts(("job",), 3.3), filled.noisy_counts(("y", "age"), 211.0), table.totals.measured]


def allocated(without_one: bool, ledger: Ledger) -> object:
    table = rows(without_one)
    filled = charge_marginals(table, query(Gaussian(0.0003)), ledger)
    cliques, stddevs = [("job",), ("y",), ("age", "y"), ("age",)], [0.37, 5.3, 1e3 / 3, MIN_COUNT_NOISE / 3]
    expected = [np.full(DOMAIN.shape(clique), 7.7) for clique in cliques]
    cells = filled.noisy_counts(cliques, stddevs)
    return [cells, filled.noisy_errors(cliques, expected, 3.7), table.totals.measured]


def class_sums(without_one: bool, ledger: Ledger) -> object:
    table = rows(without_one)
    kinds = [("classes", "y", 3), ("levels", "job", 12), ("known", "age", 3), ("sums", "age", 3), ("squares", "age", 3)]
    blocks, weights = [ClassBlock(*kind) for kind in kinds], [math.sqrt(1 / 5)] * 5
    found = noisy_class_sums(table, "y", blocks, query(Gaussian(3.3)), ledger, weights=weights)
    return [found, table.totals.measured]


def moments(without_one: bool, ledger: Ledger) -> object:
    absent = np.zeros((3, 3), dtype=bool)
    shares = (math.sqrt(0.5), math.sqrt(0.3), math.sqrt(0.2))
    return noisy_moments(rows(without_one), Layout(), query(Gaussian(2.2)), ledger, weights=shares, absent=absent)


def votes(event: Event, tests: Event | None) -> Callable[[bool, Ledger], object]:
    """Noise is drawn before votes are counted: one vote less, and a step of a vote more noise."""

    def release(without_one: bool, ledger: Ledger) -> object:
        known = None if tests is None else query(tests)
        held = charge_votes(
            rows(False), query(event), ledger, num_teachers=9, num_queries=40, tests=known, threshold=0.6
        )
        counts = jnp.asarray(np.random.default_rng(4).integers(7, 10, 40))
        if without_one:
            counts, held = counts - 1, dataclasses.replace(held, _noise=held._noise + held._steps)
            if held._tests is not None:
                more = dataclasses.replace(held._tests, _noise=held._tests._noise + held._tests._steps)
                held = dataclasses.replace(held, _tests=more)
        passed = [] if held._tests is None else [np.asarray(passes_test(held, counts, 0))]
        return [np.asarray(add_vote_noise(held, counts, 0)), *passed]

    return release


def sizes_of_units(without_one: bool, ledger: Ledger) -> object:
    units = np.repeat(np.arange(90), np.arange(90) % 5 + 1)
    table = PrivateTable(pa.table({"x": units}), units[units < 90 - without_one])
    return noisy_rows_per_unit(table, 4, query(UnitHistogram(7.7)), ledger)


def categories(without_one: bool, ledger: Ledger) -> object:
    values = np.random.default_rng(5).choice(["a", "b", "c", "d"], 900)[: -1 if without_one else None]
    columns = PrivateColumns({"x": pa.array(values.tolist())})
    return discover_categories(columns, query(DiscreteGaussian(9.9, 1, 2), delta=1e-3), ledger)


def bounds(without_one: bool, ledger: Ledger) -> object:
    event = query(DiscreteGaussian(5.5, 1, 2))
    return [
        discover_bounds(numbers(without_one, 5000), {"x": kind}, dataclasses.replace(event), ledger)
        for kind in ("integer", "real", "date")
    ]


def marginals(without_one: bool, ledger: Ledger) -> object:
    table = rows(without_one)
    found = noisy_counts(table, [("job",), ("y", "age")], query(DiscreteGaussian(4.4, 2, 2)), ledger)
    return [found, table.totals.measured, table.public_num_rows]


def size(without_one: bool, ledger: Ledger) -> object:
    table = PrivateTable(pa.table({"x": np.arange(1025 - without_one)}))
    return noisy_size(table, query(DiscreteGaussian(33.3, 1, 2)), ledger)


def training(without_one: bool, ledger: Ledger) -> object:
    """The sum of one step and its counts, on their grids in two words: the noise makes up for one unit's gradient."""
    draw = np.random.default_rng(6)
    exact = draw.integers(-(2**40), 2**40, 3000)
    exact[::3] = draw.choice([-1, 1], 1000) * (2 ** draw.integers(0, 40, 1000) + draw.integers(-2, 3, 1000))
    drawn, moved = draw.integers(-(2**40), 2**40, 3000), draw.integers(-(2**22), 2**22, 3000)
    if without_one:
        exact, drawn = exact - moved, drawn + moved

    def fixed(values: np.ndarray) -> Fixed:
        return Fixed(jnp.asarray(values >> WORD, jnp.int32), jnp.asarray(values % 2**WORD, jnp.int32))

    weights, counts = slice(3, None), slice(3)
    noise_of = {len(exact[part]): drawn[part] for part in (weights, counts)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clipping, "noise_on_grid", lambda normal, *_: fixed(noise_of[len(normal)]))
        noisy = clipping.add_noise(
            [fixed(exact[weights])],
            fixed(exact[counts]),
            Clip(jnp.asarray([1.0, 0.3, 2.0]), (jnp.arange(2997) % 3,)),
            noise_multiplier=2.0,
            key=jax.random.key(0),
            count_stddev=3.0,
        )
    return [np.asarray(noisy.gradient[0]), np.asarray(noisy.within)]


CASES = {
    "charge_zcdp": Case("charge_zcdp", adaptive),
    "charge_dpsgd": Case("charge_dpsgd", training),
    "charge_langevin": Case("charge_langevin", training),
    "charge_marginals": Case("charge_marginals", allocated),
    "charge_votes": Case("charge_votes", votes(Gaussian(0.7), Gaussian(0.3))),
    "charge_votes, Laplace": Case("charge_votes", votes(DiscreteLaplace(0.3, 40), None)),
    "discover_bounds": Case("discover_bounds", bounds),
    "discover_categories": Case("discover_categories", categories),
    "discover_histograms": Case("discover_histograms", histogram_of(127, 9.3, 3)),
    "discover_histograms, averaged": Case("discover_histograms", averaged),
    "discover_histograms, one level": Case("discover_histograms", histogram_of(127, 9.3, 1)),
    "discover_histograms, a tree": Case("discover_histograms", histogram_of(4000, 2.3, 3)),
    "discover_histograms, decimals": Case("discover_histograms", histogram_of(99, 5.1, 3, kind="real", decimals=0)),
    "noisy_answers": Case("noisy_answers", answers(DiscreteGaussian(8.8, 3, 2))),
    "noisy_answers, Laplace": Case("noisy_answers", answers(LaplaceMarginals(0.21, 3, 2))),
    "noisy_block_counts": Case(
        "noisy_block_counts", lambda less, ledger: noisy_block_counts(graph(less), query(Gaussian(0.9)), ledger)
    ),
    "noisy_class_sums": Case("noisy_class_sums", class_sums),
    "noisy_counts": Case("noisy_counts", marginals),
    "noisy_degree_tails": Case(
        "noisy_degree_tails", lambda less, ledger: noisy_degree_tails(graph(less), 9, query(Gaussian(0.9)), ledger)
    ),
    "noisy_degrees": Case(
        "noisy_degrees", lambda less, ledger: noisy_degrees(graph(less), query(Gaussian(0.02)), ledger)
    ),
    "noisy_gram": Case(
        "noisy_gram", lambda less, ledger: noisy_gram(rows(less), Layout(), query(Gaussian(1.7)), ledger)
    ),
    "noisy_moments": Case("noisy_moments", moments),
    "noisy_rows_per_unit": Case("noisy_rows_per_unit", sizes_of_units),
    "noisy_size": Case("noisy_size", size),
    "noisy_tail_counts": Case(
        "noisy_tail_counts",
        lambda less, ledger: noisy_tail_counts(graph(less, GraphUnit.NODE), 5, query(LaplaceCounts(0.4, 10)), ledger),
    ),
}
WITHOUT_SUMS = {
    "noisy_closest": "an index, drawn with exact odds",
    "noisy_dependence_selections": "an index, drawn with exact odds",
    "noisy_function_selections": "an index, drawn with exact odds",
    "noisy_score_selections": "an index, drawn with exact odds",
    "noisy_selections": "an index, drawn with exact odds",
    "noisy_minimisers": "a random term is part of what is minimised, and the minimum is rounded to a public grid",
}
"""Mechanisms that release no sum of an exact value and noise."""
SEEDS = range(12)


def test_every_mechanism_is_tried() -> None:
    assert {case.mechanism for case in CASES.values()} | set(WITHOUT_SUMS) == CHARGES


@pytest.mark.parametrize("name", CASES)
def test_a_release_is_a_function_of_exact_values_plus_noise(name: str) -> None:
    """One row, edge or unit less, and as much more noise: the same release, byte for byte."""
    for seed in SEEDS:
        whole = answer(CASES[name], without_one=False, seed=seed)
        less = answer(CASES[name], without_one=True, seed=seed, first=whole)
        assert less.released == whole.released
        assert not whole.exact or any((one != other).any() for one, other in zip(whole.exact, less.exact, strict=True))


def test_every_addition_of_noise_is_tried() -> None:
    """All functions that have noise added, by the syntax tree, are met by the cases above."""
    wanted = {"with_noise", "with_laplace_noise"}
    found = {(file.name, place.rpartition(".")[2]) for file in PRIVACY for place in uses(file.read_text(), wanted)}
    met = set().union(*(answer(case, without_one=False, seed=0).sites for case in CASES.values()))
    assert met == found


def test_what_is_made_of_a_histogram_has_six_figures() -> None:
    """In the objects of a run, not only in files: a second line of defence, should noise ever be added otherwise."""
    histogram = histogram_of(4000, 2.3, 3)(
        False, Ledger(loose_guarantee(1e9, 0.5), noise=SeededNoise(0), max_rows_per_unit=2)
    )["x"]
    codec = NumericCodec("x", "integer", histogram, np.asarray([0, 5, len(histogram.firsts)]), False)
    layout = layout_of("modes", Domain(names=("x",), sizes=(2,), num_rows=9), [codec.scale()], None, num_modes=3)
    (modes,) = layout.columns
    assert isinstance(modes, Modes)
    for numbers in (histogram.masses, bin_middles(codec.scale()), modes.means, modes.stddevs, modes.weights):
        assert [float(f"{number:.5e}") for number in numbers] == list(numbers)
        assert not all(float(f"{number:.4e}") == number for number in numbers)
