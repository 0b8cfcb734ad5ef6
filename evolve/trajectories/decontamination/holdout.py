"""Held-out tasks: those that a model will be measured on and must not be trained on."""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from evolve.core.digest import framed_digest
from evolve.core.errors import UsageError
from evolve.core.task import Task
from evolve.tasks.suites.kernelbench import NAME as KERNELBENCH
from evolve.tasks.suites.kernelbench import PREFIX, VARIABLE
from evolve.trajectories.decontamination.graphs import Tracer
from evolve.trajectories.decontamination.similarity import Near, Similarity

NOTHING = "none"
NEAR = 0.6
"""Weighted distance up to which a task counts as a near miss: listed, not left out."""


@dataclass(frozen=True, slots=True)
class Match:
    """A held-out task: its name, and the kind of match (`name`, `source`, `graph`)."""

    name: str
    how: str


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """A set of tasks to keep out.

    Attributes:
        asked: the request, as the manifest quotes it: of a path its last part and a digest.
        sources: text of every task by name, likewise.
        signatures: names of the tasks by their signatures, if they were traced.
        notices: messages for the user.
    """

    asked: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    signatures: Mapping[str, Sequence[str]] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Of names and texts: a path may hold another task today."""
        texts = (part for pair in sorted(self.sources.items()) for part in pair)
        return framed_digest("held out", *self.asked, *texts)

    @property
    def is_traced(self) -> bool:
        """Whether tasks are also recognised by their computation."""
        return bool(self.signatures)

    @cached_property
    def similarity(self) -> Similarity:
        return Similarity(self.sources)

    def match(self, task: Task, tracer: Tracer | None = None) -> Match | None:
        """The kind of a held-out task; None if it may be trained on.

        With a tracer also by its computation; that executes the task, in another process.
        """
        if KERNELBENCH in self.asked and task.name.startswith(PREFIX):
            return Match(task.name, "name")
        if (name := self.similarity.same(task.source)) is not None:
            return Match(name, "source")
        if tracer is None or not self.is_traced:
            return None
        for name in self.signatures.get(tracer.signature(task) or "", ()):
            if tracer.same(task, Task(name=name, source=self.sources[name])):
                return Match(name, "graph")
        return None

    def near(self, task: Task) -> list[Near]:
        """The references that are close to a task, nearest first; none is at no distance."""
        return [one for one in self.similarity.nearest(task.source) if 0 < one.distance <= NEAR]

    def shown_in(self, texts: Iterable[str]) -> str | None:
        """The held-out task that one of the texts shows; None if none does."""
        if not self.sources:
            return None
        return next((name for text in texts if (name := self.similarity.shown_in(text))), None)


def hold_out(asked: Sequence[str], tracer: Tracer | None = None) -> HeldOut:
    """The tasks that names and paths stand for.

    Args:
        asked: `kernelbench` (all problems of the checkout in KERNELBENCH_PATH; without one its
            tasks are known by name only), files or folders of task modules, or `none`.
        tracer: to recognise them by their computation, too.

    Raises:
        UsageError: a path is not there, or holds no task.
    """
    if NOTHING in asked:
        if len(asked) > 1:
            raise UsageError("--held-out none goes with no other --held-out")
        return HeldOut(asked=(NOTHING,))
    sources: dict[str, str] = {}
    names: list[str] = []
    notices: list[str] = []
    for one in asked:
        name = one
        if one == KERNELBENCH:
            found = _kernelbench()
            if not found:
                notices.append(
                    "KernelBench is not at hand, so its tasks are recognised by their names "
                    f"({PREFIX}1/40) only; set {VARIABLE} to a checkout of it"
                )
        else:
            path = Path(one).expanduser()
            found = _tasks_at(path)
            name = _folder_name(path, found) if path.is_dir() else next(iter(found))
        sources |= found
        names.append(name)
    return HeldOut(
        asked=tuple(names),
        sources=sources,
        signatures={} if tracer is None else _signatures(sources, tracer),
        notices=tuple(notices),
    )


def _signatures(sources: Mapping[str, str], tracer: Tracer) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, text in sources.items():
        signature = tracer.signature(Task(name=name, source=text))
        if signature is not None:
            found.setdefault(signature, []).append(name)
    return found


def _kernelbench() -> dict[str, str]:
    root = os.environ.get(VARIABLE, "")
    files = sorted(Path(root).expanduser().glob("**/level*/*_*.py")) if root else []
    return {
        f"{PREFIX}{path.parent.name.removeprefix('level')}/{path.stem.partition('_')[0]}": text
        for path in files
        if (text := _task_text(path))
    }


def _tasks_at(path: Path) -> dict[str, str]:
    if not path.exists():
        raise UsageError(f"--held-out {path}: there is nothing there; name a file or a folder")
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    found = {_file_name(path, file): text for file in files if (text := _task_text(file))}
    if not found:
        raise UsageError(f"--held-out {path} holds no task: no Python file with a class Model")
    return found


def _file_name(asked: Path, file: Path) -> str:
    """How an export calls a task: where the file is on this machine is no concern of readers."""
    parts = (asked.resolve().name, *file.relative_to(asked).parts)
    return f"{'/'.join(parts)} (sha256 {hashlib.sha256(file.read_bytes()).hexdigest()[:12]})"


def _folder_name(path: Path, tasks: Iterable[str]) -> str:
    return f"{path.resolve().name}/ (digest {framed_digest(*tasks)[:12]})"


def _task_text(path: Path) -> str:
    """The text of a task module; empty if the file is none."""
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    return text if "class Model" in text else ""
