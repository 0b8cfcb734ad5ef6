"""`evolve show`: one run, or one of its steps."""

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from evolve.app.database import open_store
from evolve.app.text import speedup_text, table
from evolve.cli.args import RUN_FACTS, add_run, add_store, parser, split_step
from evolve.cli.console.verdict import verdict_text
from evolve.report.audit import findings_of, weak_task_text
from evolve.report.run.opponent import opponent
from evolve.report.text import duration_text, one_line, printable

if TYPE_CHECKING:
    from evolve.core.run_store import RunStore
    from evolve.store import RunRow


def main(words: Sequence[str]) -> int:
    """Print a run, or one step of it."""
    arguments = parser("show", "Show a run, or one of its steps with source and verdict.")
    add_run(arguments, "name of the run, or NAME:SEQ for one step")
    arguments.add_argument("--json", action="store_true", help="for machines")
    add_store(arguments)
    options = arguments.parse_args(words)
    name, sequence = split_step(options.run)
    with open_store(options.store) as store:
        run = store.run(name)
        if sequence is None:
            lines = _run_json(store, run) if options.json else _run_text(store, run)
        else:
            render = _step_json if options.json else _step_text
            lines = render(store, run, sequence)
        for line in lines:
            print(line)
    return 0


def _run_text(store: "RunStore", run: "RunRow") -> Iterator[str]:
    from evolve.report.run.winner import origin, winner_text
    from evolve.store.champion import champion

    progress, winner = store.progress(run.id), champion(store, run)
    steps = list(store.steps(run.id))
    reason = f": {one_line(run.reason)}" if run.reason else ""
    yield f"run        {run.name} ({run.state}{reason})"
    yield f"task       {run.task.name}, size {run.task.size}, revision {run.task.revision[:16]}"
    if weak := weak_task_text(findings_of(run.config)):
        yield f"audit      {weak}"
    by = f" by {run.user} on {run.host}" if run.user else ""
    project = f", project {run.project}" if run.project else ""
    active = duration_text(progress.wall_time_s)
    yield f"started    {run.created}{by}{project}, active for {active}"
    yield (
        f"spent      {progress.evaluations} evaluations, {progress.screens} screens, "
        f"{duration_text(progress.device_time_s)} of device time"
    )
    if winner:
        proof = "verified" if winner.verified else "not verified"
        yield f"best       {speedup_text(winner.ratio)}, {proof}"
        yield f"           {winner_text(winner, origin(store, run, winner))}"
    else:
        yield "best       none: no strictly correct kernel has been timed"
    for trouble in opponent(store, run, steps).troubles():
        yield f"baseline   {trouble}"
    counts: dict[str, Counter[str]] = {}
    for step in steps:
        outcome = str(step.status) if step.status else "not proposed" if step.failure else "open"
        counts.setdefault(step.operator, Counter())[outcome] += 1
    rows = [
        (operator, str(sum(found.values())), ", ".join(f"{n} {s}" for s, n in found.most_common()))
        for operator, found in counts.items()
    ]
    yield ""
    yield table(("OPERATOR", "STEPS", "OUTCOMES"), rows)


def _run_json(store: "RunStore", run: "RunRow") -> Iterator[str]:
    record = {
        **{name: getattr(run, name) for name in RUN_FACTS},
        "seed": run.seed,
        "task": {"name": run.task.name, "size": run.task.size, "revision": run.task.revision},
        "audit": findings_of(run.config),
        "config": dict(run.config),
        "progress": _plain(asdict(store.progress(run.id))),
        "slots": {
            slot: {"program": elite.program, "sequence": elite.sequence}
            for slot, elite in store.slots(run.id).items()
        },
    }
    yield json.dumps(record, indent=1)


def _step_text(store: "RunStore", run: "RunRow", sequence: int) -> Iterator[str]:
    step, evaluation = store.step(run.id, sequence), store.evaluation(run.id, sequence)
    note = f" ({step.note})" if step.note else ""
    yield f"step       {run.name}:{sequence} by {step.operator}{note}"
    if step.parents:
        yield f"parents    {', '.join(parent[:16] for parent in step.parents)}"
    if step.failure:
        yield f"failed     {printable(step.failure)}"
    elif step.program is None:
        asked = f"{shlex.quote(run.name)}:{sequence}"
        yield f"open       not answered yet; `evolve prompt {asked}` shows what was asked"
    elif evaluation is None:
        yield "open       not judged yet"
    if step.program is None:
        return
    yield f"program    {step.program[:16]} {dict(step.assignment) or ''}"
    if step.offer is not None:
        yield f"archive    {step.offer.name.lower().replace('_', ' ')} {step.slot or ''}"
    if evaluation is not None:
        yield from verdict_text(evaluation, findings_of(run.config))
    yield ""
    yield printable(store.source(step.program))


def _step_json(store: "RunStore", run: "RunRow", sequence: int) -> Iterator[str]:
    step, evaluation = store.step(run.id, sequence), store.evaluation(run.id, sequence)
    record = _plain(asdict(step)) | {
        "run": run.name,
        "source": store.source(step.program) if step.program else None,
        "evaluation": evaluation.to_json() if evaluation else None,
    }
    yield json.dumps(record, indent=1)


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    """`asdict` of a record, whose values JSON knows but for names of enums."""
    return json.loads(json.dumps(record, default=str))
