"""The tools that an agent has in an episode: the judge, and the records of its run."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from mcp.server import MCPServer
from pydantic import Field

from evolve.app.agent.episode import Tries
from evolve.app.agent.presets import SERVER, TOOLS
from evolve.app.database import open_store
from evolve.app.mcp.record_tools import MAKES, READS, RecordTools, as_tool, of_run
from evolve.app.mcp.results import Verdict, WaitS
from evolve.app.mcp.run_steps import stored_verdict


def server_of(tries: Tries, folders: Sequence[str]) -> MCPServer[Any]:
    """The server of one episode.

    Args:
        tries: its programs.
        folders: of documents, beside those that ship.
    """
    server: MCPServer[Any] = MCPServer(SERVER, log_level="ERROR")
    own, records = EpisodeTools(tries), RecordTools(tries.judge.location, folders)
    for name in TOOLS:
        method = getattr(own, name, None) or of_run(getattr(records, name), tries.judge.run)
        server.add_tool(method, annotations=method.annotations)
    return server


class EpisodeTools:
    """The tools whose verdicts are those of the episode."""

    def __init__(self, tries: Tries) -> None:
        self._tries = tries

    @as_tool(MAKES)
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
        return await self._verdict(self._tries.submit(source, parent, note), wait_s)

    @as_tool(READS)
    async def verdict(self, step: Annotated[int, Field(ge=0)], wait_s: WaitS = 20) -> Verdict:
        """The verdict of a step; waits up to `wait_s` seconds. Call again while it is waiting."""
        return await self._verdict(step, wait_s)

    async def _verdict(self, step: int, wait_s: float) -> Verdict:
        await self._tries.judge.judged(step, wait_s)
        return await asyncio.to_thread(self._stored, step)

    def _stored(self, step: int) -> Verdict:
        judge = self._tries.judge
        with open_store(judge.location) as store:
            found = stored_verdict(store, store.run(judge.run), step)
        return found.model_copy(update={"ticket": str(step), "verdicts_left": self._tries.left})
