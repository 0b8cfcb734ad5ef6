"""How often Python looks for cycles while a search runs."""

import gc


def collect_seldom() -> None:
    """Let Python look for cycles once in 50,000 new objects, for as long as the process lives.

    Every program is parsed, and its tree is thousands of objects without a cycle: looking for one
    every 700 walks them for nothing, and soon the whole archive too.
    """
    gc.set_threshold(50_000, 10, 10)
