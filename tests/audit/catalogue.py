"""All detectors and defects by name, and the page that lists them: `python -m tests.audit.catalogue` writes it."""

from pathlib import Path

from tests.audit import defects, detectors, query_defects, run_detectors, training_defects, training_detectors
from tests.audit.defects import Defect
from tests.audit.detectors import Detector

PAGE = Path(__file__).parents[2] / "docs" / "defects.md"
GROUPS = {
    "Facts and units": defects.DEFECTS,
    "Queries and accounting": query_defects.DEFECTS,
    "Training": training_defects.DEFECTS,
}
DEFECTS: dict[str, Defect] = {defect.name: defect for group in GROUPS.values() for defect in group}
DETECTORS: dict[str, Detector] = {
    detector.name: detector
    for module in (detectors, run_detectors, training_detectors)
    for detector in module.DETECTORS
}
INTRODUCTION = """# Planted defects

A test that has never failed proves little. So mistakes from published code and papers are planted in this package, one
at a time, as patches of a few lines, and the check against each must find it (`tests/audit/test_defects.py`). The same
checks must find nothing in the unpatched code. Statistical checks state their false-alarm rate, and a test runs each of
them 200 times to confirm it.

The tables list {count} defects: what is changed, where the mistake was seen, the check that finds it, and when it
runs: *always* means in every test run, *audit* only in `make audit-test`. A dash means that no published case is known.
"""
HEAD = "| defect | what is changed | seen in | found by | runs |\n|---|---|---|---|---|\n"
CHECKS = """## Checks

| check | what it compares | false-alarm rate |
|---|---|---|
"""


def defects_page() -> str:
    """The page as Markdown."""
    text = INTRODUCTION.format(count=len(DEFECTS))
    for title, group in GROUPS.items():
        text += f"\n## {title}\n\n{HEAD}" + "".join(map(_line, group))
    return text + "\n" + CHECKS + "".join(map(_check, DETECTORS.values()))


def _line(defect: Defect) -> str:
    runs = "always" if DETECTORS[defect.detector].is_quick else "audit"
    return f"| {defect.name} | {defect.changed} | {defect.seen} | {defect.detector} | {runs} |\n"


def _check(detector: Detector) -> str:
    rate = f"{detectors.LEVEL:g}" if detector.is_statistical else "none"
    return f"| {detector.name} | {detector.what} | {rate} |\n"


if __name__ == "__main__":
    PAGE.write_text(defects_page())
