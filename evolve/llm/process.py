"""A program of the user's, started for one prompt: bounded in time and output, without a shell."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PASSED_ON = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "LANG", "LANGUAGE", "TZ", "TERM"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)
"""Variables that a program gets without being named, beside those of locales and XDG folders."""

MAX_OUTPUT = 8 << 20  # bytes; an answer that is taken for a program has 400,000 characters
MAX_ERRORS = 64 << 10  # bytes of standard error that are kept, the last ones
PIECE = 65_536
GRACE_S = 5.0


class Overflow(Exception):
    """The program printed more than `MAX_OUTPUT`, and was ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended; `errors` are the last bytes of its standard error."""

    status: int
    output: bytes
    errors: bytes


def environment_for(names: Sequence[str], own: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that a program gets.

    Args:
        names: further variables that the user names.
        own: the environment of this process.
    """
    return {
        name: value
        for name, value in own.items()
        if name in PASSED_ON or name in names or name.startswith(("LC_", "XDG_"))
    }


async def run(
    command: Sequence[str],
    text: str,
    *,
    folder: Path,
    environment: Mapping[str, str],
    deadline_s: float,
    most: int = MAX_OUTPUT,
) -> Ended:
    """Run a program with a text on its standard input; all its processes end with this call.

    Raises:
        OSError: it cannot be started.
        TimeoutError: it did not end within `deadline_s`.
        Overflow: it printed more than `most` bytes.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env=dict(environment),
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(deadline_s):
            async with asyncio.TaskGroup() as group:
                group.create_task(_write(process, text.encode(errors="replace")))
                output = group.create_task(_read(process.stdout, most))
                errors = group.create_task(_last(process.stderr))
            status = await process.wait()
    except ExceptionGroup as error:
        raise error.exceptions[0] from None
    finally:
        await _end(process)
    return Ended(status=status, output=output.result(), errors=errors.result())


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the program's group, and read the rest: asyncio waits for the pipes too.

    A process that has left the group may hold them open, and is not waited for.
    """
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE_S):
            for stream in (process.stdout, process.stderr):
                while stream is not None and await stream.read(PIECE):
                    pass
            await process.wait()


async def _write(process: asyncio.subprocess.Process, data: bytes) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):  # it does not read all of it
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()


async def _read(stream: asyncio.StreamReader | None, most: int) -> bytes:
    assert stream is not None
    found = bytearray()
    while piece := await stream.read(PIECE):
        found += piece
        if len(found) > most:
            raise Overflow(f"it printed more than {most >> 20} MiB")
    return bytes(found)


async def _last(stream: asyncio.StreamReader | None) -> bytes:
    assert stream is not None
    found = b""
    while piece := await stream.read(PIECE):
        found = (found + piece)[-MAX_ERRORS:]
    return found
