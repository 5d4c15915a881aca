"""Bundles that were changed by someone who knows how they are made: every checksum is computed again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from understudy.institution.bundle.archive import measure, read_archive, write_archive
from understudy.institution.bundle.manifest import MANIFEST, SIGNATURE, SUMS, make_sums

Contents = dict[str, bytes]


def read(path: Path) -> Contents:
    """The documents of a bundle without tables."""
    with path.open("rb") as file:
        return {name: member.data for name, member in read_archive(file).items() if member.data is not None}


def write(path: Path, contents: Contents) -> None:
    """A zip file in the right form, whatever its contents."""
    with path.open("wb") as file:
        write_archive(file, contents, {name: measure(data) for name, data in contents.items()})


def reseal(contents: Contents, change: Callable[[dict[str, Any]], None] = lambda manifest: None) -> Contents:
    """The same with right checksums everywhere, and a changed manifest."""
    files = {name: measure(data) for name, data in contents.items() if name not in (MANIFEST, SUMS, SIGNATURE)}
    manifest = json.loads(contents[MANIFEST])
    manifest["files"] = {name: {"sha256": each.sha256, "bytes": each.size} for name, each in sorted(files.items())}
    change(manifest)
    sealed = {**contents, MANIFEST: json.dumps(manifest).encode()}
    sums = {name: measure(data).sha256 for name, data in sealed.items() if name not in (SUMS, SIGNATURE)}
    return {**sealed, SUMS: make_sums(sums)}


def forge(path: Path, **documents: Callable[[str], str]) -> None:
    """Changes documents (by their name with `_` for `.` and `-`) and seals the bundle again."""
    contents = read(path)
    for name, edit in documents.items():
        (file,) = (each for each in contents if each.replace(".", "_").replace("-", "_") == name)
        changed = edit(contents[file].decode())
        assert changed != contents[file].decode(), f"the edit of {file} changes nothing"
        contents[file] = changed.encode()
    write(path, reseal(contents))
