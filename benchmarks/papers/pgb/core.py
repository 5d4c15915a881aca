"""What the experiments of the boosting paper share: one training that serves several outputs, and how results are told.

Neunhoeffer, Wu and Dwork, "Private Post-GAN Boosting", 2021. The outputs are GAN (the last generator), DRS (its rows
rejected by the last critic), PGB (boosted rows) and PGB+DRS (boosted rows rejected by the mixture of picked critics).
Without privacy all four come from one training. With privacy GAN and DRS have the whole budget, and PGB and PGB+DRS
share one other training and one game, so that neither pair looks at the rows twice.
"""

import argparse
import dataclasses
import datetime
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
from jaxtyping import PRNGKeyArray

import understudy as us
from understudy.adversarial.pools import Pool
from understudy.boosting import distinct, judged, rejection_sample
from understudy.privacy.ledger import Budget, Ledger, Plan
from understudy.privacy.mechanisms import Rows
from understudy.schema import Domain
from understudy.synthesizers.boosted import Boosted
from understudy.synthesizers.dpgan import DPGAN
from understudy.synthesizers.drs import DRS

ROOT = Path(__file__).parents[3]
RESULTS, IMAGES, SCHEMAS = ROOT / "benchmarks/results", ROOT / "docs/images", ROOT / "benchmarks/schemas"
OUTPUTS = ("GAN", "DRS", "PGB", "PGB+DRS")
BINNING = us.Binning(bins="uniform")
"""Nothing is bought for bins: the published networks see numbers as numbers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Profile:
    """How large a run is."""

    seeds: int
    steps: int
    checkpoints: int
    every: int
    samples_per_generator: int
    rounds: int
    proposals: int
    """Rows of the last generator among which DRS chooses."""
    max_rows: int | None = None
    """Real rows that are used; None: all."""
    minutes: float | None = None
    """No repetition begins later than this."""

    def boosted(self, inner: DPGAN, share: float = 0.2, **settings: Any) -> Boosted:
        return Boosted(
            inner,
            rounds=self.rounds,
            checkpoints=self.checkpoints,
            every=self.every,
            samples_per_generator=self.samples_per_generator,
            share=share,
            **settings,
        )


# ------------------------------------------------------------------------------------------------------------ trainings


@dataclasses.dataclass(frozen=True)
class OneTraining:
    """A method for `us.fit` that trains once and makes several models of it."""

    boosted: Boosted
    outputs: tuple[str, ...]
    proposals: int

    @property
    def boosts(self) -> bool:
        return any(name.startswith("PGB") for name in self.outputs)

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        return self.boosted.plan(domain, budget) if self.boosts else self.boosted.inner.plan(domain, budget)

    def fit(self, rows: Rows, plan: Plan, ledger: Ledger, *, key: PRNGKeyArray, progress: Any = None) -> dict[str, Any]:
        """Formal guarantee: the price of the plan's looks. All that is made of one trajectory and one sequence of picks
        is post-processing of both."""
        kept = _Remembered(self.boosted.inner, self.boosted.checkpoints if self.boosts else 1, self.boosted.every)
        method = dataclasses.replace(self.boosted, inner=kept)
        models: dict[str, Any] = {}
        if self.boosts:
            models |= _boosted_both(method, rows, plan, ledger, key)
        if "GAN" in self.outputs:
            drs = DRS(kept, proposals=self.proposals)
            models["DRS"] = drs.fit(rows, plan, ledger, key=key)
            models["GAN"] = kept.made[-1].models[-1]
        return {name: models[name] for name in self.outputs}


class _Remembered:
    """A method whose one training is handed to everyone who asks: what it left is free to use again."""

    def __init__(self, inner: DPGAN, checkpoints: int, every: int):
        self.inner, self.checkpoints, self.every = inner, checkpoints, every
        self.made: list[Any] = []

    def plan(self, domain: Domain, budget: Budget) -> Plan:
        return self.inner.plan(domain, budget)

    def num_checkpoints(self, every: int) -> int:
        return self.inner.num_checkpoints(every)

    def trajectory(self, rows: Rows, plan: Plan, ledger: Ledger, *, key: Any, checkpoints: int, every: int, **more: Any):
        """The last checkpoints of the one training; its end is the same whichever were kept before it."""
        if not self.made:
            arguments = {"key": key, "checkpoints": self.checkpoints, "every": self.every, **more}
            self.made.append(self.inner.trajectory(rows, plan, ledger, **arguments))
        whole = self.made[0]
        if checkpoints >= len(whole.models):
            return whole
        last = lambda rows: whole.critics(rows)[:, -checkpoints:]  # noqa: E731
        return dataclasses.replace(whole, models=whole.models[-checkpoints:], critics=last)
