"""A program that stands alone, from output code and the text of the task."""

import ast
import importlib.resources
import itertools
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from evolve.core.compiled import Argument, ArgumentKind, Compiled, CompiledCase
from operators.local.inductor import cpp, cpp_tunables
from operators.local.inductor.forward import Body, contiguous, cpp_calls, launches
from operators.local.inductor.kernels import (
    TEMPLATE,
    Kernel,
    convert_kernel,
    convert_product,
    kernel_name,
)
from operators.local.inductor.names import free_name, require_good_names
from operators.local.inductor.products import PRECISIONS, Product
from operators.local.inductor.reading import NotConvertible, OutputCode, RawCpp, read
from operators.local.inductor.recording import recording
from operators.local.inductor.reference import Reference, read_reference
from operators.local.inductor.sizes import Sizes

_IMPORTS = ("import torch", "import triton", "import triton.language as tl")
_CPP_IMPORTS = ("from pathlib import Path", "import torch", "import tvm_ffi.cpp")
_PLAIN = frozenset(  # names of tunables where there is one kernel
    (
        *("XBLOCK", "YBLOCK", "ZBLOCK", "R0_BLOCK", "R1_BLOCK", "BLOCK_M", "BLOCK_N", "BLOCK_K"),
        *("INPUT_PRECISION", "NUM_WARPS", "NUM_STAGES"),
    )
)
_ONLY_TEMPLATES = "torch.ops.evolve."
_BUFFER = re.compile(r"^buf\d+$")
_LIBDEVICE = "from triton.language.extra import libdevice"


Substitute = Callable[[CompiledCase, OutputCode, set[str]], tuple[OutputCode, dict[str, Kernel]]]
"""Puts launches of our kernels in the place of calls of vendors' libraries.

It is given a case, its code and the names that are taken, to which it adds; the kernels that it
answers, by names of their own, have no `launch`: the statements say all.
"""

Rewrite = Callable[[str, Compiled], str]
"""A program in Triton, and its compiled reference, as a program in another language."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One case: its kernels under their new names, by those that Inductor gave them."""

    case: CompiledCase
    code: OutputCode
    kernels: dict[str, Kernel]
    functions: dict[str, str]  # of C++

    @property
    def raw(self) -> dict[str, RawCpp]:
        return {function: self.code.cpp[name] for name, function in self.functions.items()}

    @property
    def parameters(self) -> dict[str, dict[int, str]]:
        """Names for the parameters of C++ functions."""
        calls = dict(cpp_calls(self.code))
        return {
            function: _pointers(calls[name], self.case.arguments, "")
            for name, function in self.functions.items()
            if name in calls
        }


def convert(
    task: str,
    name: str,
    compiled: Compiled,
    substitute: Substitute | None = None,
    precisions: Sequence[str] = PRECISIONS,
    rewrite: Rewrite | None = None,
) -> str:
    """The source of a program.

    Args:
        task: the text of the task's file.
        name: the task's, for the heading.
        compiled: its reference as compiled.
        substitute: for calls of vendors' libraries; None leaves them.
        precisions: of `tl.dot` for float32, the default first.
        rewrite: puts the finished program into another language; None leaves it.

    Raises:
        NotConvertible: the program would need Inductor's run time.
    """
    reference = read_reference(task)
    taken = {*reference.names, *reference.bound}
    parts = _parts(compiled, substitute, precisions, taken)
    kernels = [kernel for part in parts for kernel in part.kernels.values()]
    raw = {function: kernel for part in parts for function, kernel in part.raw.items()}
    if kernels and raw:
        raise NotConvertible("the compiler wrote Triton and C++ kernels")
    names = {function: found for part in parts for function, found in part.parameters.items()}
    definitions = _definitions(kernels)
    tunables = {name for kernel in kernels for name in kernel.blocks}
    sizes = Sizes(taken | tunables | {name for kernel in kernels for name in kernel.names})
    module = _module(reference, parts, sizes)
    built = cpp.library(_library_name(reference), _identifier(name), raw, names) if raw else ""
    pieces = [
        _heading(
            name, compiled, [*((k.name, k.operations) for k in kernels), *((f, ()) for f in raw)]
        ),
        _imports(reference, definitions, is_cpp=bool(raw)),
        sizes.text,
        cpp_tunables.declaration(built) if raw else _tunables(parts),
        built,
        *definitions,
        *_paragraphs(reference.definitions),
        module,
    ]
    source = "\n\n\n".join(piece for piece in pieces if piece) + "\n"
    if _ONLY_TEMPLATES in source:
        raise NotConvertible("it has operations that only templates stand for")
    source = rewrite(source, compiled) if rewrite else source
    require_good_names(source, reference, task)
    return source


def _parts(
    compiled: Compiled,
    substitute: Substitute | None,
    precisions: Sequence[str],
    taken: set[str],
) -> list[_Part]:
    """The cases, those that are timed first; of those that are alike, one."""
    found: dict[object, _Part] = {}
    for case in sorted(compiled.cases, key=lambda case: not case.timed):
        known = found.get(_shapes(case))
        if known is None:
            found[_shapes(case)] = _part(case, taken, substitute, precisions)
        elif known.case.code != case.code:
            raise NotConvertible(
                f"cases {known.case.name} and {case.name} differ, but not in shape"
            )
    alone = sum(len(part.kernels) for part in found.values()) == 1 and not _PLAIN & taken
    return [_with_kernels(part, alone) for part in found.values()]


def _shapes(case: CompiledCase) -> tuple[tuple[int, ...], ...]:
    return tuple(a.shape for a in case.arguments if a.kind is ArgumentKind.INPUT)


def _part(
    case: CompiledCase,
    taken: set[str],
    substitute: Substitute | None,
    precisions: Sequence[str],
) -> _Part:
    code = read(case.code)
    own: dict[str, Kernel] = {}
    if substitute:
        code, own = substitute(case, code, taken)
    if not code.kernels and not code.cpp and not own:
        raise NotConvertible("the compiler wrote no kernel; vendors' libraries do it all")
    functions = {name: _free(cpp.function_name(name), taken) for name in code.cpp}
    return _Part(case, code, own | _kernels(code, case, taken, precisions), functions)


def _free(wanted: str, taken: set[str]) -> str:
    """`sum_2` for the second `sum`; names derived from it are free too."""
    name = free_name(wanted, taken | {one.removesuffix("_kernel") for one in taken})
    taken.add(name)
    return name


def _kernels(
    code: OutputCode, case: CompiledCase, taken: set[str], precisions: Sequence[str]
) -> dict[str, Kernel]:
    """Those that are launched, by their Inductor names."""
    calls: dict[str, list[tuple[ast.expr, ...]]] = {}
    for launch in launches(code):
        calls.setdefault(launch.kernel, []).append(launch.arguments)
    found = {}
    for name, uses in calls.items():
        own = _free(kernel_name(code.kernels[name]), taken)
        pointers = _pointers(uses[0], case.arguments) if len(uses) == 1 else {}
        raw = code.kernels[name]
        about = (raw, f"{own}_kernel", pointers, f"{own.upper()}_")
        if raw.heuristic == TEMPLATE:
            grid = [int(ast.unparse(n)) for n in uses[0] if isinstance(n, ast.Constant)]
            found[name] = convert_product(Product(raw, grid, precisions), *about)
        else:
            found[name] = _with_own_helpers(convert_kernel(*about), own)
    return found


def _with_kernels(part: _Part, alone: bool) -> _Part:
    """A program's only kernel needs no prefix for its tunables."""
    if not alone:
        return part
    return replace(part, kernels={name: k.without_prefix() for name, k in part.kernels.items()})


def _pointers(
    values: tuple[ast.expr, ...], arguments: Iterable[Argument], suffix: str = "_ptr"
) -> dict[int, str]:
    """Names for parameters after their arguments: `x_ptr`, `weight_ptr`, `buf3_ptr`."""
    known = {a.name: _local(a) for a in arguments if not _is_constant(a)}
    found: dict[int, str] = {}
    for at, value in enumerate(values):
        names = [node.id for node in ast.walk(value) if isinstance(node, ast.Name)]
        names = [name for name in names if name != "reinterpret_tensor"]
        if len(names) == 1:
            name = f"{known.get(names[0], names[0])}{suffix}"
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


# --- text above the module ------------------------------------------------------------------------


def _library_name(reference: Reference) -> str:
    """The module's name for its library of C++."""
    return _free("kernels", {*reference.names, *reference.bound})


def _identifier(name: str) -> str:
    return "compiled_" + re.sub(r"\W+", "_", name)


def _heading(name: str, compiled: Compiled, kernels: Iterable[tuple[str, tuple[str, ...]]]) -> str:
    named = dict.fromkeys(kernels)  # a kernel may be launched for several calls
    lines = [f"  {kernel}{': ' if done else ''}{', '.join(done)}" for kernel, done in named]
    title = f'"""{name}: what PyTorch {compiled.torch} compiles it to ({compiled.variant}).'
    return "\n".join([title, "", *lines, '"""'])


def _imports(reference: Reference, definitions: Iterable[str], is_cpp: bool) -> str:
    has_library = any("libdevice." in text for text in definitions)
    lines = [*_IMPORTS, *([_LIBDEVICE] if has_library else [])]
    if is_cpp:
        lines = list(_CPP_IMPORTS)
    return "\n".join(sorted(dict.fromkeys([*lines, *reference.imports])))


def _paragraphs(definitions: Iterable[str]) -> list[str]:
    """In the order that they have: a constant may be made by a function."""
    paragraphs: list[str] = []
    for is_block, group in itertools.groupby(definitions, key=_is_block):
        texts = [*group]
        paragraphs += texts if is_block else ["\n".join(texts)]
    return paragraphs


def _is_block(text: str) -> bool:
    return text.startswith(("class ", "def ", "@"))


def _tunables(parts: Iterable[_Part]) -> str:
    """Constants of all kernels; those of cases that are timed are open."""
    lines, choices = [], []
    for part in parts:
        for kernel in part.kernels.values():
            for name, blocks in kernel.blocks.items():
                lines.append(f"{name} = {blocks.first!r}")
                if part.case.timed and len(blocks.choices) > 1:
                    choices.append(f'    "{name}": {blocks.choices},')
    return "\n".join([*lines, "TUNABLE = {", *choices, "}"])


def _definitions(kernels: Sequence[Kernel]) -> list[str]:
    """Device functions that are needed, then kernels with their own helpers."""
    library = _library()
    wanted: set[str] = set()
    waiting = [name for kernel in kernels for name in kernel.names if name in library]
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting += _needs(name)
    found = [text for name, text in library.items() if name in wanted]
    for kernel in kernels:
        comment = f"# {', '.join(kernel.operations)}\n" if kernel.operations else ""
        *helpers, own = kernel.definitions.values()
        found += [*helpers, comment + own]
    return list(dict.fromkeys(found))


@cache
def _library() -> Mapping[str, str]:
    """Text of each device function, in the order of the file."""
    file = importlib.resources.files("operators.local.inductor") / "device_functions.py"
    text = file.read_text(encoding="utf-8")
    return {
        node.name: "@triton.jit\n" + (ast.get_source_segment(text, node) or "")
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
    }


@cache
def _needs(name: str) -> tuple[str, ...]:
    """Names of those that one of them calls."""
    return tuple(other for other in _names(_library()[name]) if other in _library())


def _names(text: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


# --- the module -----------------------------------------------------------------------------------


def _module(reference: Reference, parts: Sequence[_Part], sizes: Sizes) -> str:
    constants = {a.name: a for part in parts for a in part.case.arguments if _is_constant(a)}
    registered = "".join(
        f"\n        {reference.itself}.register_buffer({f'_{a.name}'!r}, "
        f"torch.tensor({a.source}, dtype={a.dtype}), persistent=False)"
        for a in constants.values()
    )
    methods = [reference.constructor + registered]
    if len(parts) == 1:
        methods.append(_method("forward", reference, _lines(reference, parts[0], sizes)))
    else:
        methods.append(_method("forward", reference, _dispatch(reference, parts)))
        methods += [
            _method(_method_name(part), reference, _lines(reference, part, sizes)) for part in parts
        ]
    if all(_can_be_recorded(reference, part.case) for part in parts):
        methods += recording(methods[1:], [part.case.outcome for part in parts])
    return "\n\n".join(methods)


def _can_be_recorded(reference: Reference, case: CompiledCase) -> bool:
    """Whether forward takes dense tensors by themselves, and changes nothing that lasts."""
    inputs = [a for a in case.arguments if a.kind is ArgumentKind.INPUT]
    is_all = sorted(a.source for a in inputs) == sorted(reference.names)
    return is_all and not case.mutated and all(a.stride == contiguous(a.shape) for a in inputs)


def _method(name: str, reference: Reference, lines: Sequence[str]) -> str:
    body = textwrap.indent("\n".join(lines), " " * 8)
    return f"    def {name}({reference.parameters}):\n{body}"


def _method_name(part: _Part) -> str:
    return f"_forward_{re.sub(r'[^0-9a-zA-Z]+', '_', part.case.name)}"


def _dispatch(reference: Reference, parts: Sequence[_Part]) -> list[str]:
    """Kernels know shapes by heart, so each case has its own."""
    inputs = [a.source for a in parts[0].case.arguments if a.kind is ArgumentKind.INPUT]
    if any(
        [a.source for a in part.case.arguments if a.kind is ArgumentKind.INPUT] != inputs
        for part in parts
    ):
        raise NotConvertible("the cases take tensors in different places")
    shapes = _free("shapes", set(reference.names))
    lines = [f"{shapes} = ({', '.join(f'tuple({source}.shape)' for source in inputs)},)"]
    for part in parts:
        lines.append(f"if {shapes} == {_shapes(part.case)}:")
        lines.append(f"    return self.{_method_name(part)}({reference.given})")
    return [*lines, f'raise ValueError(f"not compiled for {{{shapes}}}")']


def _lines(reference: Reference, part: _Part, sizes: Sizes) -> list[str]:
    """The function that computes one case."""
    case = part.case
    inputs = [a for a in case.arguments if a.kind is ArgumentKind.INPUT]
    sources = {a.name: _source(a) for a in case.arguments}
    for argument in case.arguments:
        if _BUFFER.match(argument.name):
            raise NotConvertible(f"{argument.source} has a name that the compiler uses itself")
    taken = set(reference.names)
    prepared = {a.name: _prepared(a, case, taken) for a in inputs}
    tensors = [*prepared.values(), *sources.values()]
    if not tensors:
        raise NotConvertible("the reference takes no tensor and has no state")
    library = _library_name(reference)
    called = {name: f"{library}.{function}" for name, function in part.functions.items()}
    body = Body(part.kernels, called, sources | prepared, sizes, f"{tensors[0]}.device")
    lines, outputs = body.lines(part.code.statements)
    updates = [
        f"{sources[name]}.copy_({value})"
        for name, value in zip(case.mutated, outputs, strict=False)
    ]
    returned = outputs[len(case.mutated) :]
    outcome = re.sub(r"output\[(\d+)\]", lambda m: returned[int(m[1])], case.outcome)
    received = [line for argument in inputs for line in _received(argument, prepared)]
    return [*received, *lines, *updates, f"return {outcome}"]


def _prepared(argument: Argument, case: CompiledCase, taken: set[str]) -> str:
    """The name that the code has for an input; that of the caller's is kept if it is changed."""
    if argument.name in case.mutated:
        return _free(f"{_local(argument)}_read", taken)
    return argument.source if argument.source in taken else _free(_local(argument), taken)


def _is_constant(argument: Argument) -> bool:
    return argument.kind is ArgumentKind.CONSTANT


def _source(argument: Argument) -> str:
    if _is_constant(argument):
        return f"self._{argument.name}"
    return argument.source if argument.kind is ArgumentKind.INPUT else attribute(argument.source)


def attribute(path: str) -> str:
    """The expression of a parameter by its path: `self.layers[0].weight` of `layers.0.weight`."""
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


def _received(argument: Argument, prepared: Mapping[str, str]) -> list[str]:
    """The kernels know shapes and strides by heart."""
    name, source = prepared[argument.name], argument.source
    lines = [f"assert {source}.shape == {argument.shape}, {source}.shape"]
    if argument.stride == contiguous(argument.shape):
        lines.append(f"{name} = {source}.contiguous()")
    else:
        if name != source:
            lines.append(f"{name} = {source}")
        lines.append(f"assert {name}.stride() == {argument.stride}, {name}.stride()")
    return lines
