"""LiteLLM takes seconds to import: nothing does so before a call is made.

Invariants:
1. Building models, pricing and resolving requests import no LiteLLM; nor do the verbs that call no
   model.
2. Importing it reaches no network and reads no .env file.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def python(code: str, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )
    assert not done.stderr
    return done.stdout


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "code",
    [
        "import evolve",
        "import evolve.llm, evolve.testing.model_server",
        "from evolve.llm import *; from evolve.core.model import *; "  # noqa: ISC004
        "m = LiteLLM(model='openai/gpt-4o-mini'); m.reserve(m.resolve(ModelRequest(messages=())))",
        "from evolve.llm.doctor import *; from evolve.llm import *; print(*findings()); "  # noqa: ISC004
        "print(key_finding(ModelSettings(model='openai/b')))",
        "from evolve.cli.main import main; main(['--help'])",
        "from evolve.cli.main import main; main(['tasks'])",
    ],
)
def test_nothing_imports_litellm_before_a_call(code, tmp_path):
    said = python(f"import sys; {code}; print('litellm' in sys.modules)", tmp_path)
    assert said.split()[-1] == "False"


@pytest.mark.slow
def test_importing_litellm_reaches_no_network_and_reads_no_env_file(tmp_path):
    (tmp_path / ".env").write_text("PLANTED_VARIABLE=1\n")
    code = """
import socket
def refuse(*_, **__):
    raise AssertionError("the network is reached for")
socket.socket.connect = socket.getaddrinfo = refuse
from evolve.llm.client import load
load()
import os
print("PLANTED_VARIABLE" in os.environ)
"""
    assert python(code, tmp_path).split() == ["False"]
