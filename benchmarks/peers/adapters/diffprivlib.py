"""Runs a classifier of diffprivlib on the codes of a task, as QUAIL does: it labels rows of noisy histograms.

Half of epsilon goes to one histogram per column other than the target, half to the classifier.
"""

import json
import sys
from pathlib import Path


def main(path: str) -> None:
    import numpy as np
    import pandas as pd
    from diffprivlib import models, tools

    task = json.loads(Path(path).read_text())
    generator = np.random.RandomState(task["seed"])
    rows, target = pd.read_csv(task["codes"]), task["target"]
    sizes = {name: size for name, size in task["sizes"].items() if name != target}
    synthetic, share = {}, task["epsilon"] / 2 / len(sizes)
    for name, size in sizes.items():
        counts, _ = tools.histogram(rows[name], epsilon=share, bins=size, range=(0, size), random_state=generator)
        weights = np.maximum(counts, 0) + 1e-9
        synthetic[name] = generator.choice(size, task["num_rows"], p=weights / weights.sum())

    def one_hot(codes) -> np.ndarray:  # each row has norm 1
        blocks = [np.eye(size)[np.asarray(codes[name])] for name, size in sizes.items()]
        return np.concatenate(blocks, axis=1) / np.sqrt(len(sizes))

    settings = {"epsilon": task["epsilon"] / 2, "random_state": generator, **task["arguments"]}
    if task["method"] == "logistic":
        learner = models.LogisticRegression(data_norm=1.0, max_iter=1000, **settings)
    else:
        learner = models.GaussianNB(bounds=(0.0, 1 / np.sqrt(len(sizes))), **settings)
    chances = learner.fit(one_hot(rows), rows[target]).predict_proba(one_hot(synthetic))
    drawn = (chances.cumsum(axis=1) < generator.random_sample((len(chances), 1))).sum(axis=1)
    synthetic[target] = learner.classes_[np.minimum(drawn, len(learner.classes_) - 1)]
    pd.DataFrame(synthetic)[list(task["sizes"])].to_csv(task["output"], index=False)


if __name__ == "__main__":
    main(sys.argv[1])
