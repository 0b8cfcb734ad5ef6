"""Children by rewriting the structure of a Triton program, without a model."""

from collections.abc import Sequence
from dataclasses import dataclass

from evolve.core.errors import UsageError
from evolve.core.program import Program, instance_digest
from evolve.core.protocols import Context, Declined, Proposal
from evolve.core.source.normalise import normalised_digest
from evolve.core.source.tunables import parse, render
from evolve.languages.registry import detect_language
from evolve.languages.triton import TRITON
from operators.checks import check_choice
from operators.local.structure import REWRITES, NotApplicable, TritonProgram
from operators.local.tuning.device import Limits

_CHILDREN = 256  # of a parent that are looked through


def _note(rewrite: str, kernel: str) -> str:
    return f"{rewrite} of {kernel}"


@dataclass(frozen=True, slots=True)
class Structural:
    """Proposes a rewrite of one kernel of its parent, each once.

    The child has its tunables as the parent's best instance has them; new ones have a value to
    begin with, and `tune` goes on from there. Its note names the rewrite and the kernel.

    Args:
        rewrites: of `operators.local.structure.REWRITES`.

    Raises:
        UsageError: there is no such rewrite.
    """

    rewrites: Sequence[str] = tuple(REWRITES)

    def __post_init__(self) -> None:
        for name in self.rewrites:
            check_choice("operators.*.rewrites", name, tuple(REWRITES))

    @property
    def parents(self) -> int:
        return 1

    def propose(self, context: Context) -> Proposal | Declined:
        """A rewrite that has not been proposed, drawn from all that can be made."""
        if not context.parents:
            return Declined("needs a parent")
        parent = context.parents[0]
        source = context.facts.source(parent.program)
        if detect_language(source) is not TRITON:
            return Declined("the parent is no Triton program")
        try:
            limits = Limits.of(context.device)
            program = TritonProgram(render(source, parent.assignment), limits.multiprocessors)
        except UsageError as error:
            return Declined(f"the parent cannot be read: {error}")
        made = {child.note for child in context.facts.children(parent.program, _CHILDREN)}
        options = [
            (name, kernel)
            for name in self.rewrites
            for kernel in program.kernels
            if _note(name, kernel) not in made  # perhaps with other values to begin with
        ]
        context.rng.shuffle(options)
        reason = "all that there are have been made"
        for name, kernel in options:
            try:
                child = REWRITES[name](program, kernel)
                parse(child)
            except (NotApplicable, UsageError) as error:
                reason = f"{_note(name, kernel)}: {error}"
                continue
            proposed = Program(child)
            if context.facts.seen(instance_digest(proposed.digest, {})):
                reason = f"{_note(name, kernel)} is known"
            elif normalised_digest(child) != normalised_digest(source):
                note = _note(name, kernel)
                return Proposal(program=proposed, parents=(parent.program,), note=note)
        return Declined(f"no rewrite is left, the last: {reason}")
