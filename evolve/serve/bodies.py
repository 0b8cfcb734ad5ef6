"""Bodies of requests: read whole before anything works on them, within bounds."""

import asyncio
import re
from itertools import islice

from evolve.serve.asgi import Receive

MAX_BODY = 16 << 20  # bytes; a batch of 256 ordinary candidates is far below
MAX_READING = 48 << 20  # bytes of all bodies that are being read
MAX_PIECES = 32_768  # strings, items and brackets of a body; 256 candidates with all fields: 17,000
BODY_S = 60.0

# A string, its escapes included, or the start of an item. Nothing is ever scanned twice: the
# repeats are possessive, and a string may lack its end.
_PIECE = re.compile(rb'"(?:[^"\\]++|\\.)*+"?+|[,\[{]', re.DOTALL)


class BodyRefused(Exception):
    """A body that is not taken, with the status of the answer; the message names the remedy."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Bodies:
    """The bodies that are being read. If they take too much memory, the oldest is given up."""

    def __init__(self) -> None:
        self._sizes: dict[asyncio.Timeout, int] = {}  # by reader, oldest first

    async def read(self, receive: Receive) -> bytes | None:
        """The whole body; None if the client went away.

        Raises:
            BodyRefused: it is too long, has too many parts, or takes too much time.
        """
        body, more = bytearray(), True
        deadline = asyncio.timeout(BODY_S)
        self._sizes[deadline] = 0
        try:
            async with deadline:
                while more:
                    message = await receive()
                    if message["type"] != "http.request":
                        return None
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    require_length(len(body))
                    self._make_room(deadline, len(body))
        except TimeoutError:
            raise BodyRefused(
                408,
                f"the body was not complete within {BODY_S:.0f} s, or other requests needed the "
                "memory; send fewer candidates at once",
            ) from None
        finally:
            self._sizes.pop(deadline, None)
        _require_few_pieces(body)
        return bytes(body)

    def _make_room(self, reader: asyncio.Timeout, size: int) -> None:
        if reader in self._sizes:  # it is not given up already
            self._sizes[reader] = size
        while sum(self._sizes.values()) > MAX_READING:
            oldest = next(iter(self._sizes))
            del self._sizes[oldest]
            oldest.reschedule(0)


def require_length(length: int) -> None:
    """Raise BodyRefused if a body of so many bytes is too long."""
    if length > MAX_BODY:
        raise BodyRefused(
            413,
            f"the body is longer than {MAX_BODY >> 20} MiB; send fewer candidates at once",
        )


def _require_few_pieces(body: bytearray) -> None:
    """A parser makes hundreds of bytes of each empty item, and of each unknown key an error."""
    if next(islice(_PIECE.finditer(body), MAX_PIECES, None), None) is not None:
        raise BodyRefused(
            413,
            f"the body has more than {MAX_PIECES} strings, items and brackets; send fewer "
            "candidates at once, and only fields that are known",
        )
