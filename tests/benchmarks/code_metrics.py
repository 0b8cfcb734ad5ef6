"""The table of the code's metrics for two or more commits, counted in the same way.

    python -m tests.benchmarks.code_metrics 48f7960 HEAD

Lengths include docstrings. Nesting counts `if`, `for`, `while`, `with`, `try`, `match` and their
branches, an `elif` as no further level. Complexity is one more than the branches, boolean operators
and comprehensions' conditions of a function. Public functions and classes are those whose name has
no leading underscore. Kernels in the product (`@triton.jit`) count like other functions.
"""

import argparse
import ast
import io
import re
import subprocess
import tarfile
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
PRODUCT = ("evolve", "operators", "archives")
_BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match, ast.AsyncFor, ast.AsyncWith)
_BRANCHES = (ast.If, ast.For, ast.While, ast.AsyncFor, ast.ExceptHandler, ast.IfExp, ast.match_case)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commits", nargs="+", help="to compare, the oldest first")
    commits = parser.parse_args().commits
    columns = [metrics_of(commit) for commit in commits]
    print("| metric |", " | ".join(commits), "|")
    print("| --- " * (len(commits) + 1) + "|")
    for name in columns[-1]:
        print(f"| {name} |", " | ".join(column[name] for column in columns), "|")


def metrics_of(commit: str) -> dict[str, str]:
    """The metrics of a commit by name, as text."""
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
        return measured(Path(folder))


def measured(root: Path) -> dict[str, str]:
    """The metrics of a checkout."""
    files = sorted(path for name in PRODUCT for path in (root / name).rglob("*.py"))
    texts = {path.relative_to(root): path.read_text() for path in files}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    lines = {path: text.count("\n") for path, text in texts.items()}
    functions = [node for tree in trees.values() for node in _functions(tree)]
    total = sum(lines.values())
    tests = sum(path.read_text().count("\n") for path in (root / "tests").rglob("*.py"))
    nesting = [depth(function) for function in functions]
    return {
        "product lines (Python)": f"{total:,}",
        "tests / product lines": f"{tests / total:.2f}",
        "module median / p90 / max": _spread(list(lines.values())),
        "modules; below 60 lines": f"{len(lines)}; {sum(n < 60 for n in lines.values())}",
        "most Python files in one folder": _fullest(trees),
        "function median / p90 / max": _spread([length(function) for function in functions]),
        "max nesting; share of functions with 4 or more": f"{max(nesting)}; "
        + _share(sum(n >= 4 for n in nesting), len(nesting)),
        "functions with complexity above 10": _of(
            sum(complexity(function) > 10 for function in functions), len(functions)
        ),
        "broad `except`": str(sum(_broad_excepts(tree) for tree in trees.values())),
        "public functions and classes documented": _documented(trees),
        "fully annotated functions": _share(sum(map(is_annotated, functions)), len(functions)),
        "comments / docstring lines": _prose_lines(texts, trees, total),
        "names of files in two or more packages": str(_shared_names(texts)),
        "`Any` on a line of a signature or field": str(_anys(trees)),
        "`getattr`": str(sum(text.count("getattr(") for text in texts.values())),
        "guides: files, words, longest": _guides(root),
        "README words": f"{_words(root / 'README.md'):,}",
        "CHANGELOG words": f"{_words(root / 'CHANGELOG.md'):,}",
    }


def _functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def length(node: Function) -> int:
    """Lines from `def` to the last statement."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def depth(node: ast.AST) -> int:
    """Nested blocks in a function, those of inner functions left out."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef):
            continue
        is_elif = isinstance(node, ast.If) and [child] == node.orelse and isinstance(child, ast.If)
        deepest = max(deepest, depth(child) + (isinstance(child, _BLOCKS) and not is_elif))
    return deepest


def complexity(node: ast.AST) -> int:
    """McCabe's, with boolean operators and conditions of comprehensions."""
    found = 1
    for child in ast.walk(node):
        found += isinstance(child, _BRANCHES)
        found += len(child.values) - 1 if isinstance(child, ast.BoolOp) else 0
        found += len(child.ifs) if isinstance(child, ast.comprehension) else 0
    return found


def is_annotated(node: Function) -> bool:
    """Whether the result and all parameters but `self` and `cls` have types."""
    arguments = node.args
    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    given += [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    typed = all(one.annotation or one.arg in ("self", "cls") for one in given)
    return typed and (node.returns is not None or node.name == "__init__")


def _broad_excepts(tree: ast.AST) -> int:
    handlers = [node.type for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)]
    broad = ("Exception", "BaseException")
    return sum(kind is None or ast.unparse(kind) in broad for kind in handlers)


def _documented(trees: dict[Path, ast.Module]) -> str:
    public = [
        node
        for tree in trees.values()
        for scope in ast.walk(tree)
        if isinstance(scope, ast.Module | ast.ClassDef)
        for node in scope.body
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_")
    ]
    return _share(sum(ast.get_docstring(node) is not None for node in public), len(public))


def _prose_lines(texts: dict[Path, str], trees: dict[Path, ast.Module], total: int) -> str:
    comments = sum(
        token.type == tokenize.COMMENT
        for text in texts.values()
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
    )
    documented = 0
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node):
                text = node.body[0]
                documented += (text.end_lineno or text.lineno) - text.lineno + 1
    return f"{_share(comments, total)} / {_share(documented, total)}"


def _fullest(trees: dict[Path, ast.Module]) -> str:
    folders = Counter(path.parent for path in trees)
    ((folder, count),) = folders.most_common(1)
    return f"{count} ({folder})"


def _shared_names(texts: dict[Path, str]) -> int:
    packages: dict[str, set[Path]] = {}
    for path in texts:
        if path.name not in ("__init__.py", "__main__.py"):
            packages.setdefault(path.name, set()).add(path.parent)
    return sum(len(found) > 1 for found in packages.values())


def _anys(trees: dict[Path, ast.Module]) -> int:
    """Lines of signatures and annotated fields that name `Any`."""
    found = 0
    for tree in trees.values():
        marked: set[int] = set()
        for node in ast.walk(tree):
            types = [node.annotation] if isinstance(node, ast.AnnAssign | ast.arg) else []
            types += [node.returns] if isinstance(node, Function) else []
            marked |= {
                one.lineno for one in types if one and re.search(r"\bAny\b", ast.unparse(one))
            }
        found += len(marked)
    return found


def _guides(root: Path) -> str:
    words = {path.name: _words(path) for path in (root / "examples" / "guides").glob("*.md")}
    longest = max(words, key=lambda name: words[name])
    return f"{len(words)}, {sum(words.values()):,}, {words[longest]:,} ({longest})"


def _words(path: Path) -> int:
    return len(path.read_text().split())


def _spread(values: list[int]) -> str:
    ordered = sorted(values)
    return f"{median(ordered):.0f} / {ordered[int(0.9 * len(ordered))]} / {ordered[-1]}"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %"


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole:,} ({_share(part, whole)})"


if __name__ == "__main__":
    main()
