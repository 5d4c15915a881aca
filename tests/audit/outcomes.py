"""All that a run leaves behind, and what of it may differ between neighbours: noisy answers, and nothing else.

`everything_in` reads every byte of every file in a folder into values at addresses, such as
`fake.release/release.json:codec.columns[age].masses[]`; `Recorder` adds exit codes, what was printed, warnings and
errors. `fields.py` lists every address that there is, and says which of them are functions of noisy answers.
`differences` compares two runs by this list: an address that it does not know is a difference too.
"""

import contextlib
import dataclasses
import functools
import html
import io
import json
import logging
import os
import re
import secrets
import shutil
import sqlite3
import tempfile
import types
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import safetensors.numpy

from tests.audit.fields import NOISE, NUM_ROWS, PUBLIC, STREAMS, WORDS
from understudy.cli import run
from understudy.encoding import fit as encoding
from understudy.privacy.noise.source import NoiseSource
from understudy.run.atomic import json_bytes

Found = dict[str, list[object]]
"""The values at each address, in the order of the file."""
Leaves = Iterator[tuple[str, object]]

# -------------------------------------------------------------------------------------------------- files as values


def everything_in(folder: Path, *, but: frozenset[str] = frozenset()) -> Found:
    """Every file below a folder, by its path, but for those that were there before; empty folders too."""
    found: Found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name in but:
            continue
        if path.is_dir():
            leaves: Leaves = iter([] if any(path.iterdir()) else [("", "an empty folder")])
        else:
            leaves = leaves_of(name, path.read_bytes())
        for address, value in leaves:
            found.setdefault(f"{name}:{address}", []).append(value)
    return found


def leaves_of(name: str, data: bytes) -> Leaves:
    """The values of a file of this name; a kind that is not known is an error, so that none goes unread."""
    for ending, reader in READERS.items():
        if name.endswith(ending):
            yield from reader(data)
            return
    raise AssertionError(f"{name}: no reader for this kind of file")


def _leaves_of_json(data: bytes) -> Leaves:
    content = json.loads(data)
    assert json_bytes(content).rstrip() == data.rstrip(b"\n"), (
        "a file of JSON is laid out in one way: nothing shows in its spaces"
    )
    yield from leaves_in(content)


def leaves_in(content: object, at: str = "") -> Leaves:
    """Every value in a nested structure, and the length of every list. Items with a name stand under it."""
    if isinstance(content, Mapping):
        if not content:
            yield f"{at}{{}}", "empty"
        for key, value in content.items():
            yield from leaves_in(value, f"{at}.{key}" if at else str(key))
    elif isinstance(content, list | tuple):
        yield f"{at}[#]", len(content)
        for item in content:
            label = item["name"] if isinstance(item, Mapping) and isinstance(item.get("name"), str) else ""
            yield from leaves_in(item, f"{at}[{label}]")
    elif isinstance(content, np.ndarray):
        yield f"{at}.shape", content.shape
        yield f"{at}.type", str(content.dtype)
        yield f"{at}.data", content.tobytes()
    else:
        yield at, content


def _leaves_of_tensors(data: bytes) -> Leaves:
    tensors = safetensors.numpy.load(data)
    metadata = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]).get("__metadata__", {})
    assert safetensors.numpy.save(tensors, metadata=metadata or None) == data, "nothing but the arrays"
    yield from leaves_in(metadata, "metadata")
    for name, array in sorted(tensors.items()):
        yield from leaves_in(array, f"[{name}]")


def _leaves_of_text(data: bytes) -> Leaves:
    for line in data.decode().split("\n"):
        yield "line", line


def _leaves_of_csv(data: bytes) -> Leaves:
    head, *rows = data.decode().split("\n")
    yield "head", head
    yield "rows[#]", len(rows)
    for row in rows:
        yield "rows[]", row


def _leaves_of_parquet(data: bytes) -> Leaves:
    file = pq.ParquetFile(io.BytesIO(data))
    metadata = {key.decode(): value for key, value in (file.schema_arrow.metadata or {}).items()}
    yield "types", str(file.schema_arrow.remove_metadata())
    yield "written_by", (file.metadata.created_by, file.metadata.format_version, file.metadata.num_row_groups)
    for name, value in metadata.items():
        is_json = value[:1] == b"{"
        yield from leaves_in(json.loads(value), f"label.{name}") if is_json else [(f"metadata.{name}", value)]
    yield "rows[#]", file.metadata.num_rows
    for row in file.read().to_pylist():
        yield "rows[]", str(row)


def _leaves_of_zip(data: bytes) -> Leaves:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        yield "comment", archive.comment
        for each in archive.infolist():
            yield "members", (each.filename, each.date_time, each.compress_type, each.external_attr, each.extra)
            for address, value in leaves_of(each.filename, archive.read(each)):
                yield f"{each.filename}:{address}", value


def _leaves_of_book(data: bytes) -> Leaves:
    with contextlib.closing(sqlite3.connect(":memory:")) as book:
        book.deserialize(data)
        yield "pages", len(data)
        for row in book.execute("SELECT type, name, sql FROM sqlite_master"):
            yield "tables", row
        for number, content, previous, digest in book.execute("SELECT * FROM entries ORDER BY number"):
            yield "entries[].number", number
            yield "entries[].hashes", (previous, digest)
            yield from leaves_in(json.loads(content), "entries[].content")


READERS: dict[str, Callable[[bytes], Leaves]] = {
    ".json": _leaves_of_json,
    ".safetensors": _leaves_of_tensors,
    **dict.fromkeys((".md", ".html", ".toml", "SHA256SUMS", ".log", ".txt"), _leaves_of_text),
    ".csv": _leaves_of_csv,
    ".parquet": _leaves_of_parquet,
    ".zip": _leaves_of_zip,
    ".book": _leaves_of_book,
}

# ------------------------------------------------------------------------------------------------ what a run leaves


@contextlib.contextmanager
def one_secret(number: int = 0) -> Iterator[None]:
    """The same secret for every run, as if its checkpoint were copied; the same date; and no clock on the terminal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "token_bytes", lambda size=32: bytes([number]) * size)
        for module in ("certificate.facts", "graphs.release", "synthesizers.boosted.external", "release.release"):
            patch.setattr(f"understudy.{module}.datetime", _FixedDate)
        patch.setattr("understudy.institution.book.storage.time_now", lambda: "2020-01-01T00:00:00Z")
        patch.setattr("understudy.institution.book.book.time_now", lambda: "2020-01-01T00:00:00Z")
        patch.setattr("understudy.progress.time", types.SimpleNamespace(monotonic=lambda: 0.0, time=lambda: 0.0))
        yield


class _FixedDate:
    """Stands for the module `datetime` where a run asks for the day: midnight must fail no test."""

    class date:
        @staticmethod
        def today() -> Any:
            import datetime

            return datetime.date(2020, 1, 1)


@dataclasses.dataclass
class Recorder:
    """Runs commands and code in a folder, and keeps all that comes of them."""

    folder: Path
    found: Found = dataclasses.field(default_factory=dict)

    def note(self, name: str, value: object) -> None:
        self.found.setdefault(name, []).append(value)

    def command(self, *arguments: str) -> int:
        """Runs the command line; its name stands for the first word of it."""
        return self.call(arguments[0], lambda: run([str(each) for each in arguments]))

    def call(self, name: str, function: Callable[[], Any]) -> Any:
        """Calls a function and keeps what it prints, logs, warns of and raises; its result is returned."""
        out, err, log = io.StringIO(), io.StringIO(), logging.StreamHandler(io.StringIO())
        logging.getLogger().addHandler(log)
        result = None
        try:
            with warnings.catch_warnings(record=True) as warned, redirect_stdout(out), redirect_stderr(err):
                warnings.simplefilter("always")
                try:
                    result = function()
                except Exception as error:
                    self.note(f"{name}:error", f"{type(error).__name__}: {error} | {error.__cause__!r}")
        finally:
            logging.getLogger().removeHandler(log)
        self.note(f"{name}:exit code", result if isinstance(result, int) else None)
        for stream, text in (("output", out), ("errors", err), ("log", log.stream)):
            for line in text.getvalue().split("\n"):
                self.note(f"{name}:{stream}", line.replace(str(self.folder), "."))
        for warning in warned:
            self.note(f"{name}:warning", f"{warning.category.__name__}: {warning.message}")
        return result


@contextlib.contextmanager
def recorded(folder: Path) -> Iterator[Recorder]:
    """Records what happens in a folder, its files at the end and those of the system's temporary folder included; then
    removes all that was not there before."""
    before = frozenset(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    temporary = folder / "temporary"
    temporary.mkdir()
    recorder = Recorder(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(temporary))
        patch.setattr(tempfile, "tempdir", None)
        yield recorder
    recorder.found |= everything_in(folder, but=before)
    for path in folder.iterdir():
        if path.name not in before:
            shutil.rmtree(path) if path.is_dir() else os.unlink(path)


def outcome(folder: Path, source: str, *more: str) -> Found:
    """All that one run of `synth` leaves behind."""
    options = ["--schema", "schema.toml", "--epsilon", "1", "--delta", "1e-6", "--method", "independent", "-n", "20"]
    with one_secret(), recorded(folder) as recorder:
        recorder.command("synth", source, "-o", "fake.parquet", "--force", *options, *more)
    return recorder.found


def errors_of(found: Found) -> list[object]:
    """What the command said, for the message of a failed test."""
    return [*found.get("synth:errors", ()), *found.get("synth:error", ())]


# ------------------------------------------------------------------------------------------------------ noisy answers


class Answers:
    """Notes the noisy answers of one run, and gives them again in another on other rows.

    A run computes nothing from private rows but what it gets noise on. So the same noisy answers must give the same
    bytes, whatever the rows. Counts: where noise and exact values meet, the sum of the first run takes the place of
    that of the second. Selections: the same candidate is chosen.
    """

    def __init__(self) -> None:
        self.given: list[np.ndarray] = []
        self._at: int | None = None

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Notes the answers of the runs inside."""
        with self._patched():
            yield

    @contextlib.contextmanager
    def repeated(self) -> Iterator[None]:
        """Gives the same answers to the runs inside, and demands that they ask for as many."""
        self._at = 0
        with self._patched():
            yield
        assert self._at == len(self.given), "as many answers as before"

    def answer(self, exact_and_noise: np.ndarray) -> np.ndarray:
        """This answer in the first run, and that of the first run in the second."""
        if self._at is None:
            self.given.append(np.array(exact_and_noise))
            return self.given[-1].copy()
        before, self._at = self.given[self._at], self._at + 1
        if before.shape == exact_and_noise.shape:
            return before.copy()
        assert before.ndim == 1, "counts of values that occur: an additional one is last, and stays below the threshold"
        return np.r_[before, np.zeros(len(exact_and_noise) - len(before), before.dtype)]

    @contextlib.contextmanager
    def _patched(self) -> Iterator[None]:
        choose = NoiseSource.noisy_argmax
        with pytest.MonkeyPatch.context() as patch:
            for kind in ("discrete_gaussian", "discrete_laplace"):
                draw = getattr(NoiseSource, kind)
                patch.setattr(NoiseSource, kind, lambda *its, draw=draw: Noise.of(draw(*its), self))
            patch.setattr(NoiseSource, "noisy_argmax", lambda *its: int(self.answer(np.array([choose(*its)]))[0]))
            size = encoding.noisy_size  # its noise becomes a plain number before it is added
            patch.setattr(encoding, "noisy_size", lambda *its: int(self.answer(np.array([size(*its)]))[0]))
            yield


class Noise(np.ndarray):
    """Noise that asks what the answer is to be once it is added to exact values."""

    answers: Answers

    @classmethod
    def of(cls, values: np.ndarray, answers: Answers) -> "Noise":
        noise = np.asarray(values).view(cls)
        noise.answers = answers
        return noise

    def __array_finalize__(self, given: object) -> None:
        if isinstance(given, Noise) and hasattr(given, "answers"):
            self.answers = given.answers

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **more: Any) -> Any:
        more.pop("out", None)
        plain = [np.asarray(each) if isinstance(each, Noise) else each for each in inputs]
        result = getattr(ufunc, method)(*plain, **more)
        others = [each for each in inputs if isinstance(each, np.ndarray) and not isinstance(each, Noise)]
        if ufunc is np.add and method == "__call__" and any(each.any() for each in others):
            return self.answers.answer(result)
        return Noise.of(result, self.answers) if isinstance(result, np.ndarray) else result


# ------------------------------------------------------------------------------------------------------ the comparison


def differences(first: Found, second: Found, open_columns: Sequence[str] = (), *, ignored: bool = False) -> list[str]:
    """Addresses whose values differ, but for noise; and those that the list does not know.

    `open_columns`: those of which the schema leaves something to be estimated, and "rows" if their number is not
    declared. `ignored`: the additional row is one that does not count, so noise must be the same as well.
    """
    wrong = [f"{at} is not in the list of fields" for at in {*first, *second} if not is_listed(at)]
    noise = [] if ignored else _patterns_of_noise(tuple(open_columns))
    texts = [None if ignored else noisy_texts(found) for found in (first, second)]
    for at in sorted({*first, *second}):
        both = [
            _without_noise(at, found.get(at), noise, said) for found, said in zip((first, second), texts, strict=True)
        ]
        if both[0] != both[1]:
            wrong.append(f"{at}: {_first_difference(*both)}")
    return wrong


def _first_difference(first: object, second: object) -> str:
    if isinstance(first, list) and isinstance(second, list):
        for one, other in zip(first, second, strict=False):
            if one != other:
                return f"{one!r} / {other!r}"
        return f"{len(first)} values / {len(second)}"
    return f"{first!r} / {second!r}"


def _without_noise(
    at: str, values: list[object] | None, noise: Sequence[re.Pattern], said: Mapping[str, str] | None
) -> object:
    """The values at an address; of noise, only that they are there: their number may follow from noise."""
    if any(pattern.fullmatch(at) for pattern in noise):
        return "noise"
    if values is None:
        return None
    return values if said is None else [_hidden(value, said) if isinstance(value, str) else value for value in values]


def _hidden(text: str, said: Mapping[str, str]) -> str:
    """A text without what a noisy field says elsewhere in the same run, such as the digest of the model."""
    for noisy, word in said.items():
        text = text.replace(noisy, word)
    for pattern, (word, _) in WORDS.items():
        text = re.sub(pattern, word, text)
    return text


def noisy_texts(found: Found) -> dict[str, str]:
    """Lines about what was estimated, which certificates and pages repeat word for word."""
    lines = {str(line) for at, values in found.items() if at.endswith("estimated[]") for line in values}
    both = {form for line in lines for form in (line, html.escape(line), html.escape(line, quote=False))}
    return dict.fromkeys(sorted(both, key=len, reverse=True), "ESTIMATED")


@functools.cache
def _patterns_of_noise(open_columns: tuple[str, ...]) -> list[re.Pattern]:
    names = "|".join(map(re.escape, open_columns)) or "(?!)"
    known = [each for each, why in NOISE.items() if why != NUM_ROWS or "rows" in open_columns]
    return [re.compile(_as_regex(each).replace("OPEN", f"(?:{names})")) for each in known]


def _as_regex(pattern: str) -> str:
    """`*` stands for any part of an address; brackets are brackets."""
    return re.escape(pattern).replace(r"\*", ".*")


def join(file: str, field: str) -> str:
    """An address; what stands in a document that another document holds comes after a dot."""
    return f"{file}.{field}" if ":" in file and not file.startswith("*") else f"{file}:{field}"


@functools.cache
def _listed() -> dict[str, re.Pattern]:
    """Every pattern of the list."""
    public = [join(file, field) for file, fields in PUBLIC.items() for field in fields.split() or [""]]
    streams = {each: re.compile(f"[a-z_ ]+:{each}") for each in STREAMS}
    return {each: re.compile(_as_regex(each).replace("OPEN", "[^]]*")) for each in [*public, *NOISE]} | streams


def is_listed(address: str) -> bool:
    """Whether the list of fields knows this address."""
    return bool(listed_as(address))


def listed_as(address: str) -> list[str]:
    """The entries of the list that this address falls under."""
    return [name for name, pattern in _listed().items() if pattern.fullmatch(address)]
