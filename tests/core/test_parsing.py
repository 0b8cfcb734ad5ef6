"""The parser is used by one thread at a time."""

import ast
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import evolve
from evolve.core.source.parsing import literal_value, parse

PACKAGE = Path(evolve.__file__).parent


@pytest.mark.parametrize(("name", "use"), [("parse", parse), ("literal_eval", literal_value)])
def test_no_two_threads_parse_at_the_same_time(monkeypatch, name, use):
    inside, most = set(), []

    def parsing(*_):
        inside.add(threading.get_ident())
        most.append(len(inside))
        time.sleep(0.005)
        inside.discard(threading.get_ident())

    monkeypatch.setattr(ast, name, parsing)
    threads = [threading.Thread(target=use, args=("x = 1",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 4


def test_what_cannot_be_parsed_raises_and_others_go_on():
    for source, error in (("(", SyntaxError), ("x\0", (SyntaxError, ValueError))):
        try:
            parse(source)
        except error:
            continue
        raise AssertionError(source)
    assert parse("x = 1").body


def parsed_without_the_lock(tree: ast.AST, nodes: frozenset[str] = frozenset()) -> Iterator[str]:
    """Expressions of a module that parse by themselves; `nodes` are names of parsed arguments."""
    if isinstance(tree, ast.FunctionDef):
        given = (each for each in tree.args.args if each.annotation is not None)
        nodes = frozenset(a.arg for a in given if ast.unparse(a.annotation).startswith("ast."))
    match tree:
        case ast.Call(ast.Attribute(ast.Name("ast"), "literal_eval"), [ast.Name(name)]):
            if name not in nodes:
                yield ast.unparse(tree)
        case ast.Attribute(ast.Name("ast"), "parse" | "literal_eval" | "PyCF_ONLY_AST"):
            yield ast.unparse(tree)
        case ast.ImportFrom(module="ast"):
            yield ast.unparse(tree)
        case _:
            for child in ast.iter_child_nodes(tree):
                yield from parsed_without_the_lock(child, nodes)


@pytest.mark.parametrize(
    ("text", "finds"),
    [
        ("ast.parse(text)", True),
        ("list(map(ast.parse, texts))", True),
        ("ast.literal_eval(text)", True),
        ("ast.literal_eval(repr(value))", True),
        ("compile(text, path, 'exec', ast.PyCF_ONLY_AST)", True),
        ("from ast import literal_eval", True),
        ("def value(node: ast.expr):\n    return ast.literal_eval(node)", False),
        ("def value(text: str):\n    return ast.literal_eval(text)", True),
        ("ast.walk(tree)", False),
    ],
)
def test_the_guard_below_finds_each_way_to_parse(text, finds):
    assert bool([*parsed_without_the_lock(ast.parse(text))]) is finds


@pytest.mark.parametrize("room", ["core", "languages", "tasks", "worker"])
def test_nothing_that_threads_of_a_judge_or_server_share_parses_in_another_way(room):
    """Two first verdicts at once ended with a SystemError: the rules were read without the lock."""
    paths = {*(PACKAGE / room).rglob("*.py")} - {PACKAGE / "core/source/parsing.py"}
    assert paths
    found = {path: [*parsed_without_the_lock(ast.parse(path.read_text()))] for path in paths}
    assert {path: texts for path, texts in found.items() if texts} == {}
