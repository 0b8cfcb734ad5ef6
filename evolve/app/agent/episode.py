"""One episode of a coding agent: its folder, its judge over MCP, and the process itself."""

import asyncio
import json
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evolve.app.agent.presets import TOKEN_VARIABLE, URL_VARIABLE, Workspace, preset_of
from evolve.app.mcp import MCP_PACKAGES
from evolve.core.errors import UsageError, needing
from evolve.core.protocols import LiveJudge
from evolve.llm.programs.process import Ended, environment_for, launcher, run
from evolve.llm.secrets import scrub
from evolve.worker.sandbox import landlock
from evolve.worker.sandbox.policy import readable_paths

_TRUNCATE_ABI = 3  # of Landlock: before it, any file could be emptied
MAX_TRANSCRIPT = 64 << 20  # bytes of a program's output
NETWORK_FILES = (
    *("/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/ca-certificates.conf"),
    *("/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/gai.conf", "/etc/services"),
    *("/run/systemd/resolve", "/usr/share/zoneinfo"),
)
KERNEL_FILES = ("/dev", "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys")


@dataclass(slots=True)
class Tries:
    """The programs that an agent has had judged in an episode.

    Args:
        judge: judges them.
        parents: programs that the episode began with.
        verdicts: how many there may be.

    Attributes:
        steps: their numbers.
    """

    judge: LiveJudge
    parents: tuple[str, ...]
    verdicts: int
    steps: list[int] = field(default_factory=list)

    @property
    def left(self) -> int:
        return self.verdicts - len(self.steps)

    def submit(self, source: str, parent: int | None, note: str) -> int:
        """Have a program judged; returns the number of its step.

        Raises:
            UsageError: no verdict is left, the program is none, or `parent` is no step of this
                episode.
        """
        if self.left < 1:
            raise UsageError(
                f"all {self.verdicts} verdicts of this episode are used up; end with an answer "
                "that sums up the results"
            )
        if parent is not None and parent not in self.steps:
            raise UsageError(f"parent={parent}: it is no step of this episode; leave it out")
        if scrub(source) != source or scrub(note) != note:
            raise UsageError("the program or its note holds a key; a program is stored and shown")
        parents = self.parents if parent is None else (self._program(parent),)
        step = self.judge.offer(source, operator="agent", parents=parents, note=note)
        self.steps.append(step)
        return step

    def _program(self, step: int) -> str:
        from evolve.app.database import open_store

        with open_store(self.judge.location) as store:
            return store.step(store.run(self.judge.run).id, step).program or ""


@asynccontextmanager
async def judge_for(
    tries: Tries, folder: Path, usd: float | None, knowledge: Sequence[str]
) -> AsyncIterator[Workspace]:
    """Within this block the judge of an episode answers on this machine, to its own token.

    Args:
        tries: the programs of the episode.
        folder: where the agent works.
        usd: its limit of cost.
        knowledge: folders of documents, beside those that ship.
    """
    with needing("operators=agent", "mcp", MCP_PACKAGES):
        from evolve.app.agent.tools import server_of
        from evolve.app.mcp.http import ENDPOINT, serve
    from evolve.serve.http import listen, url_of

    token = secrets.token_hex(24)
    with listen("127.0.0.1", 0) as listener:
        serving = asyncio.create_task(
            serve(server_of(tries, knowledge), listener, token=token, hosts=())
        )
        try:
            url = url_of(listener) + ENDPOINT
            yield Workspace(folder=folder, url=url, token=token, usd=usd)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


async def work(
    command: Sequence[str],
    prompt: str,
    workspace: Workspace,
    *,
    environment: Sequence[str],
    read: Sequence[str],
    deadline_s: float,
) -> Ended:
    """Run the agent in its folder until it ends or is ended.

    Args:
        command: the program and the user's arguments.
        prompt: given on standard input.
        workspace: the folder and the judge.
        environment: variables that it gets besides `PATH`, `HOME` and the like.
        read: further paths that it may read.
        deadline_s: seconds for all of it.

    Raises:
        OSError: it cannot be started.
    """
    preset = preset_of(command[0])
    for name, text in preset.files(workspace).items():
        path = workspace.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)
    scratch = workspace.folder / "tmp"
    scratch.mkdir(exist_ok=True)
    own = {"TMPDIR": str(scratch), "PWD": str(workspace.folder)}
    own |= {f"XDG_{kind}_HOME": str(scratch) for kind in ("CACHE", "CONFIG", "DATA")}
    own["XDG_RUNTIME_DIR"] = str(scratch)  # no socket of the user's session
    own |= {TOKEN_VARIABLE: workspace.token, URL_VARIABLE: workspace.url, **preset.environment}
    rules = json.dumps(_rules(command[0], workspace.folder, preset.state, read))
    return await run(
        [*command, *preset.arguments(workspace)],
        prompt,
        folder=workspace.folder,
        environment={**environment_for(environment, os.environ), **own},
        deadline_s=deadline_s,
        most=MAX_TRANSCRIPT,
        parent=launcher("evolve.app.agent.confined", rules),
    )


def require_confinement() -> None:
    """Raise UsageError if this host cannot keep an agent in its folder."""
    try:
        version = landlock.abi()
    except OSError:
        version = 0
    if version < _TRUNCATE_ABI:
        raise UsageError(
            "operators=agent: this kernel's Landlock cannot keep an agent in its folder; use Linux "
            "6.2 or later, or start the agent yourself and give it `evolve mcp`"
        )


def _install(program: Path) -> list[Path]:
    """The program and what lies beside it, but no folder that holds other things of the user.

    A program of npm starts others of its `node_modules`: Codex's own binary is a package beside it.
    """
    own = program.resolve()
    home = Path.home().resolve()
    packages = [path for path in own.parents if path.name == "node_modules"][-1:]
    beside = (program.parent, own.parent.parent, *packages)
    small = [
        path for path in beside if not home.is_relative_to(path.resolve()) and path.parent != home
    ]
    return [program, own, *small]


def _rules(program: str, folder: Path, state: Sequence[str], read: Sequence[str]) -> dict[str, Any]:
    """The paths that an agent may read, and those that it may change."""
    found = shutil.which(program)
    install = [str(path) for path in _install(Path(found))] if found else []
    writable = [str(folder), "/dev/null", "/dev/shm", *(str(Path.home() / name) for name in state)]
    more = (*install, *(str(Path(path).expanduser()) for path in read))
    return {
        "readable": [*readable_paths(more), *NETWORK_FILES, *KERNEL_FILES],
        "writable": writable,
    }
