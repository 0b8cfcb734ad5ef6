"""Operators: how children are made.

Without a model:

- `Seed`: the user's initial programs and the task's own.
- `Tune`: assignments of a program's tunables, by a model of what was measured.
- `Recombine`: whole functions and tunable values of two relatives.
- `Structural`: other loops, grids and kernels for a Triton program, by rewriting it.
- `Remeasure`: known programs once more, where that may change which one leads.
- `RemeasureHead`: those once more that the selection policy is about to develop.

With one, each a few lines over the prompts of `operators.composition`:

- `Universal`: one prompt whose context makes the difference (KernelEvolve).
- `RewriteFull`, `Edit`: a whole program, or search/replace edits of one.
- `Crossover`, `Contrastive`: from several programs and what was measured of them.
- `MacroMicro`: one typed action on one region (QiMeng-Kernel).
- `Template`: a program with open constants, for `Tune`.
- `Summarise`: what the search has taught so far, for all prompts (POLCA).
- `Repair`: failed programs, out of a budget of its own.
- `CleanUp`: the compiler's programs in readable form, as training data (AutoTriton).
"""

from operators.clean_up import CleanUp
from operators.contrastive import Contrastive
from operators.crossover import Crossover
from operators.edit import Edit
from operators.macro_micro import MacroMicro
from operators.recombine import Recombine
from operators.remeasure import Remeasure, RemeasureHead
from operators.repair import Repair
from operators.rewrite import RewriteFull
from operators.seed import Seed
from operators.structural import Structural
from operators.summarise import Summarise
from operators.template import Template
from operators.tune import Tune
from operators.universal import Universal

__all__ = [
    "CleanUp",
    "Contrastive",
    "Crossover",
    "Edit",
    "MacroMicro",
    "Recombine",
    "Remeasure",
    "RemeasureHead",
    "Repair",
    "RewriteFull",
    "Seed",
    "Structural",
    "Summarise",
    "Template",
    "Tune",
    "Universal",
]
