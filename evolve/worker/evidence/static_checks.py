"""Static findings about a candidate's source. They label; they never decide acceptance."""

import ast
import re
from collections.abc import Iterable, Iterator

from evolve.core.evaluation import Label
from evolve.core.source.parsing import parse

_FUNCTIONAL = ("torch", "F", "torch.nn.functional", "functional", "torch.linalg", "torch.special")
_HARMLESS = """
    empty empty_like empty_strided zeros zeros_like ones ones_like full full_like as_strided tensor
    as_tensor from_numpy device dtype is_tensor no_grad inference_mode broadcast_shapes reshape
    get_num_threads set_num_threads Size Tensor float32 float16 bfloat16 float64 int32 int64
"""
_METHODS = """
    matmul mm bmm addmm softmax log_softmax sum mean var std norm relu gelu sigmoid tanh exp cumsum
    cumprod max min amax amin argmax argmin sort topk einsum
"""
# Ways to look at the caller, and so at the judge's work.
_INTROSPECTION = frozenset(
    (
        "_getframe", "_current_frames", "currentframe", "getouterframes", "f_back", "f_locals",
        "f_code", "get_objects", "get_referrers", "settrace", "setprofile",
        "_len_torch_dispatch_stack", "_get_current_dispatch_mode", "_dispatch_dump",
    )
)  # fmt: skip
_DISOWNING = ("evaluator_access", "foreign_library", "library_at_work")
_LOADERS = ("CDLL", "PyDLL", "LibraryLoader", "LoadLibrary", "cdll", "pydll", "pythonapi")
_TORCH_COMPUTE = "torch_compute"
_MAX_OF_A_KIND = 4
_MAX_EVIDENCE = 120
_LIBRARY_CALL = re.compile(
    r"\b(?:dlopen|dlsym|cblas_\w+|[sdhc]gemm_?|mkl_\w+|dnnl_\w+|cublas\w+|cudnn\w+"
    r"|(?:at|torch|dnnl|mkldnn)::(?!vec::|(?:empty|zeros|ones|full|Tensor|IntArrayRef|dtype|device)"
    r"(?:_\w+|Options)?\b)[\w:]{1,200})\s*\("  # of any length: quadratic in the rest
)


def static_labels(source: str) -> tuple[Label, ...]:
    """Findings in the source text about how the candidate works, each with its line.

    A few of each name at most, with short evidence: names in a source can be of any length.
    """
    try:
        tree = parse(source)
    except (SyntaxError, ValueError):
        return ()
    except (RecursionError, MemoryError):
        return (Label("unreadable", "nested too deeply to be parsed"),)
    kept: dict[str, list[Label]] = {}
    for label in (*_findings(tree), *_library_findings(source)):
        of_a_kind = kept.setdefault(label.name, [])
        if len(of_a_kind) < _MAX_OF_A_KIND:
            of_a_kind.append(Label(label.name, label.evidence[:_MAX_EVIDENCE]))
    return tuple(label for of_a_kind in kept.values() for label in of_a_kind)


def disowned(labels: Iterable[Label]) -> bool:
    """Whether one of the labels says that the work is not the candidate's own.

    A call named like a library's in a text is none of those: it may be the candidate's own function
    of that name, and the imports of a build distinguish them.
    """
    return any(label.name in _DISOWNING for label in labels)


def without_guesses(labels: Iterable[Label]) -> list[Label]:
    """The labels that stay once torch's work has been counted: then the text adds nothing."""
    return [label for label in labels if label.name != _TORCH_COMPUTE]


def _findings(tree: ast.Module) -> Iterator[Label]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == "ModelNew":
            yield from _model_findings(node, _assigned(tree))
        if isinstance(node, ast.Call) and _dotted(node.func) in ("exec", "eval", "__import__"):
            yield Label("dynamic_code", f"line {node.lineno}: {_dotted(node.func)}(...)")
        if isinstance(node, ast.Attribute):
            yield from _attribute_findings(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _string_findings(node.lineno, node.value)
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _import_findings(node)


def _string_findings(line: int, text: str) -> Iterator[Label]:
    if text in _INTROSPECTION:
        yield Label("introspection", f"line {line}: the name {text!r}")
    if text.startswith("evolve.worker"):
        yield Label("evaluator_access", f"line {line}: the name {text!r}")


def _attribute_findings(node: ast.Attribute) -> Iterator[Label]:
    name = _dotted(node)
    if name == "torch.compile":
        yield Label("torch_compile", f"line {node.lineno}: torch.compile")
    if name in ("torch._C", "torch.overrides", "torch.utils._python_dispatch"):
        yield Label("torch_internals", f"line {node.lineno}: {name}")
    if node.attr in _INTROSPECTION:
        yield Label("introspection", f"line {node.lineno}: {node.attr}")
    if node.attr in _LOADERS:
        yield Label("foreign_library", f"line {node.lineno}: {name}")
    if name in ("threading.Thread", "concurrent.futures"):
        yield Label("own_threads", f"line {node.lineno}: {name}")


def _model_findings(model: ast.ClassDef, own: set[str]) -> Iterator[Label]:
    for base in model.bases:
        if _dotted(base).split(".")[-1] == "Model":
            yield Label("subclasses_reference", f"line {model.lineno}: class ModelNew(Model)")
    for node in ast.walk(model):
        if isinstance(node, ast.Try):
            yield Label("try_except", f"line {node.lineno}: try in ModelNew may hide a fallback")
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            yield from _forward_findings(node, own)


def _forward_findings(forward: ast.FunctionDef, own: set[str]) -> Iterator[Label]:
    for node in ast.walk(forward):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            yield Label(_TORCH_COMPUTE, f"line {node.lineno}: the @ operator in forward")
        if not isinstance(node, ast.Call):
            continue
        name = _dotted(node.func)
        module, _, function = name.rpartition(".")
        named = module in _FUNCTIONAL and function not in _HARMLESS.split()
        of_tensor = module and module not in (*_FUNCTIONAL, *own) and function in _METHODS.split()
        if named or of_tensor:
            yield Label(_TORCH_COMPUTE, f"line {node.lineno}: {name}(...) in forward")


def _assigned(tree: ast.Module) -> set[str]:
    """Names that the module gives to something, such as a loaded kernel."""
    targets = (t for node in tree.body if isinstance(node, ast.Assign) for t in node.targets)
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _import_findings(node: ast.Import | ast.ImportFrom) -> Iterator[Label]:
    modules = (
        [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module]
    )
    if isinstance(node, ast.ImportFrom) and node.module == "ctypes":
        for alias in node.names:
            if alias.name in _LOADERS:
                yield Label("foreign_library", f"line {node.lineno}: {alias.name} of ctypes")
    for module in modules:
        root = (module or "").split(".")[0]
        if root == "evolve":
            yield Label("evaluator_access", f"line {node.lineno}: import {module}")
        if root in ("ctypes", "subprocess", "socket", "gc", "inspect", "multiprocessing", "os"):
            yield Label("unusual_import", f"line {node.lineno}: import {module}")


def _library_findings(source: str) -> Iterator[Label]:
    """Calls out of a C++ text into a library that would do the work."""
    for number, line in enumerate(source.splitlines(), start=1):
        found = _LIBRARY_CALL.search(line)
        if found:
            yield Label("library_call", f"line {number}: {found[0]}")


def _dotted(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(parts)).lstrip(".") if parts[-1] else parts[0]
