"""Planted defects must be found, and the detectors that find them must find nothing in the code as it is."""

from pathlib import Path

import pytest
from scipy import stats

from tests.audit.catalogue import DEFECTS, DETECTORS, defects_page
from tests.audit.detectors import LEVEL, Detector
from tests.audit.plant import planted

ROOT = Path(__file__).parents[2]
SEED = 11
REPEATS, LOUD = 200, 0.05
"""Runs of each statistical detector on sound code, at a level at which some must raise an alarm."""

pytestmark = pytest.mark.made_up_figures(reason="some defects are planted in the accountant")


def _marks(detector: Detector) -> list[pytest.MarkDecorator]:
    return [] if detector.is_quick else [pytest.mark.audit, pytest.mark.slow]


@pytest.mark.parametrize(
    "name", [pytest.param(each.name, marks=_marks(DETECTORS[each.detector])) for each in DEFECTS.values()]
)
def test_a_planted_defect_is_found(name: str) -> None:
    defect = DEFECTS[name]
    with planted(defect.plant):
        found = DETECTORS[defect.detector].find(SEED, LEVEL)
    assert found


@pytest.mark.parametrize("name", [pytest.param(each.name, marks=_marks(each)) for each in DETECTORS.values()])
def test_a_detector_finds_nothing_in_sound_code(name: str) -> None:
    """With the seed that finds every defect."""
    assert DETECTORS[name].find(SEED, LEVEL) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [each.name for each in DETECTORS.values() if each.is_statistical])
def test_false_alarms_are_as_rare_as_stated(name: str) -> None:
    """200 seeds at a level of 0.05: at most as many alarms as a binomial allows, and for exact tests no fewer; a sound
    detector fails this with probability 1e-4."""
    detector = DETECTORS[name]
    alarms = sum(bool(detector.find(seed, LOUD)) for seed in range(REPEATS))
    side = "two-sided" if detector.is_exact else "greater"
    assert stats.binomtest(alarms, REPEATS, LOUD, alternative=side).pvalue > 1e-4, alarms


def test_every_detector_has_a_defect_to_find() -> None:
    """A detector that has never found anything proves little."""
    assert {defect.detector for defect in DEFECTS.values()} == set(DETECTORS)


def test_the_page_of_defects_is_up_to_date() -> None:
    """Write it with `python -m tests.audit.catalogue`."""
    assert (ROOT / "docs" / "defects.md").read_text() == defects_page()
