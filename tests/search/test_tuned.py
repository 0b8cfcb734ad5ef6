"""Declared constants are tuned, in every preset and beside its proposals.

Invariants:
1. In every preset of `conf/search` a declared constant with a better value is found, although no
   answer helps.
2. An answer that differs from a known program in its values only is measured as an instance of that
   program. It is a duplicate where these values were measured already, and nowhere else.
3. Tunings are no proposals: a run of 40 answers gets 40 answers. They have a share of the tickets,
   and end with it.
4. Turns, intervals and steps count no tunings: a method of search asks as if nothing was tuned.
5. A run that is interrupted in the middle of its tuning goes on as if it had not been, with the
   same counts.
"""

import asyncio
import math
import re
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

from archives import TopK
from evolve.app.config.locate import config_dir
from evolve.core.evaluation import Fidelity
from evolve.core.model import ModelReply, ModelRequest
from evolve.core.program import Program
from evolve.core.protocols import Proposal
from evolve.core.source.tunables import parse, render
from evolve.search.execution.pipeline import Pipeline
from evolve.search.schedule import Scheduled
from evolve.search.selection import Greedy
from evolve.search.termination import from_config
from evolve.store import RunRow, Store
from evolve.testing.operators import RELATIVES
from evolve.testing.synthetic import (
    OPTIMUM,
    PEAK_SPEEDUP,
    SEED_SOURCE,
    SyntheticEvaluator,
    synthetic_task,
    true_speedup,
)
from operators import Seed, Tune
from tests.search.conftest import make_search
from tests.search.preset_run import reply, searched

PRESETS = sorted(path.stem for path in (config_dir() / "search").glob("*.yaml"))
PUBLISHED = sorted({*PRESETS} - {"portfolio", "quick", "greedy", "single", "seeds"})
KNOWN = ("was tried with the same values", "the program is that of its parent")
VALUES = [  # 24 of them, the best one late
    *({"BLOCK": block, "UNROLL": unroll, "STAGES": stages}
      for block, unroll, stages in list(product((32, 64, 256), (1, 2, 8), (1, 2, 4)))[:23]),
    dict(OPTIMUM),
]  # fmt: skip


def with_values(source: str, values: dict[str, int]) -> str:
    for name, value in values.items():
        source = re.sub(rf"^{name} = \d+", f"{name} = {value}", source, flags=re.MULTILINE)
    return source


def other_values(request: ModelRequest, number: int) -> ModelReply:
    return reply(with_values(SEED_SOURCE, VALUES[number % len(VALUES)]))


def nothing_new(request: ModelRequest, number: int) -> ModelReply:
    return reply(SEED_SOURCE)


def best_of(store: Store, run: RunRow) -> float:
    """The true speedup of the fastest program that the archive holds."""
    return max(
        true_speedup(render(store.source(elite.program), elite.assignment))
        for elite in store.slots(run.id).values()
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("preset", sorted({*PRESETS} - {"seeds"}))  # which takes them as written
def test_a_better_value_of_a_declared_constant_is_found_in_every_preset(preset: str, store: Store):
    words = (f"search={preset}", "termination.proposals=24", "termination.wall_time=null")
    searched(store, *words, script=nothing_new, seeds=RELATIVES)
    run = store.run("demo")
    progress = store.progress(run.id)
    start = max(map(true_speedup, RELATIVES))
    assert progress.proposals <= 24 + len(RELATIVES)
    assert progress.tunings > 0
    assert best_of(store, run) > 1.5 * start


@pytest.mark.sample(1)
@pytest.mark.parametrize("preset", PUBLISHED)
def test_no_answer_with_other_values_is_lost(preset: str, store: Store):
    """24 of 24 were, and the best stayed at 0.63 of 4.0."""
    words = (f"search={preset}", "operators.tune=null", "termination.proposals=300")
    words += ("termination.evaluations=30", "termination.wall_time=null", "selection=greedy")
    searched(store, *words, script=other_values)
    run = store.run("demo")
    steps = [s for s in store.steps(run.id) if s.operator not in ("seed", "remeasure_head")]
    measured: set[str] = set()
    for step in steps:
        assert not step.failure or any(words in step.failure for words in KNOWN)
        if step.program:  # else it is a failure, or still to be answered
            assert step.program == Program(SEED_SOURCE).digest
            values = str(sorted(step.assignment.items()))
            assert values not in measured
            measured.add(values)
    assert len(measured) >= 9
    assert len({elite.program for elite in store.slots(run.id).values()}) == 1


def test_an_answer_with_the_best_values_is_the_best_instance_of_its_program(store: Store):
    words = ("search=kernel_smith", "operators.tune=null", "termination.proposals=24")
    _, run = searched(store, *words, script=other_values)
    answers = [step for step in store.steps(run.id) if step.operator == "rewrite_full"]
    assert len(answers) == 24
    assert not any(step.failure for step in answers)
    assert best_of(store, run) == pytest.approx(PEAK_SPEEDUP)
    (elite,) = {elite.program: elite for elite in store.slots(run.id).values()}.values()
    assert (elite.program, dict(elite.assignment)) == (Program(SEED_SOURCE).digest, OPTIMUM)


def test_an_answer_whose_values_were_only_screened_is_measured_in_full(store, run):
    search = make_search(store, run)
    screened = Proposal(
        program=Program(SEED_SOURCE), assignment=dict(OPTIMUM), fidelity=Fidelity.SCREEN
    )
    seed = search.offer(SEED_SOURCE)
    search.tell(seed, SyntheticEvaluator().judge(search.request(seed)))
    ticket = store.record(run.id, "tune", (), screened, tuning=True)
    search.tell(ticket, SyntheticEvaluator().judge(search.request(ticket)))
    told = search.offer(with_values(SEED_SOURCE, OPTIMUM))
    assert told.proposal.assignment == OPTIMUM
    assert told.proposal.fidelity is Fidelity.SEARCH
    search.tell(told, SyntheticEvaluator().judge(search.request(told)))
    again = search.offer(with_values(SEED_SOURCE, OPTIMUM) + "\n# in other words\n")
    assert "was tried with the same values" in again.failure


@pytest.mark.slow
@pytest.mark.parametrize("serial", [True, False])
def test_a_run_of_forty_answers_gets_forty_answers(serial: bool, store: Store):
    """The program to start from is none of Kernel-Smith's 40 rounds, nor is a tuning."""
    words = ("search=kernel_smith",)
    outcome, run = searched(store, *words, serial=serial)
    made = Counter(step.operator for step in store.steps(run.id))
    progress = store.progress(run.id)
    assert (made["seed"], made["rewrite_full"]) == (1, 40)
    assert "40 of 40 proposals" in outcome.reason
    assert (progress.proposals, progress.tunings) == (41, made["tune"])
    assert made["tune"] >= 38


@pytest.mark.sample(1)
@pytest.mark.parametrize(("share", "tunings"), [(0.0, 0), (0.25, 7), (0.5, 21)])
def test_tuning_has_its_share_of_the_tickets(share: float, tunings: int, store: Store):
    words = ("search=kernel_smith", "termination.proposals=20", f"operators.tune.share={share}")
    _, run = searched(store, *words)
    assert store.progress(run.id).proposals == 21
    assert store.progress(run.id).tunings == tunings


def test_beyond_its_share_a_program_is_tuned_while_nothing_else_is_proposed(store: Store):
    searched(store, "operators=[seed,tune]", "operators.tune.limit=10", "termination=default")
    run = store.run("demo")
    tried = {
        str(sorted(parse(SEED_SOURCE).complete(step.assignment).items()))
        for step in store.steps(run.id)
    }
    assert len(tried) == 10
    assert store.progress(run.id).proposals == 1


class Probe:
    """Proposes new programs, and writes down what number its step has, and whose turn it is."""

    parents = 1

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []
        self.turns: list[int] = []

    def select(self, population, count, rng):
        if count:
            self.turns.append(population.turn)
        return Greedy().select(population, count, rng)

    def propose(self, context):
        self.seen.append((context.step, context.sequence))
        text = f"{SEED_SOURCE}\n\nVARIANT = {context.step}\n"
        return Proposal(program=Program(text), parents=(context.parents[0].program,))


def probing(store: Store, run: RunRow, probe: Probe, *, share: float):
    operators = {
        "seed": Scheduled(operator=Seed(), weight=math.inf),
        "tune": Scheduled(operator=Tune(share=share), weight=math.inf),
        "probe": Scheduled(operator=probe),
    }
    archive = TopK(capacity=50)
    return make_search(store, run, operators=operators, selection=probe, archive=archive)


def take(search, steps: int) -> list:
    tickets = [search.ask() for _ in range(1)]
    while True:
        ticket = tickets[-1]
        search.tell(ticket, SyntheticEvaluator().judge(search.request(ticket)))
        if len(tickets) == steps:
            return tickets
        tickets.append(search.ask())


def test_steps_and_turns_count_no_tunings(store, run):
    probe = Probe()
    take(probing(store, run, probe, share=0.5), 31)
    assert store.progress(run.id).tunings == 15
    assert [step for step, _ in probe.seen] == list(range(1, 16))
    assert [sequence for _, sequence in probe.seen] == list(range(2, 32, 2))
    assert probe.turns == list(range(1, 16))
    elites = store.slots(run.id).values()
    assert {elite.step for elite in elites} <= set(range(16))
    assert all(visits.asked <= 15 for visits in store.held_visits(run.id).values())


def test_a_restart_in_the_middle_of_tuning_goes_on_as_if_it_had_not_been(store, run):
    lived = take(probing(store, run, Probe(), share=0.5), 24)
    other = store.create_run(name="other", task=run.task, config=dict(run.config), seed=run.seed)
    for _ in range(24):
        asked = probing(store, other, Probe(), share=0.5).ask()  # and the process is killed
        search = probing(store, other, Probe(), share=0.5)
        (left,) = search.open_tickets()
        assert (left.sequence, left.proposal) == (asked.sequence, asked.proposal)
        assert (left.tuning, left.tunings) == (asked.tuning, asked.tunings)
        search.tell(left, SyntheticEvaluator().judge(search.request(left)))
    assert any(ticket.tuning for ticket in lived)
    assert store.progress(other.id) == store.progress(run.id)
    first, second = (list(store.dump(each.id, canonical=True)) for each in (run, other))
    assert first == second


def test_a_run_that_is_resumed_keeps_the_count_of_its_answers(tmp_path: Path):
    """Two sessions, each stopped by its limit, are one run of that many proposals."""

    def session(store: Store, run: RunRow, proposals: int) -> None:
        search = probing(store, run, Probe(), share=0.5)
        limit = from_config({"proposals": proposals})
        judge = SyntheticEvaluator()
        asyncio.run(Pipeline(search, judge, limit, serial=True, verify=False).run())

    dumps = []
    for name, limits in {"one": (15,), "two": (6, 15)}.items():
        with Store.open(tmp_path / f"{name}.db", create=True) as store:
            task, config = synthetic_task(), {"baseline": "eager"}
            run = store.create_run(name="demo", task=task, config=config, seed=7)
            for proposals in limits:
                session(store, run, proposals)
            assert store.progress(run.id).proposals == 16
            assert store.progress(run.id).tunings == 16
            dumps.append(list(store.dump(run.id, canonical=True)))
    assert dumps[0] == dumps[1]
