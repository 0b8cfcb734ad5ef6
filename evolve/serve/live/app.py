"""The live page over HTTP: its files, JSON by sequence number, a stream of events, and changes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel

from evolve.core.errors import StoreError, UsageError
from evolve.core.run_store import RunStore
from evolve.core.run_store.steering import SteeringEvent
from evolve.report.run.html import TEMPLATES
from evolve.search.steering import steer
from evolve.serve.asgi import App
from evolve.serve.guard import Guard
from evolve.serve.live import records
from evolve.serve.live.watch import Watch

PAGE = Path(__file__).parent / "page"
FILES = {
    "/": (PAGE / "index.html", "text/html"),
    "/page/report.css": (TEMPLATES / "report.css", "text/css"),
    "/page/live.css": (PAGE / "live.css", "text/css"),
    **{
        f"/page/{name}.js": (PAGE / f"{name}.js", "text/javascript")
        for name in (
            *("live", "chart", "data", "diff", "dom", "parts"),
            *("seen", "steer", "transcript", "views"),
        )
    },
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
MAX_SEQUENCE = 2**62
READ_ONLY = (
    "this page only shows runs; start it as `evolve ui --steer` to change them here, "
    "or change one by `evolve steer`"
)

T = TypeVar("T")
Sequence = Annotated[int, Query(ge=-1, le=MAX_SEQUENCE)]
Place = Annotated[int, Query(ge=0, le=MAX_SEQUENCE)]


class Change(BaseModel):
    """A change of a run by a person at the page."""

    name: str
    kind: str
    value: str = ""


class Reader:
    """Asks a store in one thread of its own, so that no answer holds up another part.

    Args:
        store: to read from.
        writable: opens the same database for a change; it holds nothing open between changes. None
            if pages may change nothing.
    """

    def __init__(
        self,
        store: RunStore,
        writable: Callable[[], AbstractContextManager[RunStore]] | None = None,
    ) -> None:
        self._store = store
        self._writable = writable
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evolve-ui-read")

    async def read(self, question: Callable[[RunStore], T]) -> T:
        """The answer of the store."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, question, self._store)

    @property
    def steers(self) -> bool:
        """Whether pages may change runs."""
        return self._writable is not None

    async def steer(self, change: Change) -> SteeringEvent:
        """Store a change. Raises UsageError if it cannot be meant, or none may be made."""
        writable = self._writable
        if writable is None:
            raise UsageError(READ_ONLY)

        def stored(_: RunStore) -> SteeringEvent:
            with writable() as store:
                run = store.run(change.name)
                return steer(store, run, change.kind, change.value, via="ui")

        return await self.read(stored)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()


def create_app(reader: Reader, watch: Watch, *, token: str) -> App:
    """The application over an open store.

    Args:
        reader: answers requests.
        watch: what pages are told as it happens.
        token: required of all requests but those for the page's own files, which say nothing.
    """
    app = FastAPI(title="evolve ui", docs_url=None, redoc_url=None, openapi_url=None)
    for path, (file, kind) in FILES.items():
        app.add_api_route(path, _file(file, kind), methods=["GET"])
    _add_answers(app, reader)
    _add_transcripts(app, reader)

    @app.get("/api/events")
    async def events() -> StreamingResponse:
        return StreamingResponse(_stream(watch), media_type="text/event-stream", headers=HEADERS)

    app.add_exception_handler(UsageError, _said(404))
    app.add_exception_handler(StoreError, _said(503))
    return Guard(app, token=token, hosts=(), open_paths=tuple(FILES))


def _add_answers(app: FastAPI, reader: Reader) -> None:
    @app.get("/api/runs")
    async def runs() -> Response:
        def listed(store: RunStore) -> list[dict[str, Any]]:
            return [records.run_line(store, run) for run in store.runs()]

        return _json(await reader.read(listed))

    @app.get("/api/run")
    async def run(name: str) -> Response:
        page = await reader.read(lambda s: records.run_page(s, s.run(name)))
        return _json(page | {"steers": reader.steers})

    @app.get("/api/lineage")
    async def lineage(name: str) -> Response:
        return _json(await reader.read(lambda s: records.lineage(s, s.run(name))))

    @app.get("/api/steps")
    async def steps(name: str, after: Sequence = -1) -> Response:
        return _json(await reader.read(lambda s: records.steps_after(s, s.run(name), after)))

    @app.get("/api/step")
    async def step(name: str, sequence: Sequence) -> Response:
        page = await reader.read(lambda s: records.step_page(s, s.run(name), sequence))
        return _json(page | {"steers": reader.steers})

    @app.post("/api/steer")
    async def steered(change: Change) -> Response:
        try:
            event = await reader.steer(change)
        except UsageError as error:
            status = 400 if reader.steers else 403
            return JSONResponse({"detail": str(error)}, status_code=status, headers=HEADERS)
        return _json({"stored": event.text})


def _add_transcripts(app: FastAPI, reader: Reader) -> None:
    @app.get("/api/transcript")
    async def transcript(
        name: str, sequence: Sequence, reply: Place = 0, after: Place = 0
    ) -> Response:
        return _json(
            await reader.read(
                lambda s: records.transcript_page(s, s.run(name), sequence, reply, after)
            )
        )

    @app.get("/api/transcript.txt")
    async def transcript_text(name: str, sequence: Sequence, reply: Place = 0) -> Response:
        text = await reader.read(lambda s: records.transcript(s, s.run(name), sequence, reply))
        return Response(text, media_type="text/plain; charset=utf-8", headers=HEADERS)


def _file(path: Path, kind: str) -> Callable[[], Any]:
    async def answer() -> Response:
        return Response(path.read_bytes(), media_type=f"{kind}; charset=utf-8", headers=HEADERS)

    return answer


async def _stream(watch: Watch) -> AsyncIterator[str]:
    async for event in watch.events():
        yield f"data: {json.dumps(event)}\n\n" if event else ": alive\n\n"


def _json(value: Any) -> Response:
    return JSONResponse(value, headers=HEADERS)


def _said(status: int) -> Callable[[Request, Exception], Any]:
    async def answer(_: Request, error: Exception) -> Response:
        return JSONResponse({"detail": str(error)}, status_code=status, headers=HEADERS)

    return answer
