"""A search told by hand: every step is stored through the store's own doors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evolve.core.evaluation import CaseResult, Evaluation, Fidelity, Label, Stage, Status
from evolve.core.lineage import OPPONENT, VERIFY
from evolve.core.measurement import Interval, Ratio
from evolve.core.model import (
    CallStatus,
    Message,
    ModelReply,
    ModelRequest,
    ReplyStatus,
    TokenTrace,
    Usage,
)
from evolve.core.program import Program
from evolve.core.protocols import AddStatus, Failed, Offer, Proposal
from evolve.core.recalled import Recalled
from evolve.core.task import Task
from evolve.store import RunRow, Store
from operators.quoting import quote

TASK = Task(name="rows", source="class Model: pass\n", category="reduction")
EAGER_MS = 6.0


def source(name: str) -> str:
    return (
        f'BLOCK = 1\nTUNABLE = {{"BLOCK": (1, 2, 4)}}\n\n\nclass ModelNew:\n    name = "{name}"\n'
    )


def ratio(value: float, spread: float = 0.01) -> Ratio:
    return Ratio(value, value * (1 - spread), value * (1 + spread))


def verdict(
    speedup: float | Ratio | None = None,
    status: Status = Status.CORRECT,
    *,
    compiled: float | None = None,
    custom: bool | None = True,
    stage: Stage | None = None,
    fidelity: Fidelity = Fidelity.SEARCH,
    labels: Sequence[str] = (),
    descriptors: Mapping[str, Any] | None = None,
    samples: Mapping[str, Any] | None = None,
    task: Task = TASK,
    **others: Any,
) -> Evaluation:
    """A verdict; `speedup` and `compiled` are ratios against eager and torch.compile."""
    found = {"eager": speedup, "compile": compiled}
    ratios = {
        name: one if isinstance(one, Ratio) else ratio(one)
        for name, one in found.items()
        if one is not None
    }
    if stage is None:
        stage = Stage.TIMING if status is Status.CORRECT else Stage.SMOKE
    return Evaluation(
        status=status,
        stage=stage,
        fidelity=fidelity,
        task_revision=task.revision,
        device_class="cpu-test",
        evaluator_version="7",
        ratios=ratios,
        cases=tuple(_case(one) for name, one in ratios.items() if name == "eager"),
        custom=custom if status in (Status.CORRECT, Status.TIMING_UNBOUNDED) else None,
        labels=tuple(Label(name, "line 1") for name in labels),
        feedback=f"the judge says {status}",
        descriptors=descriptors or {},
        environment={"torch": "2.13"},
        samples=samples or {},
        **others,
    )


def _asked(shows: Sequence[str], job: str, form: str) -> str:
    """A prompt as the operators compose it: material, what is to be done, and in what form."""
    shown = (
        f"program {Searched.digest(one)[:8]}:\n\n{quote(source(one), 'program')}" for one in shows
    )
    material = "\n\n".join(("# The programs", *shown))
    return f"# Task\n\nRows.\n\n{material}\n\n# Your job\n\n{job}\n\n# Your answer\n\n{form}"


def _case(found: Ratio) -> CaseResult:
    own = EAGER_MS / found.value
    return CaseResult(
        name="large",
        weight=1.0,
        timed=True,
        passed=True,
        times_ms={
            "eager": Interval(EAGER_MS, EAGER_MS, EAGER_MS),
            "candidate": Interval(own, EAGER_MS / found.high, EAGER_MS / found.low),
        },
        ratios={"eager": found},
    )


@dataclass
class Searched:
    """Tells a run step by step. Programs have short names; `digest(name)` is their identity."""

    store: Store
    name: str = "first"
    task: Task = TASK
    warm_start: str | None = None
    recalled: Sequence[Recalled] = ()
    run: RunRow = field(init=False)
    _coded: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        told = [one.to_json() for one in self.recalled]
        config = {"baseline": "eager", "warm_start": self.warm_start, "recalled": told}
        self.run = self.store.create_run(name=self.name, task=self.task, config=config, seed=1)

    @staticmethod
    def digest(name: str) -> str:
        return Program(source(name)).digest

    def _known(self, name: str) -> str:
        return self._coded.get(name, self.digest(name))

    def built_in(
        self,
        name: str,
        judged: Evaluation | None,
        parents: Sequence[str] = (),
        *,
        operator: str = "seed",
        **proposal: Any,
    ) -> None:
        """A step that no model was asked for."""
        used = tuple(map(self._known, parents))
        made = Proposal(program=Program(source(name)), parents=used, **proposal)
        self._tell(self.store.propose(self.store.ask(self.run.id, operator, used), made), judged)

    def model(
        self,
        name: str | None,
        judged: Evaluation | None = None,
        parents: Sequence[str] = (),
        *,
        shows: Sequence[str] = (),
        operator: str = "write",
        asked: str = "m",
        reading: ReplyStatus = ReplyStatus.PROGRAM,
        failure: str = "",
        used: Sequence[str] = (),
        reply: str | None = None,
        trace: TokenTrace | None = None,
        status: CallStatus = CallStatus.COMPLETED,
        note: str = "",
        job: str = "Be faster.",
        form: str = "One fenced module.",
        mended: str | None = None,
        code: str | None = None,
        reasoning: str = "",
    ) -> None:
        """A step that a model's reply decided; without a name, a failure, of programs `used`.

        `mended` is a first answer that could not be used; the reply is then that to a second round.
        `code` stands in for the program of that name.
        """
        mine, used = tuple(map(self._known, used)), tuple(map(self._known, parents))
        said = (Message("system", "You write kernels."), Message("user", _asked(shows, job, form)))
        request = ModelRequest(messages=said, model=asked)
        [ticket] = self.store.request(self.run.id, operator, used, request, asked)
        if mended is not None:
            ticket = self.store.answer(ticket, ModelReply(status=CallStatus.COMPLETED, text=mended))
            wrong = (*said, Message("assistant", mended), Message("user", "It cannot be used."))
            again = ModelRequest(messages=wrong, model=asked, purpose="repair")
            ticket = self.store.propose(ticket, again, ReplyStatus.NO_CODE)
        text = f"Here is {name}.\n```python\n{source(name or '')}```" if reply is None else reply
        answer = ModelReply(
            status=status, text=text, usage=Usage(prompt=30, completion=40), cost_usd=0.01,
            trace=trace, reasoning=reasoning,
        )  # fmt: skip
        ticket = self.store.answer(ticket, answer)
        if name is None:
            self.store.propose(ticket, Failed(failure, mine), reading)
            return
        program = Program(source(name) if code is None else code)
        self._coded[name] = program.digest
        made = Proposal(program=program, parents=used, note=note or f"try {name}")
        self._tell(self.store.propose(ticket, made, reading), judged)

    def verify(self, name: str, judged: Evaluation, **proposal: Any) -> None:
        """Another measurement of what the run holds."""
        self.built_in(name, judged, (name,), operator=VERIFY, fidelity=Fidelity.VERIFY, **proposal)

    def opponent(self, judged: Evaluation) -> None:
        """The user's own baseline is judged."""
        self.built_in("mine", judged, operator=OPPONENT)

    def _tell(self, ticket: Any, judged: Evaluation | None) -> None:
        if judged is None:
            return
        ticket = self.store.evaluated(ticket, judged)
        is_offered = ticket.operator != OPPONENT and judged.fidelity is Fidelity.SEARCH
        elite = self.store.standing(self.run.id, ticket) if is_offered else None
        self.store.tell(ticket, elite, elite and Offer(AddStatus.NEW, elite.program))


def story(search: Searched) -> None:
    """Twenty steps with every kind of trouble; tests/trajectories/test_recipes.py counts them."""
    search.built_in("A", verdict(1.0))  # 0
    search.model("B", verdict(1.5), "A", shows="A")
    search.model("C", verdict(status=Status.WRONG_VALUE), "A", shows="A")
    search.model("D", verdict(status=Status.HACK), "A", shows="A")
    search.model(None, None, "A", failure="duplicate: this run holds the same instance already")
    search.model("E", verdict(1.505), "A", shows="A")  # 5: as fast as B
    search.model("F", verdict(1.4, custom=False), "A", shows="A")
    search.model("G", verdict(3.0), "B", shows="B")
    search.model("H", verdict(2.0), "B", shows="BG")  # its prompt shows a faster program
    search.model("I", verdict(4.0), "H", shows="HG")
    search.built_in("I", verdict(4.2), "I", operator="tune", assignment={"BLOCK": 2})  # 10
    search.verify("I", verdict(4.1, fidelity=Fidelity.VERIFY), assignment={"BLOCK": 2})
    search.model("J", verdict(1.2), "C", shows="C", operator="repair")
    search.model("K", verdict(status=Status.TIMING_UNBOUNDED), "B", shows="B")
    search.model("L", verdict(status=Status.INFRA), "B", shows="B")
    search.model(None, None, "B", failure="no_code", reading=ReplyStatus.NO_CODE)  # 15
    search.model("M", verdict(1.0), "I", shows="I")
    search.model("N", verdict(2.5), "B", shows="B")
    search.verify("N", verdict(status=Status.WRONG_VALUE, fidelity=Fidelity.VERIFY))
    search.opponent(verdict(1.1))  # 19
