"""Whether tables of possible codes leave a row that all of them allow: a search that ends early on hard cases."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

Table: TypeAlias = tuple[tuple[str, ...], np.ndarray]
"""Some columns, and for each combination of their codes whether it is possible."""

MAX_EFFORT = 2**24
"""The number of cells that one search may look at: about a second."""
_EFFORT_PER_TABLE = 2**10
"""What looking at a table costs, however small it is."""


class Search(NamedTuple):
    """What a search has found."""

    row: dict[str, int] | None
    """A code for each column such that every table allows the row; None: none was found."""
    is_complete: bool
    """Whether the answer is certain. Otherwise the search was cut short, and there may be such a row."""

    @property
    def is_contradiction(self) -> bool:
        return self.row is None and self.is_complete


def find_row(tables: Sequence[Table], max_effort: int = MAX_EFFORT) -> Search:
    """A row that all tables allow, by backtracking with arc consistency (Sabin and Freuder 1994).

    Whether the search is cut short depends on the tables alone, never on the clock.

    >>> differ = ~np.eye(2, dtype=bool)
    >>> find_row([(("a", "b"), differ), (("b", "c"), differ)]).row
    {'a': 0, 'b': 1, 'c': 0}
    >>> find_row([(("a", "b"), differ), (("b", "c"), differ), (("c", "a"), differ)]).is_contradiction
    True
    """
    row: dict[str, int] = {}
    is_complete = True
    for connected in _components(tables):
        found = _Search(connected, max_effort).run()
        if found.is_contradiction:
            return found
        is_complete &= found.is_complete
        row |= found.row or {}
    return Search(row if is_complete else None, is_complete)


def _components(tables: Sequence[Table]) -> list[list[Table]]:
    """Tables that share columns, directly or through others, together."""
    components: list[list[Table]] = []
    for table in tables:
        apart, joined = [], [table]
        for each in components:
            if any(set(columns) & set(table[0]) for columns, _ in each):
                joined = [*each, *joined]
            else:
                apart.append(each)
        components = [*apart, joined]
    return components


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

    def run(self) -> Search:
        sizes = {name: n for columns, possible in self._tables for name, n in zip(columns, possible.shape, strict=True)}
        waiting: list[tuple[_Codes, Iterable[int]]] = [
            ({name: np.arange(size) for name, size in sizes.items()}, range(len(self._tables)))
        ]
        while waiting:
            codes = self._narrow(*waiting.pop())
            if self._effort <= 0:
                return Search(None, False)
            if codes is None:
                continue
            open_columns = [name for name in codes if len(codes[name]) > 1]
            if not open_columns:
                return Search({name: int(codes[name][0]) for name in sizes}, True)
            name = min(open_columns, key=lambda name: len(codes[name]))
            waiting.append(({**codes, name: codes[name][1:]}, self._using[name]))
            waiting.append(({**codes, name: codes[name][:1]}, self._using[name]))
        return Search(None, True)

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
