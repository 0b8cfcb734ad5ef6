"""Tasks: a PyTorch reference in the KernelBench convention, with the settings for judging."""

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from evolve.core.compiled import Compiled
from evolve.core.digest import canonical_json, framed_digest

SIZES = ("tiny", "cpu", "gpu")
PRECISIONS = ("task", "fp32", "fp16", "bf16")
ACCUMULATIONS = ("ieee", "tf32", "half")
ONLY_CASE = "default"
"""Name of the one case of a task that lists none."""


def case_text(name: str) -> str:
    """A case as prose calls it.

    >>> case_text("wide"), case_text(ONLY_CASE)
    ('case wide', 'its only case')
    """
    return "its only case" if name == ONLY_CASE else f"case {name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One shape or dtype of a task: module constants set before `get_inputs` is called."""

    name: str
    constants: Mapping[str, int | float | str] = field(default_factory=dict)
    weight: float = 1.0
    timed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A reference with its cases and rules.

    `source` is the text of a module with `Model`, `get_inputs` and
    `get_init_inputs`; only the worker executes it. `size` picks an entry of its optional `SIZES`.
    `files` are those beside the module that it imports or reads: their content in base64, by path
    relative to it.
    `seeds` are sources of programs that a search may start from, and `compiled` the output of a
    compiler for the reference, for the same purpose; they take no part in `revision`.
    """

    name: str
    source: str
    size: str = "cpu"
    precision: str = "task"
    accumulation: str = "ieee"
    cases: tuple[Case, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    seeds: tuple[str, ...] = ()
    compiled: tuple[Compiled, ...] = ()
    category: str = ""

    def __post_init__(self) -> None:
        for name in self.files:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or not path.name:
                raise ValueError(f"files: {name!r} is not a path beside the task; name it by one")

    @property
    def revision(self) -> str:
        """Identity of everything that the judgement depends on."""
        return framed_digest("task", canonical_json(self._judged()))

    @property
    def texts(self) -> tuple[str, ...]:
        """The module, and the modules beside it."""
        beside = (content for path, content in self.files.items() if path.endswith(".py"))
        return (self.source, *(b64decode(each).decode(errors="replace") for each in beside))

    def _judged(self) -> dict[str, Any]:
        files = {"files": dict(self.files)} if self.files else {}
        return files | {
            "source": self.source,
            "size": self.size,
            "precision": self.precision,
            "accumulation": self.accumulation,
            "cases": [
                {
                    "name": case.name,
                    "constants": dict(case.constants),
                    "weight": case.weight,
                    "timed": case.timed,
                }
                for case in self.cases
            ],
        }

    def to_json(self) -> dict[str, Any]:
        return self._judged() | {
            "name": self.name,
            "seeds": list(self.seeds),
            "compiled": [each.to_json() for each in self.compiled],
            "category": self.category,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Task":
        fields = dict(data)
        fields["cases"] = tuple(Case(**case) for case in data["cases"])
        fields["seeds"] = tuple(data["seeds"])
        fields["compiled"] = tuple(map(Compiled.from_json, data.get("compiled", ())))
        return cls(**fields)
