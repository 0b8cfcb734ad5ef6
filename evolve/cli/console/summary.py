"""The last lines of a run: the gain, the device, and the next command."""

import shlex
from collections.abc import Iterator

from evolve.app.config.upgrade import complete
from evolve.app.database import store_word
from evolve.app.library.winner import proof_text
from evolve.app.models import has_model
from evolve.app.text import calls_text, speedup_text
from evolve.report.audit import findings_of, weak_task_text
from evolve.report.run.facts import RunFacts
from evolve.report.run.winner import winner_text
from evolve.report.text import baseline_name, count_text, duration_text, one_line
from evolve.search.execution.nothing_left import NOTHING_LEFT
from evolve.search.execution.pipeline import Outcome
from evolve.search.termination import ALL_OF, format_duration, limit_of, parse_duration
from evolve.store.champion import Champion
from evolve.store.location import DEFAULT_STORE

MAX_EXAMPLE = 150  # characters


def summary(facts: RunFacts, outcome: Outcome, store: str, report: str) -> Iterator[str]:
    """Lines for the end of a command; `report` is its path, empty if none was written."""
    run, progress = facts.run, facts.progress
    is_exhausted = outcome.reason.startswith(NOTHING_LEFT)
    ended = "finished" if outcome.finished else "stopped, and can be resumed"
    yield ""
    yield f"Run {run.name} {ended}: {one_line(outcome.reason)}."
    yield (
        f"  {count_text(progress.evaluations, 'evaluation')}, "
        f"{count_text(progress.screens, 'screen')}, "
        f"{duration_text(progress.wall_time_s)} of wall time"
    )
    if progress.calls:
        yield f"  {calls_text(progress)}"
    elif has_model(complete(facts.run.config)) and not is_exhausted:
        yield from _no_call_text(facts, outcome)
    if left := _left_text(facts):
        yield f"  {left}"
    for trouble in facts.opponent.troubles():
        yield f"  {trouble}"
    if is_exhausted and not any(step.program for step in facts.steps):
        yield "  No program was proposed: more time changes nothing, see the reasons above."
    elif outcome.finished and not _has_verdicts(facts):
        yield _no_verdict_text(facts, outcome, store)
    elif facts.champion is None:
        yield "  No strictly correct kernel was timed; the report says what became of candidates."
        yield from _usual_end(facts)
    else:
        yield from _winner(facts, facts.champion)
    yield ""
    yield from _next_steps(facts, outcome, store, report)


def _has_verdicts(facts: RunFacts) -> bool:
    """Not by the steps alone: of a long run only few are read."""
    progress = facts.progress
    return bool(progress.evaluations or progress.screens) or any(
        step.status for step in facts.steps
    )


def _no_verdict_text(facts: RunFacts, outcome: Outcome, store: str) -> str:
    """Why no program was judged in a run that has ended."""
    why = []
    if failed := [step for step in facts.steps if step.failure]:
        last = shlex.quote(f"{facts.run.name}:{failed[-1].sequence}")
        gave_none = count_text(len(failed), "step")
        why.append(f"{gave_none} gave none, see `evolve show {last}{_flag(store)}` for the last")
    if limit_of(outcome.reason) == "wall_time":
        why.append(
            "the start of the judge and the audit of the task count too; "
            "give it more, e.g. termination.wall_time=10m"
        )
    return f"  No program was judged{': ' if why else ''}{'; '.join(why)}"


def _no_call_text(facts: RunFacts, outcome: Outcome) -> Iterator[str]:
    """Why nothing was charged although the run has a model."""
    if _left(facts)[1]:
        yield "  No model has answered: nothing was charged, and requests are sent again"
    elif not any(step.failure for step in facts.steps):
        is_short = limit_of(outcome.reason) == "wall_time"
        more = "; give the run more time, e.g. termination.wall_time=10m" if is_short else ""
        yield f"  No model was asked: they are once a program to start from is judged{more}"


def _left(facts: RunFacts) -> tuple[int, int]:
    """Programs without a verdict, and requests without an answer."""
    left = [step for step in facts.steps if step.status is None and not step.failure]
    programs = sum(step.program is not None for step in left)
    return programs, len(left) - programs


def _left_text(facts: RunFacts) -> str:
    """The work that the end interrupted, in words."""
    programs, asked = _left(facts)
    parts = []
    if programs:
        parts.append(f"{count_text(programs, 'program')} not judged yet")
    if asked:
        parts.append(f"{count_text(asked, 'request')} not answered yet")
    return f"{', '.join(parts)}: `evolve resume` continues with the rest" if parts else ""


def _usual_end(facts: RunFacts) -> Iterator[str]:
    """The most frequent outcome of candidates, with one example."""
    example = facts.example
    if example is None:
        return
    ends = [step.status for step in facts.steps if step.status is not None]
    usual, what = ends.count(example.status), example.status.replace("_", " ")
    why = example.feedback.strip().partition("\n")[0]
    yield f"  {usual:,} of {len(ends):,} ended as '{what}', such as: {one_line(why, MAX_EXAMPLE)}"


def _winner(facts: RunFacts, winner: Champion) -> Iterator[str]:
    against = baseline_name(facts.baseline)
    yield f"  best kernel: {speedup_text(winner.ratio)} over {against}, {proof_text(winner)}"
    assert facts.made is not None
    yield f"  {winner_text(winner, facts.made)}"
    yield f"  on {facts.hardware}"
    if winner.ratio.high < 1:
        yield f"  It is slower than {against}: this search found no gain. Keep {against}."
    elif not winner.ratio.is_gain:
        yield f"  The interval contains 1: no gain over {against} was shown."
    if weak := weak_task_text(findings_of(facts.run.config)):
        yield f"  {weak}"
    found = [(case.name, case.ratios.get(facts.baseline)) for case in winner.evaluation.cases]
    timed = [(name, ratio) for name, ratio in found if ratio is not None]
    for name, ratio in timed if len(timed) > 1 else ():  # of one, the line above says all
        slower = "  slower than the baseline" if ratio.high < 1 else ""
        yield f"    {name:<12} {speedup_text(ratio)}{slower}"


def _next_steps(facts: RunFacts, outcome: Outcome, store: str, report: str) -> Iterator[str]:
    name, flag = shlex.quote(facts.run.name), _flag(store)
    setting = f" {shlex.quote(store_word(store))}" if flag else ""
    is_slower = facts.champion is not None and facts.champion.ratio.value < 1
    goes_on, limit = not outcome.finished or _left_text(facts), limit_of(outcome.reason)
    yield f"  report    {report or f'evolve report {name}{flag}'}"
    if facts.champion is not None and not is_slower:
        yield f"  kernel    evolve best {name} -o kernel.py{flag}"
    yield f"  details   evolve show {name}{flag}"
    if goes_on:
        yield f"  go on     evolve resume {name}{setting}"
    elif limit and (is_slower or limit != "evaluations"):
        yield f"  go on     evolve resume {name} {_more(facts, outcome.reason)}{setting}"


def _flag(store: str) -> str:
    return f" --store {shlex.quote(store)}" if store != DEFAULT_STORE else ""


def _more(facts: RunFacts, reason: str) -> str:
    """A word that raises the limit on time or evaluations that ended the run."""
    limits, progress, name = facts.run.config["termination"], facts.progress, limit_of(reason)
    is_time = name != "evaluations"
    place, together = "termination", limits.get(ALL_OF) or {}
    own = together.get(name)
    if own and f" of {format_duration(parse_duration(own)) if is_time else own} " in reason:
        place, limits = f"{place}.{ALL_OF}", together
    if not is_time:
        return f"{place}.{name}={4 * max(limits.get(name) or 0, progress.evaluations)}"
    used_s = progress.wall_time_s if name == "wall_time" else progress.device_time_s
    old_s = parse_duration(limits[name]) if limits.get(name) else 0.0
    raised_s = max(4 * used_s, 2 * old_s, 600)
    return f"{place}.{name}={format_duration(raised_s)}"
