"""Executing a task's source with some of its module constants replaced."""

import ast
import linecache
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import torch

from evolve.core.digest import canonical_json, framed_digest
from evolve.core.errors import UsageError
from evolve.core.source.parsing import parse
from evolve.worker.base.shortage import is_no_room
from evolve.worker.ipc.pytree import NestingError
from evolve.worker.reference.task_files import MAIN, importing_from
from evolve.worker.reference.task_reads import reading
from evolve.worker.reference.torch_settings import TaskName, recording_settings, settings_of

_NESTED = (
    "Let tuples, lists, dicts and dataclasses not hold themselves, have all their fields set, and "
    "be such as copy.copy can copy."
)
_MAX_ERROR = 300  # characters of an error of a task's code
_UNSUITABLE = (  # all that torch raises of a tensor's kind
    *(ArithmeticError, AssertionError, AttributeError, LookupError),
    *(RuntimeError, TypeError, ValueError),
)
Constants = Mapping[str, int | float | str]

# A task's code draws from global random generators, so one thread at a time may run it.
task_lock = threading.RLock()


class TaskCodeError(UsageError):
    """An exception of a task's own code: a sentence about it, and a remedy."""

    def __init__(self, said: str, remedy: str) -> None:
        super().__init__(said, remedy)
        self.said = said

    def __str__(self) -> str:
        return " ".join(self.args)


@contextmanager
def task_code(task: str, where: str) -> Iterator[None]:
    """The boundary around the user's own task file: its exceptions become a `TaskCodeError`."""
    try:
        with reading(task), settings_of(task):
            yield
    except UsageError:
        raise
    except NestingError as error:  # of the judge, which looks at the values in there
        raise UsageError(
            f"task {task}: the judge cannot look through the values of {where}: {error}. {_NESTED}"
        ) from error
    except (Exception, SystemExit) as error:
        line = _line_of(error, _filename(task))
        at = f" at line {line} of the file" if line else ""
        raise TaskCodeError(
            f"task {task}: {where} raised {type(error).__name__}{at}: {_first_line(error)}.",
            _remedy(error),
        ) from error


@contextmanager
def task_values(task: str, where: str) -> Iterator[None]:
    """The boundary around the judge's own handling of a task's values.

    An error there says that the judge is not made for such values, and ends no process.
    """
    try:
        yield
    except (UsageError, torch.OutOfMemoryError):
        raise
    except _UNSUITABLE as error:
        if is_no_room(error):
            raise
        said = _first_line(error)
        raise UsageError(
            f"task {task}: the judge cannot handle {where} ({type(error).__name__}: {said}). "
            "Let inputs and outputs be dense tensors of a common type, nested in tuples, lists and "
            "dicts; or give the file a check(output, reference, inputs)."
        ) from error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return lines[0][:_MAX_ERROR].rstrip(".")


def _remedy(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError | FileNotFoundError):
        return (
            "A module has to be installed for the judge, or lie beside the task file; data are "
            "opened by Path(__file__).parent / NAME. Give a folder as the task to have all of it."
        )
    return "Mend the task file; it has to run under plain Python with torch."


def execute(task: TaskName, source: str, constants: Constants, folder: Path) -> ModuleType:
    """The module that the source defines, with the constants in place of its own.

    `folder` has the module as `task.py`, and the files that it uses beside it.

    A constant takes its new value right where the file assigns it, so that values computed from it
    (other constants, default arguments) follow.

    Raises:
        UsageError: the file does not run, or does not assign one of the constants.
    """
    filename = _filename(task)
    with task_code(task, "importing it"):
        tree = parse(source, filename)
    assigned = set().union(*(_stored_names(statement) for statement in tree.body))
    missing = sorted(set(constants) - assigned)
    if missing:
        raise UsageError(
            f"task {task}: constant {missing[0]!r} is not assigned at the top level of the file "
            f"(assigned there: {', '.join(sorted(assigned)) or 'nothing'}). "
            "Correct the name in SIZES or in the cases."
        )
    tree.body = [new for old in tree.body for new in _overridden(old, constants)]
    name = "evolve_task_" + framed_digest(source, canonical_json(dict(constants)))[:12]
    module = ModuleType(name)
    module.__file__ = str(folder / MAIN)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    sys.modules[name] = module  # dataclasses and pickling look their module up
    task.settings.clear()  # it is imported from settings that are not its own
    with task_code(task, "importing it"), recording_settings(task), importing_from(folder, source):
        exec(compile(tree, filename, "exec"), module.__dict__)
    return module


def _overridden(statement: ast.stmt, constants: Constants) -> list[ast.stmt]:
    names = sorted(_stored_names(statement) & set(constants))
    overrides: list[ast.stmt] = []
    for name in names:
        target = ast.Name(name, ast.Store())
        assignment = ast.Assign([target], ast.Constant(constants[name]))
        overrides.append(ast.fix_missing_locations(ast.copy_location(assignment, statement)))
    return [statement, *overrides]


def _stored_names(node: ast.AST) -> set[str]:
    """Names that a statement assigns in its own scope."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return set()
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Store) else set()
    return set().union(*(_stored_names(child) for child in ast.iter_child_nodes(node)))


def _filename(task: str) -> str:
    return f"<task {task}>"


def _line_of(error: BaseException, filename: str) -> int | None:
    if isinstance(error, SyntaxError):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if frame.filename == filename), None)
