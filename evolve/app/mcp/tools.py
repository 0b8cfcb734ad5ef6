"""The tools of the MCP server. Each is thin: the work is done by the imported classes.

No call lasts longer than about 40 s, for clients give up at 60 s: work goes on behind a ticket.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from evolve.app.config.compose import compose
from evolve.app.database import place
from evolve.app.launch import create
from evolve.app.library.words import as_words
from evolve.app.mcp import records
from evolve.app.mcp.budget import MEANINGS, Budget
from evolve.app.mcp.judging import LazyJudge, Submissions
from evolve.app.mcp.record_tools import MAKES, READS, Run, as_tool
from evolve.app.mcp.results import (
    Accepted,
    Asked,
    JobId,
    Model,
    Name,
    Preset,
    Runs,
    RunState,
    Steered,
    TaskList,
    TaskName,
    TaskText,
    TicketId,
    Verdict,
    WaitS,
)
from evolve.app.mcp.run_steps import RunSteps
from evolve.app.mcp.searches import Searches
from evolve.core.errors import UsageError
from evolve.report.text import one_line
from evolve.serve.catalogue import Catalogue, Setup

Size = Annotated[
    Literal["tiny", "cpu", "gpu"] | None, Field(description="null: that of the judge's device")
]
Source = Annotated[str, Field(min_length=1, description="A Python module with ModelNew")]


@dataclass(slots=True)
class Parts:
    """The objects behind the tools.

    Attributes:
        location: the database.
        catalogue: the tasks that clients may name.
        knowledge: folders of documents beside those that ship.
        settings: of runs that are opened or started, by dotted name.
        budget: of all clients together.
        judge: the judging service.
        submissions: candidates that belong to no run.
        steps: steps of runs.
        searches: that this server has started.
    """

    location: str
    catalogue: Catalogue
    knowledge: list[str]
    settings: Mapping[str, Any]
    budget: Budget
    judge: LazyJudge
    submissions: Submissions
    steps: RunSteps
    searches: Searches


class _Tools:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def _state(self, run: str | None) -> RunState:
        """How far a run has come, with facts that only this server knows."""
        state = await asyncio.to_thread(records.run_state, self._parts.location, run)
        return self._logged(state).model_copy(update={"budget_left": self._budget_left()})

    def _logged(self, state: RunState) -> RunState:
        log = [one_line(line) for line in self._parts.searches.log(state.run)]
        return state.model_copy(update={"log": log})

    def _budget_left(self) -> dict[str, float | None]:
        return {kind: self._parts.budget.left(kind) for kind in MEANINGS}


class JudgingTools(_Tools):
    """Tasks and candidates."""

    @as_tool(READS)
    async def list_tasks(self) -> TaskList:
        """Names of the tasks that can be judged here."""
        return TaskList(tasks=self._parts.catalogue.names)

    @as_tool(READS)
    async def get_task(self, task: TaskName, size: Size = None) -> TaskText:
        """A task's reference module: the computation and its inputs."""
        catalogue = self._parts.catalogue
        found = catalogue.find(task, Setup(size=size))
        return TaskText(
            name=found.name,
            reference=found.source,
            size=found.size,
            precision=found.precision,
            accumulation=found.accumulation,
            revision=found.revision,
        )

    @as_tool(MAKES)
    async def submit(
        self,
        source: Source,
        task: TaskName | None = None,
        reference: Annotated[
            str | None, Field(description="Instead of a task: its module's text, if allowed here")
        ] = None,
        name: Annotated[
            JobId | None,
            Field(description="A name of yours: the same submission again is not judged twice"),
        ] = None,
        parent: Annotated[
            JobId | None, Field(description="Ticket of the candidate that this was made from")
        ] = None,
        baseline: Literal["eager", "eager_ieee", "eager_tf32", "compile"] = "eager",
        fidelity: Annotated[
            Literal["check", "screen", "reward"],
            Field(description="check: correctness only; screen: a few timings; reward: all of it"),
        ] = "reward",
        size: Size = None,
        wait_s: WaitS = 0,
    ) -> Verdict:
        """Have a candidate judged: compiled, checked on hidden inputs, timed beside the baseline.

        Returns its ticket at once; poll it with `verdict`. Costs one verdict of the budget.
        """
        found = await self._parts.submissions.submit(
            {
                "source": source,
                "task": task,
                "reference": reference,
                "id": name,
                "parent": parent,
                "baseline": baseline,
                "fidelity": fidelity,
                "size": size,
            }
        )
        if wait_s and found.state in ("waiting", "judging"):
            return await self._parts.submissions.verdict(found.ticket, wait_s)
        return found

    @as_tool(READS)
    async def verdict(self, ticket: TicketId, wait_s: WaitS = 20) -> Verdict:
        """Where a ticket of `submit` or `tell` stands; waits up to `wait_s` seconds for its end.

        While `state` is `waiting` or `judging`, call again: tickets survive restarts.
        """
        if ":" in ticket:
            return await self._parts.steps.verdict(ticket, wait_s)
        return await self._parts.submissions.verdict(ticket, wait_s)


class StepTools(_Tools):
    """A run that a client continues."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._opening = asyncio.Lock()  # Hydra composes one configuration at a time

    @as_tool(MAKES)
    async def open_run(
        self, task: TaskName, name: Name, search: Preset | None = None, evaluations: int = 100
    ) -> RunState:
        """A new run that you continue with `ask` and `tell`: its archive remembers all you try.

        `search` names a preset, whose operators write the requests (null: plain LLM operators).
        """
        catalogue = self._parts.catalogue
        given = {"task": catalogue.spec(task), "name": name, **self._parts.settings}
        given |= {f"store.{key}": value for key, value in place(self._parts.location).items()}
        given |= {"termination.evaluations": evaluations, "search": search}
        given |= {} if search else {"operators": "llm"}
        words = as_words({key: value for key, value in given.items() if value is not None})
        async with self._opening:
            await asyncio.to_thread(lambda: create(compose(words)))
        return await self._state(name)

    @as_tool(MAKES)
    async def ask(self, run: Run = None, operator: Name | None = None) -> Asked:
        """The next request of a run: task, parents with their evidence, notes, and instructions.

        Answer with `tell` in the form that the prompt asks for. Several may be out at a time.
        """
        return await self._parts.steps.ask(run, operator)

    @as_tool(MAKES)
    async def tell(
        self,
        ticket: Annotated[
            TicketId | None, Field(description="Of `ask`; with its key and your reply")
        ] = None,
        key: str = "",
        reply: str = "",
        run: Run = None,
        source: Annotated[
            str, Field(description="Instead of a reply: a program that was not asked for")
        ] = "",
        parents: Annotated[
            list[int], Field(description="Steps whose programs `source` was made from")
        ] = [],  # noqa: B006
        note: Annotated[str, Field(description="The idea of `source`, in a sentence")] = "",
    ) -> Accepted:
        """Hand in a reply to `ask`, or a program of your own, and have it judged in the run.

        Its verdict comes by `verdict`. Telling the same again changes nothing.
        """
        if (ticket is None) == (not source):
            raise UsageError("tell: give either ticket, key and reply, or source")
        if ticket is not None:
            return await self._parts.steps.reply(ticket, key, reply)
        return await self._parts.steps.offer(run, source, parents, note)


class SearchTools(_Tools):
    """Searches without the client."""

    @as_tool(READS)
    async def list_runs(self) -> Runs:
        """The newest runs of the database."""
        states = await asyncio.to_thread(records.run_states, self._parts.location)
        return Runs(runs=[*map(self._logged, states)], budget_left=self._budget_left())

    @as_tool(READS)
    async def run_status(self, run: Run = None) -> RunState:
        """How far a run has come, and the last lines of its search."""
        return await self._state(run)

    @as_tool(MAKES)
    async def start_run(
        self,
        name: Annotated[Name, Field(description="Of a new run; of one that is there to go on")],
        wall_time: Annotated[str, Field(pattern=r"^\d+(\.\d+)?[smhd]$", description="such as 10m")],
        task: Annotated[
            TaskName | None, Field(description="null: continue the run of that name")
        ] = None,
        evaluations: Annotated[int | None, Field(ge=1)] = None,
        usd: Annotated[float, Field(ge=0, description="For models; needed with `model`")] = 0.0,
        search: Preset | None = None,
        model: Annotated[
            Model | None, Field(description="provider/name; null: built-in operators alone")
        ] = None,
    ) -> RunState:
        """Search without you, in the background, within a budget that the server's must hold.

        Returns once the run has begun. `run_status` tells how far it is; `stop_run` ends it early.
        """
        spec = None if task is None else self._parts.catalogue.spec(task)
        asked = {"search": search, "llm.model": model}
        await self._parts.searches.start(name, spec, asked, wall_time, evaluations, usd)
        return await self._state(name)

    @as_tool(MAKES)
    async def steer_run(
        self,
        run: Name,
        change: Annotated[
            Literal["note", "pin", "ban", "release", "pause", "continue", "end"],
            Field(description="note: all prompts quote it; pin, ban, release: a parent"),
        ],
        value: Annotated[
            str, Field(description="Text of the note, or number of the step that made the parent")
        ] = "",
    ) -> Steered:
        """Change a search that this server started; it takes the change before its next step.

        `end` verifies the best program and finishes. Limits stay as they were at the start.
        """
        said = await self._parts.searches.steer(run, change, value)
        return Steered(run=run, stored=one_line(said))

    @as_tool(MAKES)
    async def stop_run(self, run: Name) -> RunState:
        """End a search that this server started; the run keeps all and can be continued."""
        await self._parts.searches.stop(run)
        return await self._state(run)
