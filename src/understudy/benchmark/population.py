"""Fits of one table that differ in budget and seed, trained as one program.

Benchmarks repeat a method for many budgets and seeds on a public table. Seeded, so repeatable and not private.
"""

import functools
from collections.abc import Sequence

import pyarrow as pa

from understudy.api import FitOptions, fit_table
from understudy.privacy.discovery import Binning
from understudy.privacy.ledger import Guarantee
from understudy.release import Release
from understudy.schema import SchemaSource, as_schema
from understudy.sources import read_private_table
from understudy.synthesizers import Synthesizer
from understudy.training.population import Population


def fit_population(
    table: pa.Table,
    schema: SchemaSource,
    method: Synthesizer | str,
    members: Sequence[tuple[Guarantee, int]],
    *,
    target: str | None = None,
    binning: Binning | None = None,
    population: Population[Release] | None = None,
) -> list[Release | Exception]:
    """One release, or the error of its fit, for each guarantee and seed: what `fit` gives with the same arguments.

    Members train together if their columns have the same number of bins. By default bins are estimated privately, so
    they differ between budgets and seeds; `binning=Binning(bins="uniform")` takes them from declared bounds.

    >>> table = pa.table({"member": ["yes", "no"] * 50})
    >>> schema = {"columns": {"member": {"kind": "categorical", "categories": ["no", "yes"]}}}
    >>> releases = fit_population(table, schema, "independent", [(Guarantee(1.0), 0), (Guarantee(2.0), 0)])
    >>> [round(release.statement.epsilon) for release in releases]
    [1, 2]
    """
    data = read_private_table(table, as_schema(schema), target=target)
    options = [
        FitOptions(method, guarantee, binning or Binning(), seed, None, None, False, None)
        for guarantee, seed in members
    ]
    fits = [functools.partial(fit_table, data, each) for each in options]
    return (population or Population[Release]()).run(fits)
