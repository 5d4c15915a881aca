"""Where `understudy benchmark` finds the function that reads the descriptions of this folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.peers.description import read_peer as read_peer
