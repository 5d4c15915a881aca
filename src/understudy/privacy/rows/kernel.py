"""The counting kernel: rows and a workload in, one vector of exact counts out.

Every marginal is counted here, whether rows are in memory, in a file, or in a task of a cluster. Counts are whole
numbers, so they are the same however the rows are divided among threads, devices or tasks. They are exact: noise must
follow.

Cliques that share columns are counted together: the counts of a joint clique are added up to those of each clique
inside it. One pass over three columns then serves three pairs.
"""

import collections
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from jaxtyping import Int64, Integer

from understudy.run.environment import num_cores

Columns = tuple[int, ...]
"""A clique, by the indices of its columns."""
Item = TypeVar("Item")

ROWS_AT_ONCE = 2**17
"""Rows that are counted at once: their cells fit into the cache of a processor."""
JOINT_CELLS = 2**15
"""The most cells of a joint clique: its counts fit into the cache too."""
CELLS_AT_ONCE = 2**22
"""Cells that a thread counts in one pass over the rows."""
TRIED_COLUMNS = 32
"""Columns that are tried for a joint clique: with a thousand columns, there are too many to try all of them."""


def count_workload(
    codes: Integer[np.ndarray, "rows columns"],
    workload: Sequence[Columns],
    sizes: Sequence[int],
    *,
    threads: int | None = None,
    on_device: bool = False,
) -> Int64[np.ndarray, " cells"]:
    """How many rows have each combination of codes, for every clique of the workload: all counts in one vector.

    `sizes` has the number of codes of every column. `threads` is by default the number of processors; `on_device`
    counts on JAX's default device.

    >>> codes = np.array([[0, 1], [1, 1], [0, 1]])
    >>> count_workload(codes, [(0,), (0, 1)], (2, 2)).tolist()
    [2, 1, 0, 2, 0, 1]
    """
    sizes = tuple(sizes)
    joint = join_cliques(tuple(dict.fromkeys(workload)), sizes, min(JOINT_CELLS, len(codes)))
    inside: dict[Columns, list[Columns]] = {}
    for clique, group in joint.items():
        inside.setdefault(group, []).append(clique)
    found: dict[Columns, np.ndarray] = {}

    def num_cells(group: Columns) -> int:
        return math.prod(sizes[column] for column in group)

    by_size = sorted(inside, key=lambda group: (num_cells(group), group))  # large ones apart from small ones
    for groups in portions(by_size, num_cells, CELLS_AT_ONCE):
        if on_device:
            from understudy.privacy.rows.device_kernel import count_on_device  # tasks of a cluster must not need JAX

            tables = count_on_device(codes, groups, sizes)
        else:
            tables = _count_in_threads(codes, groups, sizes, threads or num_cores())
        for group, table in zip(groups, tables, strict=True):
            found |= {clique: _marginal(table, group, clique, sizes) for clique in inside[group]}
    return np.concatenate([np.zeros(0, np.int64), *(found[clique].reshape(-1) for clique in workload)])


def split_counts(
    counts: Int64[np.ndarray, " cells"], workload: Sequence[Columns], sizes: Sequence[int]
) -> list[Int64[np.ndarray, "..."]]:
    """The counts of each clique, in the shape of its marginal.

    >>> [table.tolist() for table in split_counts(np.array([2, 1, 0, 2, 0, 1]), [(0,), (0, 1)], (2, 2))]
    [[2, 1], [[0, 2], [0, 1]]]
    """
    shapes = [tuple(sizes[column] for column in clique) for clique in workload]
    ends = np.cumsum([0, *map(math.prod, shapes)])
    return [counts[first:last].reshape(shape) for first, last, shape in zip(ends[:-1], ends[1:], shapes, strict=True)]


# -------------------------------------------------------------------------------------------------------- joint cliques


@functools.lru_cache(maxsize=8)
def join_cliques(workload: tuple[Columns, ...], sizes: tuple[int, ...], max_cells: int) -> dict[Columns, Columns]:
    """For each clique the joint clique that it is counted in, of at most `max_cells` cells unless it is alone.

    Greedy: a clique that no joint clique holds yet begins a new one, to which columns are added as long as they bring
    cliques that are still to be counted, those that bring most first.

    >>> join_cliques(((0, 1), (0, 2), (1, 2), (2, 3)), (10, 10, 10, 99), 1000)
    {(0, 1): (0, 1, 2), (0, 2): (0, 1, 2), (1, 2): (0, 1, 2), (2, 3): (2, 3)}
    """
    left = {frozenset(clique): None for clique in sorted(workload, key=len, reverse=True)}
    orders = sorted({len(clique) for clique in left})
    partners: dict[int, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    for clique in left:
        for one, other in itertools.permutations(sorted(clique), 2):
            partners[one][other] += 1  # in how many cliques that are still to be counted they are together
    group_of: dict[frozenset[int], Columns] = {}

    def brought(group: Sequence[int], column: int) -> list[frozenset[int]]:
        """The cliques still to be counted that a column brings."""
        subsets = (rest for order in orders if order for rest in itertools.combinations(group, order - 1))
        return [whole for rest in subsets if (whole := frozenset((*rest, column))) in left]

    for first in list(left):
        if first not in left:
            continue
        group = sorted(first)
        cells = math.prod(sizes[column] for column in group)
        while True:
            near = dict.fromkeys(itertools.chain.from_iterable(partners[column] for column in reversed(group)))
            fitting = (c for c in near if c not in group and cells * sizes[c] <= max_cells)
            tried = [(len(brought(group, c)), -c) for c in itertools.islice(fitting, TRIED_COLUMNS)]
            gain, column = max(tried, default=(0, 0))
            if not gain:
                break
            cells *= sizes[-column]
            group = sorted((*group, -column))
        members = itertools.chain.from_iterable(itertools.combinations(group, order) for order in orders)
        for member in map(frozenset, members):
            if member in left:
                del left[member]
                group_of[member] = tuple(group)
                for one, other in itertools.permutations(member, 2):
                    partners[one][other] -= 1
                    if not partners[one][other]:
                        del partners[one][other]
    return {clique: group_of[frozenset(clique)] for clique in workload}


def portions(items: Iterable[Item], size_of: Callable[[Item], int], max_size: int) -> Iterator[list[Item]]:
    """The items in their order, in parts of at most this size; a larger item is a part by itself.

    >>> list(portions([3, 2, 9, 1], lambda item: item, 5))
    [[3, 2], [9], [1]]
    """
    portion: list[Item] = []
    held = 0
    for item in items:
        size = size_of(item)
        if portion and held + size > max_size:
            yield portion
            portion, held = [], 0
        portion.append(item)
        held += size
    if portion:
        yield portion


def _marginal(table: np.ndarray, group: Columns, clique: Columns, sizes: Sequence[int]) -> Int64[np.ndarray, "..."]:
    """The counts of one clique inside a joint one, in the clique's own order of columns."""
    shaped = table.reshape([sizes[column] for column in group])
    summed = shaped.sum(axis=tuple(axis for axis, column in enumerate(group) if column not in clique))
    kept = [column for column in group if column in clique]
    return np.asarray(summed.transpose([kept.index(column) for column in clique]))  # the sum of all is no array


# ------------------------------------------------------------------------------------------------------------- counting


def _count_in_threads(
    codes: Integer[np.ndarray, "rows columns"], groups: Sequence[Columns], sizes: Sequence[int], threads: int
) -> list[Int64[np.ndarray, " cells"]]:
    """Each thread counts a range of the rows; most of the time it holds no lock of Python."""
    count = functools.partial(_count_range, codes, groups, sizes)
    threads = max(1, min(threads, len(codes) // ROWS_AT_ONCE))
    if threads == 1:
        return count(0, len(codes))
    ends = [len(codes) * number // threads for number in range(threads + 1)]
    with ThreadPoolExecutor(threads) as executor:
        first, *others = executor.map(count, ends[:-1], ends[1:])
    for other in others:
        for table, more in zip(first, other, strict=True):
            table += more
    return first


def _count_range(
    codes: Integer[np.ndarray, "rows columns"], groups: Sequence[Columns], sizes: Sequence[int], start: int, stop: int
) -> list[Int64[np.ndarray, " cells"]]:
    """The counts of these rows. Each part of them has at least as many rows as there are cells in a table."""
    cells = [math.prod(sizes[column] for column in group) for group in groups]
    tables = [np.zeros(each, dtype=np.int64) for each in cells]
    step = max(ROWS_AT_ONCE, *cells)
    for first in range(start, stop, step):
        part = codes[first : min(first + step, stop)]
        for table, group in zip(tables, groups, strict=True):
            table += np.bincount(_cells(part, group, sizes, table.size), minlength=table.size)
    return tables


def _cells(
    part: Integer[np.ndarray, "rows columns"], group: Columns, sizes: Sequence[int], num_cells: int
) -> Integer[np.ndarray, " rows"]:
    """The index of each row's cell, in a type as narrow as the number of cells allows."""
    narrow: type[np.integer] = np.uint16 if num_cells < 2**16 else np.int64
    if not group:
        return np.zeros(len(part), dtype=narrow)
    cells = part[:, group[0]].astype(narrow)
    for column in group[1:]:
        np.multiply(cells, narrow(sizes[column]), out=cells)
        np.add(cells, part[:, column], out=cells, casting="unsafe")
    return cells
