"""Prompt composition, shared by all operators with a prompt.

A prompt is a system message and one user message of sections in a fixed order, the most constant
first (endpoints cache equal beginnings), notes last. Sections are filled by priority within the
token budget:

    0  task, contract, device, baseline and ceiling, the parents with their verdicts, the job, the
       direction, the form of the answer, the user's note
    1  steps from this program that failed, or were no faster
    2  findings of finished runs, and a summary of the run so far
    3  knowledge that fits the diagnosis
    4  the memory: how the parent came to be, or the results of its siblings
    5  the best programs of the archive
    6  programs unlike the parent

Only the first are required; where they do not fit, the operator declines.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from evolve.core.devices import device_kind_of
from evolve.core.evaluation import Evaluation, Status
from evolve.core.model import CallStatus, Exchange, Message, ModelRequest, Sampling
from evolve.core.protocols import Attempt, Context, Declined
from evolve.core.source.tokens import estimate_tokens
from evolve.languages.registry import default_languages, find_language, languages, timed_on
from evolve.languages.torch import TORCH
from operators.base import Base, Instance
from operators.checks import check_choice, check_number, check_whole
from operators.knowledge import PRODUCTS, Diagnosis, Knowledge, operation_of
from operators.prompting.budget import PromptTooLong, Section, fit
from operators.prompting.ceiling import ceilings, judged_best, operation_lines, rates_of
from operators.prompting.devices import device_facts
from operators.prompting.diagnosis import device_of, diagnose
from operators.prompting.directions import direction, directions_for, taken
from operators.prompting.excerpts import differing
from operators.prompting.inspirations import best_others, failures_of, siblings, unlike
from operators.prompting.micro_tools import findings
from operators.prompting.precision import LONGEST, Rule
from operators.prompting.prompt_context import (
    Exhibit,
    attempt_text,
    baseline_name,
    exhibit,
    recalled_text,
)
from operators.prompting.replies import without_thought
from operators.prompting.shapes import dimensions, varying
from operators.prompting.templates import render_prompt
from operators.quoting import Quoted, quote, visible

ANSWER_TOKENS = 16_000
"""Left to the answer where neither the request nor the model's card bounds it."""

INSTANCES = 4096
"""Combinations of open constants that a new program is asked to keep to."""

SUMMARY = "summarise"
"""Purpose of calls for a summary, and name of the operator whose summaries all prompts quote."""

SUPERVISOR = "supervise"
"""Name of the operator whose advice all prompts quote, where it is newer than a summary."""

_SUMMARIES = 4  # newest ones, of which some may be empty
_REQUESTS = 64  # newest ones, of which some may be unanswered


class Memory(StrEnum):
    """How a prompt tells of the past (the four modes of KernelEvolve, arXiv 2512.23236)."""

    INHERIT = "inherit"  # how the parent came to be
    SIBLINGS = "siblings"  # other children of the parent's own parent
    BOTH = "both"
    CLEAN = "clean"  # nothing: neither that, nor failures, summaries and other programs


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompted:
    """Settings that all operators with prompts share, and the composition of their prompts.

    Args:
        language: of programs: `triton`, `cuda`, `cpp`, or `auto` for the parent's
            and without a parent what the device runs best.
        prompt_tokens: the most that a prompt takes, with its system message, by an estimate from
            above.
        usual_tokens: up to where a prompt is filled with optional parts: notes, other
            programs, the past.
        top: how many of the best other programs it shows: of the parent's island, if there are any.
        top_everywhere: whether these are of all islands.
        diverse: how many that are unlike the parent.
        failures: how many attempts that are not to be repeated.
        history: how many steps of the parent's past, or of its siblings.
        knowledge: documents that a diagnosis retrieves from; None for none.
        directions: whether a prompt that leaves open what to change names a direction, by turns.
        tools: whether it says what `operators.prompting.micro_tools` find for the parent's limit.
        samples: answers to one prompt; each becomes a ticket.
        mends: how often a model may correct an answer that holds no usable program.
        temperature, top_p: of the sampling; None leaves them to the model's configuration.
        prompts: folder of templates that stand in for those that ship.

    Raises:
        UsageError: a setting is out of range.
    """

    language: str = "auto"
    prompt_tokens: int = 24_000
    usual_tokens: int = 8_600
    top: int = 2
    top_everywhere: bool = False
    diverse: int = 1
    failures: int = 4
    history: int = 5
    knowledge: Knowledge | None = None
    directions: bool = True
    tools: bool = False
    samples: int = 1
    mends: int = 1
    temperature: float | None = None
    top_p: float | None = None
    prompts: str = ""

    def __post_init__(self) -> None:
        check_choice("operators.*.language", self.language, ("auto", *languages()))
        for name, least in _MIN_TOKENS.items():
            check_whole(f"operators.*.{name}", getattr(self, name), least=least)
        if self.temperature is not None:
            check_number("operators.*.temperature", self.temperature, least=0)
        if self.top_p is not None:
            check_number("operators.*.top_p", self.top_p, least=0, most=1)

    @property
    def parents(self) -> int:
        return 1

    @property
    def roles(self) -> tuple[str, ...]:
        """Models or roles that requests name, besides the model of the ticket."""
        return ()

    def text(self, template: str, **values: Any) -> Quoted:
        """A template of this operator's prompts."""
        return render_prompt(template, self.prompts, **values)

    def ask(
        self,
        context: Context,
        job: Quoted,
        *,
        base: Base,
        answer: Quoted | None = None,
        heading: str = "The program to change",
        memory: Memory = Memory.INHERIT,
        diagnosis: Diagnosis | None = None,
        lessons: str | None = None,
        directed: bool = True,
        extra: Sequence[Section] = (),
        purpose: str = "propose",
        model: str | None = None,
        memo: dict[str, Any] | None = None,
    ) -> ModelRequest | Declined:
        """The request for a child.

        Args:
            context: the recorded state of the run.
            job: the task of this step, in words.
            base: the programs to work on, the one to change first; none for a first version.
            answer: the form of the answer; None for a whole program.
            heading: over the programs to work on.
            memory: the part about the past.
            diagnosis: the key to retrieve knowledge by; None for that of the facts.
            lessons: a summary of the search; None for the newest one of the run.
            directed: whether the job leaves open what to change, so that a direction helps.
            extra: sections of the operator's own, in front of the job.
            purpose: for the accounts.
            model: who is to answer; None for the model of the ticket.
            memo: data that the operator needs again.
        """
        shown = [exhibit(context, *program) for program in base.programs]
        language = self.language_for(context, shown)
        tried = () if memory is Memory.CLEAN else failures_of(context, base, self.failures)
        found = diagnosis or diagnose(context, language, shown, tried)
        sections = [
            *self._frame(context, language, memory),
            *self._recalled(context, language, memory),
            *self._past(context, base, shown, memory, tried, lessons),
            self._parents(heading, shown),
            *(self._findings(shown, found) if self.tools else []),
            *extra,
            Section(name="job", head=job),
            *(self._direction(context, base, found) if directed and is_open(shown) else []),
            Section(
                name="answer",
                head=answer
                or self.text(
                    "answer_program", kernels=find_language(language).title if language else ""
                ),
            ),
            *self._knowledge(found),
        ]
        kept = base.memo() | (memo or {})
        return self.request(context, sections, purpose=purpose, model=model, memo=kept)

    def request(
        self,
        context: Context,
        sections: Sequence[Section],
        *,
        purpose: str,
        memo: dict[str, Any],
        model: str | None = None,
    ) -> ModelRequest | Declined:
        """A request of sections, cut to the budget."""
        system = self.text("system")
        sections = [*sections, *self._note(context)]
        try:
            used = estimate_tokens(system)
            kept = fit(sections, self.room(context) - used, usual=self.usual_tokens - used)
        except PromptTooLong as error:
            return Declined(f"{error}; set operators.*.prompt_tokens higher")
        user = "\n\n".join(section.text for section in kept)
        return ModelRequest(
            messages=(Message("system", system), Message("user", user)),
            model=model,
            samples=self.samples,
            sampling=Sampling(temperature=self.temperature, top_p=self.top_p),
            purpose=purpose,
            memo=memo,
        )

    def _note(self, context: Context) -> list[Section]:
        """What the user says to models: an instruction, so that it stands outside of quotes."""
        if not context.note:
            return []
        return [Section(name="note", head=self.text("note", note=Quoted(visible(context.note))))]

    def language_for(self, context: Context, shown: Sequence[Exhibit]) -> str:
        """The language of the child; empty if that is open."""
        if self.language != "auto":
            return self.language
        for parent in shown:
            if parent.language != TORCH.name:
                return parent.language
        if not device_of(context):
            return ""
        kind = device_kind_of(context.device["device_class"])
        return timed_on(kind)[0].name

    def last_request(self, context: Context, purpose: str) -> ModelRequest | None:
        """This operator's newest request for a purpose, with any outcome."""
        return next(iter(context.facts.requests(context.operator, purpose, 1)), None)

    def asked_about(self, context: Context, purpose: str = "propose") -> list[Instance]:
        """The changes that this operator's newest requests for a purpose asked for.

        Those that no model has answered yet too: of calls that run side by side, each is to be
        about something else.
        """
        asked = context.facts.requests(context.operator, purpose, _REQUESTS)
        return [instance for each in asked for instance in Base.of_request(each).programs[:1]]

    def room(self, context: Context, prompts: int = 1) -> int:
        """Tokens for as many prompts' worth of messages, as far as the model's context allows.

        An answer needs as much of it as the model may say, but half of it is enough.
        """
        card, most = context.model, prompts * self.prompt_tokens
        if card is None or card.context_tokens is None:
            return most
        answer = min(card.output_tokens or ANSWER_TOKENS, card.context_tokens // 2)
        return min(most, card.context_tokens - answer)

    def _frame(self, context: Context, language: str, memory: Memory) -> list[Section]:
        """The part that is the same for every prompt of a run."""
        best = judged_best(context)
        facts = device_facts(context.device, rates_of(best, context.reference))
        said = baseline_name(context.baseline)
        tells = memory is not Memory.CLEAN
        lines = ceilings(best, context.baseline, said, context.reference, tells_best=tells)
        case, operations = operation_lines(context.reference)
        ceiling = self.text("ceiling", lines=lines, case=case, operations=operations)
        return [
            Section(name="task", head=self.task_text(context)),
            Section(name="contract", head=self._rules(context, language, best)),
            Section(name="device", head=self.text("device", facts=facts)),
            *([Section(name="ceiling", head=ceiling)] if lines else []),
        ]

    def task_text(self, context: Context) -> Quoted:
        """The reference, and the shapes that it is judged in."""
        task = context.task
        return self.text(
            "task",
            task=task,
            source=quote(task.source, "task"),
            dimensions=dimensions(task),
            varying=varying(task),
        )

    def _rules(self, context: Context, language: str, judged: Evaluation | None) -> Quoted:
        """The requirements on a program, with the task's own numbers; `judged` is any verdict."""
        task, device = context.task, context.device
        operation, cost = operation_of(task.category, task.source), context.reference
        asked = (find_language(language),) if language else default_languages()
        return self.text(
            "contract",
            languages=asked,
            contracts=[Quoted(one.contract) for one in asked],
            for_gpus=any(one.is_for_gpus for one in asked),
            task=task,
            tunes=context.tunes,
            instances=INSTANCES,
            rule=Rule.of(task, judged, cost.longest_sum if cost else 0),
            longest=LONGEST,
            multiplies=operation in ("", *PRODUCTS),
            coarse=operation == "convolution" and device.get("eager_convolutions") == "tf32",
        )

    def _direction(self, context: Context, base: Base, found: Diagnosis) -> list[Section]:
        """The direction of this answer, and those of the others."""
        if not self.directions:
            return []
        text = self.text(
            "direction",
            several=self.samples > 1,
            direction=direction(context, found),
            directions=directions_for(found),
            taken=taken(context, base),
        )
        return [Section(name="direction", head=text)]

    def _findings(self, shown: Sequence[Exhibit], diagnosis: Diagnosis) -> list[Section]:
        """What the tools that go with the limit of the program to change find in its verdict."""
        said = findings(shown[0].evaluation, diagnosis) if shown else []
        head = self.text("findings", limit=diagnosis.bottleneck)
        items = tuple(f"- {text}" for text in said)
        return [Section(name="findings", head=head, items=items, priority=1)] if items else []

    def _knowledge(self, diagnosis: Diagnosis) -> list[Section]:
        if self.knowledge is None:
            return []
        found = self.knowledge.retrieve(diagnosis)
        items = tuple(quote(excerpt.text.strip(), "note") for excerpt in found)
        head = self.text("knowledge", diagnosis=diagnosis)
        return [Section(name="knowledge", head=head, items=items, priority=3)]

    def _recalled(self, context: Context, language: str, memory: Memory) -> list[Section]:
        """The findings of finished runs about programs of the language."""
        if memory is Memory.CLEAN:
            return []
        found = [
            each for each in context.recalled if not language or each.language in ("", language)
        ]
        return self.listed("recalled", 2, [recalled_text(each) for each in found])

    def _past(
        self,
        context: Context,
        base: Base,
        shown: Sequence[Exhibit],
        memory: Memory,
        tried: Sequence[Attempt],
        lessons: str | None,
    ) -> list[Section]:
        if memory is Memory.CLEAN:
            return []
        known = last_summary(context)[0] if lessons is None else lessons
        mine = shown[0].speedup if shown else None
        elites = context.elites if self.top_everywhere else context.peers
        others = best_others(elites, base, self.top)
        far = unlike(context, base, others, self.diverse)
        return [
            *self.listed("lessons", 2, [quote(known, "summary")] if known else []),
            *self.memory_of(context, base, memory),
            *self.listed("top", 5, self._beside(shown, [exhibit(context, *p) for p in others])),
            *self.listed("diverse", 6, self._beside(shown, [exhibit(context, *p) for p in far])),
            *self.listed("failures", 1, [attempt_text(a, context.baseline, mine) for a in tried]),
        ]

    def memory_of(self, context: Context, base: Base, memory: Memory) -> list[Section]:
        """How the program to change came to be, or the results of its siblings."""
        if not base.programs:
            return []
        found: list[Section] = []
        if memory in (Memory.INHERIT, Memory.BOTH):
            past = context.facts.ancestors(base.digest, self.history)
            told = [replace(a, feedback="") if a.program == base.digest else a for a in past]
            texts = [attempt_text(attempt, context.baseline) for attempt in told]
            found += self.listed("trajectory", 4, texts[::-1])
        if memory in (Memory.SIBLINGS, Memory.BOTH):
            near = siblings(context, base, self.history)
            texts = [attempt_text(attempt, context.baseline) for attempt in near]
            found += self.listed("siblings", 4, texts)
        return found

    def listed(self, name: str, priority: int, items: Sequence[str]) -> list[Section]:
        """A section whose heading is the template of its name; none without items."""
        if not items:
            return []
        return [Section(name=name, head=self.text(name), items=tuple(items), priority=priority)]

    def _parents(self, heading: str, shown: Sequence[Exhibit]) -> Section:
        head = f"# {heading if shown else 'There is no program with kernels of its own yet'}"
        items = [*map(self._program, shown[:1]), *self._beside(shown[:1], shown[1:])]
        return Section(name="parents", head=head, items=tuple(items))

    def _beside(self, shown: Sequence[Exhibit], others: Sequence[Exhibit]) -> list[Quoted]:
        """Programs beside the one that is shown in full: of each the lines that differ."""
        if not shown:
            return [self._program(other) for other in others]
        first = shown[0]
        cut = [replace(o, source=differing(o.source, first.source, first.name)) for o in others]
        return [self._program(other) for other in cut]

    def _program(self, shown: Exhibit) -> Quoted:
        return self.text("program", program=shown)


_MIN_TOKENS = {
    "prompt_tokens": 1000,
    "usual_tokens": 0,
    "top": 0,
    "diverse": 0,
    "failures": 0,
    "history": 0,
    "samples": 1,
    "mends": 0,
}


def is_open(shown: Sequence[Exhibit]) -> bool:
    """Whether a program may be changed anywhere: one that fails has to be put right first."""
    evaluation = shown[0].evaluation if shown else None
    return evaluation is None or evaluation.status is Status.CORRECT


def last_summary(context: Context, operator: str = "") -> tuple[str, int]:
    """The newest summary that says something, and the ticket number up to which it goes.

    Args:
        context: the recorded state of the run.
        operator: whose summaries; empty for those that all prompts quote.
    """
    found = [
        (reach_of(exchange.request), summary)
        for name in ([operator] if operator else [SUMMARY, SUPERVISOR])
        for exchange in context.facts.exchanges(name, SUMMARY, _SUMMARIES)
        if (summary := summary_of(exchange))
    ]
    upto, summary = max(found, default=(0, ""), key=lambda each: each[0])
    return summary, upto


def reach_of(asked: ModelRequest | None) -> int:
    """The ticket number up to which a summary goes; 0 without one."""
    return int(asked.memo["upto"]) if asked else 0


def step_of(asked: ModelRequest | None) -> int:
    """The step of the run in which a summary was asked for; 0 without one."""
    return int(asked.memo.get("step", asked.memo["upto"])) if asked else 0


def summary_of(exchange: Exchange) -> str:
    """The text of a summary; nothing if it was cut."""
    cut = exchange.reply.status is CallStatus.TRUNCATED
    return "" if cut else without_thought(exchange.reply.text).strip()
