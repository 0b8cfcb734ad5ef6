"""Answers as headless programs print them: text, one JSON object, or a JSON object a line.

Read are the results of Claude Code and Cursor (`--output-format json`), Gemini CLI (the same) and
Codex (`exec --json`); anything else is taken as the text of an answer.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from evolve.core.model import Usage
from evolve.llm.programs.turns import turns

MAX_COST_USD = 1e4  # of one answer: a larger number is misread
MAX_TOKENS = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """The content of a program's output.

    Attributes:
        text: the answer.
        usage: tokens, if the program counts them.
        cost_usd: as the program states it.
        model: that answered.
        error: the program's own words if it says that it failed.
    """

    text: str
    usage: Usage | None = None
    cost_usd: float | None = None
    model: str = ""
    error: str = ""

    @property
    def is_billed(self) -> bool:
        """Whether the program says that it has spent something, though it may have failed."""
        return bool(self.cost_usd or (self.usage and self.usage.total))


def read_printed(output: str) -> Printed:
    """The answer in a program's output."""
    records = list(_records(output))
    for record in reversed(records):
        if isinstance(record.get("result"), str):  # Claude Code, Cursor
            return _result(record)
        if isinstance(record.get("response"), str):  # Gemini CLI
            return _response(record)
        if isinstance(record.get("error"), Mapping) and "type" not in record:
            return Printed(text="", error=str(record["error"].get("message", record["error"])))
    if any(record.get("type") in _CODEX for record in records):
        return _events(records)
    if any(record.get("type") == "assistant" for record in records):  # it ended without a result
        said = [turn.text for turn in turns(output) if turn.kind == "text"]
        return Printed(text=said[-1] if said else "")
    return Printed(text=output)


_CODEX = ("item.completed", "turn.completed", "turn.failed")


def _records(output: str) -> Iterator[Mapping[str, Any]]:
    """JSON objects: the whole output, or its lines; none if it is something else."""
    if not output.lstrip().startswith("{"):
        return
    whole = _object(output)
    lines = [whole] if whole is not None else map(_object, output.splitlines())
    yield from (record for record in lines if record is not None)


def _object(text: str) -> Mapping[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _result(record: Mapping[str, Any]) -> Printed:
    text, usage = record["result"], _mapping(record.get("usage"))
    failed = record.get("is_error") is True
    models = _mapping(record.get("modelUsage"))
    read, written = (
        _count(usage, f"cache_{kind}_input_tokens") or 0 for kind in ("read", "creation")
    )
    prompt, said = _count(usage, "input_tokens"), _count(usage, "output_tokens")
    return Printed(
        text="" if failed else text,
        usage=_usage(None if prompt is None else prompt + read + written, said, cached=read),
        cost_usd=_cost(record.get("total_cost_usd")),
        model=next(iter(models), ""),
        error=text or str(record.get("subtype", "")) if failed else "",
    )


def _response(record: Mapping[str, Any]) -> Printed:
    models = _mapping(_mapping(record.get("stats")).get("models"))
    counts = [_mapping(_mapping(each).get("tokens")) for each in models.values()]
    prompt = sum(_count(each, "prompt") or 0 for each in counts)
    thought = sum(_count(each, "thoughts") or 0 for each in counts)
    said = thought + sum(_count(each, "candidates") or 0 for each in counts)
    cached = sum(_count(each, "cached") or 0 for each in counts)
    usage = _usage(prompt, said, cached=cached, reasoning=thought) if prompt else None
    return Printed(text=record["response"], usage=usage, model=next(iter(models), ""))


def _events(records: list[Mapping[str, Any]]) -> Printed:
    """The last message of Codex, and the tokens of all its turns."""
    text = error = ""
    prompt = said = cached = 0
    for record in records:
        item = _mapping(record.get("item"))
        if item.get("type") == "agent_message" and isinstance(item.get("text"), str):
            text = item["text"]
        counts = _mapping(record.get("usage"))
        prompt += _count(counts, "input_tokens") or 0
        said += _count(counts, "output_tokens") or 0
        cached += _count(counts, "cached_input_tokens") or 0
        if record.get("type") == "turn.failed":
            error = str(_mapping(record.get("error")).get("message", "the turn failed"))
    return Printed(text=text, usage=_usage(prompt or None, said, cached=cached), error=error)


def _usage(
    prompt: int | None, said: int | None, *, cached: int, reasoning: int | None = None
) -> Usage | None:
    """The counts; None if one is missing, or cannot be."""
    if prompt is None or said is None or max(prompt, said) > MAX_TOKENS:
        return None
    return Usage(prompt=prompt, completion=said, cached=min(cached, prompt), reasoning=reasoning)


def _count(counts: Mapping[str, Any], name: str) -> int | None:
    value = counts.get(name)
    known = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if known else None


def _cost(value: Any) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if known and math.isfinite(value) and 0 <= value < MAX_COST_USD else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
