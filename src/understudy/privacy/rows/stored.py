"""Private rows of a large table, held where their codes are: each batch takes its own rows from there.

A small table is encoded and arranged once (`rows.arrange_units`), and compiled programs take rows from it. A large one
would be held twice, and as features many times over. Here nothing is precomputed: `StoredUnits` takes the rows
of a batch from the codes, in memory or mapped from a file, and encodes these alone. Which of the two it is follows from
public facts (`train_units`), and where rows are codes, it does not change a result.
"""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Integer, Key, PRNGKeyArray

from understudy.privacy.rows.rows import PrivateRows, PrivateUnits, RowEncoder, arrange_units

if TYPE_CHECKING:  # reads tables; training alone must not need to
    from understudy.privacy.accounting.ledger import Ledger

MAX_BYTES = 2**30
"""Rows that would take more memory than this for training, by their public number, stay where their codes are."""
BYTES_OF_NUMBERS = 12
"""What features are made of, in every column: a 32-bit code and a position of 64 bits."""


@jax.tree_util.register_pytree_node_class
class StoredUnits:
    """The rows of each unit of a large table. Opaque.

    A pytree without leaves: compiled programs get no rows but those that come with a batch.
    """

    def __init__(self, rows: PrivateRows, layout: RowEncoder | None):
        self._codes, self._layout, self._slots = rows._codes, layout, rows.max_rows_per_unit
        self._positions = None if layout is None else rows._positions
        if self._slots > 1:
            units = rows._unit_of_row()
            order = np.argsort(units, kind="stable")
            is_first = np.diff(units[order], prepend=-1) != 0
            self._order = order.astype(np.int32)
            self._starts = np.append(np.flatnonzero(is_first), len(order)).astype(np.int32)

    def __repr__(self) -> str:
        return "StoredUnits(...)"

    def tree_flatten(self) -> tuple[tuple[()], None]:
        return (), None

    @classmethod
    def tree_unflatten(cls, _: None, __: tuple[()]) -> "StoredUnits":
        return object.__new__(cls)  # nothing to take rows from

    @property
    def _num_units(self) -> int:
        """At least one: an empty table is padded with one absent unit."""
        return max(1, len(self._codes) if self._slots == 1 else len(self._starts) - 1)

    def _take(
        self, at: Int[Array, "*steps chunks chunk"], keys: Key[Array, "*steps"]
    ) -> tuple[Array, Bool[Array, "*steps chunks chunk slots"]]:
        """The rows of these units, and which are present, as `arrange_units` has them; those of each step with its key.

        Formal guarantee: the features of a row are a function of that row and of its own part of the randomness of the
        step's key, as far as `layout` keeps to this.
        """
        steps = np.asarray(at).reshape(keys.size, -1)
        row, present = self._rows_of(steps)
        if self._layout is None:
            taken = self._gather(row.reshape(-1)).reshape(*row.shape, self._codes.shape[1])
        else:
            taken = np.stack([self._encode_slots(own, key) for own, key in zip(row, keys.reshape(-1), strict=True)])
        taken[~present] = 0
        shape = (*at.shape, self._slots)
        return jnp.asarray(taken.reshape(*shape, taken.shape[-1])), jnp.asarray(present.reshape(shape))

    def _rows_of(self, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The index of each unit's row in each slot, and whether there is one."""
        if not len(self._codes):
            return np.zeros((*units.shape, self._slots), np.int32), np.zeros((*units.shape, self._slots), bool)
        if self._slots == 1:
            return units[..., None], np.ones((*units.shape, 1), bool)
        index = self._starts[units][..., None] + np.arange(self._slots, dtype=np.int32)
        present = index < self._starts[units + 1][..., None]
        return self._order[np.where(present, index, 0)], present

    def _encode_slots(self, rows: Integer[np.ndarray, "units slots"], key: PRNGKeyArray) -> np.ndarray:
        """Features of a batch. The key is none of the two that `poisson_batches` splits the step's into."""
        assert self._layout is not None
        at = rows.reshape(-1)
        codes = self._gather(at).astype(np.int32)
        features = self._layout.encode(codes, self._positions_of(at), jax.random.fold_in(key, 2))
        return features.reshape(*rows.shape, features.shape[1])

    def _positions_of(self, at: Integer[np.ndarray, " rows"]) -> Float[np.ndarray, "rows columns"]:
        assert self._positions is not None
        return self._positions[at] if len(self._codes) else np.full((len(at), self._codes.shape[1]), np.nan)

    def _gather(self, at: Integer[np.ndarray, " rows"]) -> Integer[np.ndarray, "rows columns"]:
        """The codes of these rows, read in their order in memory, column by column: each page is read once."""
        taken = np.zeros((len(at), self._codes.shape[1]), dtype=self._codes.dtype)
        if len(self._codes):
            order = np.argsort(at, kind="stable")
            ascending = at[order]
            for column in range(taken.shape[1]):
                taken[order, column] = self._codes[:, column][ascending]
        return taken


def train_units(rows: PrivateRows, layout: RowEncoder | None, ledger: "Ledger") -> PrivateUnits | StoredUnits:
    """The rows for training: arranged as a whole, or, if they are too many by public facts, held where they are."""
    width = rows._codes.dtype.itemsize if layout is None else BYTES_OF_NUMBERS
    if rows.public_num_rows * len(rows.domain.names) * width > MAX_BYTES:
        return StoredUnits(rows, layout)
    return arrange_units(rows, rows._encoded(layout, ledger))
