"""Pages and tables as they were when they were last looked at: a change that was not meant shows.

The stores are filled by formulas and seeded generators. A page that differs is left in the test's
folder; if the change is meant, it takes the place of the file in `golden`.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from evolve import __version__
from evolve.core.evaluation import Fidelity, Status
from evolve.core.measurement import Interval
from evolve.core.program import Program
from evolve.core.protocols import Failed, Proposal
from evolve.core.task import Task
from evolve.report.comparison.compare import (
    caveats,
    comparison_csv,
    gather_comparison,
    render_comparison,
    verdict,
)
from evolve.report.run.html import write_report
from evolve.report.suite.overview import (
    bench_rows,
    comparison_rows,
    differences,
    read_benches,
    write_overview,
)
from evolve.report.suite.page import render_suite, suite_csv
from evolve.report.suite.results import SuiteTask, read_suite, task_line
from evolve.store import Store
from tests.report.filling import CONFIG, Filling, evaluation, ratio, source

GOLDEN = Path(__file__).parent / "golden"


def bare(text: str) -> str:
    """Without styles, scripts and layout, and without what differs between hosts and hours."""
    text = re.sub(r"<(style|script).*?</\1>", "", text, flags=re.DOTALL)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?[^\s<,]*", "DATE", text)
    text = text.replace(__version__, "VERSION")
    text = re.sub(r"\d+\.\d{7,}", lambda number: f"{float(number[0]):.6g}", text)
    return "\n".join(line.strip() for line in text.splitlines() if line.strip()) + "\n"


def report_page(store: Store, folder: Path) -> str:
    filled = Filling(store=store).search(25)
    filled.verify()
    filled.finish()
    return write_report(store, "demo", folder / "page").read_text()


def comparison_page(store: Store, _: Path) -> str:
    methods: dict[str, list[str]] = {}
    for seed, (name, programs) in enumerate(
        (("polca", 9), ("polca", 12), ("mcts", 9), ("mcts", 3))
    ):
        config = CONFIG | {"selection": {"_target_": name}}
        run = Filling(store=store, name=f"{name}-{seed}", seed=seed, config=config)
        run.search(programs)
        run.verify()
        run.finish()
        methods.setdefault(name, []).append(run.name)
    found = gather_comparison(store, methods)
    said = [verdict(found), *caveats(found), comparison_csv(found)]
    return "\n".join([render_comparison(found), *said])


def fill_bench(store: Store, bench: str, gain: float, commit: str) -> Iterator[SuiteTask]:
    """A custom program, a mixed one, a failure unless the gain is large, and one not ended."""
    for number, category in enumerate(("matmul", "norm", "norm", "loss"), start=1):
        label = f"1/{number}"
        task = Task(name=f"kernelbench:{label}", source="class Model: ...", category=category)
        config = CONFIG | {"suite": {"name": "kernelbench", "commit": commit}}
        name = f"kernelbench-1-{number}-{bench}"
        filled = Filling(store=store, name=name, task=task, config=config)
        fill_task(filled, number, gain)
        yield SuiteTask(run=name, label=label, level="1", title=f"T{number}", category=category)


def fill_task(filled: Filling, number: int, gain: float) -> None:
    found = evaluation(filled.task, Status.CORRECT, Fidelity.SEARCH, gain)
    time = {"eager": Interval(2.0, 1.9, 2.1), "candidate": Interval(1.0, 0.9, 1.1)}
    found = replace(
        found,
        cases=(replace(found.cases[0], times_ms=time),),
        ratios=found.ratios | {"compile": ratio(gain / 2, 0.1)},
        descriptors={"speed_of_light": 0.25},
    )
    first = Proposal(program=Program(source(number, 1)), note="seed 1 of 1")
    if number == 1:
        filled.step("seed", first, found, "0")
        filled.verify()
    if number == 2:
        filled.step("seed", first, replace(found, custom=False), "0")
    if number == 3 and gain > 0.4:
        filled.step("seed", first, found, "0")
    elif number == 3:
        failed = evaluation(filled.task, Status.COMPILE_ERROR, Fidelity.SEARCH)
        filled.step("seed", first, replace(failed, feedback="line 3: no such name"))
        filled.step("edit", Failed("the reply holds no edit"))
    if number < 4:
        filled.finish("2 evaluations")


def suite_page(store: Store, _: Path) -> str:
    tasks = list(fill_bench(store, "mine", 0.3, "a" * 40))
    waiting = SuiteTask(run="none", label="1/5", level="1", title="1/5", category="loss")
    results = read_suite(store, [*tasks, waiting])
    lines = [task_line(result, ["compile"]) for result in results]
    return "\n".join([*lines, suite_csv(results), render_suite("mine", "kernelbench", results)])


def benches_page(store: Store, folder: Path) -> str:
    for bench, gain, commit in (("old", 0.3, "a" * 40), ("new", 0.5, "b" * 40)):
        list(fill_bench(store, bench, gain, commit))
    benches = read_benches(store)
    rows = [*bench_rows(benches), *comparison_rows(benches)]
    said = [*map(" | ".join, rows), *differences(benches)]
    return "\n".join([*said, write_overview(benches, folder / "page").read_text()])


PAGES: dict[str, Callable[[Store, Path], str]] = {
    "report": report_page,
    "comparison": comparison_page,
    "suite": suite_page,
    "benches": benches_page,
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_as_it_was_last_looked_at(name: str, store: Store, tmp_path: Path) -> None:
    written = tmp_path / f"{name}.txt"
    written.write_text(bare(PAGES[name](store, tmp_path)), encoding="utf-8")
    assert written.read_text(encoding="utf-8") == (GOLDEN / written.name).read_text("utf-8")
