"""A fingerprint of the private table, by which a resumed run recognises it."""

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Int64

from understudy.privacy.batches import add_arrays
from understudy.privacy.table import PrivateTable, PublicTable
from understudy.privacy.units import content_hashes


def table_digest(table: PrivateTable | PublicTable, key: bytes) -> str:
    """A keyed hash of the names, types and values of a table. Without the key nobody can test guessed tables.

    Computed from the private rows without noise: for the checkpoint folder and for comparisons only.
    """
    if isinstance(table, PrivateTable) and table.is_remote:
        sums = table._batches.fold(_sum_of_hashes, add_arrays)
        return hashlib.blake2b(sums.tobytes(), key=key).hexdigest()
    batches = [table.table] if isinstance(table, PublicTable) else table._batches
    digests = [_batch_digest(batch, key) for batch in batches]
    return digests[0] if len(digests) == 1 else hashlib.blake2b("".join(digests).encode(), key=key).hexdigest()


def _sum_of_hashes(batch: pa.Table) -> Int64[np.ndarray, "3"]:
    """Of all rows, in whatever order a cluster reads them, and their number."""
    words = content_hashes(batch, None, batch.column_names).sum(axis=1, dtype=np.uint64).view(np.int64)
    return np.r_[words, np.int64(batch.num_rows)]


def _batch_digest(content: pa.Table, key: bytes) -> str:
    digest = hashlib.blake2b(key=key, digest_size=32)
    digest.update(f"{content.num_rows} rows".encode())
    for name, column in zip(content.column_names, content.columns, strict=True):
        digest.update(json.dumps([name, str(column.type)]).encode())
        digest.update(np.packbits(pc.is_valid(column).to_numpy()).tobytes())
        # The memory behind nulls is arbitrary, and the same rows may be chunked differently.
        values = pa.table({"": column.drop_null()}).combine_chunks()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, values.schema) as stream:
            stream.write_table(values)
        digest.update(sink.getvalue())
    return digest.hexdigest()
