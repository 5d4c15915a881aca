"""Runs a synthesizer of smartnoise-synth on the codes of a task."""

import json
import random
import sys
from pathlib import Path


def main(path: str) -> None:
    import numpy as np
    import pandas as pd
    import torch
    from snsynth import Synthesizer
    from snsynth.transform.table import TableTransformer

    task = json.loads(Path(path).read_text())
    method, sizes, arguments = task["method"], task["sizes"], dict(task["arguments"])
    random.seed(task["seed"])
    np.random.seed(task["seed"])
    torch.manual_seed(task["seed"])
    # Fitted to a made-up table that contains every code, so that no domain is read off the data.
    public = pd.DataFrame({name: np.arange(max(sizes.values())) % size for name, size in sizes.items()})
    style = "gan" if method.endswith("gan") else "cube"
    transformer = TableTransformer.create(public, style=style, categorical_columns=list(sizes))
    transformer.fit(public)
    if method == "mwem":  # pure epsilon; one histogram for each group of columns
        arguments["splits"], cells = [], arguments.pop("max_cells")
        for index, size in enumerate(sizes.values()):
            group = arguments["splits"][-1] if index else []
            if not index or np.prod([list(sizes.values())[i] for i in group]) * size > cells:
                arguments["splits"].append([index])
            else:
                group.append(index)
    else:
        arguments["delta"] = task["delta"]
    synthesizer = Synthesizer.create(method, epsilon=task["epsilon"], **arguments)
    synthesizer.fit(pd.read_csv(task["codes"]), transformer=transformer)
    pd.DataFrame(synthesizer.sample(task["num_rows"]), columns=list(sizes)).to_csv(task["output"], index=False)


if __name__ == "__main__":
    main(sys.argv[1])
