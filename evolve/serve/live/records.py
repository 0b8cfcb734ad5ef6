"""Runs, steps and verdicts of a store as plain values for the page."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from evolve.core.errors import UsageError
from evolve.core.lineage import Step
from evolve.core.measurement import Ratio
from evolve.core.model import Exchange
from evolve.core.protocols import Elite
from evolve.core.records import RunRow, Ticket
from evolve.core.run_store import RunStore
from evolve.core.run_store.steering import PARENT_KINDS, SteeringEvent, steered
from evolve.llm.programs.records import read_records
from evolve.llm.programs.turns import Turn, turns
from evolve.report.lineage import speedup
from evolve.report.run import archive_map
from evolve.report.run.lineage_picture import lineage_picture
from evolve.report.run.shape_map import shape_map
from evolve.report.run.transcript import shown_turns
from evolve.report.run.whole_change import whole_change
from evolve.report.text import printable
from evolve.store.champion import Champion, champion
from operators.llm.agent import MODEL

WHOLE_PICTURE = 5000  # steps of a run whose lineage is drawn as a whole
PICTURED = 60  # programs of the archive whose descent is drawn else
PAGE = 2000  # steps of one answer
MAX_TEXT = 200_000  # characters of a source, a prompt or a reply
TURNS = 40  # of a transcript, of one answer


def run_line(store: RunStore, run: RunRow) -> dict[str, Any]:
    """A run with its counters and its verified speedup, None before it has one."""
    return counters(store, run) | _claim(champion(store, run, ()))


def _claim(winner: Champion | None) -> dict[str, Any]:
    return {"claimed": _ratio(winner.ratio) if winner is not None and winner.verified else None}


def counters(store: RunStore, run: RunRow) -> dict[str, Any]:
    """A run with its counters; a few rows, however long the run is."""
    progress = store.progress(run.id)
    return {
        "name": run.name,
        "task": printable(run.task.name),
        "state": run.state,
        "reason": printable(run.reason),
        "created": run.created,
        "baseline": run.baseline,
        "asked": store.next_sequence(run.id),
        "best": _ratio(progress.best),
        "evaluations": progress.evaluations,
        "screens": progress.screens,
        "proposals": progress.proposals,
        "wall_time_s": progress.wall_time_s,
        "device_time_s": progress.device_time_s,
        "tokens": progress.tokens,
        "usd": progress.usd,
        "steered": store.steering_counts(run.id),
    }


def run_page(store: RunStore, run: RunRow) -> dict[str, Any]:
    """What the page of a run shows beside its steps."""
    slots = store.slots(run.id)
    heat = archive_map.heat_map(slots) if slots else None
    winner = champion(store, run, slots.values())
    shapes = shape_map(store, run, slots.values())
    return (
        counters(store, run)
        | _claim(winner)
        | {
            "limits": limits(run.config),
            "archive": asdict(heat) if heat else None,
            "ranked": [asdict(place) for place in archive_map.ranked(slots)],
            "way": _way(store, run, winner) if winner else [],
            "cases": _cases(store, run, winner.sequence) if winner else [],
            "steering": steering(store, run),
            "shapes": asdict(shapes) if shapes else None,
        }
    )


def lineage(store: RunStore, run: RunRow) -> dict[str, Any]:
    """The picture of the lineage, and what changed between the first and the best program.

    Of a long run those that the best programs descend from.
    """
    slots = store.slots(run.id)
    winner = champion(store, run, slots.values())
    line = store.line_to(run.id, winner.program) if winner else []
    way = [store.step(run.id, number) for number in line]
    if store.next_sequence(run.id) <= WHOLE_PICTURE:
        steps = list(store.steps(run.id))
    else:
        steps = _descent(store, run, slots.values())
    path = [str(step.program) for step in way]
    picture = lineage_picture(steps, run.baseline, path, slots.values())
    sources = {program: store.source(program) for program in {*path[:1], *path[-1:]}}
    change = whole_change(way, sources, run.baseline)
    return {
        "picture": asdict(picture) if picture else None,
        "words": [asdict(each) for each in change.words] if change else [],
        "before": _text(sources[path[0]]) if change else None,
        "after": _text(sources[path[-1]]) if change else None,
    }


def _way(store: RunStore, run: RunRow, winner: Champion) -> list[int]:
    """The steps that made the best program, and the one that its speedup was measured in."""
    line = store.line_to(run.id, winner.program)
    return line if winner.sequence in line[-1:] else [*line, winner.sequence]


def _descent(store: RunStore, run: RunRow, held: Iterable[Elite]) -> list[Step]:
    """The steps that made the best programs and their ancestors, in order."""
    best = sorted(held, key=lambda elite: -elite.fitness.value)[:PICTURED]
    made = (store.ancestors(run.id, elite.program) for elite in best)
    found = {step.sequence: step for steps in made for step in steps}
    return [found[number] for number in sorted(found)]


def steering(store: RunStore, run: RunRow) -> dict[str, Any]:
    """What people have changed of a run, and what of it holds; programs by their steps."""
    events = store.steering(run.id)
    held = steered(events)
    return {
        "note": printable(held.note),
        "paused": held.is_paused,
        "pinned": [_maker(store, run, program) for program in held.pinned],
        "banned": sorted(_maker(store, run, program) or 0 for program in held.banned),
        "events": [_event(store, run, event) for event in events],
    }


def _event(store: RunStore, run: RunRow, event: SteeringEvent) -> dict[str, Any]:
    about = _maker(store, run, event.value) if event.kind in PARENT_KINDS else None
    return {
        "time": event.time,
        "user": printable(event.user),
        "text": event.kind if event.kind in PARENT_KINDS else printable(event.text),
        "program_of": about,
        "from": event.sequence,
    }


def limits(config: Mapping[str, Any]) -> dict[str, float]:
    """The limits of a run that are set, in units of its counters."""
    from evolve.search.termination import BUDGETS, parse_duration

    found = {}
    for name, value in dict(config.get("termination") or {}).items():
        if name in BUDGETS and value is not None:
            found[name] = parse_duration(value) if name.endswith("_time") else float(value)
    return found


def steps_after(store: RunStore, run: RunRow, after: int) -> list[dict[str, Any]]:
    """The next steps by sequence number, at most `PAGE`."""
    page = islice(store.steps(run.id, after=after), PAGE)
    return [step_line(step, run.baseline) for step in page]


def step_line(step: Step, baseline: str) -> dict[str, Any]:
    """A step in few words; what it lacks is left out."""
    record = {
        "n": step.sequence,
        "op": printable(step.operator),
        "program": step.program[:16] if step.program else None,
        "parent": step.parents[0][:16] if step.parents else None,
        "status": str(step.status) if step.status else None,
        "failure": printable(step.failure[:200]),
        "fidelity": step.fidelity.value,
        "ratio": _ratio(speedup(step, baseline)),
        "custom": step.custom,
        "slot": step.slot,
        "usd": "unknown" if step.usd is None else round(step.usd, 6) or None,
        "s": round(step.judged_s, 2) or None,
        "judge": printable(step.judge),
        "t": round(step.elapsed_s, 2),
    }
    return {name: value for name, value in record.items() if value not in (None, "")}


def step_page(store: RunStore, run: RunRow, sequence: int) -> dict[str, Any]:
    """A step with its source, its main parent's, its verdict, and what models were asked."""
    step, ticket = store.step(run.id, sequence), store.ticket(run.id, sequence)
    verdict = store.evaluation(run.id, sequence)
    parent = step.parents[0] if step.parents else None
    return step_line(step, run.baseline) | {
        "run": run.name,
        "asked": store.next_sequence(run.id),
        "note": printable(step.note),
        "labels": [printable(label) for label in step.labels],
        "assignment": {name: str(value) for name, value in step.assignment.items()},
        "source": _text(store.source(step.program)) if step.program else None,
        "parent_source": _text(store.source(parent)) if parent else None,
        "parent_step": _maker(store, run, parent) if parent else None,
        "feedback": _text(verdict.feedback) if verdict else "",
        "cases": _cases(store, run, sequence),
        "rounds": _rounds(ticket),
    }


def _maker(store: RunStore, run: RunRow, program: str) -> int | None:
    """The step that first gave a program."""
    line = store.line_to(run.id, program)
    return line[-1] if line else None


def _cases(store: RunStore, run: RunRow, sequence: int) -> list[dict[str, Any]]:
    verdict = store.evaluation(run.id, sequence)
    return [
        {
            "name": printable(case.name),
            "passed": case.passed,
            "ratio": _ratio(case.ratios.get(run.baseline)),
        }
        for case in (verdict.cases if verdict else ())
    ]


def _rounds(ticket: Ticket) -> list[dict[str, Any]]:
    rounds: list[dict[str, Any]] = [
        {
            "prompt": _messages(exchange.request.messages),
            "reply": _text(exchange.reply.text),
            "model": printable(exchange.reply.model),
            "tokens": exchange.reply.usage.total if exchange.reply.usage else None,
            "usd": exchange.reply.cost_usd,
            "error": printable(exchange.reply.error),
            "transcript": _transcript(exchange),
        }
        for exchange in ticket.exchanges
    ]
    if ticket.request is not None:
        prompt = _messages(ticket.request.messages)
        rounds.append({"prompt": prompt, "reply": None, "model": printable(ticket.model)})
    return rounds


def _transcript(exchange: Exchange) -> dict[str, Any] | None:
    """How much there is of what a model or agent did before it answered; it is loaded when read."""
    chars = len(exchange.reply.reasoning)
    if not chars:
        return None
    is_agent = exchange.request.model == MODEL
    return {
        "title": "Transcript of the agent" if is_agent else "Reasoning of the model",
        "chars": chars,
    }


def transcript(store: RunStore, run: RunRow, sequence: int, number: int) -> str:
    """The transcript of a reply as it is stored.

    Args:
        store: holds it.
        run: the run of the step.
        sequence: the step.
        number: of the reply, from 0.

    Raises:
        UsageError: there is no such step or reply.
    """
    exchanges = store.ticket(run.id, sequence).exchanges
    if number >= len(exchanges):
        raise UsageError(f"step {sequence} of {run.name} has no reply {number}")
    return exchanges[number].reply.reasoning


def transcript_page(
    store: RunStore, run: RunRow, sequence: int, number: int, after: int
) -> dict[str, Any]:
    """The next turns of a transcript, at most `TURNS`; see `transcript`."""
    found = _turns_of(transcript(store, run, sequence, number))
    page = shown_turns(store, run, found[after : after + TURNS])
    return {"turns": [asdict(turn) for turn in page], "total": len(found)}


@functools.lru_cache(maxsize=4)  # read on, page by page
def _turns_of(text: str) -> tuple[Turn, ...]:
    return tuple(turns(read_records(text)))


def _messages(messages: Sequence[Any]) -> list[dict[str, str]]:
    return [{"role": str(each.role), "text": _text(each.content)} for each in messages]


def _text(text: str) -> str:
    left_out = len(text) - MAX_TEXT
    return printable(text[:MAX_TEXT]) + (f"\n({left_out:,} more)" if left_out > 0 else "")


def _ratio(ratio: Ratio | None) -> list[float] | None:
    if ratio is None:
        return None
    return [float(f"{each:.5g}") for each in (ratio.value, ratio.low, ratio.high)]
