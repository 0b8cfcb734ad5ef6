"""`evolve bench`: a search for every task of a suite, and one report."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evolve.app.database import location_of, open_store
from evolve.app.text import table
from evolve.cli import signals
from evolve.cli.args import print_settings
from evolve.cli.commands.run.run import check_python, check_words
from evolve.core.errors import OK, RESUMABLE

if TYPE_CHECKING:
    from evolve.app.bench.plan import Plan

HELP = """\
usage: evolve bench suite=NAME [key=value ...]

Search every task of a suite, several at once before one judge, and report on all of them.

  evolve bench suite=shipped search=seeds
  evolve bench suite=kernelbench path=KernelBench level=[1,2] search=seeds
  evolve bench suite=kernelbench path=KernelBench problems=[1/19,1/40] termination.evaluations=60

Each task is an ordinary run of the database, named SUITE-LEVEL-PROBLEM-SEARCH. The same command
continues: finished tasks are skipped, unless you give a larger budget or other baselines. All
settings of `evolve run` apply to every run (search=..., device=..., termination.*, store.path=...).

"""


def main(words: Sequence[str]) -> int:
    """Do the remaining work; then write the page and the CSV and print the table."""
    if {"-h", "--help"} & {*words}:
        return print_settings("bench", HELP)
    check_python()
    check_words(words)
    from evolve.app.bench.plan import make_plan
    from evolve.app.models import key_notes

    start = time.monotonic()
    plan = make_plan(words)
    for note in key_notes(plan.config):
        print(note)
    ends_at = None if plan.within_s is None else start + plan.within_s
    try:
        return signals.run(_bench(plan, ends_at))
    finally:
        report(plan)


async def _bench(plan: "Plan", ends_at: float | None) -> int:
    from evolve.app.bench.runner import Bench
    from evolve.app.compiler_seeds import wanted
    from evolve.app.device import start_evaluator
    from evolve.cli.console.frontend import Terminal
    from evolve.store import Store

    config: Mapping[str, Any] = plan.config
    evaluator = await start_evaluator(config, compiles=bool(wanted(config)))
    try:
        with Store.open(location_of(config), create=True) as store:
            for notice in store.notices:
                print(notice)
            at = f" at commit {plan.commit[:12]}" if plan.commit else ""
            print(
                f"{plan.name}{at}: {len(plan.entries)} tasks, runs in {store.location}", flush=True
            )
            for label, reason in plan.left_out:
                print(f"  left out  {label}: {reason}")
            terminal = Terminal()
            bench = Bench(
                plan,
                store,
                evaluator,
                ends_at=ends_at,
                say=terminal.say,
                interruptible=terminal.interruptible,
            )
            ended_by = await bench.run()
    finally:
        await evaluator.close()
    if ended_by:
        print(f"\nstopped: {ended_by}; the same command goes on")
    return RESUMABLE if ended_by else OK


def report(plan: "Plan") -> None:
    """Write the page and the table beside the database, and print the important lines."""
    from evolve.report.suite.native import heading_of, native_rows, rescue_text
    from evolve.report.suite.page import (
        FAST,
        HEADER,
        amsr_lines,
        caveats,
        figure_rows,
        native_header,
        spent_line,
        write_suite,
    )
    from evolve.report.suite.results import read_suite
    from evolve.store import Store

    location = location_of(plan.config)
    if not Store.exists(location):
        return
    with open_store(location) as store:
        page = store.folder / f"{plan.name}.html"
        results = read_suite(store, [entry.task for entry in plan.entries])
    write_suite(plan.name, plan.suite, results, page, page.with_suffix(".csv"))
    print()
    print(table((*HEADER, *FAST), list(figure_rows(results))))
    print(f"\n{heading_of(plan.suite)}:")
    print(table(native_header(plan.suite), native_rows(plan.suite, results)))
    print()
    facts = (rescue_text(results), *amsr_lines(results), spent_line(results))
    for line in (*facts, *caveats(results)):
        print(line)
    for result in results:
        if result.ended and result.best is None:
            print(f"  none  {result.task.label} {result.task.title}: {result.reason}")
    print(f"  page   {page}")
    print(f"  table  {page.with_suffix('.csv')}")
