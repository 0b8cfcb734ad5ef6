"""Everything that the rest of the program has to know about a language."""

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evolve.core.devices import DeviceKind, device_kinds

Descriptors = Mapping[str, float | str]
Stubs = list[tuple[Any, dict[str, Any]]]
"""Objects, and the attributes to replace in each."""


def _none(*_: Any) -> Any:
    return {}


def _nothing(*_: Any) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package that programs in a language need.

    Attributes:
        module: its import name.
        distribution: its name for pip.
        needed: whether a search cannot do without it.
        least: version (major, minor) from which it has what programs use; None if any will do.
        newest: version up to which it is tested; None if any will do.
        remedy: how it is installed; empty for `pip install`.
        unfit: of its version, why that does not work with what is installed beside it, with the
            remedy; empty if nothing shows that.
    """

    module: str
    distribution: str
    needed: bool = False
    least: tuple[int, int] | None = None
    newest: tuple[int, int] | None = None
    remedy: str = ""
    unfit: Callable[[str], str] = _nothing

    @property
    def missing(self) -> str:
        """Why this interpreter cannot use it, with the remedy; empty if it can."""
        if not _is_installed(self.module):
            return self.lacking("")
        try:
            found = metadata.version(self.distribution)
        except metadata.PackageNotFoundError:  # a build from source
            return ""
        return self.lacking(found) or self.unfit(found)

    def lacking(self, version: str) -> str:
        """Why an interpreter with this version of it cannot use it, with the remedy.

        Args:
            version: as its distribution has it; empty if it is not installed.
        """
        if not version:
            remedy = self.remedy or f"pip install {self.distribution}"
            return f"{self.distribution} is not installed; {remedy}"
        if self.least is None or release(version) >= self.least:
            return ""
        wanted = f"{self.distribution}>={'.'.join(map(str, self.least))}"
        remedy = self.remedy or f"pip install '{wanted}'"
        return f"{self.distribution} {version} is too old; {remedy}"


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


def release(version: str) -> tuple[int, int]:
    """Major and minor number; (0, 0) of a version that has none."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Language:
    """One language.

    Attributes:
        name: in settings, verdicts and the database, spelled as KernelBench spells its backends.
        title: in messages and prompts.
        devices: names of the kinds of devices that its programs run on; empty for all.
        finds: whether a module, as a syntax tree, defines kernels in it. Comments and strings say
            nothing.
        describe: the four words of `descriptors`, and `kernels`, of a source.
        contract: the item of a prompt that says how kernels are written, built and launched.
        imports: modules that a prompt allows beside torch.
        helpers: functions that a prompt allows in `forward`, beside torch's that compute nothing.
        fences: tags of fenced blocks in which models answer with a module, beside `python`.
        needs: of an exported operator, beside torch, as a clause; empty for nothing.
        packages: that programs need.
        compilers: further distributions that decide what a program is compiled to; verdicts and
            builds are kept apart by the versions of both.
        missing_tools: why the interpreter that judges cannot build programs although packages are
            there, with the remedy; empty if it can. It may import torch.
        unfit_gpu: of a source and a GPU's capability (90 for 9.0), why it does not fit; empty if
            nothing shows that.
        preload: modules that every runner has imported before it is forked.
        compiles_late: whether kernels are compiled when they are first launched, not when the
            module is imported.
        interpreter: variables by which programs run, slowly, where there is no GPU; empty if there
            is no interpreter.
        beyond_interpreter: of an error's text and a source, why it cannot be interpreted; empty if
            the fault is the program's.
        caches: of a build's folder (None: there is none) and whether it may be written, variables
            that make the compiler's cache part of it.
        keep_builds: in a runner, have everything that a source builds in this process come from a
            build's folder, or go there. Arguments: source, folder or None, may build.
        stubs: in a runner, the functions to replace so that kernels are skipped; their names are
            appended to the list that is given.
    """

    name: str
    title: str
    devices: tuple[str, ...]
    finds: Callable[[ast.Module], bool]
    describe: Callable[[str], Descriptors]
    contract: str = ""
    imports: tuple[str, ...] = ()
    helpers: str = ""
    fences: frozenset[str] = frozenset()
    needs: str = ""
    packages: tuple[Package, ...] = ()
    compilers: tuple[str, ...] = ()
    missing_tools: Callable[[], str] = _nothing
    unfit_gpu: Callable[[str, int], str] = _nothing
    preload: tuple[str, ...] = ()
    compiles_late: bool = False
    interpreter: Mapping[str, str] = field(default_factory=dict)
    beyond_interpreter: Callable[[str, str], str] = _nothing
    caches: Callable[[Path | None, bool], Mapping[str, str]] = _none
    keep_builds: Callable[[str, str | None, bool], None] | None = None
    stubs: Callable[[list[str]], Stubs] | None = None

    def __str__(self) -> str:
        return self.name

    def missing_package(self, source: str | None = None) -> str:
        """The package that this interpreter lacks, with the remedy; empty if none.

        Args:
            source: a program that needs those that it names; None for all.
        """
        wanted = (one for one in self.packages if source is None or one.module in source)
        return next(filter(None, (one.missing for one in wanted)), "")

    def missing_among(self, versions: Mapping[str, str]) -> str:
        """The package that another interpreter lacks, with the remedy; empty if none.

        Args:
            versions: of the distributions that the interpreter has, by name.
        """
        found = (one.lacking(versions.get(one.distribution, "")) for one in self.packages)
        return next(filter(None, found), "")

    def missing(self, source: str | None = None) -> str:
        """Why this interpreter cannot build programs in it, with the remedy; empty if it can."""
        return self.missing_package(source) or self.missing_tools()

    @property
    def is_for_gpus(self) -> bool:
        """Whether a GPU runs it."""
        kinds = device_kinds()
        return any(kinds[name].is_gpu for name in self.devices if name in kinds)

    def is_timed_on(self, kind: DeviceKind) -> bool:
        """Whether its programs run on such a device itself, and are not interpreted."""
        return not self.devices or kind.name in self.devices or self.name in kind.languages

    def runs_on(self, kind: DeviceKind) -> bool:
        """The same, or interpreted."""
        return self.is_timed_on(kind) or bool(self.interpreter and not kind.is_gpu)

    def variables_on(self, kind: DeviceKind) -> dict[str, str]:
        """Variables of a process of such a device, to be set before libraries are imported."""
        return {} if self.is_timed_on(kind) or kind.is_gpu else dict(self.interpreter)
