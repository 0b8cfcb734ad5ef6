"""From the user's words to a `Task`: a shipped name, a path, or a problem of a suite."""

import ast
import difflib
import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from evolve.core.errors import UsageError
from evolve.core.source.parsing import parse
from evolve.core.task import ACCUMULATIONS, PRECISIONS, SIZES, Task
from evolve.languages.base import Language
from evolve.languages.registry import detect_language
from evolve.tasks.files import read_task
from evolve.tasks.functions import with_model
from evolve.tasks.shipped import category_of, library_folder, shipped_names
from evolve.tasks.suites import suite_named, suites


class NoTaskError(UsageError):
    """A file that names no part of a task, or not all."""


def find_task(
    spec: str,
    *,
    size: str = "cpu",
    precision: str = "task",
    accumulation: str = "ieee",
    checkout: Path | None = None,
    languages: Collection[Language] | None = None,
) -> Task:
    """The task that `spec` names. Reads text and never executes any of it: the worker does.

    Args:
        spec: `softmax` (a shipped task), `./my_task.py` or its folder, or `kernelbench:1/40` (one
            of a suite). Beside a file may lie `my_task.cases.yaml` or `cases.yaml`, and candidates
            in `seeds/`. Files beside it that it imports or names are part of the task; of a folder
            all are.
        size: `tiny`, `cpu` or `gpu`; a file without `SIZES` has one size only.
        precision: the type that floating tensors are cast to; `task` leaves them alone.
        accumulation: the arithmetic that candidates may use; if it is the strictest, the value of
            the file's `ACCUMULATION`.
        checkout: of the suite; None takes it from the suite's environment variable.
        languages: that a device runs; seeds in others are left out. None for all.

    Raises:
        UsageError: no such task, an unreadable or empty file, a syntax error, bad cases, or an
            unknown size, precision or accumulation; the message names the remedy.
    """
    _require("task_config.size", size, SIZES)
    _require("task_config.precision", precision, PRECISIONS)
    _require("task_config.accumulation", accumulation, ACCUMULATIONS)
    suite, _, label = spec.partition(":")
    if label and suite in suites():
        name, text = spec, suite_named(suite).task(label, checkout)
        tree = _parse(text.source, spec)
    else:
        path = _locate(spec)
        name, text = _name(path), read_task(path, whole=Path(spec).expanduser().is_dir())
        text = replace(text, source=with_model(text.source))
        tree = _parse(text.source, str(path))
    _require_functions(spec, text.source)
    return Task(
        name=name,
        source=text.source,
        size=size,
        precision=precision,
        accumulation=_allowed(tree, accumulation),
        cases=text.cases,
        files=text.files,
        seeds=tuple(
            seed for seed in text.seeds if languages is None or detect_language(seed) in languages
        ),
        category=text.category or category_of(tree),
    )


def _locate(spec: str) -> Path:
    if spec.endswith(".py") or "/" in spec or "\\" in spec:
        path = Path(spec).expanduser()
        path = path / "task.py" if path.is_dir() else path
        if path.exists() and not path.is_file():
            raise UsageError(f"task {spec!r}: {path} is not a regular file. Give the path of one.")
        if not path.is_file():
            raise UsageError(f"task {spec!r}: there is no file {path.absolute()}. Check the path.")
        return path
    if spec in shipped_names():
        return library_folder() / spec / "task.py"
    raise UsageError(_unknown(spec))


def _unknown(spec: str) -> str:
    if not spec:
        return "task is empty. Name a task, e.g. task=softmax, or a file by its path, ./my_task.py."
    names = shipped_names()
    close = difflib.get_close_matches(spec, names, 1)
    if Path(f"{spec}.py").is_file():
        hint = f"For the file here, write task=./{spec}.py. "
    elif Path(spec).is_dir():
        hint = f"For a file in the folder here, write task=./{spec}/FILE.py. "
    else:
        hint = f"Did you mean {close[0]}? " if close else ""
    return (
        f"unknown task {spec!r}. {hint}Shipped tasks: {', '.join(names)}. "
        "Name your own file by its path (./my_task.py), a KernelBench problem as kernelbench:1/40."
    )


def _name(path: Path) -> str:
    return path.absolute().parent.name if path.stem == "task" else path.stem


def _parse(source: str, path: str) -> ast.Module:
    try:
        return parse(source)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f"{path}, line {line}" if line else path
        message = getattr(error, "msg", None) or error
        raise UsageError(
            f"{where}: not valid Python ({message}). Correct the task file."
        ) from error


def _require_functions(spec: str, source: str) -> None:
    """Raise UsageError for a file without the names of a task; executing it would say more."""
    for kind, name, others in (
        ("class", "Model", ""),
        ("function", "get_inputs", "|get_input_groups"),
        ("function", "get_init_inputs", ""),
    ):
        if re.search(rf"\b({name}{others})\b", source) or "import *" in source:
            continue
        is_candidate = name == "Model" and "ModelNew" in source
        remedy = (
            f"it defines ModelNew, so it is a program: judge it by `evolve eval {spec} --task TASK`"
            if is_candidate
            else "a task file has a class Model and functions get_inputs() and get_init_inputs() "
            "(the KernelBench convention), or functions reference() and get_inputs()"
        )
        raise NoTaskError(f"task {spec}: the file defines no {kind} {name}; {remedy}")


def _allowed(tree: ast.Module, asked: str) -> str:
    """The rule that the worker will follow: the file's own, if nothing else was asked for."""
    for statement in tree.body:
        match statement:
            case ast.Assign([ast.Name("ACCUMULATION")], ast.Constant(str(stated))):
                if asked == ACCUMULATIONS[0] and stated in ACCUMULATIONS:
                    return stated
    return asked


def _require(field: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{field} is {value!r}; choose one of {', '.join(allowed)}.")
