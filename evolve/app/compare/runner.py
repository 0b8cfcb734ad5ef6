"""The runs of a comparison: every method with every seed, all else the same."""

import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from evolve.app.budget import run_s
from evolve.app.compare.methods import OF_A_RUN
from evolve.app.config.compose import compose
from evolve.app.config.diff import flatten
from evolve.app.database import location_of, store_word
from evolve.app.device import kind_of, start_evaluator
from evolve.app.estimate.reference import reference_of
from evolve.app.frontend import Frontend
from evolve.app.launch import audit
from evolve.app.recall import refuse_recall
from evolve.app.session import is_done, search
from evolve.app.team import quotas
from evolve.app.validation import Request, read_request
from evolve.core.digest import canonical_json
from evolve.core.errors import UsageError
from evolve.core.protocols import Evaluator
from evolve.core.run_store import RunStore
from evolve.report.audit import findings_of
from evolve.report.text import count_text, duration_text
from evolve.store import Store

SAME = (  # settings that a method may not change
    *("task", "task_config", "name", "on_exists", "seed", "termination", "device", "sandbox"),
    *("cluster", "cuda", "store", "baseline", "initial", "warm_start", "deterministic"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One run of a comparison: its method, name, and whole configuration."""

    comparison: str
    label: str
    name: str
    config: Mapping[str, Any]
    request: Request

    @property
    def is_done(self) -> bool:
        """Whether the run is stored and has used this budget up."""
        run = self.request.existing
        return run is not None and is_done(run, self.config)


def plan(
    settings: Sequence[str],
    searches: Sequence[str],
    *,
    seeds: int,
    store: str,
    name: str | None = None,
) -> list[Entry]:
    """The runs in the order of running: a round of all methods for each seed.

    Everything that can be wrong is found here, before the first of them begins.

    Args:
        settings: key=value words for all.
        searches: a preset for each method, with key=value words of its own after it.
        seeds: how many runs of each, numbered on from `seed`.
        store: the database, unless a word says otherwise.
        name: prefix of the runs' names.

    Raises:
        UsageError: no budget, a method that is no preset or sets something that has to be the same,
            runs of these names with other settings, or a setting that a run would refuse.
    """
    _check(settings, searches, seeds)
    shared = [store_word(store), "store.reuse=false", *settings]
    limits = _budget(shared)
    entries = []
    for seed in range(seeds):
        for label in searches:
            config = {**_composed(label, shared), "termination": limits}
            config["seed"] += seed
            entries.append(_entry(label, config, name))
    return entries


def _entry(label: str, config: dict[str, Any], name: str | None) -> Entry:
    comparison = name or f"compare-{_slug(str(config['task']).rpartition('/')[2])}"
    config["name"] = f"{comparison}-{_slug(label)}-s{config['seed']}"
    config["on_exists"] = "resume"
    refuse_recall(config)
    request = read_request(config)
    return Entry(
        comparison=comparison, label=label, name=config["name"], config=config, request=request
    )


def _slug(text: str) -> str:
    return re.sub(r"[^\w.+]+", "-", text.removesuffix(".py")).strip("-")


def _composed(label: str, shared: Sequence[str]) -> dict[str, Any]:
    preset, *own = _words(label)
    return compose([f"search={preset}", *shared, *own])


def _words(label: str) -> list[str]:
    """The preset of a method, and its key=value words."""
    try:
        return shlex.split(label)
    except ValueError as error:
        raise UsageError(f"--search {label}: {error}; close what you quote") from error


def _check(settings: Sequence[str], searches: Sequence[str], seeds: int) -> None:
    if seeds < 1:
        raise UsageError(f"--seeds={seeds}: at least one; an interval of 95 % needs 6")
    for number, label in enumerate(searches):
        words = _words(label)
        if not words or "=" in words[0]:
            raise UsageError(
                f'--search "{label}" begins with no preset; write e.g. "polca {label}"'
            )
        if _slug(label) in map(_slug, searches[:number]):
            raise UsageError(f"--search {label} is given twice; leave one out")
        for word in words[1:]:
            if _group(word) in SAME:
                raise UsageError(
                    f'--search "{label}": {word} has to be the same for all methods; '
                    "give it as a word of its own"
                )
    for word in settings:
        key = word.partition("=")[0]
        if key in ("name", "on_exists", "search"):
            instead = {"name": "--name NAME", "search": "--search PRESET"}.get(key, "nothing")
            raise UsageError(f"{word}: compare names its runs itself; give {instead} instead")
        if word.startswith("device=replay"):
            raise UsageError(f"{word} knows recorded programs only; searches need a device")


def _group(word: str) -> str:
    """The key of a key=value word up to the first dot."""
    return word.lstrip("+~").partition("=")[0].partition(".")[0]


def _budget(shared: Sequence[str]) -> dict[str, Any]:
    """The limits that are typed, for all alike; the defaults and those of presets are left out.

    Raises:
        UsageError: none is typed.
    """
    words = [word for word in shared if _group(word) == "termination"]
    if not words:
        raise UsageError(
            "compare needs a budget for all: give one, e.g. termination.evaluations=60 or "
            "termination.tokens=2000000"
        )
    if not any(word.startswith("termination=") for word in words):
        defaults = flatten(compose(["task=any"])["termination"], "termination")
        words = [f"{name}=null" for name, value in defaults if value is not None] + words
    limits: dict[str, Any] = compose(["task=any", *words])["termination"]
    return limits


def plan_notes(entries: Sequence[Entry]) -> Iterator[str]:
    """Notes before the first run: methods that are the same, and how long it takes."""
    by_settings: dict[str, list[str]] = {}
    for entry in entries:
        telling = {name: value for name, value in entry.config.items() if name not in OF_A_RUN}
        labels = by_settings.setdefault(canonical_json(telling), [])
        labels += [] if entry.label in labels else [entry.label]
    for labels in by_settings.values():
        if len(labels) > 1:
            yield (
                f"--search {' and --search '.join(labels)} have the same settings here, so that "
                "chance alone will tell them apart; leave one out, or give it a setting of its own"
            )
    left = [entry for entry in entries if not entry.is_done]
    each_s = max((run_s(entry.config, kind_of(entry.config)) for entry in left), default=0.0)
    takes = f", about {duration_text(each_s * len(left))} in all" if each_s < math.inf else ""
    yield f"{count_text(len(left), 'run')} of {len(entries)} to go{takes}"


async def search_all(
    entries: Sequence[Entry],
    frontend: Frontend,
    evaluator: Evaluator | None = None,
    during: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> bool:
    """Search one run after the other with the same judge; those that are done are left alone.

    Args:
        entries: from `plan`.
        frontend: shows progress.
        evaluator: the judge, which does not audit the task; None starts the configured one, and
            has it audited.
        during: a block around each run.

    Returns:
        Whether all runs are finished; after one that was stopped no other begins.
    """
    config = entries[0].config
    with frontend.doing("starting the judge", plain=False):
        judge = evaluator or await start_evaluator(config)
    try:
        found: Any = None if evaluator is None else []
        reference: Any = None
        with Store.open(location_of(config), create=True) as store:
            for number, entry in enumerate(entries, start=1):
                if found is None:
                    found = await _findings(entry, judge, frontend)
                if reference is None and evaluator is None:
                    reference = await _reference(entry, judge, frontend)
                seed, facts = entry.config["seed"], {"audit": found, "reference": reference}
                frontend.say(f"\n{number} of {len(entries)}: {entry.label}, seed {seed}")
                with during():
                    finished = await _search(store, entry, facts, judge, frontend)
                if not finished:
                    return False
    finally:
        if evaluator is None:
            await judge.close()
    return True


async def _findings(entry: Entry, judge: Evaluator, frontend: Frontend) -> Any:
    existing = entry.request.existing
    if existing is not None:
        return findings_of(existing.config)
    return await audit(entry.config, judge, entry.request.task, frontend)


async def _reference(entry: Entry, judge: Evaluator, frontend: Frontend) -> Any:
    existing = entry.request.existing
    if existing is not None:
        return existing.config.get("reference")
    return await reference_of(entry.request.task, entry.config, judge, frontend)


async def _search(
    store: RunStore,
    entry: Entry,
    facts: Mapping[str, Any],
    judge: Evaluator,
    frontend: Frontend,
) -> bool:
    recorded = {**entry.request.recorded, **facts}
    run = entry.request.existing or store.create_run(
        name=entry.name, task=entry.request.task, config=recorded, seed=recorded["seed"]
    )
    if entry.is_done:
        frontend.say(f"run {run.name} is finished: {run.reason}")
        return True
    quotas.refuse_over_quota(recorded, run)
    frontend.say(f"run {run.name} in {store.location}")
    # Compared runs have to be verified, however late: the limit applies to the search only.
    return (await search(store, run, recorded, judge, frontend, late_s=math.inf)).finished
