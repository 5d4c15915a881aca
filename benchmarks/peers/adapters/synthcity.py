"""Runs a private plugin of synthcity on the codes of a task."""

import importlib
import json
import sys
from pathlib import Path
from unittest import mock

UNUSED = ("torchvision", "tsai", "tsai.models", *(f"tsai.models.{name}" for name in (
    "InceptionTime", "InceptionTimePlus", "OmniScaleCNN", "ResCNN", "RNN_FCN", "TCN", "TransformerModel", "XCM",
    "XceptionTime",
)))  # fmt: skip
"""What the package imports for images and time series. Its wheels do not load with a CPU build of torch."""


def main(path: str) -> None:
    sys.modules.update({name: mock.MagicMock() for name in UNUSED})
    import numpy as np
    import pandas as pd
    from synthcity.plugins.core.dataloader import GenericDataLoader
    from synthcity.plugins.core.models.tabular_encoder import TabularEncoder
    from synthcity.utils.reproducibility import enable_reproducible_results

    task = json.loads(Path(path).read_text())
    enable_reproducible_results(task["seed"])
    sizes = task["sizes"]
    # Fitted to a made-up table that contains every code, so that no domain is read off the data.
    public = pd.DataFrame({name: np.arange(max(sizes.values())) % size for name, size in sizes.items()})
    encoder = TabularEncoder().fit(public, discrete_columns=list(sizes))
    module = importlib.import_module(f"synthcity.plugins.privacy.plugin_{task['method']}")
    budget = {"epsilon": task["epsilon"], "delta": task["delta"]}
    plugin = module.plugin(**budget, encoder=encoder, random_state=task["seed"], **task["arguments"])
    plugin.fit(GenericDataLoader(pd.read_csv(task["codes"]), target_column=task["target"]))
    synthetic = plugin.generate(count=task["num_rows"]).dataframe()
    synthetic[list(sizes)].astype(int).to_csv(task["output"], index=False)


if __name__ == "__main__":
    main(sys.argv[1])
