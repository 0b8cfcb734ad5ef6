"""`evolve best`: a run's winner as a file or an operator that needs nothing of this package."""

import argparse
import io
import platform
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evolve.app.database import open_store
from evolve.app.text import speedup_text
from evolve.cli.args import add_run, add_store, parser
from evolve.cli.console.terminal import notify
from evolve.core.errors import UsageError
from evolve.report.audit import findings_of, weak_task_text
from evolve.report.text import baseline_name, make_folder, one_line, printable, write_text

if TYPE_CHECKING:
    from evolve.core.run_store import RunStore
    from evolve.report.export.check import Checks
    from evolve.store import RunRow
    from evolve.store.champion import Champion

MODULE, TORCH_OP, SUITE = "module", "torch-op", "suite"
DONE, CHECK_FAILED = 0, 1
_MACHINE = re.compile(r"x86_64|aarch64|arm64|ppc64le|s390x|riscv64")
_CAPABILITY = re.compile(r"(?:^|sm_|capability )(\d+)\.?(\d)\b")


def main(words: Sequence[str]) -> int:
    """Write the winner where the words say."""
    options = _parse(words)
    from evolve.app.library.winner import standalone, winner_of

    with open_store(options.store) as store:
        run = store.run(options.run)
        if _form(options) == TORCH_OP:
            return _write_operator(store, run, options.output)
        text = standalone(store, run)
        winner = winner_of(store, run)
    if warning := _warning(run, winner):
        notify(warning)
    if options.form == SUITE:
        _write_for_suite(run, winner, text, Path(options.output or "."))
    elif options.output:
        print(write_text(Path(options.output), text))
    else:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # as Python will read it
        print(text, end="")
    return DONE


def _parse(words: Sequence[str]) -> argparse.Namespace:
    arguments = parser(
        "best",
        "Write a run's winner for use elsewhere: as one Python module, or as a folder with a "
        "torch.library operator, a drop-in torch.nn.Module and their tests, which are run; or in "
        "the form in which the task's suite takes answers. "
        "Exit status 0: written (and checked); 1: written, but a check failed.",
    )
    add_run(arguments)
    arguments.add_argument(
        "--as",
        dest="form",
        choices=(MODULE, TORCH_OP, SUITE),
        help=f"the format (default: {TORCH_OP} where -o names a folder, else {MODULE})",
    )
    arguments.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        help="FILE.py or a new folder (default: standard output; a folder named after the task; "
        f"for {SUITE} the current folder)",
    )
    add_store(arguments)
    return arguments.parse_args(words)


def _form(options: argparse.Namespace) -> str:
    is_file = options.output is None or options.output.endswith(".py")
    if options.form in (TORCH_OP, SUITE) and options.output is not None and is_file:
        raise UsageError(f"-o {options.output} is a file; --as {options.form} writes a folder")
    return options.form or (MODULE if is_file else TORCH_OP)


def _write_for_suite(run: "RunRow", winner: "Champion", text: str, folder: Path) -> None:
    from evolve.report.export.suite_form import suite_files

    for name, content in suite_files(run, winner, text).items():
        path = folder / name
        make_folder(path.parent, "-o")
        print(write_text(path, content))


def _write_operator(store: "RunStore", run: "RunRow", output: str | None) -> int:
    from evolve.app.library.winner import provenance, winner_of
    from evolve.report.export.check import require_pytest, run_tests
    from evolve.report.export.operator_text import operator_name
    from evolve.report.export.torch_op import Facts, check_folder, export_torch_op
    from evolve.report.run.winner import origin

    folder = Path(output or f"{operator_name(run.task.name)}_kernel")
    check_folder(folder)
    winner = winner_of(store, run)
    require_pytest()
    device, architecture = judged_on(winner, f"export the winner with --as {MODULE}")
    facts = Facts(
        device=device,
        architecture=architecture,
        gain=_gain(run, winner),
        provenance=tuple(provenance(run, winner, origin(store, run, winner))),
    )
    if warning := _warning(run, winner):
        notify(warning)
    source = store.source(winner.program)
    print(export_torch_op(folder, source, winner.assignment, run.task, facts), flush=True)
    print(f"running the tests of {folder} (kernel and compiler, a minute or so)", file=sys.stderr)
    checks = run_tests(folder)
    print("\n".join(_checks_text(checks, folder, architecture)))
    return DONE if checks.passed else CHECK_FAILED


def judged_on(winner: "Champion", remedy: str) -> tuple[str, str]:
    """Device type and architecture of a verdict: `("cuda", "sm_90")`, `("cpu", "x86_64")`.

    Args:
        winner: whose verdict it is.
        remedy: what the user can do without an architecture, for the error.

    Raises:
        UsageError: the verdict does not say which architecture it was.
    """
    evaluation = winner.evaluation
    facts = evaluation.environment
    if evaluation.device_class.startswith("cpu"):
        machine = _MACHINE.search(facts.get("os", ""))
        return "cpu", machine[0] if machine else platform.machine()
    found = _CAPABILITY.search(facts.get("capability", evaluation.device_class))
    if found is None:
        raise UsageError(
            f"the verdict on {evaluation.device_class} does not say which architecture that is; "
            f"{remedy}"
        )
    return "cuda", f"sm_{found[1]}{found[2]}"


def _checks_text(checks: "Checks", folder: Path, architecture: str) -> Iterator[str]:
    """A line for every test, with the number of cases passed and the error of the others."""
    for name in dict.fromkeys(test.name.partition("[")[0] for test in checks.tests):
        tests = [test for test in checks.tests if test.name.partition("[")[0] == name]
        failed = [test for test in tests if test.outcome == "failed"]
        passed = sum(test.outcome == "passed" for test in tests)
        mark = "FAILED" if failed else "ok" if passed else "-"
        said = name.removeprefix("test_").replace("_", " ")
        yield f"  {mark:6}  {said} ({passed} of {len(tests)})"
        for test in failed:
            yield f"          {test.name.removeprefix(name) or name}: {_fault(test.reason)}"
    if checks.fault:
        yield f"  FAILED  {printable(checks.fault)}"
    skipped = len(checks.skipped)
    passed = len(checks.tests) - skipped - len(checks.failed)
    yield f"{passed} checks passed, {len(checks.failed)} failed, {skipped} did not apply"
    if any("not the device" in test.reason for test in checks.skipped):
        yield (
            f"The kernel itself was NOT run: this machine is no {architecture}. "
            f"Run `pytest {folder}` on one."
        )
    if not checks.passed:
        yield f"{folder} is kept, but not fit to be merged; `pytest {folder}` shows more"


def _fault(reason: str) -> str:
    """The line of a failed test that describes the error."""
    lines = [line[1:].strip() for line in reason.splitlines() if line.startswith("E ")]
    return one_line(lines[0] if lines else reason, 200)


def _gain(run: "RunRow", winner: "Champion") -> str:
    from evolve.app.library.winner import proof_text

    against = baseline_name(str(run.config.get("baseline", "eager")))
    said = f"{speedup_text(winner.ratio)} over {against}, {proof_text(winner)}."
    return f"{said} {weak_task_text(findings_of(run.config))}".strip()


def _warning(run: "RunRow", winner: "Champion") -> str:
    """States that a winner is no gain, with the next step; empty if it is one."""
    if winner.ratio.is_gain:
        return ""
    against = baseline_name(run.baseline)
    is_slower = winner.ratio.high < 1
    found = f"is slower than {against}" if is_slower else f"shows no gain over {against}"
    return (
        f"the best kernel of run {run.name} {found}: {speedup_text(winner.ratio)}. Keep {against}, "
        f"or search on: `evolve resume {shlex.quote(run.name)}` with a higher "
        "termination.wall_time or termination.evaluations"
    )
