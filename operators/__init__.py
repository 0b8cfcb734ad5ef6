"""Operators: how children are made.

Without a model:

- `Seed`: the user's initial programs and the task's own.
- `Tune`: assignments of a program's tunables, by a model of measurements.
- `Recombine`: whole functions and tunable values of two relatives.
- `Structural`: other loops, grids and kernels for a Triton program, by rewriting it.
- `Remeasure`: known programs once more, if that may change which one leads.
- `RemeasureHead`: those once more that the selection policy is about to develop.

With one, each a few lines over the prompts of `operators.prompting.composition`:

- `Universal`: one prompt whose context makes the difference (KernelEvolve).
- `RewriteFull`, `Edit`: a whole program, or search/replace edits of one.
- `Translate`: the parent in another language of kernels.
- `Crossover`, `Contrastive`: from several programs and their measurements.
- `MacroMicro`: one typed action on one region (QiMeng-Kernel).
- `WorldModel`: programs follow a tree of intents that a model keeps (K-Search).
- `Supervise`: other directions if the search stands still (AVO).
- `Milestone`: the goal that the program has come near to, and no other (CUDA Agent).
- `Review`: large jumps in speed, read and measured again (CUDA-L1).
- `Template`: a program with open constants, for `Tune`.
- `Summarise`: the lessons of the search so far, for all prompts (POLCA).
- `Repair`: failed programs, out of a budget of its own.
- `CleanUp`: the compiler's programs in readable form, as training data (AutoTriton).
"""

from operators.llm.clean_up import CleanUp
from operators.llm.contrastive import Contrastive
from operators.llm.crossover import Crossover
from operators.llm.edit import Edit
from operators.llm.macro_micro import MacroMicro
from operators.llm.milestone import Milestone
from operators.llm.repair import Repair
from operators.llm.review import Review
from operators.llm.rewrite import RewriteFull, Translate
from operators.llm.summarise import Summarise
from operators.llm.supervise import Supervise
from operators.llm.template import Template
from operators.llm.universal import Universal
from operators.llm.world_model import WorldModel
from operators.local.recombine import Recombine
from operators.local.remeasure import Remeasure, RemeasureHead
from operators.local.seed import Seed
from operators.local.structural import Structural
from operators.local.tune import Tune

__all__ = [
    "CleanUp",
    "Contrastive",
    "Crossover",
    "Edit",
    "MacroMicro",
    "Milestone",
    "Recombine",
    "Remeasure",
    "RemeasureHead",
    "Repair",
    "Review",
    "RewriteFull",
    "Seed",
    "Structural",
    "Summarise",
    "Supervise",
    "Template",
    "Translate",
    "Tune",
    "Universal",
    "WorldModel",
]
