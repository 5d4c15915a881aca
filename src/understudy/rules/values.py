"""Values that a schema holds, categories and bounds, and how TOML and messages write them."""

import json
import re
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import cast

import numpy as np

from understudy.errors import SchemaError

Category = str | int | float | bool
Bound = int | float | datetime | date


def to_python(value: object) -> Category:
    """A Python value for a NumPy one, which would be written differently."""
    return cast(Category, value.item() if isinstance(value, np.generic | np.ndarray) else value)


def is_among(value: Category, categories: Iterable[Category]) -> bool:
    """Membership in which true is not 1."""
    return any(value == category and isinstance(value, bool) == isinstance(category, bool) for category in categories)


def format_value(value: object) -> str:
    """A value of the schema file for a message, cut to 60 characters."""
    text = to_toml(value) if isinstance(value, (str, bool)) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def format_list(values: Sequence[object]) -> str:
    """Values of the schema file for a message: the first five, and how many more there are."""
    first = ", ".join(format_value(value) for value in values[:5])
    return first if len(values) <= 5 else f"{first} and {len(values) - 5} more"


def to_toml(value: object) -> str:
    """One value in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _toml_string(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(to_toml, value))}]"
    if isinstance(value, date):
        return value.isoformat()
    return repr(value)


def to_toml_key(name: str) -> str:
    """A name as a TOML key, quoted if it needs to be."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml_string(name)


def _toml_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON's escapes are a subset of TOML's


def check_text(value: object, what: str) -> None:
    """Raises unless the value is a string that a file can hold."""
    if not isinstance(value, str):
        raise SchemaError(f"{what} must be a string, found {format_value(value)}.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise SchemaError(f"{what} is not valid Unicode: {value!r}. Rename it.") from None
