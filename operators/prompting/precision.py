"""How large errors may be, in numbers that a prompt can quote.

The rule is the judge's (`evolve.worker.correctness.tolerance`), which a prompt cannot import: it
needs torch. A test holds the two together.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from evolve.core.evaluation import Evaluation
from evolve.core.task import Task
from operators.prompting.shapes import dimensions

OWN_ERROR = 4  # times the reference's
MAX_PEAK = 8  # single error over the root mean square of a block
MAX_TERMS = 1 << 16
LONGEST = "the longest sum, as the judge counts it"
_BASE, _WALK, _OPERANDS = 16, 2, 2.5
_UNITS = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}
_MAX_NAMED = 5

_FORMULAS = {
    "ieee": "2^-24 * (16 + 2 * sqrt(n))",
    "tf32": "(2^-9 + 2^-24 * (16 + 2 * sqrt(n)))",
    "half": "(2.5 * 2^-8 + 16 * 2^-24 + 2^-11 * sqrt(n))",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule on precision of a task.

    Attributes:
        formula: what `u + c * ...` ends in.
        examples: names of sums, their terms and allowed errors: of the reference's longest sum if a
            verdict told it, else of sums over the task's dimensions.
    """

    formula: str
    examples: tuple[tuple[str, int, float], ...]
    own: int = OWN_ERROR
    largest: int = MAX_PEAK

    @classmethod
    def of(cls, task: Task, evaluation: Evaluation | None = None, longest: int = 0) -> "Rule":
        """From the task's settings and sizes, and a verdict on any program of it.

        `longest` are the terms of its longest sum, if they are known without a verdict.
        """
        terms = evaluation.descriptors.get("longest_sum") if evaluation else None
        longest = int(terms) if isinstance(terms, float) else longest
        sums = {LONGEST: longest} if longest else dimensions(task)
        found = examples(sums, task.accumulation, task.precision)
        return cls(_FORMULAS[task.accumulation], tuple(found))


def allowed_error(terms: int, accumulation: str = "ieee", precision: str = "fp32") -> float:
    """The relative error that a block may have however exact the reference is there.

    Args:
        terms: of the longest sum.
        accumulation: what arithmetic the task allows.
        precision: of the output; a task that names none is taken for float32.

    >>> f"{allowed_error(4096):.2g}"
    '8.6e-06'
    """
    unit, compute = _UNITS.get(precision, _UNITS["fp32"]), _UNITS["fp32"]
    operand = {"ieee": 0.0, "tf32": 2.0**-9 / _OPERANDS, "half": max(unit, 2.0**-8)}[accumulation]
    adding = operand / 16 if accumulation == "half" else compute
    walk = _WALK * min(terms, MAX_TERMS) ** 0.5
    return unit + _OPERANDS * operand + _BASE * compute + walk * adding


def examples(
    dimensions: Mapping[str, int], accumulation: str, precision: str
) -> list[tuple[str, int, float]]:
    """Name, terms and allowed error of sums over a task's own dimensions, the longest first."""
    longest = sorted(
        ((name, size) for name, size in dimensions.items() if size > 1), key=lambda pair: -pair[1]
    )
    return [
        (name, size, float(f"{allowed_error(size, accumulation, precision):.2g}"))
        for name, size in longest[:_MAX_NAMED]
    ]
