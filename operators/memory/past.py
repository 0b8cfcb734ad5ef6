"""A finished run as memory reads it: bounded, however long the run was."""

from collections.abc import Sequence
from dataclasses import dataclass

from evolve.core.protocols import Attempt
from evolve.core.run_store import RunStore
from evolve.languages.registry import detect_language
from evolve.languages.torch import TORCH
from evolve.store import RunRow

LOOKED_AT = 400
"""How many of a run's newest steps are searched for failure rules."""


@dataclass(frozen=True, slots=True)
class Past:
    """A run with its newest steps, and the device that judged it, as its verdicts name it."""

    run: RunRow
    device: str
    attempts: Sequence[Attempt]

    @classmethod
    def read(cls, store: RunStore, run: RunRow) -> "Past":
        device = store.environment(run.id).get("device_class", "")
        return cls(run, device, store.recent(run.id, LOOKED_AT))

    @property
    def where(self) -> str:
        """The run, its task and its device."""
        return f"run {self.run.name}, task {self.run.task.name}, {self.device}"

    @property
    def origin(self) -> dict[str, str]:
        """The revision of the task by the run's name (`Recalled.runs`)."""
        return {self.run.name: self.run.task.revision}


def language_of(store: RunStore, program: str) -> str:
    """The language of a program's kernels; empty if it has none."""
    found = detect_language(store.source(program))
    return "" if found is TORCH else found.name
