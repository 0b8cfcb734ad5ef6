"""`evolve tasks list` and `evolve tasks check`: the tasks of a suite, without a search."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from evolve.app.bench.suite_check import Checked, State, check_suite, count, line_of, read_checked
from evolve.app.device import kind_here, start_local
from evolve.app.text import table
from evolve.cli.args import add_count, add_device, parser
from evolve.core.devices import device_kind
from evolve.core.suites import Problem
from evolve.core.task import SIZES
from evolve.languages.registry import languages_on
from evolve.report.text import count_text, one_line
from evolve.tasks import find_task
from evolve.tasks.suites import suite_commit, suite_problems, suites

MAX_WHY = 160  # characters


def list_suite(words: Sequence[str]) -> int:
    """Print one line per task; nothing is executed."""
    options = _parser("list", "List the tasks of a suite. Nothing of it is executed.").parse_args(
        words
    )
    problems = _problems(options)
    if options.json:
        rows = [{"task": one.spec, "level": one.level, "title": one.title} for one in problems]
        print(json.dumps({"commit": _commit(options), "tasks": rows}, indent=1))
        return 0
    print(table(("TASK", "LEVEL"), [(one.spec, one.level) for one in problems]))
    print(f"\n{_heading(options, problems)}")
    return 0


def check_suite_tasks(words: Sequence[str]) -> int:
    """Check every task in a worker, and print those that are not sound, with counts."""
    options = _parse_check(words)
    problems = _problems(options)
    path = Path(options.output) if options.output else None
    found = asyncio.run(_checked(problems, options, path))
    counts = {state.value: number for state, number in count(found).items()}
    if options.json:
        rows = [json.loads(line_of(one)) for one in found]
        print(json.dumps({"commit": _commit(options), "counts": counts, "tasks": rows}, indent=1))
        return 0
    for one in found:
        if one.state is not State.SOUND:
            print(f"  {one.state:<12} {one.label}: {one_line(one.detail, MAX_WHY)}")
    numbers = ", ".join(f"{number:,} {state}" for state, number in counts.items())
    print(f"{_heading(options, problems)}: {numbers}")
    return 0


async def _checked(
    problems: Sequence[Problem], options: argparse.Namespace, path: Path | None
) -> list[Checked]:
    kind = kind_here(options.device, None)
    device = device_kind(kind)
    read = partial(
        find_task,
        size=options.size or device.size,
        languages=languages_on(device),
        checkout=Path(options.path).expanduser() if options.path else None,
    )
    done = 0

    def tell(one: Checked) -> None:
        nonlocal done
        done += 1
        why = f": {one_line(one.detail, MAX_WHY)}" if one.detail else ""
        print(f"{done:,}/{len(problems):,} {one.state:<12} {one.label}{why}", file=sys.stderr)
        if path is not None:
            with path.open("a", encoding="utf-8") as file:
                file.write(line_of(one))

    async with AsyncExitStack() as started:
        auditors = []
        for _ in range(min(options.jobs, len(problems))):
            auditor = await start_local(kind, slots=1)
            started.push_async_callback(auditor.close)
            auditors.append(auditor)
        known = read_checked(path) if path else []
        return await check_suite(problems, read, auditors, known, tell, has_gpu=device.is_gpu)


def _parse_check(words: Sequence[str]) -> argparse.Namespace:
    arguments = _parser(
        "check",
        "Load every task of a suite in a worker, run its reference, and judge answers that need no "
        "work. Says which tasks are sound, weak, not judged or need a GPU.",
    )
    arguments.add_argument("--size", choices=SIZES, help="default: that of the device")
    add_device(arguments, "the device of the check")
    add_count(arguments, "--jobs", default=1, text="tasks checked at once")
    arguments.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="append a line of JSON for each task; an existing file is continued",
    )
    return arguments.parse_args(words)


def _parser(verb: str, description: str) -> argparse.ArgumentParser:
    arguments = parser(f"tasks {verb}", description)
    arguments.add_argument("--suite", required=True, metavar="NAME", help=", ".join(suites()))
    arguments.add_argument("--path", metavar="DIR", help="the suite's checkout")
    arguments.add_argument("--level", action="append", default=[], help="a level; repeat for more")
    arguments.add_argument(
        "--select", action="append", default=[], metavar="LABEL", help="one task; repeat for more"
    )
    arguments.add_argument("--json", action="store_true", help="for machines")
    return arguments


def _problems(options: argparse.Namespace) -> list[Problem]:
    return suite_problems(
        options.suite,
        path=options.path,
        levels=options.level,
        only=options.select,
        option="--{} {}".format,
    )


def _commit(options: argparse.Namespace) -> str:
    return suite_commit(options.suite, options.path)


def _heading(options: argparse.Namespace, problems: Sequence[Problem]) -> str:
    commit = _commit(options)
    at = f" at commit {commit[:12]}" if commit else ""
    return f"{options.suite}{at}, {count_text(len(problems), 'task')}"
