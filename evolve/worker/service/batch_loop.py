"""The loop of a batch: which request goes to which judge when, and the records it writes."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from evolve.core.errors import EvaluatorUnavailable
from evolve.core.evaluation import Evaluation, Fidelity, Stage, Status
from evolve.worker.service.batch_costs import Costs
from evolve.worker.service.batch_files import MAX_FAILURES, Answers, BatchRequest
from evolve.worker.service.judge_process import GREETING, JudgeProcess, Replies, Reply
from evolve.worker.service.shards import Shards

RESERVE_S = 5.0  # before the deadline: to end the judges and to write the last lines
OVERDUE_S = 1800.0  # without an answer: a judge hangs
HELLO_S = 300.0
MAX_CONSECUTIVE_FAILURES = (
    5  # failures of our own without an answer in between: it is not the candidates
)


@dataclass(slots=True)
class Place:
    """One judge's place: its options, its process if there is one, and its running requests."""

    words: Sequence[str]
    judge: JudgeProcess | None = None
    running: dict[int, tuple[BatchRequest, float]] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        return self.judge is not None and self.judge.ended


class Batch:
    """Judges the requests without answers in a folder.

    Args:
        requests: all of the batch.
        answers: of earlier starts.
        shards: where answers go.
        judges: the options of `serve` for each judge; there is one for each device.
        ends_at: when to have ended, on the monotonic clock; None: when all is done.
        slots: requests that a judge has under way at once; None: as many as it suggests.
        say: takes lines of progress.
    """

    def __init__(
        self,
        requests: Sequence[BatchRequest],
        answers: Answers,
        shards: Shards,
        *,
        judges: Sequence[Sequence[str]] = ((),),
        ends_at: float | None = None,
        slots: int | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        self._requests, self._answers, self._shards = requests, answers, shards
        self._places = [Place(words) for words in judges]
        self._ends_at, self._slots, self._say = ends_at, slots, say
        self._costs = Costs()
        left = self._left()
        self._waiting = [request for request in left if not answers.of(request).failures]
        self._suspects = [request for request in left if answers.of(request).failures]
        self._number = GREETING
        self._replies: Replies = SimpleQueue()
        self._statuses: Counter[str] = Counter()
        self._stopped_by = ""
        self._failures_in_a_row = 0
        self._works = False  # a judge has given a verdict in this start

    def stop(self, reason: str) -> None:
        """Cancel running requests, and end. Safe from a signal handler."""
        self._stopped_by = self._stopped_by or reason
        self._replies.put(None)

    def run(self) -> int:
        """Judge until all is answered or the time is up; returns how many requests are left.

        Raises:
            UsageError: a judge refuses its options.
            EvaluatorUnavailable: one does not come up, or fails on every request.
        """
        started = time.monotonic()
        try:
            while self._begin() and not self._stopped_by:
                self._take(self._receive())
        except EvaluatorUnavailable:
            if not self._stopped_by and self._left_s() > 0:
                raise
            self.stop("the deadline")  # a judge had no time to come up
        finally:
            self._drop()
            self._write(
                {
                    "totals": {
                        "requests": len(self._requests),
                        "left": len(self._left()),
                        "by_status": dict(self._statuses),
                        "seconds": round(time.monotonic() - started, 3),
                        "ended_by": self._stopped_by or "the last answer",
                    }
                }
            )
        return len(self._left())

    def _left(self) -> list[BatchRequest]:
        return [request for request in self._requests if not self._answers.of(request).final]

    def _write(self, record: Mapping[str, Any]) -> None:
        """To the disk, and into the known answers, as a later start will read it."""
        self._shards.write(record)
        self._answers.take(record)

    def _begin(self) -> bool:
        """Give the judges as many requests as they can take; False if none is running."""
        for place in self._places:
            while (request := self._next(place)) is not None:
                judge = self._living_judge(place)
                self._write({"begun": request.id, "subject": request.subject})
                self._number += 1
                place.running[self._number] = request, time.monotonic()
                judge.send(self._number, request.method, request.params)
        is_busy = any(place.running for place in self._places)
        if not is_busy and (self._waiting or self._suspects):
            self.stop("the deadline")
        return is_busy

    def _next(self, place: Place) -> BatchRequest | None:
        """Take out the next request for which there is room and, as it seems, time."""
        queue = self._waiting or self._suspects
        if not queue or self._stopped_by or self._left_s() <= 0:
            return None
        if len(place.running) >= (1 if queue is self._suspects else self._budget(place)):
            return None
        for at, request in enumerate(queue):
            if self._costs.expected_s(request) < self._left_s():
                return queue.pop(at)
        return None

    def _budget(self, place: Place) -> int:
        return self._living_judge(place).slots if self._slots is None else self._slots

    def _left_s(self) -> float:
        """Seconds in which an answer still counts."""
        if self._ends_at is None:
            return OVERDUE_S
        return self._ends_at - RESERVE_S - time.monotonic()

    def _living_judge(self, place: Place) -> JudgeProcess:
        """The judge of a place, started and greeted if none is running.

        All of them are started before the first is waited for.
        """
        for other in self._places:
            if other.judge is None or (other is place and other.ended):
                other.judge = JudgeProcess(other.words, self._replies)
        judge = place.judge
        assert judge is not None
        if not judge.hello:
            judge.greet(min(HELLO_S, self._left_s()), lambda: bool(self._stopped_by))
            self._write({"hello": judge.hello})
            self._say(f"judge: {judge.hello.get('device_class')}, {judge.slots} at once")
        return judge

    def _receive(self) -> Reply | None:
        """The next reply; None if a judge ended, a stop was asked, or the time is up."""
        begun = [(at, place) for place in self._places for _, at in place.running.values()]
        oldest, place = min(begun, key=lambda pair: pair[0])
        overdue_s = oldest + OVERDUE_S - time.monotonic()
        try:
            return self._replies.get(timeout=max(0.0, min(overdue_s, self._left_s())))
        except Empty:
            if self._ends_at is not None and self._left_s() <= 0:
                self.stop("the deadline")
            elif place.judge is not None:
                place.judge.end()
            return None

    def _take(self, reply: Reply | None) -> None:
        """Write down the replies; requests of a dead judge go to the end."""
        if reply is not None:
            for place in self._places:
                if reply["id"] in place.running:
                    self._answer(*place.running.pop(reply["id"]), reply)
            return
        for place in self._places:
            if place.ended and place.running and not self._stopped_by:
                self._say(f"the judge ended, with {len(place.running)} requests under way")
                given = [request for request, _ in place.running.values()]
                place.running.clear()
                for request in given:
                    self._retry(request, "the judge ended while it judged this")
                self._count_failure("it ended")

    def _answer(self, request: BatchRequest, begun: float, reply: Reply) -> None:
        seconds = time.monotonic() - begun
        result: Any = reply.get("result")
        error: Any = reply.get("error")
        status, final, at_once = "answered", True, True
        if error is not None:
            status = "refused" if error["kind"] == "usage" else "failed"
            final = status == "refused"
        elif request.method == "evaluate":
            verdict = Evaluation.from_json(result)
            status, final = str(verdict.status), verdict.status is not Status.INFRA
            at_once = verdict.is_worth_another_try
        said = {"result": result} if error is None else {"error": error}
        self._write(_answer_line(request, said, final=final, seconds=seconds))
        self._costs.add(request, seconds)
        self._report(request, status, seconds)
        if final:
            self._failures_in_a_row = 0
            self._works = self._works or request.method == "evaluate"
        else:
            why = error["message"] if error else result["feedback"]
            self._retry(request, why, at_once=at_once)
            self._count_failure(why)

    def _count_failure(self, why: str) -> None:
        self._failures_in_a_row += 1
        if self._failures_in_a_row >= MAX_CONSECUTIVE_FAILURES:
            raise EvaluatorUnavailable(f"the judge fails on every request, last: {why}")

    def _retry(self, request: BatchRequest, why: str, *, at_once: bool = True) -> None:
        """After a failure of our own: once more at the end, or after so many never again.

        If it would only fail again by then (not `at_once`), the end is that of a later start.
        """
        if self._answers.of(request).failures < MAX_FAILURES:
            if at_once:
                self._suspects.append(request)
            return
        if not self._works and (len(self._left()) > 1 or not self._has_worked()):
            raise EvaluatorUnavailable(f"the judge fails at {request.id}, and at all before: {why}")
        why = f"it failed {MAX_FAILURES} times by our own fault, the last time: {why}"
        said: dict[str, Any] = {"error": {"kind": "unavailable", "message": why}}
        if request.method == "evaluate":
            said = {"result": _infra(request, self._answers.hello, why).to_json()}
        self._write(_answer_line(request, said, final=True, seconds=0.0))

    def _has_worked(self) -> bool:
        """Whether any start has come to a verdict."""
        answers = (self._answers.of(request).final for request in self._requests)
        return any(answer is not None and "status" in (answer.result or {}) for answer in answers)

    def _report(self, request: BatchRequest, status: str, seconds: float) -> None:
        self._statuses[status] += 1
        done = len(self._requests) - len(self._left())
        left = f", {self._left_s():.0f} s left" if self._ends_at is not None else ""
        self._say(f"{done}/{len(self._requests)} {request.id}: {status}, {seconds:.1f} s{left}")

    def _drop(self) -> None:
        """End the judges; their requests under way have failed without a fault of the candidate."""
        for place in self._places:
            if place.judge is not None:
                place.judge.end()
            for request, _ in place.running.values():
                self._write({"dropped": request.id, "subject": request.subject})
            place.running.clear()


def _answer_line(
    request: BatchRequest, said: Mapping[str, Any], *, final: bool, seconds: float
) -> dict[str, Any]:
    about = {"id": request.id, "subject": request.subject}
    return {**about, "final": final, "seconds": round(seconds, 3), **said}


def _infra(request: BatchRequest, hello: Mapping[str, Any], why: str) -> Evaluation:
    return Evaluation(
        status=Status.INFRA,
        stage=Stage.NONE,
        fidelity=Fidelity(request.params.get("fidelity", Fidelity.SEARCH)),
        task_revision=request.subject["task"],
        device_class=str(hello["device_class"]),
        evaluator_version=str(hello["evaluator_version"]),
        feedback=why,
    )
