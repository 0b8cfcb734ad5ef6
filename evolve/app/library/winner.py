"""A run's winner as a file that needs nothing of this project."""

from collections.abc import Iterator

import evolve
from evolve.app.text import speedup_text
from evolve.core.errors import UsageError
from evolve.core.lineage import Step
from evolve.core.run_store import RunStore
from evolve.core.source.tunables import freeze
from evolve.report.audit import NOT_COUNTED, findings_of, weakness
from evolve.report.run.winner import origin
from evolve.report.text import baseline_name, printable
from evolve.store import RunRow
from evolve.store.champion import Champion, champion


def standalone(store: RunStore, run: RunRow) -> str:
    """The winner's source with its tunables frozen, under a header that says where it is from.

    Raises:
        UsageError: the run has no winner yet.
    """
    winner = winner_of(store, run)
    body = freeze(store.source(winner.program), winner.assignment)
    lines = provenance(run, winner, origin(store, run, winner))
    header = "\n".join(f"# {line}".rstrip() for line in lines)
    return f"{header}\n\n{body.rstrip()}\n"


def winner_of(store: RunStore, run: RunRow) -> Champion:
    """The best program of a run.

    Raises:
        UsageError: the run has no correct and timed one yet.
    """
    winner = champion(store, run)
    if winner is None:
        raise no_winner(run)
    return winner


def no_winner(run: RunRow) -> UsageError:
    """The error for a run without a correct and timed program."""
    return UsageError(
        f"run {run.name} has no correct and timed kernel yet; "
        f"`evolve show {run.name}` says what became of its candidates"
    )


def proof_text(winner: Champion) -> str:
    """Whether the winner was measured again after it had been chosen."""
    return "verified in fresh processes" if winner.verified else "not verified"


def provenance(run: RunRow, winner: Champion, made: Step) -> Iterator[str]:
    """Lines on where the winner comes from and how it was measured; `made` first gave it."""
    evaluation, task = winner.evaluation, run.task
    against = baseline_name(str(run.config.get("baseline", "eager")))
    yield f"Kernel for task {printable(task.name)}, found by evolve {evolve.__version__}."
    yield ""
    yield f"speedup      {speedup_text(winner.ratio)} over {against}, {proof_text(winner)}"
    if weak := weakness(findings_of(run.config)):
        yield f"strict       {NOT_COUNTED}; {weak}"
    yield f"task         {printable(task.name)}, size {task.size}, revision {task.revision[:16]}"
    yield f"run          {printable(run.name)}, seed {run.seed}"
    yield f"program      {winner.program[:16]}, of step {made.sequence} ({made.operator})"
    yield f"measured     in step {winner.sequence}"
    for name, value in sorted(winner.assignment.items()):
        yield f"tunable      {name} = {value}"
    yield f"judged on    {evaluation.device_class}, evaluator {evaluation.evaluator_version}"
    for name, value in sorted(evaluation.environment.items()):
        yield f"  {name}: {' '.join(printable(value).split())}"
    for label in evaluation.labels:
        yield f"label        {label.name}: {' '.join(printable(label.evidence).split())}"
