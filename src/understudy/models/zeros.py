"""Structural zeros where a model draws columns one after another: which codes remain, given those drawn before.

Columns are drawn in a fixed order. A mask on a column says which of its codes are possible for the codes of earlier
columns. Masks are made consistent from the last column to the first (adaptive consistency, Dechter and Pearl 1987): a
combination of earlier codes that would leave a later column no code is impossible itself, so draws have no dead ends.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from understudy.models.protocol import Arrays, Structure
from understudy.schema import StructuralZeros

MAX_CELLS = 2**16
"""Masks with larger tables are left out: rows that they would exclude are rejected later."""


class Mask(NamedTuple):
    """The possible codes of one column given the codes of earlier ones. Columns are numbered in drawing order."""

    given: tuple[int, ...]
    place: int
    zeros: StructuralZeros
    """Over the earlier columns in their order, then the masked one."""

    @property
    def lines(self) -> np.ndarray:
        """One line of possible codes for each combination of earlier codes, the last of these varying fastest."""
        possible = self.zeros.possible
        return possible.reshape(math.prod(possible.shape[:-1]), possible.shape[-1])


Masks = tuple[Mask, ...]


def masks_in_order(zeros: Sequence[StructuralZeros], places: Mapping[str, int]) -> Masks:
    """The masks on columns that are drawn at these places, in their order. Zeros on any other column are left out.

    >>> pair = StructuralZeros(("b", "a"), np.array([[True, False], [False, False]]))
    >>> [(mask.place, mask.given, mask.zeros.possible.tolist()) for mask in masks_in_order([pair], {"a": 0, "b": 1})]
    [(0, (), [True, False]), (1, (0,), [[True, False], [False, False]])]
    """
    waiting = [
        _in_order(table, places)
        for table in zeros
        if table.possible.size <= MAX_CELLS and all(name in places for name in table.columns)
    ]
    masks: list[Mask] = []
    for name in sorted(places, key=lambda name: places[name], reverse=True):
        merged = _merge([table for table in waiting if table.columns[-1] == name])
        waiting = [table for table in waiting if table.columns[-1] != name]
        masks += [Mask(tuple(places[given] for given in table.columns[:-1]), places[name], table) for table in merged]
        waiting += [table for table in _project(merged, places) if table.num_impossible]
    return tuple(sorted(masks, key=lambda mask: (mask.place, mask.given)))


def block_masks(zeros: Sequence[StructuralZeros], names: Sequence[str], columns: Sequence[int | None]) -> Masks:
    """The masks on one-hot blocks of features; `columns`: the column whose codes each block holds, or None."""
    return masks_in_order(zeros, {names[at]: block for block, at in enumerate(columns) if at is not None})


def possible_codes(masks: Sequence[Mask], codes: np.ndarray) -> np.ndarray:
    """For each row, the codes that all masks on one column leave possible; all of them where none is."""
    possible = np.ones((len(codes), masks[0].lines.shape[1]), dtype=bool)
    for mask in masks:
        at = np.ravel_multi_index(tuple(codes[:, mask.given].T), mask.zeros.possible.shape[:-1]) if mask.given else 0
        possible &= mask.lines[at]
    return possible | ~possible.any(axis=1, keepdims=True)


def _in_order(zeros: StructuralZeros, places: Mapping[str, int]) -> StructuralZeros:
    order = sorted(range(len(zeros.columns)), key=lambda axis: places[zeros.columns[axis]])
    return StructuralZeros(tuple(zeros.columns[axis] for axis in order), np.transpose(zeros.possible, order))


def _merge(tables: Sequence[StructuralZeros]) -> list[StructuralZeros]:
    """One table for each set of columns."""
    merged: list[StructuralZeros] = []
    for columns, same in itertools.groupby(
        sorted(tables, key=lambda table: table.columns), key=lambda table: table.columns
    ):
        possible = np.asarray(np.all([table.possible for table in same], axis=0))
        if possible.any():  # contradictory rules leave nothing to draw, so they mask nothing here
            merged.append(StructuralZeros(columns, possible))
    return merged


def _project(tables: Sequence[StructuralZeros], places: Mapping[str, int]) -> list[StructuralZeros]:
    """Which codes of earlier columns leave the last column a code, all tables together if that is small enough."""
    given = sorted({name for table in tables for name in table.columns[:-1]}, key=lambda name: places[name])
    sizes = {name: size for table in tables for name, size in zip(table.columns, table.possible.shape, strict=True)}
    if math.prod(sizes.values()) > MAX_CELLS:
        return [projected for table in tables if len(tables) > 1 for projected in _project([table], places)]
    if not given:
        return []
    axes = {name: axis for axis, name in enumerate([*given, *(tables[0].columns[-1:])])}
    joint = np.ones([sizes[name] for name in axes], dtype=bool)
    for table in tables:
        joint &= table.possible.reshape([sizes[name] if name in table.columns else 1 for name in axes])
    possible = np.asarray(joint.any(axis=-1))
    return [StructuralZeros(tuple(given), possible)] if possible.any() else []


# --- In a release ---


def pack_zeros(zeros: Sequence[StructuralZeros]) -> tuple[dict[str, object], dict[str, np.ndarray]]:
    """Entries of a model's structure and arrays; none without zeros."""
    if not zeros:
        return {}, {}
    arrays = {f"possible_{number}": table.possible for number, table in enumerate(zeros)}
    return {"zeros": [list(table.columns) for table in zeros]}, arrays


def unpack_zeros(structure: Structure, arrays: Arrays) -> tuple[StructuralZeros, ...]:
    """What `pack_zeros` described."""
    return tuple(
        StructuralZeros(tuple(columns), arrays[f"possible_{number}"])
        for number, columns in enumerate(structure.get("zeros", ()))
    )
