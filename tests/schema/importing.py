"""Imports of files that tests write."""

import tempfile
from pathlib import Path

from understudy.errors import SchemaError
from understudy.importers.draft import ImportedSchema
from understudy.importers.importers import import_schema
from understudy.schema import Schema


def import_text(text: str, format: str | None = None, **options) -> ImportedSchema:
    """What is imported from a file with this text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.any"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        return import_schema(path, format, **options)


def import_or_complain(text: str, format: str | None = None) -> None:
    """An import of anything is a schema that can be written and read, or one line of complaint."""
    message = ""
    try:
        found = import_text(text, format)
    except SchemaError as error:
        message = str(error)
    else:
        assert Schema.from_toml(found.to_toml()) == found.schema
    assert "\n" not in message
