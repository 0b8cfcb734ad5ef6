"""`evolve tasks import`: a folder of modules becomes a set of prompts to train on."""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import evolve
from evolve.app.device import kind_here, start_local
from evolve.cli.args import add_count, add_device, add_rules, parser
from evolve.cli.console.terminal import notify
from evolve.core.digest import canonical_json, framed_digest
from evolve.core.task import SIZES
from evolve.languages.registry import languages
from evolve.languages.triton import TRITON
from evolve.report.text import one_line
from evolve.tasks import find_task
from evolve.trajectories.decontamination.exclusions import Rules
from evolve.trajectories.decontamination.graphs import Tracer
from evolve.trajectories.decontamination.holdout import KERNELBENCH, hold_out
from evolve.trajectories.decontamination.licences import licence_of
from evolve.trajectories.decontamination.splits import TEST, TRAIN, families_of, test_families
from evolve.trajectories.decontamination.task_sets import (
    Candidate,
    Finding,
    Journal,
    Outcome,
    audit_all,
    by_rules,
    count,
    read_folder,
    without_copies,
)
from evolve.trajectories.exporters.folder import building, publish
from evolve.trajectories.exporters.formats import FORMATS, Kind, Place
from evolve.trajectories.exporters.manifest import TASKS, Manifest, Source
from evolve.trajectories.exporters.shards import Shards, require_pyarrow
from evolve.trajectories.first_prompt import first_prompt
from evolve.trajectories.step import Step
from evolve.trajectories.views.rows import PromptOnly

TARGETS = {"verl": "verl-rl", "trl": "trl-grpo"}
VIEW = "prompts"
_WRITTEN = "tasks"  # in the journal: every prompt is there
FINDINGS = "findings.jsonl"  # one line for every file, in the export too


def main(words: Sequence[str]) -> int:
    """Read a folder, audit its tasks if that is asked for, and write those that are sound."""
    options = _parse(words)
    if FORMATS[TARGETS[options.to]].parquet:
        require_pyarrow()
    test_families((), options.test_share)  # refuses a wrong share before an audit takes its time
    folder, target = Path(options.folder), Path(options.output)
    read = partial(find_task, size=options.size)
    candidates, findings = read_folder(folder, read)
    with building(target) as place, Tracer() as executing:
        tracer = executing if options.audit else None
        rules = Rules(
            held_out=hold_out(options.held_out or [KERNELBENCH], tracer),
            licences=tuple(options.licences_allowed),
        )
        findings += by_rules(candidates, rules, tracer)
        left_out = {finding.path for finding in findings}
        candidates = [one for one in candidates if one.path not in left_out]
        if options.audit:
            findings += asyncio.run(_audited(candidates, Journal(place / FINDINGS), options))
        sound, findings = _sound(candidates, findings, executing)
        ids = {one.path: _step(one, number, folder).id for number, one in enumerate(sound)}
        findings = [replace(one, step_id=ids.get(one.path, "")) for one in findings]
        made = _write(sound, findings, rules, place, options)
        publish(place, target, made, {FINDINGS: _lines(findings)})
    print(f"{target}: {_counts(findings)}; {sum(made.rows.get(VIEW, {}).values()):,} prompts")
    for notice in made.notices:
        notify(notice)
    return 0


def _parse(words: Sequence[str]) -> argparse.Namespace:
    arguments = parser(
        "tasks import",
        "Turn a folder of task modules (KernelBench convention) into a set of prompts to train on. "
        "Duplicates, held-out tasks and those whose licence forbids it are left out; with --audit "
        "also what is broken, and what an answer passes that needs no work. Stopped, it goes on "
        "when the same command is given again.",
    )
    arguments.add_argument("folder", metavar="DIR", help="its sub-folders are read too")
    arguments.add_argument("-o", "--output", metavar="OUT", required=True, help="folder to write")
    arguments.add_argument("--to", choices=TARGETS, default="trl", help="default: %(default)s")
    arguments.add_argument(
        "--audit", action="store_true", help="run every task in a worker; without it none is run"
    )
    arguments.add_argument(
        "--language",
        choices=[*languages()],
        default=TRITON.name,
        help="language of the answers (default: %(default)s)",
    )
    arguments.add_argument("--size", choices=SIZES, default="gpu", help="default: %(default)s")
    add_device(arguments, "that audits")
    half = max(1, (os.cpu_count() or 2) // 2)
    add_count(arguments, "--jobs", default=half, text="tasks audited at once")
    add_rules(arguments)
    return arguments.parse_args(words)


async def _audited(
    candidates: Sequence[Candidate], journal: Journal, options: argparse.Namespace
) -> list[Finding]:
    """The audit's findings on every candidate, each by a worker that has no other task."""
    device = kind_here(options.device, None)
    left = sum((one.path, one.task.revision) not in journal.known for one in candidates)
    notify(f"auditing {left:,} of {len(candidates):,} tasks, {options.jobs} at once")
    done = 0

    def tell(finding: Finding) -> None:
        nonlocal done
        done += 1
        line = f"{done:,}/{left:,} {finding.outcome:<9} {finding.path}"
        if finding.detail:
            line += f": {one_line(finding.detail, 120)}"
        print(line, file=sys.stderr, flush=True)

    async with AsyncExitStack() as started:
        auditors = []
        for _ in range(min(options.jobs, left)):
            auditor = await start_local(device, slots=1)
            started.push_async_callback(auditor.close)
            auditors.append(auditor)
        return await audit_all(candidates, auditors, journal, tell)


def _sound(
    candidates: Sequence[Candidate], findings: Sequence[Finding], tracer: Tracer
) -> tuple[list[Candidate], list[Finding]]:
    """The tasks to write, and the outcome of every file, by path."""
    found = {finding.path: finding for finding in findings}
    for one in candidates:  # without an audit nothing speaks against a task
        found.setdefault(one.path, Finding(one.path, one.task.revision, Outcome.SOUND))
    tasks = {one.path: one.task for one in candidates}
    final = list(without_copies((found[path] for path in sorted(found)), tasks, tracer))
    kept = {finding.path for finding in final if finding.outcome is Outcome.SOUND}
    return [one for one in candidates if one.path in kept], final


def _write(
    sound: Sequence[Candidate],
    findings: Sequence[Finding],
    rules: Rules,
    place: Path,
    options: argparse.Namespace,
) -> Manifest:
    """A prompt for each task, split by family."""
    target = FORMATS[TARGETS[options.to]]
    shape = target.shape(Kind.PROMPT)
    families = families_of(one.task for one in sound)
    tested = test_families(families.values(), options.test_share)
    asked = canonical_json([target.name, options.language, options.test_share])
    identity = framed_digest("task set", asked, *(one.task.revision for one in sound))
    with Shards(place, identity, {VIEW: shape.columns}) as shards:
        if _WRITTEN not in shards.done:
            for number, one in enumerate(sound):
                family = families[one.task.revision]
                split = TEST if family in tested else TRAIN
                step = _step(one, number, Path(options.folder))
                row = PromptOnly(steps=(step,), prompt=first_prompt(one.task, options.language))
                to = Place(split, shards.rows(VIEW, split), family)
                shards.write(VIEW, split, shape.fill(row, to))
            shards.commit(_WRITTEN, {})
        splits = (TRAIN, TEST)
        rows = {split: shards.rows(VIEW, split) for split in splits if shards.rows(VIEW, split)}
        return Manifest(
            exporter=evolve.__version__,
            format=target.name,
            recipe="task_set@1" if options.audit else "task_set@1, not audited",
            made_of=TASKS,
            sources=tuple(_source(one, families[one.task.revision]) for one in sound),
            excluded={
                outcome.value: number
                for outcome, number in count(findings).items()
                if outcome is not Outcome.SOUND
            },
            rows={VIEW: rows} if rows else {},
            columns={VIEW: shape.columns},
            test_families=tuple(sorted(tested)),
            held_out=rules.held_out.asked,
            held_out_by_graph=rules.held_out.is_traced,
            near_misses=tuple(_near_misses(sound, rules)),
            notices=rules.held_out.notices,
            shards=tuple(shards.finish(parquet=target.parquet)),
        )


def _step(one: Candidate, number: int, folder: Path) -> Step:
    return Step(task=one.task, run=folder.resolve().name, sequence=number)


def _near_misses(sound: Sequence[Candidate], rules: Rules) -> Iterator[dict[str, Any]]:
    for one in sound:
        for near in rules.held_out.near(one.task)[:1]:
            yield {"task": one.path, "name": near.name, "distance": round(near.distance, 4)}


def _source(one: Candidate, family: str) -> Source:
    return Source(
        name=one.path,
        task=one.task.name,
        task_revision=one.task.revision,
        family=family,
        licence=licence_of(one.task.source),
        steps=1,
    )


def _lines(findings: Sequence[Finding]) -> str:
    return "".join(f"{json.dumps(asdict(finding))}\n" for finding in findings)


def _counts(findings: Sequence[Finding]) -> str:
    counts = [f"{number:,} {outcome}" for outcome, number in count(findings).items()]
    return f"{len(findings):,} files: {', '.join(counts)}"
