"""Planted defects: the mistakes that published code and papers have made, each as a small patch of this package.

Each names the detector that must find it. Here: units, and what is taken from rows without a query.
Queries, selections and accounting are in `query_defects.py`, training is in `training_defects.py`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from scipy import stats

from understudy import api, release
from understudy.certificate import agreement as certificate_agreement
from understudy.encoding import codec as codecs
from understudy.encoding import columns, fit
from understudy.errors import TableError
from understudy.privacy.mechanisms import discovery
from understudy.privacy.rows import batches, units
from understudy.privacy.rows import table as tables
from understudy.run import run as owner
from understudy.run import sources
from understudy.run.plan import plan_run
from understudy.schema import Column
from understudy.tables import cast, cells, frames, reading

Patch = pytest.MonkeyPatch
NOWHERE = "–"


@dataclasses.dataclass(frozen=True)
class Defect:
    """A mistake, where it was seen, and the detector that must find it."""

    name: str
    changed: str
    """What the patch does."""
    seen: str
    """The code or paper that has it; NOWHERE: no published case is known."""
    detector: str
    """The name of the detector."""
    plant: Callable[[Patch], None]


# ------------------------------------------------------------------------------------------------- facts from the rows


def _categories_from_data(patch: Patch) -> None:
    sound = fit.fit_codec

    def with_found(table: Any, schema: Any, *rest: Any) -> Any:
        def extended(column: Column) -> Column:
            if column.kind != "categorical" or column.categories is None:
                return column
            found = [value for value in table._table.column(column.name).unique().to_pylist() if value is not None]
            return dataclasses.replace(column, categories=tuple(dict.fromkeys([*column.categories, *found])))

        return sound(table, dataclasses.replace(schema, columns=tuple(map(extended, schema.columns))), *rest)

    _replace_fit(patch, with_found)


def _bounds_from_data(patch: Patch) -> None:
    sound = fit.fit_codec

    def with_extremes(table: Any, schema: Any, *rest: Any) -> Any:
        def stretched(column: Column) -> Column:
            if column.bounds is None:
                return column
            ends = pc.min_max(table._table.column(column.name)).as_py()
            return dataclasses.replace(column, bounds=(ends["min"], ends["max"]))

        return sound(table, dataclasses.replace(schema, columns=tuple(map(stretched, schema.columns))), *rest)

    _replace_fit(patch, with_extremes)


def _nulls_from_data(patch: Patch) -> None:
    sound = fit.fit_codec

    def with_seen_nulls(table: Any, schema: Any, *rest: Any) -> Any:
        def seen(column: Column) -> Column:
            if column.kind == "id":
                return column
            return dataclasses.replace(column, nullable=table._table.column(column.name).null_count > 0)

        return sound(table, dataclasses.replace(schema, columns=tuple(map(seen, schema.columns))), *rest)

    _replace_fit(patch, with_seen_nulls)


def _replace_fit(patch: Patch, changed: Callable[..., Any]) -> None:
    """The codec of every run, wherever its function was imported."""
    from tests import builders

    for module in (builders, owner):
        patch.setattr(module, "fit_codec", changed)


def _bins_from_data(patch: Patch) -> None:
    sound = fit._histograms

    def by_quantiles(table: Any, schema: Any, *rest: Any, **more: Any) -> Any:
        histograms = sound(table, schema, *rest, **more)

        def cut(name: str, histogram: Any) -> Any:
            values = np.asarray(table._table.column(name).drop_null().to_numpy(), dtype=float)
            inner = histogram.grid.snap(np.quantile(values, [0.2, 0.4, 0.6, 0.8]))
            firsts = np.unique(np.r_[histogram.firsts[:1], inner.astype(histogram.firsts.dtype)])
            return dataclasses.replace(histogram, firsts=firsts, masses=np.full(len(firsts), 0.2))

        return {name: cut(name, histogram) for name, histogram in histograms.items()}

    patch.setattr(fit, "_histograms", by_quantiles)


def _rows_from_data(patch: Patch) -> None:
    sound = api.read_private_table

    def with_size(*args: Any, **more: Any) -> sources.TableToFit:
        data = sound(*args, **more)
        return dataclasses.replace(data, schema=dataclasses.replace(data.schema, rows=data.table._table.num_rows))

    patch.setattr(api, "read_private_table", with_size)


def _delta_from_data(patch: Patch) -> None:
    sound = api._fit_table

    def with_delta(run: Any, planned: Any, data: sources.TableToFit, *rest: Any) -> release.Release:
        guarantee = dataclasses.replace(planned.guarantee, delta=data.table._table.num_rows**-1.5)
        return sound(run, plan_run(data.schema, rest[0], guarantee, planned.binning), data, *rest)

    patch.setattr(api, "_fit_table", with_delta)


def _exact_size(patch: Patch) -> None:
    def size(table: Any, query: Any, book: Any) -> int:
        book.charge(query)
        return table._table.num_rows

    patch.setattr(fit, "noisy_size", size)


def _standardised_positions(patch: Patch) -> None:
    sound = codecs.Codec.positions_modelled

    def standardised(self: codecs.Codec, table: Any) -> np.ndarray:
        positions = sound(self, table)
        known = np.where(np.isnan(positions), 0.0, positions)
        return positions - known.mean(axis=0)

    patch.setattr(codecs.Codec, "positions_modelled", standardised)


def _types_of_the_source(patch: Patch) -> None:
    sound = reading.output_schema

    def kept(*args: Any, **more: Any) -> Any:
        return sound(*args, **{**more, "keep_types": True})

    for module in (reading, frames):
        patch.setattr(module, "output_schema", kept)


def _refusal_by_rows(patch: Patch) -> None:
    sound = columns.CategoricalCodec.encode

    def strict(self: columns.CategoricalCodec, values: Any) -> np.ndarray:
        if not set(values.drop_null().to_pylist()) <= set(self.categories):
            raise TableError(f"Column {self.name!r} has a value that is not listed.")
        return sound(self, values)

    patch.setattr(columns.CategoricalCodec, "encode", strict)


def _no_threshold(patch: Patch) -> None:
    patch.setattr(discovery, "rows_to_be_listed", lambda query: 1)


def _continuous_threshold(patch: Patch) -> None:
    def of_continuous_noise(event: Any, delta: float) -> int:
        return 1 + int(np.floor(event.stddev * stats.norm.isf(delta)))

    patch.setattr(discovery, "category_threshold", of_continuous_noise)


# --------------------------------------------------------------------------------------------------------------- units


def _unit_ids_ignored(patch: Patch) -> None:
    patch.setattr(
        fit,
        "limit_units",
        lambda table, unit, names, most: tables.PrivateTable(table._table, np.arange(len(table._table))),
    )


def _times_as_they_are(patch: Patch) -> None:
    patch.setattr(cells, "_within_a_day", lambda times: times)
    patch.setattr(cast, "_ODD_VALUE", cast._NO_RULE)


def _unit_bound_not_compared(patch: Patch) -> None:
    patch.setattr(certificate_agreement, "_units", lambda statement: iter(()))


def _more_rows_than_declared(patch: Patch) -> None:
    def only_known(*args: Any) -> tuple[np.ndarray, np.ndarray]:
        numbers = units.rows_within_units(*args)[1]
        return numbers >= 0, numbers

    patch.setattr(batches, "rows_within_units", only_known)


def _nulls_as_units(patch: Patch) -> None:
    def with_nulls(*args: Any) -> tuple[np.ndarray, np.ndarray]:
        kept, numbers = units.rows_within_units(*args)
        return kept | (numbers < 0), np.where(numbers < 0, numbers.max(initial=-1) + 1, numbers)

    patch.setattr(batches, "rows_within_units", with_nulls)


MWEM = "SmartNoise, MWEM"
CTGAN = "CTGAN and libraries derived from it"
AUTOGAN = "DP-auto-GAN, published code"

DEFECTS: tuple[Defect, ...] = (
    Defect(
        "categories from data",
        "categories that occur are added to the declared list",
        CTGAN,
        "facts on neighbouring tables",
        _categories_from_data,
    ),
    Defect(
        "bounds from data",
        "the bounds of a number are its smallest and largest values",
        f"{MWEM}; {AUTOGAN}",
        "facts on neighbouring tables",
        _bounds_from_data,
    ),
    Defect(
        "bins from data",
        "bins are cut at exact quantiles",
        "CTGAN: mixtures fitted to private rows",
        "facts on neighbouring tables",
        _bins_from_data,
    ),
    Defect(
        "nulls from data",
        "a column has a code for nulls only if a null occurs",
        NOWHERE,
        "facts on neighbouring tables",
        _nulls_from_data,
    ),
    Defect(
        "number of rows from data",
        "the exact number of rows is used as the declared one",
        "SmartNoise, MWEM: mass and number of iterations",
        "facts on neighbouring tables",
        _rows_from_data,
    ),
    Defect(
        "delta from data",
        "delta is computed from the exact number of rows",
        "DP-CTGAN: 1 / (n sqrt(n)) by default",
        "facts on neighbouring tables",
        _delta_from_data,
    ),
    Defect(
        "exact number of rows",
        "the number of rows is charged and then released without noise",
        NOWHERE,
        "scan of the release",
        _exact_size,
    ),
    Defect(
        "standardised by private means",
        "the mean of positions over the table is subtracted",
        "DP-BayesGAN: x and y standardised by sample moments",
        "codes on neighbouring tables",
        _standardised_positions,
    ),
    Defect(
        "types from data",
        "synthetic columns have the storage types of the private file",
        "an earlier version of this package: one missing value turned int64 into double",
        "outputs on neighbouring tables",
        _types_of_the_source,
    ),
    Defect(
        "refusal because of one row",
        "a value that is not declared ends the run",
        "an earlier version of this package: a file was refused because of one row",
        "outputs on neighbouring tables",
        _refusal_by_rows,
    ),
    Defect(
        "one value ends the run",
        "times of day are not clamped to a day",
        "an earlier version of this package: an error of a library about one value",
        "values of every type",
        _times_as_they_are,
    ),
    Defect(
        "lists without a threshold",
        "every value that occurs is listed with its noisy count",
        "Korolova et al. 2009 show why it is needed",
        "values held by one unit",
        _no_threshold,
    ),
    Defect(
        "threshold of continuous noise",
        "the threshold is for normal noise, but the noise is discrete",
        NOWHERE,
        "values held by one unit",
        _continuous_threshold,
    ),
    Defect(
        "unit ids ignored",
        "each row counts as a unit",
        NOWHERE,
        "rows per unit",
        _unit_ids_ignored,
    ),
    Defect(
        "more rows than declared",
        "all rows of a unit are used, whatever is declared",
        NOWHERE,
        "rows per unit",
        _more_rows_than_declared,
    ),
    Defect(
        "unit bound not compared",
        "the reader of certificates does not compare the rows of each unit with those that the queries cover",
        "an earlier version of this package",
        "forged units",
        _unit_bound_not_compared,
    ),
    Defect(
        "rows without a unit",
        "all rows without a unit id are used",
        NOWHERE,
        "rows per unit",
        _nulls_as_units,
    ),
)
