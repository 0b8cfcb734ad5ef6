"""`evolve mcp`, asked by the SDK's own client over both of its transports.

Invariants:
1. A call is short, a ticket is for ever: whatever is killed, the verdict comes.
2. All that a client starts is within the server's budget, and a used-up budget says so.
3. A key in a reply is taken out before it is stored.
4. What cannot be is an error of the tool that names field, value and remedy; the server goes on.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mcp import Client

from evolve.app.config.compose import compose_other
from evolve.app.mcp.parts import parts_of
from evolve.app.mcp.server import working
from evolve.cli.commands.judge.mcp import McpConfig
from evolve.llm.secrets import HIDDEN
from evolve.store import Store
from tests.agents.mcp_servers import (
    MODULE,
    Refused,
    call,
    environment,
    http,
    stdio,
)
from tests.agents.stub_mcp import start

TOKEN = "t" * 32
GOOD = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    N = {0}\n\n\n# speedup {0}\n"
REPLY = "Faster.\n\n```python\n{source}```\n"
TOOLS = {
    *("list_tasks", "get_task", "submit", "verdict", "open_run", "ask", "tell", "best", "lineage"),
    *("get_step", "knowledge", "list_runs", "run_status", "start_run", "stop_run"),
    "steer_run",
}

SECRET = "sk-proj-0123456789abcdef"


def good(number: float) -> str:
    return GOOD.format(number)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("mcp")


@pytest.fixture(scope="module")
def server(folder):
    """One server for tests that leave nothing behind that others read."""
    with http(folder, "budget.wall_time=2m", token=TOKEN, STUB_SLOTS="8") as found:
        yield found


async def answered(client: Client, asked: dict, reply: str) -> dict:
    """What became of a reply to a request."""
    return await call(client, "tell", ticket=asked["ticket"], key=asked["key"], reply=reply)


async def judged(client: Client, ticket: str) -> dict:
    """The verdict of a ticket, polled as an agent polls it."""
    for _ in range(10):
        found = await call(client, "verdict", ticket=ticket, wait_s=5)
        if found["state"] in ("done", "failed"):
            return found
    raise AssertionError(f"{ticket} has no verdict: {found}")


def test_an_agent_that_starts_the_server_finds_tasks_tools_and_verdicts(tmp_path):
    async def session() -> None:
        async with Client(stdio(tmp_path)) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(tools) == TOOLS
            assert all(tool.output_schema and tool.description for tool in tools.values())
            assert tools["best"].annotations.read_only_hint
            assert "softmax" in (await call(client, "list_tasks"))["tasks"]
            task = await call(client, "get_task", task="softmax", size="tiny")
            assert "class Model" in task["reference"]
            ticket = await call(client, "submit", task="softmax", source=good(2.0))
            found = await judged(client, ticket["ticket"])
            assert found["strict"]
            assert found["speedup"] == [2.0, 1.98, 2.02]
            assert "2.00x as fast" in found["feedback"]

    asyncio.run(session())


def test_a_run_is_asked_told_and_looked_at(server, folder):
    async def session() -> None:
        async with server.client(TOKEN) as client:
            await call(client, "open_run", task="softmax", name="by_agent")
            first, second = [await call(client, "ask", run="by_agent") for _ in range(2)]
            assert first["ticket"] != second["ticket"]
            assert "softmax" in first["prompt"]
            assert (await call(client, "verdict", ticket=second["ticket"]))["state"] == "asked"
            reply = REPLY.format(source=f"{good(2.0)}\n# {SECRET}\n")
            told = await answered(client, first, reply)
            assert told["state"] == "judging"
            found = await judged(client, told["ticket"])
            assert (found["strict"], found["archived"]) == (True, "new")
            step = int(first["ticket"].rpartition(":")[2])
            stored = await call(client, "get_step", run="by_agent", step=step)
            assert stored["source"] == f"{good(2.0)}\n# {HIDDEN}\n"
            offered = await call(
                client,
                "tell",
                run="by_agent",
                source=good(3.0),
                parents=[step],
                note="one pass less",
            )
            assert (await judged(client, offered["ticket"]))["speedup"][0] == 3.0
            best = await call(client, "best", run="by_agent")
            assert "# speedup 3.0" in best["source"]
            lineage = await call(client, "lineage", run="by_agent")
            assert lineage["line_to_best"] == [step, best["step"]]
            [made] = [each for each in lineage["steps"] if each["step"] == best["step"]]
            assert (made["operator"], made["parents"]) == ("agent", [step])
            whole = await call(client, "get_step", run="by_agent", step=best["step"])
            assert whole["source"] == good(3.0)
            again = await answered(client, first, reply)
            assert (again["state"], again["message"]) == ("done", "it has a verdict already")
            vain = await answered(client, second, "I have no idea.")
            while vain["state"] == "asked_again":
                once_more = await call(client, "ask", run="by_agent")
                assert once_more["ticket"] == second["ticket"]
                vain = await answered(client, once_more, "I have no idea.")
            assert vain["state"] == "failed"
            assert "no code block" in vain["message"]
            assert (await call(client, "verdict", ticket=second["ticket"]))["state"] == "failed"
            assert (await call(client, "run_status", run="by_agent"))["evaluations"] == 2

    asyncio.run(session())
    with Store.open(folder / "runs" / "evolve.db", read_only=True) as store:
        run = store.run("by_agent")
        assert run.state == "interrupted"  # nothing holds it: `evolve resume` may go on
        assert store.progress(run.id).evaluations == 2


@pytest.mark.slow  # several clients are below
def test_a_hundred_candidates_at_once_all_get_their_own_verdict(server):
    async def one(client: Client, number: int) -> float:
        ticket = await call(client, "submit", task="row_sum", source=good(1 + number / 100))
        return (await judged(client, ticket["ticket"]))["speedup"][0]

    async def session() -> list[float]:
        async with server.client(TOKEN) as client:
            return await asyncio.gather(*(one(client, number) for number in range(100)))

    assert asyncio.run(session()) == pytest.approx([1 + number / 100 for number in range(100)])


@pytest.mark.parametrize("token", [None, "wrong" * 8])
def test_a_wrong_token_gets_nothing(server, token):
    async def session() -> None:
        async with server.client(token) as client:
            await call(client, "list_tasks")

    with pytest.raises(BaseException) as failure:
        asyncio.run(session())
    assert not isinstance(failure.value, Refused)
    host, port = server.url.removeprefix("http://").removesuffix("/mcp").split(":")
    with socket.create_connection((host, int(port))) as asked:
        header = f"Authorization: Bearer {token}\r\n" if token else ""
        asked.sendall(
            f"POST /mcp HTTP/1.1\r\nHost: x\r\n{header}Content-Length: 0\r\n\r\n".encode()
        )
        assert b" 401 " in asked.recv(4096).partition(b"\r\n")[0] + b" "


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("submit", {"source": "x", "task": "no_such"}, "task 'no_such'"),
        ("submit", {"source": "x"}, "give either task or reference"),
        ("submit", {"source": "x", "reference": "class Model: pass"}, "references=any"),
        ("verdict", {"ticket": "0" * 32}, "nothing was submitted under it"),
        ("verdict", {"ticket": "no_run:1"}, "no_run"),
        ("open_run", {"task": "softmax", "name": "x", "search": "no_such"}, "search=no_such"),
        ("open_run", {"task": "./own.py", "name": "x"}, "./own.py"),
        ("open_run", {"task": "softmax", "name": "${oc.env:HOME}"}, "pattern"),
        ("start_run", {"name": "x", "task": "softmax", "wall_time": "1h"}, "budget.wall_time"),
        (
            "start_run",
            {"name": "x", "task": "softmax", "wall_time": "1m", "model": "openai/m"},
            "give usd",
        ),
        (
            "start_run",
            {"name": "x", "task": "softmax", "wall_time": "1m", "model": "openai/m", "usd": 1},
            "budget.usd",
        ),
        (
            "start_run",
            {"name": "x", "task": "softmax", "wall_time": "1m", "search": "no_such"},
            "search=no_such",
        ),
        ("stop_run", {"run": "by_agent"}, "not under way here"),
        ("steer_run", {"run": "by_agent", "change": "pause"}, "not under way here"),
        ("steer_run", {"run": "by_agent", "change": "budget", "value": "usd=5"}, "'note'"),
        ("tell", {}, "give either ticket, key and reply, or source"),
        ("knowledge", {}, "give either words"),
        ("knowledge", {"error": "no_such"}, "it is one of"),
    ],
)
def test_what_cannot_be_is_said_to_the_agent(server, tool, arguments, told):
    async def session() -> None:
        async with server.client(TOKEN) as client:
            with pytest.raises(Refused) as refused:
                await call(client, tool, **arguments)
            assert told in str(refused.value)
            assert (await call(client, "list_tasks"))["tasks"]

    asyncio.run(session())


def test_knowledge_is_found_by_words_by_a_diagnosis_and_whole(server):
    async def session() -> None:
        async with server.client(TOKEN) as client:
            [first, *_] = (await call(client, "knowledge", words="softmax"))["documents"]
            assert first["body"] is None
            [whole] = (await call(client, "knowledge", document=first["id"]))["documents"]
            assert len(whole["body"]) > 500
            assert (await call(client, "knowledge", error="wrong_value"))["documents"]

    asyncio.run(session())


def test_a_used_up_budget_is_said_and_verdicts_that_were_given_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = compose_other("mcp", McpConfig, ["budget.verdicts=2"])

    async def session() -> None:
        parts = parts_of(config, print, start=lambda: start(None))
        async with working(parts) as server, Client(server) as client:
            for number in (1, 2):
                ticket = await call(client, "submit", task="softmax", source=good(number))
                found = await judged(client, ticket["ticket"])
                assert found["verdicts_left"] == 2 - number
            assert (await call(client, "list_runs"))["budget_left"]["verdicts"] == 0
            with pytest.raises(Refused, match=r"0 of the server's 2 are left.*budget\.verdicts"):
                await call(client, "submit", task="softmax", source=good(3))
            assert (await judged(client, ticket["ticket"]))["strict"]

    asyncio.run(session())


@pytest.mark.slow
def test_verdicts_come_after_the_server_of_a_killed_client_is_started_again(tmp_path):
    async def begin() -> str:
        async with Client(stdio(tmp_path, STUB_LATENCY_S="60")) as client:
            ticket = await call(client, "submit", task="softmax", source=good(2.0))
            for line in (tmp_path / "starts").read_text().split():  # the worker, and its server
                parent = int(Path(f"/proc/{line}/stat").read_text().split()[3])
                os.kill(parent, signal.SIGKILL)
        return ticket["ticket"]

    async def go_on(ticket: str) -> dict:
        async with Client(stdio(tmp_path)) as client:
            return await judged(client, ticket)

    ticket = asyncio.run(begin())
    assert asyncio.run(go_on(ticket))["speedup"][0] == 2.0


def test_a_client_that_goes_away_while_it_waits_costs_the_others_nothing(server):
    async def session() -> dict:
        async with server.client(TOKEN) as client:
            slow = good(2.5) + "# slow 1.0\n"
            ticket = (await call(client, "submit", task="softmax", source=slow))["ticket"]
            waiting = subprocess.Popen(
                [sys.executable, "-c", WAIT_FOR, server.url, TOKEN, ticket], env=environment()
            )
            await asyncio.sleep(0.3)
            waiting.kill()
            waiting.wait()
            return await judged(client, ticket)

    assert asyncio.run(session())["speedup"][0] == 2.5


WAIT_FOR = """
import asyncio, sys
from tests.agents.mcp_servers import call, connected
async def wait(url, token, ticket):
    async with connected(url, token) as client:
        await call(client, "verdict", ticket=ticket, wait_s=30)
asyncio.run(wait(*sys.argv[1:]))
"""


@pytest.mark.slow
def test_the_server_ends_in_order_though_its_client_holds_the_stream_open(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", MODULE],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    hello = (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"'
    )
    hello += b',"capabilities":{},"clientInfo":{"name":"t","version":"0"}}}\n'
    process.stdin.write(hello)
    process.stdin.flush()
    assert b'"serverInfo"' in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


@pytest.mark.slow
def test_a_client_that_floods_the_stream_with_an_endless_line_ends_its_server_only(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", MODULE],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with pytest.raises(BrokenPipeError):
        for _ in range(64):
            process.stdin.write(b"x" * (1 << 20))
            process.stdin.flush()
            time.sleep(0.01)
        process.wait(20)
        process.stdin.write(b"x")
        process.stdin.flush()
    assert process.wait(20) == 0


def test_a_server_for_other_machines_needs_a_token(tmp_path):
    command = [sys.executable, "-m", "evolve", "mcp", "transport=http", "host=0.0.0.0"]
    result = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert result.returncode == 2
    assert "needs a token" in result.stderr


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_search_is_started_watched_stopped_and_continued(tmp_path):
    async def session() -> None:
        words = ("device=cpu", "budget.wall_time=10m")
        async with Client(stdio(tmp_path, *words, module="evolve")) as client:
            begun = await call(
                client, "start_run", name="own", task="row_sum", wall_time="5m", search="quick"
            )
            assert begun["state"] == "running"
            assert begun["budget_left"]["wall_time_s"] <= 300
            with pytest.raises(Refused, match="another process"):
                await call(client, "ask", run="own")
            noted = await call(client, "steer_run", run="own", change="note", value="try float4")
            assert noted == {"run": "own", "stored": "note try float4"}
            with pytest.raises(Refused, match="number of the step"):
                await call(client, "steer_run", run="own", change="pin", value="the best")
            stopped = await call(client, "stop_run", run="own")
            assert stopped["state"] == "interrupted"
            assert stopped["budget_left"]["wall_time_s"] > 300  # the rest is given back
            await call(client, "start_run", name="own", wall_time="3m", evaluations=1)
            for _ in range(60):
                found = await call(client, "run_status", run="own")
                if found["state"] == "finished":
                    break
                await asyncio.sleep(2)
            assert found["evaluations"] >= 1, found["log"]

    asyncio.run(session())
