"""`python -m evolve.worker batch IN OUT`: a file of requests, judged where the device is.

For a GPU that the search cannot reach. A request that has an answer is not judged again, so that
the same command goes on after any end. The judging is done by a `serve` process beside this one,
which is started again when it dies; this one holds the files, the order and the clock. Requests
under which the judge died are tried again one at a time when all others are done: a candidate that
ends the judge takes no neighbour with it.
"""

import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.core.evaluation import Evaluation, Fidelity, Stage, Status
from evolve.worker.batchfile import (
    MOST_FAILURES,
    Answers,
    BatchRequest,
    read_answers,
    read_requests,
)
from evolve.worker.judge_process import GREETING, Judge, Replies
from evolve.worker.shards import Shards

ANSWERED, UNAVAILABLE, USAGE, RESUMABLE = 0, 1, 2, 75
RESERVE_S = 5.0  # before the deadline: to end the judge and to write the last lines
OVERDUE_S = 1800.0  # without an answer: the judge hangs
HELLO_S = 300.0
MOST_IN_A_ROW = 5  # failures of our own without an answer in between: it is not the candidates
MARGIN = 1.2  # times the longest of the recent requests of the kind
RECENT = 20


class Costs:
    """Wall seconds that requests took, by what they are; waiting for the device included."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], deque[float]] = {}

    def add(self, request: BatchRequest, seconds: float) -> None:
        for kind in self._kinds(request):
            self._seen.setdefault(kind, deque(maxlen=RECENT)).append(seconds)

    def expected_s(self, request: BatchRequest) -> float:
        """What it may take, by requests like it; 0 before anything is known."""
        kinds = self._kinds(request)
        seen = next((self._seen[kind] for kind in kinds if kind in self._seen), ())
        return MARGIN * max(seen, default=0.0)

    @staticmethod
    def _kinds(request: BatchRequest) -> Sequence[tuple[str, ...]]:
        """The closest first: of the same task and fidelity, of the same fidelity, any."""
        about = request.subject
        like = (request.method, str(about.get("fidelity", "")))
        return (*like, str(about.get("task", ""))), like, ()


class Batch:
    """Judges what a folder of answers lacks.

    Args:
        requests: all of the batch.
        answers: what earlier starts have left.
        shards: where answers go.
        judge_words: options of `serve`.
        ends_at: when to have ended, on the monotonic clock; None: when all is done.
        slots: requests under way at once; None: as many as the judge suggests.
        say: takes lines of progress.
    """

    def __init__(
        self,
        requests: Sequence[BatchRequest],
        answers: Answers,
        shards: Shards,
        *,
        judge_words: Sequence[str] = (),
        ends_at: float | None = None,
        slots: int | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        self._requests, self._answers, self._shards = requests, answers, shards
        self._judge_words, self._ends_at, self._slots = judge_words, ends_at, slots
        self._say = say
        self._costs = Costs()
        left = self._left()
        self._waiting = [request for request in left if not answers.of(request).failures]
        self._suspects = [request for request in left if answers.of(request).failures]
        self._running: dict[int, tuple[BatchRequest, float]] = {}
        self._number = GREETING
        self._judge: Judge | None = None
        self._replies: Replies = SimpleQueue()
        self._statuses: Counter[str] = Counter()
        self._stopped_by = ""
        self._failures_in_a_row = 0
        self._works = False  # the judge has given a verdict in this start

    def stop(self, reason: str) -> None:
        """Give up what is under way, and end. Safe from a signal handler."""
        self._stopped_by = self._stopped_by or reason
        self._replies.put(None)

    def run(self) -> int:
        """Judge until all is answered or the time is up; returns how many requests are left.

        Raises:
            UsageError: the judge refuses its options.
            EvaluatorUnavailable: it does not come up, or fails whatever it is given.
        """
        started = time.monotonic()
        try:
            while self._begin() and not self._stopped_by:
                self._take(self._receive())
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
        """To the disk, and into what is known, as a later start will read it."""
        self._shards.write(record)
        self._answers.take(record)

    def _begin(self) -> bool:
        """Give the judge what it has room and time for; False where nothing is under way."""
        while (request := self._next()) is not None:
            judge = self._living_judge()
            self._write({"begun": request.id, "subject": request.subject})
            self._number += 1
            self._running[self._number] = request, time.monotonic()
            judge.send(self._number, request.method, request.params)
        if not self._running and (self._waiting or self._suspects):
            self.stop("the deadline")
        return bool(self._running)

    def _next(self) -> BatchRequest | None:
        """Take out the next request for which there is a place and, as it seems, time."""
        queue = self._waiting or self._suspects
        if not queue or self._stopped_by or self._left_s() <= 0:
            return None
        places = 1 if queue is self._suspects else self._places()
        if len(self._running) >= places:
            return None
        for at, request in enumerate(queue):
            if self._costs.expected_s(request) < self._left_s():
                return queue.pop(at)
        return None

    def _places(self) -> int:
        if self._slots is not None:
            return self._slots
        self._living_judge()
        return int(self._answers.hello["slots"])

    def _left_s(self) -> float:
        """Seconds in which an answer still counts."""
        if self._ends_at is None:
            return OVERDUE_S
        return self._ends_at - RESERVE_S - time.monotonic()

    def _living_judge(self) -> Judge:
        """The judge, started and greeted where none is running."""
        if self._judge is None or self._judge.ended:
            self._judge = Judge(self._judge_words, self._replies)
            patience_s = min(HELLO_S, self._left_s())
            hello = self._judge.greet(patience_s, lambda: bool(self._stopped_by))
            self._write({"hello": hello})
            self._say(f"judge: {hello.get('device_class')}, {hello.get('slots')} at once")
        return self._judge

    def _receive(self) -> Mapping[str, Any] | None:
        judge = self._judge
        assert judge is not None
        oldest = min(at for _, at in self._running.values())
        overdue_s = oldest + OVERDUE_S - time.monotonic()
        reply = judge.receive(min(overdue_s, self._left_s()))
        if reply is None and self._ends_at is not None and self._left_s() <= 0:
            self.stop("the deadline")
        elif reply is None and overdue_s <= 0:
            judge.end()
        return reply

    def _take(self, reply: Mapping[str, Any] | None) -> None:
        """Write down what came; what a dead judge had is put at the end."""
        if reply is not None:
            known = self._running.pop(reply.get("id") or GREETING, None)
            if known is not None:
                self._answer(*known, reply)
        elif self._judge is not None and self._judge.ended and not self._stopped_by:
            self._say(f"the judge ended, with {len(self._running)} requests under way")
            given = [request for request, _ in self._running.values()]
            self._running.clear()
            for request in given:
                self._retry(request, "the judge ended while it judged this")
            self._count_failure("it ended")

    def _answer(self, request: BatchRequest, begun: float, reply: Mapping[str, Any]) -> None:
        seconds = time.monotonic() - begun
        result: Any = reply.get("result")
        error: Any = reply.get("error")
        status = "answered"
        if error is not None:
            status = "refused" if error["kind"] == "usage" else "failed"
        elif request.method == "evaluate":
            status = str(result["status"])
        final = status not in ("failed", Status.INFRA)
        said = {"result": result} if error is None else {"error": error}
        self._write(_answer_line(request, said, final=final, seconds=seconds))
        self._costs.add(request, seconds)
        self._report(request, status, seconds)
        if final:
            self._failures_in_a_row = 0
            self._works = self._works or request.method == "evaluate"
        else:
            why = error["message"] if error else result["feedback"]
            self._retry(request, why)
            self._count_failure(why)

    def _count_failure(self, why: str) -> None:
        self._failures_in_a_row += 1
        if self._failures_in_a_row >= MOST_IN_A_ROW:
            raise EvaluatorUnavailable(f"the judge fails whatever it is given, at last: {why}")

    def _retry(self, request: BatchRequest, why: str) -> None:
        """After a failure of our own: once more at the end, or after so many never again."""
        if self._answers.of(request).failures < MOST_FAILURES:
            self._suspects.append(request)
            return
        if not self._works and (len(self._left()) > 1 or not self._has_worked()):
            raise EvaluatorUnavailable(f"the judge fails at {request.id}, and at all before: {why}")
        why = f"it failed {MOST_FAILURES} times by our own fault, the last time: {why}"
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
        """End the judge; what it had under way has failed by nobody's fault."""
        if self._judge is not None:
            self._judge.end()
        for request, _ in self._running.values():
            self._write({"dropped": request.id, "subject": request.subject})
        self._running.clear()


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


def judge_batch(
    requests: Path,
    answers: Path,
    *,
    deadline_s: float | None = None,
    slots: int | None = None,
    judge_words: Sequence[str] = (),
) -> int:
    """Judge the file (or folder) `requests` into the folder `answers`; progress on stderr.

    Args:
        requests: what `evolve batch` writes; see `evolve.worker.batchfile`.
        answers: a folder of shards, which `evolve tell` reads.
        deadline_s: seconds from now in which to have ended.
        slots: requests under way at once.
        judge_words: options of `serve`.

    Returns:
        The exit status: 0 all is answered, 75 something is left for the next start, 1 the judge
        does not come up, 2 what a person has to mend.
    """
    ends_at = None if deadline_s is None else time.monotonic() + deadline_s
    try:
        if deadline_s is not None and deadline_s <= 2 * RESERVE_S:
            raise UsageError(
                f"--deadline {deadline_s:g} is too short: {RESERVE_S:g} s of it are for the end"
            )
        wanted, problems = read_requests(requests)
        shards = Shards(answers)
        found = read_answers(answers)
        for problem in (*problems, *found.problems):
            _say(f"left out: {problem}")
        batch = Batch(
            wanted,
            found,
            shards,
            judge_words=judge_words,
            ends_at=ends_at,
            slots=slots,
            say=_say,
        )
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: batch.stop(signal.Signals(number).name))
        left = batch.run()
    except UsageError as error:
        _say(str(error))
        return USAGE
    except EvaluatorUnavailable as error:
        _say(str(error))
        return UNAVAILABLE
    _say(f"{len(wanted) - left} of {len(wanted)} requests are answered in {answers}")
    return RESUMABLE if left else ANSWERED


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
