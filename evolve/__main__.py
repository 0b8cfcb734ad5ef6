"""`python -m evolve`: the `evolve` command, if its script is not on the path."""

import sys

from evolve.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
