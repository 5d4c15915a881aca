"""The types and styles of a table before it became Arrow, kept to write synthetic rows the same way."""

import dataclasses
import re
from collections.abc import Mapping
from typing import cast

import pyarrow as pa

from understudy.schema.draft import is_text


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnOrigin:
    """The type and style of one column in its source."""

    arrow: str
    """Its Arrow type."""

    dtype: str = ""
    """Its type in the frame library, without categories."""

    style: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """How text files write it: `format` of dates and booleans; of reals `decimals`, `padded` if all have as many, and
    the `decimal` sign if it is a comma.

    With a declared schema this is what the schema declares, and nothing of it is inferred from the values.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a table came from: enough to write synthetic rows the same way, and no value of the table."""

    library: str
    """pandas, polars, pyarrow, or file."""

    columns: Mapping[str, ColumnOrigin]

    delimiter: str = ","
    """The delimiter of a text file."""

    def to_dict(self) -> dict[str, object]:
        """The same for JSON."""
        columns = {
            name: {key: value for key, value in dataclasses.asdict(column).items() if value}
            for name, column in self.columns.items()
        }
        delimiter = {} if self.delimiter == "," else {"delimiter": self.delimiter}
        return {"library": self.library, "columns": columns, **delimiter}

    @classmethod
    def from_dict(cls, content: Mapping[str, object]) -> "Origin":
        """Reads what `to_dict` returns."""
        columns = cast(Mapping[str, Mapping[str, object]], content["columns"])
        return cls(
            library=str(content["library"]),
            # As `to_dict` wrote them.
            columns={name: ColumnOrigin(**entry) for name, entry in columns.items()},  # type: ignore[arg-type]
            delimiter=str(content.get("delimiter", ",")),
        )

    @classmethod
    def of(cls, schema: pa.Schema, library: str, *, dtypes: Mapping[str, str] | None = None) -> "Origin":
        """From types and field metadata; `dtypes` are the frame library's own names of the types.

        Columns of nested types are left out: field names inside a struct may be names of people.
        """
        columns = {
            field.name: ColumnOrigin(
                arrow=str(flat_type(field.type)),
                dtype=(dtypes or {}).get(field.name, ""),
                style={k: v for k, v in style_of(field).items() if k in ("format", "decimals", "padded", "decimal")},
            )
            for field in schema
            if flat_type(field.type) is not None
        }
        delimiter = (schema.metadata or {}).get(b"delimiter", b",").decode()
        return cls(library=library, columns=columns, delimiter=delimiter)


def style_of(field: pa.Field) -> dict[str, str]:
    """A field's metadata as text."""
    return {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}


def flat_type(arrow_type: pa.DataType) -> pa.DataType | None:
    """The type as an origin stores it; None for nested types, times and bytes.

    Rare types become the common one that holds the same values: dictionaries have 32-bit codes, however few there are.
    """
    types = pa.types
    if isinstance(arrow_type, pa.BaseExtensionType):
        return flat_type(arrow_type.storage_type)
    if types.is_run_end_encoded(arrow_type):
        return flat_type(arrow_type.value_type)
    if types.is_dictionary(arrow_type):
        values = flat_type(arrow_type.value_type)
        return None if values is None else pa.dictionary(pa.int32(), values, arrow_type.ordered)
    common = common_type(arrow_type)
    number = is_number(common) or types.is_decimal(common)
    return common if number or is_text(common) or types.is_date(common) or types.is_timestamp(common) else None


_COMMON = {
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}


def common_type(arrow_type: pa.DataType) -> pa.DataType:
    """The type itself, or the common one in which it is held here: few kernels of Arrow know the others."""
    if pa.types.is_decimal(arrow_type) and arrow_type.bit_width < 128:
        return pa.decimal128(arrow_type.precision, arrow_type.scale)
    is_bytes = pa.types.is_large_binary(arrow_type) or pa.types.is_fixed_size_binary(arrow_type)
    return pa.binary() if is_bytes else _COMMON.get(arrow_type, arrow_type)


def value_type(arrow_type: pa.DataType) -> pa.DataType:
    """The type of the values, also of those in a dictionary."""
    return arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type


def is_number(arrow_type: pa.DataType) -> bool:
    """Whether an Arrow type is one of integers, floats or booleans."""
    return any(test(arrow_type) for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean))


def parse_arrow_type(text: str) -> pa.DataType | None:
    """The Arrow type with this name; None for types that are not supported."""
    if match := re.fullmatch(r"dictionary<values=(.+), indices=(\w+), ordered=([01])>", text):
        values, indices = parse_arrow_type(match[1]), parse_arrow_type(match[2])
        return pa.dictionary(indices, values, match[3] == "1") if values and indices else None
    if match := re.fullmatch(r"timestamp\[(\w+)(?:, tz=(.+))?\]", text):
        return pa.timestamp(match[1], match[2])
    if match := re.fullmatch(r"decimal(128|256)\((\d+), (-?\d+)\)", text):
        return (pa.decimal128 if match[1] == "128" else pa.decimal256)(int(match[2]), int(match[3]))
    try:
        return pa.type_for_alias({"date32[day]": "date32", "double": "float64", "float": "float32"}.get(text, text))
    except ValueError:
        return None
