"""The private critic step of `critic_step.py` by Opacus' ghost clipping, its fastest mode, and the plain one in torch.

    python benchmarks/critic_step_opacus.py '{"rows": 999, "features": 106, "batch": 50, "steps": 5, "repeats": 5}'

Runs in an environment of its own and needs nothing of Understudy. Poisson batches are drawn as masks of the rows, in
one call: Opacus' loader takes rows one by one, which costs more than the step. Prints seconds as JSON.
"""

import argparse
import itertools
import json
import sys
import time
import warnings
from collections.abc import Callable

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("task", type=json.loads, help="rows, features, batch, steps and repeats, as JSON")
given = parser.parse_args()  # before the imports, so that --help needs no package

try:
    import opacus
    import torch
    from torch import nn
except ImportError:
    sys.exit("Opacus is not installed here. pip install opacus torch")

CLIP, NOISE_MULTIPLIER, LEARNING_RATE = 1.0, 1.0, 4e-4


def critic(features: int) -> nn.Module:
    widths, layers = (features, 256, 256), []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Linear(256, 1))


def stepper(rows: torch.Tensor, batch: int, *, private: bool) -> Callable[[], None]:
    network, loss = critic(rows.shape[1]), nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, betas=(0.5, 0.9))
    if private:
        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), batch_size=batch)
        network, optimizer, loss, _ = opacus.PrivacyEngine().make_private(
            module=network,
            optimizer=optimizer,
            criterion=loss,
            data_loader=data,
            noise_multiplier=NOISE_MULTIPLIER,
            max_grad_norm=CLIP,
            poisson_sampling=False,
            grad_sample_mode="ghost",
        )

    def drawn_at() -> torch.Tensor:
        return torch.rand(len(rows)) < batch / len(rows) if private else torch.randint(len(rows), (batch,))

    def step() -> None:
        drawn = rows[drawn_at()]
        optimizer.zero_grad()
        loss(network(drawn), torch.ones(len(drawn), 1)).backward()
        optimizer.step()

    return step


def main() -> None:
    warnings.simplefilter("ignore")
    task = given.task
    torch.manual_seed(0)
    rows = torch.rand(task["rows"], task["features"])
    steps = {
        "private": stepper(rows, task["batch"], private=True),
        "plain": stepper(rows, task["batch"], private=False),
    }
    seconds: dict[str, list[list[float]]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    for _ in range(task["repeats"]):
        for name, step in steps.items():
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(task["steps"]):
                step()
            spent = time.perf_counter() - wall, time.process_time() - cpu
            seconds[name].append([each / task["steps"] for each in spent])
    versions = f"Opacus {opacus.__version__}, torch {torch.__version__}"
    print(json.dumps({"versions": versions, "seconds": seconds}))


if __name__ == "__main__":
    main()
