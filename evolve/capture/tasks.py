"""From a script to task files: parts by their share of its time, written with their workloads."""

import ast
import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evolve.capture.jobs import RECORD, TIME, Part, part_from
from evolve.capture.processes import RunScript, Script
from evolve.capture.task_file import Captured, file_text
from evolve.core.errors import FAILURES_OF_A_FUNCTION, UsageError
from evolve.report.text import make_folder, write_text
from evolve.tasks import find_task

MAX_INNER_CALLS = 16
MAX_CASES = 24
MAX_TIMED = 8
_BACKWARD = "_backward"  # end of the name of a backward pass's task
_OTHER_CALLS = "a second run made other calls: let the script seed its random numbers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Calls of a part with arguments of one kind; `seconds` of all of them."""

    kind: str
    shapes: str
    calls: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A part of a script.

    Attributes:
        part: modules of one class and constructor, or a function.
        share: of the script's time, its inner calls included.
        inner_calls: innermost calls that one call of it leads to; 1 for a part that makes none.
        is_compiled: whether torch.compile has compiled it.
        has_gradients: whether gradients flow back through it.
        device: type of its device.
        workloads: by time, the longest first.
    """

    part: Part
    share: float
    inner_calls: int
    is_compiled: bool
    has_gradients: bool
    device: str
    workloads: Sequence[Workload]

    @property
    def calls(self) -> int:
        """Of all workloads."""
        return sum(one.calls for one in self.workloads)

    @property
    def ceiling(self) -> float:
        """How many times as fast the script would be if this part took no time (Amdahl)."""
        return 1 / max(1 - self.share, 1e-3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """The parts of a script, and its time from the first call to the end."""

    total_s: float
    shares: Sequence[Share] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class Written:
    """The file of a part's task, or why there is none.

    Attributes:
        task: None with a `fault`.
        withheld: names of secrets for which None stands in the file.
        backward: the same of the task of its backward pass; None if no gradient came back.
    """

    task: Path | None = None
    fault: str = ""
    withheld: Sequence[str] = ()
    backward: "Written | None" = None


def shares_of(script: Script, run: RunScript) -> Capture:
    """Run the script, and find the share of every part, the largest first.

    Raises:
        UsageError: the script fails, or calls nothing of torch.
    """
    found = run({"purpose": TIME, "shows": True})
    if not found["parts"]:
        raise UsageError(
            f"script {script} called no torch.nn.Module, no watched function of torch, and none of "
            "its own with tensors. Name the script that runs the model; put the script's arguments "
            "after `--`."
        )
    total = found["total_s"]
    shares = [_share(one, total) for one in found["parts"]]
    return Capture(total_s=total, shares=sorted(shares, key=lambda one: -one.share))


def _share(found: dict[str, Any], total: float) -> Share:
    workloads = [Workload(**one) for one in found["workloads"]]
    seconds = sum(one.seconds for one in workloads)
    return Share(
        part=part_from(found["part"]),
        share=min(1.0, seconds / total) if total else 0.0,
        inner_calls=found["inner_calls"],
        is_compiled=found["compiled"],
        has_gradients=found["gradients"],
        device=found["device"],
        workloads=sorted(workloads, key=lambda one: -one.seconds),
    )


def select(capture: Capture, min_share: float, names: Collection[str]) -> list[Share]:
    """The parts that become tasks: those named, or all with the share that are not too large.

    Raises:
        UsageError: no part is named so, or none has the share.
    """
    if names:
        titles = {one.part.title for one in capture.shares}
        if unknown := sorted(set(names) - titles):
            known = ", ".join(sorted(titles))
            raise UsageError(f"--select {unknown[0]}: no part is called so; there are {known}")
        return [one for one in capture.shares if one.part.title in names]
    small = [one for one in capture.shares if one.inner_calls <= MAX_INNER_CALLS]
    chosen = [one for one in small if one.share >= min_share]
    if not chosen:
        largest = max(small or capture.shares, key=lambda one: one.share)
        raise UsageError(
            f"no part with at most {MAX_INNER_CALLS} inner calls has {100 * min_share:g} % of the "
            f"time; the largest is {largest.part.title} with {100 * largest.share:.1f} %. "
            "Lower --min-share, or name parts by --select."
        )
    return chosen


def write_tasks(
    script: Script, run: RunScript, chosen: Sequence[Share], folder: Path
) -> dict[Part, Written]:
    """Run the script again, record the calls of the parts, and write their tasks.

    Returns:
        What was written of each part.

    Raises:
        UsageError: the script fails, or a file of that name is there.
    """
    make_folder(folder, "--out")
    names = _names(chosen)
    _require_free(folder, [*names, *(f"{name}{_BACKWARD}" for name in names)])
    wanted = [
        {"part": one.part, "name": name, "kinds": [w.kind for w in one.workloads[:MAX_CASES]]}
        for one, name in zip(chosen, names, strict=True)
    ]
    job = {"purpose": RECORD, "wanted": wanted, "folder": str(folder.resolve())}
    found = run(job)
    recorded = {part_from(one["part"]): one for one in found["recorded"]}
    written: dict[Part, Written] = {}
    for share, name in zip(chosen, names, strict=True):
        one = recorded.get(share.part, {"fault": "", "text": ""})
        own = _written(script, share, one, folder / f"{name}.py")
        if own.task and (one["backward_text"] or one["backward_fault"]):
            back = {
                "fault": one["backward_fault"],
                "text": one["backward_text"],
                "calls": one["backward_calls"],
                "withheld": one["withheld"],
            }
            path = folder / f"{name}{_BACKWARD}.py"
            own = replace(own, backward=_written(script, share, back, path, is_backward=True))
        written[share.part] = own
    return written


def _require_free(folder: Path, names: Collection[str]) -> None:
    """Raise UsageError if a file that a task of these names may consist of is there."""
    for file in sorted(folder.iterdir()):
        name, _, rest = file.name.partition(".")
        if name in names and re.fullmatch(r"py|cases\.yaml|\d+\.pt", rest):
            raise UsageError(f"--out {folder}: {file.name} is there already; name another folder")


def _names(chosen: Sequence[Share]) -> list[str]:
    """Names of files, each once: the class or function in lower case."""
    names: list[str] = []
    for one in chosen:
        plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", one.part.title).lower()
        number, name = 1, plain
        while name in names:
            number += 1
            name = f"{plain}_{number}"
        names.append(name)
    return names


def _written(
    script: Script,
    share: Share,
    recorded: dict[str, Any],
    path: Path,
    *,
    is_backward: bool = False,
) -> Written:
    """Write a task; whatever is wrong with it is its own fault, and the others are written."""
    if fault := recorded["fault"] or ("" if recorded["text"] else _OTHER_CALLS):
        return Written(fault=fault)
    try:
        file = _write(script, share, recorded, path, is_backward=is_backward)
        return Written(file, withheld=recorded["withheld"])
    except (UsageError, SyntaxError, *FAILURES_OF_A_FUNCTION) as error:
        for file in (path, path.with_suffix(".cases.yaml"), *path.parent.glob(f"{path.stem}.*.pt")):
            file.unlink(missing_ok=True)
        return Written(fault=f"its file cannot be written: {error}")


def _write(
    script: Script, share: Share, recorded: dict[str, Any], path: Path, *, is_backward: bool
) -> Path:
    calls: dict[str, Any] = ast.literal_eval(recorded["calls"])
    workloads = [one for one in share.workloads if one.kind in calls]
    labels = _labels(workloads)
    arguments = {labels[one.kind]: calls[one.kind] for one in workloads}
    described = Captured(path.stem, share.part, share.device, arguments, is_backward)
    percent = f"{100 * share.share:.1f} % of the time"
    what = f"`{share.part.title}` in {Path(script.name).name}: {share.calls:,} calls, {percent}"
    heading = f"The backward pass of {what} (forward)." if is_backward else f"{what}."
    write_text(path, file_text(heading, recorded["text"], described))
    cases = "\n".join(_cases(workloads, labels))
    write_text(path.with_suffix(".cases.yaml"), f"{cases}\n")
    find_task(str(path))
    return path


def _labels(workloads: Sequence[Workload]) -> dict[str, str]:
    """Names of the cases by kind: the shape of the first tensor, numbered if it comes again."""
    labels: dict[str, str] = {}
    for one in workloads:
        plain = one.shapes.partition(",")[0] or "call"
        number, label = 1, plain
        while label in labels.values():
            number += 1
            label = f"{plain}-{number}"
        labels[one.kind] = label
    return labels


def _cases(workloads: Sequence[Workload], labels: dict[str, str]) -> Iterator[str]:
    """Lines of the file of cases: weights are shares of the time."""
    total = sum(one.seconds for one in workloads[:MAX_TIMED]) or 1.0  # none was timed
    for number, one in enumerate(workloads):
        label = labels[one.kind]
        case: dict[str, Any] = {"name": label, "constants": {"CALL": label}}
        if number < MAX_TIMED:
            case["weight"] = max(round(one.seconds / total, 4), 1e-4)  # YAML reads 1e-05 as text
        else:
            case["timed"] = False
        yield f"- {json.dumps(case)}"
