"""What an attack sees of one fit: counts in synthetic rows, and the contents of the release folder.

An observation is post-processing of a release, so it has no privacy cost. Each part is a vector of the same length for
every fit, from which scores are computed later.
"""

import dataclasses
import functools
import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import safetensors.numpy
from jaxtyping import Int

from understudy.audit.neighbours import BOUNDS, Neighbours
from understudy.release import Release

SAMPLE_ROWS = 1000
"""The synthetic table that an attack without the release sees."""
DENSITY_ROWS = 10_000
"""Rows that an attack with the release draws from it, to see the probabilities of cells."""
MAX_NUMBERS = 192
"""Of released arrays; if there are more, they are projected onto this many random directions."""
EDGES = (25.0, 50.0, 75.0, BOUNDS[1] + 1.0)
"""Between the cells of a number."""

PARTS = ("sample", "density", "arrays", "facts")


@dataclasses.dataclass(frozen=True)
class Observation:
    """What is seen of one release. A run that failed after its first charge released nothing: all parts are zero."""

    sample: tuple[int, ...]
    """Rows of the synthetic table in every cell of one or two columns, and rows like the canary."""
    density: tuple[int, ...]
    """The same, for more rows."""
    arrays: tuple[float, ...]
    """Numbers of the model file."""
    facts: tuple[float, ...]
    """What the release says about its domain: the number of rows, and of codes of each column."""


class Cells:
    """Cells of one and of two columns, and those that contain the canary."""

    def __init__(self, neighbours: Neighbours):
        self._columns = neighbours.columns
        both = neighbours.table(with_canary=True)
        self._known = {name: sorted(both[name].cast(pa.string()).unique().to_pylist()) for name in self._columns}
        self._numeric = {name for name in self._columns if pa.types.is_integer(both[name].type)}
        self._sizes = [
            len(EDGES) + 1 if name in self._numeric else len(self._known[name]) + 1 for name in self._columns
        ]
        self._cliques = [
            *((i,) for i in range(len(self._columns))),
            *itertools.combinations(range(len(self._columns)), 2),
        ]
        self._row = self._read(pa.Table.from_pylist([_as_encoded(neighbours)], schema=both.schema))[0]
        starts = np.cumsum([0, *(self._num_cells(clique) for clique in self._cliques)])
        self.canary: tuple[int, ...] = tuple(
            int(start + self._index(self._row[None], clique)[0])
            for start, clique in zip(starts[:-1], self._cliques, strict=True)
        )
        """Where the canary is counted: a cell of each column, in order, then of each pair of columns."""
        self.size = int(starts[-1]) + 1

    def count(self, table: pa.Table) -> Int[np.ndarray, " cells"]:
        """The number of rows in every cell; last, that of rows like the canary in every column."""
        codes = self._read(table)
        parts = [np.bincount(self._index(codes, each), minlength=self._num_cells(each)) for each in self._cliques]
        return np.concatenate([*parts, [(codes == self._row).all(axis=1).sum()]])

    def _read(self, table: pa.Table) -> np.ndarray:
        return np.stack([self._column(name, table[name].combine_chunks()) for name in self._columns], axis=1)

    def _column(self, name: str, values: pa.Array) -> np.ndarray:
        if name in self._numeric:
            return np.asarray(np.digitize(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), EDGES))
        codes = pc.index_in(values.cast(pa.string()), value_set=pa.array(self._known[name]))
        return np.asarray(codes.fill_null(len(self._known[name])))

    def _num_cells(self, clique: tuple[int, ...]) -> int:
        return int(np.prod([self._sizes[i] for i in clique]))

    def _index(self, codes: np.ndarray, clique: tuple[int, ...]) -> np.ndarray:
        return np.ravel_multi_index(tuple(codes[:, i] for i in clique), [self._sizes[i] for i in clique])


def _as_encoded(neighbours: Neighbours) -> dict[str, object]:
    """The row of the canary as a codec would keep it: numbers within declared bounds."""
    row = dict(neighbours.added[0])
    for name, column in neighbours.schema["columns"].items():
        if "bounds" in column:
            lower, upper = column["bounds"]
            row[name] = max(lower, min(upper, row[name]))
    return row


def observe(folder: Path, cells: Cells, *, seed: int | None) -> Observation:
    """Reads a release folder back, and draws synthetic rows from it."""
    release = Release.load(folder)
    rows = release.sample_arrow(DENSITY_ROWS, seed=seed)
    domain = release.codec.domain
    return Observation(
        sample=tuple(cells.count(rows.slice(0, SAMPLE_ROWS)).tolist()),
        density=tuple(cells.count(rows).tolist()),
        arrays=_numbers(safetensors.numpy.load_file(folder / "model.safetensors")),
        facts=(float(domain.num_rows), *map(float, domain.sizes)),
    )


def _numbers(arrays: dict[str, np.ndarray]) -> tuple[float, ...]:
    """All numbers of the arrays, or projections of them, in an order that depends only on names."""
    flat = np.concatenate([np.ravel(arrays[name]).astype(float) for name in sorted(arrays)])
    flat = np.nan_to_num(np.clip(flat, -1e6, 1e6))
    if len(flat) > MAX_NUMBERS:
        flat = _directions(len(flat)) @ flat / np.sqrt(len(flat))
    padded = np.pad(flat, (0, MAX_NUMBERS - len(flat)))
    return tuple(float(f"{value:.6g}") for value in padded)


@functools.lru_cache(maxsize=64)
def _directions(length: int) -> np.ndarray:
    """Random signs, the same in every run."""
    return np.random.default_rng(length).integers(0, 2, (MAX_NUMBERS, length)) * 2.0 - 1.0
