"""The figures of the DP-BayesGAN paper beside ours, from committed results."""

from benchmarks.papers.rows import Row, joined, mean, read

KINDS = ("CART", "BayesGAN", "epsilon 10", "epsilon 1")


def _means(score: str, digits: int) -> str:
    lines = read("bayesgan_montgomery")
    return joined([mean([line[score] for line in lines if line["kind"] == kind], digits) for kind in KINDS])


def rows() -> list[Row]:
    lines = read("bayesgan_montgomery")
    seeds = str(len({line["seed"] for line in lines if line["kind"] == "BayesGAN"}))
    ends = "CART / BayesGAN, not private / epsilon 10 / epsilon 1"
    return [
        Row(
            id="B1",
            what=f"Figure 1, pMSE by logistic regression: {ends}",
            sound=_means("logit", 4),
            seeds=seeds,
            command="montgomery.py",
        ),
        Row(
            id="B1",
            what=f"Figure 1, pMSE by a tree: {ends}",
            sound=_means("tree", 4),
            seeds=seeds,
            command="montgomery.py",
        ),
        Row(
            id="B2",
            what=f"Figure 2, y against x10, proportion of rows near the upper branch: {ends}",
            sound=_means("upper", 2),
            seeds=seeds,
            command="montgomery.py",
        ),
    ]
