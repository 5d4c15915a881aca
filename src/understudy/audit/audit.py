"""`audit_method`: attack a method of this software in many runs, and bound its privacy cost from below."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

from understudy.audit.audited_runs import Runs, merge_files
from understudy.audit.bounds import FEWEST_SCORES, gaussian_mu, lower_bound
from understudy.audit.neighbours import DEFAULT_CANARY, make_neighbours
from understudy.audit.pipeline import make_runs_in_parallel, make_target
from understudy.audit.scores import THREATS, check_num_runs, check_threat, compute_scores
from understudy.certificate.audit_section import Audit
from understudy.errors import ConfigError
from understudy.progress import ShowProgress, open_progress

CONFIDENCE = 0.95
SPLIT_SEED = 0
"""Splits runs for training and for thresholds. It does not affect their noise."""


def audit_method(
    method: str,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    runs: int = 500,
    threat: str = "white",
    canary: str = DEFAULT_CANARY,
    seed: int | None = None,
    jobs: int = 1,
    save: str | os.PathLike[str] | None = None,
    progress: ShowProgress = None,
) -> Audit:
    """Attack a method of this software: runs with and without a canary, and lower bounds on its privacy cost.

    Each run is the whole pipeline: a CSV file is read, fitted at this guarantee and released as a folder, which is
    read back and sampled. The table is made up, so this is a property of the software, not of anyone's data. A bound
    above the claim refutes it, at the stated confidence. A bound below it proves nothing.

    Args:
        method: A name, which is run with small settings, or an expression, which is audited as given.
        epsilon: The epsilon of each run.
        delta: Its delta.
        runs: The number of runs.
        threat: "white": the attack sees the release folder. "black": it sees a synthetic table.
        canary: One of "category", "row", "combination", "bound", "outside", "unit" and "domain".
        seed: Makes the runs reproducible. Default: their noise is secure.
        jobs: The number of processes.
        save: A file for the scores of the runs.
        progress: True for a progress bar, or a function of the fraction done and a string.

    Returns:
        The audit, with its bounds and whether one of them refutes the claim.

    Raises:
        ConfigError: An argument cannot be honoured.

    >>> audit_method("independent", epsilon=1, runs=80, seed=0).refutes_claim
    False
    """
    check_threat(threat)
    check_num_runs(runs)
    target = make_target(method, epsilon, delta, canary)
    _require_statistics()
    with open_progress(progress, "auditing") as show:
        report = None if show is None else (lambda done: show(done / runs, f"run {done} of {runs}"))
        made = make_runs_in_parallel(target, runs, jobs=jobs, seed=seed, report=report)
    if save is not None:
        made.write(save)
    return bound_runs(made, threat)


def _require_statistics() -> None:
    """Refuses a missing extra before the runs are made, not after them."""
    scores = np.arange(float(FEWEST_SCORES))
    lower_bound(scores, scores, delta=0.01, seed=SPLIT_SEED)


def bound_runs(runs: Runs, threat: str, *, num_audits: int = 1, confidence: float = CONFIDENCE) -> Audit:
    """The lower bounds that runs show: on epsilon at the claimed delta, and on mu.

    Each holds with `confidence` by itself. The claim is refuted only by a bound that is so low that those of all
    `num_audits` audits made together hold with `confidence` (Bonferroni).
    """
    if runs.claim is None:
        raise ConfigError(f"No run of {runs.target.method} made a release, so there is no claim to audit.")
    scores = compute_scores(runs, threat, seed=SPLIT_SEED)
    claim, jointly = runs.claim, 1 - (1 - confidence) / num_audits
    perfect = np.ones(len(scores.inside)), np.zeros(len(scores.outside))
    bound, joint_bound, attainable = (
        lower_bound(*pair, delta=claim.delta, confidence=level, seed=SPLIT_SEED)
        for pair, level in (
            ((scores.inside, scores.outside), confidence),
            ((scores.inside, scores.outside), jointly),
            (perfect, jointly),
        )
    )
    labels = np.repeat([1, 0], [len(scores.inside), len(scores.outside)])
    return Audit(
        method=runs.target.method,
        revision=runs.revision,
        version=runs.version,
        date=runs.date,
        canary=runs.target.canary,
        canary_description=make_neighbours(runs.target.canary).what,
        threat=threat,
        target_epsilon=runs.target.epsilon,
        claimed_epsilon=claim.epsilon,
        claimed_delta=claim.delta,
        accountant=claim.accountant,
        claimed_mu=gaussian_mu(claim.epsilon, claim.delta),
        num_runs=len(runs.numbers),
        num_failed=runs.num_failed,
        seeded=runs.seeded,
        seed=runs.seed,
        score=scores.name,
        num_scores=len(scores.inside) + len(scores.outside),
        auc=float(roc_auc_score(labels, np.concatenate([scores.inside, scores.outside]))),
        epsilon=bound.epsilon,
        mu=bound.mu,
        epsilon_jointly=joint_bound.epsilon,
        attainable_epsilon=attainable.epsilon,
        confidence=confidence,
        num_audits=num_audits,
    )


def bound_files(paths: Sequence[str | os.PathLike[str]], threats: Sequence[str] | None = None) -> list[Audit]:
    """Audits of the runs in these files (for a folder: all its `.json` files), for each threat, by default both.

    Files with parts of one audit are merged. A claim is refuted at the joint confidence of 95%.
    """
    threats = THREATS if threats is None else threats
    for threat in threats:
        check_threat(threat)
    files = [file for path in paths for file in _files_of(Path(path))]
    merged = merge_files(files)
    num_audits = len(merged) * len(threats)
    return [bound_runs(runs, threat, num_audits=num_audits) for runs in merged for threat in threats]


def _files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.json"))
    if not files:
        raise ConfigError(f"{path} has no .json file. Name a folder of audit runs, or the files.")
    return files
