"""A reference through PyTorch's compiler: exported, lowered, and written down as code.

Nothing is compiled to machine code and nothing is measured: that takes half a second where a whole
compilation takes five, and it needs neither a device nor a toolchain. Runs in a runner of its own,
for the reference is the user's code.
"""

import copy
import importlib
import inspect
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn

from evolve.core.compiled import WHOLE, Argument, ArgumentKind, Compiled, CompiledCase
from evolve.core.errors import UsageError
from evolve.core.evaluation import Status
from evolve.worker.base.faults import CandidateFault
from evolve.worker.build.decompositions import decomposed, keep_recurrences
from evolve.worker.build.wide_attention import take_apart
from evolve.worker.reference.conditions import named_state
from evolve.worker.reference.task_file import TaskCase

ANSWER = "case{}.json"  # in the folder that the runner may write to
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    # Reductions that fit into a block are read twice instead of held: fewer registers.
    "looped": {"triton.persistent_reductions": False},
    # A reduction over few rows is not cut into two kernels.
    "unsplit": {"split_reductions": False},
    # Convolutions keep the layout of their inputs.
    "same_layout": {"layout_optimization": False},
    # Kernels over two dimensions get blocks of two dimensions.
    "tiled": {"triton.prefer_nd_tiling": True, "triton.tile_reductions": True},
    # One kernel for each operation.
    "unfused": {"max_fusion_size": 1},
    # Matrix products and convolutions are Triton's if it has a template, and later operations are
    # fused into them.
    "products": {"max_autotune_gemm": True, "test_configs.max_mm_configs": 1},
    # Normalisations, scans, losses and averages over large windows stay calls, for which templates
    # stand.
    WHOLE: {WHOLE: True},  # not of Inductor: its graph is another
}
"""Of Inductor, by variant; one that a version of it lacks is left out."""
_FIXED_SETTINGS: Mapping[str, Any] = {
    # For a graph found in a cache no code would be written.
    "fx_graph_cache": False,
    "fx_graph_remote_cache": False,
    # Running maxima are kept for every place of a block, as before torch 2.15: what makes programs
    # of the code knows these loops.
    "triton.scalar_accumulators": False,
}

_OPERATOR = re.compile(r"\b(custom_op|triton_op)\b|\btorch\.library\b")
_IMPORTED = ("torch.export", *(f"torch._inductor.{name}" for name in (
    "compile_fx", "decomposition", "lowering", "select_algorithm")))  # fmt: skip
# Elements: smaller ones Inductor adds up without a reduction, larger ones are one for a block.
_LARGE_WINDOWS = range(26, 257)
_MAX_CONSTANT = 64  # elements; a program holds them as text
_RECURRENT = ("aten.lstm.input", "aten.gru.input", "aten.rnn_tanh.input", "aten.rnn_relu.input")
_LAYERS, _BIDIRECTIONAL, _BATCH_FIRST = 4, 7, 8  # places among the arguments of each of these
# Torch documents no class of errors for models that it cannot export; any other is the runner's to
# report.
_UNEXPORTABLE = (RuntimeError, TypeError, ValueError, AttributeError, LookupError, AssertionError)
_MAX_STEPS = 64  # of a recurrence; hundreds take minutes, and give a program of thousands of calls


class _Unexportable(UsageError):
    """Export fails; the message says why."""


class _TakesGradients(BaseException):
    """Forward takes gradients."""


class _Written(BaseException):
    """The code is written; the rest of the compilation is not wanted."""


def is_wanted_by(source: str) -> bool:
    """Whether torch imports its compiler for a program, when an operator of it is first called.

    Words of its text are enough: a text with them but no need has a larger process, and no more.
    """
    return _OPERATOR.search(source) is not None


def prepare() -> None:
    """Import the modules for writing code, in three to seven seconds; nothing if loaded."""
    for name in _IMPORTED:
        importlib.import_module(name)


def settings(variant: str) -> dict[str, Any]:
    """Inductor's settings of a variant. Raises UsageError if there is none of that name."""
    if variant not in SETTINGS:
        raise UsageError(f"variant {variant!r}: choose of {', '.join(SETTINGS)}")
    return dict(SETTINGS[variant])


def folder_of(variant: str) -> str:
    """Name of the folder in which a runner leaves the output of a variant."""
    return f"written-{variant}"


def write(case: int, model: nn.Module, inputs: Sequence[Any], variant: str) -> None:
    """In a runner: leave the output of a case in the variant's folder."""
    compiled = compile_model(model, inputs, settings(variant))
    folder = Path.cwd() / folder_of(variant)
    folder.mkdir(exist_ok=True)
    (folder / ANSWER.format(case)).write_text(json.dumps(asdict(compiled)))


def read(folder: str, cases: Mapping[int, TaskCase], variant: str) -> Compiled:
    """In the judge: the compiler's results for the cases, by their numbers.

    Raises:
        CandidateFault: there is nothing, or nothing that can be read.
    """
    try:
        found = [
            json.loads((Path(folder) / ANSWER.format(number)).read_text(encoding="utf-8"))
            | {"name": case.name, "timed": case.timed}
            for number, case in cases.items()
        ]
        version = torch.__version__.partition("+")[0]
        return Compiled.from_json({"variant": variant, "torch": version, "cases": found})
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CandidateFault(
            Status.INVALID_INTERFACE, f"the compiler left no answer: {error}"
        ) from error


def compile_model(
    model: nn.Module, inputs: Sequence[Any], options: Mapping[str, Any]
) -> CompiledCase:
    """Export a model and have Inductor write its code.

    Args:
        model: in eval mode.
        inputs: of one call of forward.
        options: settings of Inductor.

    Raises:
        UsageError: the model cannot be exported, or takes tensors that a program cannot name.
    """
    with torch.no_grad():
        exported = _exported(model, inputs, whole=bool(options.get(WHOLE)))
        arguments = tuple(_arguments(exported, model, inputs))
        code = _lowered(exported.graph_module, options)
    mutated, outcome = _outcome(exported)
    return CompiledCase(
        name="",
        timed=True,
        code=code,
        arguments=arguments,
        mutated=mutated,
        outcome=outcome,
    )


def _exported(model: nn.Module, inputs: Sequence[Any], *, whole: bool) -> Any:
    try:
        with _no_gradients():
            return _program(model, inputs, whole=whole)
    except (_Unexportable, _TakesGradients) as error:
        # Export knows no gradients: where forward takes any, it gets the operations that do so.
        try:
            return _program(without_autograd(model, inputs), inputs, whole=whole)
        except (UsageError, *_UNEXPORTABLE) as again:
            raise (again if isinstance(error, _TakesGradients) else error) from None


@contextmanager
def _no_gradients() -> Iterator[None]:
    """Inside, the first gradient ends the call: what export makes of one may crash."""

    def stop(*_: Any, **__: Any) -> None:
        raise _TakesGradients

    with mock.patch.object(torch.autograd, "_engine_run_backward", stop):
        yield


def _program(model: nn.Module, inputs: Sequence[Any], *, whole: bool) -> Any:
    from torch._inductor import lowering  # noqa: F401 (the decomposition of pooling needs it)
    from torch._inductor.decomposition import select_decomp_table
    from torch.export import export

    with _exporting():
        program = export(model, tuple(inputs), strict=False)
    if whole:
        keep_recurrences(program.graph)
    _require_short(program.graph)
    take_apart(program.graph)
    table = select_decomp_table()
    with _exporting():  # only this shows the tensors that forward changes in place
        return decomposed(program, table) if whole else program.run_decompositions(table)


def without_autograd(model: nn.Module, inputs: Sequence[Any]) -> nn.Module:
    """The model with a forward of plain operations in place of autograd.

    Parameters and their names are the same; values of inputs are not looked at.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    state = named_state(model)

    def run(values: Sequence[torch.Tensor], *arguments: Any) -> Any:
        given = dict(zip(state, values, strict=True))
        return torch.func.functional_call(model, given, arguments)

    values = [value.detach() for value in state.values()]
    with torch.enable_grad():
        graph = make_fx(run, tracing_mode="fake")(values, *inputs)

    def forward(self: nn.Module, *arguments: Any) -> Any:
        return graph(list(named_state(self).values()), *arguments)

    shown = copy.copy(model)
    shown.__class__ = type(type(model).__name__, (type(model),), {"forward": forward})
    return shown


@contextmanager
def _exporting() -> Iterator[None]:
    try:
        yield
    except _UNEXPORTABLE as error:
        raise _Unexportable(f"the reference cannot be exported: {error}") from error


def _require_short(graph: Any) -> None:
    """Recurrent layers are unrolled, step by step: that is for short ones."""
    steps = 0
    for node in graph.nodes:
        if str(node.target) in _RECURRENT:
            length = node.args[0].meta["val"].shape[1 if node.args[_BATCH_FIRST] else 0]
            steps += length * node.args[_LAYERS] * (2 if node.args[_BIDIRECTIONAL] else 1)
    if steps > _MAX_STEPS:
        raise UsageError(
            f"the reference has recurrent layers of {steps} steps in all, which the compiler "
            f"would unroll; {_MAX_STEPS} at most (the variant {WHOLE!r} leaves float32 ones whole)"
        )


def _lowered(graph: Any, options: Mapping[str, Any]) -> str:
    from torch._inductor import config, lowering
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.graph import GraphLowering
    from torch._inductor.select_algorithm import AlgorithmSelectorCache

    settings = {**options, **_FIXED_SETTINGS}
    known = {name: value for name, value in settings.items() if _has(config, name)}
    fakes = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
    written: list[str] = []
    codegen = GraphLowering.codegen

    def stop(self: Any) -> None:
        code = codegen(self)[0]
        written.append(code if isinstance(code, str) else code.value)
        raise _Written

    # Outputs keep their strides; all else may be padded, or laid out as convolutions like it.
    (outputs,) = (node for node in graph.graph.nodes if node.op == "output")
    outputs.meta["user_visible_output_idxs"] = list(range(len(outputs.args[0])))

    with (
        config.patch(known),
        mock.patch.object(GraphLowering, "codegen", stop),
        mock.patch.object(
            AlgorithmSelectorCache, "__call__", _with_one_choice(AlgorithmSelectorCache.__call__)
        ),
        mock.patch.object(
            lowering, "_avg_poolnd", _averages(lowering, is_left=bool(options.get(WHOLE)))
        ),
    ):
        try:
            compile_fx_inner(graph, fakes, is_inference=True)
        except _Written:
            return written[0]
    raise UsageError("Inductor wrote no code for the reference")


def _with_one_choice(select: Callable[..., Any]) -> Callable[..., Any]:
    """Inductor's choice by measuring, restricted to Triton's templates if there are any.

    Which blocks the template has does not matter: a program has them as tunables.
    """

    def chosen(self: Any, name: str, choices: Sequence[Any], *about: Any, **more: Any) -> Any:
        from torch._inductor.select_algorithm import TritonTemplateCaller

        templates = [choice for choice in choices if isinstance(choice, TritonTemplateCaller)]
        return select(self, name, [*templates, *choices][:1], *about, **more)

    return chosen


def _averages(lowering: Any, *, is_left: bool) -> Callable[..., Any]:
    """Inductor's own averages, or where windows are large calls that templates stand for.

    It leaves them to torch only if the stride is not the window's size, and else has a program for
    each window.
    """
    own = lowering._avg_poolnd

    def averages(x: Any, kernel: Any, stride: Any, padding: Any, *rest: Any, dim: int) -> Any:
        kernel = lowering.pad_listlike(kernel, dim)
        if not is_left or math.prod(kernel) not in _LARGE_WINDOWS:
            return own(x, kernel, stride, padding, *rest, dim=dim)
        left = lowering.fallbacks_avg_poolnd[dim - 1]
        stride = lowering.pad_listlike(stride or kernel, dim)
        return left(x, kernel, stride, lowering.pad_listlike(padding or 0, dim), *rest)

    return averages


def _has(config: Any, name: str) -> bool:
    holder = config
    for part in name.split("."):
        if not hasattr(holder, part):
            return False
        holder = getattr(holder, part)
    return True


def _arguments(exported: Any, model: nn.Module, inputs: Sequence[Any]) -> list[Argument]:
    from torch.export.graph_signature import InputKind

    paths = iter(_paths(model, inputs))
    found = []
    nodes = {n.name: n for n in exported.graph_module.graph.nodes if n.op == "placeholder"}
    for spec in exported.graph_signature.input_specs:
        name = getattr(spec.arg, "name", "")
        value = nodes[name].meta.get("val") if name in nodes else None
        path = next(paths) if spec.kind is InputKind.USER_INPUT else ""
        if not isinstance(value, torch.Tensor):
            continue  # a number: part of the code
        source, kind = path, ArgumentKind.INPUT
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            source, kind = spec.target, ArgumentKind.STATE
        elif spec.kind is InputKind.CONSTANT_TENSOR:
            constant = exported.constants[spec.target]
            source, kind = _literal(constant), ArgumentKind.CONSTANT
        shape, stride = tuple(map(int, value.shape)), tuple(map(int, value.stride()))
        found.append(Argument(name, kind, source, shape, stride, str(value.dtype)))
    return found


def _paths(model: nn.Module, inputs: Sequence[Any]) -> list[str]:
    """An expression for every leaf of forward's arguments, in their order: `x`, `pair[0]`."""
    from torch.utils._pytree import SequenceKey, keystr, tree_flatten_with_path

    names = list(_places(inspect.signature(model.forward), len(inputs)))
    leaves, _ = tree_flatten_with_path(tuple(inputs))
    return [
        names[path[0].idx] + keystr(path[1:])
        for path, _ in leaves
        if isinstance(path[0], SequenceKey)  # the place among forward's arguments
    ]


def _places(signature: inspect.Signature, count: int) -> Iterator[str]:
    """An expression for each of so many arguments by position: `x`, `rest[0]`."""
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            yield from (f"{name}[{at}]" for at in range(count))
        else:
            yield name


def _literal(constant: torch.Tensor) -> str:
    if constant.numel() > _MAX_CONSTANT:
        raise UsageError(f"the reference makes a constant of {constant.numel()} elements")
    return repr(constant.tolist())


def _outcome(exported: Any) -> tuple[tuple[str, ...], str]:
    """Names of arguments that forward changes, and an expression of its result."""
    from torch.export.graph_signature import OutputKind
    from torch.utils._pytree import tree_unflatten

    specs = exported.graph_signature.output_specs
    changes = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)
    if {s.kind for s in specs} - {*changes, OutputKind.USER_OUTPUT}:
        raise UsageError("the reference writes to its parameters")
    buffers = {s.target: s.arg.name for s in exported.graph_signature.input_specs if s.target}
    mutated = tuple(
        buffers[s.target] if s.kind is OutputKind.BUFFER_MUTATION else s.target
        for s in specs
        if s.kind in changes
    )
    count = sum(s.kind is OutputKind.USER_OUTPUT for s in specs)
    tree = tree_unflatten([_Place(at) for at in range(count)], exported.call_spec.out_spec)
    return mutated, repr(tree)


class _Place:
    """Stands for an output in the text of a result."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __repr__(self) -> str:
        return f"output[{self._number}]"
