"""From the configuration of `evolve mcp` to the parts that its tools work with."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from evolve.app.device import kind_of, start_evaluator
from evolve.app.mcp.budget import Budget
from evolve.app.mcp.judging import LazyJudge, Submissions, free_jobs
from evolve.app.mcp.run_steps import RunSteps
from evolve.app.mcp.searches import Searches
from evolve.app.mcp.tools import Parts
from evolve.core.devices import device_kind
from evolve.core.errors import UsageError
from evolve.search.termination import parse_duration
from evolve.serve.catalogue import Catalogue
from evolve.serve.judge import Start
from evolve.serve.quota import DeviceQuota
from evolve.serve.service import Service, Settings
from evolve.store import Store
from operators.knowledge import load


def parts_of(
    config: Mapping[str, Any], say: Callable[[str], None], start: Start | None = None
) -> Parts:
    """The parts; no judge and no database is started or opened yet.

    Args:
        config: of the server.
        say: takes lines for its operator.
        start: starts an evaluator (None: the one that `config` describes).

    Raises:
        UsageError: a value that cannot be, a task or document that cannot be read.
    """
    if config["device"]["kind"] == "replay":
        raise UsageError("device=replay judges nothing new; take device=auto, cpu or cuda")
    limits = _limits(config["budget"])
    budget = Budget(limits)

    def make() -> Service:
        jobs = free_jobs(Path(config["jobs"]))
        quota = DeviceQuota(Store.open(config["database"], create=True), config["project"] or "")
        return Service(jobs, start or (lambda: start_evaluator(config)), {}, Settings(), say, quota)

    @functools.cache
    def size() -> str:  # to ask for the device takes seconds
        return device_kind(kind_of(config)).size

    any_reference = config["references"] == "any"
    catalogue = Catalogue(config["tasks"], size=size, any_reference=any_reference)
    folders = list(config["knowledge"]["folders"])
    if folders:
        load(folders)  # what is wrong with them is said now, not in a tool's answer
    judge, settings = LazyJudge(make), _settings(config)
    return Parts(
        location=config["database"],
        catalogue=catalogue,
        knowledge=folders,
        settings=settings,
        budget=budget,
        judge=judge,
        submissions=Submissions(judge, catalogue, budget),
        steps=RunSteps(config["database"], judge, budget),
        searches=Searches(config["database"], settings, budget),
    )


def _limits(given: Mapping[str, Any]) -> dict[str, float]:
    """The limits by kind.

    Raises:
        UsageError: one is negative, or no duration.
    """
    verdicts, usd = given["verdicts"], given["usd"]
    for name, value in (("verdicts", verdicts), ("usd", usd)):
        if value is not None and value < 0:
            raise UsageError(f"budget.{name}={value}: it must be at least 0")
    limits = {"wall_time_s": parse_duration(given["wall_time"]), "usd": float(usd)}
    return limits if verdicts is None else {**limits, "verdicts": float(verdicts)}


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """How runs are judged: as this server judges."""
    device, sandbox, cuda = config["device"], config["sandbox"], config["cuda"]
    found = {"device": device["kind"]}
    found |= {f"device.{name}": value for name, value in device.items() if name != "kind"}
    found |= {"sandbox.require": sandbox["require"]}
    found |= {"sandbox.read": list(sandbox["read"]) or None}
    found |= {f"cuda.{name}": list(value) or None for name, value in cuda.items()}
    return {name: value for name, value in found.items() if value is not None}
