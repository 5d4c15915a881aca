"""Rows of a model: decoded, checked against the rules and a condition, grouped into units, in the types of an origin.

Post-processing: everything here follows from the model, the codec and a key.
"""

import dataclasses
import functools
from collections.abc import Iterator

import jax
import pyarrow as pa
from jaxtyping import PRNGKeyArray

from understudy.encoding import Codec, continue_ids, group_into_units, pool_factor
from understudy.models import Model
from understudy.models.pool import WEIGHT_COLUMN, Pool
from understudy.models.protocol import Allowed
from understudy.release.conditional import rows_meeting, sample_meeting
from understudy.tables import Origin, restyle_within_bounds, settle_types, share_dictionaries


@dataclasses.dataclass(frozen=True)
class RowSampler:
    """Makes the rows of a release, or of a mock."""

    model: Model
    codec: Codec
    origin: Origin

    def batches(self, num_rows: int, where: str | None, key: PRNGKeyArray, batch_rows: int) -> Iterator[pa.Table]:
        """Rows in the types of their origin, at most `batch_rows` at a time; see `Release.sample_batches`."""
        if num_rows <= batch_rows:
            rows = self._sample(num_rows, where, key, self.origin)
            yield restyle_within_bounds(rows, self.origin, self.codec.schema)
            return
        # Which values a batch happens to have must not decide its types.
        origin, dictionaries = settle_types(self.origin, self.codec.extremes(num_rows))
        num_units = 0
        for number, first in enumerate(range(0, num_rows, batch_rows)):
            size = min(batch_rows, num_rows - first)
            rows = self._sample(size, where, jax.random.fold_in(key, number), origin)
            rows, num_units = continue_ids(rows, self.codec, first, num_units)
            yield share_dictionaries(restyle_within_bounds(rows, origin, self.codec.schema), dictionaries)

    def _sample(self, num_rows: int, where: str | None, key: PRNGKeyArray, origin: Origin) -> pa.Table:
        """Rows before they are restyled, with ids from 1 on."""
        row_key, unit_key = jax.random.split(key) if self.codec.rows_per_unit else (key, None)
        is_valid = None
        pooled = num_rows if where is not None else num_rows * pool_factor(self.codec, num_rows)
        if where is None and not self.codec.schema.rules:
            rows = self.draw(pooled, row_key, None)
        else:
            rows = sample_meeting(self.draw, pooled, where, codec=self.codec, origin=origin, key=row_key)
            is_valid = functools.partial(rows_meeting, where, codec=self.codec, origin=origin)
        if unit_key is not None:
            rows = group_into_units(rows, num_rows, self.codec, key=unit_key, is_valid=is_valid)
        return rows

    def draw(self, num_rows: int, key: PRNGKeyArray, allowed: Allowed | None) -> pa.Table:
        """Rows of the model as the codec decodes them, whether or not they satisfy the rules."""
        model_key, decode_key = jax.random.split(key)
        if not (isinstance(self.model, Pool) and self.model.is_weighted):
            return self.codec.decode(*self.model.sample(num_rows, key=model_key, allowed=allowed), key=decode_key)
        sample, weights = self.model.sample_weighted(num_rows, key=model_key, allowed=allowed)
        return self.codec.decode(*sample, key=decode_key).append_column(WEIGHT_COLUMN, pa.array(weights))
