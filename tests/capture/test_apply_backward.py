"""Winners of backward tasks put back into a script that trains.

Invariants:
1. A winner makes the backward passes that it was judged on and no others; those are the original's,
   by reason, and give what they give without it: second passes, frozen parameters, shared modules.
2. The script ends as it does without winners.
3. A winner that gives something else, or writes to what it is given, is found before it is timed.
4. What a winner cannot do is left to the original, with the reason: random numbers, second and
   third derivatives, and gradients of which none is taken.
5. Timed runs compare backward passes too.
6. The verified winner of a run over a backward task is put back, and the script measured, on every
   device.
"""

import contextlib
import io
import json
import re
from pathlib import Path

import pytest
import torch

import evolve
from evolve.capture.apply import Chosen, as_json, check
from evolve.capture.processes import Script, started
from evolve.capture.task_file import captured
from evolve.cli.main import main
from evolve.tasks import find_task
from tests.capture.scripts_running import SCRIPTS, capture

SCALED = """\
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(16))
        self.shift = None

    def forward(self, grad_output, x, gain):
        y = torch.tanh(x * self.weight)
        inner = grad_output * gain * (1 - y * y)
        return inner * self.weight, (inner * x).sum(0)
"""
SILU_MEAN = """\
import torch


class ModelNew(torch.nn.Module):
    def forward(self, grad_output, x):
        gate = torch.sigmoid(x)
        return ((grad_output[:, None] / x.shape[1]) * gate * (1 + x * (1 - gate)),)
"""
KEPT = """\
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = None

    def forward(self, grad_output, x):
        gate = torch.sigmoid(x)
        found = (grad_output[:, None] / x.shape[1]) * gate * (1 + x * (1 - gate))
        self.kept = found if self.kept is None else self.kept.copy_(found)
        return (self.kept,)
"""
SCRIPT = SCRIPTS / "trained.py"
FIRST = "the first call of its kind, which shows to what gradients flow"


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    capture(folder, "--min-share", "0.0001", str(SCRIPT))
    return folder


def chosen(tasks: Path, **sources: str) -> list[Chosen]:
    files = {name: tasks / f"{name}_backward.py" for name in sources}
    return [
        Chosen(task=captured(find_task(str(files[name]))), source=source)
        for name, source in sources.items()
    ]


def own_program(task: Path) -> str:
    """The task's own module as a program."""
    return re.sub(r"^class Model\((.*)\):", r"class ModelNew(\1):", task.read_text(), flags=re.M)


def checked(winners: list[Chosen], *words: str):
    with started(Script(name=str(SCRIPT), words=words)) as run:
        return [tally for _, tally in check(run, winners)]


def test_a_winner_makes_the_backward_passes_it_was_judged_on(tasks):
    scaled, silu = checked(chosen(tasks, scaled=SCALED, silu_mean=SILU_MEAN))
    assert (scaled.differences, silu.differences) == ({}, {})
    assert scaled.made == scaled.agreed == 8
    assert scaled.fallbacks == {FIRST: 1, "it is called with other arguments than in the task": 3}
    assert silu.made == silu.agreed > 0


@pytest.mark.slow  # the passes themselves are compared above
def test_a_script_that_trains_ends_as_without_winners(tasks, tmp_path):
    winners = chosen(tasks, scaled=SCALED, silu_mean=SILU_MEAN)
    outcomes, fallbacks = [], []
    with started(Script(name=str(SCRIPT))) as run:
        for some in ([], winners):
            job = {"purpose": "apply", "winners": as_json(some), "checks": False}
            found = run({**job, "words": ["--odd", "--save", str(tmp_path / "saved")]})
            outcomes.append(torch.load(tmp_path / "saved"))
            fallbacks = [one["fallbacks"] for one in found["tallies"]]
            made = [one["made"] for one in found["tallies"]]
    torch.testing.assert_close(*outcomes)
    assert min(made) > 10
    scaled, silu = fallbacks
    assert scaled["no gradients are recorded, and it makes the backward pass"] == 12
    assert scaled["the module has hooks"] == 6
    assert silu["arguments or parameters were written to before the backward pass"] == 3


def test_gradients_to_other_tensors_are_found(tasks):
    """A module begins to add a parameter of the script's own."""
    (scaled,) = checked(chosen(tasks, scaled=SCALED), "--elsewhere")
    assert any("neither its arguments nor its parameters" in said for said in scaled.differences)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "source", "said"),
    [
        ("scaled", SCALED.replace("1 - y * y", "1 - y"), "output 0 is off by"),
        (
            "scaled",
            SCALED.replace("return inner * self.weight, ", "return "),
            "it gives 1 gradients, not 2",
        ),
        ("silu_mean", SILU_MEAN.replace("gate = ", "x.add_(1); gate = "), "an argument differs"),
        ("silu_mean", KEPT, "it writes to the outcome of an earlier call"),
        ("silu_mean", SILU_MEAN.replace("sigmoid", "sigmoyd"), "it raised AttributeError"),
    ],
)
def test_a_winner_that_gives_something_else_is_found(tasks, name, source, said):
    (found,) = checked(chosen(tasks, **{name: source}))
    assert said in next(iter(found.differences))


def test_parts_that_draw_random_numbers_keep_their_backward_pass(tasks):
    (noisy,) = checked(chosen(tasks, noisy=own_program(tasks / "noisy_backward.py")))
    assert noisy.made == 0
    assert "it draws random numbers, and its backward pass would draw others" in noisy.fallbacks


@pytest.mark.sample(1)
@pytest.mark.parametrize("option", ["--second", "--graph"])
def test_gradients_that_have_a_graph_of_their_own_are_the_originals(tasks, tmp_path, option):
    winners, words = chosen(tasks, scaled=SCALED, silu_mean=SILU_MEAN), [option, "--save"]
    outcomes, tallies = [], []
    with started(Script(name=str(SCRIPT))) as run:
        for some in ([], winners):
            job = {"purpose": "apply", "winners": as_json(some), "checks": False}
            tallies = run({**job, "words": [*words, str(tmp_path / "saved")]})["tallies"]
            outcomes.append(torch.load(tmp_path / "saved"))
    torch.testing.assert_close(*outcomes)
    for tally in tallies:
        assert tally["fallbacks"]["the backward pass has create_graph=True"] > 0
        assert tally["made"] > 0


SLOW = """
import time

import torch


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        time.sleep(0.02)
        return 2.0 * x

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(0.04)
        return 2.0 * gradient


def slow(x):
    return Slow.apply(x)


weight = torch.nn.Parameter(torch.ones(16))
for _ in range(10):
    slow(weight * torch.randn(8, 16)).sum().backward()
"""
DOUBLED = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, grad_output, x):
        return (2.0 * grad_output,)
"""


def applied(*words: str) -> tuple[int, dict]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = main(["apply", "--json", *words])
    return status, json.loads(printed.getvalue())


@pytest.mark.slow  # that winners make backward passes is quick above; gains in test_apply
def test_the_gain_of_a_script_that_trains_is_measured_and_compared(tmp_path):
    """Two thirds of the time are the backward pass; its winner makes it in ten minus one calls."""
    (script := tmp_path / "script.py").write_text(SLOW)
    (tmp_path / "doubled.py").write_text(DOUBLED)
    capture(tmp_path / "tasks", "--select", "slow", str(script))
    words = ["--winner", f"{tmp_path / 'tasks' / 'slow_backward.py'}={tmp_path / 'doubled.py'}"]
    status, found = applied(*words, "--pairs", "6", str(script))
    (timed,) = found["timed"]
    assert (status, found["no_gain"]) == (0, "")
    assert (timed["made"], timed["agreed"], timed["differences"]) == (6 * 9, 6 * 8, {})
    ratio, longest = found["gain"]["ratio"], 10 * 60 / (10 * 20 + 40)
    assert 1.3 < ratio["low"] <= ratio["value"] <= ratio["high"]
    assert ratio["value"] < 1.1 * longest


GATED = {
    "cpu": ("gated_backward_cpp.py", ["--steps", "6", "--rows", "64"]),
    # Steps of 2 ms, and seconds of them: to import and compile a kernel takes half a second.
    "cuda": ("gated_backward_triton.py", ["--steps", "3000", "--rows", "65536"]),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "device",
    [pytest.param("cpu", marks=pytest.mark.slow), pytest.param("cuda", marks=pytest.mark.gpu)],
)
def test_the_winner_of_a_run_makes_the_backward_pass_of_the_script(
    device, request, tmp_path, monkeypatch
):
    """On the CPU the run's judge is the scripted one, which believes the first line."""
    monkeypatch.chdir(tmp_path)
    if device == "cpu":
        request.getfixturevalue("judge")
    (program, words), script = GATED[device], str(SCRIPTS / "gated.py")
    words = [script, "--", "--device", device, *words]
    capture(tmp_path / "tasks", "--select", "gated", *words)
    task = tmp_path / "tasks" / "gated_backward.py"
    source = (SCRIPTS / program).read_text()
    Path("program.py").write_text(f"# speedup 1.5\n{source}")
    settings = {"initial": ["program.py"], "operators": ["seed"]}
    given = {"search": "seeds", "device": device, "budget": {"evaluations": 1}}
    run = evolve.optimize(task, name="whole", settings=settings, **given)
    assert (run.verified, run.is_gain) == (True, True)
    assert source in run.source
    winner = ["--winner", f"{task}=whole", "--store", "runs/evolve.db"]
    status, found = applied(*winner, "--pairs", "6", *words)
    (one,), (timed,) = found["winners"], found["timed"]
    assert (status, found["no_gain"]) == (0, "")
    steps = int(words[words.index("--steps") + 1])
    assert (one["made"], one["agreed"], one["differences"]) == (steps - 1, steps - 1, {})
    assert one["fallbacks"] == {FIRST: 1}
    assert (timed["made"], timed["differences"]) == (6 * (steps - 1), {})
    assert timed["agreed"] == 6 * min(8, steps - 1)
    ratio = found["gain"]["ratio"]
    assert 0 < ratio["low"] <= ratio["value"] <= ratio["high"]
    if device == "cuda":  # one kernel in place of five; the forward pass and the loss remain
        assert 1 < ratio["low"] <= ratio["value"] < 3
