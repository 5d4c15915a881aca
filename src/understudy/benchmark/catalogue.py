"""The benchmark tables by name: what `tables.toml` says about each, without reading any of them."""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from understudy.errors import ConfigError, did_you_mean

SourceKind = Literal["folder", "download", "package"]
"""folder: a file that must be put there by hand; download: a file that `fetch_table` can make; package: an installed
Python package."""
Split = Literal["own", "random", "none"]
"""own: the source's own training and test parts; random: 80% and 20% of the rows; none: training rows alone."""


@dataclass(frozen=True)
class FileEntry:
    """One file of the data folder."""

    name: str
    part: str
    """Which rows it has: "train", "test", "valid" or "all"."""
    rows: int
    sha256: str
    """Of the bytes of the published copy. A file with other bytes is checked by its content."""
    content: str
    """Of the columns and values alone, see `sources.content_checksum`."""
    member: str = ""
    """The file in the downloaded archive, or the download itself."""


@dataclass(frozen=True)
class Download:
    """Where the raw files are published, and how they become tables."""

    addresses: tuple[str, ...]
    format: str
    """A name of `raw_formats.READERS`."""
    separator: str = ","
    header: bool = False
    """The first line names the columns."""
    missing: str = ""
    """What stands for a missing value, besides an empty field."""
    comment: str = ""
    """Lines that begin with this are left out."""
    strip_end: str = ""
    """Removed from the end of lines."""
    reverse: bool = False
    """The columns are in the reverse order."""
    prefix: str = ""
    width: int = 0
    """Columns without names get this prefix and a number; there are `width` of them."""
    labels: str = ""
    """The raw file with the labels of another one."""
    last_users_left_out: int = 0


@dataclass(frozen=True)
class TableEntry:
    """What is known about a table before it is loaded."""

    name: str
    title: str
    source: SourceKind
    task: str
    rows: int
    """Of training and test parts together."""
    columns: int
    """As loaded, with the target."""
    licence: str
    citation: str
    homepage: str
    split: Split
    target: str | None = None
    above: float | None = None
    """The target becomes true where it is above this number, else false."""
    left_out: tuple[str, ...] = ()
    how: str = ""
    """How to get a file that cannot be downloaded."""
    files: tuple[FileEntry, ...] = ()
    kinds: Mapping[str, str] | None = None
    """The kinds of the columns of its files; None: all are boolean."""
    download: Download | None = None
    package: str | None = None
    """The Python package that contains it."""
    item: tuple[str, ...] = ()
    """Its name in the package."""


def table_names(source: SourceKind | None = None) -> list[str]:
    """Every name that `load_table` knows; with `source`, only those of that kind."""
    return [entry.name for entry in read_catalogue().values() if source in (None, entry.source)]


def describe_table(name: str) -> TableEntry:
    """The entry of a table."""
    catalogue = read_catalogue()
    if name not in catalogue:
        hint = did_you_mean(name, catalogue) or f" The tables are: {', '.join(catalogue)}."
        raise ConfigError(f"There is no benchmark table {name!r}.{hint}", setting=name)
    return catalogue[name]


@functools.cache
def read_catalogue() -> dict[str, TableEntry]:
    """All entries, in the order of the file."""
    text = files("understudy.benchmark").joinpath("tables.toml").read_text(encoding="utf-8")
    return {name: _read_entry(name, content) for name, content in tomllib.loads(text).items()}


def _read_entry(name: str, content: dict[str, Any]) -> TableEntry:
    known = dict(content)
    known["files"] = tuple(FileEntry(part=part, **facts) for part, facts in known.pop("files", {}).items())
    if "download" in known:
        known["download"] = Download(**known["download"] | {"addresses": tuple(known["download"]["addresses"])})
    for key in ("left_out", "item"):
        known[key] = tuple(known.get(key, ()))
    return TableEntry(name=name, **known)
