"""Tools that read the records of runs and the knowledge base, and how a method becomes a tool."""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, ParamSpec, TypeVar

from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from evolve.app.database import open_store
from evolve.app.library.winner import standalone, winner_of
from evolve.app.mcp.records import document_of, lineage_step
from evolve.app.mcp.results import Best, Documents, Lineage, Name, StepText
from evolve.app.mcp.run_steps import stored_verdict
from evolve.core.errors import EvolveError, UsageError
from evolve.serve.submissions import PinMismatch, QueueFull, SameId
from evolve.store.champion import best_path
from operators.knowledge import Diagnosis, load, rank, search
from operators.knowledge.document import VALUES

MOST_STEPS = 200  # of one answer: clients cap results
MOST_DOCUMENTS = 8

P = ParamSpec("P")
T = TypeVar("T")
Tool = Callable[P, Coroutine[Any, Any, T]]

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
MAKES = ToolAnnotations(destructive_hint=False, open_world_hint=False)

Run = Annotated[Name | None, Field(description="Name of a run; null: the newest")]


def as_tool(kind: ToolAnnotations) -> Callable[[Callable[P, Any]], Tool[P, Any]]:
    """A method as a tool: an error of this project is a result that a model reads and acts on.

    One that is no coroutine, as it waits for the database, is called in a thread.
    """

    def wrap(function: Callable[P, Any]) -> Tool[P, Any]:
        @functools.wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            try:
                if inspect.iscoroutinefunction(function):
                    return await function(*args, **kwargs)
                return await asyncio.to_thread(function, *args, **kwargs)
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
    def best(self, run: Run = None) -> Best:
        """The best program of a run so far, as a module that stands alone."""
        with open_store(self._location) as store:
            row = store.run(run)
            winner = winner_of(store, row)
            return Best(
                run=row.name,
                step=winner.sequence,
                speedup=winner.ratio.to_json(),
                verified=winner.verified,
                source=standalone(store, row),
            )

    @as_tool(READS)
    def lineage(
        self,
        run: Run = None,
        first: Annotated[int, Field(ge=0, description="Number of the first step")] = 0,
        last: Annotated[int | None, Field(ge=0, description="Number of the last step")] = None,
    ) -> Lineage:
        """How the programs of a run came to be, and the line to its best one: 200 steps at most."""
        with open_store(self._location) as store:
            row = store.run(run)
            end = store.next_sequence(row.id) if last is None else last + 1
            begin = max(first, end - MOST_STEPS) if last is None else first
            makers: dict[str, int] = {}
            steps = []
            for step in store.steps(row.id):
                if step.program is not None:
                    makers.setdefault(step.program, step.sequence)
                if begin <= step.sequence < min(end, begin + MOST_STEPS):
                    steps.append(lineage_step(step, makers, row.baseline))
            return Lineage(run=row.name, steps=steps, line_to_best=best_path(store, row))

    @as_tool(READS)
    def get_step(self, step: Annotated[int, Field(ge=0)], run: Run = None) -> StepText:
        """One step of a run with its program and its verdict."""
        with open_store(self._location) as store:
            row = store.run(run)
            found = store.step(row.id, step)
            is_judged = store.evaluation(row.id, step) is not None
            return StepText(
                run=row.name,
                step=step,
                operator=found.operator,
                source=store.source(found.program) if found.program else None,
                assignment=dict(found.assignment),
                failure=found.failure,
                verdict=stored_verdict(store, row, step) if is_judged else None,
            )

    @as_tool(READS)
    def knowledge(
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
        held = load(list(self._folders))
        if document is not None:
            whole = next((each for each in held if each.id == document), None)
            if whole is None:
                raise UsageError(f"id {document!r}: there is none; search by words instead")
            sources = [f"{source.title}: {source.url}" for source in whole.sources]
            more = {"body": whole.body, "sources": sources}
            return Documents(documents=[document_of(whole).model_copy(update=more)])
        given = {"error": error, "bottleneck": bottleneck, "category": category}
        given |= {"device": device, "language": language, "precision": precision}
        asked = {kind: value for kind, value in given.items() if value}
        if bool(words.split()) == bool(asked):
            raise UsageError("knowledge: give either words, or parts of a diagnosis such as error")
        for kind, value in asked.items():
            allowed = VALUES[kind]
            if allowed is not None and value not in allowed:
                raise UsageError(f"{kind}={value!r}: it is one of {', '.join(sorted(allowed))}")
        found = search(held, words.split()) if words.split() else rank(held, Diagnosis(**asked))
        return Documents(documents=[document_of(each) for _, each in [*found][:MOST_DOCUMENTS]])
