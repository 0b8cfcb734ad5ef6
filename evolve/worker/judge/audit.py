"""Null candidates: outcomes that need no real work. A task that lets one pass is weak."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from evolve.core.errors import UsageError
from evolve.core.evaluation import Status
from evolve.core.task import case_text
from evolve.worker.correctness.cases import LoadedCase, LoadedTask
from evolve.worker.correctness.compare import judge
from evolve.worker.correctness.oracle import Expected
from evolve.worker.correctness.reference_precision import Precision, precision_of
from evolve.worker.correctness.reference_runs import copied, evaluate_reference
from evolve.worker.correctness.tolerance import computable
from evolve.worker.ipc.pytree import cast_floating, flatten, map_tensors, tensors_of
from evolve.worker.reference.parameters import cast_module
from evolve.worker.reference.task_module import task_values

_SEEDS = (0xA0D17, 0xA0D18)
_OTHER_SEED = 0xA0D19
_HALF = {torch.float16, torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Finding:
    """A null candidate (`name`) that was judged correct in a case (`passed_by`)."""

    name: str
    passed_by: str
    detail: str


@dataclass(frozen=True, eq=False, kw_only=True)
class _Scene:
    """One set of inputs with the values that a null candidate may use."""

    case: LoadedCase
    model: nn.Module
    inputs: list[Any]
    expected: Expected


Null = Callable[[_Scene], list[Tensor] | None]


def audit(loaded: LoadedTask) -> tuple[Finding, ...]:
    """The null candidates that this task cannot tell from a kernel; empty for a sound task.

    One passes a case if it is judged correct on every seed with the task's own inputs and then in
    every other input family too.

    Raises:
        UsageError: an output without elements, or without a number among them: nothing to judge by;
            or the task's own check refuses the reference itself.
    """
    with task_values(loaded.task.name, "its outcome"):
        return tuple(finding for case in loaded.cases for finding in _audit_case(case))


def conditions_of(loaded: LoadedTask) -> list[str]:
    """Sentences about the task's effects, mode and rules of equality; each once."""
    said: dict[str, None] = {}
    with task_values(loaded.task.name, "its outcome"):
        for case in loaded.cases:
            said |= dict.fromkeys(_conditions_of(case))
    return list(said)


def _conditions_of(case: LoadedCase) -> Iterator[str]:
    yield from case.effects.notes
    yield from case.effects.hints
    expected = _scene(case, _SEEDS[0]).expected
    if case.check or all(own.is_floating_point() for own in expected.reference):
        return
    for at in range(len(expected.reference)):
        if rule := expected.freedom(at).rule:
            yield f"{expected.name(at)}: {rule}"


def _audit_case(case: LoadedCase) -> Iterator[Finding]:
    scene = _scene(case, _SEEDS[0])
    expected, allowed = scene.expected, case.accumulation
    for index, own in enumerate(expected.reference):
        _require_content(case, index, own)
    if case.check is not None:
        _require_own_approval(scene)
    elif (precision := _precision(scene)) is None:
        detail = "the reference is random, or too far from its own fp64 outcome to judge by"
        yield Finding("reference", case.name, detail)
        return
    elif precision == "tf32" and allowed == "ieee":
        allowed = "tf32"  # what the reference itself does is no weakness
    for name, null in _nulls(scene, allowed).items():
        if _passes(scene, null) and all(_passes(other, null) for other in _other_scenes(case)):
            detail = f"{name} is judged correct on {len(_SEEDS)} seeds and in every input family"
            yield Finding(name, case.name, detail)


def _precision(scene: _Scene) -> Precision | None:
    expected, task = scene.expected, scene.case.task
    of_call = task, scene.model, scene.inputs, expected.reference
    return precision_of(*of_call, expected.truth, expected.note)


def _require_content(case: LoadedCase, index: int, own: Tensor) -> None:
    if own.numel() == 0:
        what = f"has no elements (shape {tuple(own.shape)})"
    elif (own.is_floating_point() or own.is_complex()) and not computable(own).isfinite().any():
        what = "has no finite element (all are NaN or infinite)"
    else:
        return
    raise UsageError(
        f"task {case.task}: output {index} of Model.forward {what} on the inputs of "
        f"{case_text(case.name)}, so there is nothing to judge by. Mend Model or get_inputs()."
    )


def _require_own_approval(scene: _Scene) -> None:
    """The reference's own outcome passes the task's check, or no candidate's honestly can."""
    case, expected = scene.case, scene.expected
    verdict = judge(case, expected.reference, expected.spec, expected, scene.inputs)
    if verdict.status is not Status.CORRECT:
        raise UsageError(
            f"task {case.task}: check() does not accept the reference's own outcome on the inputs "
            f"of {case_text(case.name)} ({verdict.feedback}). Mend check(); it returns a bool, or "
            "a bool and a reason."
        )


def _other_scenes(case: LoadedCase) -> Iterator[_Scene]:
    for seed in _SEEDS[1:]:
        yield _scene(case, seed)
    for family in case.families()[1:]:
        yield _scene(case, _SEEDS[0], family)


def _scene(case: LoadedCase, seed: int, family: str = "task") -> _Scene:
    model, inputs = case.model(seed), case.inputs(seed, family)
    return _Scene(
        case=case, model=model, inputs=inputs, expected=case.expected(model, inputs, family)
    )


def _passes(scene: _Scene, null: Null) -> bool:
    outputs = null(scene)
    if outputs is None:
        return False
    expected = scene.expected
    verdict = judge(scene.case, outputs, expected.spec, expected, scene.inputs, explain=False)
    return verdict.status is Status.CORRECT


def _nulls(scene: _Scene, allowed: str) -> dict[str, Null]:
    nulls: dict[str, Null] = {
        "zeros": lambda scene: [torch.zeros_like(own) for own in scene.expected.reference],
        "copy of the input": _copy_of_input,
        "constant mean": _constant_mean,
        "first half only": lambda scene: [_first_half(own) for own in scene.expected.reference],
        "output for other inputs": _other_inputs,
        "other weights": _other_weights,
    }
    if scene.case.effects.changed:
        nulls["no effect on inputs and state"] = _no_effect
    for dtype in _lower_precisions(scene, allowed):
        name = str(dtype).removeprefix("torch.")
        nulls[f"computed in {name}"] = partial(_in_precision, dtype=dtype)
    if allowed == "ieee" and not _is_rounded(scene):
        nulls["operands rounded to tf32"] = _with_tf32_operands
    return nulls


def _copy_of_input(scene: _Scene) -> list[Tensor] | None:
    """Every output is the first input of its shape and dtype; None if there is none."""
    copies: list[Tensor] = []
    for own in scene.expected.reference:
        fitting = (
            tensor
            for tensor in tensors_of(scene.inputs)
            if (tensor.shape, tensor.dtype, tensor.layout) == (own.shape, own.dtype, own.layout)
        )
        found = next(fitting, None)
        if found is None:
            return None
        copies.append(found)
    return copies


def _no_effect(scene: _Scene) -> list[Tensor]:
    """The reference's outputs, and the tensors that it changes as they were before."""
    before = tensors_of(scene.inputs)
    return [*scene.expected.returned, *(before[at] for at in scene.case.effects.changed)]


def _constant_mean(scene: _Scene) -> list[Tensor] | None:
    """The mean of outputs for other inputs: a constant cannot know this scene's."""
    outputs = _other_inputs(scene)
    return [_mean(output) for output in outputs] if outputs else None


def _mean(output: Tensor) -> Tensor:
    if output.numel() == 0:
        return output
    if output.is_floating_point() or output.is_complex():
        mean = torch.full_like(computable(output), computable(output).mean().item())
        return mean.to(output.dtype)
    numbers = output if output.dtype is torch.bool else output.long()
    return torch.full_like(output, numbers.flatten().mode().values.item())


def _first_half(own: Tensor) -> Tensor:
    flat = own.clone().reshape(-1)
    flat[flat.numel() // 2 :] = 0
    return flat.reshape(own.shape)


def _other_inputs(scene: _Scene) -> list[Tensor] | None:
    inputs = scene.case.inputs(_OTHER_SEED)
    shapes = [[tensor.shape for tensor in tensors_of(tree)] for tree in (inputs, scene.inputs)]
    return _run(scene, scene.model, inputs) if shapes[0] == shapes[1] else None


def _other_weights(scene: _Scene) -> list[Tensor] | None:
    if not any(True for _ in scene.model.parameters()):
        return None
    return _run(scene, scene.case.model(_OTHER_SEED), scene.inputs)


def _lower_precisions(scene: _Scene, allowed: str) -> tuple[torch.dtype, ...]:
    """Types shorter than the task's precision; `allowed` is the accumulation."""
    dtypes = {t.dtype for t in tensors_of(scene.inputs) if t.is_floating_point()}
    if not dtypes or allowed == "half":
        return ()
    if dtypes & _HALF or _is_rounded(scene):
        return (torch.float8_e4m3fn,)
    # Within its range fp16 rounds operands just as tf32 does.
    return (torch.float16, torch.bfloat16)[allowed == "tf32" :]


def _is_rounded(scene: _Scene) -> bool:
    """Whether all outputs have 16 bits or fewer, which hide shorter operands; as under autocast."""
    floating = [own for own in scene.expected.reference if own.is_floating_point()]
    return bool(floating) and all(own.dtype.itemsize <= 2 for own in floating)


def _in_precision(scene: _Scene, dtype: torch.dtype) -> list[Tensor] | None:
    """The reference with operands in a shorter type; types without arithmetic only store."""
    inputs = cast_floating(scene.inputs, dtype)
    if dtype == torch.float8_e4m3fn:
        originals = tensors_of(scene.inputs)
        native = next(tensor.dtype for tensor in originals if tensor.is_floating_point())
        return _shortened(scene, scene.model, cast_floating(inputs, native))
    if (model := _copy(scene.model)) is None:
        return None
    return _shortened(scene, cast_module(model, dtype), inputs)


def _with_tf32_operands(scene: _Scene) -> list[Tensor] | None:
    if not any(tensor.dtype == torch.float32 for tensor in tensors_of(scene.inputs)):
        return None
    if (model := _copy(scene.model)) is None:
        return None
    for parameter in model.parameters():
        parameter.data = _tf32(parameter.data)
    return _shortened(scene, model, map_tensors(_tf32, scene.inputs))


def _copy(model: nn.Module) -> nn.Module | None:
    """None of a model that cannot be copied, such as one with a lock."""
    made = copied(model)
    return None if made is model else made


def _shortened(scene: _Scene, model: nn.Module, inputs: list[Any]) -> list[Tensor] | None:
    """None if the shorter type makes no difference: then there is nothing to find out."""
    outputs = _run(scene, model, inputs)
    own = scene.expected.reference
    return outputs if outputs and not all(map(torch.equal, outputs, own)) else None


def _tf32(tensor: Tensor) -> Tensor:
    """fp32 values rounded to 10 bits of mantissa, as tensor cores read them."""
    if tensor.dtype != torch.float32 or tensor.layout is not torch.strided:
        return tensor
    bits = tensor.view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def _run(scene: _Scene, model: nn.Module, inputs: list[Any]) -> list[Tensor] | None:
    try:
        outputs = flatten(evaluate_reference(scene.case.task, model, inputs))[0]
    except ValueError:  # an operation that does not exist in this precision
        return None
    return [
        output.to(own.dtype) for output, own in zip(outputs, scene.expected.reference, strict=True)
    ]
