"""Common coding agents: the arguments and files by which they run headless and find the judge."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SERVER = "evolve"
TOKEN_VARIABLE = "EVOLVE_AGENT_TOKEN"
URL_VARIABLE = "EVOLVE_AGENT_URL"
TOOLS = ("submit", "verdict", "best", "lineage", "get_step", "knowledge")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """Where an agent works: its folder, the address of the judge, and its limit of cost."""

    folder: Path
    url: str
    token: str
    usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One agent.

    Attributes:
        arguments: further words of its command.
        files: texts of files that it reads, by their path in the folder.
        environment: variables that it needs to use those files.
        state: folders of its own below the home, with its login; it may write there.
        limits_cost: whether it ends by itself at a limit of cost.
    """

    arguments: Callable[[Workspace], list[str]] = lambda workspace: []
    files: Callable[[Workspace], Mapping[str, str]] = lambda workspace: {}
    environment: Mapping[str, str] = field(default_factory=dict)
    state: tuple[str, ...] = ()
    limits_cost: bool = False


def preset_of(program: str) -> Preset:
    """The preset of a program by its name; an empty one for a program that is none of them."""
    return PRESETS.get(Path(program).name, Preset())


def _headers(workspace: Workspace) -> dict[str, str]:
    return {"Authorization": f"Bearer {workspace.token}"}


def _claude(workspace: Workspace) -> list[str]:
    tools = ",".join((*(f"mcp__{SERVER}__{name}" for name in TOOLS), "Read", "Write", "Edit"))
    words = ["--output-format", "stream-json", "--verbose", "--strict-mcp-config"]
    words += ["--mcp-config", str(workspace.folder / "mcp.json"), "--allowedTools", tools]
    return words if workspace.usd is None else [*words, "--max-budget-usd", f"{workspace.usd:g}"]


def _claude_files(workspace: Workspace) -> dict[str, str]:
    server = {"type": "http", "url": workspace.url, "headers": _headers(workspace)}
    return {"mcp.json": json.dumps({"mcpServers": {SERVER: server}})}


def _codex(workspace: Workspace) -> list[str]:
    server = f"mcp_servers.{SERVER}"
    return [
        *("--json", "--skip-git-repo-check", "--sandbox", "workspace-write"),
        *("-c", f'{server}.url="{workspace.url}"'),
        *("-c", f'{server}.bearer_token_env_var="{TOKEN_VARIABLE}"'),
        *("-c", f"{server}.required=true"),  # else it may begin without the tools
        "-",
    ]


def _gemini_files(workspace: Workspace) -> dict[str, str]:
    server = {"httpUrl": workspace.url, "headers": _headers(workspace), "trust": True}
    return {".gemini/settings.json": json.dumps({"mcpServers": {SERVER: server}})}


def _cursor_files(workspace: Workspace) -> dict[str, str]:
    server = {"url": workspace.url, "headers": _headers(workspace)}
    return {".cursor/mcp.json": json.dumps({"mcpServers": {SERVER: server}})}


PRESETS: Mapping[str, Preset] = {
    "claude": Preset(
        arguments=_claude,
        files=_claude_files,
        state=(".claude", ".claude.json"),
        limits_cost=True,
    ),
    "codex": Preset(arguments=_codex, state=(".codex",)),
    "gemini": Preset(
        arguments=lambda workspace: ["--output-format", "json", "--approval-mode", "yolo"],
        files=_gemini_files,
        environment={"GEMINI_CLI_TRUST_WORKSPACE": "true"},  # else it ignores the folder's settings
        state=(".gemini",),
    ),
    "cursor-agent": Preset(
        arguments=lambda workspace: ["--output-format", "stream-json", "--force", "--approve-mcps"],
        files=_cursor_files,
        state=(".cursor",),
    ),
}
"""By the name of the program. The words before these are the user's: `claude -p --model opus`."""
