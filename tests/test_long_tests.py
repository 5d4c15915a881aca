"""long_tests.txt names tests that exist."""

import pytest

from tests.conftest import LONG_TESTS, ROOT

LINES = [line for line in LONG_TESTS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("line", LINES)
def test_every_line_names_a_test(line: str) -> None:
    mark, name = line.split(maxsplit=1)
    path, _, test = name.partition("::")
    assert mark in ("long", "slow")
    # The tests of a contract are written once, and imported by the files that run them.
    files = [ROOT / path, *((ROOT / path).parent.glob("*.py") if "/contract/" in path else ())]
    assert (ROOT / path).exists()
    assert not test or any(f"def {test.partition('[')[0]}(" in file.read_text(encoding="utf-8") for file in files)


def test_no_test_is_named_twice() -> None:
    assert len({line.split(maxsplit=1)[1] for line in LINES}) == len(LINES)
