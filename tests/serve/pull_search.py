"""A search's judge in a process of its own: has candidates judged, and says the verdicts.

    python -m tests.serve.pull_search PORT LEASE_S MARKER...

Prints `MARKER FEEDBACK` for each as it comes, all at once under way.
"""

import asyncio
import sys

from tests.serve.pulling import request, searching


async def search(port: int, lease_s: float, markers: list[str]) -> None:
    async def ask(marker: str) -> None:
        found = await judge.evaluate(request(marker=marker))
        print(marker, found.feedback or found.status, flush=True)

    async with searching(port, lease_s=lease_s) as judge:
        await asyncio.gather(*map(ask, markers))


if __name__ == "__main__":
    asyncio.run(search(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
