"""Random streams that are functions of (seed, name, sequence number), never ambient state.

A resumed or replayed search draws the same numbers because nothing has to be restored.
"""

import random

from evolve.core.digest import framed_digest


def stream(seed: int, name: str, sequence: int) -> random.Random:
    """The generator of draw number `sequence` of the stream `name`.

    >>> stream(7, "selection", 3).random() == stream(7, "selection", 3).random()
    True
    """
    return random.Random(int(framed_digest(str(seed), name, str(sequence)), 16))
