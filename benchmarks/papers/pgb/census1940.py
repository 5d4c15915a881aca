"""Two census tables at epsilon 1: how well synthetic rows pass for real ones. Experiments P5, P5a and P5b of the paper.

    UNDERSTUDY_DATA=folder python benchmarks/papers/pgb/census1940.py --profile paper --minutes 8 --write

The 1940 census of California (its networks: 256-128, latent 128), and a modern one beside it. A critic step
draws one row in a hundred, about 317 (published: 100): the larger draw needs fewer steps. The paper's test rows are not
public, so a fifth of the rows is held out by coin. Scored are the pMSE ratio of a tree,
the total variation of race, and the errors of ten linear models of income on the rows held out.
"""

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parents[3] / "src")]

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402

import understudy as us  # noqa: E402
from benchmarks.papers.command import run_script  # noqa: E402
from benchmarks.papers.pgb import core  # noqa: E402
from understudy.benchmark.sources import read_source  # noqa: E402
from understudy.benchmark.tables import declared_schema  # noqa: E402
from understudy.evaluation.cells import cell_accuracy  # noqa: E402
from understudy.evaluation.pmse import pmse_cart  # noqa: E402
from understudy.evaluation.regression import parallel_rmse  # noqa: E402
from understudy.evaluation.table import Layout  # noqa: E402
from understudy.synthesizers import express  # noqa: E402
from understudy.synthesizers.boosted import Boosted  # noqa: E402
from understudy.synthesizers.dpgan import DPGAN  # noqa: E402

EPSILON, HELD_OUT = 1.0, 0.2
PMSE = {"GAN": 2.357, "DRS": 2.313, "PGB": 2.253, "PGB+DRS": 2.445}
RACE = {"GAN": 0.58, "DRS": 0.44, "PGB": 0.22, "PGB+DRS": 0.13}


@dataclasses.dataclass(frozen=True)
class Census:
    """A table, the columns that say someone's race, and those of the linear models."""

    race: tuple[str, ...]
    income: str
    regressors: tuple[str, ...]
    leave_out: tuple[str, ...] = ()


TABLES = {
    "census1940_ca": Census(("race",), "inc", ("sex", "age", "educ", "race", "marital")),
    "pums_ca": Census(
        ("latino", "black", "asian"), "income", ("sex", "age", "educ", "asian", "married"), ("income_bracket", "state")
    ),
}
PROFILES = {
    "smoke": core.Profile(
        seeds=1,
        steps=40,
        checkpoints=4,
        every=5,
        samples_per_generator=100,
        rounds=20,
        proposals=500,
        max_rows=1500,
        minutes=1,
    ),
    "paper": core.Profile(
        seeds=5, steps=1500, checkpoints=100, every=10, samples_per_generator=300, rounds=400, proposals=10_000
    ),
}


def published(steps: int) -> DPGAN:
    """The paper's networks. A pair of a real and a generated row is clipped together, as its code does."""
    return DPGAN(
        **core.AS_PUBLISHED,
        steps=steps,
        sampling_rate=1 / 100,
        latent=128,
        generator_widths=(256, 128),
        critic_widths=(256, 128),
        critic_learning_rate=0.01,
        generator_learning_rate=0.001,
        fake_term="paired",
        clip_norm=1.0,
        betas=(0.9, 0.999),
        ema_decay=0.0,
    )


def ours(profile: core.Profile, census: Census) -> Boosted:
    """The package's own settings; cells of income with each regressor are distinguishers beside the critics."""
    inner = DPGAN(steps=min(profile.steps, 500))
    queries = tuple((census.income, name) for name in census.regressors)
    return profile.boosted(inner, distinguishers=queries, checkpoint_every=min(profile.every, 5))


def one(profile: core.Profile, seed: int, guarantee: us.Guarantee | None = None) -> dict[str, Any]:
    """Both tables. Under epsilon 1, unless another guarantee is given."""
    return {name: of_table(profile, name, seed, guarantee) for name in profile.kinds or TABLES}


def load(name: str, seed: int, max_rows: int | None = None) -> tuple[pa.Table, pa.Table, us.Schema]:
    """Training rows, rows held out by the coins of this seed, and what is declared."""
    census = TABLES[name]
    table = read_source(name).drop_columns(list(census.leave_out))
    train, test = _parts(table.slice(0, max_rows), seed)
    columns = tuple(column for column in declared_schema(name).columns if column.name in train.column_names)
    # The public size of a part is its share of the whole, whatever the coins say.
    num_rows = round((1 - HELD_OUT) * (train.num_rows + test.num_rows))
    return train, test, us.Schema(columns=columns, rows=num_rows, target=census.income)


def scorer(
    name: str, train: pa.Table, test: pa.Table, schema: us.Schema, seed: int
) -> Callable[[pa.Table], dict[str, Any]]:
    """From synthetic rows to their figures."""
    census, layout = TABLES[name], Layout.of(train, schema, test)
    real, held = layout.read(train, "training rows"), layout.read(test, "held out rows")

    def scored(rows: pa.Table) -> dict[str, Any]:
        fake = layout.read(rows, "synthetic rows")
        linear = parallel_rmse(real, fake, held, target=census.income, regressors=census.regressors)
        models: Any = linear.details["models"]
        return {
            "pmse": pmse_cart(real, fake, num_permutations=10, seed=seed).scores["pmse_cart_ratio"].value,
            "race": cell_accuracy(real, fake, census.race).scores["cell_tv"].value,
            "ratio": linear.scores["rmse_ratio_mean"].value,
            "rmse": [model["synthetic"] for model in models],
            "real": [model["real"] for model in models],
            "models": ["+".join(model["regressors"]) for model in models],
        }

    return scored


def of_table(profile: core.Profile, name: str, seed: int, guarantee: us.Guarantee | None = None) -> dict[str, Any]:
    census = TABLES[name]
    train, test, schema = load(name, seed, profile.max_rows)
    scored = scorer(name, train, test, schema, seed)
    assert schema.rows is not None
    delta = 1 / (2 * schema.rows)

    def of(boosted: Boosted, **more: Any) -> dict[str, Any]:
        releases = core.trained(
            train,
            boosted,
            guarantee or us.Guarantee(EPSILON, delta),
            schema=schema,
            seed=seed,
            proposals=profile.proposals,
            **more,
        )
        return {label: scored(release.sample_arrow(seed=seed)) for label, release in releases.items()}

    own = ours(profile, census)
    return {
        "published": of(profile.boosted(published(profile.steps), distinguishers="none")),
        "ours": of(own, outputs=("GAN", "PGB"), binning=us.Binning()),
        "held out": scored(test),
        "rows": [train.num_rows, test.num_rows],
    }


def _parts(table: pa.Table, seed: int) -> tuple[pa.Table, pa.Table]:
    """Every row by a coin of its own."""
    held = np.random.default_rng(seed).random(table.num_rows) < HELD_OUT
    return table.filter(pa.array(~held)), table.filter(pa.array(held))


def page(profile: core.Profile, results: Sequence[Mapping[str, Any]]) -> str:
    parts = [
        f"""# Private post-GAN boosting: census tables at epsilon 1 (P5, P5a, P5b)

{core.provenance("census1940", results)}
Medians over the seeds. {core.sizes(profile)}
delta is one over twice the training rows. The pMSE ratio compares 3,000 real and 3,000 synthetic rows, shuffled 10
times; race is compared with all training rows; the error ratio is the mean over ten linear models of the error on rows
held out, after fitting synthetic rows, over that after fitting real ones. The published figures are those of the 1940
table.
"""
    ]
    for name in TABLES:
        found = [result[name] for result in results if name in result]
        if not found:
            continue
        lines = []
        for label in core.OUTPUTS:
            if name == "census1940_ca":
                lines.append([f"{label}, published", PMSE[label], RACE[label], None])
            lines.append([f"{label}, here", *_row(found, "published", label)])
        lines += [[f"{label}, own settings", *_row(found, "ours", label)] for label in found[0]["ours"]]
        lines.append(["real rows held out", *_row(found, "held out")])
        train, test = found[0]["rows"]
        falls = sum(each["published"]["PGB"]["race"] < each["published"]["GAN"]["race"] for each in found)
        parts.append(f"""## {name}: {train:,} training rows and {test:,} held out (seed 0)

{core.table_of(["", "pMSE ratio (tree)", f"TV of {' x '.join(TABLES[name].race)}", "error ratio"], lines)}

With the paper's networks the total variation of race falls from GAN to PGB in {falls} of {len(found)} seeds.
Own settings: `{express(ours(profile, TABLES[name]))}`.

![errors of ten linear models on rows held out](../../docs/images/pgb_{name}.svg)
""")
    return "\n".join(parts)


def _row(found: Sequence[Mapping[str, Any]], *path: str) -> list[float]:
    return [core.median(found, *path, figure) for figure in ("pmse", "race", "ratio")]


def picture(name: str, found: Sequence[Mapping[str, Any]]) -> str:
    """The paper's figure 2B: a line for each method over all models, of the first seed."""
    first = found[0]
    series = {"real": first["held out"]["real"]}
    series |= {label: first["published"][label]["rmse"] for label in core.OUTPUTS}
    series |= {f"{label}, own": each["rmse"] for label, each in first["ours"].items()}
    return core.parallel(series, first["held out"]["models"], f"RMSE of {TABLES[name].income}, {name}, epsilon 1")


def _draw(results: Sequence[Mapping[str, Any]]) -> None:
    for name in TABLES:
        if found := [result[name] for result in results if name in result]:
            (core.IMAGES / f"pgb_{name}.svg").write_text(picture(name, found))


def main() -> None:
    core.run("census1940", __doc__ or "", PROFILES, one, page, _draw, tables=list(TABLES))


if __name__ == "__main__":
    run_script(main)
