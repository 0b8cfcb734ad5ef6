"""A coding agent as a model: it answers a request after it has tried programs by itself."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from evolve.app.agent.episode import Tries, judge_for, require_confinement, work
from evolve.app.agent.presets import preset_of
from evolve.core.errors import ModelUnavailable, UsageError
from evolve.core.model import (
    CallStatus,
    ModelCard,
    ModelReply,
    ModelRequest,
    Reservation,
    conversation,
)
from evolve.core.protocols import LiveJudge
from evolve.llm.faults import one_line
from evolve.llm.programs.command import last_line
from evolve.llm.programs.printed import read_printed
from evolve.llm.programs.process import Ended
from evolve.llm.programs.program_model import ProgramModel, require_one
from evolve.llm.programs.turns import MAX_TRANSCRIPT_CHARS, last_part
from evolve.llm.secrets import scrub
from operators.base import Base

TOKENS = 2_000_000  # reserved for an episode: an agent reads its own history again and again

LIMITS = """
You have {verdicts} verdicts and {minutes:.0f} minutes. `task.py` in the working folder is the \
task{parent}. Each program that you submit becomes a step of the search.
"""


class AgentModel(ProgramModel):
    """A headless coding agent.

    Programs that it submits on its way are steps of the run (`evolve.core.protocols.LiveJudge`).
    Its output is kept as the reasoning of its reply, without what looks like a key.

    Args:
        name: by which requests ask for it.
        command: the program and arguments, as one text without a shell: `claude -p`.
        verdicts: how many programs an episode may have judged.
        deadline_s: seconds for an episode.
        usd: limit of cost of an episode, for agents that keep to one; None for none.
        slots: episodes at once.
        environment: variables that it gets besides `PATH`, `HOME` and the like.
        read: further paths that it may read.
        knowledge: folders of documents that it finds, beside those that ship.
        weight: its share among the models.

    Raises:
        UsageError: a value that cannot be.
    """

    group = "agent"

    def __init__(
        self,
        *,
        name: str,
        command: str,
        verdicts: int,
        deadline_s: float,
        usd: float | None,
        slots: int,
        environment: Sequence[str],
        read: Sequence[str],
        knowledge: Sequence[str],
        weight: float,
    ) -> None:
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise UsageError(f"agent.command={command}: {error}") from error
        if not words:
            raise UsageError("agent.command is empty; give e.g. agent.command='claude -p'")
        require_one("verdicts", verdicts, self.group)
        if usd is not None and not (usd > 0 and preset_of(words[0]).limits_cost):
            raise UsageError(
                f"agent.usd={usd:g}: {words[0]} keeps to no limit of cost above 0; leave it "
                "out, and limit agent.verdicts and agent.deadline"
            )
        card = ModelCard(name=name, weight=weight, priced=usd is not None, slots=slots)
        super().__init__(words, card, slots)
        self._verdicts = verdicts
        self._deadline_s = deadline_s
        self._usd = usd
        self._environment = list(environment)
        self._read = list(read)
        self._knowledge = list(knowledge)
        self._judge: LiveJudge | None = None

    def judged_by(self, judge: LiveJudge) -> None:
        """See `evolve.core.protocols.TriesPrograms`."""
        self._judge = judge

    def reserve(self, request: ModelRequest) -> Reservation:
        return Reservation(tokens=TOKENS, usd=self._usd)

    def require_program(self) -> None:
        """Raise UsageError if the program is not there, or cannot be confined."""
        super().require_program()
        require_confinement()

    def require_ready(self) -> None:
        super().require_ready()
        if self._judge is None:
            raise UsageError(f"{self.card.name}: an agent answers only while a search runs")

    async def answer(self, request: ModelRequest, folder: Path) -> ModelReply:
        judge = self._judge
        assert judge is not None
        parents = Base.of_request(request).digests if request.memo else ()
        (folder / "task.py").write_text(judge.task.source)
        if parents:
            (folder / "parent.py").write_text(judge.source(parents[0]))
        tries = Tries(judge, parents, self._verdicts)
        limits = LIMITS.format(
            verdicts=self._verdicts,
            minutes=self._deadline_s / 60,
            parent=", `parent.py` the program to change" if parents else "",
        )
        async with judge_for(tries, folder, self._usd, self._knowledge) as workspace:
            ended = await work(
                self.command,
                conversation(request) + limits,
                workspace,
                environment=self._environment,
                read=self._read,
                deadline_s=self._deadline_s,
            )
        return self._reply(ended, tries)

    def _reply(self, ended: Ended, tries: Tries) -> ModelReply:
        """The reply that an episode is.

        Raises:
            ModelUnavailable: the agent failed before it tried anything: it is not logged in, or its
                provider is down.
        """
        output = ended.output.decode(errors="replace").replace("\x00", "")
        printed, name = read_printed(output), self.card.name
        text = scrub(printed.text)[-MAX_TRANSCRIPT_CHARS:]
        said = ended.fault or printed.error
        if ended.status:
            said = said or f"exit status {ended.status}: {last_line(ended.errors or ended.output)}"
        said = one_line(scrub(said))
        if said and not ended.fault and not tries.steps and not printed.is_billed:
            raise ModelUnavailable(f"{name}: {said}")
        tried = f"{name} tried {len(tries.steps)} of {tries.verdicts} programs"
        status = CallStatus.COMPLETED if text.strip() else CallStatus.EMPTY
        return ModelReply(
            status=CallStatus.UNKNOWN if ended.fault else status,
            text="" if ended.fault else text,
            reasoning=last_part(scrub(output)),
            usage=printed.usage,
            cost_usd=printed.cost_usd,
            model=printed.model or name,
            error=f"{tried}; {said}" if said else "",
        )
