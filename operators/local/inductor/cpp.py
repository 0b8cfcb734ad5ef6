"""C++ kernels of Inductor as one library, built by tvm-ffi.

They keep the vectors of torch's own headers (`at::vec`), which every installation of torch has.
"""

import re
import textwrap
from collections.abc import Iterable, Mapping
from itertools import count

from operators.local.inductor import cpp_sizes, cpp_tunables
from operators.local.inductor.kernels import short_name
from operators.local.inductor.reading import NotConvertible, RawCpp

_BODY = re.compile(
    r"^\s*extern \"C\"\s+(?:\w+ )*void\s+kernel\((.*?)\)\s*\{(.*)\}\s*$", re.S | re.M
)
_PARAMETER = re.compile(r"^(const )?(\w+)(\*?) (\w+)$")
_DROPPED = re.compile(r"^.*inductor_cpu_(?:integer_div_error|throw_if).*$\n?", re.M)
_STEP = re.compile(r"\+=\s*static_cast<int64_t>\((\d+)L?\)")

PRELUDE = """\
#include <torch/csrc/inductor/cpp_prefix.h>

using tvm::ffi::TensorView;

"""

LOADING = """\
# The compiler's flags; -ffast-math is none of them: NaN and infinity come out as in the reference.
TORCH = Path(torch.__file__).parent
CAPABILITY = torch.backends.cpu.get_cpu_capability()
{variable} = tvm_ffi.cpp.load_inline(
    "{name}",
    cpp_sources=SOURCE,
    functions=[{functions}],
    extra_cflags=[
        *("-O3", "-march=native", "-fopenmp", "-std=c++20", "-DNDEBUG", "-fno-trapping-math"),
        *("-ffp-contract=off", "-fno-tree-loop-vectorize", "-Wno-unknown-pragmas"),
        *(f"-DCPU_CAPABILITY={{CAPABILITY}}", f"-DCPU_CAPABILITY_{{CAPABILITY}}"),
    ],
    extra_include_paths=[str(TORCH / "include")],
    extra_ldflags=["-fopenmp", f"-L{{TORCH / 'lib'}}", "-ltorch_cpu", "-lc10"],
)"""


def library(
    variable: str,
    name: str,
    kernels: Mapping[str, RawCpp],
    parameters: Mapping[str, Mapping[int, str]],
) -> str:
    """The text of `SOURCE` and of its build.

    Args:
        variable: the module's name for the library.
        name: the library's own.
        kernels: by the names of their functions.
        parameters: names for those of each function, by position; the others are unchanged.
    """
    functions = [
        _function(function, raw, parameters.get(function, {})) for function, raw in kernels.items()
    ]
    sizes, text = cpp_sizes.named("\n".join(functions))
    head = PRELUDE + _width(kernels.values()) + sizes + cpp_tunables.constants(text)
    source = f"{head}\n{text}"
    functions_built = ", ".join(map(repr, kernels))
    loading = LOADING.format(variable=variable, name=name, functions=functions_built)
    return f'SOURCE = r"""\n{source}"""\n\n{loading}'


def function_name(name: str) -> str:
    """`softmax` for `cpp_fused__softmax_0`."""
    return short_name(name.replace("cpp_fused", "triton_poi_fused", 1))


def _width(kernels: Iterable[RawCpp]) -> str:
    """Loops count in vectors as wide as those of the machine that the code was written for."""
    vectorised = [raw.code for raw in kernels if "at::vec::Vectorized<float>" in raw.code]
    steps = [int(step) for code in vectorised for step in _STEP.findall(code)]
    lanes = max(steps, default=1)
    if lanes == 1:
        return ""
    return f'static_assert(at::vec::Vectorized<float>::size() == {lanes}, "another kind of CPU");\n'


def _function(name: str, raw: RawCpp, renamed: Mapping[int, str]) -> str:
    match = _BODY.search(raw.code)
    if match is None:
        raise NotConvertible(f"the C++ of {name} is not one function `kernel`")
    before = raw.code[: match.start()].replace("#include <torch/csrc/inductor/cpp_prefix.h>", "")
    if before.strip():
        raise NotConvertible(f"the C++ of {name} has functions of its own")
    parameters = [_parameter(text) for text in _split(match[1])]
    body = _tidy(match[2])
    for at, (kind, pointer, parameter) in enumerate(parameters):
        new = renamed.get(at, parameter)
        if not re.search(rf"\b{new}\b", body):
            body = re.sub(rf"\b{parameter}\b", new, body)
            parameters[at] = (kind, pointer, new)
    taken = ", ".join(
        f"TensorView {parameter}" if pointer else f"{kind} {parameter}"
        for kind, pointer, parameter in parameters
    )
    used = {*re.findall(r"\w+", body), *(parameter for _, _, parameter in parameters)}
    given = ""
    for kind, pointer, parameter in parameters:
        if pointer:
            data = next(n for n in (f"{parameter}_data{'_' * k}" for k in count()) if n not in used)
            given += f"  auto* {data} = static_cast<{kind}*>({parameter}.data_ptr());\n"
            body = re.sub(rf"\b{parameter}\b", data, body)
    comment = f"// {', '.join(raw.operations)}\n" if raw.operations else ""
    return f"{comment}void {name}({taken}) {{\n{given}{textwrap.indent(body, '  ')}}}\n"


def _split(parameters: str) -> list[str]:
    return [" ".join(text.split()) for text in parameters.split(",")]


def _parameter(text: str) -> tuple[str, bool, str]:
    match = _PARAMETER.match(text)
    if match is None:
        raise NotConvertible(f"a C++ parameter `{text}`")
    const, kind, pointer, name = match.groups()
    return f"{const or ''}{kind}", bool(pointer), name


def _tidy(body: str) -> str:
    """Fewer casts and braces; parallel loops in chunks, and more, that can be tuned."""
    body = _DROPPED.sub("", body)
    body = re.sub(r"\[static_cast<int64_t>\(([^()]*)\)\]", r"[\1]", body)
    body = re.sub(r"^\s*for\(int64_t .*$", _plain_bounds, body, flags=re.M)
    body = re.sub(r"(#pragma omp for)(?! *schedule)", r"\1 schedule(static, CHUNK)", body)
    lines = [line.rstrip() for line in body.splitlines() if line.strip()]
    return "\n".join(_indented(cpp_tunables.opened(_unnested(lines)))) + "\n"


def _plain_bounds(header: "re.Match[str]") -> str:
    """The head of a loop over int64 with plain numbers; elsewhere a cast can decide on a type."""
    return re.sub(r"static_cast<int64_t>\((-?\d+)L?\)", r"\1", header[0])


def _unnested(lines: list[str]) -> list[str]:
    """Without scopes that are all that the scope around them holds."""
    while True:
        ends = _ends(lines)
        for start, end in ends.items():
            outer = start - 1
            if lines[start].strip() == "{" and ends.get(outer) == end + 1:
                lines = [line for at, line in enumerate(lines) if at not in (start, end)]
                break
        else:
            return lines


def _ends(lines: list[str]) -> dict[int, int]:
    """The line that closes each scope, by the line that opens it."""
    opened: list[int] = []
    found: dict[int, int] = {}
    for at, line in enumerate(lines):
        text = line.strip()
        if text.startswith("}") and opened:
            found[opened.pop()] = at
        if text.endswith("{"):
            opened.append(at)
    return found


def _indented(lines: list[str]) -> list[str]:
    depth, found = 0, []
    for line in lines:
        text = line.strip()
        if text.startswith("}"):
            depth -= 1
        found.append("  " * depth + text)
        if text.endswith("{"):
            depth += 1
    return found
