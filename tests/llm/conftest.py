import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from evolve.core.model import Message, ModelReply, ModelRequest
from evolve.llm.endpoint import Endpoint
from evolve.llm.outage import Circuit
from evolve.llm.settings import ModelSettings
from evolve.testing.model_server import ModelServer

Serve = Callable[..., ModelServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts servers; a single function is a script, anything else a sequence of replies."""
    with ExitStack() as stack:

        def start(*script) -> ModelServer:
            only = script[0] if len(script) == 1 and callable(script[0]) else script
            return stack.enter_context(ModelServer(only))

        yield start


def request(text: str = "make it fast", **fields) -> ModelRequest:
    return ModelRequest(
        messages=(Message("user", text),), **{"model": "scripted", "max_tokens": 1000} | fields
    )


def endpoint(server: ModelServer | str, *, pause_s: float = 30.0, **settings) -> Endpoint:
    """An endpoint that waits briefly between attempts."""
    base = server if isinstance(server, str) else server.api_base
    defaults = {"model": "openai/scripted", "api_base": base, "deadline_s": 20.0}
    return Endpoint(
        "scripted",
        ModelSettings(**defaults | settings),
        circuit=Circuit(first_pause_s=pause_s),
        first_wait_s=0.02,
    )


def ask(endpoint: Endpoint, text: str = "make it fast", **fields) -> ModelReply:
    return asyncio.run(endpoint.complete(request(text, **fields), 0))
