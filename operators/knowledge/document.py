"""One document of the knowledge base: Markdown under a front matter that names its subject."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any

import yaml

from evolve.core.errors import UsageError
from evolve.core.evaluation import Status
from evolve.languages.registry import languages

LANGUAGES = frozenset({*languages(), "hip", "cute", "tilelang", "maca"})
ERRORS = frozenset(status.value for status in Status) - {Status.CORRECT, Status.INFRA}

_FRONT = re.compile(r"\A---\n(.*?\n)---\n", re.DOTALL)
_NAME = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*\Z")
_PATH = re.compile(r"[a-z0-9_]+(?:/[a-z0-9_]+)*\Z")
_ADDRESS = re.compile(r"(?:https?://|run:|package:)\S+\Z")
_FENCE = re.compile(r"^(`{3,})(.*)$")


class Part(StrEnum):
    """The purpose of a document, in the order in which equals are shown (KernelEvolve's parts)."""

    CONSTRAINTS = "constraints"  # requirements and prohibitions for candidates
    GUIDANCE = "guidance"  # how to make it right and fast
    HARDWARE = "hardware"  # properties of one kind of device


class Bottleneck(StrEnum):
    """The bottleneck that keeps a correct kernel from being faster."""

    MEMORY = "memory"  # bytes to and from device memory
    COMPUTE = "compute"  # arithmetic units are busy
    LATENCY = "latency"  # neither is: stalls, dependencies, conflicts
    PARALLELISM = "parallelism"  # idle processors: too few blocks, a last wave, uneven work
    LAUNCH = "launch"  # the host: many or very short kernels


class Evidence(StrEnum):
    """The basis of a document beside its sources; spelled as `tested` spells it."""

    CODE_RUN = "true"  # our tests run its code
    SOURCES = "false"  # nothing else
    UNTESTED_HARDWARE = "untested-hardware"  # and the hardware was not at hand


VALUES: Mapping[str, frozenset[str] | None] = {
    "bottleneck": frozenset(Bottleneck),
    "error": ERRORS,
    "category": None,  # tasks name their own
    "device": None,  # paths, from the vendor down: nvidia/hopper
    "language": LANGUAGES,
    "precision": frozenset(("fp32", "half", "fp8", "int8")),  # of operands or stored values
}
"""The kinds of tags, and the values of closed ones."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where facts of a document are from."""

    title: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The content of one file.

    Attributes:
        id: its name, unique in a library.
        tags: values by kind, as in `VALUES`; a kind that is not there says "any".
        checked: versions it was checked against, by package.
        measured: figures of runs on a device, by its path as in tags: which one, with which
            versions, and results.
        body: the Markdown below the front matter.
        path: the file, for messages.
    """

    id: str
    title: str
    part: Part
    tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    checked: Mapping[str, str] = field(default_factory=dict)
    tested: Evidence = Evidence.SOURCES
    measured: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    body: str = ""
    path: str = ""

    @property
    def sections(self) -> tuple[str, ...]:
        """The body cut before each `## ` heading; joined they are the body again."""
        return tuple(_sections(self.body))

    @property
    def is_for_gpus(self) -> bool:
        """Whether it is about GPUs, shows code for them, or states speeds on them."""
        if any(tag.partition("/")[0] != "cpu" for tag in self.tags.get("device", ())):
            return True
        if "triton" in self.checked and "bottleneck" in self.tags:
            return True
        return any("triton" in text or "__global__" in text for _, text in self.blocks())

    def figures(self, device: str) -> str:
        """Measurements on a device of this path or one that holds it; empty without any."""
        near = (each for each in self.measured if f"{device}/".startswith(f"{each}/"))
        return self.measured.get(max(near, key=len, default=""), "")

    def blocks(self) -> Iterator[tuple[str, str]]:
        """Fenced blocks: the words after the fence (`python run`), and the text."""
        info, mark = "", ""
        lines: list[str] = []
        for line in self.body.splitlines():
            fence = _FENCE.match(line)
            if not mark and fence:
                mark, info, lines = fence[1], fence[2].strip(), []
            elif mark and line.strip() == mark:
                yield info, "\n".join(lines) + "\n"
                mark = ""
            elif mark:
                lines.append(line)


def _sections(body: str) -> Iterator[str]:
    section: list[str] = []
    inside = False
    for line in body.splitlines(keepends=True):
        if line.startswith("```"):
            inside = not inside
        if line.startswith("## ") and not inside and section:
            yield "".join(section)
            section = []
        section.append(line)
    if section:
        yield "".join(section)


@lru_cache(maxsize=1024)  # every operator of a run has its knowledge, of the same files
def parse(text: str, path: str) -> Document:
    """Read a document, once for each content.

    Raises:
        UsageError: the error, its field and file, and the remedy.
    """
    front = _FRONT.match(text)
    if front is None:
        raise UsageError(
            f"{path}: front matter is missing; begin the file with a line of three dashes, "
            "`key: value` lines (id, title, part, tags, checked, tested, sources) and three dashes"
        )
    try:
        fields = yaml.safe_load(front[1])
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # dates, deep nesting
        raise UsageError(
            f"{path}: front matter is no YAML{_line_of(error)}; quote texts that hold a colon"
        ) from error
    reader = _Reader(path, fields)
    return Document(
        id=reader.name("id"),
        title=reader.text("title"),
        part=Part(reader.choice("part", frozenset(Part))),
        tags=reader.tags(),
        checked=reader.versions(),
        tested=Evidence(reader.tested()),
        measured=reader.measured(),
        sources=reader.sources(),
        body=reader.body(text[front.end() :].strip() + "\n"),
        path=path,
    )


def _line_of(error: Exception) -> str:
    """Where in the file YAML gave up, if it says so."""
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    return f" in line {mark.line + 2}" if mark else ""


class _Reader:
    """The fields of one front matter, each checked as it is asked for."""

    known = ("id", "title", "part", "tags", "checked", "tested", "measured", "sources")

    def __init__(self, path: str, fields: Any) -> None:
        self._path = path
        if not isinstance(fields, dict):
            self.refuse("front matter", fields, "write `key: value` lines")
        self._fields: dict[str, Any] = fields
        for name in fields:
            if name not in self.known:
                self.refuse(str(name), fields[name], f"fields are {', '.join(self.known)}")

    def refuse(self, field: str, value: object, remedy: str) -> None:
        raise UsageError(f"{self._path}: {field} cannot be {value!r}; {remedy}")

    def text(self, name: str) -> str:
        value = self._fields.get(name)
        if not isinstance(value, str) or not value.strip():
            self.refuse(name, value, "write a line of text, in quotes if it holds a colon")
        return str(value).strip()

    def name(self, name: str) -> str:
        value = self.text(name)
        if not _NAME.match(value):
            self.refuse(name, value, "use lower case letters, digits, - and _")
        return value

    def choice(self, name: str, values: frozenset[str]) -> str:
        value = self._fields.get(name)
        if not isinstance(value, str) or value not in values:
            self.refuse(name, value, f"choose one of {', '.join(sorted(values))}")
        return str(value)

    def tested(self) -> str:
        value = self._fields.get("tested")
        if isinstance(value, bool):
            return str(value).lower()
        return self.choice("tested", frozenset(Evidence))

    def tags(self) -> dict[str, tuple[str, ...]]:
        given = self._fields.get("tags", {})
        if not isinstance(given, dict):
            self.refuse("tags", given, f"write kinds with lists: {', '.join(VALUES)}")
        found = {}
        for kind, values in given.items():
            if kind not in VALUES:
                self.refuse(f"tags.{kind}", values, f"kinds of tags are {', '.join(VALUES)}")
            if not isinstance(values, list) or not values:
                self.refuse(f"tags.{kind}", values, "write a list, or leave the kind out for any")
            found[kind] = tuple(self._tag(kind, value) for value in values)
        return found

    def _tag(self, kind: str, value: object) -> str:
        allowed = VALUES[kind]
        words = value if isinstance(value, str) else ""
        if allowed is not None and words not in allowed:
            self.refuse(f"tags.{kind}", value, f"choose from {', '.join(sorted(allowed))}")
        if not _PATH.match(words):
            self.refuse(f"tags.{kind}", value, "use lower case words, for devices with slashes")
        return words

    def versions(self) -> dict[str, str]:
        given = self._fields.get("checked", {})
        if not isinstance(given, dict):
            self.refuse("checked", given, 'write packages with versions: triton: "3.6"')
        for package, version in given.items():
            if not isinstance(version, str):
                self.refuse(f"checked.{package}", version, "put the version in quotes")
        return {str(package): version for package, version in given.items()}

    def measured(self) -> dict[str, str]:
        given = self._fields.get("measured", {})
        remedy = 'write devices with figures: nvidia/hopper: "H100, Triton 3.6: 61 TFLOP/s"'
        if not isinstance(given, dict):
            self.refuse("measured", given, remedy)
        for device, figures in given.items():
            if not isinstance(device, str) or not _PATH.match(device):
                self.refuse(f"measured.{device}", figures, remedy)
            if not isinstance(figures, str) or not figures.strip():
                self.refuse(f"measured.{device}", figures, remedy)
        return {device: " ".join(figures.split()) for device, figures in given.items()}

    def sources(self) -> tuple[Source, ...]:
        given = self._fields.get("sources")
        if not isinstance(given, list) or not given:
            self.refuse("sources", given, "list at least one, each with title and url")
        return tuple(self._source(entry) for entry in given or ())

    def _source(self, entry: object) -> Source:
        if not isinstance(entry, dict) or {*entry} != {"title", "url"}:
            self.refuse("sources", entry, "each has exactly title and url")
        assert isinstance(entry, dict)
        title, url = entry["title"], entry["url"]
        if not isinstance(title, str) or not title.strip():
            self.refuse("sources.title", title, "write the title, in quotes if it holds a colon")
        if not isinstance(url, str) or not _ADDRESS.match(url):
            self.refuse("sources.url", url, "write https://..., package:NAME/FILE or run:NAME")
        return Source(str(title), str(url))

    def body(self, text: str) -> str:
        if not text.strip():
            self.refuse("text", text.strip(), "write something below the front matter")
        if text.count("\n```") % 2 ^ text.startswith("```"):
            self.refuse("text", "an odd number of ``` lines", "close every fenced block")
        return text
