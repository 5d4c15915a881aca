"""A fingerprint of the private table, by which a resumed run recognises it."""

import hashlib
import json

import numpy as np
import pyarrow as pa
from jaxtyping import Int64

from understudy.privacy.batches import add_arrays
from understudy.privacy.table import PrivateTable, PublicTable
from understudy.privacy.units import content_hashes
from understudy.tables.reading_batches import RowsDigest


def table_digest(table: PrivateTable | PublicTable, key: bytes) -> str:
    """A keyed hash of the names, types and values of a table. Without the key nobody can test guessed tables.

    It is the same whatever the batches in which the rows come: a lazy frame may be computed in others when a run is
    resumed. Computed from the private rows without noise: for the checkpoint folder and for comparisons only.
    """
    if isinstance(table, PrivateTable) and table.is_remote:
        sums = table._batches.fold(_sum_of_hashes, add_arrays)
        return hashlib.blake2b(sums.tobytes(), key=key).hexdigest()
    batches = iter([table.table] if isinstance(table, PublicTable) else table._batches)
    first = next(batches)
    rows = RowsDigest(first.column_names, key)
    rows.add(first)
    for batch in batches:
        rows.add(batch)
    columns = [[field.name, str(field.type)] for field in first.schema]
    about = json.dumps([rows.num_rows, columns]).encode()
    return hashlib.blake2b(about + rows.digest(), key=key, digest_size=32).hexdigest()


def _sum_of_hashes(batch: pa.Table) -> Int64[np.ndarray, "3"]:
    """Of all rows, in whatever order a cluster reads them, and their number."""
    words = content_hashes(batch, None, batch.column_names).sum(axis=1, dtype=np.uint64).view(np.int64)
    return np.r_[words, np.int64(batch.num_rows)]
