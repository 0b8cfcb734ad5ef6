"""One call of a candidate under a tool, in a process of its own inside of the runner's sandbox.

For tools that have to start the process that they look at. The process runs on nothing of ours: it
finds the candidate's file, and in `CALL_FILE` what its constructor and forward are given.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence

CALL_FILE = "call.pt"
SECONDS = 60.0
_MOST_TEXT = 6000

_PROGRAM = f"""
import sys, types, torch
saved = torch.load("{CALL_FILE}", weights_only=False)
module = types.ModuleType("candidate")
module.__file__ = sys.argv[1]
sys.modules["candidate"] = module
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), module.__dict__)
with torch.device("cuda"):
    model = module.ModelNew(*saved["init"])
model.to("cuda").load_state_dict(saved["state"], strict=False)
with torch.no_grad():
    model.eval()(*saved["inputs"])
torch.cuda.synchronize()
"""


def observe(tool: Sequence[str], source: str) -> str:
    """JSON of what was printed by a tool (a program and its options) around the call.

    `source` is the candidate's file. What the candidate prints is part of it.
    """
    # Without torch's own cache of memory, or what lies behind a tensor would be in bounds.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    try:
        done = subprocess.run(
            [*tool, sys.executable, "-c", _PROGRAM, source],
            capture_output=True, text=True, timeout=SECONDS, env=environment, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return json.dumps(f"{type(error).__name__}: {error}")
    return json.dumps(done.stdout[-_MOST_TEXT:])


def read(text: str) -> str:
    """What a runner says that was printed; nothing where it does not read as that."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    return said if isinstance(said, str) else ""
