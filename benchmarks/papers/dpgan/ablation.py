"""What the four techniques of the DP-GAN abstract contribute, alone and together: a factorial experiment.

    UNDERSTUDY_DATA=folder python benchmarks/papers/dpgan/ablation.py --profile paper --write

Smart clipping (groups of weights), adaptive clipping, a warm start from public rows and the private selection of an
epoch, each on and off: 16 settings of dpgan on two tables, at two budgets, with five seeds. Two per cent of the
training rows are taken for public: they leave the private table in all cells, and only cells with a warm start see
them. In all 16 the gradients of generated rows are clipped like those of real ones, without which groups fail
(`groups.py`). Other settings are the defaults: noisy 1-way marginals constrain the generator. They are no part of the
abstract, so on one table all settings are run without them too. `dpgan` as it is by default and `independent` are
beside them.
"""

import dataclasses
import functools
import itertools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parents[3] / "src")]

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
from scipy import stats  # noqa: E402

import understudy as us  # noqa: E402
from benchmarks.papers import experiment  # noqa: E402
from benchmarks.papers.command import run_script  # noqa: E402
from understudy.benchmark.scoring import Reference, score_table  # noqa: E402
from understudy.benchmark.tables import load_table  # noqa: E402

NAME = "dpgan_factorial"
FACTORS = ("groups", "adaptive", "warm", "selected")
TITLES = {
    "groups": "smart clipping",
    "adaptive": "adaptive clipping",
    "warm": "warm start",
    "selected": "epoch selection",
}
BASE = "fake_term=clipped"
CLIPPING = {"groups": "clip_groups=4", "adaptive": "adaptive_clip=quantile"}
"""Chosen on other seeds (100 and above)."""
SELECTED = "selected({}, checkpoints={})"
TABLES, EPSILONS, SEEDS = ("adult", "bank"), (1.0, 3.0), range(5)
PUBLIC = 0.02
"""The proportion of the training rows that is taken for public, as in the paper that the abstract cites."""
SYNTHETIC_ROWS = MAX_ROWS = 10_000
CLASSIFIERS = ("logistic", "random_forest")
SCORES = {"auc": "AUC", "f1": "F1", "tvd1": "1-way distance", "tvd2": "2-way distance"}
"""Names of the benchmark's metrics: AUC and F1 of the better classifier, and mean total variation distances."""
REFERENCES = {"default": "dpgan", "independent": "independent"}
BARE = " without marginals"
"""After the name of a table: dpgan measures no marginals there, as published."""
CONFIDENCE = 0.95

Design = tuple[bool, ...]
"""Which factors are on."""
DESIGNS: tuple[Design, ...] = tuple(itertools.product((False, True), repeat=len(FACTORS)))


def name_of(design: Design) -> str:
    return " + ".join(factor for factor, on in zip(FACTORS, design, strict=True) if on) or "plain"


def expression_of(design: Design, settings: str = "", checkpoints: int = 10) -> str:
    """The method; a warm start is no setting of it, but a public table."""
    on = dict(zip(FACTORS, design, strict=True))
    parts = [BASE, *(text for factor, text in CLIPPING.items() if on[factor]), settings]
    method = f"dpgan({', '.join(filter(None, parts))})"
    return SELECTED.format(method, checkpoints) if on["selected"] else method


def cells_of(
    tables: Sequence[str], epsilons: Sequence[float], seeds: Sequence[int], settings: str = "", checkpoints: int = 10
) -> list[experiment.Cell]:
    """All cells, table by table; those that take longest come first."""
    references = {**REFERENCES, "default": f"dpgan({settings})" if settings else "dpgan"}
    return [
        experiment.Cell(table, name, expression, epsilon, seed, group=name)
        for table in tables
        for name, expression in [
            *((name_of(design), expression_of(design, settings, checkpoints)) for design in reversed(DESIGNS)),
            *references.items(),
        ]
        for epsilon in epsilons
        for seed in seeds
    ]


SMALL = "steps=20, latent=4, generator_widths=[16, 16], critic_widths=[8]"
CELLS = {
    "smoke": [
        cell
        for cell in cells_of(["breast"], [3.0], [0], f"{SMALL}, warm_steps=10", checkpoints=2)
        if cell.method == name_of(DESIGNS[-1])
    ],
    "paper": [
        *cells_of(TABLES, EPSILONS, list(SEEDS)),
        *cells_of([TABLES[0] + BARE], EPSILONS, list(SEEDS), "marginals_fraction=0.0, marginal_weight=0.0"),
    ],
}

# ------------------------------------------------------------------------------------------------------------ the cells


@functools.cache
def divided(name: str) -> tuple[experiment.Public, pa.Table]:
    """The private rows of a table with its test rows, and the rows that are taken for public."""
    found = load_table(name.removesuffix(BARE))
    is_public = np.random.default_rng(0).random(found.train.num_rows) < PUBLIC
    private = found.train.filter(pa.array(~is_public))
    assert found.test is not None
    schema = dataclasses.replace(found.schema, rows=private.num_rows)
    return experiment.Public(private, found.test, schema), found.train.filter(pa.array(is_public))


def load(name: str, seed: int) -> experiment.Public:
    return divided(name)[0]


def public_rows(cell: experiment.Cell, table: experiment.Public) -> pa.Table | None:
    return divided(cell.table)[1] if "warm" in cell.method.split(" + ") else None


@functools.cache
def reference(name: str) -> Reference:
    """What scores need of the real rows, once for each process."""
    table = divided(name)[0]
    return Reference.of(table.train, table.test, schema=table.schema, classifiers=CLASSIFIERS, max_rows=MAX_ROWS)


def score(cell: experiment.Cell, table: experiment.Public, synthetic: pa.Table) -> dict[str, Any]:
    real = reference(cell.table)
    found = score_table(synthetic, real, list(SCORES))
    best = {name: max(each[name] or 0.0 for each in real.model_scores.values()) for name in ("auc", "f1")}
    return {"scores": {name: found.metrics[name] for name in SCORES if name in found.metrics}, "real": best}


# ------------------------------------------------------------------------------------------------------------- effects


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean over blocks (a table at a budget) and seeds, with half the width of its interval."""

    value: float
    half_width: float
    num_runs: int

    def __str__(self) -> str:
        return f"{self.value:+.3f} ± {self.half_width:.3f}"

    @property
    def low(self) -> float:
        return self.value - self.half_width

    @property
    def high(self) -> float:
        return self.value + self.half_width


Runs = Mapping[tuple[str, float], Mapping[int, Mapping[Design, float]]]
"""A score by table and epsilon, seed, and design."""


def runs_of(lines: Sequence[experiment.Line], metric: str) -> Runs:
    """Only seeds that have all designs: an effect compares runs of one seed."""
    designs = {name_of(design): design for design in DESIGNS}
    found: dict[tuple[str, float], dict[int, dict[Design, float]]] = {}
    for line in lines:
        if line["method"] in designs and metric in line["scores"]:
            block = found.setdefault((line["table"], line["epsilon"]), {})
            block.setdefault(line["seed"], {})[designs[line["method"]]] = line["scores"][metric]
    whole = {
        block: {seed: each for seed, each in seeds.items() if len(each) == len(DESIGNS)}
        for block, seeds in found.items()
    }
    return {block: seeds for block, seeds in whole.items() if seeds}


def estimate(runs: Runs, contrast: Callable[[Mapping[Design, float]], float]) -> Estimate | None:
    """The mean of a contrast: blocks count alike, and their seeds are the repetitions. None: too few of them."""
    blocks = [np.asarray([contrast(each) for each in seeds.values()]) for seeds in runs.values()]
    freedom = sum(len(block) - 1 for block in blocks)
    if not blocks or min(len(block) for block in blocks) < 2:
        return None
    pooled = sum(float(((block - block.mean()) ** 2).sum()) for block in blocks) / freedom
    error = math.sqrt(sum(pooled / len(block) for block in blocks)) / len(blocks)
    width = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * error
    return Estimate(float(np.mean([block.mean() for block in blocks])), width, sum(map(len, blocks)))


def effect(factors: Sequence[str]) -> Callable[[Mapping[Design, float]], float]:
    """Of one factor: the mean with it minus the mean without it. Of several: how they depend on each other."""
    at = [FACTORS.index(factor) for factor in factors]

    def contrast(scores: Mapping[Design, float]) -> float:
        signs = {design: math.prod(1 if design[i] else -1 for i in at) for design in DESIGNS}
        return sum(signs[design] * scores[design] for design in DESIGNS) / (len(DESIGNS) / 2)

    return contrast


def difference(one: Design, other: Design) -> Callable[[Mapping[Design, float]], float]:
    return lambda scores: scores[one] - scores[other]


PLAIN, ALL = DESIGNS[0], DESIGNS[-1]
SINGLES: tuple[Design, ...] = tuple(tuple(i == at for i in range(len(FACTORS))) for at in range(len(FACTORS)))


def verdict(runs: Runs) -> str:
    """Whether all techniques together have a higher score than each alone; from the intervals, not from a reader."""
    found = {name_of(single): estimate(runs, difference(ALL, single)) for single in SINGLES}
    if any(each is None for each in found.values()):
        return "Not yet run."
    known = {name: each for name, each in found.items() if each is not None}
    beaten = [name for name, each in known.items() if each.low > 0]
    better = [name for name, each in known.items() if each.high < 0]
    open_ones = [name for name in known if name not in beaten and name not in better]
    parts = []
    for names, words in (
        (beaten, "all four together are better than {} alone"),
        (better, "{} alone is better than all four together"),
        (open_ones, "for {} alone the interval includes zero"),
    ):
        if names:
            parts.append(words.format(_listed([TITLES[name] for name in names])))
    head = "holds" if len(beaten) == len(SINGLES) else "does not hold" if better else "is not shown"
    whole = estimate(runs, difference(ALL, PLAIN))
    beside_none = "" if whole is None else f" All four together minus none of them: {whole}."
    return f'"Combining beats any single one" {head}: {"; ".join(parts)}.{beside_none}'


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# --------------------------------------------------------------------------------------------------------------- pages


def families(lines: Sequence[experiment.Line]) -> dict[str, list[experiment.Line]]:
    """Lines with marginals, and those without."""
    found = {
        "With noisy 1-way marginals (the default)": [line for line in lines if not line["table"].endswith(BARE)],
        "Without marginals (as published)": [line for line in lines if line["table"].endswith(BARE)],
    }
    return {title: family for title, family in found.items() if family}


def page(lines: Sequence[experiment.Line]) -> str:
    used = sorted({(line["method"], line["expression"]) for line in lines}, key=lambda each: (len(each[0]), each[0]))
    sections = [_section(title, family) for title, family in families(lines).items()]
    return f"""# The techniques of the DP-GAN abstract, alone and together

{experiment.provenance("dpgan/ablation.py", lines)} Settings of the clipping were chosen with other seeds.

{__doc__.split(chr(10), 4)[4].strip()}

Scores are the benchmark's (`understudy.benchmark.scoring`) on {SYNTHETIC_ROWS:,} synthetic rows: AUC and F1 of the
better of logistic regression and random forest, tested on real rows; distances are mean total variation of 1-way and
2-way marginals.

The effect of a technique is the mean with it minus the mean without it, over all settings of the other three. The
effect of several is half of the change in one effect that the others cause; it is zero if effects add up.
{CONFIDENCE:.0%} intervals (t, variance pooled over tables and budgets) are over complete sets of 16 runs with the same
seed. They are not adjusted for the number of intervals. Lower distances are better.

{chr(10).join(f"- {name}: `{expression}`" for name, expression in used)}

{chr(10).join(sections)}"""


def _section(title: str, lines: Sequence[experiment.Line]) -> str:
    runs = {metric: runs_of(lines, metric) for metric in SCORES}
    blocks = sorted({(line["table"], line["epsilon"]) for line in lines})
    return f"""## {title}

AUC, mean (worst) of the seeds:

{_means(lines, blocks, "auc")}

2-way distance, mean (worst) of the seeds:

{_means(lines, blocks, "tvd2")}

Main effects and interactions, from {sum(len(seeds) for seeds in runs["auc"].values())} complete sets:

{_effects(runs)}

All four together, minus others:

{_differences(runs)}

By AUC: {verdict(runs["auc"])}
"""


def _means(lines: Sequence[experiment.Line], blocks: Sequence[tuple[str, float]], metric: str) -> str:
    sign = -1 if metric.startswith("tvd") else 1
    rows: list[list[object]] = []
    for name in [*map(name_of, DESIGNS), *REFERENCES]:
        row: list[object] = [name]
        for table, epsilon in blocks:
            which = {"method": name, "table": table, "epsilon": epsilon}
            found = [
                line["scores"][metric]
                for line in lines
                if metric in line["scores"] and all(line[key] == value for key, value in which.items())
            ]
            row.append(f"{np.mean(found):.3f} ({sign * min(sign * each for each in found):.3f})" if found else None)
        rows.append(row)
    if metric in ("auc", "f1"):
        real = {line["table"]: line["real"][metric] for line in lines}
        rows.append(["real rows", *(f"{real[table]:.3f}" for table, _ in blocks)])
    return experiment.table_of(["", *(f"{table}, epsilon {epsilon:g}" for table, epsilon in blocks)], rows)


def _effects(runs: Mapping[str, Runs]) -> str:
    terms = [term for size in range(1, len(FACTORS) + 1) for term in itertools.combinations(FACTORS, size)]
    rows = [[" x ".join(term), *(estimate(runs[metric], effect(term)) for metric in SCORES)] for term in terms]
    return experiment.table_of(["", *SCORES.values()], rows)


def _differences(runs: Mapping[str, Runs]) -> str:
    rows = [
        [f"minus {name_of(other)}", *(estimate(runs[metric], difference(ALL, other)) for metric in SCORES)]
        for other in (PLAIN, *SINGLES)
    ]
    return experiment.table_of(["", *SCORES.values()], rows)


EXPERIMENT = experiment.Experiment(
    name=NAME,
    load=load,
    score=score,
    public=public_rows,
    binning=us.Binning(bins="uniform"),
    synthetic_rows=SYNTHETIC_ROWS,
)


def main() -> None:
    experiment.main(EXPERIMENT, __doc__ or "", CELLS, page)


if __name__ == "__main__":
    run_script(main)
