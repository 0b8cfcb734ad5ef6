"""The MCP server with its tools."""

import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server import MCPServer

import evolve
from evolve.app.mcp.record_tools import RecordTools
from evolve.app.mcp.tools import JudgingTools, Parts, SearchTools, StepTools

INSTRUCTIONS = """\
Search for GPU (or CPU) kernels that are correct and faster than a PyTorch reference, with a judge
that you cannot argue with. `get_task` shows a task; `submit` has a candidate judged and gives a
ticket, and `verdict` polls it (never wait longer than 40 s in a call; poll again). A candidate is a
Python module with a class ModelNew that has the constructor and the forward signature of Model.
Believe speedups whose interval excludes 1 only. To work within a stored run, whose archive chooses
parents and writes the prompts: `open_run`, then `ask` and `tell` in turns. `start_run` searches
without you, within a budget. `verdicts_left` and `budget_left` tell the budget that is left."""


@asynccontextmanager
async def working(parts: Parts) -> AsyncIterator[MCPServer[Any]]:
    """The server over its parts, which end in order with the block: nothing of them is lost."""
    server: MCPServer[Any] = MCPServer(
        "evolve", instructions=INSTRUCTIONS, version=evolve.__version__, log_level="ERROR"
    )
    records = RecordTools(parts.location, parts.knowledge)
    for tools in (JudgingTools(parts), StepTools(parts), records, SearchTools(parts)):
        for _, method in inspect.getmembers(tools, inspect.ismethod):
            if hasattr(method, "annotations"):
                server.add_tool(method, annotations=method.annotations)
    try:
        yield server
    finally:
        await parts.searches.close()
        await parts.steps.close()
        await parts.judge.close()
