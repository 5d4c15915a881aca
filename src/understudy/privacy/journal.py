"""A run's draws, each on disk before it is used: a run that was killed goes on with the very same ones.

Everything else that a run does is a function of the table, the settings and these draws, so reading them back in order
leads to the same release, and no answer ever gets a second noise. A journal is as secret as a key: whoever has it can
subtract the noise.
"""

import hashlib
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.errors import CheckpointError
from understudy.files import explained
from understudy.privacy.noise import NoiseSource

if TYPE_CHECKING:
    from jaxtyping import PRNGKeyArray

HEAD = struct.Struct("<4sIQ")
"""Of a record: a mark, the length of its words (JSON) and of its numbers (signed, little-endian)."""
MARK = b"draw"
DIGEST = 32


class Journal:
    """Draws in one file, in order: read back to the last whole one, then written on."""

    def __init__(self, path: Path):
        self.path = path
        with explained(path):
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            self._file = os.fdopen(handle, "r+b", buffering=0)
        self._at = 0

    @property
    def is_empty(self) -> bool:
        return os.fstat(self._file.fileno()).st_size == 0

    def read(self) -> tuple[dict, np.ndarray] | None:
        """The next draw, or None at the end. A last record that is not whole was never used: it is cut off."""
        size = os.fstat(self._file.fileno()).st_size
        if self._at == size:
            return None
        self._file.seek(self._at)
        head = self._exactly(HEAD.size)
        mark, num_words, num_bytes = HEAD.unpack(head.ljust(HEAD.size, b"\0"))
        end = self._at + HEAD.size + num_words + num_bytes + DIGEST
        # A mark without the rest, or nothing but zeros, is what a write leaves that was cut short.
        if (mark == MARK or len(head) < HEAD.size) and end > size:
            self._cut()
            return None
        body = self._exactly(num_words + num_bytes) if mark == MARK else b""
        if mark != MARK or self._exactly(DIGEST) != _digest(head + body):
            if end == size or not any(head + self._exactly(size)):
                self._cut()
                return None
            raise CheckpointError(f"{self.path} is damaged: the run cannot go on. Delete the checkpoint's folder.")
        self._at = end
        words = json.loads(body[:num_words])
        return words, np.frombuffer(body[num_words:], dtype=words.pop("dtype")).astype(np.int64)

    def append(self, words: dict, numbers: np.ndarray) -> None:
        """Returns when the draw is on disk."""
        narrow = _narrowed(numbers)
        said = json.dumps({**words, "dtype": narrow.dtype.str}, sort_keys=True).encode()
        record = HEAD.pack(MARK, len(said), narrow.nbytes) + said + narrow.tobytes()
        record += _digest(record)
        with explained(self.path):
            self._file.seek(self._at)
            left = memoryview(record)
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
        self._at += len(record)

    def close(self) -> None:
        self._file.close()

    def _exactly(self, num_bytes: int) -> bytes:
        """So many bytes, or what is left of the file: one read may return less."""
        parts = []
        while num_bytes and (part := self._file.read(min(num_bytes, 2**30))):
            parts.append(part)
            num_bytes -= len(part)
        return b"".join(parts)

    def _cut(self) -> None:
        self._file.truncate(self._at)
        os.fsync(self._file.fileno())


class JournaledNoise:
    """A source of noise whose draws are in a journal before they are returned, and are read back where it has them.

    Formal guarantee: that of the source. A draw that was returned once is returned again for the same question, never
    drawn anew; a question that the journal does not know at that place is refused, and gets no noise.
    """

    def __init__(self, source: NoiseSource, journal: Journal):
        self._source, self._journal, self._count = source, journal, 0

    @property
    def seeded(self) -> bool:
        return self._source.seeded

    def discrete_gaussian(self, stddev: float, shape: tuple[int, ...]) -> np.ndarray:
        words = {"kind": "discrete_gaussian", "stddev": float(stddev), "shape": [int(size) for size in shape]}
        return self._once(words, lambda: self._source.discrete_gaussian(stddev, shape)).reshape(shape)

    def noisy_argmax(self, scores: np.ndarray, scale: float) -> int:
        words = {"kind": "noisy_argmax", "scale": float(scale), "shape": [len(scores)]}
        return int(self._once(words, lambda: np.asarray([self._source.noisy_argmax(scores, scale)]))[0])

    def key(self) -> "PRNGKeyArray":
        words = self._once({"kind": "key"}, lambda: np.asarray(jax.random.key_data(self._source.key())))
        return jax.random.wrap_key_data(jnp.asarray(words.astype(np.uint32)), impl="threefry2x32")

    def _once(self, words: dict, draw: Callable[[], np.ndarray]) -> np.ndarray:
        words = {"number": self._count, **words}
        self._count += 1
        kept = self._journal.read()
        if kept is None:
            drawn = draw().astype(np.int64)
            self._journal.append(words, drawn)
            return drawn
        # A seeded source must draw along, to be where it was; that its draws are the same is then known too.
        if kept[0] != words or (self.seeded and not np.array_equal(draw().ravel(), kept[1])):
            raise CheckpointError(
                f"The run went another way than the one that was killed (draw {words['number']} differs), so it cannot "
                f"go on. Delete {self._journal.path.parent} and start again."
            )
        return kept[1]


def table_digest(table: pa.Table, key: bytes) -> str:
    """Names, types and values of a table as one keyed hash: without the key nobody can try out tables.

    Computed from the private rows without noise: it is for the checkpoint's folder and for comparing, nothing else.
    """
    digest = hashlib.blake2b(key=key, digest_size=DIGEST)
    digest.update(f"{table.num_rows} rows".encode())
    for name, column in zip(table.column_names, table.columns, strict=True):
        digest.update(json.dumps([name, str(column.type)]).encode())
        digest.update(np.packbits(pc.is_valid(column).to_numpy()).tobytes())
        # Null places may hold anything, and the same rows may come in other chunks.
        values = pa.table({"": column.drop_null()}).combine_chunks()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, values.schema) as stream:
            stream.write_table(values)
        digest.update(sink.getvalue())
    return digest.hexdigest()


def _narrowed(numbers: np.ndarray) -> np.ndarray:
    """The same whole numbers in as few bytes as hold them: noise is small, and marginals are large."""
    low, high = (int(numbers.min()), int(numbers.max())) if numbers.size else (0, 0)
    fitting = (t for t in ("<i1", "<i2", "<i4", "<i8") if np.iinfo(t).min <= low and high <= np.iinfo(t).max)
    return numbers.ravel().astype(next(fitting))


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST).digest()
