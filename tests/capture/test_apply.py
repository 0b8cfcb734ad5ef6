"""Winners put back into the script that their tasks are from.

Invariants:
1. A winner makes exactly the calls that it was judged on; all others are the original's, by reason.
2. It sees the module's present weights, and its writes are the module's.
3. A winner that gives something else is found before any time is taken.
4. The gain is that of the whole script, as a ratio with its interval.
5. Only a verified winner of a run over this very task is loaded, or a file that the user names.
"""

import contextlib
import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import evolve
from evolve.app.library.winner import winner_of
from evolve.capture.apply import Chosen, as_json, check
from evolve.capture.processes import Script, started
from evolve.capture.task_file import Captured, captured
from evolve.cli.main import main
from evolve.core.errors import USAGE
from evolve.tasks import find_task
from tests.capture.scripts_running import SCRIPTS, capture

SCALE = """\
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(16))
        self.kept = None

    def forward(self, x, factor):
        self.kept = self.weight * factor if self.kept is None else self.kept  # packs them once
        return x * self.kept
"""


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """Tasks of all test scripts, by the name of the script."""
    folders = {}
    for name, words in (
        ("guarded", ["--judged-only"]),
        ("transformer", ["--steps", "2", "--tokens", "64"]),
    ):
        folders[name] = tmp_path_factory.mktemp(name)
        script = str(SCRIPTS / f"{name}.py")
        capture(folders[name], "--min-share", "0.0001", script, "--", *words)
    return folders


def described(file: Path) -> Captured:
    return captured(find_task(str(file)))


def own_program(task: Path) -> str:
    """The task's own module as a program."""
    return re.sub(r"^class Model\((.*)\):", r"class ModelNew(\1):", task.read_text(), flags=re.M)


@pytest.fixture(scope="module")
def guarded(tasks, tmp_path_factory):
    """Findings of the check of a winner, and outcomes of the script without and with it."""
    chosen = [Chosen(task=described(tasks["guarded"] / "scale.py"), source=SCALE)]
    outcomes = []
    with started(Script(name=str(SCRIPTS / "guarded.py"))) as run:
        ((_, found),) = check(run, chosen)
        for winners in ([], chosen):
            file = tmp_path_factory.mktemp("outcomes") / "saved"
            job = {"purpose": "apply", "winners": as_json(winners), "checks": False}
            run({**job, "words": ["--save", str(file)]})
            outcomes.append(torch.load(file))
    return found, outcomes


def test_a_winner_makes_the_calls_it_was_judged_on_and_no_others(guarded):
    found, _ = guarded
    assert (found.made, found.agreed, found.differences) == (3, 3, {})
    reasons = {reason.partition(":")[0]: number for reason, number in found.fallbacks.items()}
    assert reasons == {
        "shapes, dtypes, strides or plain values that it was not judged on": 3,
        "it is called with other arguments than in the task": 1,
        "a tensor does not begin at a multiple of 64 bytes": 1,
        "autocast is on, and it computes in the types that it is given": 1,
        "the module is in training mode": 1,
        "the module has hooks": 1,
        "its parameters are not float32": 1,
        "gradients are recorded, and it has none": 1,
    }


def test_a_script_gives_the_same_with_its_winners(guarded):
    """Also after its weights were written to, exchanged, and moved to another type and back."""
    _, (plain, patched) = guarded
    torch.testing.assert_close(patched, plain)


def test_writes_to_arguments_and_buffers_are_compared_too(tmp_path):
    script = SCRIPTS / "various.py"
    names = ["InPlace", "Cached", "Model", "Each"]
    select = [word for name in names for word in ("--select", name)]
    capture(tmp_path, *select, str(script))
    files = {name: tmp_path / f"{file}.py" for name, file in zip(
        names, ("in_place", "cached", "model", "each"), strict=True)}  # fmt: skip
    sources = {name: own_program(path) for name, path in files.items()}
    sources["InPlace"] = sources["InPlace"].replace("x.add_(1.0)", "x = x + 1.0")
    sources["Cached"] = sources["Cached"].replace(
        "self.cache[:, start : start + x.shape[1]] = ",
        "self.cache = self.cache.clone(); self.cache[:, start : start + x.shape[1]] = 2 * ",
    )
    chosen = [
        Chosen(task=described(files[name]), source=source) for name, source in sources.items()
    ]
    with started(Script(name=str(script))) as run:
        in_place, cached, model, each = (tally for _, tally in check(run, chosen))
    assert (in_place.made, in_place.agreed) == (3, 0)
    assert "after the call, an argument differs" in next(iter(in_place.differences))
    assert (cached.made, cached.agreed) == (3, 0)
    assert (model.made, model.agreed, model.fallbacks) == (3, 3, {})
    assert (each.made, each.agreed, each.fallbacks) == (3, 3, {})


def applied(*words: str) -> tuple[int, dict]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = main(["apply", "--json", *words])
    return status, json.loads(printed.getvalue())


BOTH_WAYS = """\
import torch
from torch.nn.functional import softmax

x = torch.rand(4, 8)
with torch.no_grad():
    softmax(x, dim=-1)
    softmax(x, -1)
    softmax(x, -1)
"""


@pytest.mark.slow
def test_every_task_of_one_function_has_its_winner(tmp_path):
    (script := tmp_path / "script.py").write_text(BOTH_WAYS)
    capture(tmp_path, "--select", "softmax", str(script))
    words = []
    for name in ("softmax", "softmax_2"):
        (program := tmp_path / f"{name}_new.py").write_text(own_program(tmp_path / f"{name}.py"))
        words += ["--winner", f"{tmp_path / name}.py={program}"]
    status, found = applied(*words, "--pairs", "6", str(script))
    assert (status, sorted(one["made"] for one in found["winners"])) == (0, [1, 2])
    assert [one["fallbacks"] for one in found["winners"]] == [{}, {}]


DRAWING = """\
import random

import numpy
import torch


class Drawing(torch.nn.Module):
    def forward(self, x):
        return x * random.random() + float(numpy.random.rand()) + torch.rand(8)


with torch.no_grad():
    Drawing()(torch.rand(4, 8))
"""


@pytest.mark.slow  # torch's numbers are in test_apply_faults
def test_original_and_winner_draw_the_same_numbers_while_they_are_compared(tmp_path):
    (script := tmp_path / "script.py").write_text(DRAWING)
    capture(tmp_path, "--select", "Drawing", str(script))
    task = described(tmp_path / "drawing.py")
    with started(Script(name=str(script))) as run:
        source = own_program(tmp_path / "drawing.py")
        ((_, found),) = check(run, [Chosen(task=task, source=source)])
    assert (found.made, found.agreed, found.differences) == (1, 1, {})


CHANGING = """\
import torch
from torch import nn


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.extra = None

    def forward(self, x):
        y = self.linear(x) * 2
        return y if self.extra is None else y + self.extra


model, x = Twice().eval(), torch.rand(4, 8)
with torch.no_grad():
    model(x)
    hook = model.linear.register_forward_hook(lambda *_: None)
    model(x)
    hook.remove()
    model(x)
    model.extra = nn.Parameter(torch.ones(8))
    model(x)
"""


def test_parameters_and_hooks_that_a_script_adds_later_are_seen(tmp_path):
    (script := tmp_path / "script.py").write_text(CHANGING)
    capture(tmp_path, "--select", "Twice", str(script))
    task = described(tmp_path / "twice.py")
    with started(Script(name=str(script))) as run:
        source = own_program(tmp_path / "twice.py")
        ((_, found),) = check(run, [Chosen(task=task, source=source)])
    assert (found.made, found.agreed, found.differences) == (2, 2, {})
    assert found.fallbacks == {
        "the module has hooks": 1,
        "the winner has other parameters than the module": 1,
    }


@pytest.mark.slow  # test_apply_backward has a constructed gain
@pytest.mark.quiet
def test_the_gain_of_the_whole_script_has_an_interval(tmp_path):
    """The script spends most of its time on thirty times the same, which its winner does once."""
    script = str(SCRIPTS / "transformer.py")
    own = ["--", "--steps", "3", "--tokens", "64", "--gelus", "30"]
    capture(tmp_path, "--select", "NewGELU", script, *own)
    winner = f"{tmp_path / 'new_gelu.py'}={SCRIPTS / 'new_gelu_torch.py'}"
    status, found = applied("--winner", winner, "--pairs", "6", script, *own)
    (gelu,) = found["winners"]
    assert (status, gelu["made"], gelu["agreed"], gelu["fallbacks"]) == (0, 12, 12, {})
    ratio, gain = found["gain"]["ratio"], found["gain"]
    assert 1.5 < ratio["low"] <= ratio["value"] <= ratio["high"]
    (compared,) = found["timed"]
    assert (compared["made"], compared["agreed"], compared["differences"]) == (6 * 12, 6 * 8, {})
    medians = gain["original_ms"]["value"] / gain["patched_ms"]["value"]
    assert ratio["value"] == pytest.approx(medians, rel=0.5)


@pytest.mark.gpu
def test_on_a_gpu_a_winner_is_put_back_into_a_captured_script(tmp_path):
    script = str(SCRIPTS / "transformer.py")
    own = ["--", "--device", "cuda", "--steps", "10"]
    text = capture(tmp_path, "--min-share", "0.01", script, *own)
    shares = [float(share) for share in re.findall(r" ([\d.]+) %  ", text)]
    assert shares[0] == max(shares) <= 100
    winner = f"{tmp_path / 'new_gelu.py'}={SCRIPTS / 'new_gelu_torch.py'}"
    status, found = applied("--winner", winner, "--pairs", "6", script, *own)
    assert "'device': 'cuda'" in (tmp_path / "new_gelu.py").read_text()
    (gelu,) = found["winners"]
    assert (status, gelu["agreed"], gelu["fallbacks"]) == (0, 10 * 4, {})
    assert found["gain"]["ratio"]["value"] > 0.5  # steps of a few launches, and guards at each call


def test_a_winner_of_another_architecture_or_with_a_fault_ends_no_script(tasks):
    task = described(tasks["transformer"] / "new_gelu.py")
    source = (SCRIPTS / "new_gelu_torch.py").read_text()
    script = Script(name=str(SCRIPTS / "transformer.py"), words=("--steps", "1", "--tokens", "64"))
    with started(script) as run:
        ((_, other),) = check(run, [Chosen(task=task, source=source, architecture="z80")])
        ((_, unmade),) = check(run, [Chosen(task=task, source="import nowhere")])
        ((_, raising),) = check(run, [Chosen(task=task, source=source.replace("gelu", "gelo"))])
    assert other.made == unmade.made == 0
    (reason,) = other.fallbacks
    assert reason.startswith("it was judged on z80, and this is ")
    (reason,) = unmade.fallbacks
    assert reason.startswith("the winner cannot be made: ModuleNotFoundError")
    (reason,) = raising.differences
    assert reason.startswith("it raised AttributeError")


@pytest.mark.slow  # test_apply_faults has it in a smaller script
def test_a_winner_that_differs_is_not_timed(tasks, tmp_path, capsys):
    (tmp_path / "wrong.py").write_text(
        (SCRIPTS / "new_gelu_torch.py").read_text().replace('approximate="tanh"', "")
    )
    winner = f"{tasks['transformer'] / 'new_gelu.py'}={tmp_path / 'wrong.py'}"
    script = str(SCRIPTS / "transformer.py")
    words = ["--winner", winner, script, "--", "--steps", "1", "--tokens", "64"]
    assert main(["apply", *words]) == 1
    said = capsys.readouterr()
    assert re.search(r"4 DIFFER; the first: output 0 is off by \S+ where \S+ is allowed", said.out)
    assert "not timed" in said.out
    assert "no run has verified it" in said.err


class Enough(Exception):
    pass


def stop_before_verification(event):
    if isinstance(event, evolve.Judged):
        raise Enough


@pytest.mark.slow
def test_a_run_gives_its_verified_winner_for_its_own_task(judge, tasks, capsys, monkeypatch):
    folder = tasks["transformer"]
    text = (SCRIPTS / "new_gelu_torch.py").read_text()
    Path("gelu.py").write_text(f"# speedup 1.5\n{text}")
    words = {
        "search": "seeds",
        "device": "cpu",
        "budget": {"evaluations": 1},
        "settings": {"initial": ["gelu.py"]},
    }
    evolve.optimize(folder / "new_gelu.py", name="whole", **words)
    with contextlib.suppress(Enough):
        evolve.optimize(
            folder / "new_gelu.py", name="half", **words, on_event=stop_before_verification
        )
    script = str(SCRIPTS / "transformer.py")

    def apply(winner: str) -> int:
        words = ["--winner", winner, "--store", "runs/evolve.db", script]
        return main(["apply", "--pairs", "6", *words, "--", "--steps", "1", "--tokens", "64"])

    assert apply(f"{folder / 'new_gelu.py'}=whole") == 0
    said = capsys.readouterr()
    assert "4 of 4 calls made by the winner" in said.out
    assert "no run has verified it" not in said.err
    assert "the winner of run whole runs in your processes" in said.err
    shutil.copytree(folder, "changed")
    with Path("changed/new_gelu.cases.yaml").open("a") as cases:
        cases.write('- {"name": "other", "timed": false}\n')
    for winner, reason in (
        (f"{folder / 'new_gelu.py'}=half", "is not verified"),
        (f"{folder / 'rmsnorm.py'}=whole", "did not search"),
        ("changed/new_gelu.py=whole", "searched new_gelu with other cases; search the task"),
        (f"{folder / 'new_gelu.py'}=nowhere", "nowhere"),
    ):
        assert apply(winner) == USAGE
        assert reason in capsys.readouterr().err

    def of_an_unknown_architecture(store, run):
        found = winner_of(store, run)
        evaluation = replace(found.evaluation, device_class="H200", environment={})
        return replace(found, evaluation=evaluation)

    monkeypatch.setattr("evolve.app.library.winner.winner_of", of_an_unknown_architecture)
    assert apply(f"{folder / 'new_gelu.py'}=whole") == USAGE
    said = capsys.readouterr().err
    assert "H200 does not say which architecture" in said
    assert "name the file" in said
    assert "--as" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--winner", "kernel.py"], "write TASK=RUN or TASK=FILE"),
        (["--winner", "softmax=kernel.py"], "task softmax was not captured"),
        (["--winner", "nowhere.py=kernel.py"], "there is no file"),
        (["--winner", "a.py=b.py", "--pairs", "5"], "take 6 or more"),
        ([], "--winner"),
    ],
)
def test_words_that_name_no_winner_are_refused_at_once(words, said, capsys):
    assert main(["apply", str(SCRIPTS / "transformer.py"), *words]) == USAGE
    assert said in capsys.readouterr().err
