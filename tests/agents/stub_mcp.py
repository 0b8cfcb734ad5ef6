"""`evolve mcp` over stub workers; words as of the command."""

import os
import sys
import time
from pathlib import Path

from evolve.app.mcp import parts
from evolve.app.mcp.judging import Submissions
from evolve.app.mcp.results import Verdict
from evolve.cli.commands.judge.mcp import main
from evolve.evaluation import LocalEvaluator

WORKER = Path(__file__).parents[1] / "serve" / "stub_worker.py"
SLOTS, LATENCY_S = os.environ.get("STUB_SLOTS", "4"), os.environ.get("STUB_LATENCY_S", "0")


async def start(_: object) -> LocalEvaluator:
    command = [sys.executable, "-SE", str(WORKER), SLOTS, LATENCY_S]
    evaluator = LocalEvaluator({"stub 0": command}, dict(os.environ))
    await evaluator.up()
    return evaluator


def timed(path: str) -> None:
    """Write how long each submission took us, in seconds, without the SDK's own part."""
    submit = Submissions.submit

    async def timed_submit(self: Submissions, fields: dict) -> Verdict:
        began = time.perf_counter()
        try:
            return await submit(self, fields)
        finally:
            with Path(path).open("a") as file:
                file.write(f"{time.perf_counter() - began}\n")

    Submissions.submit = timed_submit


if __name__ == "__main__":
    if path := os.environ.get("STUB_TIMES"):
        timed(path)
    parts.start_evaluator = start
    sys.exit(main(sys.argv[1:]))
