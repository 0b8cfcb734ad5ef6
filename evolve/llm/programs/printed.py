"""Answers as headless programs print them: text, one JSON object, or a JSON object a line.

Read are the results of Claude Code and Cursor (`--output-format json`), Gemini CLI (the same) and
Codex (`exec --json`); anything else is taken as the text of an answer.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evolve.core.model import Usage
from evolve.llm.programs.records import Record, as_record, read_records
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
    is_json = output.lstrip().startswith("{")
    lines = list(read_records(output)) if is_json else []
    records = [line for line in lines if not isinstance(line, str)]
    for record in reversed(records):
        if isinstance(record.get("result"), str):  # Claude Code, Cursor
            return _result(record)
        if isinstance(record.get("response"), str):  # Gemini CLI
            return _response(record)
        if isinstance(record.get("error"), Mapping) and "type" not in record:
            return Printed(text="", error=str(record["error"].get("message", record["error"])))
    if any(record.get("type") in _EVENTS for record in records):
        return _events(records)
    return Printed(text=output)


_EVENTS = ("assistant", "item.completed", "turn.completed", "turn.failed")


def _result(record: Mapping[str, Any]) -> Printed:
    text, usage = record["result"], as_record(record.get("usage"))
    failed = record.get("is_error") is True
    models = as_record(record.get("modelUsage"))
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
    models = as_record(as_record(record.get("stats")).get("models"))
    counts = [as_record(as_record(each).get("tokens")) for each in models.values()]
    prompt = sum(_count(each, "prompt") or 0 for each in counts)
    thought = sum(_count(each, "thoughts") or 0 for each in counts)
    said = thought + sum(_count(each, "candidates") or 0 for each in counts)
    cached = sum(_count(each, "cached") or 0 for each in counts)
    usage = _usage(prompt, said, cached=cached, reasoning=thought) if prompt else None
    return Printed(text=record["response"], usage=usage, model=next(iter(models), ""))


def _events(records: Sequence[Record]) -> Printed:
    """The last message of Codex, and the tokens of all its turns.

    Of Claude Code and Cursor the last message, if they ended without a result.
    """
    messages = [turn.text for turn in turns(records) if turn.kind == "text"]
    text, error = messages[-1] if messages else "", ""
    prompt = said = cached = 0
    for record in records:
        counts = as_record(record.get("usage"))
        prompt += _count(counts, "input_tokens") or 0
        said += _count(counts, "output_tokens") or 0
        cached += _count(counts, "cached_input_tokens") or 0
        if record.get("type") == "turn.failed":
            error = str(as_record(record.get("error")).get("message", "the turn failed"))
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
