"""One method at many budgets and seeds on a public table, trained as one program: how long it takes.

    UNDERSTUDY_DATA=folder python benchmarks/population.py --table adult --method dpgan --seeds 12 --write

Seeded, on public data: repeatable, and not private.
"""

import argparse
import datetime
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "src"))
EPSILONS = (0.01, 0.1, 0.5, 1.0, 3.0, 6.0, 9.0)
DELTA = 1e-5


def main(arguments: argparse.Namespace) -> None:
    began = time.perf_counter()
    import jax

    import understudy as us
    from understudy.benchmark.population import Population, fit_population
    from understudy.benchmark.tables import load_table

    table = load_table(arguments.table)
    members = [
        (us.Guarantee(epsilon, DELTA), seed) for epsilon in arguments.epsilons for seed in range(arguments.seeds)
    ]
    population: Population = Population()
    binning = us.Binning(bins=arguments.bins)
    loaded = time.perf_counter()
    releases = fit_population(
        table.train, table.schema, arguments.method, members, binning=binning, population=population
    )
    fitted = time.perf_counter()
    failed = [release for release in releases if isinstance(release, Exception)]
    for release, (_, seed) in zip(releases, members, strict=True):
        if not isinstance(release, Exception):
            release.sample_arrow(table.train.num_rows, seed=seed)
    sampled = time.perf_counter()
    device = jax.devices()[0].device_kind
    options = f"--table {arguments.table} --method '{arguments.method}' --bins {arguments.bins}"
    lines = [
        f"# {len(members)} fits of {arguments.method} on {arguments.table} at once",
        "",
        f"`python benchmarks/population.py {options} --seeds {arguments.seeds} --write`, {datetime.date.today()}, "
        f"{device}, JAX {jax.__version__}.",
        "",
        f"Epsilon {', '.join(map(str, arguments.epsilons))}, {arguments.seeds} seeds each; {len(failed)} failed. Each "
        f"sampled to {table.train.num_rows:,} rows of {table.train.num_columns} columns.",
        "",
        "| | seconds |",
        "|---|---:|",
        f"| loading | {loaded - began:.1f} |",
        f"| planning, compiling and training | {fitted - loaded:.1f} |",
        f"| sampling | {sampled - fitted:.1f} |",
        f"| together | {sampled - began:.1f} |",
        "",
        "| program | members at once | calls |",
        "|---|---:|---:|",
        *(f"| {name} | {size} | {count} |" for (name, size), count in sorted(population.groups.items())),
    ]
    print("\n".join(lines))
    for error in failed[:3]:
        print(error)
    if arguments.write:
        name = "".join(c if c.isalnum() else "_" for c in device.lower())
        (HERE / "results" / f"population_{name}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", default="adult")
    parser.add_argument("--method", default="dpgan")
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--bins", choices=["tree", "equal", "uniform"], default="uniform")
    parser.add_argument("--write", action="store_true")
    main(parser.parse_args())
