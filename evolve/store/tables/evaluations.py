"""Evaluations as rows, and back."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Row, and_, bindparam, insert, select

from evolve.core.digest import canonical_json
from evolve.core.evaluation import EARLY_STOPPED, Evaluation, Status, label_name
from evolve.core.measurement import Ratio
from evolve.store.database import blobs
from evolve.store.database.schema import evaluation, evaluation_ratio, instance, run

TO_BASELINE = and_(
    evaluation_ratio.c.evaluation == evaluation.c.id, evaluation_ratio.c.baseline == run.c.baseline
)
"""Joins the ratio of an evaluation to the baseline of its run."""

_PUT = insert(evaluation).returning(evaluation.c.id)
_PUT_RATIOS = insert(evaluation_ratio)
_BY_TICKET = select(evaluation).where(evaluation.c.ticket == bindparam("ticket"))
_RATIOS = (
    select(evaluation_ratio)
    .where(evaluation_ratio.c.evaluation.in_(bindparam("evaluations", expanding=True)))
    .order_by(evaluation_ratio.c.evaluation, evaluation_ratio.c.baseline)
)
# Our own fault, or a host too noisy to time on at that moment: next time may be different.
SAYS_NOTHING = (Status.INFRA, Status.TIMING_UNBOUNDED)
_CACHED = (
    select(evaluation)
    .join(instance, instance.c.id == evaluation.c.instance)
    .where(
        instance.c.digest == bindparam("digest"),
        evaluation.c.task_revision == bindparam("task_revision"),
        evaluation.c.device_class == bindparam("device_class"),
        evaluation.c.evaluator_version == bindparam("evaluator_version"),
        evaluation.c.fidelity == bindparam("fidelity"),
        *(evaluation.c.status != status for status in SAYS_NOTHING),  # IN is expanded each time
    )
    .order_by(evaluation.c.id.desc())
    .limit(64)
)


def refutes(item: Evaluation) -> bool:
    """Whether a verdict speaks against the program: it is wrong, or not of its own kernels."""
    is_wrong = item.status not in (Status.CORRECT, *SAYS_NOTHING)
    return is_wrong or item.custom is False


def put(connection: Connection, ticket: int, instance_id: int, item: Evaluation) -> int:
    """Store the evaluation of a ticket's instance; returns its id."""
    data = item.to_json()
    environment, samples = _json_text(data["environment"]), _json_text(data["samples"])
    texts = blobs.put_all(connection, filter(None, (item.feedback, environment, samples)))
    row = {
        "ticket": ticket,
        "instance": instance_id,
        "status": item.status.value,
        "stage": int(item.stage),
        "fidelity": item.fidelity.value,
        "task_revision": item.task_revision,
        "device_class": item.device_class,
        "evaluator_version": item.evaluator_version,
        "custom": _whole_number(item.custom),
        "suite": _whole_number(item.suite),
        "cases": canonical_json(data["cases"]),
        "labels": canonical_json(data["labels"]),
        "descriptors": canonical_json(data["descriptors"]),
        "durations_s": canonical_json(data["durations_s"]),
        "device_time_s": item.device_time_s,
        "feedback": texts.get(item.feedback),
        "environment": texts.get(environment),
        "samples": texts.get(samples),
    }
    identity: int = connection.execute(_PUT, row).scalar_one()
    if item.ratios:
        connection.execute(
            _PUT_RATIOS, [_ratio_row(identity, *pair) for pair in item.ratios.items()]
        )
    return identity


def _ratio_row(evaluation_id: int, baseline: str, ratio: Ratio) -> dict[str, Any]:
    return {
        "evaluation": evaluation_id,
        "baseline": baseline,
        "ratio": ratio.value,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
    }


def of_ticket(connection: Connection, ticket: int, *, samples: bool = True) -> Evaluation | None:
    """The whole evaluation of a ticket, or None if it has none (yet).

    Raw samples are most of its bytes; without them it is read in a fraction of the time.
    """
    row = connection.execute(_BY_TICKET, {"ticket": ticket}).one_or_none()
    return _whole(connection, row, samples=samples)


def cached(
    connection: Connection,
    digest: str,
    task_revision: str,
    device_class: str,
    evaluator_version: str,
    fidelity: str,
) -> Evaluation | None:
    """The evaluation with this key, of any run, that says something about the program.

    None if several do: each alone may be the lucky one, or the one that was refuted later. A
    verdict that was taken over says no more than the one that it is a copy of, nor does one that
    was cut short beside a full one.
    """
    key = {
        "digest": digest,
        "task_revision": task_revision,
        "device_class": device_class,
        "evaluator_version": evaluator_version,
        "fidelity": fidelity,
    }
    rows = [*{_said_by(row): row for row in connection.execute(_CACHED, key)}.values()]
    rows = [row for row in rows if not _is_early_stopped(row)] or rows
    return _whole(connection, rows[0]) if len(rows) == 1 else None


def _said_by(row: Row[Any]) -> tuple[Any, ...]:
    """All that a verdict has measured: no two have it in common, but for copies."""
    return row.status, row.custom, row.cases, row.labels, row.durations_s, row.samples


def _is_early_stopped(row: Row[Any]) -> bool:
    return any(label_name(name) == EARLY_STOPPED for name, _ in json.loads(row.labels))


def ratios(connection: Connection, evaluations: Iterable[int]) -> dict[int, dict[str, Ratio]]:
    """The ratios of some evaluations, by evaluation id and baseline."""
    found: dict[int, dict[str, Ratio]] = {}
    for row in connection.execute(_RATIOS, {"evaluations": list(evaluations)}):
        ratio = Ratio(row.ratio, row.ratio_low, row.ratio_high)
        found.setdefault(row.evaluation, {})[row.baseline] = ratio
    return found


def _whole(
    connection: Connection, row: Row[Any] | None, *, samples: bool = True
) -> Evaluation | None:
    if row is None:
        return None
    return of_row(
        row,
        ratios(connection, [row.id]).get(row.id, {}),
        feedback=blobs.get_unless_none(connection, row.feedback),
        environment=_get_json(connection, row.environment),
        samples=_get_json(connection, row.samples) if samples else {},
    )


def of_row(
    row: Row[Any],
    found: Mapping[str, Ratio],
    *,
    feedback: str,
    environment: Mapping[str, str],
    samples: Mapping[str, Any],
) -> Evaluation:
    """A row as an evaluation, with what is not in the row itself."""
    return Evaluation.from_json(
        {
            "status": row.status,
            "stage": row.stage,
            "fidelity": row.fidelity,
            "task_revision": row.task_revision,
            "device_class": row.device_class,
            "evaluator_version": row.evaluator_version,
            "ratios": {baseline: ratio.to_json() for baseline, ratio in found.items()},
            "cases": json.loads(row.cases),
            "custom": boolean(row.custom),
            "suite": boolean(row.suite),
            "labels": json.loads(row.labels),
            "feedback": feedback,
            "descriptors": json.loads(row.descriptors),
            "environment": environment,
            "samples": samples,
            "durations_s": json.loads(row.durations_s),
            "device_time_s": row.device_time_s,
        }
    )


def boolean(value: int | None) -> bool | None:
    """A three-valued column: None stays unknown."""
    return None if value is None else bool(value)


def _whole_number(value: bool | None) -> int | None:
    return None if value is None else int(value)


def _json_text(value: dict[str, Any]) -> str:
    return canonical_json(value) if value else ""


def _get_json(connection: Connection, identity: int | None) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(blobs.get_unless_none(connection, identity) or "{}")
    return value
