"""Requests of people that steer a search: checked, then stored; the search takes them."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from evolve.core.errors import UsageError
from evolve.core.records import LIMITS_AT_START, RunRow
from evolve.core.run_store import RunStore
from evolve.core.run_store.steering import (
    PARENT_KINDS,
    SteeringEvent,
    SteeringKind,
    repeatable,
    steered,
)
from evolve.search.termination import raised

MAX_NOTE = 4000  # characters
MAX_SOURCE = 200_000  # characters
MAX_EVENTS = 1000  # of one run


def limits_at_start(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The limits of `termination.*` that a replay begins with: it repeats what raised them."""
    found: Mapping[str, Any] = config.get(LIMITS_AT_START) or config.get("termination") or {}
    return found


def resumed_limits(stored: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The limits of a run that the words of its start continue: what people added stays.

    Args:
        stored: the configuration of the run.
        given: `termination.*` as the words have it.
    """
    found: Mapping[str, Any] = stored["termination"] if given == limits_at_start(stored) else given
    return found


def steer(
    store: RunStore, run: RunRow, kind: str, value: str = "", *, via: str = ""
) -> SteeringEvent:
    """Store a change of a running search.

    Args:
        store: the database, which must be writable.
        run: the run, as it stands now.
        kind: a `SteeringKind`.
        value: for `pin`, `ban` and `release` the number of the step that made the program, else
            what the kind says.
        via: by what it came, if not from a command of this process's user.

    Raises:
        UsageError: the run is not under way, or the request cannot be meant.
    """
    if kind not in set(SteeringKind):
        raise UsageError(f"steering {kind!r} is unknown; there are {', '.join(SteeringKind)}")
    if run.state != "running":
        raise UsageError(
            f"run {run.name!r} is {run.state}{f': {run.reason}' if run.reason else ''}; only a "
            f"running search can be steered: `evolve resume {shlex.quote(run.name)}` continues it"
        )
    may_always = kind in (SteeringKind.CONTINUE, SteeringKind.END)  # else it could never end
    if store.steering_counts(run.id)[0] >= MAX_EVENTS and not may_always:
        raise UsageError(f"run {run.name!r} was steered {MAX_EVENTS} times, which is the most")
    checked = _checked(store, run, SteeringKind(kind), value)
    return store.steer(run.id, SteeringKind(kind), checked, via=via)


def _checked(store: RunStore, run: RunRow, kind: SteeringKind, value: str) -> str:
    """The value as it is stored."""
    if kind is SteeringKind.NOTE:
        return _within(value.strip(), MAX_NOTE, "a note")
    if kind is SteeringKind.PROGRAM:
        if not value.strip():
            raise UsageError("the program is empty; give the text of a module with ModelNew")
        return _within(value, MAX_SOURCE, "a program")
    if kind is SteeringKind.BUDGET:
        raised(run.config.get("termination") or {}, value)
        return value
    if kind in PARENT_KINDS:
        return _program(store, run, kind, value)
    if value:
        raise UsageError(f"{kind} takes no value, got {value[:40]!r}")
    _refuse_again(store, run, kind)
    return ""


def _refuse_again(store: RunStore, run: RunRow, kind: SteeringKind) -> None:
    """Raise UsageError if the run is or will be in this state by what was asked for already."""
    state = steered(replace(event, sequence=0) for event in store.steering(run.id)).state
    if state is kind:
        said = {SteeringKind.PAUSE: "is paused", SteeringKind.END: "is to end"}
        raise UsageError(
            f"run {run.name!r} {said.get(kind, 'is not paused')} already; nothing is stored"
        )


def _within(text: str, most: int, what: str) -> str:
    if len(text) > most:
        raise UsageError(
            f"{what} may have {most:,} characters, this one has {len(text):,}; shorten it"
        )
    return text


def _program(store: RunStore, run: RunRow, kind: SteeringKind, step: str) -> str:
    """The digest of the program of a step."""
    if not (step.isascii() and step.isdigit() and len(step) < 19):
        raise UsageError(f"{kind} needs the number of the step that made the program, got {step!r}")
    program = store.step(run.id, int(step)).program
    if program is None:
        raise UsageError(f"step {step} of run {run.name!r} made no program; name one that did")
    elite = store.elite(run.id, program)
    if kind is SteeringKind.PIN and (elite is None or not elite.evaluations):
        raise UsageError(
            f"the program of step {step} is not known to be correct, so that it cannot be a "
            "parent; pin one with a speedup"
        )
    return program


def repeat(store: RunStore, run: int, recorded: int) -> None:
    """Let a new run take the events of a recorded one at the same steps; it does not wait."""
    for event in repeatable(store.steering(recorded)):
        store.steer(run, event.kind, event.value, due=event.sequence or 0)
