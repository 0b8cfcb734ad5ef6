"""`evolve work --metrics`: the workers of this process as metrics."""

from collections.abc import Iterator, Sequence
from typing import Any

from evolve.core.errors import UsageError
from evolve.serve.metrics.endpoint import Endpoint, families
from evolve.serve.pull.worker import PullWorker

WORDS = "--metrics"
PORTS = 65536


class Workers:
    """The collector of a process's workers."""

    def __init__(self, workers: Sequence[PullWorker]) -> None:
        self._workers = workers

    def collect(self) -> Iterator[Any]:
        core, workers = families(), self._workers
        judged = core.CounterMetricFamily(
            "evolve_worker_evaluations", "Evaluations by status.", labels=("worker", "status")
        )
        for worker in workers:
            for status, count in sorted(worker.counts.evaluations.items()):
                judged.add_metric((worker.name, status), count)
        yield judged
        for kind, name, about, values in (
            (
                core.CounterMetricFamily,
                "failures",
                "Calls under which the judge failed.",
                [worker.counts.failures for worker in workers],
            ),
            (
                core.CounterMetricFamily,
                "busy_seconds",
                "Time with the judge, summed over calls.",
                [worker.counts.busy_s for worker in workers],
            ),
            (
                core.GaugeMetricFamily,
                "busy",
                "Calls under way.",
                [worker.busy for worker in workers],
            ),
            (
                core.GaugeMetricFamily,
                "connected",
                "1 while a search knows the worker.",
                [float(worker.is_connected) for worker in workers],
            ),
        ):
            metric = kind(f"evolve_worker_{name}", about, labels=("worker",))
            for worker, value in zip(workers, values, strict=True):
                metric.add_metric((worker.name,), value)
            yield metric


def endpoint(address: str, workers: Sequence[PullWorker], token: str) -> Endpoint:
    """The endpoint at HOST:PORT, which asks for the token of the workers.

    Raises:
        UsageError: the address cannot be, or a library is missing.
    """
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or int(port) >= PORTS:
        raise UsageError(f"--metrics {address}: write HOST:PORT, e.g. 127.0.0.1:9465")
    return Endpoint(Workers(workers), host=host, port=int(port), token=token, words=WORDS)
