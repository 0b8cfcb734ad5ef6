"""Forty mistakes that new users make.

Each ends with exit status 2 in under 3 s, without a traceback, before anything is written, audited
or judged, and with one line that names what was typed and what to type instead.
"""

import os
import shlex
import time
from pathlib import Path

import pytest

from evolve.app import device
from evolve.cli.main import main
from evolve.llm.secrets import KEY_VARIABLES
from tests.cli.test_bad_input import files

SECONDS = 3.0  # of a processor: a busy machine takes longer

# The words after `evolve`, what was wrong with them, and the remedy.
MISTAKES = [
    # words
    ("run softmax", "'softmax'", "task=softmax"),
    ("run", "task is not set", "task="),
    ("run task = softmax", "'task ='", "without spaces"),
    ("run --task softmax", "--task", "task="),
    ("evaluate mine.py", "'evaluate'", "'eval'"),
    ("eval kernel.py task=softmax", "task=softmax", "--task softmax"),
    ("eval kernel.py", "--task is missing", "evolve tasks"),
    # settings and options
    ("run task=softmax terminaton.wall_time=10m", "terminaton.wall_time", "termination.wall_time"),
    ("run task=softmax termination.walltime=10m", "walltime", "termination.wall_time"),
    ("run task=softmax wall_time=10m", "wall_time", "termination.wall_time"),
    ("run task=softmax searh=quick", "searh", "did you mean search"),
    ("run task=softmax search=quik", "search=quik", "search=quick"),
    ("run task=softmax archive=mapelites", "archive=mapelites", "archive=map_elites"),
    ("run task=softmax archive.capacty=9", "archive.capacty", "archive.capacity"),
    ("run task=softmax seeds=[mine.py]", "seeds", "initial=[mine.py]"),
    ("run task=softmax model=openai/gpt-4o", "model", "llm.model"),
    ("run task=softmax llm=openai/gpt-4o", "llm=openai/gpt-4o", "llm.model=openai/gpt-4o"),
    ("run task=softmax store=my.db", "store=my.db", "store.path=my.db"),
    ("run task=softmax baseline=kernel.py", "baseline=kernel.py", "file:kernel.py"),
    ("run task=softmax initial=kernel.py", "initial", "[kernel.py]"),
    (
        "run task=softmax operators.mine._target_=mine.MyOperator",
        "operators.mine._target_",
        "+operators.mine._target_=",
    ),
    ("run task=softmax +operators.mine._target_=mine.MyOperator", "'mine'", "PYTHONPATH=."),
    # devices and sizes
    ("run task=softmax device=gpu", "device=gpu", "device=cuda"),
    ("run task=softmax device=cuda:0", "device=cuda:0", "device.ids=[0]"),
    ("run task=softmax device=cuda", "NVIDIA driver", "device=cpu"),
    ("run task=softmax task_config.size=small", "'small'", "tiny"),
    ("run task=softmax task.size=tiny", "task.size=tiny", "did you mean task_config.size=tiny?"),
    ("run task=softmax task.dtype=fp16", "task.dtype=fp16", "task_config.precision=fp16"),
    ("run task=softmax initial.mine=a.py", "initial.mine=a.py", "initial=[...]"),
    ("run task=softmax llm.model.temperature=1", "llm.model.temperature=1", "llm.temperature=1"),
    ("serve port.number=1", "port.number=1", "port=..."),
    ("run task=softmax precision=fp16", "precision", "task_config.precision"),
    # models and keys
    ("run task=softmax llm.model=gpt-4o", "llm.model=gpt-4o", "openai/gpt-4o"),
    ("run task=softmax llm.model=opnai/gpt-4o", "'opnai'", "openai/gpt-4o"),
    ("run task=softmax llm.model=openai/gpt-4o", "llm.model=openai/gpt-4o", "OPENAI_API_KEY"),
    ("run task=softmax llm.model=openai/gtp-4o", "openai/gtp-4o", "openai/gpt-4o"),
    ("run task=softmax llm.api_key=planted-key-7f3a9b", "llm.api_key", "export OPENAI_API_KEY"),
    (
        "run task=softmax llm.model=openai/x llm.api_base=localhost:8000",
        "localhost:8000",
        "http://",
    ),
    (
        "run task=softmax llm.model=openai/x llm.api_base=http://127.0.0.1:9/v1 termination.usd=5",
        "termination.usd=5",
        "llm.price.prompt",
    ),
    # budgets
    ("run task=softmax termination.wall_time=10minutes", "10minutes", "2h30m"),
    ("run task=softmax termination.evaluations=many", "evaluations=many", "a whole number"),
    ("run task=softmax termination.evaluations=0", "got 0", "above zero"),
    # files, folders and runs
    ("run task=sofmax", "'sofmax'", "softmax"),
    ("run task=folder", "'folder'", "./folder/"),
    ("run task=./kernel.py", "no class Model", "evolve eval"),
    ("run task=./reference.py", "get_inputs", "get_init_inputs"),
    ("run task=./torn.py", "torn.py, line 4", "expected ':'"),
    ("run task=softmax initial=[mine.py]", "initial mine.py", "rename its class Model to ModelNew"),
    ("run task=softmax initial=[torn.py]", "initial torn.py: line 4", "expected ':'"),
    ("run task=softmax store.path=folder", "store.path=folder", "runs/evolve.db"),
    ("run task=kernelbench:1/40", "kernelbench:1/40", "KERNELBENCH_PATH"),
    ("best", "no database at runs/evolve.db", "start a run"),
    ("resume nobody", "runs/evolve.db", "start a run"),
    ("compare --search greedy task=softmax", "budget", "termination.evaluations=60"),
    ("serve prot=8000", "prot", "port"),
    ("serve tasks=[nope.py]", "nope.py", "Check the path"),
    ("mcp tasks=[nope.py]", "nope.py", "Check the path"),
    ("mcp knowledge.folders=[nope]", "'nope'", ".md documents"),
    (
        "eval kernel.py --task softmax --python nope",
        "--python nope:",
        "a Python interpreter with torch",
    ),
    (
        "run task=softmax device.python=nope",
        "device.python=nope:",
        "a Python interpreter with torch",
    ),
    ("doctor --python nope", "--python nope:", "a Python interpreter with torch"),
    ("export --to trl-sft", "-o is missing", "-o data"),
    ("export -o data", "--to is missing", "evolve export --list"),
    ("bench suite=kernelbench path=nope", "no folder nope", "give path="),
    ("bench suite=shipped problems=[nope]", "'nope'", "evolve tasks list --suite shipped"),
    ("tasks check --suite shipped --select sofmax", "'sofmax'", "did you mean softmax"),
    ("tasks chek", "tasks chek", "check"),
    ("tasks import nope -o prompts", "no folder nope", "name a folder"),
    ("run task=softmax device=replay", "device=replay", "device.run=RUN"),
    ("run task=", "task is empty", "task=softmax"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    """The user's folder: a reference without inputs, a program, one with a syntax error."""
    model = (
        "import torch\n\n\nclass {}(torch.nn.Module):\n    def forward(self, x):\n        pass\n"
    )
    (tmp_path / "mine.py").write_text(model.format("Model"))
    (tmp_path / "reference.py").write_text(model.format("Model"))
    (tmp_path / "kernel.py").write_text(model.format("ModelNew"))
    (tmp_path / "torn.py").write_text(
        "class ModelNew:\n\n\n    def forward(self, x)\n        pass\n"
    )
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(device, "DRIVER_NODES", (str(tmp_path / "none"),))
    for variable in (*KEY_VARIABLES.values(), "KERNELBENCH_PATH"):
        monkeypatch.delenv(variable, raising=False)
    for variable in [name for name in os.environ if name.startswith("OPENAI_")]:
        monkeypatch.delenv(variable)
    return tmp_path


def test_there_are_forty():
    assert len({words for words, _, _ in MISTAKES}) >= 40


@pytest.mark.sample(12)
@pytest.mark.parametrize(
    ("words", "wrong", "remedy"), MISTAKES, ids=[words for words, _, _ in MISTAKES]
)
def test_a_mistake_is_answered_at_once_with_what_to_type(
    folder: Path, words: str, wrong: str, remedy: str, capsys
):
    before = files(folder)
    began = time.process_time()
    code = main(shlex.split(words))
    took_s = time.process_time() - began
    printed, message = capsys.readouterr()
    assert (code, printed) == (2, ""), message
    [line] = message.splitlines()
    assert line.startswith("evolve: ")
    assert wrong in line
    assert remedy in line
    assert "planted-key" not in line
    assert files(folder) == before
    assert took_s < SECONDS
