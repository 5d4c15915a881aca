"""Where a table came from: enough to give the same back, and no value of it."""

import dataclasses
import re
from collections.abc import Mapping
from typing import cast

import pyarrow as pa


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnOrigin:
    """How one column was typed and spelled where it came from."""

    arrow: str
    """Its Arrow type."""

    dtype: str = ""
    """Its type in the words of the frame library, without categories."""

    style: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """How text files write it: `format` of dates and booleans, `decimals` of reals and `padded` where all have as many.

    With a declared schema this is what the schema says, and nothing of it is read off the values.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """What a table was before it became Arrow: enough to give the same back, and no value of it.

    >>> Origin.of(pa.schema([("age", pa.int16())]), "pyarrow").to_dict()
    {'library': 'pyarrow', 'columns': {'age': {'arrow': 'int16'}}}
    """

    library: str
    """pandas, polars, pyarrow, or file."""

    columns: Mapping[str, ColumnOrigin]

    delimiter: str = ","
    """What stood between the fields of a text file."""

    def to_dict(self) -> dict[str, object]:
        """The same, ready for JSON."""
        columns = {
            name: {key: value for key, value in dataclasses.asdict(column).items() if value}
            for name, column in self.columns.items()
        }
        mark = {} if self.delimiter == "," else {"delimiter": self.delimiter}
        return {"library": self.library, "columns": columns, **mark}

    @classmethod
    def from_dict(cls, content: Mapping[str, object]) -> "Origin":
        """The reverse of `to_dict`."""
        columns = cast(Mapping[str, Mapping[str, object]], content["columns"])
        return cls(
            library=str(content["library"]),
            columns={name: ColumnOrigin(**entry) for name, entry in columns.items()},  # type: ignore[arg-type]
            delimiter=str(content.get("delimiter", ",")),
        )

    @classmethod
    def of(cls, schema: pa.Schema, library: str, *, dtypes: Mapping[str, str] | None = None) -> "Origin":
        """Reads off types and field metadata; `dtypes` are the frame library's own names of the types.

        Columns of types that are not flat are left out: the names inside a struct may be those of people.
        """
        columns = {
            field.name: ColumnOrigin(
                arrow=str(flat_type(field.type)),
                dtype=(dtypes or {}).get(field.name, ""),
                style={k: v for k, v in style_of(field).items() if k in ("format", "decimals", "padded")},
            )
            for field in schema
            if flat_type(field.type) is not None
        }
        delimiter = (schema.metadata or {}).get(b"delimiter", b",").decode()
        return cls(library=library, columns=columns, delimiter=delimiter)


def style_of(field: pa.Field) -> dict[str, str]:
    """A field's metadata as text."""
    return {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}


def flat_type(held: pa.DataType) -> pa.DataType | None:
    """The type as an origin may hold it, or None: flat, and with codes as wide for few categories as for many."""
    types = pa.types
    if isinstance(held, pa.BaseExtensionType):
        return flat_type(held.storage_type)
    if types.is_run_end_encoded(held):
        return flat_type(held.value_type)
    if types.is_dictionary(held):
        values = flat_type(held.value_type)
        return None if values is None else pa.dictionary(pa.int32(), values, held.ordered)
    number = types.is_integer(held) or types.is_floating(held) or types.is_decimal(held) or types.is_boolean(held)
    text = types.is_string(held) or types.is_large_string(held) or types.is_string_view(held)
    return held if number or text or types.is_date(held) or types.is_timestamp(held) else None


def arrow_type(text: str) -> pa.DataType | None:
    """The Arrow type that prints so; None for those that have no place in a table of people."""
    if match := re.fullmatch(r"dictionary<values=(.+), indices=(\w+), ordered=([01])>", text):
        values, indices = arrow_type(match[1]), arrow_type(match[2])
        return pa.dictionary(indices, values, match[3] == "1") if values and indices else None
    if match := re.fullmatch(r"timestamp\[(\w+)(?:, tz=(.+))?\]", text):
        return pa.timestamp(match[1], match[2])
    if match := re.fullmatch(r"decimal(32|64|128|256)\((\d+), (-?\d+)\)", text):
        return getattr(pa, f"decimal{match[1]}")(int(match[2]), int(match[3]))
    if match := re.fullmatch(r"(time32|time64|duration)\[(\w+)\]", text):
        return getattr(pa, match[1])(match[2])
    plain = {
        "date32[day]": "date32",
        "date64[ms]": "date64",
        "double": "float64",
        "float": "float32",
        "halffloat": "float16",
    }
    try:
        return pa.type_for_alias(plain.get(text, text))
    except ValueError:
        return None
