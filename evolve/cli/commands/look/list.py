"""`evolve list`: the runs of a database."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evolve.app.database import open_store
from evolve.app.text import speedup_text, table
from evolve.cli.args import RUN_FACTS, add_store, parser
from evolve.report.audit import NOT_COUNTED, Findings, findings_of
from evolve.report.text import duration_text, one_line

if TYPE_CHECKING:
    from evolve.core.run_store import RunStore
    from evolve.store import RunRow
    from evolve.store.champion import Champion


def main(words: Sequence[str]) -> int:
    """Print one line per run."""
    from evolve.store.champion import champion

    arguments = parser("list", "List the runs of a database, newest last.")
    arguments.add_argument("--json", action="store_true", help="for machines")
    add_store(arguments)
    options = arguments.parse_args(words)
    with open_store(options.store) as store:
        runs = store.runs()
        if options.json:
            print(json.dumps([_record(store, run) for run in runs], indent=1))
            return 0
        rows: list[tuple[str, ...]] = []
        unlike = _unlike(runs)
        for run in runs:
            winner, progress = champion(store, run), store.progress(run.id)
            rows.append(
                (
                    run.name,
                    run.task.name,
                    run.state,
                    str(progress.evaluations),
                    duration_text(progress.wall_time_s),
                    _best(winner, findings_of(run.config)),
                    one_line(run.reason, 80),
                    unlike[run.id],
                )
            )
    header: tuple[str, ...] = (
        "RUN",
        "TASK",
        "STATE",
        "EVALUATIONS",
        "TIME",
        "BEST",
        "WHY IT ENDED",
        "DIFFERS IN",
    )
    if not any(row[-1] for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    print(table(header, rows) if rows else f"{options.store} holds no run yet")
    return 0


def _unlike(runs: "Sequence[RunRow]") -> dict[int, str]:
    """The settings that differ between runs of the same task, such as those of a sweep."""
    from evolve.app.config.diff import told_apart

    found: dict[int, str] = {}
    for task in {run.task.name for run in runs}:
        same = [run for run in runs if run.task.name == task]
        said = told_apart([run.config for run in same])
        found |= {run.id: text for run, text in zip(same, said, strict=True)}
    return found


def _best(winner: "Champion | None", findings: Findings) -> str:
    if winner is None:
        return "-"
    return speedup_text(winner.ratio) + (f", {NOT_COUNTED}" if findings else "")


def _record(store: "RunStore", run: "RunRow") -> dict[str, Any]:
    from evolve.store.champion import champion

    winner, progress = champion(store, run), store.progress(run.id)
    return {
        **{name: getattr(run, name) for name in RUN_FACTS},
        "task": run.task.name,
        "evaluations": progress.evaluations,
        "proposals": progress.proposals,
        "tunings": progress.tunings,
        "wall_time_s": progress.wall_time_s,
        "device_time_s": progress.device_time_s,
        "speedup": winner.ratio.to_json() if winner else None,
        "audit": findings_of(run.config),
        "verified": winner.verified if winner else None,
        "best_sequence": winner.sequence if winner else None,
    }
