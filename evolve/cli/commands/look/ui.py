"""`evolve ui`: the runs of a database on a page that follows them."""

import asyncio
import os
import secrets
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from evolve.app.database import open_store
from evolve.cli import signals
from evolve.cli.args import add_store, parser
from evolve.core.errors import needing
from evolve.serve import HTTP_PACKAGES
from evolve.serve.token import read_token

TOKEN_VARIABLE = "EVOLVE_UI_TOKEN"
PORT = 8790
SWITCH_S = 0.0005
"""How long one thread computes before another gets its turn. With Python's 5 ms, the thread that
looks for new steps waits so long after each query while another one reads a large archive."""


def main(words: Sequence[str]) -> int:
    """Serve the page until a signal says to stop; the exit status is 0 then."""
    arguments = parser("ui", "Show the runs of a database on a page that follows them.")
    add_store(arguments, "store")
    arguments.add_argument(
        "--host", default="127.0.0.1", help="the interface (default: %(default)s)"
    )
    arguments.add_argument(
        "--port", type=int, default=PORT, help="0 for one that is free (default: %(default)s)"
    )
    arguments.add_argument(
        "--token-file",
        metavar="FILE",
        help=f"its first line is the token (default: {TOKEN_VARIABLE}, else a new one)",
    )
    arguments.add_argument(
        "--steer",
        action="store_true",
        help="holders of the token may change searches under way, which can spend money",
    )
    options = arguments.parse_args(words)
    token = read_token(
        options.token_file, os.environ, variable=TOKEN_VARIABLE, field="--token-file"
    )
    with suppress(signals.Stopped):
        signals.run(_serve(options.store, options.host, options.port, token, options.steer))
    return 0


async def _serve(location: str, host: str, port: int, token: str | None, steers: bool) -> None:
    with needing("evolve ui", "ui", HTTP_PACKAGES):
        from evolve.serve.http import listen, serving, url_of
        from evolve.serve.live.app import Reader, create_app
    from evolve.serve.live.watch import Watch

    sys.setswitchinterval(SWITCH_S)
    words = f"--host {host} --port {port}"
    shown = token or secrets.token_hex(16)
    with open_store(location) as read, open_store(location) as watched:
        writable = partial(open_store, location, read_only=False)
        reader = Reader(read, writable if steers else None)
        watch = Watch(watched)
        with listen(host, port, words) as listener:
            app = create_app(reader, watch, token=shown)
            url = url_of(listener)
            print(f"open {url}/#token={shown}" if token is None else f"open {url}/", flush=True)
            try:
                async with serving(app, listener) as answering:
                    try:
                        await asyncio.shield(answering)
                    finally:
                        await watch.close()
            finally:
                reader.close()
