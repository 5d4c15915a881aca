"""Runs a pipeline of dpmm on the codes of a task."""

import json
import sys
from pathlib import Path


def main(path: str) -> None:
    import pandas as pd
    from dpmm import pipelines

    task = json.loads(Path(path).read_text())
    kind = {"mst": "MSTPipeline", "aim": "AIMPipeline", "privbayes": "PrivBayesPipeline"}[task["method"]]
    # The codes are the bins: without its processing, the pipeline takes the domain that it is given.
    pipeline = getattr(pipelines, kind)(
        epsilon=task["epsilon"], delta=task["delta"], disable_processing=True, **task["arguments"]
    )
    pipeline.fit(pd.read_csv(task["codes"]), domain=task["sizes"], random_state=task["seed"])
    synthetic = pipeline.generate(n_records=task["num_rows"], random_state=task["seed"])
    synthetic[list(task["sizes"])].astype(int).to_csv(task["output"], index=False)


if __name__ == "__main__":
    main(sys.argv[1])
