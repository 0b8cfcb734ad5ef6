"""The words between a search and the workers that fetch evaluations from it: JSON by POST.

    /v1/check   {protocol, version} -> {}
    /v1/hello   {protocol, version, name, instance, facts, holds} -> {session, lease_s}
    /v1/poll    {session, has: {id: phase}} -> {calls: [...], abandon: [id], out, bye, lost}
    /v1/answer  {id, key, result} | {id, key, error: {kind, message}} -> {accepted}
    /v1/leave   {session} -> {}

A poll is answered as soon as there is something to do, at the latest after a quarter of the lease,
and renews the lease. It names the calls that the worker has, so an answer that was lost on the way
is given again. `result` is JSON as a text. A call has the fields of `Call`; `key` is the same for
the same question, so that a worker that still has or makes the answer for an earlier search gives
it to the next (`holds`).

401: another token; 404: not a search; 409: the worker does not fit; 410: the lease has ended.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from evolve.core.digest import framed_digest
from evolve.core.evaluation import Status

VERSION = 1
POLLS_PER_LEASE = 4
TOKEN_VARIABLE = "EVOLVE_CLUSTER_TOKEN"
EVALUATE = "evaluate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One question to a worker.

    Attributes:
        id: of this question to this worker.
        key: of the question, whichever worker or search asks it.
        method: of the judge's protocol, as are `params`.
        deadline_s: seconds that the judge has for it.
        about: the instance, by digest.
        reuse: whether the answer that the worker announced in `holds` will do.
    """

    id: str
    key: str
    method: str
    params: Mapping[str, Any]
    deadline_s: float
    about: str
    reuse: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Call":
        """The call that plain data holds.

        Raises:
            KeyError: a field is missing.
        """
        return cls(**{field.name: data[field.name] for field in fields(cls)})


def key_of(method: str, params: Mapping[str, Any]) -> str:
    """The key of a question.

    `params` of an evaluation have `repeat`: an instance that is measured again is another question.
    Their `target_speedups` may have risen since a worker was asked, and its answer is as good.
    """
    asked = {name: value for name, value in params.items() if name != "target_speedups"}
    return framed_digest(method, json.dumps(asked, sort_keys=True))


def may_be_kept(method: str, result: Any) -> bool:
    """Whether an answer holds for the same question of the next search too."""
    return method == EVALUATE and isinstance(result, dict) and result.get("status") != Status.INFRA
