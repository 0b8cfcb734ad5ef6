"""The winner of a run, named by its program."""

from evolve.core.lineage import Step
from evolve.core.run_store import RunStore
from evolve.store import RunRow
from evolve.store.champion import Champion


def origin(store: RunStore, run: RunRow, winner: Champion) -> Step:
    """The step that first gave the winner's program; that of the champion may be a verification."""
    return store.ancestors(run.id, winner.program)[-1]


def winner_text(winner: Champion, made: Step) -> str:
    """`program 1a2b3c4d5e6f of step 1 (seed) with BLOCK = 64, verified in step 3`."""
    text = f"program {winner.program[:12]} of step {made.sequence} ({made.operator})"
    if winner.assignment:
        chosen = ", ".join(f"{name} = {value}" for name, value in sorted(winner.assignment.items()))
        text += f" with {chosen}"
    if winner.sequence == made.sequence:
        return text
    return f"{text}, {'verified' if winner.verified else 'measured'} in step {winner.sequence}"
