"""`evolve apply`: winners put back into the script that their tasks are from, and the gain."""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from evolve.app.database import open_store
from evolve.app.text import interval_text, speedup_text
from evolve.capture.apply import MIN_PAIRS, Chosen, Gain, Timed, check, measure
from evolve.capture.jobs import Tally
from evolve.capture.processes import Script, started
from evolve.capture.task_file import captured
from evolve.cli.args import add_store, parser
from evolve.cli.commands.keep.best import judged_on
from evolve.cli.commands.look.tasks_capture import add_script, parse_script
from evolve.cli.console.terminal import notify
from evolve.core.errors import UsageError
from evolve.core.program import without_model
from evolve.core.task import Task
from evolve.report.text import count_text, one_line
from evolve.tasks import find_task
from evolve.tasks.files import read_text

APPLIED, NOT_APPLIED = 0, 1
PAIRS = 8
SHOWN_S = 0.1  # of building winners
_OUTSIDE = "runs in your processes with your rights, outside of any sandbox"
NAME_THE_FILE = "write it by `evolve best`, read it, and name the file"


def main(words: Sequence[str]) -> int:
    """Check the winners in the script, and measure it with and without them."""
    options, script = _parse(words)
    chosen = [_chosen(word, options.store) for word in options.winner]
    timed = None
    with started(script, secrets=False) as run:
        tallies = check(run, chosen)
        if all(not one.differences for _, one in tallies) and any(one.made for _, one in tallies):
            notify(f"outputs agree; timing {options.pairs} pairs of processes")
            timed = measure(run, chosen, options.pairs, [one.made for _, one in tallies])
    if options.json:
        print(json.dumps(_plain(tallies, timed), indent=1))
    else:
        print("\n".join([*_checked(tallies), *_measured(script, timed)]))
    return NOT_APPLIED if timed is None or timed.gain is None else APPLIED


def _parse(words: Sequence[str]) -> tuple[argparse.Namespace, Script]:
    arguments = parser(
        "apply",
        "Use winners for the calls that their tasks were captured from (`evolve tasks capture`), "
        "and measure your script end to end. A winner is used only for calls of the module, "
        "shapes, dtypes, strides, values and device that it was judged on, without gradients and "
        "autocast; the original makes all others. The winner of a backward task computes the "
        "backward pass of calls with gradients. First, both make every call and their outputs are "
        "compared. Then the original and the patched script are timed in turn, in fresh processes. "
        "The script and the winners run with your rights; no file is changed. Exit status 0: "
        "measured; 1: the outputs of a winner differ, or no winner was used.",
    )
    add_script(arguments)
    arguments.add_argument(
        "--winner",
        metavar="TASK=RUN|FILE",
        action="append",
        required=True,
        help="the file of a captured task, and the run that searched it (its winner has to be "
        "verified) or a file with ModelNew; repeat for more tasks",
    )
    arguments.add_argument(
        "--pairs",
        metavar="N",
        type=int,
        default=PAIRS,
        help="pairs of processes, 6 or more (default: %(default)s)",
    )
    arguments.add_argument("--json", action="store_true", help="for machines")
    add_store(arguments)
    options, script = parse_script(arguments, words)
    if options.pairs < MIN_PAIRS:
        raise UsageError(
            f"--pairs {options.pairs}: take {MIN_PAIRS} or more, or no interval of 95 % can be "
            "given"
        )
    return options, script


def _chosen(word: str, store: str) -> Chosen:
    """A task with the program that the user names for it.

    Raises:
        UsageError: no such task, run or file, or one of another task, or nothing verified.
    """
    path, separator, winner = word.partition("=")
    if not (path and separator and winner):
        raise UsageError(f"--winner {word}: write TASK=RUN or TASK=FILE, tasks/block.py=kernel.py")
    task = find_task(path)
    facts = captured(task)
    if winner.endswith(".py"):
        text = read_text(Path(winner), "winner")
        if missing := without_model(text):
            raise UsageError(f"--winner {word}: the file {missing}")
        notify(f"{winner} {_OUTSIDE}; no run has verified it")
        return Chosen(task=facts, source=text)
    from evolve.app.library.winner import standalone, winner_of

    with open_store(store) as database:
        run = database.run(winner)
        _require_same(word, task, run.task)
        found = winner_of(database, run)
        if not found.verified:
            raise UsageError(
                f"--winner {word}: the best kernel of run {run.name} is not verified; resume the "
                f"run, or {NAME_THE_FILE}"
            )
        source = standalone(database, run)
    notify(f"the winner of run {run.name} {_OUTSIDE}")
    return Chosen(task=facts, source=source, architecture=judged_on(found, NAME_THE_FILE)[1])


def _require_same(word: str, task: Task, searched: Task) -> None:
    """Refuse a run over another task, or over this one before it was changed."""
    if searched.source != task.source:
        raise UsageError(f"--winner {word}: its run did not search {task.name}")
    # `task.size` picks nothing in a captured task, and the check tells what arithmetic costs.
    same = replace(task, size=searched.size, accumulation=searched.accumulation)
    if searched.revision == same.revision:
        return
    changed = ("precision", "cases", "files")
    names = [name for name in changed if getattr(searched, name) != getattr(task, name)]
    raise UsageError(
        f"--winner {word}: its run searched {task.name} with other {', '.join(names)}; search the "
        f"task as it is now, without task.precision: `evolve run task={word.partition('=')[0]}`"
    )


def _checked(tallies: Sequence[tuple[str, Tally]]) -> Iterator[str]:
    for name, one in tallies:
        every = one.made + sum(one.fallbacks.values())
        if not every:
            yield (
                f"{name}: never called. The script makes no such module, torch.compile has "
                "compiled it into a larger graph, or no gradient came back to it (a backward task)"
            )
            continue
        yield f"{name}: {one.made:,} of {count_text(every, 'call')} made by the winner"
        if one.made:
            yield f"  {one.agreed:,} agree with the original"
        if one.differences:
            yield f"  {_differing(one)}"
        for reason, number in one.fallbacks.items():
            yield f"  {number:,} made by the original: {reason}"


def _differing(tally: Tally) -> str:
    first = one_line(next(iter(tally.differences)), 200)
    return f"{sum(tally.differences.values()):,} DIFFER; the first: {first}"


def _measured(script: Script, timed: Timed | None) -> Iterator[str]:
    if timed is None:
        yield "not timed: a winner has to agree, and to make calls"
        return
    for name, one in timed.tallies:
        if one.differences:
            yield f"{name}: of the calls compared in timed runs {_differing(one)}"
    if timed.gain is None:
        yield f"no gain is given: {timed.reason}"
        return
    yield from _gained(script, timed.gain)
    compared = sum(one.agreed for _, one in timed.tallies)
    yield f"  {count_text(compared, 'call')} of the timed runs compared, all agree"


def _gained(script: Script, gain: Gain) -> Iterator[str]:
    yield f"{script}, end to end: {speedup_text(gain.ratio)}, {gain.pairs} pairs of processes"
    original, patched = interval_text(gain.original_ms), interval_text(gain.patched_ms)
    yield f"  original {original}, patched {patched}"
    if gain.built_s >= SHOWN_S:
        yield f"  building the winners took {gain.built_s:.1f} s more, once a process"


def _plain(tallies: Sequence[tuple[str, Tally]], timed: Timed | None) -> dict[str, object]:
    from dataclasses import asdict

    def plain(some: Sequence[tuple[str, Tally]]) -> list[dict[str, object]]:
        return [{"name": name, **vars(tally)} for name, tally in some]  # `asdict` breaks Counters

    return {
        "winners": plain(tallies),
        "timed": [] if timed is None else plain(timed.tallies),
        "no_gain": "" if timed is None else timed.reason,
        "gain": None if timed is None or timed.gain is None else asdict(timed.gain),
    }
