"""The formats of trainers: columns, and how a row of a view fills them.

The shapes were read in the trainers' sources: TRL 1.x (`docs/source/dataset_formats.md`), verl
(`verl/utils/dataset/rl_dataset.py`, `multiturn_sft_dataset.py`), OpenRLHF (`openrlhf/datasets`),
slime (`slime/utils/data.py`, `mask_utils.py`), LLaMA-Factory (`data/README.md`), Axolotl
(`docs/rlhf.qmd`, `docs/dataset-formats/conversation.qmd`, `prompt_strategies/dpo/`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from evolve.core.digest import canonical_json
from evolve.core.errors import UsageError
from evolve.core.model import Message, TokenTrace
from evolve.core.protocols import BASELINES
from evolve.trajectories.exporters.columns import (
    FLAG,
    MESSAGE,
    MESSAGES,
    NUMBER,
    TEXT,
    TRACE,
    WHOLE,
    Columns,
)
from evolve.trajectories.views.rows import Conversation, Example, Group, Preference, PromptOnly, Row

SCORE = "score"
SOURCE = "evolve"  # `data_source` of verl, `datasource` of OpenRLHF: selects rewards


class Kind(StrEnum):
    """The use of the rows of a view."""

    SUPERVISED = "supervised"
    LABELLED = "labelled"
    PREFERENCE = "preference"
    PROMPT = "prompt"
    CONVERSATION = "conversation"
    GROUP = "group"


def kind_of(row: Row) -> Kind:
    """The kind of a row; one view has rows of one kind."""
    match row:
        case Example(label=None):
            return Kind.SUPERVISED
        case Example():
            return Kind.LABELLED
        case Preference():
            return Kind.PREFERENCE
        case PromptOnly():
            return Kind.PROMPT
        case Conversation():
            return Kind.CONVERSATION
        case Group():
            return Kind.GROUP
    raise TypeError(f"no kind of row: {type(row).__name__}")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row goes: its split, its number in it, and the family of tasks that it is of."""

    split: str
    index: int
    family: str


Fill = Callable[[Any, Place], Mapping[str, Any]]


def _as_it_is(row: Row) -> Iterable[Row]:
    return (row,)


@dataclass(frozen=True, slots=True)
class Shape:
    """Columns, and the functions that make a trainer's rows.

    `parts` says which rows stand for one of a view: none if the trainer would learn from unwanted
    text. `fill` gives the columns of each from the row and its place.
    """

    columns: Columns
    fill: Fill
    parts: Callable[[Row], Iterable[Row]] = _as_it_is

    def unscored(self) -> "Shape":
        """The same without the column `score`, for rows that have none."""
        if SCORE not in self.columns:
            return self
        columns = {name: kind for name, kind in self.columns.items() if name != SCORE}

        def fill(row: Row, place: Place) -> Mapping[str, Any]:
            return {name: self.fill(row, place)[name] for name in columns}

        return replace(self, columns=columns, fill=fill)


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A trainer's format: a shape for every kind of row that it takes."""

    name: str
    shapes: Mapping[Kind, Shape]
    parquet: bool = False

    def shape(self, kind: Kind) -> Shape:
        """Raises UsageError if the trainer does not take rows of this kind."""
        if kind not in self.shapes:
            others = ", ".join(name for name, one in FORMATS.items() if kind in one.shapes)
            raise UsageError(f"--to {self.name} takes no {kind} rows; {others} do")
        return self.shapes[kind]


def find_format(name: str) -> Format:
    """The format of this name. Raises UsageError if there is none."""
    if name not in FORMATS:
        raise UsageError(f"--to {name}: no such format; there are {', '.join(FORMATS)}")
    return FORMATS[name]


_ORIGIN: Columns = {"step_id": TEXT, "task": TEXT}


def _origin(row: Row) -> dict[str, str]:
    return {"step_id": row.step.id, "task": row.step.task.name}


def messages_of(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Messages as plain data, in the order of the columns."""
    return [{"role": one.role, "content": one.content} for one in messages]


def _answer(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def aim(row: PromptOnly) -> dict[str, str]:
    """The task of answers to a prompt, in the fields of `POST /v1/jobs` of `evolve serve`.

    `parent_source` is empty if the prompt goes on from no program.
    """
    task, baseline, parent = row.step.task, row.step.baseline, row.step.parent
    return {
        "reference": task.source,
        "size": task.size,
        "precision": task.precision,
        "accumulation": task.accumulation,
        "baseline": baseline if baseline in BASELINES else "eager",  # a file is known here only
        "parent_source": "" if parent is None else parent.code,
    }


def _aim_json(row: PromptOnly) -> str:
    return canonical_json({name: value for name, value in aim(row).items() if value})


def _shape(columns: Columns, fill: Callable[[Any, Place], Mapping[str, Any]]) -> Shape:
    """A shape whose rows also say where they come from."""
    return Shape({**columns, **_ORIGIN}, lambda row, place: {**fill(row, place), **_origin(row)})


def _whole(row: Any) -> list[dict[str, str]]:
    """A row as one conversation."""
    if isinstance(row, Conversation):
        return messages_of(row.messages)
    return [*messages_of(row.prompt), _answer(row.completion)]


def _pair(row: Preference, _: Place) -> dict[str, Any]:
    return {
        "prompt": messages_of(row.prompt),
        "chosen": [_answer(row.chosen)],
        "rejected": [_answer(row.rejected)],
    }


def _example(row: Example, _: Place) -> dict[str, Any]:
    return {
        "prompt": messages_of(row.prompt),
        "completion": [_answer(row.completion)],
        "score": row.score,
    }


def _traced(row: Example, _: Place) -> dict[str, Any]:
    """For custom scripts: the inputs of mismatch rejection sampling; empty if not stored."""
    trace = row.trace or TokenTrace()
    return {
        "messages": _whole(row),
        "trace": {
            "prompt_ids": list(trace.prompt_ids),
            "ids": list(trace.ids),
            "logprobs": list(trace.logprobs),
        },
    }


def _group(row: Group, _: Place) -> dict[str, Any]:
    return {
        "prompt": messages_of(row.prompt),
        "completions": [_answer(text) for text in row.completions],
        "rewards": list(row.rewards),
        "advantages": list(row.advantages),
        "step_ids": [step.id for step in row.steps],
    }


def _turn_labels(row: Conversation) -> list[bool]:
    """Whether each assistant turn is known to be wanted."""
    pairs = zip(row.messages, row.learned, strict=True)
    return [learned for message, learned in pairs if message.role == "assistant"]


def _marked(name: str, kind: str, mark: Callable[[bool], Any]) -> Shape:
    """Conversations whose messages say each whether the loss is taken on it."""

    def fill(row: Conversation, _: Place) -> dict[str, Any]:
        pairs = zip(messages_of(row.messages), row.learned, strict=True)
        return {"messages": [{**message, name: mark(learned)} for message, learned in pairs]}

    return _shape({"messages": [{**MESSAGE, name: kind}]}, fill)


def _by_turn(row: Row) -> Iterable[Row]:
    """For trainers that learn from the last answer of a row, or from a separate field."""
    return row.by_turn() if isinstance(row, Conversation) else (row,)


def _all_wanted(row: Row) -> Iterable[Row]:
    """For trainers that take the loss on every assistant turn."""
    return () if isinstance(row, Conversation) and not all(_turn_labels(row)) else (row,)


def _verl_prompt(row: PromptOnly, place: Place) -> dict[str, Any]:
    return {
        "data_source": SOURCE,
        "prompt": messages_of(row.prompt),
        "ability": "kernel",
        "reward_model": {"style": "rule", "ground_truth": _aim_json(row)},
        "extra_info": {
            "split": place.split,
            "index": place.index,
            "step_id": row.step.id,
            "task": row.step.task.name,
            "family": place.family,
        },
    }


_VERL_PROMPT: Columns = {
    "data_source": TEXT,
    "prompt": MESSAGES,
    "ability": TEXT,
    "reward_model": {"style": TEXT, "ground_truth": TEXT},
    "extra_info": {"split": TEXT, "index": WHOLE, "step_id": TEXT, "task": TEXT, "family": TEXT},
}

_MESSAGES = _shape({"messages": MESSAGES}, lambda row, _: {"messages": _whole(row)})
_TRACED = _shape({"messages": MESSAGES, "trace": TRACE}, _traced)
_EXAMPLE = _shape({"prompt": MESSAGES, "completion": MESSAGES, "score": NUMBER}, _example)
_GROUP = _shape(
    {
        "prompt": MESSAGES,
        "completions": MESSAGES,
        "rewards": [NUMBER],
        "advantages": [NUMBER],
        "step_ids": [TEXT],
    },
    _group,
)
_PAIR = _shape({"prompt": MESSAGES, "chosen": MESSAGES, "rejected": MESSAGES}, _pair)
_LABELLED = _shape(
    {"prompt": MESSAGES, "completion": MESSAGES, "score": NUMBER, "label": FLAG},
    lambda row, place: {**_example(row, place), "label": row.label},
)
_PROMPT = Shape(  # every column but the prompt is an argument of the reward function
    {
        "prompt": MESSAGES,
        "reference": TEXT,
        "size": TEXT,
        "precision": TEXT,
        "accumulation": TEXT,
        "baseline": TEXT,
        "parent_source": TEXT,
        "step_id": TEXT,
    },
    lambda row, _: {"prompt": messages_of(row.prompt), **aim(row), "step_id": row.step.id},
)
_ONE_MESSAGE_PAIR = _shape(
    {"messages": MESSAGES, "chosen": MESSAGE, "rejected": MESSAGE},
    lambda row, _: {
        "messages": messages_of(row.prompt),
        "chosen": _answer(row.chosen),
        "rejected": _answer(row.rejected),
    },
)
_TURNS = _shape(
    {"messages": MESSAGES, "labels": [FLAG]},
    lambda row, _: {"messages": _whole(row), "labels": _turn_labels(row)},
)

_ALL_TURNS = replace(_MESSAGES, parts=_all_wanted)
_INPUT_OUTPUT = _shape(
    {"input": MESSAGES, "output": MESSAGES},
    lambda row, _: {"input": messages_of(row.prompt), "output": [_answer(row.completion)]},
)
_OPENRLHF = {
    Kind.SUPERVISED: _INPUT_OUTPUT,
    Kind.CONVERSATION: replace(_INPUT_OUTPUT, parts=_by_turn),
    Kind.PREFERENCE: _shape(
        {"prompt": MESSAGES, "chosen": MESSAGES, "rejected": MESSAGES, "margin": NUMBER},
        lambda row, place: {**_pair(row, place), "margin": row.margin or 0.0},  # 0: no margin
    ),
    Kind.PROMPT: _shape(
        {"input": MESSAGES, "label": TEXT, "datasource": TEXT},
        lambda row, _: {
            "input": messages_of(row.prompt),
            "label": _aim_json(row),
            "datasource": SOURCE,
        },
    ),
}
_SLIME_PROMPT = Shape(
    {"input": MESSAGES, "label": TEXT, "metadata": _ORIGIN},
    lambda row, _: {
        "input": messages_of(row.prompt),
        "label": _aim_json(row),
        "metadata": _origin(row),
    },
)
_KTO_TAG = _shape(
    {"messages": MESSAGES, "kto_tag": FLAG},
    lambda row, _: {"messages": _whole(row), "kto_tag": row.label},
)

FORMATS: Mapping[str, Format] = {
    one.name: one
    for one in (
        Format(
            name="messages",
            shapes={Kind.SUPERVISED: _TRACED, Kind.CONVERSATION: _TURNS, Kind.GROUP: _GROUP},
        ),
        Format(
            name="trl-sft",
            shapes={
                Kind.SUPERVISED: _EXAMPLE,
                Kind.CONVERSATION: replace(_EXAMPLE, parts=_by_turn),
            },
        ),
        Format(name="trl-dpo", shapes={Kind.PREFERENCE: _PAIR}),
        Format(name="trl-kto", shapes={Kind.LABELLED: _LABELLED}),
        Format(name="trl-grpo", shapes={Kind.PROMPT: _PROMPT}),
        Format(
            name="verl-rl", shapes={Kind.PROMPT: Shape(_VERL_PROMPT, _verl_prompt)}, parquet=True
        ),
        Format(
            name="verl-sft",
            shapes={Kind.SUPERVISED: _MESSAGES, Kind.CONVERSATION: _ALL_TURNS},
            parquet=True,
        ),
        Format(name="openrlhf", shapes=_OPENRLHF),
        Format(
            name="slime",
            shapes={
                Kind.PROMPT: _SLIME_PROMPT,
                Kind.SUPERVISED: _MESSAGES,
                Kind.CONVERSATION: _marked("step_loss_mask", WHOLE, int),
            },
        ),
        Format(
            name="llamafactory",
            shapes={
                Kind.SUPERVISED: _MESSAGES,
                Kind.CONVERSATION: _ALL_TURNS,
                Kind.PREFERENCE: _ONE_MESSAGE_PAIR,
                Kind.LABELLED: _KTO_TAG,
            },
        ),
        Format(
            name="axolotl",
            shapes={
                Kind.SUPERVISED: _MESSAGES,
                Kind.CONVERSATION: _marked("train", FLAG, bool),
                Kind.PREFERENCE: _ONE_MESSAGE_PAIR,
            },
        ),
    )
}
