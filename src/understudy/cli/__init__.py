"""The command line: `understudy ...`.

Heavy imports stand inside the commands, so that `understudy --help` is instant.
"""

from understudy.cli.main import main as main
from understudy.cli.main import run as run
