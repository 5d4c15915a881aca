"""How a file is to be read, where the file itself does not say."""

import codecs
import dataclasses
import os
from pathlib import Path

from understudy.errors import ConfigError, TableError
from understudy.schema import Schema
from understudy.tables.path import TEXT_SUFFIXES, TablePath, require_file

COMMON_ENCODINGS = ("utf-8", "cp1252", "latin-1", "utf-16")
DECIMALS = (".", ",")

_FOR = {
    "header": ("text", "excel"),
    "encoding": ("text",),
    "separator": ("text",),
    "decimal": ("text",),
    "sheet": ("excel",),
}
_FORM_OF = {**dict.fromkeys(TEXT_SUFFIXES, "text"), ".xlsx": "excel"}
_FORMATS = {"text": "CSV and TSV files", "excel": "Excel workbooks"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How to read a file that does not say so itself. Each option is public; none of them follows from the rows.

    >>> ReadOptions(encoding="cp1252", decimal=",").encoding
    'cp1252'
    """

    header: bool | None = None
    """Whether the first line holds column names. None: with a schema it must hold the declared names; without one it
    is refused if it looks like values. False: the names are those of the schema, else column_1, column_2, ..."""

    encoding: str = "utf-8"
    """The encoding of a text file, by its Python name."""

    separator: str | None = None
    """The character between the fields of a text file. None: by the file's ending and its first line; by the ending
    alone if there is a declared schema and no header, since the first line is then a row."""

    decimal: str | None = None
    """The decimal mark of a text file, "." or ",". If given, thousands separators are read too."""

    sheet: str | None = None
    """The sheet of a workbook. None: its only one."""

    def __post_init__(self) -> None:
        if self.header not in (None, True, False):
            raise ConfigError(f"header must be True, False or None, found {self.header!r}.", setting="header")
        if self.sheet is not None and (not isinstance(self.sheet, str) or not self.sheet):
            raise ConfigError(f"The sheet must be named, found {self.sheet!r}.", setting="sheet")
        if self.decimal is not None and self.decimal not in DECIMALS:
            raise ConfigError(f'The decimal mark must be "." or ",", found {self.decimal!r}.', setting="decimal")
        _check_encoding(self.encoding)
        if self.separator is not None:
            separator = {"tab": "\t", "\\t": "\t"}.get(self.separator, self.separator)
            if not isinstance(separator, str) or len(separator) != 1 or separator.isalnum() or separator in "\r\n\"'":
                raise ConfigError(
                    f"The separator must be one character such as ';' or '|', or 'tab'; found {self.separator!r}.",
                    setting="separator",
                )
            object.__setattr__(self, "separator", separator)
        if self.separator is not None and self.separator == self.decimal:
            raise ConfigError(
                f"--separator and --decimal are both {self.separator!r}, expected two different characters. Change one"
                " of them.",
                setting="separator",
            )

    @property
    def is_utf8(self) -> bool:
        """Whether the encoding is UTF-8, with or without a byte order mark."""
        return codecs.lookup(self.encoding).name in ("utf-8", "utf-8-sig")

    def require_use(self, suffix: str, where: str) -> None:
        """Raises for an option that a file with this ending has no use for: it would be ignored without a word."""
        form = _FORM_OF.get(suffix)
        for field in dataclasses.fields(self):
            if getattr(self, field.name) != field.default and form not in _FOR[field.name]:
                forms = " and ".join(_FORMATS[known] for known in _FOR[field.name])
                raise TableError(f"{where}: {field.name} is an option for {forms} only. Leave --{field.name} out.")

    def of_named(self, source: object) -> "ReadOptions":
        """The same for a source whose first line is known to hold names."""
        if self.header is None and _form_of(source) is not None:
            return dataclasses.replace(self, header=True)
        return self

    def of_declared(self, suffix: str) -> "ReadOptions":
        """The same for a file with this ending and a declared schema.

        If the first line is a row, it must not decide how others are read: the separator is that of the ending, and a
        semicolon beside a decimal comma.
        """
        if self.header is not False or self.separator is not None or suffix not in TEXT_SUFFIXES:
            return self
        usual = TEXT_SUFFIXES[suffix]
        return dataclasses.replace(self, separator=";" if usual == self.decimal else usual)

    def of_synthetic(self, source: object) -> "ReadOptions":
        """How to read a synthetic table that was written for the table these options are for."""
        form = _form_of(source)
        decimal = self.decimal if form == "text" else None
        return ReadOptions(header=None if form is None else True, decimal=decimal)


def resolve_reading(
    source: str | Path, schema: Schema | None, reading: ReadOptions | None
) -> tuple[TablePath, ReadOptions]:
    """Where a table is and how it is read; raises for options without a use, and where there is no file."""
    table_path, reading = TablePath.parse(source), reading or ReadOptions()
    reading.require_use(table_path.suffix, str(table_path))
    is_declared = schema is not None and not schema.drafted
    if is_declared:
        reading = reading.of_declared(table_path.suffix)
    if table_path.suffix != "postgres":
        # A JSON lines file without rows is an empty file, and so is a text file without rows and header.
        is_headless = table_path.suffix == ".jsonl" or reading.header is False
        require_file(table_path.path, may_be_empty=is_headless and is_declared)
    return table_path, reading


def _form_of(source: object) -> str | None:
    """Whether a path is that of a text file or of a workbook; None: neither, so that its columns have names."""
    if not isinstance(source, str | os.PathLike):
        return None
    return _FORM_OF.get(TablePath.parse(os.fspath(source)).suffix)


def _check_encoding(encoding: object) -> None:
    common = ", ".join(COMMON_ENCODINGS)
    try:
        if isinstance(encoding, str) and isinstance("a".encode(encoding), bytes):
            return
    except (LookupError, UnicodeError, ValueError):
        pass
    raise ConfigError(
        f"{encoding!r} is not an encoding that Python knows. Common ones are {common}.", setting="encoding"
    )
