"""Tools that read the records of runs and the knowledge base, and how a method becomes a tool."""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, ParamSpec, TypeVar

from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from evolve.app.mcp import records
from evolve.app.mcp.results import Best, Documents, Lineage, Name, StepText
from evolve.core.errors import EvolveError
from evolve.serve.submissions import PinMismatch, QueueFull, SameId

P = ParamSpec("P")
T = TypeVar("T")
Tool = Callable[P, Coroutine[Any, Any, T]]

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
MAKES = ToolAnnotations(destructive_hint=False, open_world_hint=False)

Run = Annotated[Name | None, Field(description="Name of a run; null: the newest")]


def as_tool(kind: ToolAnnotations) -> Callable[[Tool[P, T]], Tool[P, T]]:
    """A method as a tool: an error of this project is a result that a model reads and acts on."""

    def wrap(function: Tool[P, T]) -> Tool[P, T]:
        @functools.wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return await function(*args, **kwargs)
            except (EvolveError, QueueFull, PinMismatch, SameId) as error:
                raise ToolError(str(error)) from error

        call.annotations = kind  # type: ignore[attr-defined]
        return call

    return wrap


def of_run(method: Callable[..., Coroutine[Any, Any, Any]], run: str) -> Any:
    """A tool for one run: the same without its argument `run`, if it has that."""
    signature = inspect.signature(method)
    if "run" not in signature.parameters:
        return method

    @functools.wraps(method)
    async def call(**arguments: Any) -> Any:
        return await method(run=run, **arguments)

    others = [each for each in signature.parameters.values() if each.name != "run"]
    call.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
    return call


class RecordTools:
    """Contents of a database and of the knowledge base.

    Args:
        location: the database.
        folders: documents beside those that ship.
    """

    def __init__(self, location: str, folders: Sequence[str]) -> None:
        self._location = location
        self._folders = folders

    @as_tool(READS)
    async def best(self, run: Run = None) -> Best:
        """The best program of a run so far, as a module that stands alone."""
        return await asyncio.to_thread(records.best, self._location, run)

    @as_tool(READS)
    async def lineage(
        self,
        run: Run = None,
        first: Annotated[int, Field(ge=0, description="Number of the first step")] = 0,
        last: Annotated[int | None, Field(ge=0, description="Number of the last step")] = None,
    ) -> Lineage:
        """How the programs of a run came to be, and the line to its best one: 200 steps at most."""
        return await asyncio.to_thread(records.lineage, self._location, run, first, last)

    @as_tool(READS)
    async def get_step(self, step: Annotated[int, Field(ge=0)], run: Run = None) -> StepText:
        """One step of a run with its program and its verdict."""
        return await asyncio.to_thread(records.step_text, self._location, run, step)

    @as_tool(READS)
    async def knowledge(
        self,
        words: Annotated[str, Field(description="To be found in the text")] = "",
        document: Annotated[str | None, Field(description="Id of one, for its whole text")] = None,
        error: str = "",
        bottleneck: str = "",
        category: str = "",
        device: Annotated[str, Field(description="such as nvidia/hopper")] = "",
        language: str = "",
        precision: str = "",
    ) -> Documents:
        """Documents on kernels: by words, by a diagnosis (an error, a bottleneck), or by an id."""
        if document is not None:
            return await asyncio.to_thread(records.document, self._folders, document)
        asked = {"error": error, "bottleneck": bottleneck, "category": category}
        asked |= {"device": device, "language": language, "precision": precision}
        return await asyncio.to_thread(records.documents, self._folders, words, asked)
