"""People who share a database: user names, quotas, entries of the audit log."""

import os
import socket
from dataclasses import dataclass
from typing import NamedTuple


class Account(NamedTuple):
    """Whose runs a quota is about: `kind` is `user` or `project`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What all runs of an account may spend together; None: no such limit.

    Runs that were created before `since` (ISO 8601 in UTC, "" for all) do not count.
    """

    account: Account
    usd: float | None = None
    device_time_s: float | None = None
    since: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What runs have spent, with reservations of calls under way; replays spend nothing.

    `usd` is None if a model without a price was asked.
    """

    usd: float | None = 0.0
    device_time_s: float = 0.0


class Allowance(NamedTuple):
    """A quota, and what other runs of its account have spent of it."""

    quota: Quota
    others: Spending


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Who did what when. `time` is ISO 8601 in UTC; `run` is a name, "" if it is about none."""

    time: str
    user: str
    host: str
    action: str
    run: str = ""
    detail: str = ""


def current_user() -> str:
    """The account of the operating system that this process runs under."""
    try:
        import pwd

        return pwd.getpwuid(os.geteuid()).pw_name
    except (ImportError, KeyError):  # no such database, or a container's user without a name
        return f"uid {os.geteuid()}" if hasattr(os, "geteuid") else os.environ.get("USERNAME", "")


def current_host() -> str:
    """The name of this machine."""
    return socket.gethostname()
