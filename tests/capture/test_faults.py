"""What a script, its values and its surroundings may be without harm to them or to other tasks."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evolve.capture.apply import Chosen, check
from evolve.capture.processes import Script, started
from evolve.capture.task_file import captured as described
from evolve.capture.tasks import select, shares_of, write_tasks
from evolve.cli.main import main
from evolve.core.errors import USAGE, EvolveError, UsageError
from evolve.tasks import find_task
from evolve.worker.correctness.cases import load_task


def captured(folder, text, *names):
    """Parts and what was written of them, by title, of a script with this text."""
    (folder / "script.py").write_text(text)
    script = Script(name=str(folder / "script.py"))
    with started(script) as run:
        shares = select(shares_of(script, run), 0, names)
        written = write_tasks(script, run, shares, folder / "tasks")
    return {one.part.title: written[one.part] for one in shares}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["tanh.py", "tanh.cases.yaml", "tanh.0.pt", "tanh.12.pt"])
def test_no_file_of_the_user_is_replaced(tmp_path, name):
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / name).write_text("own")
    with pytest.raises(UsageError, match=f"{name} is there already"):
        captured(tmp_path, "import torch\ntorch.nn.Tanh()(torch.ones(2))")
    assert [file.read_text() for file in (tmp_path / "tasks").iterdir()] == ["own"]


VALUES = """
import enum, torch
from torch import nn

class Color(enum.Enum):
    RED = 1

class ByColor(nn.Module):
    def forward(self, by): return by[Color.RED] + 1

class ByType(nn.Module):
    def forward(self, by): return by[torch.float32] + 1

class Large(nn.Module):
    def forward(self, x): return x * 0.5

class Plain(nn.Module):
    def forward(self, by): return by[1, "a"] + 1

torch.manual_seed(0)
x = torch.randn(9, 9)
with torch.no_grad():
    ByColor()({Color.RED: x}), ByType()({torch.float32: x})
    Large()(x.double() * 1e200), Plain()({(1, "a"): x})
"""


def test_values_that_no_literal_gives_cost_their_own_part_only(tmp_path):
    parts = captured(tmp_path, VALUES)
    assert "has a Color as a key" in parts["ByColor"].fault
    assert "has a dtype as a key" in parts["ByType"].fault
    large = load_task(find_task(str(parts["Large"].task))).cases[0].own_inputs(1)[0]
    assert 1e199 < float(large.abs().max()) < 1e201
    assert find_task(str(parts["Plain"].task))


@pytest.mark.parametrize("share", ["nan", "-5", "200", "inf"])
def test_a_share_outside_of_all_the_time_is_refused(share, capsys):
    assert main(["tasks", "capture", f"--min-share={share}", __file__]) == USAGE
    assert "--min-share" in capsys.readouterr().err


def test_a_module_that_is_nowhere_is_named_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = Script(name="nosuch.mod", is_module=True)
    with started(script) as run, pytest.raises(UsageError) as raised:
        run({"purpose": "time"})
    assert "no module named nosuch" in str(raised.value)
    assert "frozen" not in str(raised.value)


NEVER_HARMED = """
import torch
from torch import nn
from torch.nn import functional as F

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
    def forward(self, x): return F.softmax(self.linear(x), -1)

class Equal(nn.Module):
    def __eq__(self, other): return True
    def forward(self, x): return x + 1

class Sparse(nn.Module):
    def forward(self, x, y): return x @ y

class Odd(dict):
    def items(self): raise ValueError("not now")

class First(nn.Module):
    def forward(self, x, odd): return x + 1

block, x = Block().eval(), torch.randn(4, 8)
with torch.no_grad():
    block(x), Equal()(x), Equal()(x)
    Sparse()(torch.eye(8).to_sparse_csr(), torch.randn(8, 8))
    block.linear(torch.nested.nested_tensor([torch.randn(2, 8), torch.randn(3, 8)]))
    nn.Identity()(torch.quantize_per_tensor(x, 0.1, 0, torch.quint8))
    endless = []
    endless.append(endless)
    First()(x, endless), First()(x, Odd(a=1))
    assert torch.func.vmap(block)(x).shape == x.shape
    traced, scripted = torch.jit.trace(block, x), torch.jit.script(block)
    for one in (traced, scripted):
        torch.testing.assert_close(one(x), block(x))
nn.utils.parametrizations.weight_norm(block.linear)
block(x)
"""


def test_what_python_runs_runs_observed_too(tmp_path):
    parts = captured(tmp_path, NEVER_HARMED)
    assert "unhashable" in parts["Equal"].fault
    for title in ("Sparse", "First"):
        assert parts[title].task is None
        assert parts[title].fault


CHECKPOINTED = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
    def forward(self, x): return x + self.linear(x).tanh()

blocks = [Block(), Block()]
for reentrant in (False, True):
    x = torch.randn(4, 8, requires_grad=True)
    y = x
    for block in blocks:
        y = checkpoint(block, y, use_reentrant=reentrant)
    y.sum().backward()
    assert x.grad is not None
    assert all(one.grad is not None for block in blocks for one in block.parameters())
"""


@pytest.mark.slow  # backward tasks are in test_own_functions, without checkpoints
def test_activations_that_are_computed_again_are_no_fault(tmp_path):
    """Checkpoints count the tensors that a graph saves: trying a task saves none of theirs."""
    parts = captured(tmp_path, CHECKPOINTED)
    assert parts["Block"].fault == ""
    assert parts["Block"].backward.fault == ""
    made_and_agreed(tmp_path, parts["Block"].backward.task)


def made_and_agreed(folder, task):
    """The backward task's own module, as a winner, makes backward passes, and all agree."""
    source = re.sub(r"^class Model\(", "class ModelNew(", task.read_text(), flags=re.M)
    with started(Script(name=str(folder / "script.py"))) as run:
        ((_, found),) = check(run, [Chosen(task=described(find_task(str(task))), source=source)])
    assert found.differences == {}
    assert found.made == found.agreed > 0


COUNTED = """
import torch
from torch import nn

class Positioned(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(8))
    def forward(self, x, position): return (x * self.weight).tanh() + position

class Counting(Positioned):
    def forward(self, x, count):
        count.add_(1)
        return (x * self.weight).tanh() + count

with torch.inference_mode():
    position = torch.arange(8)
positioned, counting, count = Positioned(), Counting(), torch.zeros(8, dtype=torch.int64)
for _ in range(3):
    x = torch.randn(4, 8)
    (positioned(x, position) + counting(x, count)).sum().backward()
"""


@pytest.mark.slow  # backward tasks are in test_own_functions
def test_integers_made_under_inference_mode_are_no_fault(tmp_path):
    """Such tensors count no writes."""
    parts = captured(tmp_path, COUNTED)
    made_and_agreed(tmp_path, parts["Positioned"].backward.task)


def test_a_part_that_writes_to_integers_has_no_backward_task(tmp_path):
    parts = captured(tmp_path, COUNTED)
    assert parts["Counting"].fault == ""
    assert parts["Counting"].backward.task is None
    assert "it writes to an argument" in parts["Counting"].backward.fault


ENDLESS = """
import torch
from torch import nn

ring = [1.0]
ring.append((ring,))
deep = ()
for _ in range(700):
    deep = (deep,)

class Config:
    def __init__(self): self.parts = {"ring": ring}

class Given(nn.Module):
    def forward(self, x, ring): return x + ring[0]

class Made(nn.Module):
    def __init__(self, ring):
        super().__init__()
        self.factor = ring[0]
    def forward(self, x): return x * self.factor

class Configured(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
    def forward(self, x): return x * self.config.parts["ring"][0]

class Constant(nn.Module):
    def forward(self, x): return x * ring[0]

class Deep(nn.Module):
    def forward(self, x, deep): return x * len(deep)

x = torch.rand(4, 8)
with torch.no_grad():
    Given()(x, ring), Made(ring)(x), Configured(Config())(x), Constant()(x), Deep()(x, deep)
"""


def test_containers_that_hold_themselves_are_named_in_one_line(tmp_path):
    parts = captured(tmp_path, ENDLESS)
    for title in ("Given", "Made", "Configured", "Constant"):
        assert "that holds itself" in parts[title].fault, (title, parts[title].fault)
        assert "list" in parts[title].fault
    assert "that is nested too deeply" in parts["Deep"].fault
    assert not any("\n" in one.fault or "recursion" in one.fault for one in parts.values())


@pytest.mark.slow  # configurations are in test_own_functions
def test_a_configuration_of_postponed_annotations_becomes_a_task(tmp_path):
    parts = captured(
        tmp_path,
        "from __future__ import annotations\nimport torch\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Config:\n    width: int = 8\n"
        "class Block(torch.nn.Module):\n    def __init__(self, config):\n"
        "        super().__init__()\n        self.linear = torch.nn.Linear(config.width, 8)\n"
        "    def forward(self, x): return self.linear(x).tanh()\n"
        "with torch.no_grad(): Block(Config())(torch.randn(2, 8))\n",
    )
    assert parts["Block"].fault == ""
    (case,) = load_task(find_task(str(parts["Block"].task))).cases
    assert case.constructed(1)(*case.own_inputs(1)).shape == (2, 8)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 5))", "raised RuntimeError"),
        ("torch.nn.Linear(3, 4)(torch.ones(5))", "raised RuntimeError"),
        ("\n\nif True\n    x", r"raised SyntaxError at line 4 of \S+script.py: expected ':'\. It"),
        ("import broken", r"raised SyntaxError at line 2 of \S+broken.py: expected ':'\. It"),
        ("eval('1 +')", r"raised SyntaxError at line 2 of \S+script.py: "),
        ("import evolve.capture.clock as c; c.Clock.begin = None; torch.nn.Tanh()(torch.ones(2))",
         "a fault of evolve, not of the script"),
    ],
)  # fmt: skip
def test_a_fault_is_said_of_the_one_that_has_it(tmp_path, text, said):
    (tmp_path / "broken.py").write_text("import torch\nif True\n    pass\n")
    (tmp_path / "script.py").write_text(f"import torch\n{text}\n")
    script = Script(name=str(tmp_path / "script.py"))
    with started(script) as run, pytest.raises(EvolveError, match=said):
        run({"purpose": "time"})


def test_an_end_of_capture_is_the_end_of_the_script(tmp_path):
    number = tmp_path / "number"
    (tmp_path / "script.py").write_text(
        "import os, pathlib, time\n"
        f"path = pathlib.Path({str(number)!r})\n"
        "path.with_suffix('.new').write_text(str(os.getpid()))\n"
        "path.with_suffix('.new').rename(path)\ntime.sleep(100)\n"
    )
    words = ["tasks", "capture", "--out", str(tmp_path / "tasks"), str(tmp_path / "script.py")]
    process = subprocess.Popen([sys.executable, "-m", "evolve", *words])
    wait_until(number.exists)
    process.send_signal(signal.SIGTERM)
    process.wait()
    wait_until(lambda: not is_alive(int(number.read_text())))


def wait_until(is_so, seconds=60):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_alive(number):
    status = Path(f"/proc/{number}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


SECRETS = """
import torch
class Config:
    def __init__(self):
        self.dim = 8; self.max_tokens = 4; self.hf_token = "hf_InTheClass1"
        self.options = [{"secret": "nested-Sesame"}]
class Block(torch.nn.Module):
    def __init__(self, config, api_key, *, password="default-Sesame"):
        super().__init__()
        self.linear = torch.nn.Linear(config.dim, config.max_tokens)
    def forward(self, x): return self.linear(x).tanh()
class Asks(torch.nn.Module):
    def forward(self, x, token): return x + 1
with torch.no_grad():
    Block(Config(), "positional-Sesame", password="named-Sesame")(torch.randn(2, 8))
    Asks()(torch.randn(2, 8), token="called-Sesame")
"""


def test_secrets_of_a_configuration_are_neither_written_nor_printed(tmp_path, capfd):
    (script := tmp_path / "script.py").write_text(SECRETS)
    for words, folder in (([], "a"), (["--json"], "b")):
        out = str(tmp_path / folder)
        assert (
            main(["tasks", "capture", *words, "--min-share", "0", "--out", out, str(script)]) == 0
        )
    printed = capfd.readouterr()
    written = "".join(file.read_text() for file in tmp_path.glob("[ab]/*.*"))
    for text in (*printed, written):
        assert "Sesame" not in text
        assert "InTheClass" not in text
    said = "block.py, where None stands for api_key, hf_token, password, secret (secret)"
    assert said in printed.out
    assert "'max_tokens': 4" in written
    assert "Config(" not in written.partition("PART")[2]
    assert "argument token is a secret" in printed.out
