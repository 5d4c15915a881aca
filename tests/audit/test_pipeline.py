"""Audits of the whole pipeline: a planted break is found, sound methods are not refuted, and runs can be continued."""

import dataclasses
import importlib.resources
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks.audit import continue_runs
from tests.builders import raises
from understudy.audit.audit import audit_method, bound_files, bound_runs
from understudy.audit.audited_runs import Claim, Runs, merge_files
from understudy.audit.bounds import lower_bound
from understudy.audit.neighbours import CANARIES
from understudy.audit.observation import Observation
from understudy.audit.pipeline import AUDITED, audited_expression, make_runs, make_runs_in_parallel, make_target
from understudy.audit.scores import FEWEST_RUNS, THREATS, compute_scores, list_scores, split_runs
from understudy.certificate.audit_section import LIMITS, Audit, audits_to_json, recorded_audit, recorded_audits
from understudy.errors import ConfigError
from understudy.privacy.noise import source as noise
from understudy.synthesizers import SYNTHESIZERS, express, read_method

NUM_RUNS = 80


@pytest.fixture(name="sound", scope="module")
def _sound() -> Runs:
    """Seeded runs of a method as it is."""
    return make_runs(make_target("independent", 1.0), range(NUM_RUNS), seed=20)


@pytest.mark.parametrize("threat", THREATS)
def test_a_sound_method_is_not_refuted(sound: Runs, threat: str) -> None:
    """Seeded, so the same every time. By chance it could be refuted with a probability of 5%."""
    found = bound_runs(sound, threat)
    assert not found.refutes_claim
    assert 0.9 < found.claimed_epsilon <= 1.0
    assert found.num_runs == NUM_RUNS
    assert found.num_scores == NUM_RUNS - 2 * int(0.4 * NUM_RUNS / 2)


@pytest.fixture(name="broken", scope="module")
def _broken() -> Runs:
    """Runs whose counts have no noise. Little smoothing, so that a table of few rows shows it."""
    target = make_target("independent(smoothing=0.01)", 0.5, canary="row")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise.NoiseSource, "discrete_gaussian", lambda self, stddev, shape: np.zeros(shape, np.int64))
        return make_runs(target, range(2 * NUM_RUNS), seed=20)


@pytest.mark.parametrize("threat", THREATS)
def test_counts_without_noise_are_caught(broken: Runs, threat: str) -> None:
    """The certificates of these runs claim what they always do."""
    found = bound_runs(broken, threat)
    assert found.claimed_epsilon <= 0.5 < found.epsilon
    assert found.refutes_claim
    assert "FALSE" in found.sentence


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "canary"), [*(("independent", each) for each in CANARIES), ("adaptive", "unit"), ("adaptive", "domain")]
)
def test_no_canary_refutes_marginal_methods(method: str, canary: str) -> None:
    target = make_target(method, 1.0, canary=canary)
    runs = make_runs(target, range(500), seed=21)
    for found in (bound_runs(runs, threat, num_audits=18) for threat in THREATS):
        assert found.attainable_epsilon > 2 > found.claimed_epsilon  # else no attack could be seen
        assert not found.refutes_claim


@pytest.mark.slow
@pytest.mark.parametrize("method", list(AUDITED))
def test_every_method_can_be_audited(method: str) -> None:
    """Too few runs to refute anything: that the runs work, and that their claim is at most what was asked for."""
    runs = make_runs(make_target(method, 1.0), range(FEWEST_RUNS), seed=22)
    assert runs.num_failed == 0
    assert all(0.5 < bound_runs(runs, threat).claimed_epsilon <= 1 for threat in THREATS)


@pytest.mark.slow
def test_less_noise_is_caught_with_more_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A smaller break: a sixth of the noise is six times the mu."""
    whole = noise.NoiseSource.discrete_gaussian
    monkeypatch.setattr(
        noise.NoiseSource, "discrete_gaussian", lambda self, stddev, shape: whole(self, stddev / 6, shape)
    )
    assert audit_method("independent", epsilon=1.0, runs=1000, seed=23).refutes_claim


# -------------------------------------------------------------------------------------------------------------- methods


def test_every_method_of_the_registry_is_audited() -> None:
    assert set(AUDITED) == set(SYNTHESIZERS)
    for name, expression in AUDITED.items():
        assert audited_expression(name) == express(read_method(expression))
        assert expression.partition("(")[0] == name
    assert audited_expression("auto") == audited_expression("adaptive")


def test_an_expression_is_audited_as_it_is() -> None:
    assert audited_expression("dpgan(steps=3)") == "dpgan(steps=3)"


# ------------------------------------------------------------------------------------------------------------ runs


def test_seeded_runs_do_not_depend_on_how_they_are_divided(sound: Runs, tmp_path: Path) -> None:
    first, second = (make_runs(sound.target, each, seed=20) for each in (range(2), range(2, 5)))
    assert second.merge(first).observations == sound.observations[:5]
    path = tmp_path / "runs.json"
    continue_runs(path, sound.target, range(1, 3), seed=20)
    assert Runs.read(path).numbers == (1, 2)
    continued = continue_runs(path, sound.target, range(5), seed=20)
    assert Runs.read(path) == continued
    assert continued.observations == sound.observations[:5]
    with raises(ConfigError, setting="path"):
        continue_runs(path, make_target("mst", 1.0), range(5), seed=20)


@pytest.mark.slow
def test_seeded_runs_do_not_depend_on_the_number_of_processes(sound: Runs) -> None:
    assert make_runs_in_parallel(sound.target, 20, jobs=2, seed=20).observations == sound.observations[:20]


def test_runs_without_a_seed_differ() -> None:
    target = make_target("independent", 1.0)
    first, second = (make_runs(target, range(1)) for _ in range(2))
    assert not first.seeded
    assert first.observations != second.observations


def test_files_are_merged_by_audit(sound: Runs, tmp_path: Path) -> None:
    def part(numbers: slice) -> Runs:
        return dataclasses.replace(sound, numbers=sound.numbers[numbers], observations=sound.observations[numbers])

    for name, numbers in (("a", slice(0, 30)), ("b", slice(30, None))):
        part(numbers).write(tmp_path / f"{name}.json")
    assert merge_files([tmp_path / "b.json", tmp_path / "a.json"]) == [sound]
    with raises(ConfigError, setting="runs"):
        merge_files([tmp_path / "a.json", tmp_path / "a.json"])
    both = bound_files([tmp_path])
    assert [each.threat for each in both] == list(THREATS)
    assert {each.num_audits for each in both} == {2}


def test_making_runs_needs_neither_the_statistics_nor_opendp() -> None:
    code = (
        "import sys; sys.modules['jax_privacy'] = sys.modules['opendp'] = None\n"
        "from understudy.audit.pipeline import make_runs, make_target\n"
        "print(len(make_runs(make_target('independent', 1.0), range(2), seed=0).numbers))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "understudy-audit-runs", "format_version": 9}'])
def test_other_files_are_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(ConfigError):
        Runs.read(tmp_path / "x.json")


# --------------------------------------------------------------------------------------------------------------- scores


def random_runs(num_runs: int, seed: int, sound: Runs) -> Runs:
    """Runs whose observations do not depend on the canary: those of other runs, with numbers in random order."""
    numbers = np.random.default_rng(seed).permutation(num_runs)
    chosen = sorted(range(num_runs), key=lambda i: numbers[i])
    return dataclasses.replace(
        sound, numbers=tuple(range(num_runs)), observations=tuple(sound.observations[i] for i in chosen)
    )


def test_the_attack_is_chosen_without_the_runs_of_the_bound(sound: Runs) -> None:
    """Whatever happens in the other runs, the same score is chosen."""
    before = compute_scores(sound, "white")
    train, _ = split_runs(sound.has_canary, 0)
    shown = [sound.observations[1] if number % 2 else sound.observations[0] for number in sound.numbers]
    after = compute_scores(
        replace_observations(sound, {i: shown[i] for i in range(NUM_RUNS) if i not in train}), "white"
    )
    assert after.name == before.name
    assert len(set(after.inside)) == len(set(after.outside)) == 1  # all of a side are one observation now


def test_scores_are_trained_without_the_runs_of_the_bound(sound: Runs) -> None:
    """What some of the other runs show changes the score of no other one of them."""
    train, test = split_runs(sound.has_canary, 0)
    assert not set(train) & set(test)
    half = len(test) // 2
    changed = replace_observations(sound, {int(i): sound.observations[(i + 1) % NUM_RUNS] for i in test[:half]})
    for before, after in zip(list_scores(sound, "white"), list_scores(changed, "white"), strict=True):
        first, second = (each.values(train, test, sound.has_canary)[half:] for each in (before, after))
        np.testing.assert_array_equal(first, second, err_msg=before.name)


def replace_observations(runs: Runs, by: dict[int, Observation]) -> Runs:
    return dataclasses.replace(runs, observations=tuple(by.get(i, each) for i, each in enumerate(runs.observations)))


@pytest.mark.slow
def test_bounds_hold_as_often_as_they_say() -> None:
    """Under no difference at all every positive bound is false: at most 5% of each kind, two-sided at 1e-4.

    Bounds of discrete scores are conservative, so few are expected; none at all in 300 would be possible too.
    """
    pool = make_runs(make_target("independent", 1.0), range(200), seed=24)
    found = [bound_runs(random_runs(200, seed, pool), "black") for seed in range(300)]
    most = stats.binom.isf(1e-4, len(found), 0.05)
    assert sum(each.epsilon > 0 for each in found) <= most
    assert sum(each.mu > 0 for each in found) <= most


def test_a_run_that_failed_is_an_observation(sound: Runs) -> None:
    """A method that fails with the canary and never without it shows the canary."""
    nothing = Observation((), (), (), ())
    failing = tuple(
        nothing if number % 2 else each for number, each in zip(sound.numbers, sound.observations, strict=True)
    )
    found = bound_runs(dataclasses.replace(sound, observations=failing), "black")
    assert found.num_failed == NUM_RUNS // 2
    assert found.refutes_claim


def test_too_few_runs_are_refused(sound: Runs) -> None:
    few = dataclasses.replace(sound, numbers=sound.numbers[:40], observations=sound.observations[:40])
    with raises(ConfigError, setting="num_runs"):
        bound_runs(few, "white")
    enough = dataclasses.replace(
        sound, numbers=sound.numbers[:FEWEST_RUNS], observations=sound.observations[:FEWEST_RUNS]
    )
    assert bound_runs(enough, "black").epsilon >= 0


# -------------------------------------------------------------------------------------------------------------- records


@pytest.fixture(name="found", scope="module")
def _found(sound: Runs) -> Audit:
    return bound_runs(sound, "white")


def test_audits_are_json(found: Audit) -> None:
    content = json.loads(json.dumps(found.to_dict()))
    assert Audit.from_dict(content) == found
    assert content["command"].startswith("understudy audit --method independent --epsilon 1 --delta 0.005 ")


def test_recorded_audits_are_complete() -> None:
    """What readers see was made from the figures, and every claim is one that a certificate may state."""
    source = importlib.resources.files("understudy.certificate").joinpath("recorded_audits.json")
    assert json.loads(source.read_text(encoding="utf-8")) == audits_to_json(recorded_audits())
    for each in recorded_audits():
        assert set(each.to_dict()) == {*(field.name for field in dataclasses.fields(Audit)), *DERIVED}
        assert each.claimed_epsilon <= each.target_epsilon
        assert each.num_runs >= FEWEST_RUNS


DERIVED = ("refutes_claim", "sentence", "command")


def test_only_audits_of_this_revision_are_found(found: Audit) -> None:
    better = dataclasses.replace(found, epsilon_jointly=found.epsilon_jointly + 0.1, threat="black")
    assert recorded_audit("independent(smoothing=0.1)", [found, better]) == better
    assert recorded_audit("mst", [found]) is None
    assert recorded_audit("independent", [dataclasses.replace(found, revision=99)]) is None
    assert recorded_audit("independent", [dataclasses.replace(found, version="0.0.0")]) is None
    adaptive = dataclasses.replace(found, method="adaptive")
    assert recorded_audit("auto", [adaptive]) == adaptive


@pytest.mark.parametrize(
    ("expression", "label"),
    [
        (AUDITED["boosted"], "boosted(dpgan)"),
        (AUDITED["gem"], "gem"),
        ("quail(mst, learner=naive_bayes(numbers=gaussian))", "quail(mst)"),
        ("mst", "mst"),
    ],
)
def test_labels_leave_settings_out(found: Audit, expression: str, label: str) -> None:
    assert dataclasses.replace(found, method=expression).label == label


def test_the_claim_is_the_largest_of_all_runs() -> None:
    target = make_target("independent", 1.0)
    runs = Runs(target, seeded=True)
    for number, epsilon in enumerate((0.5, 0.7, 0.6)):
        runs = runs.with_run(number, Observation((), (), (), ()), Claim(epsilon, 0.01, "Renyi"))
    assert runs.claim == Claim(0.7, 0.01, "Renyi")


def test_runs_that_could_not_refute_a_claim_say_so(found: Audit) -> None:
    """Even a perfect attack on few runs shows little."""
    assert "could not refute" not in found.sentence
    assert "could not refute" in dataclasses.replace(found, claimed_epsilon=8.0).sentence
    perfect = lower_bound(np.ones(24), np.zeros(24), delta=0.005, seed=0).epsilon
    assert found.attainable_epsilon == pytest.approx(perfect)


def test_the_limits_are_part_of_every_output(found: Audit) -> None:
    assert "proves nothing" in LIMITS
    assert LIMITS in str(audits_to_json([found])["note"])
