"""A task that failed its audit: how everything that shows a result says so.

The findings stand under `audit` in a run's configuration: a null candidate (`name`), the case that
it passed (`passed_by`), and `detail`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from evolve.core.task import case_text

NOT_COUNTED = "not counted: weak task"
"""The strict verdict on a weak task, for any verdict of the judge."""

MAX_SHOWN = 3

Findings = Sequence[Mapping[str, str]]


def findings_of(config: Mapping[str, Any]) -> Findings:
    """The audit's findings when the run began; empty for a sound task."""
    return config.get("audit") or []


def weakness(findings: Findings) -> str:
    """The task's weakness, in one clause; empty for a sound task."""
    said = [f"{finding['detail']} ({case_text(finding['passed_by'])})" for finding in findings]
    more = [f"and {len(said) - MAX_SHOWN:,} more"] if len(said) > MAX_SHOWN else []
    return "; ".join([*said[:MAX_SHOWN], *more])


def weak_task_text(findings: Findings) -> str:
    """A sentence or two for readers of a result; empty for a sound task."""
    if not findings:
        return ""
    return (
        f"The task is WEAK: {weakness(findings)}. Being correct means little here; this result "
        "does not count as strict."
    )
