"""Submissions over MCP with a judge that answers at once: our own part of a call, and the whole.

    python -m tests.benchmarks.bench_mcp [--at-once 100] [--rounds 5]

`own` is the time from the call of the tool's function to its result: reading the task, checking and
storing the submission. `whole` is what the SDK's client sees, its own work and the server's SDK
included; all clients share one process, beside the server's and the judge's.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from mcp import Client

from tests.agents.mcp_servers import call, http, stdio
from tests.benchmarks.conditions import print_conditions

GOOD = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    N = {0}\n\n\n# speedup 1.{0}\n"
TIMES = "own.txt"


async def submitted(client: Client, numbers: range) -> list[float]:
    """Seconds until each of the candidates, all sent at once, has its ticket."""

    async def one(number: int) -> float:
        began = time.perf_counter()
        await call(client, "submit", task="row_sum", source=GOOD.format(number))
        return time.perf_counter() - began

    return await asyncio.gather(*map(one, numbers))


async def rounds(client: Client, at_once: int, count: int) -> list[float]:
    whole = []
    await submitted(client, range(1))  # starts the judge, and reads the tasks
    for number in range(count):
        begin = 1 + number * at_once
        whole += await submitted(client, range(begin, begin + at_once))
    return whole


def line(name: str, seconds: list[float]) -> str:
    cuts = statistics.quantiles(seconds, n=100)
    p50, p99 = 1e3 * statistics.median(seconds), 1e3 * cuts[98]
    return f"{name:24} n {len(seconds):5}  p50 {p50:7.1f} ms  p99 {p99:7.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at-once", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print_conditions()

    async def over_http() -> list[float]:
        with http(folder, STUB_TIMES=TIMES) as server:
            async with server.client() as client:
                return await rounds(client, options.at_once, options.rounds)

    async def over_stdio() -> list[float]:
        async with Client(stdio(folder, STUB_TIMES=TIMES)) as client:
            return await rounds(client, options.at_once, options.rounds)

    for name, measure in (("streamable HTTP", over_http), ("stdio", over_stdio)):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            whole = asyncio.run(measure())
            own = [float(each) for each in (folder / TIMES).read_text().split()][1:]
            print(line(f"{name}, own", own))
            print(line(f"{name}, whole", whole))


if __name__ == "__main__":
    main()
