"""MCP servers over the stub judge, and the SDK's own client on them."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

ROOT = Path(__file__).parents[2]
MODULE = "tests.agents.stub_mcp"


class Refused(Exception):
    """A tool's error, in its own words."""


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured result of a tool."""
    result = await client.call_tool(tool, arguments)
    if result.is_error:
        raise Refused(result.content[0].text)
    assert isinstance(result.structured_content, dict)
    return result.structured_content


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "EVOLVE_MCP_TOKEN": "", **more}


def stdio(folder: Path, *words: str, module: str = MODULE, **more: str) -> StdioServerParameters:
    """How a client starts a server of its own."""
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", module, *(["mcp"] if module == "evolve" else []), *words],
        cwd=folder,
        env=environment(**more),
    )


@dataclass(frozen=True)
class HttpServer:
    process: "subprocess.Popen[str]"
    url: str

    def client(self, token: str | None = None) -> contextlib.AbstractAsyncContextManager[Client]:
        return connected(self.url, token)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


@contextlib.asynccontextmanager
async def connected(url: str, token: str | None) -> AsyncIterator[Client]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    limits = httpx2.Limits(max_connections=200)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, limits=limits) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


@contextlib.contextmanager
def http(folder: Path, *words: str, token: str | None = None, **more: str) -> Iterator[HttpServer]:
    """A server that clients connect to."""
    more |= {"EVOLVE_MCP_TOKEN": token} if token else {}
    process = subprocess.Popen(
        [sys.executable, "-m", MODULE, "transport=http", "port=0", *words],
        cwd=folder,
        env=environment(**more),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("serving"), line
        yield HttpServer(process, line.split()[1])
    finally:
        process.kill()
        process.wait()
