"""The compiled form of a reference: output code, and its arguments."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

WHOLE = "whole"
"""The variant with calls, of `torch.ops.evolve`, that only templates stand for."""

VARIANTS = (
    *("default", "products", "looped", "tiled", "unsplit", "same_layout", "unfused"),
    WHOLE,
)
"""Settings of the compiler by name; `evolve.worker.build.inductor` describes each."""

EXACT_CONVOLUTIONS = "exact_convolutions"
"""The fact of a device (`Compiled.device`) that lists those of a task, by `convolution_key`, which
do not round float32 there although torch lets them; separated by semicolons."""


def convolution_key(x: Sequence[int], weight: Sequence[int], settings: Sequence[Any]) -> str:
    """The parameters that distinguish a convolution from the others of its task.

    Args:
        x: shape of its input, with the batch.
        weight: shape of its weight.
        settings: the arguments after the bias in `aten::convolution`, in which one number may stand
            for every dimension in space.
    """
    *sizes, transposed, padded, groups = settings
    kind = "transposed" if transposed else "convolution"
    for_each = (each_of(values, len(weight) - 2) for values in (*sizes, padded))
    words = ("x".join(map(str, values)) for values in (x, weight, *for_each))
    return " ".join((kind, *words, str(groups)))


def each_of(values: Sequence[int], dims: int) -> tuple[int, ...]:
    """A value for each dimension in space, if torch has taken one for all of them."""
    return tuple(values) * dims if len(values) == 1 else tuple(values)


class ArgumentKind(StrEnum):
    """The origin of an argument of compiled code."""

    STATE = "state"  # a parameter or buffer, by its name in the state of the model
    INPUT = "input"  # a tensor of `forward`'s arguments, by an expression such as `x` or `pair[0]`
    CONSTANT = "constant"  # a tensor that forward makes, by a literal of its values and its dtype


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: its name in the code, and its meaning.

    `shape` and `stride` are in elements; `dtype` as in `torch.float32`, empty if it is not
    known.
    """

    name: str
    kind: ArgumentKind
    source: str
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class CompiledCase:
    """A reference as compiled for one case of its task.

    Attributes:
        name: the case's.
        timed: whether its time counts.
        code: the output code.
        arguments: of the code, in order.
        mutated: names of arguments that the first outputs are the new values of.
        outcome: an expression of forward's result, over `output[0]`, the first after those, ...
    """

    name: str
    timed: bool
    code: str
    arguments: tuple[Argument, ...]
    mutated: tuple[str, ...]
    outcome: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """A reference as compiled under a variant.

    Attributes:
        variant: of `VARIANTS`.
        torch: the version of it.
        cases: for each case of its task.
        device: known facts of the device that it was compiled for, and of this task there, before
            anything is judged; by the names that `Evaluation.environment` has for it.
    """

    variant: str
    torch: str
    cases: tuple[CompiledCase, ...]
    device: Mapping[str, str] = field(default_factory=dict, hash=False)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Compiled":
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError if it is none."""
        return cls(
            variant=str(data["variant"]),
            torch=str(data["torch"]),
            cases=tuple(_case(item) for item in data["cases"]),
            device={str(k): str(v) for k, v in dict(data.get("device", {})).items()},
        )


def read_compiled(answers: Mapping[str, Any]) -> dict[str, Compiled | str]:
    """A worker's answer, by variant: compiled code, or the reason for none.

    Raises KeyError, TypeError, ValueError or AttributeError if it is no such answer.
    """
    return {
        str(variant): Compiled.from_json(made) if (made := answer.get("compiled"))
        else str(answer["reason"])
        for variant, answer in answers.items()
    }  # fmt: skip


def _case(data: Mapping[str, Any]) -> CompiledCase:
    return CompiledCase(
        name=str(data["name"]),
        timed=bool(data["timed"]),
        code=str(data["code"]),
        arguments=tuple(_argument(item) for item in data["arguments"]),
        mutated=tuple(map(str, data["mutated"])),
        outcome=str(data["outcome"]),
    )


def _argument(data: Mapping[str, Any]) -> Argument:
    return Argument(
        name=str(data["name"]),
        kind=ArgumentKind(data["kind"]),
        source=str(data["source"]),
        shape=_numbers(data["shape"]),
        stride=_numbers(data["stride"]),
        dtype=str(data["dtype"]),
    )


def _numbers(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)
