"""A program of the user's, started for one prompt: bounded in time and output, without a shell."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import evolve

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
ROOT = str(Path(evolve.__file__).parents[1])
START = (
    "import sys; sys.path.append(sys.argv[1]); from {0} import main; sys.exit(main(sys.argv[2:]))"
)


class Overflow(Exception):
    """The program printed too much."""


@dataclass(slots=True, kw_only=True)
class Ended:
    """How a program ended.

    Attributes:
        status: its exit status; None if it was ended.
        output: what it printed, as far as it came.
        errors: the last bytes of its standard error.
        fault: why it was ended; empty if it ended by itself.
    """

    status: int | None = None
    output: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)
    fault: str = ""


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


def launcher(module: str, *words: str) -> list[str]:
    """A command that starts `main` of a module of this project, without PYTHONPATH."""
    return [sys.executable, "-P", "-c", START.format(module), ROOT, *words]


async def run(
    command: Sequence[str],
    text: str,
    *,
    folder: Path,
    environment: Mapping[str, str],
    deadline_s: float,
    most: int = MAX_OUTPUT,
    parent: Sequence[str] = (),
) -> Ended:
    """Run a program with a text on its standard input; all its processes end with this call.

    It is ended if it is not done within `deadline_s`, or prints more than `most` bytes. Its
    parent is `evolve.worker.sandbox.reaper`, or `parent`, which takes and does the same.

    Raises:
        OSError: it cannot be started.
    """
    reading, writing = os.pipe()
    with open(reading, "rb", 0) as failure:  # noqa: PTH123
        try:
            process = await asyncio.create_subprocess_exec(
                *(*(parent or launcher("evolve.worker.sandbox.reaper")), str(writing), *command),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=folder,
                env=dict(environment),
                start_new_session=True,
                pass_fds=(writing,),
            )
        finally:
            os.close(writing)
        ended = await _followed(process, text, deadline_s, most)
        os.set_blocking(reading, False)
        if number := failure.read():
            raise OSError(int(number), os.strerror(int(number)))
    return ended


async def _followed(
    process: asyncio.subprocess.Process, text: str, deadline_s: float, most: int
) -> Ended:
    """Feed and read a program until it ends, or is ended."""
    ended = Ended()
    try:
        async with asyncio.timeout(deadline_s):
            async with asyncio.TaskGroup() as group:
                group.create_task(_write(process, text.encode(errors="replace")))
                group.create_task(_read(process.stdout, ended.output, most))
                group.create_task(_last(process.stderr, ended.errors))
            ended.status = await process.wait()
    except* TimeoutError:
        ended.fault = f"it gave no answer within {deadline_s:g} s, and was ended"
    except* Overflow:
        ended.fault = f"it printed more than {most >> 20} MiB, and was ended"
    finally:
        await _end(process)
    return ended


async def _end(process: asyncio.subprocess.Process) -> None:
    """Have the launcher end all processes; kill its group if it does not."""
    with suppress(ProcessLookupError):
        process.terminate()
    await _drained(process)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await _drained(process)


async def _drained(process: asyncio.subprocess.Process) -> None:
    """Read the rest, for asyncio waits for the pipes too; wait a while for the end."""
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


async def _read(stream: asyncio.StreamReader | None, found: bytearray, most: int) -> None:
    assert stream is not None
    while piece := await stream.read(PIECE):
        found += piece
        if len(found) > most:
            raise Overflow


async def _last(stream: asyncio.StreamReader | None, found: bytearray) -> None:
    assert stream is not None
    while piece := await stream.read(PIECE):
        found += piece
        del found[:-MAX_ERRORS]
