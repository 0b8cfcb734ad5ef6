"""Guides name what the program has: labels, statuses, commands, settings and files."""

import ast
import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from evolve.app.config.compose import compose
from evolve.cli.main import VERBS, main
from evolve.core.evaluation import Status
from evolve.core.model import ReplyStatus
from evolve.worker.evidence.sanitizer import TOOLS

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "guides"
GUIDES = sorted(FOLDER.glob("*.md"))
VERSIONS = FOLDER / "judge_versions.md"  # numbers of the judge are its subject
PAGES = [*GUIDES, *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md"))]
MAX_WORDS = {"README.md": 900}
OTHERS = 1200


def names(page: Path) -> str:
    return page.name


# ---- statuses and labels


def of_tables(page: Path, *headings: str) -> set[str]:
    """Names in the first column of the tables below these headings; of all, without any."""
    found: set[str] = set()
    for section in re.split(r"^## ", page.read_text(), flags=re.MULTILINE)[1:]:
        if not headings or section.partition("\n")[0] in headings:
            for row in re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE):
                found |= set(re.findall(r"`([a-z_]+)`", row))
    return found


def constants(trees: list[ast.Module]) -> dict[str, str]:
    """Module-level names of strings."""
    return {
        target.id: node.value.value
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value.value, str)
    }


def spelled(node: ast.expr, known: dict[str, str]) -> Iterator[str]:
    """What the name of a label can be; of variables, the only one is the name of a tool."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=one, orelse=other):
            yield from (*spelled(one, known), *spelled(other, known))
        case ast.Name(id="kind"):
            yield from TOOLS
        case ast.Name(id=name):
            yield known[name]
        case ast.FormattedValue(value=value):
            yield from spelled(value, known)
        case ast.JoinedStr(values=[first, second]):
            for start in spelled(first, known):
                yield from (start + end for end in spelled(second, known))
        case ast.Attribute(attr="name") | ast.Call(func=ast.Name(id="label_name")):  # a copy
            return
        case _:
            raise AssertionError(f"a label of a name that this test cannot read: {ast.dump(node)}")


def labels() -> set[str]:
    """Names of labels that the judge can give, by its source."""
    trees = [ast.parse(path.read_text()) for path in (ROOT / "evolve").rglob("*.py")]
    known = constants(trees)
    calls = (
        node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Label"
    )
    return {
        name
        for call in calls
        if not isinstance(call.args[0], ast.Starred)
        for name in spelled(call.args[0], known)
    }


def test_the_guide_lists_the_statuses_of_the_judge():
    listed = of_tables(FOLDER / "troubleshooting.md", "Statuses of an evaluation")
    assert listed == {status.value for status in Status}


def test_the_guide_lists_the_labels_of_the_judge():
    text = (FOLDER / "troubleshooting.md").read_text()
    headings = re.findall(r"^## (Labels .*)$", text, re.MULTILINE)
    assert of_tables(FOLDER / "troubleshooting.md", *headings) == labels()


def test_the_guide_lists_the_statuses_of_replies():
    listed = of_tables(FOLDER / "operators.md", "Statuses of a reply")
    assert listed == {status.value for status in ReplyStatus}


# ---- commands


def commands(page: Path) -> list[list[str]]:
    """The words of each `evolve` command in the code of a page, from its verb on."""
    refused = r"^\$ evolve .*\nevolve: .*\n"  # examples of mistakes
    text = re.sub(refused, "", page.read_text(), flags=re.MULTILINE)
    blocks = re.findall(
        r"^```(?:\w*)\n(.*?)^```|^((?: {4}\S.*\n)+)", text, re.DOTALL | re.MULTILINE
    )
    inline = re.findall(
        r"`([^`\n]*)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    )
    lines = [line for pair in blocks for line in "".join(pair).replace("\\\n", " ").splitlines()]
    found = []
    for line in (*lines, *inline):
        match = re.match(r"\s*(?:\$ |while |PYTHONPATH=\. )*evolve (\w+.*)", line)
        if match:
            words = match[1].split(";")[0].split(" #")[0].split("&&")[0]
            found.append(shlex.split(words.replace("KEY:", "KEY ")))
    return found


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_its_commands_have_verbs_that_exist(page: Path):
    assert {words[0] for words in commands(page)} <= {*VERBS}


@cache
def shown_by_help(*words: str) -> str:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        main([*words, "--help"])
    return shown.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_its_options_exist(page: Path):
    for verb, *words in commands(page):
        own = words[: words.index("--")] if "--" in words else words  # then come the script's
        options = {word.partition("=")[0] for word in own if re.match(r"--?[a-zA-Z]", word)}
        if not options:
            continue
        action = [words[0]] if verb in ("db", "tasks", "knowledge", "team") and words else []
        shown = shown_by_help(verb, *action)
        for option in options - {"-m", "--help"}:
            assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", shown), (verb, option)


@pytest.mark.sample(6)
@pytest.mark.parametrize("page", PAGES, ids=names)
def test_its_settings_exist(page: Path):
    for verb, *words in commands(page):
        if verb != "run":
            continue
        words = [word.replace("llm.model=...", "llm.model=openai/scripted") for word in words]
        settings = [word for word in words if re.match(r"[+\w@./]+=(?!\.\.\.)", word)]
        sweeps = "-m" in words
        mine = [word for word in settings if not re.search(r"mine|abacus|\$\{", word)]
        compose([word.split(",")[0] if sweeps else word for word in ("task=softmax", *mine)])


# ---- pages


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_it_is_short(page: Path):
    assert len(page.read_text().split()) <= MAX_WORDS.get(page.name, OTHERS)


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_its_links_lead_somewhere(page: Path):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        to = (page.parent / path).resolve() if path else page
        assert to.exists(), target
        assert not anchor or anchor in anchors(to), target


def test_the_index_lists_every_guide():
    listed = set(re.findall(r"\]\((\w+\.md)", (FOLDER / "README.md").read_text()))
    assert listed == {page.name for page in GUIDES} - {"README.md"}


@pytest.mark.parametrize("page", sorted({*GUIDES} - {VERSIONS}), ids=names)
def test_a_guide_has_no_dates_and_no_judge_numbers(page: Path):
    assert not re.findall(r"\b20\d\d-\d\d-\d\d\b|\b[Jj]udges? \d+\b", page.read_text())
