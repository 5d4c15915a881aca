"""Whether tables of possible codes leave a row that all of them allow: a search that ends early on hard cases."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

Table: TypeAlias = tuple[tuple[str, ...], np.ndarray]
"""Some columns, and for each combination of their codes whether it is possible."""

MAX_EFFORT = 2**24
"""The number of cells that one search may look at: about a second."""
_EFFORT_PER_TABLE = 2**10
"""What looking at a table costs, however small it is."""


def find_row(tables: Sequence[Table], max_effort: int = MAX_EFFORT) -> dict[str, int] | None:
    """A row that all tables allow, by backtracking with arc consistency (Sabin and Freuder 1994).

    None: there is none, or the search was cut short. Whether it is cut short depends on the tables alone, never on the
    clock.
    """
    row: dict[str, int] = {}
    for group in connected([columns for columns, _ in tables]):
        found = _Search([tables[at] for at in group], max_effort).run()
        if found is None:
            return None
        row |= found
    return row


def connected(column_sets: Sequence[Collection[str]]) -> list[list[int]]:
    """The indices of sets that share columns, directly or through other sets, together."""
    groups: list[list[int]] = []
    for at, columns in enumerate(column_sets):
        joined = [group for group in groups if any(set(column_sets[other]) & set(columns) for other in group)]
        groups = [group for group in groups if group not in joined]
        groups.append([*(other for group in joined for other in group), at])
    return groups


_Codes: TypeAlias = dict[str, np.ndarray]
"""For each column the codes that remain."""


class _Search:
    def __init__(self, tables: Sequence[Table], max_effort: int):
        self._tables = tables
        self._using: dict[str, list[int]] = {}
        for at, (columns, _) in enumerate(tables):
            for name in columns:
                self._using.setdefault(name, []).append(at)
        self._effort = max_effort

    def run(self) -> dict[str, int] | None:
        sizes = {name: n for columns, possible in self._tables for name, n in zip(columns, possible.shape, strict=True)}
        waiting: list[tuple[_Codes, Iterable[int]]] = [
            ({name: np.arange(size) for name, size in sizes.items()}, range(len(self._tables)))
        ]
        while waiting:
            codes = self._narrow(*waiting.pop())
            if self._effort <= 0:
                return None
            if codes is None:
                continue
            open_columns = [name for name in codes if len(codes[name]) > 1]
            if not open_columns:
                return {name: int(codes[name][0]) for name in sizes}
            name = min(open_columns, key=lambda name: len(codes[name]))
            waiting.append(({**codes, name: codes[name][1:]}, self._using[name]))
            waiting.append(({**codes, name: codes[name][:1]}, self._using[name]))
        return None

    def _narrow(self, codes: Mapping[str, np.ndarray], changed: Iterable[int]) -> _Codes | None:
        """Only codes that each table by itself allows with some of the others; None if a column has none left."""
        codes, queue = dict(codes), dict.fromkeys(changed)
        while queue and self._effort > 0:
            at = next(iter(queue))
            del queue[at]
            columns, possible = self._tables[at]
            cells = possible[np.ix_(*(codes[name] for name in columns))]
            self._effort -= cells.size + _EFFORT_PER_TABLE
            for axis, name in enumerate(columns):
                remains = cells.any(axis=tuple(other for other in range(cells.ndim) if other != axis))
                if not remains.any():
                    return None
                if not remains.all():
                    codes[name] = codes[name][remains]
                    queue |= dict.fromkeys(other for other in self._using[name] if other != at)
        return codes
