"""t-SNE views by label: real rows, the inner method's and QUAIL's, in one plane (figures 8 and 9).

python benchmarks/papers/quail/views.py --profile paper --write
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[3]))

import understudy as us
from benchmarks.papers.command import run_script
from benchmarks.papers.quail import core
from benchmarks.simulated import made_classes
from understudy.learners.methods import NaiveBayes
from understudy.synthesizers import express

PROFILES: dict[str, dict[str, Any]] = {
    "smoke": {"num_rows": 1500, "shown": 60, "inner": "independent"},
    "paper": {"num_rows": 10_000, "shown": 500, "inner": "mst"},
}
LEARNER = NaiveBayes(numbers="gaussian")


def panels(num_rows: int, shown: int, inner: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Points and labels of the three tables, embedded together."""
    from sklearn.manifold import TSNE

    train, _, schema = made_classes(num_rows)
    tables = [train.slice(0, shown)]
    for method in (inner, f"quail({inner}, learner={express(LEARNER)}, learner_fraction=0.8)"):
        release = us.fit(train, method, us.Guarantee(3.0, core.DELTA), schema=schema, seed=0, binning=core.BINNING)
        tables.append(release.sample_arrow(shown, seed=0))
    features = np.concatenate([np.stack([t.column(f"x{at}").to_numpy() for at in range(7)], axis=1) for t in tables])
    plane = TSNE(perplexity=min(30, shown // 4), random_state=0, init="pca").fit_transform(features)
    labels = [np.asarray([int(text[1:]) for text in table.column("label").to_pylist()]) for table in tables]
    return list(zip(np.split(plane, 3), labels, strict=True))


def main() -> None:
    found = core.arguments(__doc__ or "")
    drawn = panels(**PROFILES[found.profile])
    if found.write:
        (core.IMAGES / "quail_views.png").write_bytes(core.scatter_png(drawn))
    print(core.provenance("views"))


if __name__ == "__main__":
    run_script(main)
