"""The user and the host of this process."""

import os
import socket


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
