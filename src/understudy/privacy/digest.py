"""A fingerprint of the private table, by which a resumed run recognises it."""

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def table_digest(table: pa.Table, key: bytes) -> str:
    """A keyed hash of the names, types and values of a table. Without the key nobody can test guessed tables.

    Computed from the private rows without noise: for the checkpoint folder and for comparisons only.
    """
    digest = hashlib.blake2b(key=key, digest_size=32)
    digest.update(f"{table.num_rows} rows".encode())
    for name, column in zip(table.column_names, table.columns, strict=True):
        digest.update(json.dumps([name, str(column.type)]).encode())
        digest.update(np.packbits(pc.is_valid(column).to_numpy()).tobytes())
        # The memory behind nulls is arbitrary, and the same rows may be chunked differently.
        values = pa.table({"": column.drop_null()}).combine_chunks()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, values.schema) as stream:
            stream.write_table(values)
        digest.update(sink.getvalue())
    return digest.hexdigest()
