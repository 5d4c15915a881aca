"""long_tests.txt names tests that exist."""

import functools

from tests.conftest import LONG_TESTS, ROOT

LINES = [line for line in LONG_TESTS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


@functools.cache
def source_of(path: str) -> str:
    """The source of a file of tests; those of a contract are written once, and imported by the files that run them."""
    files = [ROOT / path, *((ROOT / path).parent.glob("*.py") if "/contract/" in path else ())]
    return "".join(file.read_text(encoding="utf-8") for file in files)


def test_every_line_names_a_test() -> None:
    assert {line.split(maxsplit=1)[0] for line in LINES} == {"long", "slow"}
    names = [line.split(maxsplit=1)[1].partition("[")[0].partition("::") for line in LINES]
    assert not [(path, test) for path, _, test in names if test and f"def {test}(" not in source_of(path)]
    assert not [path for path, _, test in names if not test and not (ROOT / path).exists()]


def test_no_test_is_named_twice() -> None:
    assert len({line.split(maxsplit=1)[1] for line in LINES}) == len(LINES)
