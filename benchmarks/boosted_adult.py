"""Whether boosting helps DPGAN on Adult at the same total epsilon: 2-way error and pMSE ratio, seed by seed.

    UNDERSTUDY_DATA=folder python benchmarks/boosted_adult.py --seeds 0 1 2 --out benchmarks/results/boosted_adult.jsonl

Lines are appended, so that a run can be cut and continued. Seeded, on public data: repeatable, and not private.
"""

import argparse
import json
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "src"))
METHODS = {
    "dpgan": "dpgan",
    "boosted": "boosted(dpgan)",
    "boosted, critics alone": "boosted(dpgan, distinguishers=none)",
}


def main() -> None:
    import understudy as us
    from understudy.benchmark.tables import load_table

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    table = load_table("adult")
    schema = table.schema
    for seed in arguments.seeds:
        for name in arguments.methods:
            began = time.process_time()
            method = METHODS.get(name, name)
            release = us.fit(table.train, method, us.Guarantee(1.0, 1e-5), schema=schema, seed=seed)
            fake = release.sample(table.train.num_rows, seed=seed)
            seconds = time.process_time() - began
            card = us.evaluate(table.train, {"fake": fake}, schema=schema, metrics=["tv2", "pmse_logit_ratio"])
            found = {entry["key"]: entry["values"]["fake"]["value"] for entry in card.to_json()["metrics"]}
            line = {"seed": seed, "method": method, "cpu": round(seconds), **found}
            print(line, flush=True)
            with arguments.out.open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
