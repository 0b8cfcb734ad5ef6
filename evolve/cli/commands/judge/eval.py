"""`evolve eval`: one file, or one recorded step, before the whole evaluation service."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from evolve.app import repro
from evolve.app.device import kind_here, require_interpreter, require_runnable
from evolve.app.library.evaluation import Place, judge, recorded, request_for
from evolve.cli import signals
from evolve.cli.args import add_device, add_store, parser, split_step
from evolve.cli.console.timing_table import graph_lines, kernelbench_lines
from evolve.cli.console.verdict import verdict_text
from evolve.core.devices import kind_of_class
from evolve.core.errors import UsageError
from evolve.core.evaluation import Evaluation, Fidelity, Status
from evolve.core.program import Program, instance_digest
from evolve.core.protocols import EvaluationRequest
from evolve.core.task import ACCUMULATIONS, PRECISIONS, SIZES
from evolve.tasks.files import read_text
from evolve.worker.sandbox.policy import TIERS

CORRECT, NOT_CORRECT = 0, 1
MUTANTS = 60  # that an audit tries where the user names no number


def main(words: Sequence[str]) -> int:
    """Judge the program that the words name, or write it as a folder."""
    options = _parse(words)
    require_interpreter(options.python, "--python ")
    chosen, options.device = options.device, kind_here(options.device, options.python)
    request, on_record = _request(options)
    if on_record is not None and chosen == "auto":
        options.device = kind_of_class(on_record.device_class)
    if options.repro:
        print(repro.write(Path(options.repro), request, on_record))
        return CORRECT
    name = f"candidate {options.candidate}"
    if options.audit is not None:
        require_runnable(request.source, name, options.device, options.python)
        return _audit(request, options)
    known_in = None if options.again else options.store
    from evolve.cli.console.frontend import Terminal

    verdict = signals.run(judge(request, _place(options), Terminal(), known_in, name=name))
    evaluation, findings = verdict.evaluation, verdict.findings
    if options.json:
        extra = {
            "audit": findings,
            "conditions": list(verdict.conditions),
            "known": verdict.known,
        }
        print(json.dumps(evaluation.to_json() | extra, indent=1))
    else:
        print("\n".join(verdict_text(evaluation, findings, verdict.conditions)))
        print("".join(f"{line}\n" for line in graph_lines(evaluation)), end="")
        if options.timing == "kernelbench":
            print("\n".join(kernelbench_lines(evaluation)))
        if verdict.known:
            print(f"known to {options.store} already; --again judges it once more")
    return CORRECT if evaluation.status is Status.CORRECT else NOT_CORRECT


def _audit(request: EvaluationRequest, options: argparse.Namespace) -> int:
    from evolve.cli.commands.judge import mutation

    if options.python:
        raise UsageError("--audit runs its oracle under this interpreter; leave --python out")
    signals.run(
        mutation.run(
            request,
            device=options.device,
            most=options.audit,
            require=options.sandbox_require,
            read=options.sandbox_read,
            as_json=options.json,
        )
    )
    return CORRECT


def _parse(words: Sequence[str]) -> argparse.Namespace:
    arguments = parser(
        "eval",
        "Judge one candidate, and audit its task: compile, correctness, time, feedback. "
        "Exit status 0: correct; 1: not correct, or the judge failed; 2: cannot be judged; "
        "75, 130: stopped.",
    )
    arguments.add_argument(
        "candidate",
        metavar="CANDIDATE",
        help="a file with ModelNew, a step RUN:SEQ, or a folder that --repro wrote",
    )
    _add_task(arguments)
    arguments.add_argument(
        "--fidelity",
        choices=[f.value for f in Fidelity],
        default="search",
        help="how far to go: correctness only, a few timings, for a reward, all of it, or all of "
        "it in fresh processes (default: %(default)s)",
    )
    arguments.add_argument(
        "--baseline", metavar="NAME", help="time against this too: file:mine.py, compile, ..."
    )
    arguments.add_argument(
        "--timing",
        choices=("calls", "kernelbench"),
        default="calls",
        help="kernelbench: show the times that KernelBench's method gives too, which decide "
        "nothing (on a GPU)",
    )
    arguments.add_argument(
        "--again", action="store_true", help="judge it even where the database knows the verdict"
    )
    arguments.add_argument("--json", action="store_true", help="the whole verdict, for machines")
    arguments.add_argument("--repro", metavar="DIR", help="write the case as a folder instead")
    arguments.add_argument(
        "--audit",
        metavar="N",
        type=int,
        nargs="?",
        const=MUTANTS,
        help="audit the judge instead: how many of N (%(const)s) mutants of this kernel it refuses",
    )
    _add_place(arguments)
    add_store(arguments)
    return arguments.parse_args(words)


def _add_task(arguments: argparse.ArgumentParser) -> None:
    """The task, and its limits."""
    arguments.add_argument("--task", metavar="TASK", help="as in `evolve run task=TASK`")
    arguments.add_argument("--size", choices=SIZES, help="of the task; by default the device's")
    arguments.add_argument(
        "--precision",
        choices=PRECISIONS,
        default="task",
        help="dtype of floating inputs and parameters (default: as the task makes them)",
    )
    arguments.add_argument(
        "--accumulation",
        choices=ACCUMULATIONS,
        default="ieee",
        help="the arithmetic that the candidate may use (default: %(default)s)",
    )


def _add_place(arguments: argparse.ArgumentParser) -> None:
    """Where, and in which sandbox."""
    add_device(arguments, "a GPU where there is one, or as named")
    arguments.add_argument(
        "--python", metavar="PATH", help="interpreter that the worker runs under"
    )
    arguments.add_argument(
        "--sandbox-require", choices=TIERS, default="none", help="the weakest acceptable sandbox"
    )
    arguments.add_argument(
        "--sandbox-read",
        action="append",
        default=[],
        metavar="PATH",
        help="a file or folder that the candidate may read; may be repeated",
    )


def _request(options: argparse.Namespace) -> tuple[EvaluationRequest, Evaluation | None]:
    """The program to judge, and its verdict on record if there is one."""
    target = options.candidate
    if (Path(target) / repro.REQUEST).is_file():
        asked = repro.read(Path(target))  # whose candidate may have been edited since
        return replace(asked, instance=instance_digest(Program(asked.source).digest, {})), None
    if not Path(target).exists() and target.rpartition(":")[2].isdigit():
        run, sequence = split_step(target)
        if sequence is not None:
            return recorded(options.store, run, sequence)
    if not options.task:
        raise UsageError(f"--task is missing: which task is {target} for? See `evolve tasks`")
    request = request_for(
        read_text(Path(target), "candidate"),
        options.task,
        _place(options),
        fidelity=options.fidelity,
        baseline=options.baseline or "eager",
        size=options.size,
        precision=options.precision,
        accumulation=options.accumulation,
    )
    return request, None


def _place(options: argparse.Namespace) -> Place:
    return Place(
        device=options.device,
        python=options.python,
        sandbox_require=options.sandbox_require,
        sandbox_read=options.sandbox_read,
    )
