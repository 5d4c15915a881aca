"""Runs an algorithm of opendp.extras.mbi on the codes of a task. Its noise cannot be seeded."""

import json
import sys
from pathlib import Path


def main(path: str) -> None:
    import numpy as np
    import opendp.prelude as dp
    import polars as pl

    task = json.loads(Path(path).read_text())
    np.random.seed(task["seed"])
    dp.enable_features("contrib")
    algorithm = {"mst": dp.mbi.MST, "aim": dp.mbi.AIM}[task["method"]](**task["arguments"])
    # With known keys its mechanisms are zCDP: the rho of the Gaussian noise that has this epsilon and delta.
    space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    scale = dp.binary_search_param(
        lambda s: dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=s)), task["delta"]),
        d_in=1,
        d_out=(task["epsilon"], task["delta"]),
        T=float,
    )
    loss = dp.loss_of(rho=0.5 / scale**2)
    codes = pl.scan_csv(task["codes"], schema=dict.fromkeys(task["sizes"], pl.Int32))
    context = dp.Context.compositor(
        data=codes, privacy_unit=dp.unit_of(contributions=1), privacy_loss=loss, split_evenly_over=1
    )
    keys = {name: list(range(size)) for name, size in task["sizes"].items()}
    release = context.query().contingency_table(keys=keys, algorithm=algorithm).release()
    synthetic = release.synthesize(rows=task["num_rows"])
    # The package adds a null to every list of keys; its few rows get another value of the column.
    synthetic = synthetic.select(pl.all().fill_null(strategy="forward").fill_null(strategy="backward").fill_null(0))
    synthetic.select(list(task["sizes"])).write_csv(task["output"])


if __name__ == "__main__":
    main(sys.argv[1])
