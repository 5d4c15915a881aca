"""White-box audits of the stages that methods share: noisy marginals and DP-SGD.

    python benchmarks/audit_stages.py [--runs 20000] [--trainings 50000] [--canaries 5000] [--seed 0] [--write]

Each lower bound holds with 95% confidence by itself. A bound above the claim would refute it (once in twenty such
figures by chance); a bound far below it shows that an attacker who sees all noisy answers could still be stronger.
"""

import argparse
import datetime
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "src")]

DELTA = 1e-2
"""The largest that a table of 100 rows may have: audits are published at it, as it needs the fewest runs."""
TRAININGS = ((1.0, 20), (0.25, 20), (0.05, 100))
"""Sampling rates and steps."""
ONE_RUN_EPSILONS, ONE_RUN_DELTA = (1.0, 2.0, 4.0, 8.0), 1e-4


def main(arguments: argparse.Namespace) -> None:
    command = (
        f"python benchmarks/audit_stages.py --runs {arguments.runs} --trainings {arguments.trainings} "
        f"--canaries {arguments.canaries} --seed {arguments.seed} --write"
    )
    lines = [
        "# Audits of the stages",
        "",
        f"`{command}`, {datetime.date.today()}, {platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}.",
        "",
        "Lower bounds on the privacy cost of each stage; the attacker sees every noisy answer and knows the canary.",
        "Each holds with 95% confidence by itself. None of them proves a claim; one above it would refute it.",
        "",
    ]
    for section in (query_section, training_section, one_run_section):
        for line in section(arguments):
            print(line, flush=True)
            lines.append(line)
    if arguments.write:
        (HERE / "results" / "audit_stages.md").write_text("\n".join(lines).rstrip() + "\n")


def query_section(arguments: argparse.Namespace) -> Iterator[str]:
    from benchmarks.stage_audits.queries import STAGES, audit_queries
    from understudy.privacy.accounting.ledger import Guarantee

    yield "## Noisy marginals"
    yield ""
    yield f"{arguments.runs:,} runs with the row and {arguments.runs:,} without it, epsilon 1, delta {DELTA:g}. All of"
    yield "the budget is for the 1-way marginals. The claimed mu is that of the charged event."
    yield ""
    yield "| mechanism | used by | claimed mu | lower bound of mu | fraction | lower bound of epsilon |"
    yield "|---|---|---:|---:|---:|---:|"
    for name, stage in STAGES.items():
        found = audit_queries(name, Guarantee(1.0, DELTA), num_runs=arguments.runs, seed=arguments.seed)
        yield (
            f"| {name} | {stage.used_by} | {found.claimed_mu:.3f} | {found.bound.mu:.3f} | {found.fraction:.3f} | "
            f"{found.bound.epsilon:.3f} |"
        )
    yield ""


def training_section(arguments: argparse.Namespace) -> Iterator[str]:
    from benchmarks.stage_audits.training import Training, audit_runs
    from understudy.privacy.accounting.accountants import gaussian_epsilon
    from understudy.privacy.accounting.ledger import Guarantee

    yield "## DP-SGD, many trainings"
    yield ""
    yield f"{arguments.trainings:,} trainings with the canary and {arguments.trainings:,} without it, epsilon 1, delta"
    yield f"{DELTA:g}. The lower bound is Clopper-Pearson's at one threshold. The last column is the epsilon of the"
    yield "Gaussian curve whose mu is refuted: a bound of epsilon only where the curve of the training is Gaussian,"
    yield "as it is at a sampling rate of 1."
    yield ""
    yield "| sampling rate | steps | noise multiplier | claimed epsilon | lower bound | of a Gaussian curve |"
    yield "|---:|---:|---:|---:|---:|---:|"
    for rate, num_steps in TRAININGS:
        training = Training(sampling_rate=rate, num_steps=num_steps)
        found = audit_runs(Guarantee(1.0, DELTA), training, num_runs=arguments.trainings, seed=arguments.seed)
        yield (
            f"| {rate:g} | {num_steps} | {found.noise_multiplier:.3f} | 1 | {found.bound.epsilon:.3f} | "
            f"{gaussian_epsilon(1 / found.bound.mu, DELTA) if found.bound.mu else 0.0:.3f} |"
        )
    yield ""


def one_run_section(arguments: argparse.Namespace) -> Iterator[str]:
    from benchmarks.stage_audits.training import Training, audit_one_run
    from understudy.privacy.accounting.ledger import Guarantee

    training = Training()
    yield "## DP-SGD, one training"
    yield ""
    yield f"{arguments.canaries:,} canaries, each a unit with a gradient direction of its own, in the table by a fair"
    yield f"coin; sampling rate {training.sampling_rate:g}, {training.num_steps} steps, delta {ONE_RUN_DELTA:g}."
    yield "The claim is the guarantee of each unit alone. Bounds from one run are looser than those from many: the test"
    yield "must allow for any dependence between canaries. The third column is the epsilon of the Gaussian curve whose"
    yield "mu is refuted. The curve of a training on samples is not Gaussian, so comparing it with the claim is"
    yield "indicative only: a fraction above 1 would not refute the claim."
    yield ""
    yield "| claimed epsilon | noise multiplier | of a Gaussian curve | fraction of the claim |"
    yield "|---:|---:|---:|---:|"
    for epsilon in ONE_RUN_EPSILONS:
        guarantee = Guarantee(epsilon, ONE_RUN_DELTA)
        found = audit_one_run(guarantee, training, num_canaries=arguments.canaries, seed=arguments.seed)
        yield (
            f"| {epsilon:g} | {found.noise_multiplier:.3f} | {found.bound.epsilon:.3f} | "
            f"{found.bound.epsilon / epsilon:.3f} |"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20_000, help="of each mechanism, on each side")
    parser.add_argument("--trainings", type=int, default=50_000, help="on each side")
    parser.add_argument("--canaries", type=int, default=5_000, help="of one training")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    main(parser.parse_args())
