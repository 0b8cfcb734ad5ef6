"""The token that a server asks for: from a file of the user's, or from the environment."""

import ipaddress
import stat
from collections.abc import Mapping
from pathlib import Path

from evolve.core.errors import UsageError

MIN_TOKEN = 16
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
OPEN_TO_OTHERS = stat.S_IRWXO | stat.S_IWGRP


def read_token(
    path: str | None, environment: Mapping[str, str], *, variable: str, field: str = "token_file"
) -> str | None:
    """The token; None where there is none.

    Args:
        path: a file whose first line it is (None: the environment has it).
        environment: of the process.
        variable: of the environment that has it.
        field: that names the file, for messages.

    Raises:
        UsageError: the file cannot be read, others may read it, or what is there is no token.
    """
    if path is None:
        token, where = environment.get(variable, ""), variable
    else:
        where = f"{field}={path}"
        token = _first_line(Path(path), where)
    token = token.strip()
    if token and (len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable()):
        raise UsageError(
            f"{where}: a token has at least {MIN_TOKEN} printable ASCII characters; take what "
            "`openssl rand -hex 24` prints"
        )
    return token or None


def _first_line(path: Path, where: str) -> str:
    try:
        mode = path.stat().st_mode
        token = path.read_text(encoding="utf-8").partition("\n")[0]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{where}: it cannot be read: {error}") from error
    if mode & OPEN_TO_OTHERS and stat.S_ISREG(mode):
        raise UsageError(f"{where}: other users may read or change it; `chmod 600 {path}`")
    if not token.strip():
        raise UsageError(f"{where}: its first line is empty; write the token there")
    return token


def is_loopback(host: str) -> bool:
    """Whether an interface is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
