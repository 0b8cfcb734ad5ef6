"""The turns of a coding agent, read from the output that is its transcript.

Read are the event streams of Claude Code and Cursor (`--output-format stream-json`) and Codex
(`exec --json`), one JSON object a line. Other lines are text, other objects are shown as they are.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from evolve.llm.programs.records import Record, as_record

MAX_TRANSCRIPT_CHARS = 2_000_000
"""How much of the output of an episode is stored, the last part."""

_TOO_DEEP = "(nested too deeply)"
_SILENT = (
    *("system", "result", "rate_limit_event"),
    *("thread.started", "turn.started", "turn.completed", "item.started", "item.updated"),
)


def last_part(output: str) -> str:
    """The last whole lines of an output too long to be stored, under a line that says so."""
    left_out = len(output) - MAX_TRANSCRIPT_CHARS
    if left_out <= 0:
        return output
    begin = output.find("\n", left_out) + 1 or left_out
    return f"[{begin:,} characters before this line are not stored]\n{output[begin:]}"


@dataclass(slots=True, kw_only=True)
class Turn:
    """Something that an agent said, thought or did.

    Attributes:
        kind: `text`, `thinking`, `call` of a tool, `event` of another kind.
        text: what was said; of a call its input without `program`.
        tool: name of the tool that is called.
        result: of the call.
        program: that was submitted to the judge.
    """

    kind: str
    text: str
    tool: str = ""
    result: str = ""
    program: str = ""


def turns(records: Iterable[Record | str]) -> list[Turn]:
    """The turns of a transcript in order; that of a program without events is one text.

    Args:
        records: the program's output, as `read_records` gives it.
    """
    reader = _Reader()
    for record in records:
        reader.read(record)
    reader.end_part()
    return reader.found


@dataclass(slots=True)
class _Reader:
    found: list[Turn] = field(default_factory=list)
    _calls: dict[str, Turn] = field(default_factory=dict)
    _part: Turn | None = None  # a text that the next line may continue
    _pieces: list[str] = field(default_factory=list)  # of it

    def read(self, record: Record | str) -> None:
        if isinstance(record, str):
            self._say("text", record + "\n")
            return
        kind = record.get("type")
        if isinstance(kind, str) and kind in _SILENT:
            return
        act = _RECORDS.get(kind) if isinstance(kind, str) else None
        if act is None:
            self._event(record)
        else:
            act(self, record)

    def _say(self, kind: str, text: str) -> None:
        """Text in parts is one turn."""
        part = self._part
        if part is not None and part is self.found[-1] and part.kind == kind:
            self._pieces.append(text)
        elif text.strip():
            self.end_part()
            self._part, self._pieces = Turn(kind=kind, text=""), [text]
            self.found.append(self._part)

    def end_part(self) -> None:
        """Give the text in parts to its turn."""
        if self._part is not None:
            self._part.text = "".join(self._pieces)

    def _event(self, record: Record) -> None:
        self.found.append(Turn(kind="event", text=_shown(record)))

    def message(self, record: Record) -> None:
        """Claude Code and Cursor: a message whose content is text or blocks."""
        content = as_record(record.get("message")).get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks if isinstance(blocks, list) else []:
            self._block(as_record(block))

    def _block(self, block: Record) -> None:
        kind = block.get("type")
        if kind in ("text", "thinking"):
            self.found.append(Turn(kind=str(kind), text=str(block.get(kind, ""))))
        elif kind == "tool_use":
            self._call(block.get("id"), str(block.get("name", "")), block.get("input"))
        elif kind == "tool_result":
            self._answer(block.get("tool_use_id"), block.get("content"))
        else:
            self._event(block)

    def thought(self, record: Record) -> None:
        """Cursor: a part of a thought."""
        self._say("thinking", str(record.get("text", "")))

    def tool_call(self, record: Record) -> None:
        """Cursor: a call that begins or has ended, under the name of its kind."""
        for kind, value in as_record(record.get("tool_call")).items():
            call = as_record(value)
            if record.get("subtype") == "completed":
                self._answer(record.get("call_id"), call.get("result"))
                continue
            args = as_record(call.get("args"))
            name = str(args.get("toolName") or args.get("name") or kind)
            self._call(record.get("call_id"), name, args.get("args", args))

    def item(self, record: Record) -> None:
        """Codex: a message, a thought or a call, once it is whole."""
        item = as_record(record.get("item"))
        kind = item.get("type")
        if kind in ("agent_message", "reasoning"):
            said = "text" if kind == "agent_message" else "thinking"
            self.found.append(Turn(kind=said, text=str(item.get("text", ""))))
        elif kind == "mcp_tool_call":
            self._call(item.get("id"), str(item.get("tool", "")), item.get("arguments"))
            self._answer(item.get("id"), item.get("result") or item.get("error"))
        elif kind == "command_execution":
            self._call(item.get("id"), "shell", item.get("command"))
            self._answer(item.get("id"), item.get("aggregated_output"))
        else:
            self._event(item)

    def _call(self, key: object, tool: str, given: Any) -> None:
        values = dict(as_record(given))
        is_submission = tool.endswith("submit") and isinstance(values.get("source"), str)
        program = str(values.pop("source")) if is_submission else ""
        text = given if isinstance(given, str) else _lines(values)
        named = tool.rpartition("__")[2]  # Claude Code: mcp__SERVER__TOOL
        turn = Turn(kind="call", text=text, tool=named, program=program)
        self.found.append(turn)
        self._calls[str(key)] = turn

    def _answer(self, key: object, result: Any) -> None:
        turn = self._calls.pop(str(key), None)
        if turn is None:
            self._event({"result": result})
            return
        turn.result = _readable(result)


_RECORDS: Mapping[str, Callable[[_Reader, Record], None]] = {
    "assistant": _Reader.message,
    "user": _Reader.message,
    "thinking": _Reader.thought,
    "tool_call": _Reader.tool_call,
    "item.completed": _Reader.item,
}


def _readable(result: Any) -> str:
    try:
        return "\n".join(_texts(result))
    except RecursionError:
        return _TOO_DEEP


def _texts(result: Any) -> Iterator[str]:
    """The readable parts of a tool's result: text, blocks of text, or an object with these."""
    if isinstance(result, str):
        yield result
    elif isinstance(result, list):
        for each in result:
            yield from _texts(each)
    elif isinstance(result, Mapping):
        inner = next(
            (result[name] for name in ("text", "content", "success") if name in result), None
        )
        yield from (_shown(result),) if inner is None else _texts(inner)
    elif result is not None:
        yield str(result)


def _shown(value: Any) -> str:
    try:
        return json.dumps(value, indent=1, ensure_ascii=False)
    except RecursionError:
        return _TOO_DEEP


def _lines(values: Mapping[str, Any]) -> str:
    """The input of a call, a line for each value."""
    return "\n".join(
        f"{name}: {value if isinstance(value, str) else _shown(value)}"
        for name, value in values.items()
    )
