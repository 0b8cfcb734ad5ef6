"""What the model layer adds to a call, against a scripted endpoint over HTTP on this machine."""

import asyncio
import statistics
import time

from evolve.core.model import Message, ModelReply, ModelRequest
from evolve.llm import LiteLLM
from evolve.testing.model_server import Answer, ModelServer
from tests.benchmarks.conditions import memory_mb, print_conditions

LATENCY_S = 1.0
SLOTS = 16
CALLS = 64


def main() -> None:
    print_conditions()
    asyncio.run(_measure())
    print(f"{memory_mb():9.0f} MB resident at most, with LiteLLM and the server")


async def _measure() -> None:
    with ModelServer([Answer("x" * 4000)]) as server:
        start = time.perf_counter()
        await _call(_models(server))
        print(f"{time.perf_counter() - start:9.2f} s for the first call, import included")
        models = _models(server)
        wall, cpu = [], []
        for _ in range(200):
            begin, used = time.perf_counter(), time.process_time()
            await _call(models)
            wall.append((time.perf_counter() - begin) * 1e3)
            cpu.append((time.process_time() - used) * 1e3)
        print(f"{statistics.median(wall):9.2f} ms for a call to an endpoint that takes no time")
        print(f"{statistics.mean(cpu):9.2f} ms of it processor time, the server's included")
    with ModelServer([Answer("x" * 4000, delay_s=LATENCY_S)]) as server:
        models = _models(server)
        begin = time.perf_counter()
        await asyncio.gather(*(_call(models) for _ in range(CALLS)))
        took, least = time.perf_counter() - begin, LATENCY_S * CALLS / SLOTS
        print(f"{took:9.2f} s for {CALLS} calls of {LATENCY_S:g} s, {SLOTS} at once; {least:g} s")
        print(f"          would be ideal; {server.log.most_at_once} were under way at most")


def _models(server: ModelServer) -> LiteLLM:
    return LiteLLM(model="openai/scripted", api_base=server.api_base, slots=SLOTS)


async def _call(models: LiteLLM) -> ModelReply:
    request = ModelRequest(messages=(Message("user", "make it fast " * 300),))
    return await models.complete(models.resolve(request))


if __name__ == "__main__":
    main()
