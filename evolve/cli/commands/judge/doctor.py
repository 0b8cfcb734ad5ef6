"""`evolve doctor`: the capabilities of this machine, missing parts, and remedies.

Needs nothing but the standard library until it asks the worker, so that it also speaks if the
installation is broken.
"""

import importlib.util
import json
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import evolve
from evolve.app.device import require_interpreter
from evolve.app.finding import MISSING, NOTE, OK, Finding
from evolve.cli import signals
from evolve.cli.args import add_device, parser
from evolve.core.devices import CPU, HIP, device_kind
from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.languages.base import Package, release
from evolve.languages.registry import languages
from evolve.llm.doctor import findings as model_findings
from evolve.store.sqlite.filesystem import is_shared_between_hosts

if TYPE_CHECKING:
    from evolve.evaluation import LocalEvaluator

T = TypeVar("T")


def _needed(module: str, distribution: str, newest: tuple[int, int] | None = None) -> Package:
    return Package(module=module, distribution=distribution, needed=True, newest=newest)


PACKAGES = (  # and the feature that fails without it
    (_needed("torch", "torch", newest=(2, 15)), "nothing can be judged"),
    (_needed("numpy", "numpy"), "nothing can be judged"),
    (_needed("hydra", "hydra-core"), "run and resume cannot read the configuration"),
    (_needed("sqlalchemy", "sqlalchemy"), "there is no database"),
    (_needed("networkx", "networkx"), "there is no lineage graph"),
    (_needed("jinja2", "jinja2"), "there is no report and no prompt"),
    (_needed("rich", "rich"), "there is no live display"),
    (_needed("yaml", "pyyaml"), "cases.yaml cannot be read"),
)


def main(words: Sequence[str]) -> int:
    """Print the findings; 1 if a search lacks something, 2 if the device asked for does."""
    arguments = parser("doctor", "Check this machine: capabilities and missing parts.")
    arguments.add_argument("--json", action="store_true", help="for machines")
    arguments.add_argument(
        "--report",
        action="store_true",
        help="judge programs of known outcome and print a report to send, in Markdown",
    )
    arguments.add_argument("--python", metavar="PATH", help="as device.python of a run")
    add_device(arguments, "as in a run; exit status 2 without it")
    options = arguments.parse_args(words)
    if options.report and options.json:
        raise UsageError("--report with --json: the report is Markdown; leave one of them out")
    require_interpreter(options.python, "--python ")
    if options.report:
        return _report(options.device, options.python)
    on_device = [*device(options.device, options.python)]
    findings = [*host(), *packages(), *compiler(), database(), *models(), *on_device]
    if options.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        for finding in findings:
            print(f"{finding.state:<8}{finding.what:<21}{finding.detail}")
        print(_verdict(findings))
    if options.device not in ("auto", CPU.name) and any(
        finding.state == MISSING for finding in on_device
    ):
        return 2
    return 1 if any(finding.state == MISSING for finding in findings) else 0


def _report(word: str, python: str | None) -> int:
    """Print the report on a device; 1 if it has not passed.

    Raises:
        UsageError: there is no such device.
    """
    from evolve.app.device import kind_here
    from evolve.app.doctor.report import has_passed, report, verdicts

    kind = device_kind(kind_here(word, python))

    async def judged(evaluator: "LocalEvaluator") -> tuple[Any, Any]:
        return await evaluator.doctor(), await verdicts(evaluator, kind)

    findings = [*gpus(kind.name, python)]
    facts: dict[str, Any] = {}
    found: Any = []
    try:
        facts, found = signals.run(_with_worker(kind.name, python, judged))
        findings += _sandbox(facts["sandbox"])
    except EvaluatorUnavailable as error:
        findings.append(Finding(MISSING, "evaluation worker", str(error)))
    print(report(kind, findings, facts, found))
    return 0 if has_passed(findings, found) else 1


def _verdict(findings: Sequence[Finding]) -> str:
    lacking = [finding.what for finding in findings if finding.state == MISSING]
    if lacking:
        return f"\nMissing for a search: {', '.join(lacking)}."
    return "\nA search can run here: evolve run task=rmsnorm"


def host() -> Iterator[Finding]:
    """Python, this package, processor."""
    version = platform.python_version()
    if sys.version_info >= (3, 14):
        yield Finding(MISSING, "python", f"{version}: Hydra 1.3 crashes there; use 3.11 to 3.13")
    else:
        yield Finding(OK, "python", f"{version}, {platform.system()} {platform.machine()}")
    yield Finding(OK, "evolve", f"{evolve.__version__} in {Path(evolve.__file__).parent}")
    count = os.process_cpu_count() if hasattr(os, "process_cpu_count") else os.cpu_count()
    yield Finding(OK, "cpu", f"{count} cores")


def packages() -> Iterator[Finding]:
    """The libraries, without importing any; each once, whatever needs it."""
    wishes = [*PACKAGES]
    for one in languages().values():
        wishes += ((each, f"{one.title} kernels cannot be built") for each in one.packages)
    for name in dict.fromkeys(package.distribution for package, _ in wishes):
        yield _package(name, [wish for wish in wishes if wish[0].distribution == name])


def _package(name: str, wishes: Sequence[tuple[Package, str]]) -> Finding:
    """A distribution, by all that is asked of it, with the consequence of its absence."""
    if lacking := [wish for wish in wishes if wish[0].missing]:
        state = MISSING if any(package.needed for package, _ in lacking) else NOTE
        consequences = ", ".join(dict.fromkeys(consequence for _, consequence in lacking))
        return Finding(state, name, f"{consequences}: {lacking[0][0].missing}")
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(OK, name, "version unknown")
    newest = min((package.newest for package, _ in wishes if package.newest), default=None)
    if newest is None or release(version) <= newest:
        return Finding(OK, name, version)
    tested = ".".join(map(str, newest))
    return Finding(
        NOTE,
        name,
        f"{version}, newer than the versions tested; if a check below or a search fails, install "
        f"{name} {tested}",
    )


def compiler() -> Iterator[Finding]:
    """The C++ compiler that builds candidates."""
    wanted = os.environ.get("CXX", "c++")
    found = shutil.which(wanted) or shutil.which("g++")
    if found is None:
        yield Finding(MISSING, "c++ compiler", f"no {wanted}; on Debian: apt-get install g++")
        return
    try:
        answer = subprocess.run(
            [found, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding(MISSING, "c++ compiler", f"{found} does not answer: {error}")
        return
    yield Finding(OK, "c++ compiler", (answer.stdout or answer.stderr).partition("\n")[0])


def database() -> Finding:
    """Whether a database in the current folder can use the write-ahead log."""
    try:
        with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".evolve-doctor-") as folder:
            connection = sqlite3.connect(Path(folder) / "probe.db")
            try:
                mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
                connection.execute("CREATE TABLE probe (x)")
            finally:
                connection.close()
    except (OSError, sqlite3.Error) as error:
        return Finding(MISSING, "database", f"{Path.cwd()} cannot be written: {error}")
    if is_shared_between_hosts(Path.cwd()):
        return Finding(
            NOTE, "database", "a network file system: no write-ahead log, one host at a time"
        )
    if mode == "wal":
        return Finding(
            OK, "database", f"SQLite {sqlite3.sqlite_version}, write-ahead log works here"
        )
    return Finding(
        NOTE, "database", f"no write-ahead log on this file system ({mode}): one host at a time"
    )


def models() -> Iterator[Finding]:
    """LiteLLM, and whose keys are seen; a search needs neither."""
    for finding in model_findings():
        yield Finding(*finding)


def device(kind: str, python: str | None) -> Iterator[Finding]:
    """GPUs as the worker's interpreter sees them, and the worker's report on its device."""
    if python is None and importlib.util.find_spec("torch") is None:
        yield Finding(MISSING, "evaluation worker", "cannot start without torch")
        return
    yield from gpus(kind, python)
    yield from judge(kind, python)


def gpus(kind: str, python: str | None) -> Iterator[Finding]:
    """GPUs as the worker's interpreter and the driver see them, and the requirements of kernels."""
    from evolve.app.doctor import amd, nvidia
    from evolve.evaluation.host import examine_host

    if kind == CPU.name:
        return
    try:
        facts = examine_host(python)
    except EvaluatorUnavailable as error:
        yield Finding(NOTE if kind == "auto" else MISSING, "gpu", str(error))
        return
    if kind == HIP.name:
        yield from amd.findings(facts)
        return
    yield from nvidia.findings(facts, wanted=kind == "cuda")


def judge(kind: str, python: str | None) -> Iterator[Finding]:
    """The evaluation worker's report on its device and its sandbox."""
    from evolve.app.device import kind_here

    try:
        worker = _with_worker(kind_here(kind, python), python, lambda worker: worker.doctor())
        facts = signals.run(worker)
    except (EvaluatorUnavailable, UsageError) as error:
        yield Finding(MISSING, "evaluation worker", str(error))
        return
    yield Finding(OK, "evaluation worker", ", ".join(map(str, facts["device"].values())))
    yield from _sandbox(facts["sandbox"])


def _sandbox(facts: dict[str, Any]) -> Iterator[Finding]:
    """The tier that is in force, and each mechanism with the host's reason against it."""
    tier = facts["tier"]
    lacking = [name for name, missing in facts["missing"].items() if missing]
    stronger = "".join(f"; {name} lacks {_names(facts['missing'][name])}" for name in lacking)
    yield Finding(OK if tier != "none" else NOTE, "sandbox", f"tier {tier}{stronger}")
    for name, mechanism in facts["mechanisms"].items():
        state = "in force" if mechanism["available"] else f"not here: {mechanism['why_not']}"
        yield Finding(OK if mechanism["available"] else NOTE, f"  {_names([name])}", state)


def _names(mechanisms: list[str]) -> str:
    return ", ".join(name.lower().replace("_", " ") for name in mechanisms)


async def _with_worker(
    kind: str, python: str | None, ask: Callable[["LocalEvaluator"], Awaitable[T]]
) -> T:
    from evolve.app.device import start_local

    evaluator = await start_local(kind, slots=1, python=python)
    try:
        return await ask(evaluator)
    finally:
        await evaluator.close()
