"""`evolve dispatch`: the best programs of a run's workloads as one program, judged as one."""

import argparse
import asyncio
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from evolve.app.database import open_store
from evolve.app.text import speedup_text, table
from evolve.cli import signals
from evolve.cli.args import add_run, add_store, parser
from evolve.core.errors import OK, RESUMABLE, UsageError
from evolve.report.text import baseline_name, one_line, printable, ratio_text, span_text

if TYPE_CHECKING:
    from evolve.app.dispatch.search import Composed, Judged
    from evolve.core.evaluation import Evaluation
    from evolve.core.run_store import RunStore
    from evolve.store import RunRow


def main(words: Sequence[str]) -> int:
    """Compose a set, show it, and have it judged."""
    options = _parse(words)
    from evolve.app.dispatch.search import compose

    with open_store(options.store, read_only=False) as store:
        run = store.run(options.run)
        composed = compose(store, run, options.penalty)
        print(_choice_text(run, composed))
        if not composed.text:
            print("one program does for all workloads; `evolve best` writes it")
            return OK
        return signals.run(_judge(store, run, composed))


def _parse(words: Sequence[str]) -> argparse.Namespace:
    from evolve.app.dispatch.choice import PENALTY

    arguments = parser(
        "dispatch",
        "Join the programs that are fastest in different workloads of a finished run into one "
        "program that chooses by shape and dtype. It is judged as a step of the run, then beside "
        "the run's winner, and is the new winner if it is faster: `evolve best` writes it.",
    )
    add_run(arguments)
    arguments.add_argument(
        "--penalty",
        type=_share,
        default=PENALTY,
        metavar="GAIN",
        help="relative gain of the weighted geometric mean that each program after the first "
        "must add (default: %(default)s)",
    )
    add_store(arguments)
    return arguments.parse_args(words)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 10:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to 10; write e.g. 0.01")
    return value


def _choice_text(run: "RunRow", composed: "Composed") -> str:
    """A line for each workload: the speedup of the best single program, and of the one chosen."""
    from evolve.app.dispatch.choice import ratio_in

    single = composed.choice.programs[0]
    rows = []
    for workload in composed.workloads:
        chosen = composed.choice.served_by[workload]
        ratio, other = ratio_in(chosen, workload), ratio_in(single, workload)
        rows.append(
            (
                printable(workload.names),
                f"{workload.weight:g}",
                ratio_text(other.value),
                f"step {chosen.sequence}",
                f"{ratio_text(ratio.value)} ({span_text(ratio)})",
            )
        )
    header = ("workload", "weight", f"step {single.sequence}, best alone", "chosen", "speedup")
    return f"{run.name}: {composed.note}\n{table(header, rows)}"


async def _judge(store: "RunStore", run: "RunRow", composed: "Composed") -> int:
    from evolve.app.components import build_search
    from evolve.app.device import as_judged, start_evaluator
    from evolve.app.dispatch.search import judge
    from evolve.cli.console.frontend import Terminal

    stop, terminal = asyncio.Event(), Terminal()
    config = as_judged(run.config, store, run)
    with terminal.doing("starting the judge"):
        evaluator = await start_evaluator(config)
    try:
        search = build_search(store, run, config, device_class=evaluator.device_class)
        with terminal.interruptible(lambda reason: stop.set()):
            judged = await judge(search, evaluator, composed, terminal, stop)
    finally:
        await evaluator.close()
    if stop.is_set():
        print("stopped; the same command goes on")
        return RESUMABLE
    for line in _outcome(store, run, judged):
        print(line)
    return OK


def _outcome(store: "RunStore", run: "RunRow", judged: "Judged") -> Iterator[str]:
    if judged.failure:
        raise UsageError(f"the set is none to judge: {one_line(judged.failure)}")
    if judged.reference_fault:
        yield (
            "the reference failed in the set, so calls of other shapes raise ValueError: "
            f"{one_line(judged.reference_fault, 200)}"
        )
    verdict, against = judged.evaluation, baseline_name(run.baseline)
    if verdict is None or not verdict.strict:
        what = "no verdict" if verdict is None else _refusal(verdict)
        yield f"step {judged.sequence}, the set: {what}; the winner stays as it is"
        return
    speedup = speedup_text(verdict.ratios[run.baseline])
    yield f"step {judged.sequence}, the set: {speedup} over {against}"
    yield f"beside the winner, in the same processes: {_duel_text(judged)}"
    if _is_winner(store, run, judged.sequence):
        yield f"the set is the new winner: `evolve best {shlex.quote(run.name)}`"
    else:
        yield "the winner stays as it is"


def _duel_text(judged: "Judged") -> str:
    from evolve.store.champion import CHAMPION

    duel = judged.duel.ratios.get(CHAMPION) if judged.duel is not None else None
    if duel is None:
        return "not measured"
    return speedup_text(duel) if duel.is_gain else f"{speedup_text(duel)}, no gain"


def _is_winner(store: "RunStore", run: "RunRow", sequence: int) -> bool:
    from evolve.store.champion import champion

    winner = champion(store, run)
    return winner is not None and winner.program == store.step(run.id, sequence).program


def _refusal(verdict: "Evaluation") -> str:
    if verdict.status.value == "correct":
        return "correct, but not made by its own kernels"
    return f"{verdict.status}: {one_line(verdict.feedback, 300)}"
