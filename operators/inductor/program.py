"""A program that stands alone, from output code and the text of the task."""

import ast
import builtins
import importlib.resources
import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import replace

from evolve.core.compiled import Argument, ArgumentKind, Compiled
from operators.inductor.blocks import Blocks
from operators.inductor.forward import Body, contiguous, launches
from operators.inductor.kernels import Kernel, convert_kernel, short_name
from operators.inductor.reading import NotConvertible, OutputCode, read
from operators.inductor.reference import Reference, read_reference

_IMPORTS = ("import torch", "import triton", "import triton.language as tl")
_LIBDEVICE = "from triton.language.extra import libdevice"


def convert(task: str, name: str, compiled: Compiled) -> str:
    """The source of a program.

    Args:
        task: the text of the task's file.
        name: the task's, for the heading.
        compiled: its reference as compiled.

    Raises:
        NotConvertible: the program would need what only Inductor's run time has.
    """
    code = read(compiled.code)
    if not code.kernels:
        raise NotConvertible("the compiler wrote no Triton kernel; vendors' libraries do it all")
    reference = read_reference(task)
    kernels = _kernels(code, compiled)
    parts = [
        _heading(name, compiled, kernels.values()),
        _imports(reference, kernels.values()),
        _tunables(kernels.values()),
        *_definitions(kernels.values()),
        "\n".join(text for text in reference.definitions if not _is_block(text)),
        *(text for text in reference.definitions if _is_block(text)),
        _module(reference, code, compiled, kernels),
    ]
    source = "\n\n\n".join(part for part in parts if part) + "\n"
    _require_known_names(source)
    return source


def _heading(name: str, compiled: Compiled, kernels: Iterable[Kernel]) -> str:
    lines = [f"  {k.name}: {', '.join(k.operations) or 'moves data'}" for k in kernels]
    return "\n".join(
        [
            f'"""{name}: what PyTorch {compiled.torch} compiles it to ({compiled.variant}).',
            "",
            *lines,
            '"""',
        ]
    )


def _is_block(text: str) -> bool:
    return text.startswith(("class ", "def ", "@"))


def _imports(reference: Reference, kernels: Iterable[Kernel]) -> str:
    lines = [*_IMPORTS, *([_LIBDEVICE] if any(k.uses_libdevice for k in kernels) else [])]
    return "\n".join(sorted(dict.fromkeys([*lines, *reference.imports])))


def _kernels(code: OutputCode, compiled: Compiled) -> dict[str, Kernel]:
    """Those that are launched, with names of their own, by their Inductor names."""
    calls: dict[str, list[tuple[ast.expr, ...]]] = {}
    for launch in launches(code):
        calls.setdefault(launch.kernel, []).append(launch.arguments)
    names = _unique({name: short_name(name) for name in calls})
    alone = len(calls) == 1
    found = {}
    for name, uses in calls.items():
        pointers = _pointers(uses[0], compiled.arguments) if len(uses) == 1 else {}
        prefix = "" if alone else f"{names[name].upper()}_"
        kernel = convert_kernel(code.kernels[name], f"{names[name]}_kernel", pointers, prefix)
        found[name] = _with_own_helpers(kernel, names[name])
    return found


def _unique(wanted: Mapping[str, str]) -> dict[str, str]:
    taken: set[str] = set()
    found = {}
    for name, short in wanted.items():
        number, free = 1, short
        while free in taken:
            number += 1
            free = f"{short}_{number}"
        taken.add(free)
        found[name] = free
    return found


def _pointers(values: tuple[ast.expr, ...], arguments: Iterable[Argument]) -> dict[int, str]:
    """Names for parameters by what is passed: `x_ptr`, `weight_ptr`, `buf3_ptr`."""
    known = {a.name: _local(a) for a in arguments if not _is_constant(a)}
    found: dict[int, str] = {}
    for at, value in enumerate(values):
        names = [node.id for node in ast.walk(value) if isinstance(node, ast.Name)]
        names = [name for name in names if name != "reinterpret_tensor"]
        if len(names) == 1:
            name = f"{known.get(names[0], names[0])}_ptr"
            if name not in found.values():
                found[at] = name
    return found


def _with_own_helpers(kernel: Kernel, name: str) -> Kernel:
    """Helpers of two kernels may have the same name and do something else."""
    definitions = dict(kernel.definitions)
    for helper in [known for known in definitions if known != kernel.name]:
        own = f"{name}_{helper.rpartition('fn_')[2] or helper}".lstrip("_")
        definitions = {
            (own if known == helper else known): re.sub(rf"\b{helper}\b", own, text)
            for known, text in definitions.items()
        }
    return replace(kernel, definitions=definitions)


def _tunables(kernels: Iterable[Kernel]) -> str:
    blocks: dict[str, Blocks] = {}
    for kernel in kernels:
        blocks |= kernel.blocks
    lines = [f"{name} = {found.first}" for name, found in blocks.items()]
    open_ones = {name: found.choices for name, found in blocks.items() if len(found.choices) > 1}
    choices = [f'    "{name}": {values},' for name, values in open_ones.items()]
    return "\n".join([*lines, "TUNABLE = {", *choices, "}"])


def _definitions(kernels: Iterable[Kernel]) -> list[str]:
    """Device functions that are needed, then kernels with their own helpers."""
    library = _library()
    wanted: set[str] = set()
    waiting = [name for kernel in kernels for name in kernel.names if name in library]
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting += [other for other in _names(library[name]) if other in library]
    found = [text for name, text in library.items() if name in wanted]
    for kernel in kernels:
        comment = f"# {', '.join(kernel.operations)}\n" if kernel.operations else ""
        *helpers, own = kernel.definitions.values()
        found += [*helpers, comment + own]
    return found


def _library() -> dict[str, str]:
    """Text of each device function, in the order of the file."""
    file = importlib.resources.files("operators.inductor") / "device_functions.py"
    text = file.read_text(encoding="utf-8")
    return {
        node.name: "@triton.jit\n" + (ast.get_source_segment(text, node) or "")
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
    }


def _names(text: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def _module(
    reference: Reference, code: OutputCode, compiled: Compiled, kernels: Mapping[str, Kernel]
) -> str:
    constants = {a.name: f"self._{a.name}" for a in compiled.arguments if _is_constant(a)}
    sources = {a.name: _source(a) for a in compiled.arguments} | constants
    tensors = [sources[a.name] for a in compiled.arguments if not _is_constant(a)]
    if not tensors:
        raise NotConvertible("the reference takes no tensor and has no state")
    inputs = [a for a in compiled.arguments if a.kind is ArgumentKind.INPUT]
    prepared = {a.name: _local(a) for a in inputs}
    first = prepared[inputs[0].name] if inputs else tensors[0]
    body = Body(kernels, sources | prepared, f"{first}.device")
    lines, outputs = body.lines(code.statements)
    updates = [
        f"{_attribute(name)}.copy_({value})"
        for name, value in zip(compiled.mutated, outputs, strict=False)
    ]
    returned = outputs[len(compiled.mutated) :]
    outcome = re.sub(r"output\[(\d+)\]", lambda m: returned[int(m[1])], compiled.outcome)
    text = [
        *[line for argument in inputs for line in _received(argument)],
        *lines,
        *updates,
        f"return {outcome}",
    ]
    forward = textwrap.indent("\n".join(text), " " * 8)
    registered = "".join(
        f"\n        {reference.itself}.register_buffer({f'_{a.name}'!r}, "
        f"torch.tensor({a.source}, dtype={a.dtype}), persistent=False)"
        for a in compiled.arguments
        if _is_constant(a)
    )
    head = f"{reference.constructor}{registered}\n\n    def forward({reference.parameters}):"
    return f"{head}\n{forward}"


def _is_constant(argument: Argument) -> bool:
    return argument.kind is ArgumentKind.CONSTANT


def _source(argument: Argument) -> str:
    return argument.source if argument.kind is ArgumentKind.INPUT else _attribute(argument.source)


def _attribute(path: str) -> str:
    """`self.layers[0].weight` of `layers.0.weight`."""
    text = "self"
    for part in path.split("."):
        if part.isdigit():
            text += f"[{part}]"
        elif part.isidentifier():
            text += f".{part}"
        else:
            text = f"getattr({text}, {part!r})"
    return text


def _local(argument: Argument) -> str:
    return re.sub(r"\W+", "_", argument.source).strip("_")


def _received(argument: Argument) -> list[str]:
    """The kernels know shapes and strides by heart."""
    name, source = _local(argument), argument.source
    lines = [f"assert {source}.shape == {argument.shape}, {source}.shape"]
    if argument.stride == contiguous(argument.shape):
        lines.append(f"{name} = {source}.contiguous()")
    else:
        if name != source:
            lines.append(f"{name} = {source}")
        lines.append(f"assert {name}.stride() == {argument.stride}, {name}.stride()")
    return lines


def _require_known_names(source: str) -> None:
    """What is left of Inductor's run time would fail when it runs: better now."""
    tree = ast.parse(source)
    bound = set(dir(builtins))
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                bound.add(name)
            case ast.arg(arg=name):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                bound |= {(a.asname or a.name).split(".")[0] for a in names}
    unknown = {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id not in bound
    }
    if unknown:
        raise NotConvertible(f"it uses {', '.join(sorted(unknown))}")
