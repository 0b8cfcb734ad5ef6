"""`GET /metrics` of a search or a worker, in its event loop."""

import asyncio
import importlib
from contextlib import ExitStack
from typing import Any, Protocol

from evolve.core.errors import UsageError, needing
from evolve.serve.guard import Guard
from evolve.serve.token import LOOPBACK_NAMES, is_loopback


class Collector(Protocol):
    """Gives metrics when it is asked (`prometheus_client.registry.Collector`)."""

    def collect(self) -> Any: ...


class Endpoint:
    """Metrics over HTTP, from `open` to `close`.

    Args:
        collector: of the metrics.
        host: the interface; another than loopback needs a token.
        port: 0 for any that is free.
        token: that requests have to show, as a bearer token; None for nothing.
        words: the setting that asks for this, for messages.

    Raises:
        UsageError: a library is missing, or other machines could read without a token.
    """

    def __init__(
        self, collector: Collector, *, host: str, port: int, token: str | None, words: str
    ) -> None:
        self._prometheus = load(words)
        if token is None and not is_loopback(host):
            raise UsageError(
                f"{words}: host {host} is reached by other machines, which needs a token; give "
                "token_file=FILE, or listen on 127.0.0.1"
            )
        self._collector = collector
        self._host, self._port, self._token, self._words = host, port, token, words
        self._stack = ExitStack()
        self._task: asyncio.Task[None] | None = None
        self.url = ""

    def open(self) -> None:
        """Listen, and answer requests by a task of the running loop.

        Raises:
            UsageError: the address is taken, or not this machine's.
        """
        from evolve.serve.http import listen, url_of

        where = f"{self._words} host={self._host} port={self._port}"
        listener = self._stack.enter_context(listen(self._host, self._port, where))
        self.url = f"{url_of(listener)}/metrics"
        self._task = asyncio.create_task(self._serve(listener))

    def close(self) -> None:
        """End it."""
        if self._task is not None:
            self._task.cancel()
        self._stack.close()

    async def _serve(self, listener: Any) -> None:
        from evolve.serve.http import serving

        registry = self._prometheus.CollectorRegistry()
        registry.register(self._collector)
        app = self._prometheus.make_asgi_app(registry)
        hosts = () if self._token else LOOPBACK_NAMES
        guard = Guard(app, token=self._token, hosts=hosts, open_paths=())
        async with serving(guard, listener) as answering:
            await answering


def load(words: str) -> Any:
    """`prometheus_client`, once it is known that uvicorn is there too; else UsageError."""
    with needing(words, "metrics", ("uvicorn", "prometheus_client")):
        importlib.import_module("uvicorn")
        return importlib.import_module("prometheus_client")


def families() -> Any:
    """The module of metric families, once a `Collector` is asked."""
    return importlib.import_module("prometheus_client.metrics_core")
