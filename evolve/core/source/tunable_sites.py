"""The places of tunables in a source's text (see evolve.core.source.tunables)."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from evolve.core.errors import UsageError
from evolve.core.program import TunableValue
from evolve.core.source import cpptext
from evolve.core.source.pytext import Module, Text

DECLARATION = "TUNABLE"

_LIMIT = 2**63

_CPP_VALUE = r"(?P<value>[^;{{}}\n]+?)"
_CPP_CONSTANT = (
    r"\b(?:constexpr|const)\b[\w:<>\s]*?\b(?P<name>{name})\s*(?:=\s*"
    + _CPP_VALUE
    + r"\s*;|\{{\s*"
    + _CPP_VALUE.replace("value", "braced")
    + r"\s*\}}\s*;)"
)
_CPP_MACRO = r"^[ \t]*\#[ \t]*define[ \t]+(?P<name>{name})[ \t]+" + _CPP_VALUE + r"[ \t]*$"
_CPP_NUMBER = re.compile(
    r"(?P<float>[+-]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?)[fFlL]?"
    r"|(?P<int>[+-]?(?:0[xX][\da-fA-F']+|0[bB][01']+|\d[\d']*))[uUlLzZ]*"
)
_CPP_WORD = re.compile(r"[A-Za-z_][\w:]*")


@dataclass(frozen=True, slots=True)
class Site:
    """The characters that hold a tunable's value, and the text for each choice."""

    name: str
    default: TunableValue | None
    start: int
    end: int
    written: Mapping[TunableValue, str]


@dataclass(frozen=True, slots=True)
class Declaration:
    """The `TUNABLE = {...}` statement; `is_read` if the module uses the name itself."""

    statement: ast.Assign | ast.AnnAssign
    choices: Mapping[str, tuple[TunableValue, ...]]
    is_read: bool


def find_sites(module: Module) -> list[Site]:
    """The sites of all tunables of a module, declared ones first."""
    found = declaration(module)
    sites = [_declared_site(module, found, name) for name in found.choices] if found else []
    sites += _autotune_sites(module)
    names = [site.name for site in sites]
    for name in names:
        if names.count(name) > 1:
            raise _error(name, None, "is declared twice", "rename one of the two kernels")
    return sites


def _error(name: str, line: int | None, fact: str, remedy: str) -> UsageError:
    where = f", line {line}" if line else ""
    return UsageError(f"tunable {name}{where}: {fact}; {remedy}")


def _assignments(module: Module, name: str) -> list[ast.Assign | ast.AnnAssign]:
    """Plain module-level assignments to a name. Raises UsageError if it is bound otherwise."""
    plain: list[ast.Assign | ast.AnnAssign] = []
    for statement in module.tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=found)]) if found == name:
                plain.append(statement)
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr()) if found == name:
                plain.append(statement)
    lines = [node.lineno for node in _bindings(module.tree) if node.id == name]
    if len(lines) > 1:
        places = ", ".join(map(str, lines))
        raise _error(name, lines[-1], f"is bound on lines {places}", "bind it once, in one literal")
    return plain


def _bindings(node: ast.AST) -> Iterator[ast.Name]:
    """Names bound in the module's own scope."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(child, ast.Name) and isinstance(child.ctx, (ast.Store, ast.Del)):
            yield child
        yield from _bindings(child)


def declaration(module: Module) -> Declaration | None:
    """The module's `TUNABLE` statement, checked; None if it has none."""
    statements = _assignments(module, DECLARATION)
    if not statements:
        return None
    statement = statements[0]
    remedy = f'write {DECLARATION} = {{"NAME": (32, 64, 128)}} in literals'
    if not isinstance(statement.value, ast.Dict):
        raise _error(DECLARATION, statement.lineno, "is not a dict literal", remedy)
    choices: dict[str, tuple[TunableValue, ...]] = {}
    for key, value in zip(statement.value.keys, statement.value.values, strict=True):
        name = key.value if isinstance(key, ast.Constant) else None
        if not isinstance(name, str) or not name.isidentifier():
            raise _error(DECLARATION, value.lineno, "has a key that is not a name", remedy)
        if name in choices:
            raise _error(name, value.lineno, "is declared twice", "keep one of the two entries")
        choices[name] = _choices(module, name, value)
    is_read = any(
        isinstance(node, ast.Name) and node.id == DECLARATION and isinstance(node.ctx, ast.Load)
        for node in ast.walk(module.tree)
    )
    return Declaration(statement, choices, is_read)


def _choices(module: Module, name: str, node: ast.expr) -> tuple[TunableValue, ...]:
    remedy = "list its values in a tuple, e.g. (32, 64, 128)"
    if not isinstance(node, (ast.Tuple, ast.List)):
        raise _error(name, node.lineno, "its choices are not a tuple of literals", remedy)
    if not node.elts:
        raise _error(name, node.lineno, "has no choices", remedy)
    choices = tuple(_literal(module, name, element) for element in node.elts)
    kinds = sorted({type(choice).__name__ for choice in choices})
    if len(kinds) > 1:
        raise _error(name, node.lineno, f"mixes {' and '.join(kinds)}", "use values of one type")
    if len(set(choices)) < len(choices):
        raise _error(name, node.lineno, "repeats a choice", "list every value once")
    return choices


def _literal(module: Module, name: str, node: ast.expr) -> TunableValue:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError):
        value = None
    if not isinstance(value, (int, float, bool, str)):
        fact = f"{module.segment(node)} is not a literal int, float, bool or str"
        raise _error(name, node.lineno, fact, "write the value out")
    if not isinstance(value, str) and not abs(value) < _LIMIT:
        raise _error(name, node.lineno, "a value is too large", "stay within 64 bits")
    return value


def _declared_site(module: Module, found: Declaration, name: str) -> Site:
    choices = found.choices[name]
    statements = _assignments(module, name)
    if statements:
        node = _value_node(statements[0])
        default, (start, end) = _literal(module, name, node), module.span(node)
        written = {choice: repr(choice) for choice in choices}
        line = node.lineno
    else:
        default, start, end, line = _cpp_constant(module, found, name)
        written = {choice: _cpp_write(name, line, choice) for choice in choices}
    if not any(choice == default and type(choice) is type(default) for choice in choices):
        fact = f"its value {default!r} is not among its choices {list(choices)}"
        raise _error(name, line, fact, "add it to the choices or change the constant")
    written[default] = module.source[start:end]  # in any spelling
    return Site(name, default, start, end, written)


def _value_node(statement: ast.Assign | ast.AnnAssign) -> ast.expr:
    """The literal of a constant, also within `tl.constexpr(...)`."""
    match statement.value:
        case ast.Call(
            func=ast.Attribute(attr="constexpr") | ast.Name(id="constexpr"),
            args=[node],
            keywords=[],
        ):
            return node
        case ast.expr() as node:
            return node
    raise ValueError("an assignment without a value")


def _cpp_constant(
    module: Module, found: Declaration, name: str
) -> tuple[TunableValue, int, int, int]:
    """Value, span and line of a constant that C++ text within the module defines."""
    hits: list[tuple[Text, int, int]] = []
    declared = module.span(found.statement)
    for text in module.texts:
        if declared[0] <= text.start < declared[1]:
            continue
        hits += [(text, *span) for span in _cpp_spans(cpptext.mask(text.value), name)]
    if not hits:
        raise _error(
            name,
            found.statement.lineno,
            "is no module constant, and no module-level string defines it",
            f"add {name} = <value>, or constexpr int {name} = <value>; to the C++ source",
        )
    if len(hits) > 1:
        lines = ", ".join(str(text.line) for text, _, _ in hits)
        fact = f"is defined {len(hits)} times in the strings of lines {lines}"
        raise _error(name, hits[-1][0].line, fact, "define it once, or rename one")
    text, start, end = hits[0]
    value, length = _cpp_read(text.value[start:end])
    if value is None:
        fact = f"{text.value[start:end]} is not a literal number, true, false or word"
        raise _error(name, text.line, fact, "write the value out")
    return value, text.offsets[start], text.offsets[start + length], text.line


def _cpp_spans(masked: str, name: str) -> Iterator[tuple[int, int]]:
    for match in re.finditer(_CPP_CONSTANT.format(name=name), masked):
        yield match.span("value" if match["value"] is not None else "braced")
    for match in re.finditer(_CPP_MACRO.format(name=name), masked, re.MULTILINE):
        yield match.span("value")


def _cpp_read(text: str) -> tuple[TunableValue | None, int]:
    """A C++ literal's value, and its length without a suffix (`u`, `f`, ...)."""
    if text in ("true", "false"):
        return text == "true", len(text)
    if _CPP_WORD.fullmatch(text):
        return text, len(text)
    match = _CPP_NUMBER.fullmatch(text)
    if match is None:
        return None, 0
    if match["float"] is not None:
        return float(match["float"]), match.end("float")
    try:
        return int(match["int"].replace("'", ""), 0), match.end("int")
    except ValueError:  # octal
        return None, 0


def _cpp_write(name: str, line: int, value: TunableValue) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and (not _CPP_WORD.fullmatch(value) or value in ("true", "false")):
        raise _error(name, line, f"choice {value!r} is no C++ word", "use a type or macro name")
    return str(value)


def _autotune_sites(module: Module) -> Iterator[Site]:
    for kernel in module.tree.body:
        if isinstance(kernel, ast.FunctionDef):
            for decorator in kernel.decorator_list:
                configs = _autotune_configs(decorator)
                if configs is not None:
                    yield _config_site(module, kernel.name, configs)


def _autotune_configs(decorator: ast.expr) -> ast.List | None:
    """The literal list of configs of an autotune decorator, if it is one and has one."""
    if not isinstance(decorator, ast.Call) or _last_name(decorator.func) != "autotune":
        return None
    named = [keyword.value for keyword in decorator.keywords if keyword.arg == "configs"]
    match [*named, *decorator.args][:1]:
        case [ast.List(elts=[_, *_] as elements) as configs] if _all_configs(elements):
            return configs
    return None


def _all_configs(elements: Sequence[ast.expr]) -> bool:
    return all(
        isinstance(element, ast.Call) and _last_name(element.func) == "Config"
        for element in elements
    )


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _config_site(module: Module, kernel: str, configs: ast.List) -> Site:
    start, end = module.span(configs)
    written: dict[TunableValue, str] = {}
    for element in configs.elts:
        written.setdefault(ast.unparse(element), f"[{module.segment(element)}]")
    default = None
    if len(configs.elts) == 1:
        default = ast.unparse(configs.elts[0])
        written[default] = module.source[start:end]
    return Site(f"{kernel}.config", default, start, end, written)
