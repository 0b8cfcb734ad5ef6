"""Programs, and the instances that an assignment of their tunables makes of them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from evolve.core.digest import canonical_json, framed_digest

TunableValue = int | float | bool | str
Assignment = Mapping[str, TunableValue]


_CLASS = re.compile(r"^class (\w{1,60})\b", re.MULTILINE)


def without_model(source: str) -> str:
    """The error of a text that never names `ModelNew`, with the remedy; empty for others."""
    if "ModelNew" in source:
        return ""
    classes = _CLASS.findall(source)
    named = "Model" if "Model" in classes else next(iter(classes[-1:]), "")
    remedy = (
        f"rename its class {named} to ModelNew"
        if named
        else "write one, a torch.nn.Module with the constructor and forward of the task's Model"
    )
    return f"defines no class ModelNew; {remedy}"


@dataclass(frozen=True, slots=True)
class Program:
    """An immutable Python module that defines `ModelNew`; its identity is its text."""

    source: str

    @property
    def digest(self) -> str:
        return framed_digest("program", self.source)


def instance_digest(program_digest: str, assignment: Assignment) -> str:
    """Identity of a program with an assignment of its tunables (empty: as written)."""
    return framed_digest("instance", program_digest, canonical_json(dict(assignment)))
