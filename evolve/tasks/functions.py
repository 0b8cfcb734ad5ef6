"""Function tasks: the class `Model` around a function, as text.

A task may be a function in place of a module: positional and keyword arguments, nested outputs,
outputs that are written into arguments, and no state. A candidate is a `ModelNew` as for all
tasks; its `forward` gets one argument for each parameter of the function, in the order of the
signature.
"""

import ast

from evolve.core.source.parsing import parse

ENTRY = "reference"  # name of the function in a user's file
HELPER = "evolve.testing.suite_tasks.calls"


def with_model(source: str) -> str:
    """A user's task file with a `Model`, if it defines the function `reference` in its place.

    `get_inputs` gives positional arguments as a list, or arguments by name as a dict.
    """
    tree = _parsed(source)
    if tree is None or not _is_function_task(tree):
        return source
    return "\n".join(
        [
            *(source, "", f"from {HELPER} import arguments_of as _arguments_of"),
            *("", "", model_text(source, ENTRY), "", ""),
            "_calls_of = get_inputs\n",
            "\ndef get_inputs():",
            f"    return _arguments_of({ENTRY}, _calls_of())\n",
            *([] if _defines(tree, "get_init_inputs") else [NO_STATE]),
        ]
    )


NO_STATE = "\ndef get_init_inputs():\n    return []\n"


def seed_of(reference: str, entry: str) -> str:
    """A program to start from: the reference itself, whose function `ModelNew` calls."""
    return f"{reference.strip()}\n\n\n{model_text(reference, entry, 'ModelNew')}"


def model_text(source: str, entry: str, name: str = "Model") -> str:
    """The class of this name that calls a function of the source; it needs no import beside it.

    An argument of `*xs` is one tuple, of `**options` one dict. A function that the source assigns
    (`relu = torch.relu`) takes a tuple and a dict, for its signature is not in the text.
    """
    parameters, call = _parameters(source, entry)
    return (
        f"class {name}(__import__('torch').nn.Module):\n"
        f'    """The function `{entry}` as a module without state."""\n\n'
        f"    def forward({', '.join(['self', *parameters])}):\n"
        f"        return {entry}({', '.join(call)})\n"
    )


def _parameters(source: str, entry: str) -> tuple[list[str], list[str]]:
    """Names of the parameters, and the arguments of the call that passes them on."""
    tree = _parsed(source)
    body = tree.body if tree else []
    defined = [s for s in body if isinstance(s, ast.FunctionDef) and s.name == entry]
    if not defined:
        return ["args", "kwargs"], ["*args", "**kwargs"]
    arguments = defined[-1].args
    plain = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    many = [arguments.vararg.arg] if arguments.vararg else []
    named = [a.arg for a in arguments.kwonlyargs]
    rest = [arguments.kwarg.arg] if arguments.kwarg else []
    call = [*plain, *(f"*{n}" for n in many), *(f"{n}={n}" for n in named)]
    return [*plain, *many, *named, *rest], [*call, *(f"**{n}" for n in rest)]


def _is_function_task(tree: ast.Module) -> bool:
    functions = {s.name for s in tree.body if isinstance(s, ast.FunctionDef)}
    return {ENTRY, "get_inputs"} <= functions and not _defines(tree, "Model")


def _defines(tree: ast.Module, name: str) -> bool:
    kinds = ast.FunctionDef | ast.ClassDef
    return any(isinstance(s, kinds) and s.name == name for s in tree.body)


def _parsed(source: str) -> ast.Module | None:
    try:
        return parse(source)
    except (SyntaxError, ValueError):
        return None  # said where the task is read
