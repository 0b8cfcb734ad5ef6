"""A model endpoint in the protocols of three providers, whose model submits a program and polls.

    python -m tests.agents.model_endpoint PROGRAM [TASK] [LOG]

It prints its address. The model is a script: it calls the tool `submit` with the program (and the
task, where the tool has one), then `verdict` until there is one, and sums up. Requests are Claude
Code's (Anthropic's messages), Codex's (OpenAI's responses) and Gemini CLI's (generateContent), each
answered as a stream, as those programs want it. LOG gets each request, a JSON line.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

WAIT = "WaitForMcpServers"  # a tool of Claude Code, while a server has not answered yet
OPEN = ("waiting", "judging", "evaluating", "proposed")
INPUT_TOKENS, OUTPUT_TOKENS = 1000, 50


@dataclass(frozen=True)
class Call:
    """The tool that the model wants: its whole name, its namespace if it has one, its values."""

    name: str
    values: dict[str, Any]
    namespace: str | None = None


@dataclass(frozen=True)
class Tool:
    """A tool that a request offers."""

    name: str
    fields: frozenset[str]
    namespace: str | None = None


@dataclass
class Model:
    """The script of the model.

    Args:
        program: that it submits.
        task: named to a `submit` that has such a field.
    """

    program: str
    task: str = ""
    log: Path | None = None
    offered: set[str] = field(default_factory=set)
    waits: int = 0

    def act(self, tools: list[Tool], results: list[str]) -> Call | str:
        """The next call, or the last words; `results` are texts of the tools' results so far."""
        self.offered |= {tool.name for tool in tools}
        found = {tool.name.split("__")[-1].split("evolve_")[-1]: tool for tool in tools}
        if "submit" not in found and WAIT in found and self.waits < 3:
            self.waits += 1
            return Call(WAIT, {})
        if "submit" not in found:
            return "There is no tool to submit with."
        results = results[self.waits :]
        if not results:
            values = {"source": self.program, "note": "as the script says", "wait_s": 30}
            return self._call(found["submit"], values | {"task": self.task})
        told = verdict_in(results[-1])
        if told is None:
            return f"The tool failed: {results[-1][:500]}"
        if told.get("state") in OPEN:
            values = {"wait_s": 30, "ticket": told["ticket"]}
            if "step" in found["verdict"].fields:
                values["step"] = int(told["ticket"])
            return self._call(found["verdict"], values)
        return f"Verdict: {told.get('status')}"

    def _call(self, tool: Tool, values: dict[str, Any]) -> Call:
        fitting = {name: value for name, value in values.items() if name in tool.fields and value}
        return Call(tool.name, fitting, tool.namespace)


def verdict_in(text: str) -> dict[str, Any] | None:
    """The verdict in a tool's result, which a client may have wrapped in words of its own."""
    for start in (place for place, sign in enumerate(text) if sign == "{"):
        try:
            found, _ = json.JSONDecoder().raw_decode(text[start:])
        except ValueError:
            continue
        if isinstance(found, dict) and "state" in found:
            return found
    return None


def anthropic(request: dict[str, Any], model: Model) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events of Anthropic's messages."""
    tools = [
        Tool(each["name"], frozenset(each["input_schema"]["properties"]))
        for each in request.get("tools", ())
        if "input_schema" in each
    ]
    blocks = [block for each in request["messages"] if isinstance(each["content"], list)
              for block in each["content"]]  # fmt: skip
    results = [json_text(block["content"]) for block in blocks if block["type"] == "tool_result"]
    act = model.act(tools, results)
    usage = {"input_tokens": INPUT_TOKENS, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": request["model"]}
    message |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield "message_start", {"message": message}
    if isinstance(act, Call):
        call = f"toolu_{len(results)}"
        block = {"type": "tool_use", "id": call, "name": act.name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(act.values)}
    else:
        block = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": act}
    yield "content_block_start", {"index": 0, "content_block": block}
    yield "content_block_delta", {"index": 0, "delta": delta}
    yield "content_block_stop", {"index": 0}
    reason = "tool_use" if isinstance(act, Call) else "end_turn"
    stop = {"stop_reason": reason, "stop_sequence": None}
    yield "message_delta", {"delta": stop, "usage": usage | {"output_tokens": OUTPUT_TOKENS}}
    yield "message_stop", {}


def openai(request: dict[str, Any], model: Model) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events of OpenAI's responses."""
    outputs = [item for item in request["input"] if item.get("type") == "function_call_output"]
    results = [json_text(item["output"]) for item in outputs]
    act = model.act(list(openai_tools(request.get("tools", ()))), results)
    number = len(results)
    if isinstance(act, Call):
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
        item |= {"name": act.name, "arguments": json.dumps(act.values), "status": "completed"}
        item |= {"namespace": act.namespace} if act.namespace else {}
    else:
        content = [{"type": "output_text", "text": act, "annotations": []}]
        item = {"type": "message", "id": f"msg_{number}", "role": "assistant"}
        item |= {"content": content, "status": "completed"}
    usage = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}
    usage |= {"total_tokens": INPUT_TOKENS + OUTPUT_TOKENS}
    usage |= {"input_tokens_details": {"cached_tokens": 0}}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}}
    response = {"id": f"resp_{number}", "object": "response", "model": request["model"]}
    yield "response.created", {"response": response | {"status": "in_progress"}}
    yield "response.output_item.added", {"output_index": 0, "item": item}
    yield "response.output_item.done", {"output_index": 0, "item": item}
    done = {"status": "completed", "output": [item], "usage": usage}
    yield "response.completed", {"response": response | done}


def openai_tools(tools: Any, namespace: str | None = None) -> Iterator[Tool]:
    for each in tools:
        if each.get("type") == "namespace":
            yield from openai_tools(each["tools"], each["name"])
        elif each.get("type") == "function":
            fields = frozenset((each.get("parameters") or {}).get("properties", ()))
            yield Tool(each["name"], fields, namespace)


def gemini(request: dict[str, Any], model: Model) -> dict[str, Any]:
    """Google's answer, which is one piece of a stream too."""
    functions = [one for each in request.get("tools", ()) for one in
                 each.get("functionDeclarations", ())]  # fmt: skip
    tools = [Tool(each["name"], frozenset(schema_of(each).get("properties", ())))
             for each in functions]  # fmt: skip
    parts = [part for each in request["contents"] for part in each.get("parts", ())]
    answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
    act = model.act(tools, [json_text(answer["response"]) for answer in answers])
    part: dict[str, Any] = {"text": act}
    if isinstance(act, Call):
        part = {"functionCall": {"name": act.name, "args": act.values, "id": f"c{len(answers)}"}}
    content = {"role": "model", "parts": [part]}
    usage = {"promptTokenCount": INPUT_TOKENS, "candidatesTokenCount": OUTPUT_TOKENS}
    usage |= {"totalTokenCount": INPUT_TOKENS + OUTPUT_TOKENS}
    return {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": usage,
    }


def schema_of(function: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = function.get("parametersJsonSchema") or function.get("parameters") or {}
    return found


def json_text(value: Any) -> str:
    """The text of a tool's result, whether it is text, parts with text, or an object of them."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(map(json_text, value))
    if isinstance(value, dict):
        known = [json_text(value[name]) for name in ("text", "output", "content") if name in value]
        return "\n".join(known) or json.dumps(value)
    return str(value)


class Endpoint(ThreadingHTTPServer):
    """The endpoint on a free port of this machine."""

    daemon_threads = True

    def __init__(self, model: Model) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.model = model
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}")
        model = self.server.model
        if model.log is not None:
            with model.log.open("a") as file:
                file.write(json.dumps({"path": self.path, "request": request}) + "\n")
        if "count_tokens" in self.path or "countTokens" in self.path:
            self._json({"input_tokens": INPUT_TOKENS, "totalTokens": INPUT_TOKENS})
        elif "/messages" in self.path:
            self._stream(anthropic(request, model))
        elif self.path.endswith("/responses"):
            self._stream(openai(request, model))
        elif "streamGenerateContent" in self.path:
            self._send(f"data: {json.dumps(gemini(request, model))}\r\n\r\n", "text/event-stream")
        elif "generateContent" in self.path:
            self._json(gemini(request, model))
        else:
            self._json({"error": {"message": f"no {self.path}"}}, 404)

    def do_GET(self) -> None:
        self._json({"data": [], "models": []})

    def do_HEAD(self) -> None:
        self._send("", "text/plain")

    def _stream(self, events: Iterator[tuple[str, dict[str, Any]]]) -> None:
        lines = (f"event: {kind}\ndata: {json.dumps({'type': kind} | event)}\n\n"
                 for kind, event in events)  # fmt: skip
        self._send("".join(lines), "text/event-stream")

    def _json(self, value: Any, status: int = 200) -> None:
        self._send(json.dumps(value), "application/json", status)

    def _send(self, text: str, kind: str, status: int = 200) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *words: object) -> None:
        """Nothing: the address is all that is printed."""


def main(words: list[str]) -> None:
    program, task, log = [*words, "", ""][:3]
    model = Model(Path(program).read_text(), task, Path(log) if log else None)
    endpoint = Endpoint(model)
    print(endpoint.url, flush=True)
    endpoint.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
