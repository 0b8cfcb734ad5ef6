"""C++ that a module builds when it is imported: its compiler, builds that are kept, and stubs.

The program of a tool's process carries this file as text (`evolve.worker.runner.tool_process`).
"""

import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from evolve.core.digest import framed_digest
from evolve.languages.builds import BuildError, first_errors

HEADERS = "EVOLVE_HEADERS"
"""Variable of a runner's environment: where precompiled headers are (`evolve.worker.build`)."""

_MATTERS = ("-O", "-f", "-m", "-std")  # flags that decide the outcome of a compilation


def variant_of(flags: Iterable[str]) -> str:
    """Folder of the headers that were precompiled with these flags, below that of all."""
    return "".join(sorted(flag for flag in flags if flag.startswith(_MATTERS)))


def missing_compiler(name: str, variables: Iterable[str], home: str, remedy: str) -> str:
    """Why `tvm_ffi.cpp` finds no such compiler; a home in a variable is the only place it tries.

    Args:
        name: of the compiler's program.
        variables: that may name its home, the first that is set wins.
        home: where it is looked for if none is set and the program is not on the `PATH`.
        remedy: what the answer advises.
    """
    if named := next(filter(None, map(os.environ.get, variables)), None):
        folder = Path(named) / "bin"
        return "" if (folder / name).exists() else f"there is no {name} in {folder}; {remedy}"
    if shutil.which(name) or (Path(home) / "bin" / name).exists():
        return ""
    return f"there is no {name}; {remedy}"


def keep_builds(source: str, directory: str | None, may_build: bool) -> None:
    """Replace the compilers' `load_inline` by one that finds a finished build without ninja."""
    if "cpp_extension" in source:
        _keep_torch(directory, may_build)
    _keep_tvm_ffi(directory, may_build)


def _keep_torch(directory: str | None, may_build: bool) -> None:
    """`torch.utils.cpp_extension.load_inline`, which else asks ninja about every old build."""
    from torch.utils import cpp_extension

    build = cpp_extension.load_inline

    def load(name: str, *arguments: Any, **options: Any) -> Any:
        key = framed_digest(name, repr(arguments), repr(sorted(options.items())))[:24]
        place = Path(directory or tempfile.gettempdir()) / f"torch-{key}"
        if not may_build and (place / f"{name}.so").exists():
            return cpp_extension._import_module_from_library(name, str(place), True)
        if not may_build:  # an extension that is only built when forward runs
            place = Path(tempfile.mkdtemp())
        place.mkdir(exist_ok=True)
        try:
            return build(name, *arguments, **(options | {"build_directory": str(place)}))
        except RuntimeError as error:
            raise BuildError(first_errors(str(error))) from error

    cpp_extension.load_inline = functools.update_wrapper(load, build)


def _keep_tvm_ffi(directory: str | None, may_build: bool) -> None:
    try:
        import tvm_ffi.cpp
        from tvm_ffi.cpp import extension
    except ImportError:
        return
    load = functools.partial(_load_inline, extension.build_inline, directory, may_build)
    functools.update_wrapper(load, extension.load_inline)
    tvm_ffi.cpp.load_inline = extension.load_inline = load


def _load_inline(
    build: Callable[..., str],
    directory: str | None,
    may_build: bool,
    name: str,
    *,
    keep_module_alive: bool = True,
    build_directory: str | None = None,
    **options: Any,
) -> Any:
    import tvm_ffi

    key = framed_digest(name, *(f"{key}={options[key]!r}" for key in sorted(options)))[:24]
    place = Path(directory or tempfile.gettempdir()) / key
    library = place / f"{name}.so"
    if may_build or not library.exists():
        if not may_build:  # an extension that is only built when forward runs
            place = Path(tempfile.mkdtemp())
        place.mkdir(exist_ok=True)
        flags = list(options.get("extra_cflags") or ())
        headers = Path(os.environ.get(HEADERS, ".")) / variant_of(flags)
        options["extra_cflags"] = [f"-I{headers}", *flags]
        try:
            library = Path(build(name, build_directory=str(place), **options))
        except RuntimeError as error:
            raise BuildError(first_errors(str(error))) from error
    return tvm_ffi.load_module(str(library), keep_module_alive=keep_module_alive)


def stubs(skipped: list[str]) -> list[tuple[Any, dict[str, Any]]]:
    """Functions of tvm_ffi modules and of torch extensions."""
    return [*_tvm_ffi_stubs(skipped), *_torch_stubs(skipped)]


def _tvm_ffi_stubs(skipped: list[str]) -> list[tuple[Any, dict[str, Any]]]:
    try:
        import tvm_ffi
    except ImportError:
        return []

    def get_function(self: Any, name: str, query_imports: bool = False) -> Callable[..., None]:
        def skip(*_: Any) -> None:
            skipped.append(name)

        return skip

    get_function.__qualname__ = tvm_ffi.Module.get_function.__qualname__  # as if it were that
    names = ("get_function", "__getattr__", "__getitem__")
    return [(tvm_ffi.Module, dict.fromkeys(names, get_function))]


def _torch_stubs(skipped: list[str]) -> list[tuple[Any, dict[str, Any]]]:
    """Extensions of `torch.utils.cpp_extension`, if the candidate has it imported."""
    extension = sys.modules.get("torch.utils.cpp_extension")
    if extension is None:
        return []

    def load(name: str, path: str, is_python_module: bool) -> ModuleType:
        """The module with functions that do nothing; operators are left unregistered."""
        module = ModuleType(name)
        module.__getattr__ = lambda function: _skipping(skipped, function)  # type: ignore[method-assign]
        return module

    return [(extension, {"_import_module_from_library": load})]


def _skipping(skipped: list[str], name: str) -> Callable[..., None]:
    return lambda *_, **__: skipped.append(name)
