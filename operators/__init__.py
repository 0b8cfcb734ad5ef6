"""Operators: how children are made. None of these needs a model.

- `Seed`: the user's initial programs and the task's own.
- `Tune`: assignments of a program's tunables, by successive halving.
- `Recombine`: whole functions and tunable values of two relatives.
"""

from operators.recombine import Recombine
from operators.seed import Seed
from operators.tune import Tune

__all__ = ["Recombine", "Seed", "Tune"]
