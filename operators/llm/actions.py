"""The action set of `macro_micro`, read from YAML, and the steps that a program allows."""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import yaml

from evolve.core.errors import UsageError
from evolve.core.model import CallStatus, ModelReply, ReplyStatus
from evolve.languages.registry import detect_language, languages
from evolve.languages.torch import TORCH
from operators.prompting.replies import Found, without_thought
from operators.quoting import Quoted, quote
from operators.source.regions import KINDS, Region, find_regions

_SHIPPED = Path(__file__).with_name("actions.yaml")
_CHOICE = re.compile(r"^\W*ACTION\W{1,4}(\d+)\b", re.MULTILINE | re.IGNORECASE)
_FIELDS = {"summary", "regions", "languages", "advice", "example"}


@dataclass(frozen=True, slots=True)
class Action:
    """A typed optimisation: its effect, where it applies, and how to do it."""

    name: str
    summary: str
    regions: tuple[str, ...]
    languages: tuple[str, ...]
    advice: str
    example: str


@dataclass(frozen=True, slots=True)
class Step:
    """One action on one region."""

    action: Action
    region: Region

    def __str__(self) -> str:
        return f"{self.action.name} of {self.region}"

    def excerpt(self, source: str) -> Quoted:
        """The region's lines in a prompt; nothing if it is all of the program."""
        if self.region.kind == "module":
            return Quoted("")
        lines = source.split("\n")[self.region.first - 1 : self.region.last]
        return quote("\n".join(lines), "region")


@lru_cache
def load_actions(path: str = "") -> tuple[Action, ...]:
    """The actions of a file in its order; of the one that ships if none is named.

    Raises:
        UsageError: no such file, or an error in it.
    """
    file = Path(path) if path else _SHIPPED
    try:
        entries = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"actions: {file} cannot be read as YAML: {error}") from error
    if not isinstance(entries, dict) or not entries:
        raise UsageError(f"actions: {file} holds no actions; write `name:` with its fields below")
    return tuple(_action(str(name), entry, file) for name, entry in entries.items())


def _action(name: str, entry: Any, file: Path) -> Action:
    if not isinstance(entry, Mapping) or not {"summary", "regions", "advice"} <= {*entry}:
        raise UsageError(f"{file}, {name}: an action has summary, regions and advice")
    if unknown := {*entry} - _FIELDS:
        raise UsageError(f"{file}, {name}: unknown {', '.join(map(str, sorted(unknown)))}; "
                         f"fields are {', '.join(sorted(_FIELDS))}")  # fmt: skip
    return Action(
        name=name,
        summary=str(entry["summary"]).strip(),
        regions=_choices(entry["regions"], KINDS, f"{file}, {name}.regions"),
        languages=_choices(
            entry.get("languages", ()), (*languages(), TORCH.name), f"{file}, {name}.languages"
        ),
        advice=str(entry["advice"]).strip(),
        example=str(entry.get("example", "")).strip(),
    )


def _choices(given: Any, allowed: tuple[str, ...], where: str) -> tuple[str, ...]:
    values = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    for value in values:
        if value not in allowed:
            raise UsageError(f"{where}: {value!r} is none of {', '.join(allowed)}")
    return values


def steps_of(source: str, actions: tuple[Action, ...]) -> list[Step]:
    """Every action on every region of a program that it applies to, in the order of the lines.

    The same text gives the same steps.
    """
    language = detect_language(source).name
    return [
        Step(action, region)
        for region in find_regions(source)
        for action in actions
        if region.kind in action.regions and (not action.languages or language in action.languages)
    ]


def offered(steps: Sequence[Step], most: int, rng: random.Random) -> list[int]:
    """The places of at most so many steps, drawn by turns from the types of action, in order."""
    kinds: dict[str, list[int]] = {}
    for place in rng.sample(range(len(steps)), len(steps)):
        kinds.setdefault(steps[place].action.name, []).append(place)
    turns = (place for turn in zip_longest(*kinds.values()) for place in turn if place is not None)
    return sorted(islice(turns, most))


def listing(source: str, steps: Sequence[Step]) -> str:
    """The steps with their numbers, from 1, each with the first line of its region."""
    lines = source.split("\n")
    return "\n".join(
        f"{number}. {step}: {step.action.summary}\n   {lines[step.region.first - 1].strip()}"
        for number, step in enumerate(steps, start=1)
    )


def read_choice(reply: ModelReply, count: int) -> int | Found:
    """The index of the step that a reply names, from 0; or the error."""
    if reply.status is CallStatus.TRUNCATED:  # perhaps within the number
        return Found(ReplyStatus.TRUNCATED, note="the plan was cut")
    numbers = {int(number) for number in _CHOICE.findall(without_thought(reply.text))}
    if len(numbers) == 1 and 0 < (number := numbers.pop()) <= count:
        return number - 1
    return Found(ReplyStatus.BAD_PLAN, note="no line ACTION: with a listed number")
