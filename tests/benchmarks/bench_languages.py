"""The best program of each language beside torch, under the judge.

    python -m tests.benchmarks.bench_languages --out FILE.jsonl --within 540 \\
        --languages triton,gluon,nvrtc
    python -m tests.benchmarks.bench_languages --out FILE.jsonl --fidelity verify --within 300
    python -m tests.benchmarks.bench_languages --out FILE.jsonl --within 0

Products in float32 and bf16, row softmax, layer norm and attention, each at two sizes. A line of
JSON is added for each verdict, and what has a line is not done again: call it several times, with
other packages on PYTHONPATH, and with another time limit. The second command verifies the best
program of each language, the third prints the tables only; all print them at the end.

Needs torch, triton, numpy, pyyaml and jinja2. Operators take the GPU to be an H100 or H200.
"""

import argparse
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from evolve.core.compiled import Compiled
from evolve.core.evaluation import Evaluation
from evolve.core.task import Task
from evolve.languages.registry import find_language
from tests.benchmarks import json_lines
from tests.benchmarks.language_programs import VARIANTS, Candidate, Place, candidates, places
from tests.benchmarks.language_table import best, table
from tests.worker.serving import Worker

LANGUAGES = ("triton", "gluon", "nvrtc", "cuda", "cute", "cutile", "tilelang", "helion")
_LAST_S = 25  # seconds before a limit in which nothing is started


def main() -> None:
    options = parsed()
    known = places(options.device)
    options.out.touch()
    if options.within > 0:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            worker = Worker(Path(folder), "--device", options.device)
            try:
                Benchmark(worker, known, options).go()
            finally:
                end(worker)
    print(table(json_lines.read(options.out), known))


def end(worker: Worker) -> None:
    """End the judge, whatever it still does: the tables are to be printed."""
    try:
        worker.close()
    except subprocess.TimeoutExpired:
        worker.process.kill()


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the file of lines of JSON")
    parser.add_argument("--within", type=float, default=540, help="seconds; 0 prints the tables")
    parser.add_argument("--languages", default=",".join(LANGUAGES), help="by comma")
    parser.add_argument("--operations", default="", help="only those that contain this text")
    parser.add_argument("--fidelity", default="search", choices=("search", "verify"))
    parser.add_argument("--programs", type=int, default=3, help="of each language, at most")
    parser.add_argument("--instances", type=int, default=6, help="of each program, at most")
    parser.add_argument("--at-once", type=int, default=6, help="candidates before the judge")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    return parser.parse_args()


class Benchmark:
    """Of languages, place by place; each has an equal share of the time that is left.

    Args:
        worker: the judge.
        known: operations and sizes.
        options: of the command.
    """

    def __init__(self, worker: Worker, known: Sequence[Place], options: argparse.Namespace) -> None:
        self._worker, self._options = worker, options
        self._until = time.monotonic() + options.within
        self._places = [place for place in known if options.operations in place.operation]
        self._rows = json_lines.read(options.out)
        self._compiling: dict[tuple[str, str], Future[dict[str, Any]]] = {}
        self._languages = list(self._usable(options.languages.split(",")))

    def go(self) -> None:
        hello = self._worker.ask("hello")
        versions = ", ".join(f"{name} {number}" for name, number in hello["versions"].items())
        self._note(kind="conditions", text=f"{hello['device_class']}; {versions}")
        for number, place in enumerate(self._places):
            left = self._until - time.monotonic()
            until = time.monotonic() + left / (len(self._places) - number)
            if left > _LAST_S:
                # The next reference is compiled while these candidates are judged.
                for ahead in self._places[number : number + 2]:
                    self._prepare(ahead)
                self._place(place, until)

    def _usable(self, names: Sequence[str]) -> Iterator[str]:
        for name in names:
            language = find_language(name)
            why = language.missing()
            if not why and self._options.device not in (language.devices or ("cpu",)):
                why = f"its programs run on {' and '.join(language.devices)}"
            if why:
                self._note(kind="skipped", language=name, why=why)
                print(f"{name}: {why}", flush=True)
            else:
                yield name

    def _note(self, **row: object) -> None:
        self._rows.append(row)
        json_lines.add(self._options.out, row)

    def _of(self, place: Place, kind: str) -> list[dict[str, Any]]:
        return [
            row
            for row in self._rows
            if row["kind"] == kind and (row.get("operation"), row.get("size")) == place.key
        ]

    # --- a place ----------------------------------------------------------------------------------

    def _place(self, place: Place, until: float) -> None:
        about = {"operation": place.operation, "size": place.size}
        print(f"{place.operation}, {place.size}", flush=True)
        baseline = None
        try:
            waiting = self._waiting(place)
            if not self._of(place, "baseline"):
                sent = {"task": place.task.to_json(), "names": ["compile"]}
                baseline = self._worker.send("baselines", **sent)
            self._judge(place, waiting, min(until, self._until - _LAST_S))
            if baseline is not None:
                (found,) = answer(baseline, self._left()).values()
                self._note(kind="baseline", **about, **found)
        except Unanswered as error:
            print(f"  {error}", flush=True)

    def _left(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def _prepare(self, place: Place) -> None:
        """Ask for what the compiler makes of a reference, once."""
        if self._options.fidelity != "verify" and place.key not in self._compiling:
            variants = VARIANTS[self._options.device]
            sent = {"task": place.task.to_json(), "variants": variants}
            self._compiling[place.key] = self._worker.send("compiled", **sent)

    def _waiting(self, place: Place) -> Iterator[tuple[str, Candidate]]:
        """Candidates without a line, the first of each language before the second of any."""
        done = {
            (row["language"], row["digest"])
            for row in self._of(place, "verdict")
            if row["fidelity"] == self._options.fidelity
        }
        if self._options.fidelity == "verify":
            lists = [self._best(place, language) for language in self._languages]
        else:
            task = self._compiled(place)
            most = self._options.programs, self._options.instances
            lists = [
                [(language, each) for each in candidates(language, place, task, *most)]
                for language in self._languages
            ]
        for row in zip_longest(*lists):
            for each in row:
                if each is not None and (each[0], each[1].digest) not in done:
                    yield each

    def _best(self, place: Place, language: str) -> list[tuple[str, Candidate]]:
        searched = [row for row in self._of(place, "verdict") if row["fidelity"] == "search"]
        row = best(searched, language)
        found = row and Candidate(row["program"], row["assignment"], row["source"])
        return [(language, found)] if found else []

    def _compiled(self, place: Place) -> Task:
        """The task with what the compiler makes of it."""
        task, seen = place.task, {}
        answers = answer(self._compiling[place.key], self._left())
        for variant, found in answers.items():
            if "compiled" in found:
                made = Compiled.from_json(found["compiled"])
                seen.setdefault(made.cases, made)
            else:
                print(f"variant {variant}: {found['reason'][:200]}", flush=True)
        return replace(task, compiled=tuple(seen.values()))

    def _judge(self, place: Place, waiting: Iterator[tuple[str, Candidate]], until: float) -> None:
        """All that can be started before a time, several at once."""
        live: dict[Future[dict[str, Any]], tuple[str, Candidate]] = {}
        while True:
            while len(live) < self._options.at_once and time.monotonic() < until:
                if (each := next(waiting, None)) is None:
                    break
                live[self._send(place, *each)] = each
            if not live:
                return
            finished, _ = wait(live, self._left(), FIRST_COMPLETED)
            if not finished:
                return  # the time is over; they are judged in another call
            for future in finished:
                self._verdict(place, *live.pop(future), future)

    def _send(self, place: Place, language: str, one: Candidate) -> Future[dict[str, Any]]:
        """A candidate that is slower than the best of its language need not be timed to the end."""
        first = best(self._of(place, "verdict"), language)
        is_final = self._options.fidelity == "verify"
        targets = {"eager": first["ratio"][0]} if first and not is_final else {}
        return self._worker.send(
            "evaluate",
            task=place.task.to_json(),
            source=one.source,
            fidelity=self._options.fidelity,
            target_speedups=targets,
        )

    def _verdict(
        self, place: Place, language: str, one: Candidate, future: Future[dict[str, Any]]
    ) -> None:
        about = {
            "kind": "verdict",
            "operation": place.operation,
            "size": place.size,
            "language": language,
            "program": one.program,
            "assignment": dict(one.assignment),
            "digest": one.digest,
            "fidelity": self._options.fidelity,
        }
        try:
            verdict = Evaluation.from_json(answer(future, 0))
        except Unanswered as error:
            print(f"  {language}, {one.program}: {error}", flush=True)
            return
        row = described(verdict)
        text = {"source": one.source} if row["ratio"] else {}
        self._note(**about, **row, **text)
        ratio = f"{row['ratio'][0]:.3f} of eager" if row["ratio"] else row["feedback"][:150]
        print(f"  {language}, {one.program}, {dict(one.assignment)}: {row['status']}, custom "
              f"{row['custom']}, {ratio}, compile {row['compile_s']:.1f} s, judge "
              f"{row['judge_s']:.1f} s", flush=True)  # fmt: skip


class Unanswered(Exception):
    """The judge refused, failed or took too long."""


def answer(future: Future[dict[str, Any]], seconds: float) -> Any:
    """The result in a reply.

    Raises:
        Unanswered: there is none within so many seconds.
    """
    try:
        reply = future.result(seconds)
    except TimeoutError:
        raise Unanswered("the time is over before the judge has answered") from None
    if "result" not in reply:
        raise Unanswered(f"the judge refused: {reply.get('error', reply)}")
    return reply["result"]


def described(verdict: Evaluation) -> dict[str, Any]:
    """What lines have of a verdict; a ratio only of a program whose kernels are its own."""
    seconds: Mapping[str, float] = verdict.durations_s
    stages = sum(took for name, took in seconds.items() if not name.startswith("timing_"))
    waited = seconds.get("timing_turn", 0.0) + seconds.get("timing_lock", 0.0)
    (case,) = verdict.cases or (None,)
    times = case.times_ms if case else {}
    ratio = verdict.ratios.get("eager") if verdict.strict else None
    return {
        "status": verdict.status.value,
        "custom": verdict.custom,
        "ratio": ratio and ratio.to_json(),
        "ms": times["candidate"].value if "candidate" in times else None,
        "eager_ms": times["eager"].value if "eager" in times else None,
        "light": case and case.speed_of_light,
        "compile_s": seconds.get("compile", 0.0),
        "judge_s": round(stages - seconds.get("compile", 0.0) - waited, 3),
        "device_s": round(verdict.device_time_s, 3),
        "early": verdict.early_stopped,
        "labels": [label.name for label in verdict.labels],
        "feedback": verdict.feedback[:400],
        "device_class": verdict.device_class,
        "evaluator_version": verdict.evaluator_version,
    }


if __name__ == "__main__":
    main()
