"""A document from a finished run: its facts in order, for a person to draw the conclusions.

No model writes here, and text of models and candidates (notes, code, tunable values, messages) is
quoted, for documents go into prompts as they are. Gains are quotients of measured speedups over the
same baseline (indirect), with the interval that both measurements leave.
"""

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from evolve.core.evaluation import Fidelity, Status
from evolve.core.lineage import NO_PROPOSALS, NOT_SEARCHED, Step
from evolve.core.measurement import Ratio
from evolve.core.task import Task
from evolve.languages.registry import detect_language
from operators.knowledge.document import LANGUAGES
from operators.knowledge.retrieval import device_path
from operators.quoting import quote

_MAX_ROWS = 8  # gains, losses, and kinds of failures that are listed
_DIFF_LINES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The facts of a run that `skeleton` needs.

    `steps` are in sequence order. `feedback` gives the judge's words on a step by its number,
    `source` a program's text by digest. `device` is as an evaluation's device class names it.
    """

    name: str
    task: Task
    baseline: str
    device: str
    versions: Mapping[str, str]
    steps: Sequence[Step]
    source: Callable[[str], str]
    feedback: Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Change:
    """A step that was measured, beside the best measurement of its parent before it."""

    parent: Step
    child: Step
    gain: Ratio


def skeleton(run: RunRecord) -> str:
    """The document as text; `parse` reads it as it stands."""
    changes = sorted(_changes(run), key=lambda change: (-change.gain.value, change.child.sequence))
    helped = [change for change in changes if change.gain.is_gain]
    hurt = [change for change in reversed(changes) if change.gain.high < 1.0]
    unclear = len(changes) - len(helped) - len(hurt)
    lines = [
        *_front(run),
        "",
        f"What run {run.name} measured on task {run.task.name} ({run.device}). Gains are quotients",
        f"of speedups over {run.baseline}, with 95 % intervals; they are indirect. Replace this",
        "paragraph by what follows from the facts below, in the form: when X, do Y, because Z.",
        "",
        "## What helped",
        "",
        *(_told(run, helped, difference=True) or ["No change was faster by its whole interval."]),
        "",
        "## What made it slower",
        "",
        *(_told(run, hurt, difference=False) or ["No change was slower by its whole interval."]),
        "",
        f"Changes that made no difference that the intervals show: {unclear}.",
        "",
        "## Where it started",
        "",
        *(_starts(run) or ["No program without a parent was measured."]),
        "",
        "## What failed",
        "",
        *(_failures(run) or ["Nothing failed."]),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _front(run: RunRecord) -> Iterator[str]:
    programs = dict.fromkeys(str(step.program) for step in run.steps if step.program)
    languages = {detect_language(run.source(digest)).name for digest in programs}
    kinds = {
        "category": [run.task.category] if run.task.category else [],
        "device": [path] if (path := device_path(run.device)) else [],
        "language": sorted(languages & LANGUAGES),
    }
    yield "---"
    yield f"id: {_slug(f'skill-{run.name}')}"
    yield f"title: {_quoted(f'What helped {run.task.name} in run {run.name}')}"
    yield "part: guidance"
    if any(kinds.values()):
        yield "tags:"
    yield from (f"  {kind}: [{', '.join(values)}]" for kind, values in kinds.items() if values)
    if run.versions:
        yield "checked:"
    yield from (f"  {name}: {_quoted(run.versions[name])}" for name in sorted(run.versions))
    yield "tested: false"
    yield "sources:"
    yield f"  - title: {_quoted(f'run {run.name} of evolve')}"
    yield f"    url: run:{_slug(run.name)}"
    yield "---"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _quoted(text: str) -> str:
    return '"' + re.sub(r'[\\"\x00-\x1f]', " ", text) + '"'


def _changes(run: RunRecord) -> Iterator[Change]:
    """Every measured step with a measured parent; verifications change nothing."""
    best: dict[str, Step] = {}
    for step in run.steps:
        ratio = _ratio(step, run.baseline)
        if ratio is None or step.operator in NO_PROPOSALS:
            continue
        parent = best.get(step.parents[0]) if step.parents else None
        if parent is not None:
            before = _ratio(parent, run.baseline)
            assert before is not None
            yield Change(parent, step, ratio / before)
        program = str(step.program)
        if program not in best or ratio.value > best[program].ratios[run.baseline].value:
            best[program] = step


def _ratio(step: Step, baseline: str) -> Ratio | None:
    strict = step.status is Status.CORRECT and step.custom is True
    if not strict or step.program is None or step.fidelity is Fidelity.SCREEN:
        return None
    return step.ratios.get(baseline)


def _told(run: RunRecord, changes: Sequence[Change], *, difference: bool) -> list[str]:
    lines: list[str] = []
    for change in changes[:_MAX_ROWS]:
        gain, child = change.gain, change.child
        lines.append(
            f"- step {child.sequence}, {child.operator}: {gain.value:.3f} times as fast "
            f"({gain.low:.3f} to {gain.high:.3f}) as step {change.parent.sequence}"
        )
        lines += _said(_settings(change), "tunables") + _said(_line(child.note), "note")
        if difference and child.program != change.parent.program:
            lines += _difference(run, change)
    if len(changes) > _MAX_ROWS:
        lines.append(f"- and {len(changes) - _MAX_ROWS} more")
    return lines


def _starts(run: RunRecord) -> list[str]:
    """The first measurement of every program that came from no other one, fastest first."""
    first: dict[str, Step] = {}
    for step in run.steps:
        if not step.parents and step.operator not in NOT_SEARCHED and _ratio(step, run.baseline):
            first.setdefault(str(step.program), step)
    ranked = sorted(first.values(), key=lambda step: -step.ratios[run.baseline].value)
    lines: list[str] = []
    for step in ranked[:_MAX_ROWS]:
        ratio = step.ratios[run.baseline]
        lines.append(
            f"- step {step.sequence}, {step.operator}: {ratio.value:.3f} times {run.baseline}, "
            f"{ratio.low:.3f} to {ratio.high:.3f}"
        )
        lines += _said(_line(step.note), "note")
    return lines


def _settings(change: Change) -> str:
    """Tunables whose value the change set differently."""
    before, after = change.parent.assignment, change.child.assignment
    names = sorted(name for name in after if after[name] != before.get(name))
    return _line(
        ", ".join(f"{name} {before.get(name, 'as written')} to {after[name]}" for name in names)
    )


def _difference(run: RunRecord, change: Change) -> list[str]:
    before, after = (run.source(str(step.program)) for step in (change.parent, change.child))
    diff = [
        line.rstrip()
        for line in difflib.unified_diff(before.splitlines(), after.splitlines(), n=1, lineterm="")
    ][2:]
    shown = [line.replace("```", "'''") for line in diff[:_DIFF_LINES]]
    cut = [f"... {len(diff) - _DIFF_LINES} more lines"] if len(diff) > _DIFF_LINES else []
    return ["", *quote("\n".join(["```diff", *shown, *cut, "```"]), "code").split("\n"), ""]


def _failures(run: RunRecord) -> list[str]:
    """Statuses by frequency, each with its most frequent first lines of feedback."""
    failed: dict[str, Counter[str]] = {}
    for step in run.steps:
        if step.operator in NOT_SEARCHED or step.status in (None, Status.CORRECT, Status.INFRA):
            continue
        words = _line(run.feedback(step.sequence))
        failed.setdefault(str(step.status), Counter())[words] += 1
    lines: list[str] = []
    for status, reasons in sorted(failed.items(), key=lambda item: (-item[1].total(), item[0])):
        lines.append(f"- {status}: {reasons.total()}")
        lines += _reasons(reasons)
    unread = [_line(step.failure) for step in run.steps if step.failure]
    if unread:
        lines.append(f"- not proposed: {len(unread)}")
        lines += _reasons(Counter(unread))
    return lines


def _reasons(reasons: Counter[str]) -> list[str]:
    lines: list[str] = []
    for words, count in reasons.most_common(3):
        lines += [f"  - {count} times{':' if words else ', without a word'}"]
        lines += _said(words, "message")
    return lines


def _said(text: str, what: str) -> list[str]:
    """Text by another author, on lines below our own."""
    return quote(text, what).split("\n") if text else []


def _line(text: str) -> str:
    """The first line, short, without characters that Markdown reads as a fence or a heading."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    return " ".join(first.replace("```", "'''").split()).lstrip("# ")[:200]
