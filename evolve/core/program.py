"""Programs, and the instances that an assignment of their tunables makes of them."""

import ast
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from evolve.core.digest import canonical_json, framed_digest

TunableValue = int | float | bool | str
Assignment = Mapping[str, TunableValue]


class Language(StrEnum):
    """The language of a program's kernels, spelled as KernelBench spells its backends."""

    TRITON = "triton"
    CUDA = "cuda"
    CPP = "cpp"
    TORCH = "torch"

    @property
    def compiles_late(self) -> bool:
        """Whether kernels are compiled when they are first launched, not when they are loaded."""
        return self is Language.TRITON


_TRITON = frozenset({"jit", "autotune", "heuristics"})
_SOURCES = {  # names of the source argument of inline compilers
    "cuda_source": Language.CUDA,
    "cuda_sources": Language.CUDA,
    "cpp_source": Language.CPP,
    "cpp_sources": Language.CPP,
}


@lru_cache(maxsize=256)  # a text is asked about by its prompt, its judge and its store
def detect_language(source: str) -> Language:
    """The language of the kernels that a source defines; `torch` if it defines none.

    By the syntax tree: comments and strings say nothing. A text that does not parse defines none.
    """
    tree = _parsed(source)
    if _triton_kernels(tree):
        return Language.TRITON
    found = {_SOURCES[name] for node in ast.walk(tree) for name in _names(node) & _SOURCES.keys()}
    return next((one for one in (Language.CUDA, Language.CPP) if one in found), Language.TORCH)


def launches_triton(source: str) -> bool:
    """Whether a source defines a Triton kernel and launches it: `kernel[grid](...)`."""
    tree = _parsed(source)
    kernels = _triton_kernels(tree)
    launched = (
        node.func.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)
    )
    return any(_last_name(kernel) in kernels for kernel in launched)


def _parsed(source: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def _triton_kernels(tree: ast.Module) -> set[str]:
    """Names of functions that `triton.jit` and the like decorate or are called on."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name, decorator_list=[*makers]):
                found |= {name for maker in makers if _makes_kernel(maker)}
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                found |= {name} if _makes_kernel(call) else set()
    return found


def _makes_kernel(node: ast.expr) -> bool:
    """`triton.jit`, or a call of it: `triton.autotune(...)`, `triton.autotune(...)(kernel)`."""
    while isinstance(node, ast.Call):
        node = node.func
    match node:
        case ast.Attribute(value=ast.Name(id="triton"), attr=name) | ast.Name(id=name):
            return name in _TRITON
    return False


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _names(node: ast.AST) -> set[str]:
    """The name in a keyword or an assignment."""
    match node:
        case ast.keyword(arg=str(name)):
            return {name}
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
    return set()


_CLASS = re.compile(r"^class (\w{1,60})\b", re.MULTILINE)


def without_model(source: str) -> str:
    """The error of a text that never names `ModelNew`, with the remedy; empty for others."""
    if "ModelNew" in source:
        return ""
    classes = _CLASS.findall(source)
    named = "Model" if "Model" in classes else next(iter(classes[-1:]), "")
    remedy = (
        f"rename its class {named} to ModelNew"
        if named
        else "write one, a torch.nn.Module with the constructor and forward of the task's Model"
    )
    return f"defines no class ModelNew; {remedy}"


@dataclass(frozen=True, slots=True)
class Program:
    """An immutable Python module that defines `ModelNew`; its identity is its text."""

    source: str

    @property
    def digest(self) -> str:
        return framed_digest("program", self.source)

    @property
    def language(self) -> Language:
        return detect_language(self.source)


def instance_digest(program_digest: str, assignment: Assignment) -> str:
    """Identity of a program with an assignment of its tunables (empty: as written)."""
    return framed_digest("instance", program_digest, canonical_json(dict(assignment)))
