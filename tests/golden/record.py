"""Write the golden files anew: `python tests/golden/record.py [CASE ...]`.

Only for a change that is meant to change results; its commit says why.
"""

import os
import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    os.environ["UNDERSTUDY_RECORD_GOLDEN"] = "1"
    test = str(Path(__file__).with_name("test_golden.py"))
    chosen = [
        f"{test}::test_{'learner' if name.startswith('learner_') else 'release'}[{name.removeprefix('learner_')}]"
        for name in sys.argv[1:]
    ]
    sys.exit(pytest.main(["-q", "--durations=12", *(chosen or [test])]))
