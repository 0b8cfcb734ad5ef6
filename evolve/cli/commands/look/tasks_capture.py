"""`evolve tasks capture`: the parts that take a script's time, and tasks for them."""

import argparse
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from evolve.app.text import table
from evolve.capture.processes import Script, started
from evolve.capture.tasks import Capture, Share, Written, select, shares_of, write_tasks
from evolve.cli.args import parser
from evolve.core.errors import UsageError
from evolve.llm.secrets import scrub
from evolve.report.text import one_line, time_text

MIN_SHARE = 5.0  # per cent
MAX_ROWS = 20
MAX_WIDTH = 48
_PLAIN = re.compile(r"[\w/.+ -]+", re.ASCII)  # Hydra reads these without quotes


def main(words: Sequence[str]) -> int:
    """Print the parts of a script by their share, and write tasks."""
    options, script = _parse(words)
    with started(script) as run:
        capture = shares_of(script, run)
        if not options.json:
            print(_table(capture))
        chosen = select(capture, options.min_share / 100, options.select)
        written = write_tasks(script, run, chosen, Path(options.out))
    if options.json:
        rows = [_row(one, written.get(one.part, Written())) for one in capture.shares]
        print(json.dumps({"total_s": capture.total_s, "parts": rows}, indent=1))
        return 0
    print()
    for one in chosen:
        name = f"{one.part.title}, {100 * one.share:.1f} %"
        found = written[one.part]
        withheld = ", ".join(found.withheld)
        note = f", where None stands for {withheld} (secret)" if withheld else ""
        print(f"  {name}: {found.task or f'no task, {one_line(found.fault, 300)}'}{note}")
        if back := found.backward:
            print(f"    backward: {back.task or f'no task, {one_line(back.fault, 300)}'}")
    print("".join(f"\n{line}" for line in _next_steps(script, list(written.values()))))
    return 0


def _next_steps(script: Script, written: Sequence[Written]) -> Iterator[str]:
    """Commands for a task whose winner can be put back, or for another if there is none."""
    if path := next(filter(None, map(_applicable, written)), None):
        yield f"Search: {_search(path)}"
        yield f"Put the winner back: {_put_back(path, script)}"
    elif found := next((one for one in written if one.task and one.backward), None):
        assert found.task is not None
        assert found.backward is not None
        yield f"Search: {_search(found.task)}"
        yield (
            "The winner cannot be put back: gradients flow through these calls, and there is no "
            f"backward task: {one_line(found.backward.fault, 300)}"
        )


def _search(path: Path) -> str:
    word = str(path if path.is_absolute() else f"./{path}")
    if not _PLAIN.fullmatch(word):
        from evolve.app.config.grammar import value_text  # loads Hydra

        word = value_text(word, "task")
    return shlex.join(["evolve", "run", f"task={word}"])


def _put_back(path: Path, script: Script) -> str:
    given = [*(["-m"] if script.is_module else []), script.name]
    own = ["--", *script.words] if script.words else []
    return shlex.join(["evolve", "apply", "--winner", f"{path}=RUN", *given, *own])


def _applicable(found: Written) -> Path | None:
    """The task of a part whose winner can be put back: where gradients flow, the backward one."""
    return found.backward.task if found.backward else found.task


def _parse(words: Sequence[str]) -> tuple[argparse.Namespace, Script]:
    arguments = parser(
        "tasks capture",
        "Run your own script twice (as `python SCRIPT` does, with your rights), and find the parts "
        "that take its time: modules by class and constructor, so that twelve equal layers are one "
        "part, functions of torch that no module of torch calls, and your own functions that get "
        "tensors. Time is counted from the "
        "first call to the end of the script, inner calls included; a part's ceiling is how "
        "many times as fast the script would be if the part took no time (Amdahl). Parts with "
        "enough of the time and at most 16 inner calls (a layer, an attention block, an MLP, not "
        "the whole model) become task files, with the shapes, dtypes and arguments of their calls "
        "as cases, weighted by time. Where gradients flow back, the backward pass becomes a "
        "second task.",
    )
    add_script(arguments)
    arguments.add_argument(
        "--out", metavar="FOLDER", default="tasks", help="for the files (default: %(default)s)"
    )
    arguments.add_argument(
        "--min-share",
        metavar="PERCENT",
        type=float,
        default=MIN_SHARE,
        help="of the time that a part has to have (default: %(default)g)",
    )
    arguments.add_argument(
        "--select",
        metavar="NAME",
        action="append",
        default=[],
        help="write tasks of this class or function only, whatever its share and size; again for "
        "more",
    )
    arguments.add_argument("--json", action="store_true", help="all parts, for machines")
    options, script = parse_script(arguments, words)
    if not 0 <= options.min_share <= 100:
        raise UsageError(f"--min-share {options.min_share:g}: name per cent from 0 to 100")
    return options, script


def add_script(arguments: argparse.ArgumentParser) -> None:
    """The script, which may be a module; its own arguments come after `--`."""
    arguments.usage = f"{arguments.prog} [options] (SCRIPT | -m MODULE) [-- ARGUMENTS]"
    arguments.add_argument("script", metavar="SCRIPT", nargs="?", help="a file of Python")
    arguments.add_argument(
        "-m", dest="module", metavar="MODULE", help="in place of a file, as in `python -m MODULE`"
    )


def parse_script(
    arguments: argparse.ArgumentParser, words: Sequence[str]
) -> tuple[argparse.Namespace, Script]:
    """The options, and the script with its own arguments."""
    split = list(words).index("--") if "--" in words else len(words)
    options = arguments.parse_args(words[:split])
    if (options.script is None) == (options.module is None):
        raise UsageError("name a script, or a module by -m; put the script's arguments after `--`")
    script = Script(
        name=options.module or options.script,
        words=tuple(words[split + 1 :]),
        is_module=options.module is not None,
    )
    return options, script


def _table(capture: Capture) -> str:
    header = ("PART", "CALLS", "SHARE", "CEILING", "SHAPES")
    rows = [
        (
            _name(one),
            f"{one.calls:,}",
            f"{100 * one.share:.1f} %",
            f"{one.ceiling:.2f}",
            one_line(_shapes(one), MAX_WIDTH),
        )
        for one in capture.shares[:MAX_ROWS]
    ]
    left_out = len(capture.shares) - len(rows)
    more = f"\n{left_out} more with smaller shares" if left_out > 0 else ""
    gradients = any(one.has_gradients for one in capture.shares)
    note = (
        "\ngradients: they flow back through it; "
        "`evolve apply` can replace only the backward pass of such calls"
    )
    total = time_text(1e3 * capture.total_s)
    return f"{table(header, rows)}{more}\n\n{total} in all{note if gradients else ''}"


def _name(one: Share) -> str:
    notes = [*(["compiled"] * one.is_compiled), *(["gradients"] * one.has_gradients)]
    note = f" [{', '.join(notes)}]" if notes else ""
    return one_line(scrub(one.part.constructor) or one.part.title, MAX_WIDTH - len(note)) + note


def _shapes(one: Share) -> str:
    more = len(one.workloads) - 1
    return one.workloads[0].shapes + (f" and {more} more" if more else "")


def _row(one: Share, written: Written) -> dict[str, object]:
    back = written.backward
    return {
        "name": one.part.name,
        "constructor": scrub(one.part.constructor),
        "calls": one.calls,
        "share": one.share,
        "ceiling": one.ceiling,
        "gradients": one.has_gradients,
        "compiled": one.is_compiled,
        "workloads": [
            {"shapes": each.shapes, "calls": each.calls, "seconds": each.seconds}
            for each in one.workloads
        ],
        "task": str(written.task) if written.task else None,
        "fault": written.fault,
        "withheld": list(written.withheld),
        "backward_task": str(back.task) if back and back.task else None,
        "backward_fault": back.fault if back else "",
    }
