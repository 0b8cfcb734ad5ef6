"""The service with a stub device: requests per second, their latency, and the cost per candidate.

    python -m tests.benchmarks.bench_serve [--jobs 2000] [--clients 64]

Server, clients and stub judge are three processes of this machine; a stub answers at once. `direct`
calls the same evaluator without a service, so that the difference is what the service costs.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from evolve.core.evaluation import Fidelity
from evolve.core.protocols import EvaluationRequest
from evolve.core.task import Task
from evolve.evaluation import LocalEvaluator
from tests.benchmarks.conditions import print_conditions
from tests.serve.serving import candidate, serving, submission

HEAD = (
    b"POST /v1/jobs?wait_s=30 HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)
WORKER = Path(__file__).parents[1] / "serve" / "stub_worker.py"


async def over_http(port: int, jobs: int, clients: int) -> list[float]:
    """Seconds from each submission to its verdict, `clients` of them at once, a connection each.

    Plain streams: a client of httpx with 64 connections takes more of a processor than the server.
    """
    took: list[float] = []
    numbers = iter(range(jobs))

    async def ask() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in numbers:
            body = json.dumps(submission(f"speedup 1.{number}", rewards=["kevin@1"])).encode()
            began = time.perf_counter()
            writer.write(HEAD % len(body) + body)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
            answer = json.loads(await reader.readexactly(length))
            took.append(time.perf_counter() - began)
            assert answer["state"] == "done"
        writer.close()

    await asyncio.gather(*(ask() for _ in range(clients)))
    return took


async def directly(jobs: int, clients: int) -> list[float]:
    """The same without a service."""
    command = [sys.executable, "-SE", str(WORKER), "4", "0"]
    evaluator = LocalEvaluator({"stub": command}, dict(os.environ))
    await evaluator.up()
    took: list[float] = []
    numbers = iter(range(jobs))
    task = Task(name="stub", source="class Model: ...")

    async def ask() -> None:
        for number in numbers:
            source = candidate(f"speedup 1.{number}")
            request = EvaluationRequest(
                task=task, instance=str(number), source=source, fidelity=Fidelity.REWARD
            )
            began = time.perf_counter()
            await evaluator.evaluate(request)
            took.append(time.perf_counter() - began)

    await asyncio.gather(*(ask() for _ in range(clients)))
    await evaluator.close()
    return took


def report(what: str, took: list[float], wall_s: float) -> None:
    cuts = statistics.quantiles(took, n=100)
    print(
        f"{what:<28}{len(took) / wall_s:>8.0f}/s   p50 {1e3 * cuts[49]:.1f} ms   "
        f"p99 {1e3 * cuts[98]:.1f} ms   {1e3 * wall_s / len(took):.2f} ms each"
    )


def timed(what: str, coroutine, pid: int | None = None) -> None:
    """Run and report; with the processor time of both sides, which load does not change."""
    began, used_s, own_s = time.perf_counter(), cpu_s(pid) if pid else 0.0, time.process_time()
    took = asyncio.run(coroutine)
    report(what, took, time.perf_counter() - began)
    if pid:
        each = 1e3 / len(took)
        server, clients = each * (cpu_s(pid) - used_s), each * (time.process_time() - own_s)
        print(f"{'':<28}processor time each: server {server:.2f} ms, clients {clients:.2f} ms")


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--jobs", type=int, default=2000)
    arguments.add_argument("--clients", type=int, default=64)
    options = arguments.parse_args()
    print_conditions()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as server:
        pid = server.process.pid
        timed("one client", over_http(server.port, options.jobs // 10, 1), pid)
        many = f"{options.clients} clients"
        timed(many, over_http(server.port, options.jobs, options.clients), pid)
        again = over_http(server.port, options.jobs, options.clients)
        timed(f"{many}, all known", again, pid)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        timed("direct, one caller", directly(options.jobs // 10, 1))
        timed(f"direct, {options.clients} callers", directly(options.jobs, options.clients))
        os.chdir("/")


if __name__ == "__main__":
    main()
