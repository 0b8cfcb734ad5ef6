"""A coding agent by script: reads its prompt, uses its tools through the SDK, prints its result.

The first word: `good` submits and improves, `silent` never answers, `flood` prints without end,
`escape` tries to leave its folder, `broken` fails at once, `greedy` submits more than it may,
`dawdle` submits once and goes on for ever, `look_up` reads records and documents. `good` and
`dawdle` leave a process behind.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client


async def session(act) -> object:
    headers = {"Authorization": f"Bearer {os.environ['EVOLVE_AGENT_TOKEN']}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(os.environ["EVOLVE_AGENT_URL"], http_client=http)) as client,
    ):
        return await act(client)


def say(kind: str, **block: object) -> None:
    """An event as Claude Code prints it."""
    message = {"type": kind, "message": {"role": kind, "content": [block]}}
    print(json.dumps(message), flush=True)


async def tool(client: Client, name: str, **arguments: object) -> dict:
    key = f"{name}-{time.monotonic_ns()}"
    say("assistant", type="tool_use", id=key, name=f"mcp__evolve__{name}", input=arguments)
    result = await client.call_tool(name, arguments)
    texts = [{"type": "text", "text": each.text} for each in result.content]
    say("user", type="tool_result", tool_use_id=key, content=texts)
    return {"error": texts[0]["text"]} if result.is_error else result.structured_content


def program(number: int) -> str:
    known = Path("parent.py") if Path("parent.py").exists() else Path(sys.argv[2])
    return f"{known.read_text()}\n\nNUMBER_{os.getpid()} = {number}\n"


def leave_behind() -> None:
    """A process of another session, with a path of the test's folder among its words."""
    command = [sys.executable, "-c", "import time; time.sleep(600)", sys.argv[2]]
    subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)


async def good(client: Client) -> str:
    leave_behind()
    say("assistant", type="text", text="I read parent.py, and try a first change.")
    first = await tool(client, "submit", source=program(1), note="first try", wait_s=20)
    again = {"source": program(2), "note": "second try", "parent": int(first["ticket"])}
    second = await tool(client, "submit", **again)
    while second["state"] == "waiting":
        second = await tool(client, "verdict", step=int(second["ticket"]), wait_s=20)
    best = await tool(client, "best")
    return f"verdicts {first['status']} {second['status']}, best of step {best.get('step')}"


async def look_up(client: Client) -> str:
    tools = [each.name for each in (await client.list_tools()).tools]
    found = await tool(client, "knowledge", words=sys.argv[3])
    await tool(client, "submit", source=program(1), wait_s=20)
    best = await tool(client, "best")
    return json.dumps({"tools": tools, "found": found, "best": best})


async def dawdle(client: Client) -> str:
    leave_behind()
    await tool(client, "submit", source=program(1), note="before the end", wait_s=20)
    await asyncio.sleep(600)
    return ""


async def greedy(client: Client) -> str:
    told = [await tool(client, "submit", source=program(n), wait_s=20) for n in range(4)]
    wrong = await tool(client, "submit", source=program(9), parent=12345)
    return json.dumps([each.get("error", "ok") for each in (*told, wrong)])


async def escape(client: Client) -> str:
    found = {}
    for path in map(Path, sys.argv[3:]):
        for act in (path.read_bytes, path.iterdir, (path / "x").touch):
            try:
                done = act()
                found[f"{act.__name__} {path}"] = str(done if done is None else len([*done]))
            except OSError as error:
                found[f"{act.__name__} {path}"] = type(error).__name__
    Path("mine.txt").write_text("x")
    keys = [name for name in os.environ if name.endswith("API_KEY")]
    return json.dumps({"found": found, "keys": keys})


def main() -> None:
    what, prompt = sys.argv[1], sys.stdin.read()
    assert "submit" in prompt
    if what == "broken":
        print("log in first", file=sys.stderr)
        sys.exit(1)
    if what == "silent":
        time.sleep(600)
    while what == "flood":
        print("x" * 1_000_000)
    acts = {"good": good, "greedy": greedy, "escape": escape, "dawdle": dawdle}
    acts |= {"look_up": look_up}
    text = asyncio.run(session(acts[what]))
    usage = {"input_tokens": 1000, "output_tokens": 50}
    print(json.dumps({"type": "result", "result": text, "total_cost_usd": 0.25, "usage": usage}))


main()
