"""A report on a device: findings about the machine, and verdicts on programs of known outcome.

It is Markdown for an issue about an untested device or a bug. The home folder is written as `~` and
the host name as `HOST`; other paths stay.
"""

import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import evolve
from evolve.app.finding import MISSING, Finding
from evolve.app.text import speedup_text
from evolve.core.devices import DeviceKind
from evolve.core.evaluation import Evaluation, Fidelity, Status
from evolve.core.program import Program, instance_digest
from evolve.core.protocols import EvaluationRequest, Evaluator
from evolve.languages.registry import find_language
from evolve.tasks import find_task
from evolve.tasks.shipped import library_folder

TASK = "softmax"
_TORCH = """import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        {body}
"""
_RETURNS_EARLY = """work = torch.cuda.Stream()
        y = torch.empty_like(x)
        with torch.cuda.stream(work):
            for _ in range(20):
                y.copy_(torch.softmax(x, dim=-1))
        return y"""
# Its outcome is read too early, or differs from call to call, or it works in the turn of others.
_OF_LATE_WORK = (Status.WRONG_VALUE, Status.NONDETERMINISTIC, Status.TIMING_UNBOUNDED)


@dataclass(frozen=True, slots=True)
class KnownProgram:
    """A program whose outcome is known: whether it is correct, and whether by its own kernels."""

    name: str
    source: str
    statuses: tuple[Status, ...]
    is_custom: bool | None = None

    def passed(self, found: Evaluation) -> bool:
        """Whether the verdict is as it has to be."""
        is_as_known = self.is_custom is None or found.custom is self.is_custom
        return found.status in self.statuses and is_as_known


def known_programs(kind: DeviceKind) -> Iterator[KnownProgram]:
    """Those for a kind of device, honest ones first."""
    yield KnownProgram(
        "in plain torch",
        _torch_program("return torch.softmax(x, dim=-1)"),
        (Status.CORRECT,),
        False,
    )
    if find_language("triton").is_timed_on(kind):
        text = (library_folder() / TASK / "seeds" / "seed_triton.py").read_text()
        yield KnownProgram("in Triton", text, (Status.CORRECT,), True)
    wrong = _torch_program("return torch.softmax(x, dim=-1) * 1.01")
    yield KnownProgram("that is off by 1 %", wrong, (Status.WRONG_VALUE,))
    writes = _torch_program("y = torch.softmax(x, dim=-1)\n        x.zero_()\n        return y")
    yield KnownProgram("that overwrites its input", writes, (Status.MUTATED_INPUT,))
    if kind.is_gpu:
        yield KnownProgram(
            "that returns before its stream is done", _torch_program(_RETURNS_EARLY), _OF_LATE_WORK
        )


def _torch_program(body: str) -> str:
    return _TORCH.format(body=body)


async def verdicts(evaluator: Evaluator, kind: DeviceKind) -> list[tuple[KnownProgram, Evaluation]]:
    """Judge each program: honest ones as a search does, cheats with a short timing."""
    task = find_task(TASK, size=kind.size, precision="task", accumulation="ieee")
    found = []
    for one in known_programs(kind):
        honest = Status.CORRECT in one.statuses
        request = EvaluationRequest(
            task=task,
            instance=instance_digest(Program(one.source).digest, {}),
            source=one.source,
            fidelity=Fidelity.SEARCH if honest else Fidelity.SCREEN,
            opponents={},
        )
        found.append((one, await evaluator.evaluate(request)))
    return found


def has_passed(
    findings: Sequence[Finding], found: Sequence[tuple[KnownProgram, Evaluation]]
) -> bool:
    """Whether the device is all there and every verdict is as it has to be."""
    is_whole = all(finding.state != MISSING for finding in findings)
    return is_whole and bool(found) and all(one.passed(verdict) for one, verdict in found)


def report(
    kind: DeviceKind,
    findings: Sequence[Finding],
    facts: Mapping[str, Any],
    found: Sequence[tuple[KnownProgram, Evaluation]],
) -> str:
    """The text, in Markdown.

    Args:
        kind: of the device.
        findings: about the device.
        facts: the worker's about it; empty if it did not come up.
        found: verdicts; none if it did not.
    """
    outcome = "passed" if has_passed(findings, found) else "FAILED"
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    lines = [
        f"# Report on device={kind.name}: {outcome}",
        "",
        f"evolve {evolve.__version__}, Python {platform.python_version()}, {system}",
        "",
        "| state | part | finding |",
        "| --- | --- | --- |",
        *(_row(each.state, each.what.strip(), each.detail) for each in findings),
    ]
    if facts:
        lines += ["", "| fact | value |", "| --- | --- |"]
        known = {**facts["device"], **facts["versions"]}
        lines += [_row(name, value) for name, value in known.items() if value]
    lines += ["", "| program | outcome | as it has to be | ratio to eager | feedback |"]
    lines += ["| --- | --- | --- | --- | --- |"]
    lines += [_verdict(one, evaluation) for one, evaluation in found]
    return _without_home("\n".join(lines))


def _verdict(one: KnownProgram, evaluation: Evaluation) -> str:
    ratio = next(iter(evaluation.ratios.values()), None)
    said = speedup_text(ratio) if ratio is not None else ""
    passed = "yes" if one.passed(evaluation) else "NO"
    return _row(f"{TASK} {one.name}", evaluation.status.value, passed, said, evaluation.feedback)


def _row(*cells: object) -> str:
    """A row of a table; a cell has one line and no bar."""
    texts = (" ".join(str(cell).split()).replace("|", "/")[:300] for cell in cells)
    return f"| {' | '.join(texts)} |"


def _without_home(text: str) -> str:
    home = Path.home()
    if home != home.parent:  # the root is in every path
        text = text.replace(str(home), "~")
    return re.sub(rf"\b{re.escape(platform.node())}\b", "HOST", text) if platform.node() else text
