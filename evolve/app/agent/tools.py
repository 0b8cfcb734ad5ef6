"""The tools that an agent has in an episode: the judge, and the records of its run."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from evolve.app.agent.episode import Tries
from evolve.app.database import open_store
from evolve.app.mcp import records
from evolve.app.mcp.results import Best, Documents, Lineage, StepText, Verdict, WaitS
from evolve.app.mcp.run_steps import stored_verdict
from evolve.core.errors import EvolveError


def server_of(tries: Tries) -> MCPServer[Any]:
    """The server of one episode."""
    server: MCPServer[Any] = MCPServer("evolve", log_level="ERROR")
    tools = EpisodeTools(tries)
    for tool in (
        *(tools.submit, tools.verdict),
        *(tools.best, tools.lineage, tools.get_step, tools.knowledge),
    ):
        server.add_tool(tool)
    return server


class EpisodeTools:
    """Methods that are tools."""

    def __init__(self, tries: Tries) -> None:
        self._tries = tries
        self._run = tries.judge.run
        self._location = tries.judge.location

    async def submit(
        self,
        source: Annotated[str, Field(min_length=1, description="A Python module with ModelNew")],
        note: Annotated[str, Field(description="The idea, in a sentence")] = "",
        parent: Annotated[
            int | None, Field(description="Step of this episode that it was made from")
        ] = None,
        wait_s: WaitS = 0,
    ) -> Verdict:
        """Have a program judged as a step of the search; costs one verdict of the episode."""
        try:
            step = self._tries.submit(source, parent, note)
        except EvolveError as error:
            raise ToolError(str(error)) from error
        return await self.verdict(step, wait_s)

    async def verdict(self, step: Annotated[int, Field(ge=0)], wait_s: WaitS = 20) -> Verdict:
        """The verdict of a step; waits up to `wait_s` seconds. Call again while it is waiting."""
        await self._tries.judge.judged(step, wait_s)
        return await _told(self._stored, step)

    async def best(self) -> Best:
        """The best program of the search so far."""
        return await _told(records.best, self._location, self._run)

    async def lineage(
        self, first: Annotated[int, Field(ge=0)] = 0, last: int | None = None
    ) -> Lineage:
        """How the programs of the search came to be: 200 steps at most."""
        return await _told(records.lineage, self._location, self._run, first, last)

    async def get_step(self, step: Annotated[int, Field(ge=0)]) -> StepText:
        """A step of the search with its program and verdict."""
        return await _told(records.step_text, self._location, self._run, step)

    async def knowledge(self, words: str = "", document: str | None = None) -> Documents:
        """Documents on kernels that hold words, or one of them as a whole."""
        folders: Sequence[str] = ()
        if document is not None:
            return await _told(records.document, folders, document)
        return await _told(records.documents, folders, words, {})

    def _stored(self, step: int) -> Verdict:
        with open_store(self._location) as store:
            found = stored_verdict(store, store.run(self._run), step)
        return found.model_copy(update={"ticket": str(step), "verdicts_left": self._tries.left})


async def _told(function: Any, *arguments: Any) -> Any:
    """The result of a function that reads the database; our own errors as the tool's."""
    try:
        return await asyncio.to_thread(function, *arguments)
    except EvolveError as error:
        raise ToolError(str(error)) from error
