"""How many random faults in a package are noticed by that package's own tests.

    python -m tests.benchmarks.mutate_packages --out mutants.jsonl --mutants 16
    python -m tests.benchmarks.mutate_packages --out mutants.jsonl --table
    python -m tests.benchmarks.mutate_packages --out mutants.jsonl --again

A mutant is one changed operator, comparison, constant or return value (DeMillo, Lipton and Sayward,
1978). Packages take turns; within one, every place that can be changed is equally likely. Left as
they are, because no behaviour follows from them: types and decorators, defaults of functions
without a body (protocols), the sizes of caches. A returned `None` becomes a true value, for 0 is as
false; a returned True or False is changed as a constant only; a number from 100 up is doubled, for
one more in a hundred is the same limit to its user. Each mutant is judged in a temporary copy of
the project by the tests of the same package without those marked `slow`, `gpu` or `quiet`: first by
those that execute the changed line, up to the first that fails, and only if all pass by the whole
package's, the files that import the changed module first. Which tests execute a line is found by a
run of the package as it is (`pip install pytest-cov`), which has to pass: a test that fails anyway
would notice every mutant. The map is kept beside the output file under a digest of sources and
tests, and made anew for others. It orders the tests; with `--near` it also chooses them. What is in
the output file is not judged again, unless `--again` asks for its survivors, which are looked up in
the sources as they are now.
"""

import argparse
import ast
import builtins
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from evolve.app.text import table
from evolve.core.source.pytext import Edit, Module, apply
from tests.benchmarks.conditions import print_conditions

PROJECT = Path(__file__).parents[2]
GOAL = 0.85
PACKAGES = {  # source folder, and the folders of its tests
    "archives": ("archives", ("archives",)),
    "core": ("evolve/core", ("core",)),
    "llm": ("evolve/llm", ("llm",)),
    "operators": ("operators", ("operators",)),
    "report": ("evolve/report", ("report",)),
    "search": ("evolve/search", ("search",)),
    "store": ("evolve/store", ("store",)),
    "trajectories": ("evolve/trajectories", ("trajectories", "trajectories_export")),
}
UNCHANGED = ("operators/local/ports/kernels", "operators/local/templates/kernels")
"""Source that other suites judge: kernels that only a GPU compiles."""

_OPERATORS = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "//",
    ast.Pow: "*", ast.BitAnd: "|", ast.BitOr: "&", ast.LShift: ">>", ast.RShift: "<<",
}  # fmt: skip
_COMPARISONS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
_MAX_S = 900.0
_QUICK = "not slow and not gpu and not quiet"
MEASURED = ("evolve", "operators", "archives")
_COVERAGE = f"[run]\nrelative_files = True\nsource = {', '.join(MEASURED)}\n"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: `before` becomes `after` at `line` of `path`."""

    package: str
    path: str
    kind: str
    line: int
    before: str
    after: str
    start: int
    end: int


def changes(module: Module) -> Iterator[tuple[str, ast.expr, str]]:
    """Every place of a module that can be changed: kind, node, and the text in its place."""
    left_out = set(_left_out(module.tree))
    for node in ast.walk(module.tree):
        if id(node) in left_out:
            continue
        match node:
            case ast.BinOp(op=op) if type(op) in _OPERATORS and not _is_text(node):
                yield "operator", node, _joined(module, node, _OPERATORS[type(op)])
            case ast.BoolOp(op=op):
                word = " or " if isinstance(op, ast.And) else " and "
                yield "operator", node, word.join(f"({module.segment(v)})" for v in node.values)
            case ast.UnaryOp(op=ast.Not()):
                yield "operator", node, f"({module.segment(node.operand)})"
            case ast.Compare(ops=[op], left=left, comparators=[right]):
                sides = module.segment(left), module.segment(right)
                yield "comparison", node, f"({sides[0]}) {_COMPARISONS[type(op)]} ({sides[1]})"
            case ast.Constant() | ast.Return():
                yield from _of_value(node)


def _of_value(node: ast.Constant | ast.Return) -> Iterator[tuple[str, ast.expr, str]]:
    match node:
        case ast.Constant(value=bool() as value):
            yield "constant", node, str(not value)
        case ast.Constant(value=int() | float() as value):
            yield "constant", node, repr(2 * value if value >= 100 else value + 1)
        case ast.Return(value=ast.Constant(value=bool())):
            pass
        case ast.Return(value=ast.expr() as value):
            is_none = isinstance(value, ast.Constant) and value.value is None
            yield "return", value, "1" if is_none else "None"


def _joined(module: Module, node: ast.BinOp, operator: str) -> str:
    return f"({module.segment(node.left)}) {operator} ({module.segment(node.right)})"


def _is_text(node: ast.BinOp) -> bool:
    """Whether it joins or formats texts, where another operator only fails to run."""
    sides = (node.left, node.right)
    return any(
        isinstance(one, ast.JoinedStr)
        or (isinstance(one, ast.Constant) and isinstance(one.value, str))
        for one in sides
    )


def _left_out(tree: ast.Module) -> Iterator[int]:
    """Nodes whose change changes no behaviour, or nothing but whether the program runs."""
    for node in ast.walk(tree):
        found = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        found += getattr(node, "decorator_list", [])
        match node:
            case ast.Call(func=ast.Name(id="TypeVar" | "cast" | "lru_cache")):
                found += [*node.args, *node.keywords]
            case ast.BinOp(op=ast.BitOr()) if _is_type(node.left) or _is_type(node.right):
                found.append(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef() if _has_no_body(node):
                found += [*node.args.defaults, *node.args.kw_defaults]
        for one in found:
            if isinstance(one, ast.AST):
                yield from map(id, ast.walk(one))


def _is_type(node: ast.expr) -> bool:
    """Whether it is a built-in type, or the None of a union."""
    name = getattr(node, "id", "None" if getattr(node, "value", "") is None else "")
    return name == "None" or isinstance(getattr(builtins, name, None), type)


def _has_no_body(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether nothing but a docstring or `...` is in it."""
    return all(isinstance(e, ast.Expr) and isinstance(e.value, ast.Constant) for e in node.body)


def mutants(package: str, seed: int) -> list[Mutant]:
    """Every mutant of a package, in random order."""
    found = []
    for path in sorted((PROJECT / PACKAGES[package][0]).rglob("*.py")):
        name = str(path.relative_to(PROJECT))
        if not name.startswith(UNCHANGED):
            found += _of_file(package, name, Module(path.read_text()))
    random.Random(f"{seed} {package}").shuffle(found)
    return found


def _of_file(package: str, name: str, module: Module) -> Iterator[Mutant]:
    for kind, node, after in changes(module):
        start, end = module.span(node)
        before = module.source[start:end]
        yield Mutant(package, name, kind, node.lineno, before, f"({after})", start, end)


def _digest(project: Path) -> str:
    """Of all that decides which tests there are, what they execute and whether they pass."""
    names = [*MEASURED, "tests", "examples", "conf", "pyproject.toml"]
    found = hashlib.sha256()
    for place in (project / name for name in names):
        for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if file.is_file():
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                found.update(f"{file.relative_to(project)} {content}\n".encode())
    return found.hexdigest()[:16]


class Copy:
    """A copy of the project in which one file at a time is changed.

    Args:
        folder: An empty folder for the copy.
        maps: A folder for the maps from lines to tests; those of the same files are used.
        near_only: Leave out the tests that do not execute the line, if there are others.
    """

    def __init__(self, folder: Path, maps: Path, *, near_only: bool) -> None:
        self._near_only = near_only
        self.folder = folder / "project"
        self._maps = maps.absolute()
        self._settings = folder / "coveragerc"
        self._settings.write_text(_COVERAGE)
        left_out = shutil.ignore_patterns(".*", "__pycache__", "dist", "outputs", "runs")
        shutil.copytree(PROJECT, self.folder, ignore=left_out)
        self._digest = _digest(self.folder)

    def unchanged(self, package: str) -> tuple[str, str, float]:
        """Run the tests on the package as it is and note which lines each executes; as `judge`.

        Only a run that passed and was not cut off leaves a map.
        """
        self._maps.mkdir(exist_ok=True)
        start = time.monotonic()
        words = ["--cov", f"--cov-config={self._settings}", "--cov-context=test", "--cov-report="]
        with tempfile.TemporaryDirectory(dir=self._maps) as folder:
            written = Path(folder, "map")
            fate, told = self._run(self._files(package, ""), *words, map_file=written)
            if fate == "survived":
                written.replace(self._map(package))
        return fate, told, time.monotonic() - start

    def is_mapped(self, package: str) -> bool:
        return self._map(package).exists()

    def judge(self, mutant: Mutant) -> tuple[str, str, float]:
        """Run the package's tests on a mutant.

        Returns:
            `noticed`, `survived` or `timeout`; the test that noticed it; seconds.
        """
        path = self.folder / mutant.path
        original = path.read_text()
        start = time.monotonic()
        try:
            path.write_text(apply(original, [Edit(mutant.start, mutant.end, mutant.after)]))
            fate, told = self._tests(mutant)
        finally:
            path.write_text(original)
        return fate, told, time.monotonic() - start

    def _tests(self, mutant: Mutant) -> tuple[str, str]:
        """The tests that execute the line, and only if they pass all others of the package.

        Some may not be found where their parameters follow from the mutant: all of the package
        decide then, of which none can be found if the mutant cannot be imported.
        """
        near = self._executing(mutant)
        fate, told = self._run(near) if near else ("survived", "")
        if fate in ("noticed", "timeout") or (fate == "survived" and near and self._near_only):
            return fate, told
        passed = [f"--deselect={one}" for one in near if fate == "survived"]
        fate, told = self._run([*self._files(mutant.package, mutant.path), *passed])
        return ("noticed" if fate == "not found" else fate), told

    def _run(self, tests: list[str], *words: str, map_file: Path | None = None) -> tuple[str, str]:
        named = self.folder / "tests.txt"
        named.write_text("\n".join(tests))
        command = [sys.executable, "-m", "pytest", f"@{named}", "-x", "-q", "-rfE", "--tb=no"]
        command += ["-p", "no:cacheprovider", "-m", _QUICK, *words]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        paths = [str(self.folder), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        if map_file:
            environment["COVERAGE_FILE"] = str(map_file)
        with tempfile.TemporaryFile("w+") as said:
            child = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = child.wait(_MAX_S)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, 9)
                child.wait()
                return "timeout", ""
            said.seek(0)
            lines = said.read().splitlines()
        if status in (0, 5):
            return "survived", ""
        failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))] or lines[-1:]
        fate = "not found" if status == pytest.ExitCode.USAGE_ERROR else "noticed"
        return fate, "; ".join(failed[:1])[:200]

    def _map(self, package: str) -> Path:
        return self._maps / f"{package}-{self._digest}"

    def _executing(self, mutant: Mutant) -> list[str]:
        """The tests of the package that execute the mutant's line in their own process."""
        words = [sys.executable, "-m", "coverage", "json", "-q", "-i", "--show-contexts"]
        words += [f"--data-file={self._map(mutant.package)}", f"--rcfile={self._settings}"]
        words += [f"--include={mutant.path}", "-o", "-"]
        said = subprocess.run(words, cwd=self.folder, capture_output=True, text=True)
        if said.returncode:
            return []
        contexts = json.loads(said.stdout)["files"][mutant.path]["contexts"]
        tests = [one.rpartition("|")[0] for one in contexts.get(str(mutant.line), [])]
        return sorted(set(filter(None, tests)))

    def _files(self, package: str, changed: str) -> list[str]:
        """The package's test files, those that import the changed module first."""
        folders = PACKAGES[package][1]
        tests = self.folder / "tests"
        files = sorted(file for folder in folders for file in (tests / folder).rglob("test_*.py"))
        parent, _, name = changed.removesuffix(".py").replace("/", ".").rpartition(".")
        names = (f"{parent}.{name}", f"{parent} import {name}") if changed else ()

        def is_far(file: Path) -> bool:
            text = file.read_text()
            return not any(name in text for name in names)

        return [str(file.relative_to(self.folder)) for file in sorted(files, key=is_far)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("mutants.jsonl"), help="JSON lines")
    parser.add_argument("--mutants", type=int, default=8, help="how many, over all packages")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", choices=list(PACKAGES), default=list(PACKAGES))
    parser.add_argument("--where", default="", help="files whose path contains this")
    parser.add_argument(
        "--near", action="store_true", help="by tests that execute the line: a lower bound"
    )
    parser.add_argument("--again", action="store_true", help="judge survivors of the file again")
    parser.add_argument("--table", action="store_true", help="print what the file holds")
    options = parser.parse_args()
    if not options.table:
        print_conditions()
        with tempfile.TemporaryDirectory(prefix="evolve-mutants-") as folder:
            maps = options.out.with_suffix(".coverage")
            _run(options, Copy(Path(folder), maps, near_only=options.near))
    print("\n".join(summary(_rows(options.out))))


def _run(options: argparse.Namespace, copy: Copy) -> None:
    known = _rows(options.out)
    kept = [row for row in known if not (options.again and row["fate"] == "survived")]
    if options.again:
        survivors = [Mutant(**row["mutant"]) for row in known if row not in kept]
        wanted = [found for one in survivors if (found := _as_it_is_now(one, options.seed))]
    else:
        wanted = _drawn(options, [Mutant(**row["mutant"]) for row in known])
    for package in dict.fromkeys(one.package for one in wanted):
        if copy.is_mapped(package):
            continue
        fate, told, seconds = copy.unchanged(package)
        print(f"{package}: unchanged {fate} in {seconds:.0f} s {told}", flush=True)
        if fate != "survived":
            wanted = [mutant for mutant in wanted if mutant.package != package]
    if options.again:
        options.out.write_text("".join(json.dumps(row) + "\n" for row in kept))
    for mutant in wanted:
        fate, told, seconds = copy.judge(mutant)
        row = {"mutant": asdict(mutant), "fate": fate, "by": told, "seconds": round(seconds)}
        with options.out.open("a") as out:
            print(json.dumps(row), file=out)
        print(f"{fate}: {mutant.path}:{mutant.line} {mutant.before} -> {mutant.after}", flush=True)


def _as_it_is_now(old: Mutant, seed: int) -> Mutant | None:
    """The same change in the present sources; None, with a message, if it is not there."""
    alike = [
        one
        for one in mutants(old.package, seed)
        if (Path(one.path).name, one.before, one.after)
        == (Path(old.path).name, old.before, old.after)
    ]
    if not alike:
        print(f"no longer there: {old.path}:{old.line} {old.before}", flush=True)
    return min(alike, key=lambda one: abs(one.line - old.line), default=None)


def _drawn(options: argparse.Namespace, known: list[Mutant]) -> list[Mutant]:
    """The next mutants of each package in turn that are not known."""
    queues = {
        name: (one for one in mutants(name, options.seed) if options.where in one.path)
        for name in options.only
    }
    chosen: list[Mutant] = []
    while len(chosen) < options.mutants and queues:
        for name, queue in list(queues.items()):
            one = next((each for each in queue if each not in known), None)
            if one is None:
                del queues[name]
            elif len(chosen) < options.mutants:
                chosen.append(one)
    return chosen


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A table by package, and the survivors."""
    counts = []
    for name in [*PACKAGES, "all"]:
        own = [row for row in rows if name in (row["mutant"]["package"], "all")]
        noticed = sum(row["fate"] != "survived" for row in own)
        if own:
            counts.append([name, str(len(own)), str(noticed), f"{noticed / len(own):.0%}"])
    yield table(["PACKAGE", "MUTANTS", "NOTICED", "SHARE"], counts)
    yield f"goal {GOAL:.0%}"
    for row in rows:
        one = row["mutant"]
        if row["fate"] == "survived":
            yield f"survived: {one['path']}:{one['line']} {one['before']} -> {one['after']}"


if __name__ == "__main__":
    main()
