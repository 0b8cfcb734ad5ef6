"""The mutation audit with the real service and the real oracle.

Invariants:
- a mutant counts as wrong only where the oracle proves it, on inputs that the service never has;
- what raises on every call is no mistake that a judge could miss, a crash is one;
- a kernel that is not correct itself is refused with the reason.
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evolve.cli.commands.judge.mutation import audit_text
from evolve.core.errors import UsageError
from evolve.core.evaluation import Status
from evolve.core.task import Case, Task
from evolve.evaluation import LocalEvaluator
from evolve.evaluation.mutation.audit import Fate, Judged, audit, oracle
from evolve.evaluation.mutation.mutant import Kind, Mutant, Mutants
from evolve.evaluation.mutation.tally import by_family, by_kind

ROOT = Path(__file__).parents[2]
TASK = Task(
    name="scaled",
    source="""
import torch
from torch import nn
ROWS = 4

class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)

def get_inputs():
    return [torch.randn(ROWS, 96) * 4]

def get_init_inputs():
    return []
""",
    cases=(Case(name="main"), Case(name="tall", constants={"ROWS": 9}, timed=False)),
)


def candidate(outcome: str, before: str = "") -> str:
    return f"""
import os
import torch
from torch import nn

class ModelNew(nn.Module):
    def forward(self, x):
        {before or "pass"}
        return {outcome}
"""


RIGHT = candidate("torch.softmax(x, -1)")
SOURCES = {
    "no maximum": candidate("x.exp() / x.exp().sum(-1, keepdim=True)"),
    "half": candidate("torch.softmax(x.half(), -1).float()"),
    "same": candidate("torch.softmax(x + 0.0, -1)"),
    "raises": candidate("missing(x)"),
    "no syntax": "def f(:\n",
    "crash": candidate("torch.softmax(x, -1)", before="os.abort() if len(x) > 4 else None"),
    "outside": candidate("torch.softmax(x, -1) * (1 + __file__.endswith('mutant.py'))"),
    "shape": candidate("torch.softmax(x, -1)[:3]"),
}


def fates(sources: dict[str, str], folder: Path, kernel: str = RIGHT, seeds: int = 12):
    mutants = [Mutant(Kind.ARITHMETIC, 1, "", name, text) for name, text in sources.items()]

    async def run():
        evaluator = await LocalEvaluator.start(cache=folder)
        try:
            async with oracle(TASK, folder, "cpu", seeds) as prover:
                found = await audit(evaluator, prover, TASK, kernel, mutants, lambda _: None)
                return found, prover.places
        finally:
            await evaluator.close()

    return asyncio.run(run())


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def audited(cache):
    found, places = fates(SOURCES, cache)
    return {one.mutant.after: one for one in found}, places


@pytest.mark.slow
def test_every_mutant_gets_the_fate_that_it_deserves(audited):
    found, _ = audited
    assert {name: one.fate for name, one in found.items()} == {
        "no maximum": Fate.KILLED,
        "half": Fate.KILLED,
        "same": Fate.UNPROVEN,
        "raises": Fate.INVALID,
        "no syntax": Fate.INVALID,
        "crash": Fate.KILLED,
        "outside": Fate.SURVIVED,
        "shape": Fate.KILLED,
    }


@pytest.mark.slow
def test_what_the_oracle_has_examined_leaves_no_build_behind(audited, cache):
    assert [found.name for found in cache.iterdir() if found.name != "inductor"] == []


@pytest.mark.slow
def test_the_kill_matrix_names_the_inputs_that_tell_a_mutant_from_the_kernel(audited):
    found, places = audited
    assert {"main/task", "tall/task", "main/scaled_up"} <= set(found["half"].kills) <= set(places)
    assert set(found["no maximum"].kills) < set(places)
    assert {place for place in found["no maximum"].kills if "scaled_up" in place}
    assert found["crash"].kills == ("tall/task",)


def test_a_crash_and_a_wrong_shape_are_proofs_without_an_error(audited):
    found, _ = audited
    assert found["crash"].proof["how"].startswith("died")
    assert found["crash"].proof["error"] is None
    assert found["shape"].proof["how"] == "wrong_shape"
    assert found["half"].proof["error"] > 4


def test_rates_count_what_is_proven_only(audited):
    found, places = audited
    row = by_kind(list(found.values()))[-1]
    assert (row.tried, row.invalid, row.unproven, row.proven, row.killed) == (8, 2, 1, 5, 4)
    assert row.rate == 0.8
    kills = {row.name: row.kills for row in by_family(found.values(), places)}
    assert kills["scaled_up"] == 4


def test_what_only_the_oracle_finds_wrong_survives_with_its_proof(audited):
    survivor = audited[0]["outside"]
    assert survivor.fate is Fate.SURVIVED
    assert survivor.status is Status.CORRECT
    assert survivor.proof["error"] > 4


@pytest.mark.slow
def test_a_wrong_kernel_is_not_audited(tmp_path):
    with pytest.raises(UsageError, match=r"needs a correct kernel.*wrong_value"):
        fates({"same": RIGHT}, tmp_path, kernel=SOURCES["no maximum"])


def test_survivors_are_printed_with_their_lines_and_rates_with_their_counts(audited):
    found, places = audited
    mutant = Mutant(Kind.BOUNDARY, 7, "i < n", "i <= n", "")
    proof = {"case": "tall", "family": "ties", "number": 3, "how": "wrong_value", "error": 12.0}
    survivor = Judged(mutant, Fate.SURVIVED, Status.CORRECT, "", proof)
    every = [*found.values(), survivor]
    text = "\n".join(audit_text(Mutants(tuple(one.mutant for one in every), 2), every, places))
    assert "9 mutants (2 duplicates left out), 9 tried" in text
    assert ["all", "9", "2", "1", "6", "4", "66.7%"] in [line.split() for line in text.splitlines()]
    assert "line 7, boundary; proven wrong in case tall, inputs of family ties" in text
    assert "  - i < n\n  + i <= n" in text


def evolve(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "evolve.cli.main", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_command_counts_what_it_tried_and_what_was_killed(tmp_path):
    sums = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.sum(-1)

def get_inputs():
    return [torch.randn(3, 40)]

def get_init_inputs():
    return []
"""
    (tmp_path / "sums.py").write_text(sums)
    kernel = str(Path(__file__).with_name("kernels") / "row_sum-rows_triton.py")
    done = evolve(tmp_path, "eval", kernel, "--task", "./sums.py", "--audit", "4", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert len(result["mutants"]) == result["kinds"]["all"]["tried"] == 4
    assert result["kinds"]["all"]["killed"] == result["kinds"]["all"]["wrong"] > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--audit", "0"), "1 or more"),
        (("--audit", "--python", sys.executable), "leave --python out"),
        (("--audit",), "no kernel to change"),
    ],
)
def test_an_audit_that_cannot_be_is_refused_in_words(words, complaint, tmp_path):
    (tmp_path / "kernel.py").write_text(RIGHT)
    done = evolve(tmp_path, "eval", "kernel.py", "--task", "row_sum", *words)
    assert done.returncode == 2
    assert complaint in done.stderr
