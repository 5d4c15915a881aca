"""Dates and times modelled by their parts, or in a declared resolution.

The parts are month, weekday and hour as cyclic columns, beside the rest of the value.
"""

import dataclasses

import numpy as np
from jaxtyping import Int

from understudy.encoding.arrow import bound_numbers, from_numbers
from understudy.encoding.reexpression.steps import Arrays, OneColumn, Rows, Scale, integer_column, read_integers
from understudy.schema import Column, Schema
from understudy.schema.column import RESOLUTIONS

SECOND, DAY = 1_000_000, 86_400_000_000
"""In microseconds."""
MONDAY = 3
"""1970-01-01 was a Thursday: three days later than a Monday."""

Numbers = Int[np.ndarray, " rows"]


class Time(OneColumn):
    """A date or datetime, which `clean` cuts to its resolution."""

    def clean(self, rows: Rows) -> Arrays:
        numbers, known = Scale(self.column).read(rows)
        return {self.column.name: Scale(self.column).write(cut(numbers, self.column), known)}


@dataclasses.dataclass(frozen=True)
class Parts(Time):
    """A date or datetime as columns for its parts. Times are exact to the second or the declared resolution; with a
    zone they are in UTC.

    A month comes with a year and a day, or, beside a weekday, with the number of that weekday in the month; a weekday
    alone with a week; an hour with the seconds (or minutes) within it. Only the first of these columns decides about
    nulls.
    """

    @property
    def _named(self) -> tuple[str, ...]:
        return self.column.parts or ()

    @property
    def _ranges(self) -> dict[str, tuple[int, int]]:
        """The name and the bounds of each part."""
        first, last = (int(number) for number in bound_numbers(self.column))
        if self.column.kind == "datetime":
            first, last = first // DAY, last // DAY
        ranges: dict[str, tuple[int, int]] = {}
        if "month" in self._named:
            years = np.array([first, last]).astype("datetime64[D]").astype("datetime64[Y]").astype(int) + 1970
            ranges |= {"year": (int(years[0]), int(years[1])), "month": (1, 12)}
            ranges |= {"weekday": (0, 6), "week of month": (0, 4)} if "weekday" in self._named else {"day": (1, 31)}
        elif "weekday" in self._named:
            ranges |= {"week": ((first + MONDAY) // 7, (last + MONDAY) // 7), "weekday": (0, 6)}
        else:
            ranges["days"] = (first, last)
        if self.column.kind == "datetime":
            ranges |= {"hour": (0, 23)} if "hour" in self._named else {}
            ranges |= {self._rest: (0, self._rest_seconds // self._step - 1)} if self._has_rest else {}
        return ranges

    @property
    def _rest(self) -> str:
        """The part that holds the time within the hour, or within the day if the hour is no part."""
        return self.column.resolution or "second"

    @property
    def _rest_seconds(self) -> int:
        return 3600 if "hour" in self._named else 86_400

    @property
    def _step(self) -> int:
        """The resolution in seconds."""
        return RESOLUTIONS[self._rest]

    @property
    def _has_rest(self) -> bool:
        return self._step < self._rest_seconds

    @property
    def modelled(self) -> tuple[Column, ...]:
        return tuple(
            integer_column(
                self.column, (lower, max(upper, lower + 1)), name=self._name(part), cyclic=part in self._named
            )
            for part, (lower, upper) in self._ranges.items()
        )

    def _name(self, part: str) -> str:
        return f"{self.column.name} ({part})"

    def express(self, rows: Rows) -> Arrays:
        numbers, known = Scale(self.column).read(rows)
        values = self._split(numbers)
        null = ~known & self.column.nullable
        return {
            self._name(part): from_numbers(np.where(null, 0, values[part]), null, "integer") for part in self._ranges
        }

    def restore(self, rows: Rows) -> Arrays:
        read = {p: read_integers(rows[self._name(p)]) for p in self._ranges}
        known = next(iter(read.values()))[1]
        values = {
            part: np.clip(np.where(has, numbers, self._ranges[part][0]), *self._ranges[part])
            for part, (numbers, has) in read.items()
        }
        numbers = cut(self._inside(self._join(values)), self.column)
        return {self.column.name: Scale(self.column).write(numbers, known)}

    def _split(self, numbers: Numbers) -> dict[str, Numbers]:
        days, seconds = numbers, np.zeros_like(numbers)
        if self.column.kind == "datetime":
            days, seconds = numbers // DAY, numbers % DAY // SECOND
        dates = days.astype("datetime64[D]")
        months = dates.astype("datetime64[M]")
        day = (dates - months.astype("datetime64[D]")).astype(np.int64)
        return {
            "days": days,
            "year": months.astype("datetime64[Y]").astype(np.int64) + 1970,
            "month": months.astype(np.int64) % 12 + 1,
            "day": day + 1,
            "week of month": day // 7,
            "week": (days + MONDAY) // 7,
            "weekday": (days + MONDAY) % 7,
            self._rest: seconds % self._rest_seconds // self._step,
            **({"hour": seconds // 3600} if "hour" in self._named else {}),
        }

    def _join(self, values: dict[str, Numbers]) -> Numbers:
        if "month" in values:
            months = ((values["year"] - 1970) * 12 + values["month"] - 1).astype("datetime64[M]")
            first = months.astype("datetime64[D]").astype(np.int64)
            last = (months + 1).astype("datetime64[D]").astype(np.int64) - 1
            if "day" in values:
                days = np.minimum(first + values["day"] - 1, last)
            else:
                days = first + (values["weekday"] - first - MONDAY) % 7 + 7 * values["week of month"]
                days = np.where(days > last, days - 7, days)  # not every month has a fifth one
        elif "week" in values:
            days = values["week"] * 7 - MONDAY + values["weekday"]
        else:
            days = values["days"]
        if self.column.kind == "date":
            return np.asarray(days)
        seconds = values[self._rest] * self._step if self._has_rest else 0
        seconds += values["hour"] * 3600 if "hour" in self._named else 0
        return np.asarray(days * DAY + seconds * SECOND)

    def _inside(self, numbers: Numbers) -> Numbers:
        """In the first and last week, a week later or earlier where only that is inside the bounds."""
        lower, upper = bound_numbers(self.column)
        week = 7 * (1 if self.column.kind == "date" else DAY)
        numbers = np.where((numbers < lower) & (numbers + week <= upper), numbers + week, numbers)
        return np.where((numbers > upper) & (numbers - week >= lower), numbers - week, numbers)


@dataclasses.dataclass(frozen=True)
class Cut(Time):
    """A datetime in a declared resolution: modelled as the number of its minutes, say, since 1970."""

    @property
    def modelled(self) -> tuple[Column, ...]:
        unit = _microseconds(self.column)
        first, last = cut(np.array(bound_numbers(self.column), dtype=np.int64), self.column) // unit
        return (integer_column(self.column, (int(first), int(last))),)

    def express(self, rows: Rows) -> Arrays:
        numbers, known = Scale(self.column).read(rows)
        null = ~known & self.column.nullable
        numbers = cut(numbers, self.column) // _microseconds(self.column)
        return {self.column.name: from_numbers(np.where(null, 0, numbers), null, "integer")}

    def restore(self, rows: Rows) -> Arrays:
        numbers, known = read_integers(rows[self.column.name])
        numbers = cut(numbers * _microseconds(self.column), self.column)
        return {self.column.name: Scale(self.column).write(numbers, known)}


def cut(numbers: Numbers, column: Column) -> Numbers:
    """Datetimes cut to the resolution of their column, inside its bounds; without a resolution, as they are."""
    if column.resolution is None:
        return numbers
    unit = _microseconds(column)
    lower, upper = (int(bound) for bound in bound_numbers(column))
    return np.asarray(np.clip(numbers // unit * unit, -(-lower // unit) * unit, upper // unit * unit))


def _microseconds(column: Column) -> int:
    return RESOLUTIONS[column.resolution or "second"] * SECOND


def part_steps(schema: Schema) -> tuple[Parts | Cut, ...]:
    """One step for each column with parts or a resolution. The target stays as it is."""
    modelled = [column for column in schema.modelled if column.name != schema.target]
    return tuple(
        Parts(column) if column.parts else Cut(column) for column in modelled if column.parts or column.resolution
    )
