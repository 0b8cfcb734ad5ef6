"""Winners that go wrong after their first call are found before any gain is given.

Invariants:
1. The checking pass keeps one model, as the timed runs do, and looks at earlier outcomes again.
2. Agreement is by blocks and by the type: no scaled outcome, no outlier hides the rest.
3. A winner that raises, or gives something else, in a timed run is named.
4. Comparing a timed call changes nothing for the script: neither state nor random numbers.
5. Processes with a winner have no variables that hold secrets.
6. Every timed run compares calls of every winner, and without any compared there is no gain.
7. Loading a winner and its first call are the time to build it, which is no part of the gain.
"""

import pytest
import torch

from evolve.capture.apply import Chosen, as_json, check, measure
from evolve.capture.patching.agreement import disagreement
from evolve.capture.processes import Script, started
from evolve.capture.task_file import captured
from evolve.cli.main import main
from evolve.core.errors import USAGE, UsageError
from evolve.tasks import find_task
from tests.capture.scripts_running import capture

SCRIPT = """\
import os

import torch
from torch import nn


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(16))

    def forward(self, x):
        return x * self.weight


assert "OPENAI_API_KEY" not in os.environ, "a secret"
torch.manual_seed(0)
module, x = Twice().eval(), torch.randn(8, 16)
with torch.no_grad():
    for step in range(4):
        module(x + step)
"""
WRITES = SCRIPT + "        module.weight.data.mul_(2.0)\n"
NOISY = SCRIPT.replace("return x * self.weight", "return x * self.weight + torch.rand(8, 16)")
SAME = SCRIPT.replace("x + step", "x")
SLOW = SCRIPT.replace("return x", "import time; time.sleep(0.5); return x")
ONCE = SCRIPT.replace("range(4)", "range(1)")

WINNER = """\
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(16))
        self.kept, self.calls = None, 0

    def forward(self, x):
        {}
"""
FOR_EVER = "self.kept = x * self.weight if self.kept is None else self.kept; return self.kept"
BUFFER = (
    "self.kept = torch.empty_like(x) if self.kept is None else self.kept; "
    "return torch.mul(x, self.weight, out=self.kept)"
)
PACKED = "self.kept = self.weight + 0 if self.kept is None else self.kept; return x * self.kept"
COUNTING = """
    def counted(self, x, folder):
        import os, sys

        frame, names = sys._getframe(), []
        while frame:
            names.append(frame.f_code.co_qualname)
            frame = frame.f_back
        right = x * self.weight
        if any("Checker" in name for name in names):
            return right
        own = f"{{folder}}/{{os.getpid()}}"
        with open(own, "a"):
            return right if len(os.listdir(folder)) == {right} + 1 else right * 2.0
"""
READS = "return x * self.weight"
DRAWS = "return x * self.weight + torch.rand(8, 16)"


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("twice")
    (folder / "script.py").write_text(SCRIPT)
    for name, text in (
        ("writes", WRITES),
        ("same", SAME),
        ("noisy", NOISY),
        ("slow", SLOW),
        ("once", ONCE),
    ):
        (folder / f"{name}.py").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OPENAI_API_KEY", raising=False)
        capture(folder, "--select", "Twice", str(folder / "script.py"))
    return folder / "twice.py"


def checked(task, script, *bodies):
    """The tallies of winners with these bodies in a script beside the task."""
    found = []
    with started(Script(name=str(task.parent / f"{script}.py"))) as run:
        for body in bodies:
            one = Chosen(task=captured(find_task(str(task))), source=WINNER.format(body))
            ((_, tally),) = check(run, [one])
            found.append(tally)
    return found


def test_what_a_winner_keeps_from_call_to_call_is_found(task):
    for_ever, buffer, packed = checked(task, "script", FOR_EVER, BUFFER, PACKED)
    assert (for_ever.made, for_ever.agreed) == (4, 1)
    assert all("made anew it agrees" in said for said in for_ever.differences)
    assert (buffer.made, buffer.agreed) == (4, 1)
    assert all("an earlier call" in said for said in buffer.differences)
    assert (packed.agreed, packed.differences) == (4, {})


def test_memory_given_twice_is_found_also_if_the_values_are_the_same(task):
    for_ever, reads = checked(task, "same", FOR_EVER, READS)
    assert (for_ever.made, for_ever.agreed) == (4, 1)
    assert (reads.agreed, reads.differences) == (4, {})


def test_a_winner_draws_the_same_random_numbers_as_the_original(task):
    draws, reads = checked(task, "noisy", DRAWS, READS)
    assert (draws.agreed, draws.differences) == (4, {})
    assert reads.agreed == 0


@pytest.mark.slow  # what a winner keeps is in a test above
def test_packed_parameters_are_found_stale_after_a_write_through_data(task):
    packed, reads = checked(task, "writes", PACKED, READS)
    assert (packed.made, packed.agreed) == (4, 1)
    assert all("through `.data`" in said for said in packed.differences)
    assert (reads.agreed, reads.differences) == (4, {})


def test_a_winner_that_differs_gives_no_gain(task, tmp_path, capsys):
    (wrong := tmp_path / "wrong.py").write_text(WINNER.format(BUFFER))
    assert main(["apply", "--winner", f"{task}={wrong}", str(task.parent / "script.py")]) == 1
    said = capsys.readouterr().out
    assert "3 DIFFER" in said
    assert "end to end" not in said


@pytest.mark.slow  # one that differs in a timed run is in the next test
def test_a_winner_that_raises_in_a_timed_run_is_named(task, tmp_path, capsys):
    """It counts calls: building it is one more, which only timed runs have."""
    body = (
        "import sys; sys.twice = getattr(sys, 'twice', 0) + 1; "
        "assert sys.twice < 5, 'too many'; return x * self.weight"
    )
    (wrong := tmp_path / "wrong.py").write_text(WINNER.format(body))
    assert main(["apply", "--winner", f"{task}={wrong}", str(task.parent / "script.py")]) == USAGE
    said = capsys.readouterr().err
    assert "the winner of twice raised AssertionError: too many" in said
    assert "Fix the script" not in said


def test_a_winner_that_differs_in_timed_runs_alone_gives_no_gain(task, tmp_path, capsys):
    """Its fifth call is wrong: the checking pass makes four, a timed run builds it by one more."""
    body = (
        "import sys; sys.twice = getattr(sys, 'twice', 0) + 1; "
        "return x * self.weight * (2.0 if sys.twice > 4 else 1.0)"
    )
    (wrong := tmp_path / "wrong.py").write_text(WINNER.format(body))
    assert main(["apply", "--winner", f"{task}={wrong}", str(task.parent / "script.py")]) == 1
    said = capsys.readouterr().out
    assert "4 agree with the original" in said
    assert "twice: of the calls compared in timed runs 1 DIFFER; the first: output 0 is off" in said
    assert "end to end" not in said


@pytest.mark.slow  # three gains; test_every_timed_run_compares_calls is quicker
def test_a_winner_that_is_right_in_one_timed_run_alone_gives_no_gain(task, tmp_path, capsys):
    """The script makes one call a run; the winner counts runs, and is right in each but one."""
    (script := tmp_path / "once.py").write_text(SCRIPT.replace("range(4)", "range(1)"))
    for right in (0, 3, 5):  # of six
        (runs := tmp_path / f"runs{right}").mkdir()
        body = f"return self.counted(x, {str(runs)!r})"
        wrong = WINNER.format(body) + COUNTING.format(right=right)
        (program := tmp_path / "wrong.py").write_text(wrong)
        words = ["--winner", f"{task}={program}", "--pairs", "6", str(script)]
        assert main(["apply", *words]) == 1
        said = capsys.readouterr().out
        assert "1 agree with the original" in said
        assert "twice: of the calls compared in timed runs 1 DIFFER" in said


@pytest.mark.parametrize(("script", "calls"), [("slow", 4), ("once", 1)])
def test_a_winner_is_built_by_loading_it_and_a_first_call(task, script, calls):
    """Loading takes 1 s, a call 0.2 s; of the slow script all four calls are compared, for 2 s."""
    source = "__import__('time').sleep(1)\n" + WINNER.format(
        "import time; time.sleep(0.2); return x * self.weight"
    )
    chosen = [Chosen(task=captured(find_task(str(task))), source=source)]
    job = {"purpose": "apply", "winners": as_json(chosen, [[*range(calls)]]), "checks": False}
    with started(Script(name=str(task.parent / f"{script}.py"))) as run:
        found = run(job)
    assert found["tallies"][0]["agreed"] == calls
    assert 1.2 <= found["built_s"] < 2.2
    assert 0.2 * calls <= found["total_s"] < 0.2 * calls + 0.8


@pytest.mark.parametrize("calls", [1, 3, 8, 1000])
def test_every_timed_run_compares_calls_that_are_drawn_anew(task, calls):
    compared: list[list[int]] = []
    chosen = [Chosen(task=captured(find_task(str(task))), source="")]

    def run(job):
        if job["winners"]:
            compared.append(job["winners"][0]["compared"])
        tally = {"made": calls, "agreed": len(compared[-1])} if job["winners"] else {}
        return {"total_s": 1.0, "built_s": 0.0, "tallies": [tally] * len(job["winners"])}

    measure(run, chosen, 6, [calls])
    assert [len({*one}) for one in compared] == [min(8, calls)] * 6
    assert all({*one} <= {*range(calls)} for one in compared)
    assert calls < 1000 or len({tuple(one) for one in compared}) == 6


def test_without_a_compared_call_there_is_no_gain(task):
    """As where all chosen calls are recorded in graphs."""
    chosen = [Chosen(task=captured(find_task(str(task))), source="")]

    def run(job):
        return {"total_s": 1.0, "built_s": 0.0, "tallies": [{"made": 4}] * len(job["winners"])}

    timed = measure(run, chosen, 6, [4])
    assert timed.gain is None
    assert "no call of twice could be compared" in timed.reason


KEEPING = """\
import sys

import torch


class Keeping(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(16))

    def forward(self, x):
        self.total += x.sum(0)
        x.add_(torch.rand(16))
        return self.total


torch.manual_seed(0)
module, outcomes = Keeping().eval(), []
with torch.no_grad():
    for step in range(4):
        x = torch.randn(8, 16)
        outcomes += [module(x).clone(), x]
torch.save(outcomes, sys.argv[1])
"""


def test_comparing_timed_calls_changes_neither_state_nor_random_numbers(tmp_path):
    (script := tmp_path / "script.py").write_text(KEEPING)
    saved = [tmp_path / "plain", tmp_path / "patched"]
    capture(tmp_path, "--select", "Keeping", str(script), "--", str(saved[0]))
    task = tmp_path / "keeping.py"
    chosen = [
        Chosen(
            task=captured(find_task(str(task))),
            source=task.read_text().replace("class Model(Keeping)", "class ModelNew(Keeping)"),
        )
    ]
    with started(Script(name=str(script), words=(str(saved[1]),))) as run:
        winners = as_json(chosen, [range(4)])
        found = run({"purpose": "apply", "winners": winners, "checks": False})
    (tally,) = found["tallies"]
    assert (tally["made"], tally["agreed"], tally["differences"]) == (4, 4, {})
    torch.testing.assert_close(torch.load(saved[1]), torch.load(saved[0]), rtol=0, atol=0)


def test_a_script_with_a_winner_has_no_secrets_in_its_environment(task, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "0123456789abcdef")
    (wrong := tmp_path / "wrong.py").write_text(WINNER.format(FOR_EVER))
    script = task.parent / "script.py"
    assert main(["apply", "--winner", f"{task}={wrong}", str(script)]) == 1
    with started(Script(name=str(script))) as run, pytest.raises(UsageError, match="a secret"):
        run({"purpose": "time"})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_outcomes_agree_by_blocks_and_by_their_type(dtype):
    torch.manual_seed(0)
    truth = torch.randn(64, 512, dtype=torch.float64)
    own = truth.to(dtype)
    rounded = (truth * (1 + torch.finfo(dtype).eps / 4)).to(dtype)
    assert not disagreement(rounded, own, truth)
    assert disagreement((truth * 0.85).to(dtype), own, truth)
    assert disagreement((truth * 0.85).to(dtype), own, None)
    tail = own.clone()
    tail[-1, -256:] *= 0.85
    assert disagreement(tail, own, truth)
    spiked = truth.clone()
    spiked[0, 0] = 1e4
    zeros = torch.zeros_like(own)
    zeros[0, 0] = 1e4
    assert disagreement(zeros, spiked.to(dtype), spiked)
    holed = own.clone()
    holed[3, 3] = torch.nan
    assert disagreement(own, holed, truth)
    assert disagreement(holed.nan_to_num(), holed, truth)
    assert not disagreement(holed, holed, truth)
    assert disagreement(own, torch.zeros_like(own), torch.zeros_like(truth))
