"""`evolve best`: a run's winner as a file that needs nothing of ours."""

import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import evolve
from evolve.cli.flags import add_run, add_store, open_store, parser
from evolve.cli.text import speedup_text
from evolve.core.errors import UsageError
from evolve.report.audit import NOT_COUNTED, findings_of, weakness
from evolve.report.text import baseline_name, printable, write_text

if TYPE_CHECKING:
    from evolve.search.champion import Champion
    from evolve.store import RunRow, Store


def main(words: Sequence[str]) -> int:
    """Write the winner where the words say."""
    arguments = parser("best", "Write a run's winner as a standalone Python file.")
    add_run(arguments)
    arguments.add_argument(
        "-o", "--output", metavar="FILE", help="where to (default: standard output)"
    )
    add_store(arguments)
    options = arguments.parse_args(words)
    with open_store(options.store) as store:
        text = standalone(store, store.run(options.run))
    if options.output:
        print(write_text(Path(options.output), text))
    else:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # as Python will read it
        print(text, end="")
    return 0


def standalone(store: "Store", run: "RunRow") -> str:
    """The winner's source with its tunables frozen, under a header that says where it is from.

    Raises:
        UsageError: the run has no winner yet.
    """
    from evolve.core.tunables import freeze
    from evolve.search.champion import champion

    winner = champion(store, run)
    if winner is None:
        raise UsageError(
            f"run {run.name} has no correct and timed kernel yet; "
            f"`evolve show {run.name}` says what became of its candidates"
        )
    body = freeze(store.source(winner.program), winner.assignment)
    header = "\n".join(f"# {line}".rstrip() for line in _provenance(run, winner))
    return f"{header}\n\n{body.rstrip()}\n"


def _provenance(run: "RunRow", winner: "Champion") -> Iterator[str]:
    evaluation, task = winner.evaluation, run.task
    against = baseline_name(str(run.config.get("baseline", "eager")))
    proof = "verified in fresh processes" if winner.verified else "not verified"
    yield f"Kernel for task {printable(task.name)}, found by evolve {evolve.__version__}."
    yield ""
    yield f"speedup      {speedup_text(winner.ratio)} over {against}, {proof}"
    if weak := weakness(findings_of(run.config)):
        yield f"strict       {NOT_COUNTED}; {weak}"
    yield f"task         {printable(task.name)}, size {task.size}, revision {task.revision[:16]}"
    yield f"run          {printable(run.name)}, step {winner.sequence}, seed {run.seed}"
    yield f"program      {winner.program[:16]}"
    for name, value in sorted(winner.assignment.items()):
        yield f"tunable      {name} = {value}"
    yield f"judged on    {evaluation.device_class}, evaluator {evaluation.evaluator_version}"
    for name, value in sorted(evaluation.environment.items()):
        yield f"  {name}: {' '.join(printable(value).split())}"
    for label in evaluation.labels:
        yield f"label        {label.name}: {' '.join(printable(label.evidence).split())}"
