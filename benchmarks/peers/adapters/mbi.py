"""Runs MST on the codes of a task: selection and noise are written here, estimation and sampling are those of mbi."""

import itertools
import json
import sys
from pathlib import Path


def main(path: str) -> None:
    import mbi
    import numpy as np
    import pandas as pd
    from scipy.optimize import brentq

    task = json.loads(Path(path).read_text())
    np.random.seed(task["seed"])
    names, orders = list(task["sizes"]), np.linspace(1.01, 500, 50_000)

    def log_delta(rho: float) -> float:  # Canonne, Kamath, Steinke (arXiv:2004.00010), Corollary 13
        terms = (orders - 1) * (orders * rho - task["epsilon"]) + orders * np.log1p(-1 / orders) - np.log(orders - 1)
        return terms.min()

    rho = brentq(lambda rho: log_delta(rho) - np.log(task["delta"]), 1e-9, 100.0)
    domain = mbi.Domain.fromdict(task["sizes"])
    data = mbi.Dataset(pd.read_csv(task["codes"])[names].to_dict("series"), domain)

    def measure(cliques: list) -> list:  # a third of rho for all of them
        stddev, measured = np.sqrt(1.5 * len(cliques) / rho), []
        for clique in cliques:
            exact = np.asarray(data.project(clique).datavector())
            measured.append(mbi.LinearMeasurement(exact + np.random.normal(0, stddev, exact.size), clique, stddev))
        return measured

    def estimate(measured: list):
        return mbi.estimation.MirrorDescent().estimate(domain, measured, iters=task["arguments"]["iterations"])

    singles = measure([(name,) for name in names])
    draft, part_of = estimate(singles), {name: name for name in names}
    tree: list[tuple[str, str]] = []
    scores = {pair: abs(data.project(pair).datavector() - draft.project(pair).datavector()).sum()
              for pair in itertools.combinations(names, 2)}  # fmt: skip
    epsilon = np.sqrt(8 * rho / 3 / (len(names) - 1))  # of each selection by the exponential mechanism
    while len(tree) < len(names) - 1:
        open_pairs = [pair for pair in scores if part_of[pair[0]] != part_of[pair[1]]]
        noisy = [epsilon / 2 * float(scores[pair]) + np.random.gumbel() for pair in open_pairs]
        left, right = open_pairs[int(np.argmax(noisy))]
        tree.append((left, right))
        part_of = {name: part_of[left] if part == part_of[right] else part for name, part in part_of.items()}
    synthetic = estimate(singles + measure(tree)).synthetic_data(rows=task["num_rows"])
    pd.DataFrame(synthetic.to_dict())[names].to_csv(task["output"], index=False)


if __name__ == "__main__":
    main(sys.argv[1])
