"""Locations: points of a public region, in a pair of columns or in one text column."""

import dataclasses
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float

from understudy.errors import SchemaError
from understudy.rules.comparison import plain_array
from understudy.rules.keys import check_keys
from understudy.rules.values import format_value, to_toml, to_toml_key
from understudy.schema.column import MAX_DECIMALS, Column, set_fields
from understudy.schema.regions import KEYS, Region, Sites, read_region

FORMATS = ("lat,lon", "wkt", "code")
"""How a text column writes a location."""

DECIMALS = 6
"""Digits after the decimal point of a coordinate, unless declared: about 10 cm."""

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_PATTERNS = {
    "lat,lon": rf"^\s*\(?\s*(?P<latitude>{_NUMBER})\s*[,; ]\s*(?P<longitude>{_NUMBER})\s*\)?\s*$",
    "wkt": rf"^\s*(?i:POINT)\s*\(\s*(?P<longitude>{_NUMBER})\s+(?P<latitude>{_NUMBER})\s*\)\s*$",
}
_COLUMN_KEYS = ("kind", "nullable", "per_unit", "drop", "missing")
LOCATION_KEYS = ("latitude", "longitude", *KEYS)
"""The keys of a schema that only a location has."""

Points: TypeAlias = tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rows"], Bool[np.ndarray, " rows"]]
"""Latitudes, longitudes, and which rows have both."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Location:
    """Points of a public region: two columns of degrees, or, without them, one text column of this name.

    >>> from understudy.schema.regions import Box
    >>> home = Location(name="home", region=Box(52.3, 13.0, 52.7, 13.8), latitude="lat", longitude="lon")
    >>> [column.name for column in home.columns], home.columns[0].bounds
    (['lat', 'lon'], (52.3, 52.7))
    """

    name: str
    """The name of the text column, or of the pair in rules and reports."""

    region: Region
    """Where its points may lie. Declared public."""

    latitude: str | None = None
    """The first column of a pair, in degrees. None: there is the text column `name`."""

    longitude: str | None = None
    """The second one."""

    format: str | None = None
    """How the text column writes a point: "lat,lon", "wkt" (POINT (longitude latitude)), or "code" of a site."""

    decimals: int | None = None
    """Digits after the decimal point of a coordinate. None: 6, or as many as the sites have."""

    nullable: bool = True
    """As in `Column`, like the next three."""

    per_unit: bool = False
    """Whether all rows of a unit have the same point."""

    drop: bool = False
    """Whether it is left out of the synthetic table."""

    missing: tuple[str | int | float, ...] | None = None
    """Words and numbers that stand for a missing point."""

    source: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False, repr=False)
    """The files that the region was read from, by key."""

    def __post_init__(self) -> None:
        if (self.latitude is None) != (self.longitude is None):
            absent = "longitude" if self.longitude is None else "latitude"
            raise self._error("needs both latitude and longitude, or neither for a text column.", absent)
        names = {self.name, self.latitude, self.longitude}
        if self.is_pair and (len(names) != 3 or not all(isinstance(name, str) for name in names)):
            raise self._error(
                "expected three different names: its own, and the columns latitude and longitude.", "latitude"
            )
        has_codes = isinstance(self.region, Sites) and self.region.codes is not None
        if self.is_pair and (self.format is not None or has_codes):
            raise self._error("format and codes are for a text column. Remove them, or the pair.")
        if not self.is_pair and self.format is None:
            object.__setattr__(self, "format", "code" if has_codes else "lat,lon")
        if not self.is_pair and self.format not in FORMATS:
            found = format_value(self.format)
            raise self._error(f"format: expected one of {', '.join(FORMATS)}; found {found}.", "format")
        if (self.format == "code") != has_codes:
            raise self._error('format = "code" and a region with codes need each other.')
        if self.decimals is None:
            object.__setattr__(self, "decimals", self._own_decimals())
        elif isinstance(self.decimals, bool) or not isinstance(self.decimals, int) or not 0 <= self.decimals <= 12:
            raise self._error(f"decimals: expected an integer from 0 to 12, found {format_value(self.decimals)}.")
        assert self.columns  # raises for keys that no column can have

    def _error(self, problem: str, key: str | None = None) -> SchemaError:
        return SchemaError(f"Column {self.name!r}: {problem}", column=self.name, key=key)

    def _own_decimals(self) -> int:
        if not isinstance(self.region, Sites):
            return DECIMALS
        digits = [-int(Decimal(repr(float(value))).as_tuple().exponent) for p in self.region.points for value in p]
        return max(0, min(MAX_DECIMALS, max(digits)))

    @property
    def is_pair(self) -> bool:
        """Whether the table has a column for each coordinate."""
        return self.latitude is not None

    @property
    def columns(self) -> tuple[Column, ...]:
        """Its columns in the table. The bounds of coordinates are those of the region."""
        whole = Column(
            name=self.name,
            kind="location",
            nullable=self.nullable,
            per_unit=self.per_unit,
            drop=self.drop,
            missing=self.missing,
        )
        if not self.is_pair:
            return (whole,)
        extent = self.region.extent
        ends = ((extent.south, extent.north), extent.longitude_bounds)
        wide = [(low, high) if low < high else (low - 1e-6, high + 1e-6) for low, high in ends]  # sites on one parallel
        return tuple(
            dataclasses.replace(whole, name=name, kind="real", decimals=self.decimals, bounds=bounds)
            for name, bounds in zip(self.names, wide, strict=True)
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns in the table."""
        return (self.latitude, self.longitude) if self.latitude and self.longitude else (self.name,)

    def read(self, rows: Mapping[str, pa.Array | pa.ChunkedArray]) -> Points:
        """The points of columns in the types of their kinds. A point out of range, or half of one, is null.

        Longitudes above 180 are read by `wrap_longitudes`. The code of a site is its point.
        """
        if self.is_pair:
            latitude, longitude = (_floats(rows[name]) for name in self.names)
        elif self.format == "code":
            return self._read_codes(rows[self.name])
        else:
            matches = pc.extract_regex(plain_array(rows[self.name]), _PATTERNS[str(self.format)])
            latitude, longitude = (_floats(pc.struct_field(matches, key)) for key in ("latitude", "longitude"))
        longitude = wrap_longitudes(longitude)
        with np.errstate(invalid="ignore"):
            known = (np.abs(latitude) <= 90) & (np.abs(longitude) <= 180)
        return np.where(known, latitude, 0.0), np.where(known, longitude, 0.0), known

    def _read_codes(self, values: pa.Array | pa.ChunkedArray) -> Points:
        assert isinstance(self.region, Sites)
        assert self.region.codes is not None
        trimmed = pc.utf8_trim_whitespace(values)
        index = np.asarray(pc.fill_null(pc.index_in(trimmed, value_set=pa.array(self.region.codes, trimmed.type)), -1))
        points = np.array(self.region.points)[np.maximum(index, 0)]
        return points[:, 0], points[:, 1], index >= 0

    def write(self, points: Points) -> dict[str, pa.Array]:
        """Columns of the table that hold these points, rounded to the decimals."""
        latitude, longitude, known = points
        if self.is_pair:
            return {
                name: pa.array(np.where(known, values, 0.0), mask=~known)
                for name, values in zip(self.names, (latitude, longitude), strict=True)
            }
        # Strings by their type: of no rows, an array of objects would have none, and the join would fail.
        y, x = (pa.array(np.char.mod(f"%.{self.decimals}f", values), pa.string()) for values in (latitude, longitude))
        if isinstance(self.region, Sites) and self.region.codes is not None:
            codes = dict(zip(self.region.points, self.region.codes, strict=True))
            pairs = zip(latitude.tolist(), longitude.tolist(), strict=True)
            strings = pa.array([codes.get(pair, self.region.codes[0]) for pair in pairs], pa.string())
        elif self.format == "lat,lon":
            strings = pc.binary_join_element_wise(y, x, ",")
        else:
            strings = pc.binary_join_element_wise("POINT (", pc.binary_join_element_wise(x, y, " "), ")", "")
        return {self.name: pc.if_else(pa.array(known), strings, pa.scalar(None, pa.string()))}

    def to_dict(self) -> dict[str, object]:
        """Its keys in a schema, with the region inline."""
        implied = {"region", "source", *(["decimals"] if self.decimals == self._own_decimals() else [])}
        keys = {key: value for key, value in set_fields(self).items() if key not in implied}
        return {"name": self.name, "kind": "location", **keys, **self.region.to_dict()}

    def to_toml(self) -> str:
        """Its section of a schema file; files are named, not copied."""
        entry = {key: value for key, value in self.to_dict().items() if key != "name"}
        if self.source:
            entry = {key: value for key, value in entry.items() if key not in KEYS or key == "box"} | dict(self.source)
        lines = [f"{key} = {to_toml(value)}" for key, value in entry.items()]
        return "\n".join([f"[columns.{to_toml_key(self.name)}]", *lines])


def wrap_longitudes(longitudes: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
    """Longitudes above 180, up to 360, as negative ones; all others unchanged."""
    return np.where((longitudes > 180) & (longitudes <= 360), longitudes - 360, longitudes)


def read_location(name: str, entry: Mapping[str, object], folder: Path | None = None) -> Location:
    """A location from the keys of its section. Paths of regions are relative to `folder`."""
    known = (*_COLUMN_KEYS, "format", "decimals", *LOCATION_KEYS)
    check_keys(entry, known, f"[columns.{to_toml_key(name)}]", column=name)
    try:
        region = read_region(entry, folder)
    except SchemaError as error:
        raise SchemaError(f"Column {name!r}, {error}", column=name, key=error.key) from None
    keys = {key: value for key, value in entry.items() if key not in ("kind", *KEYS)}
    files = {key: value for key, value in entry.items() if key in KEYS and isinstance(value, str)}
    is_file = any(key != "code" for key in files)
    if isinstance(keys.get("missing"), list):
        keys["missing"] = tuple(keys["missing"])  # type: ignore[arg-type]  # it is a list
    # `__post_init__` checks the types of what a file has.
    return Location(name=name, region=region, source=files if is_file else {}, **keys)  # type: ignore[arg-type]


def looks_swapped(location: Location, points: Points) -> bool:
    """Whether most points lie outside the region, and would lie inside with latitude and longitude exchanged."""
    latitude, longitude, known = points
    if not known.any() or isinstance(location.region, Sites):
        return False
    latitude, longitude = latitude[known], longitude[known]
    exchanged = np.abs(longitude) <= 90
    inside = location.region.contains(latitude, longitude)
    swapped = exchanged & location.region.contains(np.where(exchanged, longitude, 0.0), latitude)
    return bool(2 * swapped.sum() > len(latitude) and swapped.sum() > 2 * inside.sum())


def _floats(values: pa.Array | pa.ChunkedArray) -> Float[np.ndarray, " rows"]:
    """Numbers, NaN for nulls."""
    array = plain_array(values)
    if pa.types.is_string(array.type):
        array = pc.if_else(pc.match_substring_regex(array, rf"^{_NUMBER}$"), array, pa.scalar(None, pa.string()))
    return np.array(pc.cast(array, pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False))
