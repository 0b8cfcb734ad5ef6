"""A winner as a folder that can be merged: a PyTorch operator, a module that uses it, its tests."""

import keyword
import sys
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from evolve.core.digest import framed_digest
from evolve.core.errors import UsageError
from evolve.core.program import Assignment
from evolve.core.source.tunables import freeze
from evolve.core.task import Task
from evolve.languages.registry import detect_language
from evolve.report.export.examine import Examined, examine
from evolve.report.export.operator_text import operator_name, operator_values
from evolve.report.export.own_modules import with_own_modules
from evolve.report.export.reference import with_constants
from evolve.report.export.trees import literal, refusal
from evolve.report.text import make_folder, one_line, printable, write_text
from evolve.worker.correctness import tolerance

NAMESPACE = "evolve"
TEMPLATES = Path(__file__).parent / "templates"

_OPERAND_ROUNDING = {"ieee": 0.0, "tf32": 2.0**-11, "half": 2.0**-8}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts of a winner besides its source.

    `device` is `cpu` or `cuda`, `architecture` that of the judge, as the guard compares it
    (`x86_64`, `sm_90`); `gain` a sentence with an interval; `provenance` lines for the README.
    """

    device: str
    architecture: str
    gain: str
    provenance: Sequence[str] = ()


def export_torch_op(
    folder: Path, source: str, assignment: Assignment, task: Task, facts: Facts
) -> Path:
    """Write the folder: kernel.py, op.py, reference.py, test_op.py, README.md, __init__.py.

    Beside them are the files that the reference reads, and modules of this package that it imports.

    The reference is executed, the kernel is not; `evolve.report.export.check` does that.

    Raises:
        UsageError: the task cannot be an operator, or the folder is not new, cannot be written, or
            has a name that Python cannot import.
    """
    check_folder(folder)
    _refuse_modules(task)
    kernel = freeze(source, assignment)
    examined = examine(task)
    name = operator_name(task.name)
    # Compiled graphs are cached under the operator's name, so that it names all that it depends on.
    digest = framed_digest("operator", kernel, task.revision, facts.device, facts.architecture)
    values = {
        "package": folder.resolve().name,
        "task": one_line(task.name),
        "name": name,
        "namespace": NAMESPACE,
        "operator": f"{name}_{digest[:8]}",
        "qualname": f"{NAMESPACE}::{name}_{digest[:8]}",
        "device": facts.device,
        "architecture": facts.architecture,
        **operator_values(name, examined),
        **_test_values(examined),
        **_readme_values(kernel, assignment, facts),
    }
    files = {name: _rendered(name, values) for name in ("op.py", "test_op.py", "README.md")}
    files["kernel.py"] = f"# The kernel behind {values['qualname']}; see README.md.\n\n{kernel}"
    files |= with_own_modules(with_constants(task.source, _size_constants(examined, task)))
    files["__init__.py"] = _PACKAGE.format(name=name)
    _write(folder, files, {name: b64decode(content) for name, content in task.files.items()})
    return folder


_PACKAGE = '''\
"""The kernel {name}, which was found by search; see README.md."""

from .op import Model, {name}

__all__ = ["Model", "{name}"]
'''


def check_folder(folder: Path) -> None:
    """Raises UsageError if no operator can be written: the folder is not new, or its name."""
    name = folder.resolve().name
    if not name.isidentifier() or keyword.iskeyword(name):
        raise UsageError(
            f"-o {folder}: Python cannot import a folder called {name!r}; "
            "use letters, digits and underscores"
        )
    if name in sys.stdlib_module_names or name in ("torch", "triton", "tvm_ffi", "pytest", "numpy"):
        raise UsageError(f"-o {folder}: {name} would hide the module {name}; use another name")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"-o {folder} exists and is not empty; name a new folder")


def _refuse_modules(task: Task) -> None:
    """Raise UsageError for a task of several modules: they import each other by absolute names."""
    if modules := [name for name in sorted(task.files) if name.endswith(".py")]:
        raise refusal(
            f"the reference of {task.name} imports {modules[0]} beside its file, and an operator's "
            "reference is one file"
        )


def _write(folder: Path, files: Mapping[str, str], beside: Mapping[str, bytes]) -> None:
    if both := sorted(files.keys() & beside.keys()):
        raise refusal(f"the task has a file {both[0]} beside it, and so has an operator's folder")
    make_folder(folder, "-o")
    for name, content in beside.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    for name, text in files.items():
        write_text(folder / name, text.rstrip() + "\n")


def _rendered(name: str, values: Mapping[str, Any]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(f"{name}.j2").render(values)


def _test_values(examined: Examined) -> dict[str, Any]:
    """The contents of `test_op.py`, as Python text."""
    accumulation, dtype = examined.loaded.accumulation, examined.loaded.cases[0].dtype
    rounding = _OPERAND_ROUNDING[accumulation]
    constants = {case.name: dict(case.constants) for case in examined.cases}
    return {
        "constants": literal(constants, "a constant of a case"),
        "groups": literal({case.name: case.group for case in examined.cases}, "a group"),
        "cast": str(dtype),
        "terms": max(case.terms for case in examined.cases),
        "accumulation": accumulation,
        "operand_rounding": repr(rounding),
        "kappa": tolerance.KAPPA,
        "peak": tolerance.PEAK,
        "base_roundings": tolerance.BASE_ROUNDINGS,
        "walk_roundings": tolerance.WALK_ROUNDINGS,
        "operand_roundings": tolerance.OPERAND_ROUNDINGS,
        "adding": "OPERAND_ROUNDING / 16" if accumulation == "half" else "STEP",
    }


def _readme_values(kernel: str, assignment: Assignment, facts: Facts) -> dict[str, Any]:
    values = ", ".join(f"`{name} = {value}`" for name, value in sorted(assignment.items()))
    return {
        "gain": one_line(facts.gain),
        "frozen": f" ({values})" if values else "",
        "needs": f", and {needs}" if (needs := detect_language(kernel).needs) else "",
        "provenance": [f"    {printable(line)}".rstrip() for line in facts.provenance],
    }


def _size_constants(examined: Examined, task: Task) -> dict[str, int | float | str]:
    """The constants that the judged size sets in the task's module."""
    sizes = getattr(examined.loaded.cases[0].module, "SIZES", {})
    return dict(sizes.get(task.size, {}))
