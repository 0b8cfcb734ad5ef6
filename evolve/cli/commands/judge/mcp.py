"""`evolve mcp`: the judge and the runs as tools of coding agents."""

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from omegaconf import MISSING

from evolve.app.config.schema import JudgeConfig
from evolve.app.mcp import MCP_PACKAGES
from evolve.cli import signals
from evolve.cli.args import print_settings
from evolve.cli.commands.judge.serve import LOOPBACK_NAMES, References, require_token
from evolve.cli.console.terminal import notify
from evolve.core.errors import needing
from evolve.serve.token import read_token

if TYPE_CHECKING:
    from mcp.server import MCPServer

TOKEN_VARIABLE = "EVOLVE_MCP_TOKEN"


class Transport(Enum):
    """How clients and the server speak."""

    stdio = "stdio"
    http = "http"


@dataclass
class BudgetConfig:
    """The budget of all clients."""

    verdicts: int | None = None
    wall_time: str = MISSING
    usd: float = MISSING


@dataclass
class KnowledgeConfig:
    """Documents beside those that ship."""

    folders: list[str] = field(default_factory=list)


@dataclass
class McpConfig(JudgeConfig):
    """The types of conf/mcp.yaml, which describes each field."""

    transport: Transport = Transport.stdio
    host: str = MISSING
    port: int = MISSING
    token_file: str | None = None
    database: str = MISSING
    project: str | None = None
    jobs: str = MISSING
    tasks: list[str] = field(default_factory=list)
    references: References = References.known
    knowledge: KnowledgeConfig = field(default_factory=KnowledgeConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)


def main(words: Sequence[str]) -> int:
    """Serve until the client goes away or a signal says to stop; the exit status is 0 then."""
    if {"-h", "--help"} & {*words}:
        return print_settings("mcp")
    from evolve.app.config.compose import compose_other

    config = compose_other("mcp", McpConfig, words)
    is_http = config["transport"] == "http"
    token = None
    if is_http:
        token = read_token(config["token_file"], os.environ, variable=TOKEN_VARIABLE)
        require_token(config["host"], token)
    os.environ.pop(TOKEN_VARIABLE, None)  # not for searches, nor for judges
    with suppress(signals.Stopped):
        signals.run(_serve(config, token) if is_http else _serve_stdio(config))
    return 0


async def _serve_stdio(config: Mapping[str, Any]) -> None:
    with needing("evolve mcp", "mcp", MCP_PACKAGES):
        from evolve.app.mcp.stdio import answer

    async with _working(config) as server:
        await answer(server)


async def _serve(config: Mapping[str, Any], token: str | None) -> None:
    with needing("evolve mcp", "mcp", MCP_PACKAGES):
        from evolve.app.mcp.http import ENDPOINT, serve
    from evolve.serve.http import listen, url_of

    with listen(config["host"], config["port"]) as listener:
        async with _working(config) as server:
            if token is None:
                notify("token   none: every process on this machine may have code judged here")
            print(f"serving {url_of(listener)}{ENDPOINT}", flush=True)
            hosts = () if token else LOOPBACK_NAMES
            await serve(server, listener, token=token, hosts=hosts)


def _working(config: Mapping[str, Any]) -> "AbstractAsyncContextManager[MCPServer[Any]]":
    from evolve.app.mcp.parts import parts_of
    from evolve.app.mcp.server import working

    return working(parts_of(config, notify))
