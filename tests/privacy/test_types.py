"""Private rows passed for public ones do not type-check, nor public ones for private ones."""

from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parents[2]

PREAMBLE = """
from typing import Any

from jaxtyping import PRNGKeyArray

from understudy.training.gan import Hyperparameters, State, train
from understudy.training.generation import Context
from understudy.training.prepare import warm_start
from understudy.training.settings import Settings
from understudy.privacy.gradients.charges import charge_dpsgd, charge_votes
from understudy.privacy.gradients.clipping import Clip, RowLoss, clip_from_public
from understudy.privacy.mechanisms.counts import noisy_counts
from understudy.privacy.gradients.dpsgd import ChargedSteps, PublicSteps, noisy_gradient, public_gradient
from understudy.privacy.accounting.ledger import Ledger, Plan, Query
from understudy.privacy.rows.rows import PrivateRows, PrivateUnits, PublicRows, PublicUnits
from understudy.privacy.gradients.poisson import Batches
from understudy.api import _fit_model
from understudy.encoding import Codec
from understudy.encoding import fit_codec
from understudy.run.run import EncodedTable
from understudy.privacy.mechanisms.counts import noisy_size
from understudy.privacy.mechanisms.discovery import Binning
from understudy.privacy.rows.table import PrivateTable
from understudy.privacy.rows.table import PublicTable
from understudy.schema import Schema
from understudy.run.sources import TableToFit
from understudy.synthesizers.dpgan import DPGAN
from understudy.synthesizers.run import Run


def use(
    private_table: PrivateTable,
    public_table: PublicTable,
    encoded: EncodedTable,
    codec: Codec,
    data: TableToFit,
    schema: Schema,
    binning: Binning,
    private: PrivateRows,
    public: PublicRows,
    private_units: PrivateUnits,
    public_units: PublicUnits,
    charged: ChargedSteps,
    free: PublicSteps,
    query: Query,
    plan: Plan,
    ledger: Ledger,
    loss: RowLoss,
    network: object,
    clip: Clip,
    batch: Batches,
    settings: Settings,
    hyperparameters: Hyperparameters,
    context: Context,
    state: State,
    key: PRNGKeyArray,
    more: Any,
) -> None:
"""

BAD = (
    "fit_codec(public_table, schema, plan, ledger, binning)",
    "noisy_size(public_table, query, ledger)",
    "_fit_model(DPGAN(), encoded, private_table, key=key, progress=None)",
    "DPGAN().fit(Run(private, plan, ledger, key=key, public=private))",
    "DPGAN().fit(Run(public, plan, ledger, key=key))",
    "charge_dpsgd(public, query, ledger)",
    "charge_votes(public, query, ledger, num_teachers=2, num_queries=1)",
    "noisy_counts(public, [('a',)], query, ledger)",
    "PublicSteps(private_units, 0.5, 3)",
    "ChargedSteps(public_units, free.noise_multiplier, 0.5, 3)",
    "public_gradient(charged, loss, network, batch=batch, key=key)",
    "noisy_gradient(free, loss, network, clip, batch=batch, key=key)",
    "clip_from_public(loss, network, private_units, None, clip, regroup=False, key=key)",
    "train(settings, charged, hyperparameters, key, network_key=key, context=Context(public=private_units))",
    "train(settings, private_units, hyperparameters, key, network_key=key)",
    "warm_start(settings, private_units, hyperparameters, key, state, context, iterations=1)",
    "data.given.mean()",  # the frame itself is not kept
    "data.given.shape[0]",
)

GOOD = (
    "fit_codec(private_table, schema, plan, ledger, binning)",
    "noisy_size(private_table, query, ledger)",
    "_fit_model(DPGAN(), encoded, public_table, key=key, progress=None)",
    "DPGAN().fit(Run(private, plan, ledger, key=key, public=public))",
    "charge_dpsgd(private, query, ledger)",
    "charge_votes(private, query, ledger, num_teachers=2, num_queries=1)",
    "noisy_counts(private, [('a',)], query, ledger)",
    "PublicSteps(public_units, 0.5, 3)",
    "ChargedSteps(private_units, free.noise_multiplier, 0.5, 3)",
    "public_gradient(free, loss, network, batch=batch, key=key)",
    "noisy_gradient(charged, loss, network, clip, batch=batch, key=key)",
    "clip_from_public(loss, network, public_units, None, clip, regroup=False, key=key)",
    "train(settings, charged, hyperparameters, key, network_key=key, context=Context(public=public_units))",
    "train(settings, free, hyperparameters, key, network_key=key)",
    "warm_start(settings, public_units, hyperparameters, key, state, context, iterations=1)",
)


def test_private_and_public_rows_cannot_be_swapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One error of a type in each bad line, and none in the good ones."""
    bad, good = tmp_path / "bad_example.py", tmp_path / "good_example.py"
    for path, lines in ((bad, BAD), (good, GOOD)):
        path.write_text(PREAMBLE + "".join(f"    {line}\n" for line in lines))
    monkeypatch.setenv("MYPYPATH", str(ROOT / "src"))
    monkeypatch.chdir(ROOT)
    told, problems, _ = api.run(["--follow-imports=silent", "--hide-error-context", str(bad), str(good)])
    assert not problems
    errors = [line for line in told.splitlines() if ": error:" in line]
    assert not [line for line in errors if "good_example" in line], told
    first = PREAMBLE.count("\n") + 1
    found = {int(line.split(":")[1]) - first for line in errors if "[arg-type]" in line or "[attr-defined]" in line}
    assert found == set(range(len(BAD))), told
    assert len(errors) == len(BAD), told
