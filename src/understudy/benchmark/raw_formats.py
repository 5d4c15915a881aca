"""Raw files as they are published, turned into the Arrow tables of the catalogue."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from understudy.benchmark.catalogue import Download, FileEntry, TableEntry
from understudy.errors import TableError

RawFiles = Mapping[str, bytes]
"""The bytes of each raw file, by its name."""
Cells = Sequence[str | None]

ARROW_TYPES = {
    "categorical": pa.string(),
    "text": pa.string(),
    "integer": pa.int32(),
    "id": pa.int32(),
    "real": pa.float64(),
    "boolean": pa.bool_(),
}


def read_text(entry: TableEntry, file: FileEntry, raw: RawFiles) -> pa.Table:
    """Separated text with one row per line; columns are in the order of the catalogue."""
    layout, kinds = _layout(entry), entry.kinds or {}
    lines = raw[file.member].decode("utf-8-sig").splitlines()
    kept = (line for line in lines if line.strip() and not (layout.comment and line.startswith(layout.comment)))
    rows = [[cell.strip() for cell in row] for row in csv.reader(kept, delimiter=layout.separator)]
    if layout.header:
        _require(rows.pop(0) == list(kinds), file, f"expected the columns {', '.join(kinds)}")
    _require(all(len(row) == len(kinds) for row in rows), file, f"expected {len(kinds)} values per line")
    rows = [[*row[:-1], row[-1].removesuffix(layout.strip_end)] for row in rows]
    missing = ("", layout.missing)
    cells = [[None if cell in missing else cell for cell in column] for column in zip(*rows, strict=True)]
    return _typed(dict(zip(kinds, cells, strict=True)), entry, file)


def read_bits(entry: TableEntry, file: FileEntry, raw: RawFiles) -> pa.Table:
    """Lines of 0 and 1 with commas between them."""
    layout = _layout(entry)
    names = list(entry.kinds or [f"{layout.prefix}{number:03}" for number in range(layout.width)])
    lines = raw[file.member].split()
    digits = b"".join(lines).replace(b",", b"")
    _require(
        not digits.strip(b"01") and len(digits) == len(lines) * len(names), file, f"expected {len(names)} bits per line"
    )
    bits = np.frombuffer(digits, np.uint8).reshape(len(lines), len(names)) == ord("1")
    if layout.reverse:
        bits = bits[:, ::-1]
    return _labelled({name: pa.array(bits[:, at]) for at, name in enumerate(names)}, entry, file)


def read_parquet(entry: TableEntry, file: FileEntry, raw: RawFiles) -> pa.Table:
    """A Parquet file with the same columns in other types."""
    kinds = entry.kinds or {}
    table = pq.read_table(io.BytesIO(raw[file.member]))
    _require(table.column_names == list(kinds), file, f"expected the columns {', '.join(kinds)}")
    return _labelled({name: table.column(name).cast(ARROW_TYPES[kind]) for name, kind in kinds.items()}, entry, file)


def read_visits(entry: TableEntry, file: FileEntry, raw: RawFiles) -> pa.Table:
    """Lines that begin with A (an area and its title), C (the next user) or V (an area that this user visited).

    Areas that nobody visited are left out, and so are the last users, as many as the catalogue says.
    """
    titles: dict[int, str] = {}
    visits: list[set[int]] = []
    for fields in csv.reader(raw[file.member].decode("latin-1").splitlines()):
        if fields and fields[0] == "A":
            titles[int(fields[1])] = fields[3].strip()
        elif fields and fields[0] == "C":
            visits.append(set())
        elif fields and fields[0] == "V":
            _require(bool(visits), file, "expected a line with C before the first one with V")
            visits[-1].add(int(fields[1]))
    visits = visits[: len(visits) - _layout(entry).last_users_left_out]
    areas = sorted(set().union(*visits))
    _require(bool(areas) and set(areas) <= set(titles), file, "expected a title for every area that was visited")
    rows, columns = np.array([(row, area) for row, seen in enumerate(visits) for area in seen]).T
    is_visited = np.zeros((len(visits), len(areas)), dtype=bool)
    is_visited[rows, np.searchsorted(areas, columns)] = True
    names = _different([titles[area] for area in areas])
    return _labelled({name: pa.array(is_visited[:, at]) for at, name in enumerate(names)}, entry, file)


def read_titanic(entry: TableEntry, file: FileEntry, raw: RawFiles) -> pa.Table:
    """The passengers of one part. The test part is published without labels: they come from the list of all."""
    rows = _read_dicts(raw[file.member])
    if "Survived" not in rows[0]:
        listed: dict[tuple[object, ...], set[str]] = {}
        for row in _read_dicts(raw[_layout(entry).labels]):
            listed.setdefault(_passenger(row), set()).add(row["survived"])
        for row in rows:
            labels = listed.get(_passenger({name.lower(): cell for name, cell in row.items()}), set())
            _require(len(labels) == 1, file, "expected every passenger once in the list with labels")
            row["Survived"] = labels.copy().pop()
    _require(set(entry.kinds or {}) <= set(rows[0]), file, f"expected the columns {', '.join(entry.kinds or {})}")
    return _typed({name: [row[name] or None for row in rows] for name in entry.kinds or {}}, entry, file)


READERS: dict[str, Callable[[TableEntry, FileEntry, RawFiles], pa.Table]] = {
    "text": read_text,
    "bits": read_bits,
    "parquet": read_parquet,
    "visits": read_visits,
    "titanic": read_titanic,
}


# ---------------------------------------------------------------------------------------------------------------- parts


def _layout(entry: TableEntry) -> Download:
    assert entry.download is not None
    return entry.download


def _require(holds: bool, file: FileEntry, expected: str) -> None:
    if not holds:
        raise TableError(f"{file.member} has an unexpected layout: {expected}. The publisher may have changed it.")


def _typed(columns: Mapping[str, Cells], entry: TableEntry, file: FileEntry) -> pa.Table:
    """Text as the kinds of the catalogue."""
    kinds = entry.kinds or {}
    try:
        made = {name: pa.array(cells, pa.string()).cast(ARROW_TYPES[kinds[name]]) for name, cells in columns.items()}
    except pa.ArrowInvalid:
        raise TableError(f"{file.member} has an unexpected layout: a value is not of the expected kind.") from None
    return _labelled(made, entry, file)


def _labelled(columns: Mapping[str, pa.Array | pa.ChunkedArray], entry: TableEntry, file: FileEntry) -> pa.Table:
    """A table whose fields name their kinds, as the published Parquet files do."""
    kinds = entry.kinds or dict.fromkeys(columns, "boolean")
    fields = [pa.field(name, column.type, metadata={"kind": kinds[name]}) for name, column in columns.items()]
    schema = pa.schema(fields, metadata={"dataset": file.name.removesuffix(".parquet")})
    return pa.table(list(columns.values()), schema=schema)


def _different(names: Sequence[str]) -> list[str]:
    """The names, with a number after each one that occurred before."""
    counts: dict[str, int] = {}
    different = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        different.append(name if counts[name] == 1 else f"{name} {counts[name]}")
    return different


def _read_dicts(raw: bytes) -> list[dict[str, str]]:
    lines = csv.DictReader(io.StringIO(raw.decode("utf-8-sig"), newline=""))
    return [{str(name): (cell or "").strip() for name, cell in row.items()} for row in lines]


def _passenger(row: Mapping[str, str]) -> tuple[object, ...]:
    """What identifies a passenger in both lists."""
    age = round(float(row["age"]), 1) if row["age"] else None
    return (*(row[key].replace('"', "").lower() for key in ("name", "ticket", "pclass", "sex", "sibsp", "parch")), age)
