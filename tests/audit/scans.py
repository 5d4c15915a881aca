"""Searches the bytes of a release folder for what must not be in it."""

import json
import re
import struct
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
import safetensors.numpy

EPOCH = datetime(1970, 1, 1)
SHORT = 6
"""Whole numbers of fewer digits stand inside other numbers: they are searched for as numbers of their own."""


def values_in(folder: Path, planted: Iterable[object]) -> list[str]:
    """Where a planted value stands in a file: as text, or as a number in the byte order of the model file."""
    planted = list(planted)
    return [
        f"{file.name} holds {value!r}"
        for file in sorted(folder.iterdir())
        for value in planted
        if _holds(file.read_bytes(), value)
    ]


def numbers_in(folder: Path, forbidden: set[int]) -> list[str]:
    """Where one of these whole numbers is a number of the JSON files, of the model or of the certificate's text."""
    found = []
    for name in ("release.json", "certificate.json"):
        if forbidden & set(_numbers(json.loads((folder / name).read_text()))):
            found.append(f"{name} holds one of {sorted(forbidden)}")
    for name, array in safetensors.numpy.load_file(folder / "model.safetensors").items():
        if np.isin(np.asarray(array, dtype=float), sorted(forbidden)).any():
            found.append(f"array {name} of the model holds one of {sorted(forbidden)}")
    if re.search(rf"\b({'|'.join(map(str, forbidden))})\b", (folder / "CERTIFICATE.md").read_text()):
        found.append(f"CERTIFICATE.md holds one of {sorted(forbidden)}")
    return found


def _holds(data: bytes, value: object) -> bool:
    if isinstance(value, int) and len(str(value)) < SHORT:
        return re.search(rf"(?<!\d){value}(?!\d)".encode(), data) is not None
    return any(needle in data for needle in needles(value))


def needles(value: object) -> Iterator[bytes]:
    """A value as text, and as numbers in the byte order of the model file."""
    if isinstance(value, datetime):
        micros = (value - EPOCH) // timedelta(microseconds=1)
        yield from (str(value).encode(), value.isoformat().encode(), *needles(micros))
    elif isinstance(value, date):
        yield value.isoformat().encode()
    elif isinstance(value, str):
        yield value.encode()
    elif isinstance(value, bytes):
        yield from (value, value.hex().encode(), value.hex().upper().encode())
    elif isinstance(value, int):
        yield from (f"{value}".encode(), f"{value:,}".encode(), struct.pack("<q", value), struct.pack("<d", value))
        if 0 <= value < 2**32:
            yield struct.pack("<I", value)
    elif isinstance(value, float):
        yield from (repr(value).encode(), f"{value:.6f}".encode(), struct.pack("<d", value), struct.pack("<f", value))


def _numbers(content: object) -> Iterator[float]:
    """All numbers in a JSON value."""
    if isinstance(content, dict):
        content = list(content.values())
    if isinstance(content, list):
        for item in content:
            yield from _numbers(item)
    elif isinstance(content, int | float) and not isinstance(content, bool):
        yield content
