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

from understudy.errors import SchemaError, did_you_mean
from understudy.schema.column import MAX_DECIMALS, Column
from understudy.schema.regions import KEYS, Region, Sites, read_region
from understudy.schema.values import format_value, to_toml, to_toml_key

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

    region: Region
    """Where its points may lie. Declared public."""

    latitude: str | None = None
    longitude: str | None = None
    """The columns of a pair, in degrees. None: the text column `name`."""

    format: str | None = None
    """How the text column writes a point: "lat,lon", "wkt" (POINT (longitude latitude)), or "code" of a site."""

    decimals: int | None = None
    """Digits after the decimal point of a coordinate. None: 6, or as many as the sites have."""

    nullable: bool = True

    per_unit: bool = False

    drop: bool = False

    missing: tuple[str | int | float, ...] | None = None

    source: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False, repr=False)
    """The files that the region was read from, by key."""

    def __post_init__(self) -> None:
        if (self.latitude is None) != (self.longitude is None):
            raise SchemaError(self._message("needs both latitude and longitude, or neither for a text column."))
        names = {self.name, self.latitude, self.longitude}
        if self.is_pair and (len(names) != 3 or not all(isinstance(name, str) for name in names)):
            raise SchemaError(
                self._message("expected three different names: its own, and the columns latitude and longitude.")
            )
        has_codes = isinstance(self.region, Sites) and self.region.codes is not None
        if self.is_pair and (self.format is not None or has_codes):
            raise SchemaError(self._message("format and codes are for a text column. Remove them, or the pair."))
        if not self.is_pair and self.format is None:
            object.__setattr__(self, "format", "code" if has_codes else "lat,lon")
        if not self.is_pair and self.format not in FORMATS:
            raise SchemaError(
                self._message(f"format: expected one of {', '.join(FORMATS)}; found {format_value(self.format)}.")
            )
        if (self.format == "code") != has_codes:
            raise SchemaError(self._message('format = "code" and a region with codes need each other.'))
        if self.decimals is None:
            object.__setattr__(self, "decimals", self._own_decimals())
        elif isinstance(self.decimals, bool) or not isinstance(self.decimals, int) or not 0 <= self.decimals <= 12:
            raise SchemaError(
                self._message(f"decimals: expected an integer from 0 to 12, found {format_value(self.decimals)}.")
            )
        assert self.columns  # raises for keys that no column can have

    def _message(self, problem: str) -> str:
        return f"Column {self.name!r}: {problem}"

    def _own_decimals(self) -> int:
        if not isinstance(self.region, Sites):
            return DECIMALS
        digits = [-int(Decimal(repr(float(value))).as_tuple().exponent) for p in self.region.points for value in p]
        return max(0, min(MAX_DECIMALS, max(digits)))

    @property
    def is_pair(self) -> bool:
        return self.latitude is not None

    @property
    def columns(self) -> tuple[Column, ...]:
        """Its columns in the table. The bounds of coordinates are those of the region."""
        common = {"nullable": self.nullable, "per_unit": self.per_unit, "drop": self.drop, "missing": self.missing}
        if not self.is_pair:
            return (Column(name=self.name, kind="location", **common),)  # type: ignore[arg-type]
        extent = self.region.extent
        bounds = ((extent.south, extent.north), extent.longitude_bounds)
        return tuple(
            Column(name=name, kind="real", decimals=self.decimals, bounds=_wide(*ends), **common)  # type: ignore[arg-type]
            for name, ends in zip((self.latitude, self.longitude), bounds, strict=True)
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
            texts = rows[self.name]
            texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
            found = pc.extract_regex(texts, _PATTERNS[str(self.format)])
            latitude, longitude = (_floats(pc.struct_field(found, key)) for key in ("latitude", "longitude"))
        longitude = wrap_longitudes(longitude)
        with np.errstate(invalid="ignore"):
            known = (np.abs(latitude) <= 90) & (np.abs(longitude) <= 180)
        return np.where(known, latitude, 0.0), np.where(known, longitude, 0.0), known

    def _read_codes(self, values: pa.Array | pa.ChunkedArray) -> Points:
        assert isinstance(self.region, Sites)
        assert self.region.codes is not None
        trimmed = pc.utf8_trim_whitespace(values)
        at = pc.fill_null(pc.index_in(trimmed, value_set=pa.array(self.region.codes, trimmed.type)), -1)
        index = at.to_numpy() if isinstance(at, pa.ChunkedArray) else at.to_numpy(zero_copy_only=False)
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
        if self.format == "code":
            texts = np.array(self._codes_of(latitude, longitude), dtype=object)
        else:
            # Texts by their type: of no rows, an array of objects would have none, and the join would fail.
            y, x = (
                pa.array(np.char.mod(f"%.{self.decimals}f", values), pa.string()) for values in (latitude, longitude)
            )
            if self.format == "lat,lon":
                joined = pc.binary_join_element_wise(y, x, ",")
            else:
                joined = pc.binary_join_element_wise("POINT (", pc.binary_join_element_wise(x, y, " "), ")", "")
            return {self.name: pc.if_else(pa.array(known), joined, pa.scalar(None, pa.string()))}
        return {self.name: pa.array(texts, pa.string(), mask=~known)}

    def _codes_of(self, latitude: np.ndarray, longitude: np.ndarray) -> list[str]:
        assert isinstance(self.region, Sites)
        of_point = dict(zip(self.region.points, self.region.codes or (), strict=True))
        first = (self.region.codes or ("",))[0]
        return [of_point.get(point, first) for point in zip(latitude.tolist(), longitude.tolist(), strict=True)]

    def to_dict(self) -> dict[str, object]:
        """Its keys in a schema, with the region inline."""
        keys = {"latitude": self.latitude, "longitude": self.longitude, "format": self.format}
        own: dict[str, object] = {key: value for key, value in keys.items() if value is not None}
        if self.decimals != self._own_decimals():
            own["decimals"] = self.decimals
        flags = {"nullable": True, "per_unit": False, "drop": False, "missing": None}
        own |= {key: getattr(self, key) for key, value in flags.items() if getattr(self, key) != value}
        if "missing" in own:
            own["missing"] = list(self.missing or ())
        return {"name": self.name, "kind": "location", **own, **self.region.to_dict()}

    def to_toml(self) -> str:
        """Its section of a schema file; files are named, not copied."""
        entry = {key: value for key, value in self.to_dict().items() if key != "name"}
        if self.source:
            entry = {key: value for key, value in entry.items() if key not in KEYS or key == "box"} | dict(self.source)
        lines = [f"{key} = {to_toml(value)}" for key, value in entry.items()]
        return "\n".join([f"[columns.{to_toml_key(self.name)}]", *lines])


def wrap_longitudes(longitudes: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
    """Longitudes above 180, up to 360, as negative ones; all others unchanged.

    >>> wrap_longitudes(np.array([178.5, 180.0, 181.5, 360.0, 400.0, -180.0])).tolist()
    [178.5, 180.0, -178.5, 0.0, 400.0, -180.0]
    """
    return np.where((longitudes > 180) & (longitudes <= 360), longitudes - 360, longitudes)


def read_location(name: str, entry: Mapping[str, object], folder: Path | None = None) -> Location:
    """A location from the keys of its section. Paths of regions are relative to `folder`."""
    known = (*_COLUMN_KEYS, "format", "decimals", *LOCATION_KEYS)
    for key in entry:
        if key not in known:
            raise SchemaError(
                f"[columns.{to_toml_key(name)}] has the unknown key {key!r}.{did_you_mean(key, known)} The keys of a "
                f"location are {', '.join(known)}.",
                column=name,
                key=key,
            )
    try:
        region = read_region(entry, folder)
    except SchemaError as error:
        raise SchemaError(f"Column {name!r}, {error}", column=name, key=error.key) from None
    own = {key: value for key, value in entry.items() if key not in ("kind", *KEYS)}
    files = {key: value for key, value in entry.items() if key in KEYS and isinstance(value, str)}
    is_file = any(key != "code" for key in files)
    if isinstance(own.get("missing"), list):
        own["missing"] = tuple(own["missing"])  # type: ignore[arg-type]
    return Location(name=name, region=region, source=files if is_file else {}, **own)  # type: ignore[arg-type]


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
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_string(array.type):
        array = pc.if_else(pc.match_substring_regex(array, rf"^{_NUMBER}$"), array, pa.scalar(None, pa.string()))
    return np.array(pc.cast(array, pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False))


def _wide(lower: float, upper: float) -> tuple[float, float]:
    """Bounds that differ, for sites on one parallel or meridian."""
    return (lower, upper) if lower < upper else (lower - 1e-6, upper + 1e-6)
