"""The reference's own text: its constructor, and the definitions that it needs."""

import ast
import symtable
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

from operators.local.inductor.reading import NotConvertible

_ENTRY_POINTS = frozenset(("Model", "get_inputs", "get_init_inputs"))


@dataclass(frozen=True, slots=True)
class Reference:
    """Text of a task that a program goes on using.

    Attributes:
        imports: statements.
        definitions: constants, functions and classes that the constructor needs, in order.
        constructor: `class ModelNew` without its `forward`.
        itself: the constructor's name for the module, usually `self`.
        parameters: those of `forward`, `self` first.
        names: parameters of `forward`, that of further arguments among them.
        given: them as the arguments of a call.
        bound: names of imports and definitions.
    """

    imports: tuple[str, ...]
    definitions: tuple[str, ...]
    constructor: str
    itself: str
    parameters: str
    names: tuple[str, ...]
    given: str
    bound: frozenset[str]


def read_reference(task: str) -> Reference:
    """Take a task's text apart. Raises NotConvertible if it has no plain class `Model`."""
    module = ast.parse(task)
    model = next(
        (n for n in module.body if isinstance(n, ast.ClassDef) and n.name == "Model"), None
    )
    if model is None:
        raise NotConvertible("the task's file defines no class Model")
    methods = _methods(model)
    forward = _forward(module, model)
    if forward is None:
        raise NotConvertible("neither Model nor a class of its file that it is of has a forward")
    kept = _reached(methods, [name for name in ("__init__",) if name in methods])
    class_level = [n for n in model.body if isinstance(n, ast.Assign | ast.AnnAssign)]
    body = [*class_level, *(methods[name] for name in methods if name in kept)]
    constructor = _constructor(task, model, body, _of_this_package(module))
    needed = _globals(constructor) | _names(forward.args)
    others = [n for n in module.body if getattr(n, "name", "") not in _ENTRY_POINTS]
    imported = [node for node in others if isinstance(node, ast.Import | ast.ImportFrom)]
    definitions, needed = _needed(task, [n for n in others if n not in imported], needed)
    imports = [ast.unparse(node) for node in imported]
    imports = [text for text in imports if bound(*ast.parse(text).body) & needed]
    texts = [*imports, *definitions]
    forward.args.args[0].arg = "self"
    return Reference(
        imports=tuple(imports),
        definitions=tuple(definitions),
        constructor=constructor,
        itself=_first(methods["__init__"]) if "__init__" in methods else "self",
        parameters=ast.unparse(forward.args),
        names=_given(forward.args),
        given=", ".join(_given(forward.args, "*")),
        bound=frozenset().union(*(bound(node) for t in texts for node in ast.parse(t).body)),
    )


def _methods(model: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in model.body if isinstance(node, ast.FunctionDef)}


def _forward(module: ast.Module, model: ast.ClassDef) -> ast.FunctionDef | None:
    """Its own, or that of the first base in the file that has one."""
    if found := _methods(model).get("forward"):
        return found
    known = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    names = (name for name in map(ast.unparse, model.bases) if name in known)
    bases = [known[name] for name in names if known[name] is not model]
    return next((found for base in bases if (found := _forward(module, base))), None)


def _given(parameters: ast.arguments, star: str = "") -> tuple[str, ...]:
    """The parameters after the first; with a star before further ones, as a call passes them on."""
    further = [f"{star}{parameters.vararg.arg}"] if parameters.vararg else []
    return (*(one.arg for one in parameters.args[1:]), *further)


def _first(method: ast.FunctionDef) -> str:
    return method.args.args[0].arg


def _of_this_package(module: ast.Module) -> set[str]:
    """Names of classes that only change how forward is called, which a program does itself."""
    found = (node for node in module.body if isinstance(node, ast.ImportFrom))
    own = (node for node in found if (node.module or "").partition(".")[0] == "evolve")
    return {alias.asname or alias.name for node in own for alias in node.names}


def _constructor(
    task: str, model: ast.ClassDef, body: Iterable[ast.stmt], left_out: set[str]
) -> str:
    bases = map(ast.unparse, model.bases)
    kept = [name for name in bases if name.partition(".")[0] not in left_out]
    texts = [_renamed(_text(task, node)) for node in body]
    inside = "\n\n".join(textwrap.indent(text, " " * 4) for text in texts)
    if not any(isinstance(node, ast.FunctionDef) for node in body):
        taken = ", *arguments, **settings" if kept else ""  # by the base's constructor
        inside = (inside + "\n\n" if inside else "") + (
            f"    def __init__(self{taken}):\n        super().__init__({taken[2:]})"
        )
    return f"class ModelNew({', '.join(kept) or 'torch.nn.Module'}):\n{inside}"


def _renamed(text: str) -> str:
    """`super(Model, self)` is a name like any other."""
    tree = ast.parse(text)
    if not any(isinstance(n, ast.Name) and n.id == "Model" for n in ast.walk(tree)):
        return text
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "Model":
            node.id = "ModelNew"
    return ast.unparse(tree)


def _text(task: str, node: ast.stmt) -> str:
    """A statement as it is written, without its indentation and its documentation."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
        node.body = node.body[1:] or [ast.Pass()]
        return ast.unparse(node)
    segment = ast.get_source_segment(task, node, padded=True) or ast.unparse(node)
    decorators = "".join(f"@{ast.unparse(d)}\n" for d in getattr(node, "decorator_list", []))
    return decorators + textwrap.dedent(segment)


def _needed(task: str, nodes: list[ast.stmt], needed: set[str]) -> tuple[list[str], set[str]]:
    """Text of all definitions that the names need, directly or not, and all names then needed."""
    wanted: set[int] = set()
    grown = True
    while grown:
        grown = False
        for at, node in enumerate(nodes):
            if at not in wanted and bound(node) & needed:
                wanted.add(at)
                needed = needed | _globals(ast.unparse(node))
                grown = True
    return [_text(task, nodes[at]) for at in sorted(wanted)], needed


def bound(node: ast.stmt) -> set[str]:
    """Names that a statement of a module binds."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {(alias.asname or alias.name).split(".")[0] for alias in names}
    return set()


def _globals(text: str) -> set[str]:
    """Names of the module that the text reads, at any depth."""
    found: set[str] = set()
    waiting = [symtable.symtable(text, "task", "exec")]
    while waiting:
        table = waiting.pop()
        waiting += table.get_children()
        top = table.get_type() == "module"
        found |= {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_referenced() and (top or symbol.is_global())
        }
    return found


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _reached(methods: dict[str, ast.FunctionDef], start: list[str]) -> set[str]:
    """Methods that are called, directly or not, as `self.name`."""
    found = set(start)
    waiting = list(start)
    while waiting:
        for node in ast.walk(methods[waiting.pop()]):
            name = node.attr if isinstance(node, ast.Attribute) else "forward"
            if name in methods and name not in found and name != "forward":
                found.add(name)
                waiting.append(name)
    return found
