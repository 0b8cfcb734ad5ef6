"""The parser is used by one thread at a time."""

import ast
import threading
import time
from pathlib import Path

import pytest

import evolve
from evolve.core.source.parsing import parse

PACKAGE = Path(evolve.__file__).parent


def test_no_two_threads_parse_at_the_same_time(monkeypatch):
    inside, most = set(), []

    def parsing(source, filename):
        inside.add(threading.get_ident())
        most.append(len(inside))
        time.sleep(0.005)
        inside.discard(threading.get_ident())
        return ast.Module([], [])

    monkeypatch.setattr(ast, "parse", parsing)
    threads = [threading.Thread(target=parse, args=("x = 1",)) for _ in range(4)]
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


@pytest.mark.parametrize("room", ["core", "languages", "worker"])
def test_nothing_that_a_judges_threads_share_parses_in_another_way(room):
    """Two first verdicts at once ended with a SystemError: the rules were read without the lock."""
    modules = {str(path): path.read_text() for path in (PACKAGE / room).rglob("*.py")}
    modules.pop(str(PACKAGE / "core/source/parsing.py"), None)
    assert modules
    assert [name for name, text in modules.items() if "ast.parse(" in text] == []
