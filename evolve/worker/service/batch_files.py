"""Files of a batch: requests and answers as JSON lines that outlive any end of a process.

Requests are one file, or a folder of `*.jsonl`. A task is sent once; a request has the shape of the
worker's protocol, but its id is text:

    {"v": 1, "task": {...}, "revision": "9f..."}
    {"v": 1, "id": "demo:7", "method": "evaluate",
     "params": {"task": "9f...", "source": "...", "fidelity": "search", "opponents": {},
                "target_speedups": {}}}

Answers are a folder of shards, `0001.jsonl` and so on, each only ever appended to:

    {"v": 1, "hello": {...}}                     the judge; the first line of every start
    {"v": 1, "begun": "demo:7", "subject": {...}}
    {"v": 1, "id": "demo:7", "subject": {...}, "final": true, "seconds": 3.1, "result": {...}}
    {"v": 1, "dropped": "demo:7", "subject": {...}}   begun, and given up for our own reasons
    {"v": 1, "totals": {...}}                    the last line of a start that ended in order

An answer may have `error` (`kind` and `message`, as in the protocol) in place of `result`; one that
is not `final` is tried again. `subject` names the judged program, with digests for long texts, so
that an answer to something else is recognised.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from evolve.core.digest import canonical_json, framed_digest
from evolve.core.errors import UsageError
from evolve.core.task import Task

VERSION = 1
MAX_FAILURES = 3
"""Answers of our own fault, or ends without one, after which a request is given up."""


@dataclass(frozen=True, kw_only=True)
class BatchRequest:
    """One question to the worker; `params` as in the protocol, the task as plain data."""

    id: str
    method: str
    params: Mapping[str, Any]

    @cached_property
    def subject(self) -> dict[str, Any]:
        """The subject, short enough to be repeated with every line on it."""
        return subject(self.method, self.params)

    @cached_property
    def key(self) -> str:
        """Equal for the same question under the same id."""
        return _key(self.id, self.subject)


def subject(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The question with the task as its revision and sources as digests.

    Without the target speedups, which rise during a run: they only say how exact an answer must be.
    """
    said = {
        name: value for name, value in params.items() if name not in ("task", "target_speedups")
    }
    if "source" in said:
        said["source"] = framed_digest("source", said["source"])
    if "opponents" in said:
        opponents = said["opponents"] or {}
        said["opponents"] = {name: framed_digest("source", opponents[name]) for name in opponents}
    if "task" in params:
        said["task"] = Task.from_json(params["task"]).revision
    return {"method": method, **said}


def _key(id: str, about: Mapping[str, Any]) -> str:  # noqa: A002
    return canonical_json([id, about])


@dataclass(frozen=True, slots=True)
class Answer:
    """A shard's entry on a request: a result or an error, and its place."""

    id: str
    subject: Mapping[str, Any]
    final: bool
    where: str
    result: Any = None
    error: Mapping[str, str] | None = None

    @property
    def is_failure(self) -> bool:
        """Not final by our own fault; errors for the user to correct are not counted."""
        return not self.final and (self.error or {}).get("kind") != "usage"


@dataclass(slots=True)
class Record:
    """All that the shards say of one request. `open` counts beginnings without an end."""

    answers: list[Answer] = field(default_factory=list)
    open: int = 0

    @property
    def final(self) -> Answer | None:
        """The answer that stands: the first final one."""
        return next((answer for answer in self.answers if answer.final), None)

    @property
    def failures(self) -> int:
        return max(self.open, 0) + sum(answer.is_failure for answer in self.answers)


@dataclass(slots=True)
class Answers:
    """A folder of shards, read: a record per request, unreadable lines, and the judge."""

    records: dict[str, Record] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    hello: Mapping[str, Any] = field(default_factory=dict)

    def of(self, request: BatchRequest) -> Record:
        return self._record(request.id, request.subject)

    def take(self, data: Mapping[str, Any], where: str = "") -> str:
        """Add a line's content; returns the error in the line, if any."""
        match data:
            case {"hello": dict() as hello}:
                self.hello = hello
            case {"totals": dict()}:
                pass
            case {"begun": str() as name, "subject": dict() as about}:
                self._record(name, about).open += 1
            case {"dropped": str() as name, "subject": dict() as about}:
                self._record(name, about).open -= 1
            case {"id": str() as name, "subject": dict() as about, "final": bool() as final}:
                result, error = data.get("result"), data.get("error")
                if error is not None if result is not None else not _is_error(error):
                    return f"an answer to {name} needs a result, or else an error"
                answer = Answer(name, about, final, where, result, error)
                record = self._record(name, about)
                record.open -= 1
                record.answers.append(answer)
            case _:
                return "neither an answer nor a note of a batch"
        return ""

    def _record(self, name: str, about: Mapping[str, Any]) -> Record:
        return self.records.setdefault(_key(name, about), Record())


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file: its place, and its object or its error."""

    where: str
    data: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""


def read_lines(path: Path) -> Iterator[Line]:
    """The lines of a file, or of a folder's `*.jsonl` in the order of their names.

    A last line that a kill has torn off is left out. Raises UsageError for unreadable lines.
    """
    for file in sorted(path.glob("*.jsonl")) if path.is_dir() else [path]:
        try:
            with file.open("rb") as stream:
                for number, raw in enumerate(stream, 1):
                    line = _line(f"{file.name}:{number}", raw)
                    if raw.strip() and not (line.problem and not raw.endswith(b"\n")):
                        yield line
        except OSError as error:
            raise UsageError(f"{file} cannot be read: {error.strerror}") from error


def _line(where: str, raw: bytes) -> Line:
    try:
        data = json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        return Line(where, problem=f"no JSON: {error}")
    if not isinstance(data, dict):
        return Line(where, problem="no JSON object")
    if data.get("v") != VERSION:
        return Line(where, problem=f"version {data.get('v')!r}, and {VERSION} is read here")
    return Line(where, data)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def read_requests(path: Path) -> tuple[list[BatchRequest], list[str]]:
    """The requests in the order of their lines, and a sentence per line that is none.

    Raises:
        UsageError: there is nothing there.
    """
    lines, problems = [], []
    tasks: dict[str, Mapping[str, Any]] = {}
    for line in read_lines(path):
        if not line.problem and "task" in line.data:
            problem = _take_task(tasks, line.data)
            problems += [f"{line.where}: {problem}"] if problem else []
        else:
            lines.append(line)
    requests: dict[str, BatchRequest] = {}
    for line in lines:
        request = line.problem or _request(line.data, tasks)
        if isinstance(request, BatchRequest) and request.id in requests:
            request = f"id {request.id} is used twice"
        if isinstance(request, BatchRequest):
            requests[request.id] = request
        else:
            problems.append(f"{line.where}: {request}")
    if not requests:
        raise UsageError(f"{path} holds no request that can be read{''.join(problems[:1])}")
    return list(requests.values()), problems


def _take_task(tasks: dict[str, Mapping[str, Any]], data: Mapping[str, Any]) -> str:
    """Keep a task under its revision; returns the error in it."""
    try:
        revision = Task.from_json(data["task"]).revision
    except (KeyError, TypeError, ValueError) as error:
        return f"a malformed task: {error!r}"
    if data.get("revision", revision) != revision:
        return "a task whose revision is another one here; use the same release on both sides"
    tasks[revision] = data["task"]
    return ""


def _request(
    data: Mapping[str, Any], tasks: Mapping[str, Mapping[str, Any]]
) -> "BatchRequest | str":
    """The request of a line, or its error."""
    match data:
        case {"id": str() as name, "method": str() as method, "params": dict() as given}:
            params = dict(given)
        case _:
            return "a request needs an id and a method (texts) and params (an object)"
    task = params.get("task")
    if isinstance(task, str):
        if task not in tasks:
            return f"request {name} is about task {task[:12]}, which no line brings"
        params["task"] = tasks[task]
    request = BatchRequest(id=name, method=method, params=params)
    try:
        _ = request.key
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return f"request {name} is malformed: {error!r}"
    return request


def read_answers(path: Path) -> Answers:
    """The content of the shards of a folder (or of one shard)."""
    found = Answers()
    for line in read_lines(path):
        problem = line.problem or found.take(line.data, line.where)
        if problem:
            found.problems.append(f"{line.where}: {problem}")
    return found


def _is_error(error: Any) -> bool:
    match error:
        case {"kind": str(), "message": str()}:
            return True
    return False


def is_answers(path: Path) -> bool:
    """Whether a file or folder looks like the output of `evolve.worker batch`."""
    for line in read_lines(path):
        return bool({"hello", "begun", "final", "totals"} & {*line.data})
    return False


def request_lines(requests: Iterable[BatchRequest]) -> Iterator[str]:
    """The lines of a file of requests, every task once and before its requests."""
    sent: set[str] = set()
    for request in requests:
        params = dict(request.params)
        if "task" in params:
            revision = Task.from_json(params["task"]).revision
            if revision not in sent:
                sent.add(revision)
                yield to_line({"task": params["task"], "revision": revision})
            params["task"] = revision
        yield to_line({"id": request.id, "method": request.method, "params": params})


def to_line(data: Mapping[str, Any]) -> str:
    """A line of this version; ValueError for NaN, which JSON cannot say."""
    return json.dumps({"v": VERSION, **data}, allow_nan=False) + "\n"
