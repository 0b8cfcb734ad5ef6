"""The request of `evolve bench`: its settings, and a run for every task of the suite."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from omegaconf import MISSING

from evolve.app import components
from evolve.app.config.compose import compose, compose_other
from evolve.app.config.presets import search_of
from evolve.app.device import kind_of
from evolve.app.inputs import load_task
from evolve.app.recall import refuse_recall
from evolve.app.validation import check_name
from evolve.core.devices import device_kind
from evolve.core.errors import UsageError
from evolve.core.evaluation import Fidelity
from evolve.core.protocols import BASELINES
from evolve.core.suites import Problem
from evolve.report.suite.results import SuiteTask
from evolve.search.termination import format_duration, parse_duration
from evolve.tasks.suites import suite_commit, suite_named, suite_problems
from operators.knowledge.category import operation_of

OURS = ("task", "on_exists")  # settings of a run that a suite gives itself
VERDICT_S = 45.0  # to make a task ready and judge a program; a final, before one has ended
RESERVE_S = 20.0  # before the end: to cancel running work, end the judge and write the report


class Final(Enum):
    """How a winner is measured again."""

    verify = "verify"
    search = "search"
    screen = "screen"
    none = "none"


@dataclass
class BenchConfig:
    """The types of conf/bench.yaml, which describes each field."""

    suite: str = MISSING
    path: str | None = None
    level: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    name: str | None = None
    baselines: list[str] | None = None
    final: Final = Final.verify
    audit: bool = True
    within: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One run of a suite: its task as reports name it, and its whole configuration."""

    task: SuiteTask
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A bench: its runs in order, and their common settings.

    `beside` are the baselines that every program is timed with; `final` is None if winners are not
    measured again; `within_s` None if there is no hurry. `commit` is that of the suite's checkout,
    empty if it has none; `left_out` are problems that no task can be made of, with the reasons.
    """

    name: str
    entries: Sequence[Entry]
    baselines: Sequence[str]
    beside: Sequence[str]
    final: Fidelity | None
    audit: bool
    within_s: float | None
    commit: str = ""
    left_out: Sequence[tuple[str, str]] = ()

    @property
    def config(self) -> Mapping[str, Any]:
        """The first run's configuration: for the settings that all runs share."""
        return self.entries[0].config

    @property
    def suite(self) -> str:
        """Its name."""
        return str(self.config["suite"]["name"])


def make_plan(words: Sequence[str]) -> Plan:
    """The bench that `key=value` words describe; everything that can be wrong with them is said.

    Raises:
        UsageError: a word, a suite, a problem or a run that cannot be.
    """
    own, of_runs = _split(words)
    settings = compose_other("bench", BenchConfig, own)
    if settings["path"] is not None and (variable := suite_named(settings["suite"]).variable):
        os.environ[variable] = settings["path"]  # where tasks named SUITE:LABEL are looked up
    problems = suite_problems(
        settings["suite"],
        path=settings["path"],
        levels=settings["level"],
        only=settings["problems"],
    )
    config = compose([f"task={problems[0].spec}", *of_runs])
    if config["device"]["kind"] == "replay":
        raise UsageError("device=replay knows recorded programs only; a suite needs a device")
    components.build_all(config)
    refuse_recall(config)
    label = settings["name"] or search_of(of_runs)
    commit = suite_commit(settings["suite"], settings["path"])
    config["suite"] = {"name": settings["suite"], "commit": commit}
    entries, left_out = _entries(problems, config, label)
    baselines = _baselines(settings["baselines"], kind_of(config))
    final = None if settings["final"] == "none" else Fidelity(settings["final"])
    return Plan(
        name=f"{settings['suite']}-{label}",
        entries=entries,
        baselines=baselines,
        beside=baselines if final is None and settings["baselines"] else (),
        final=final,
        audit=settings["audit"],
        within_s=_within(settings["within"]),
        commit=commit,
        left_out=left_out,
    )


def _entries(
    problems: Sequence[Problem], config: Mapping[str, Any], label: str
) -> tuple[list[Entry], list[tuple[str, str]]]:
    """A run for each problem, and the problems that no task can be made of.

    Raises:
        UsageError: none can be made of any.
    """
    entries: list[Entry] = []
    left_out: list[tuple[str, str]] = []
    for problem in problems:
        run = f"{config['suite']['name']}-{problem.label.replace('/', '-')}-{label}"
        check_name(run)
        own_config = {**config, "task": problem.spec, "name": run, "on_exists": "resume"}
        try:
            task = load_task(own_config)
        except UsageError as error:  # one bad file does not end a suite
            left_out.append((problem.label, str(error)))
            continue
        about = SuiteTask(
            run=run,
            label=problem.label,
            level=problem.level,
            title=problem.title,
            category=operation_of(task.category, task.source),
        )
        entries.append(Entry(task=about, config=own_config))
    if not entries:
        raise UsageError(left_out[0][1])
    return entries, left_out


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Words of the bench's own, and those of its runs."""
    ours = BenchConfig.__dataclass_fields__
    own: list[str] = []
    of_runs: list[str] = []
    for word in words:
        key = word.partition("=")[0].lstrip("+~")
        if key in OURS:
            raise UsageError(f"{word}: bench sets it for each run; name problems=[...] instead")
        (own if key in ours else of_runs).append(word)
    return own, of_runs


def _baselines(names: Sequence[str] | None, kind: str) -> tuple[str, ...]:
    if names is None:
        return device_kind(kind).baselines
    for name in names:
        if name not in BASELINES:
            raise UsageError(f"baselines=[{name}]: choose of {', '.join(BASELINES)}")
    return tuple(dict.fromkeys(names))


def _within(text: str | None) -> float | None:
    if text is None:
        return None
    seconds = parse_duration(text)
    if seconds < VERDICT_S + RESERVE_S:
        raise too_short(seconds, VERDICT_S)
    return seconds


def too_short(within_s: float, verdict_s: float) -> UsageError:
    """The error for a time in which nothing can be judged; twice as much leaves some for the start.

    Args:
        within_s: seconds of the call.
        verdict_s: seconds that a verdict is expected to take.
    """
    enough = format_duration(math.ceil(2 * max(within_s, verdict_s + RESERVE_S)))
    return UsageError(
        f"within={format_duration(within_s)}: too short for the start of the judge, a verdict of "
        f"about {verdict_s:.0f} s, and the report, for which the last {RESERVE_S:g} s are kept; "
        f"give e.g. within={enough}"
    )
