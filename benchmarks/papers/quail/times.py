"""Steps and seconds by fraction of the budget (table 1): with a fixed noise multiplier a smaller budget ends sooner.

    python benchmarks/papers/quail/times.py --profile paper --write [--fit]

The paper's DPGAN and DP-CTGAN with their noise multipliers, by themselves and inside QUAIL, on made classes of 10,000
rows. The number of steps is part of the plan, so it needs no training; with --fit every one is also fitted, alone, and
timed.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

import understudy as us
from benchmarks.papers.command import run_script
from benchmarks.papers.experiment import machine, table_of
from benchmarks.papers.published import quail_dpctgan, quail_dpgan_published
from benchmarks.papers.quail import core
from understudy.learners.methods import NaiveBayes
from understudy.privacy.accounting.events import SubsampledGaussian

PUBLISHED = {
    ("dpgan", 0.0): {3.0: "1130", 6.0: "3950"},
    ("dpgan", 0.5): {3.0: "305"},
    ("dpgan", 0.9): {6.0: "58"},
    ("dpctgan", 0.0): {3.0: "15689", 6.0: "24808"},
    ("dpctgan", 0.5): {3.0: "4478"},
    ("dpctgan", 0.9): {3.0: "199?", 6.0: "759"},
}
"""Seconds on the paper's classification table; what is missing is illegible."""
FEATURES = 17
"""Seven numbers and ten classes: the widths of DPGAN's critic follow from it."""
PROFILES: dict[str, dict[str, Any]] = {
    "smoke": {"rows": 1000, "methods": ("dpgan",), "fractions": (0.0, 0.9), "epsilons": (3.0,)},
    "paper": {"rows": 10_000, "methods": ("dpgan", "dpctgan"), "fractions": (0.0, 0.5, 0.9), "epsilons": (3.0, 6.0)},
}


def method_of(name: str, fraction: float, num_rows: int) -> us.Synthesizer:
    inner = quail_dpgan_published(FEATURES, num_rows) if name == "dpgan" else quail_dpctgan(num_rows)
    if not fraction:
        return inner
    return us.Quail(inner, learner=NaiveBayes(numbers="gaussian"), learner_fraction=fraction)


def run_cell(name: str, fraction: float, epsilon: float, num_rows: int, *, fit: bool) -> dict[str, Any]:
    public = core.load_classes(f"classes_{num_rows}", 0)
    train, schema = public.train, public.schema
    method, guarantee = method_of(name, fraction, num_rows), us.Guarantee(epsilon, core.DELTA)
    plan = us.plan(schema, method, guarantee, binning=core.BINNING)
    steps = max(query.event.steps for query in plan if isinstance(query.event, SubsampledGaussian))
    line: dict[str, Any] = {"method": name, "fraction": fraction, "epsilon": epsilon, "rows": num_rows, "steps": steps}
    if fit:
        began = time.monotonic()
        us.fit(train, method, guarantee, schema=schema, binning=core.BINNING, seed=0).sample_arrow(1000, seed=0)
        line["seconds"] = round(time.monotonic() - began, 1)
    return line | {"machine": machine()}


def page(lines: Sequence[dict[str, Any]]) -> str:
    rows = [
        [
            f"{line['method']}, {_where(line['fraction'])}, epsilon {line['epsilon']:g}",
            PUBLISHED.get((line["method"], line["fraction"]), {}).get(line["epsilon"], ""),
            f"{line['steps']:,}",
            line.get("seconds"),
        ]
        for line in lines
    ]
    machines = " and ".join(sorted({line["machine"] for line in lines}))
    return f"""# Steps and seconds by fraction of the learner

`python benchmarks/papers/quail/times.py --profile paper --write --fit`, {machines}, beside other programs.
Seeded runs on public data; delta {core.DELTA:g}; {lines[0]["rows"]:,} rows of made classes. The paper's DPGAN and
DP-CTGAN with their noise multipliers, until the budget is used: the number of steps is that of the plan. Seconds are of
fit and sample, compilation included; the published ones are of another table and another machine.

{table_of(["", "published, seconds", "steps", "seconds"], rows)}
"""


def _where(fraction: float) -> str:
    return f"in QUAIL with fraction {fraction:g}" if fraction else "by itself"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", choices=list(PROFILES), default="smoke")
    parser.add_argument("--fit", action="store_true", help="also fit, one after the other, and take the time")
    parser.add_argument("--write", action="store_true", help="write the result file and the page")
    found = parser.parse_args()
    profile = PROFILES[found.profile]
    lines = [
        run_cell(name, fraction, epsilon, profile["rows"], fit=found.fit)
        for name in profile["methods"]
        for epsilon in profile["epsilons"]
        for fraction in profile["fractions"]
    ]
    if found.write:
        (core.RESULTS / "quail_times.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (core.RESULTS / "quail_times.md").write_text(page(lines))
    print(page(lines))


if __name__ == "__main__":
    run_script(main)
