"""A search with the scripted agent in a process of its own, to be killed."""

import sys
from pathlib import Path

from tests.agents.test_agent_operator import Search

Search(Path(sys.argv[1]), agent=("dawdle",)).go()
