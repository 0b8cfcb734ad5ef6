"""What a run's parts ask of its length and of its task.

Invariants:
1. Migration that comes after the run's end is refused, whichever limit ends it; tunings are no
   steps that an interval counts.
2. An objective or axis about a case that the task does not time is refused.
"""

from dataclasses import replace

import pytest

from evolve.app.compatibility import refuse_late_migration, refuse_unknown_cases
from evolve.core.errors import UsageError
from evolve.core.task import Case
from evolve.testing.synthetic import synthetic_task
from tests.cli.recording import settings

ISLANDS = ("search=greedy", "archive=islands", "selection=island_round_robin")
NO_DEFAULT = ("termination.evaluations=null",)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("archive.interval=40", "termination.proposals=40"), "termination.proposals=40 the run"),
        (("archive.interval=500", "termination.evaluations=40"), "termination.evaluations=40 the"),
        (
            ("archive.interval=500", *NO_DEFAULT, "termination.all_of.evaluations=40"),
            r"archive.interval=500: with termination.all_of.evaluations=40 .*archive.interval=8",
        ),
        (
            ("archive.interval=60", "termination.evaluations=60"),
            "termination.evaluations=60",
        ),
    ],
)
def test_migration_after_the_end_is_refused(words: tuple[str, ...], said: str):
    with pytest.raises(UsageError, match=said):
        refuse_late_migration(settings(*ISLANDS, *words))


@pytest.mark.parametrize(
    "words",
    [
        ("archive.interval=39", "termination.proposals=40"),
        ("archive.interval=59", "termination.evaluations=60"),
        (
            *("archive.interval=500", *NO_DEFAULT, "termination.all_of.evaluations=40"),
            "termination.all_of.wall_time=1h",
        ),
        ("archive.interval=500", "archive.migration=none", "termination.proposals=40"),
    ],
    ids=["just in time", "in evaluations", "not by itself", "none"],
)
def test_migration_that_may_come_is_taken(words: tuple[str, ...]):
    refuse_late_migration(settings(*ISLANDS, *words))


def test_a_case_that_the_task_does_not_time_is_refused():
    config = settings("archive=pareto", "+archive.objectives.case_nowhere=max")
    with pytest.raises(UsageError, match=r"archive.objectives.case_nowhere: .* case_default"):
        refuse_unknown_cases(config, synthetic_task())
    refuse_unknown_cases(settings("archive=pareto"), synthetic_task())
    cases = (Case(name="wide"), Case(name="nowhere", timed=False))
    with pytest.raises(UsageError, match=r"it has case_wide$"):
        refuse_unknown_cases(config, replace(synthetic_task(), cases=cases))
    timed = (Case(name="wide"), Case(name="nowhere"))
    refuse_unknown_cases(config, replace(synthetic_task(), cases=timed))
