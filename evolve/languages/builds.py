"""Failures of compilers that run when a candidate is imported.

The program of a tool's process carries this file as text (`evolve.worker.runner.tool_process`), so
it imports the standard library only.
"""

import json
import tempfile
from pathlib import Path


class BuildError(Exception):
    """The compiler or linker refused the candidate's source; the message is the compiler's."""


def note_kernel(folder: Path, name: str, stage: str, code: bytes) -> None:
    """Keep a kernel's name and code in the folder of a build.

    Files are named as Triton's are, so that a profile is compared with both in one way.

    Args:
        folder: of the build.
        name: as a profile has it.
        stage: of the code: `ptx`; `cubin`, if its stack is spilled registers.
        code: of the kernel.
    """
    place = Path(tempfile.mkdtemp(prefix="kernel-", dir=folder))
    place.chmod(0o755)  # the judge, which reads it, may be another user
    (place / "kernel.json").write_text(json.dumps({"name": name}))
    (place / f"kernel.{stage}").write_bytes(code)


def first_errors(log: str, limit: int = 12) -> str:
    """The lines of a compiler's log with the error, each with the two lines after it."""
    lines = log.splitlines()
    kept: dict[int, None] = {}
    for number, line in enumerate(lines):
        if "error:" in line or "undefined reference" in line or "undefined symbol" in line:
            kept.update(dict.fromkeys(range(number, min(number + 3, len(lines)))))
    chosen = [lines[number] for number in kept] or lines[-limit:]
    return "\n".join(
        line.rpartition("/")[2] if "error:" in line else line for line in chosen[:limit]
    )
