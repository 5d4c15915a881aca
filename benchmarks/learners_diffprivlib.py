"""diffprivlib on the inputs that `benchmarks/learners.py --export FOLDER` wrote: the comparison of results/learners.md.

    python benchmarks/learners_diffprivlib.py FOLDER

Runs in an environment of its own (diffprivlib 0.6.6 wants scikit-learn below 1.6) and needs nothing of Understudy. Its
guarantees are pure epsilon for replacing one row; bounds and norms are given, so that none is read off the rows.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.metrics import r2_score, roc_auc_score

try:
    from diffprivlib import models
except ImportError:
    models = None


def adult(folder: Path, numbers: str, seeds: int = 5) -> None:
    data = np.load(folder / f"adult_{numbers}.npz")
    kinds = {
        f"logistic, C={c:g}": lambda seed, c=c: models.LogisticRegression(
            epsilon=1.0, data_norm=1.0, C=c, random_state=seed
        )
        for c in (0.01, 0.1, 1.0, 10.0)
    }
    bounds = (data["low"], data["high"])
    kinds["gaussian naive Bayes"] = lambda seed: models.GaussianNB(epsilon=1.0, bounds=bounds, random_state=seed)
    for words, make in kinds.items():
        scores, begun = [], time.time()
        for seed in range(seeds):
            learner = make(seed).fit(data["x"], data["y"])
            scores.append(roc_auc_score(data["test_y"], learner.predict_proba(data["test_x"])[:, 1]))
        spent = (time.time() - begun) / seeds
        print(
            f"| diffprivlib {words}, numbers={numbers} | 1 | {np.mean(scores):.4f} ({min(scores):.4f} to "
            f"{max(scores):.4f}) | {spent:.1f} |",
            flush=True,
        )


def acs(folder: Path, seeds: int = 5) -> None:
    data = np.load(folder / "acs_positions.npz")
    scores, begun = [], time.time()
    for seed in range(seeds):
        learner = models.LinearRegression(
            epsilon=1.0, bounds_X=(data["low"], data["high"]), bounds_y=(-1.0, 1.0), random_state=seed
        ).fit(data["x"], data["y"])
        scores.append(r2_score(data["test_y"], learner.predict(data["test_x"])))
    shown = f"{np.mean(scores):.4f} ({min(scores):.4f} to {max(scores):.4f})"
    print(f"| diffprivlib linear, plain income | {shown} | {(time.time() - begun) / seeds:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what learners.py --export wrote")
    folder = parser.parse_args().folder
    if models is None:
        sys.exit("diffprivlib is not installed: the comparison is left out. pip install diffprivlib 'scikit-learn<1.6'")
    for kind in ("positions", "both"):
        adult(folder, kind)
    acs(folder)


if __name__ == "__main__":
    main()
