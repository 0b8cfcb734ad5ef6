"""`evolve eval --audit`: how many small mistakes in this kernel the judge would notice."""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from evolve.app.device import start_local
from evolve.app.text import table
from evolve.core.errors import UsageError
from evolve.core.protocols import EvaluationRequest
from evolve.evaluation.mutation.audit import SEEDS, Fate, Judged, audit, oracle
from evolve.evaluation.mutation.mutant import Mutants, generate, sample
from evolve.evaluation.mutation.tally import PlaceRow, by_case, by_family, by_kind
from evolve.worker.base.scratch import ScratchFolder


async def run(request: EvaluationRequest, *, device: str, most: int, require: str,
              read: Sequence[str], as_json: bool) -> None:  # fmt: skip
    """Audit the request's kernel and print the result.

    Raises:
        UsageError: the source has no kernel to change, or is not correct itself.
    """
    if most < 1:
        raise UsageError(f"--audit {most}: give the number of mutants to try, 1 or more")
    made = generate(request.source)
    chosen = sample(made.mutants, most)
    with ScratchFolder("audit") as cache:
        evaluator = await start_local(
            device, sandbox_require=require, sandbox_read=read, cache=cache
        )
        try:
            async with oracle(request.task, cache, device, SEEDS) as prover:
                progress = _Progress(len(chosen))
                found = await audit(
                    evaluator, prover, request.task, request.source, chosen, progress.tell
                )
                places = prover.places
        finally:
            await evaluator.close()
    if as_json:
        print(json.dumps(_json(request, made, found, places), indent=1))
    else:
        print("\n".join(audit_text(made, found, places)))


class _Progress:
    """A line on standard error that counts, if that is a terminal."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0

    def tell(self, one: Judged) -> None:
        self._done += 1
        if sys.stderr.isatty():
            end = "\n" if self._done == self._total else ""
            text = f"\rmutant {self._done} of {self._total}: {one.fate}"
            print(text.ljust(60), end=end, file=sys.stderr, flush=True)


def audit_text(made: Mutants, found: Sequence[Judged], places: Sequence[str]) -> Iterator[str]:
    """The table of kinds, the kills by family and case of inputs, and the survivors."""
    yield (
        f"{len(made.mutants)} mutants ({made.duplicates} duplicates left out), {len(found)} tried; "
        f"provably wrong: over four times the error budget on one of {SEEDS} hidden inputs of a "
        "case, or a crash"
    )
    yield ""
    header = ["KIND", "TRIED", "INVALID", "UNPROVEN", "WRONG", "KILLED", "RATE"]
    yield table(
        header,
        [
            [row.name, *map(str, (row.tried, row.invalid, row.unproven, row.proven, row.killed)),
             "-" if row.rate is None else f"{row.rate:.1%}"]
            for row in by_kind(found)
        ],
    )  # fmt: skip
    yield ""
    yield _places("INPUTS", by_family(found, places))
    yield ""
    yield _places("CASE", by_case(found, places))
    undecided = sum(one.fate is Fate.UNDECIDED for one in found)
    if undecided:
        yield f"\n{undecided} not judged: the service itself failed"
    for one in found:
        if one.fate is Fate.SURVIVED:
            yield from _survivor(one)


def _places(name: str, rows: Sequence[PlaceRow]) -> str:
    header = [name, "KILLED", "KILLED ONLY HERE"]
    return table(header, [[row.name, str(row.kills), str(row.alone)] for row in rows])


def _survivor(one: Judged) -> Iterator[str]:
    mutant, proof = one.mutant, one.proof or {}
    error = proof.get("error")
    size = "no value" if error is None else f"{error:.3g} budgets"
    yield ""
    yield (
        f"survived: line {mutant.line}, {mutant.kind}; proven wrong in case {proof.get('case')}, "
        f"inputs of family {proof.get('family')}: {proof.get('how')}, {size}"
    )
    yield from (f"  - {line}" for line in mutant.before.splitlines())
    yield from (f"  + {line}" for line in mutant.after.splitlines())


def _json(
    request: EvaluationRequest, made: Mutants, found: Sequence[Judged], places: Sequence[str]
) -> dict[str, Any]:
    rows = by_kind(found)
    return {
        "task": request.task.name,
        "instance": request.instance,
        "generated": len(made.mutants),
        "duplicates": made.duplicates,
        "seeds": SEEDS,
        "places": list(places),
        "kinds": {
            row.name: {"tried": row.tried, "invalid": row.invalid, "unproven": row.unproven,
                       "wrong": row.proven, "killed": row.killed, "rate": row.rate}
            for row in rows
        },
        "mutants": [one.to_json() for one in found],
    }  # fmt: skip
