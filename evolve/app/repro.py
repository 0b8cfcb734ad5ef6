"""One recorded candidate as a folder that can be judged again elsewhere."""

import json
from pathlib import Path

import evolve
from evolve.core.errors import UsageError
from evolve.core.evaluation import Evaluation, Fidelity
from evolve.core.protocols import EvaluationRequest
from evolve.core.task import Task

REQUEST = "request.json"
CANDIDATE = "candidate.py"

README = """\
# One recorded evaluation

Written by evolve {version} for task {task}, size {size}, fidelity {fidelity}.

- `candidate.py`: the program as it was judged, tunables filled in. Edit it and judge again.
- `task.py`: the reference, for reading.
- `request.json`: the task with its cases and rules, and the opponents timed with the candidate.
- `recorded.json`: the verdict on record, with the machine that gave it (absent: none yet).

Judge it again, here or elsewhere:

    pip install evolve-kernels=={version}
    ./judge.sh            # or: evolve eval . ; --json for machines
"""

SCRIPT = """\
#!/bin/sh
exec evolve eval "$(dirname "$0")" "$@"
"""


def write(folder: Path, request: EvaluationRequest, recorded: Evaluation | None) -> Path:
    """Write the folder, which must not hold anything yet.

    Raises:
        UsageError: it is not empty, or cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--repro {folder} exists and is not empty; name a new folder")
    files = {
        CANDIDATE: request.source,
        "task.py": request.task.source,
        REQUEST: _json(
            {
                "task": request.task.to_json(),
                "instance": request.instance,
                "fidelity": request.fidelity.value,
                "opponents": dict(request.opponents),
            }
        ),
        "README.md": README.format(
            version=evolve.__version__,
            task=request.task.name,
            size=request.task.size,
            fidelity=request.fidelity,
        ),
        "judge.sh": SCRIPT,
    }
    if recorded is not None:
        files["recorded.json"] = _json(recorded.to_json())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        (folder / "judge.sh").chmod(0o755)
    except OSError as error:
        raise UsageError(f"--repro {folder} cannot be written: {error.strerror}") from error
    return folder


def read(folder: Path) -> EvaluationRequest:
    """The request of a folder that `write` made, with its candidate as it stands there now.

    Raises:
        UsageError: a file of it is missing or damaged.
    """
    try:
        data = json.loads((folder / REQUEST).read_text(encoding="utf-8"))
        return EvaluationRequest(
            task=Task.from_json(data["task"]),
            instance=data["instance"],
            source=(folder / CANDIDATE).read_text(encoding="utf-8"),
            fidelity=Fidelity(data["fidelity"]),
            opponents=data["opponents"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder} is not a folder that --repro wrote: {error}") from error


def _json(value: object) -> str:
    return json.dumps(value, indent=1) + "\n"
