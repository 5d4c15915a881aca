"""long_tests.txt names tests that exist."""

import pytest

from tests.conftest import LONG_TESTS, ROOT

LINES = [line for line in LONG_TESTS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("line", LINES)
def test_every_line_names_a_test(line: str) -> None:
    mark, name = line.split(maxsplit=1)
    path, _, test = name.partition("::")
    assert mark in ("long", "slow")
    assert not test or f"def {test.partition('[')[0]}(" in (ROOT / path).read_text(encoding="utf-8")


def test_no_test_is_named_twice() -> None:
    assert len({line.split(maxsplit=1)[1] for line in LINES}) == len(LINES)
