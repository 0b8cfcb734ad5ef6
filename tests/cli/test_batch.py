"""A search whose judge is elsewhere: `run --create`, then `batch`, the worker, `tell`, and again.

Invariants:
1. The loop makes the search better, as if it had judged at once; nothing is judged twice.
2. What a file asks for and nobody has answered is asked for again.
3. Bad input is one line with status 2, and changes nothing.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evolve.core.compiled import VARIANTS
from evolve.core.evaluation import Fidelity
from evolve.core.protocols import EvaluationRequest
from evolve.core.reference import CaseCost, OperationCost, ReferenceCost
from evolve.core.task import ONLY_CASE, Task
from evolve.store import Store
from evolve.store.champion import champion
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator, synthetic_task
from evolve.worker.service.batch_files import BatchRequest, read_answers, read_requests
from evolve.worker.service.shards import Shards
from tests.cli.conftest import ROOT, Evolve, evolve_in

LIMIT = "termination.evaluations=5"


@pytest.fixture(scope="module")
def new(tmp_path_factory) -> Path:
    """A folder with the run `far` of the synthetic task, of which nothing is judged."""
    folder, task = tmp_path_factory.mktemp("new"), synthetic_task()
    (folder / "synthetic.py").write_text(task.source)
    (folder / "seeds").mkdir()
    (folder / "seeds" / "seed.py").write_text(task.seeds[0])
    done = evolve_in(folder)("run", "task=./synthetic.py", "name=far", LIMIT, "--create")
    assert done.returncode == 0, done.stderr
    assert "evolve batch far" in done.stdout
    return folder


@pytest.fixture
def created(new: Path, tmp_path: Path) -> Path:
    """A copy of it where `evolve` runs."""
    return Path(shutil.copytree(new, tmp_path, dirs_exist_ok=True))


def judge(folder: Path, out: str = "out", keep: int | None = None) -> list[BatchRequest]:
    """Answer the requests in `in.jsonl`, or the first few, with the synthetic judge."""
    requests, problems = read_requests(folder / "in.jsonl")
    assert problems == []
    shards = Shards(folder / out)
    for request in requests[:keep]:
        about = {"id": request.id, "subject": request.subject, "final": True, "seconds": 1.0}
        shards.write({**about, "result": answer(request)})
    shards.close()
    return requests


def answer(request: BatchRequest):
    if request.method == "audit":
        return []
    if request.method == "reference":
        return COST.to_json()
    return SyntheticEvaluator().judge(
        EvaluationRequest(
            task=Task.from_json(request.params["task"]),
            instance="",
            source=request.params["source"],
            fidelity=Fidelity(request.params["fidelity"]),
            opponents=request.params["opponents"],
        )
    ).to_json()  # fmt: skip


COST = ReferenceCost(
    device={"device_class": "synthetic", "device": "Synthetic 9000"},
    cases=(
        CaseCost(
            name=ONLY_CASE, time_ms=2.0, moved_bytes=80_000_000, flops=0, bytes_per_s=4e11,
            flops_per_s=None, bound="memory",
            operations=(OperationCost(name="relu", time_ms=2.0, moved_bytes=80_000_000),),
        ),
    ),
)  # fmt: skip


FIXTURE = json.loads(
    (ROOT / "tests/operators/inductor_fixtures/softmax_online.json").read_text(encoding="utf-8")
)


def compile_elsewhere(folder: Path) -> list[str]:
    """Answer what a first file asks about the task alone, as a GPU's judge would; the variants."""
    requests, problems = read_requests(folder / "in.jsonl")
    assert problems == []
    shards = Shards(folder / "out")
    for request in requests:
        result: object = []
        if request.method == "compiled":
            made = [
                {"compiled": {**FIXTURE["compiled"], "variant": name}}
                if name in ("default", "looped")
                else {"reason": "it is not to be had"}
                for name in request.params["variants"]
            ]
            result = dict(zip(request.params["variants"], made, strict=True))
        about = {"id": request.id, "subject": request.subject, "final": True, "seconds": 1.0}
        shards.write({**about, "result": result})
    shards.close()
    (compiled,) = [request for request in requests if request.method == "compiled"]
    return list(compiled.params["variants"])


@pytest.mark.slow
def test_a_gpu_that_is_elsewhere_compiles_what_a_run_without_seeds_starts_from(
    evolve: Evolve, tmp_path: Path
):
    (tmp_path / "mine.py").write_text(FIXTURE["task"])
    done = evolve("run", "task=./mine.py", "name=far", "device=cuda", LIMIT, "--create")
    assert done.returncode == 0, done.stderr
    done = evolve("batch", "far", "-o", "in.jsonl")
    assert done.returncode == 0, done.stderr
    assert (
        "requests compiled references: run `evolve tell`, then `evolve batch` again" in done.stdout
    )
    assert set(compile_elsewhere(tmp_path)) == set(VARIANTS)
    done = evolve("tell", "far", "out")
    assert done.returncode == 0, done.stderr
    assert "1 variant of the compiled reference" in done.stdout  # two that say the same
    assert "variant unfused: it is not to be had" in done.stdout
    done = evolve("batch", "far", "-o", "in.jsonl")
    assert done.returncode == 0, done.stderr
    (request,) = read_requests(tmp_path / "in.jsonl")[0]
    assert request.method == "evaluate"
    assert "softmax_prepare_softmax_kernel[" in request.params["source"]
    assert "compiled" not in request.params["task"] or not request.params["task"]["compiled"]


def round_of(evolve: Evolve, folder: Path, number: int = 4) -> None:
    for words in (["batch", "far", "-n", str(number), "-o", "in.jsonl"], ["tell", "far", "out"]):
        if words[0] == "tell":
            judge(folder)
        done = evolve(*words)
        assert done.returncode == 0, done.stderr


def best(folder: Path):
    with Store.open(folder / "runs" / "evolve.db") as store:
        return champion(store, store.run("far"))


@pytest.mark.slow
def test_the_loop_makes_the_search_better_until_its_budget_is_used(evolve: Evolve, created: Path):
    ratios = []
    for _ in range(30):
        done = evolve("batch", "far", "-n", "12", "-o", "in.jsonl")
        if done.returncode:
            assert "5 evaluations" in done.stderr
            break
        judge(created)
        done = evolve("tell", "far", "out")
        assert done.returncode == 0, done.stderr
        assert "not told" not in done.stdout
        ratios.append(best(created).ratio.value)
    assert ratios == sorted(ratios)
    assert ratios[-1] > 3 * ratios[0]
    with Store.open(created / "runs" / "evolve.db") as store:
        run = store.run("far")
        assert store.progress(run.id).evaluations == 5
        assert run.config["audit"] == []  # it came with the first batch
        assert store.open_tickets(run.id) == []


@pytest.mark.slow
def test_a_verification_can_be_judged_elsewhere_too(evolve: Evolve, created: Path):
    assert evolve("batch", "far", "--verify", "-o", "in.jsonl").returncode == 2  # nothing yet
    round_of(evolve, created)
    assert not best(created).verified
    done = evolve("batch", "far", "--verify", "-o", "in.jsonl")
    assert done.returncode == 0, done.stderr
    [asked], _ = read_requests(created / "in.jsonl")
    evolve("batch", "far", "-n", "3", "-o", "in.jsonl")  # as a proposal it would have no rivals
    assert asked.id not in {request.id for request in read_requests(created / "in.jsonl")[0]}
    assert evolve("batch", "far", "--verify", "-o", "in.jsonl").returncode == 0
    [request] = judge(created)
    assert request.id == asked.id
    assert request.params["fidelity"] == "verify"
    assert "verified" in evolve("tell", "far", "out").stdout
    assert best(created).verified
    assert "is verified" in evolve("batch", "far", "--verify", "-o", "in.jsonl").stderr


@pytest.mark.slow
def test_what_nobody_has_answered_is_asked_for_again(evolve: Evolve, created: Path):
    round_of(evolve, created)  # the audit and the seed: nothing else can be asked for before
    evolve("batch", "far", "-n", "3", "-o", "in.jsonl")
    asked = judge(created, keep=1)
    done = evolve("tell", "far", "out")
    assert done.stdout.startswith("1 verdict told")
    assert "2 steps still without a verdict" in done.stdout
    evolve("batch", "far", "-n", "3", "-o", "in.jsonl")
    again, _ = read_requests(created / "in.jsonl")
    assert again[:2] == asked[1:]
    assert len(again) == 3
    evolve("batch", "far", "-n", "2", "--new", "-o", "in.jsonl")
    new, _ = read_requests(created / "in.jsonl")
    assert not {request.id for request in new} & {request.id for request in again}


def test_programs_of_replies_are_judged_before_others_that_wait(evolve_here: Evolve, created: Path):
    def done(*words: str) -> None:
        assert (result := evolve_here(*words)).returncode == 0, result.stderr

    (created / "seeds" / "second.py").write_text(f"{SEED_SOURCE}\n\nSECOND = 1\n")
    operators = "operators=[seed,rewrite_full]"
    done("run", "task=./synthetic.py", "name=both", operators, "--create")
    done("batch", "both", "-n", "1", "-o", "in.jsonl")
    judge(created)
    done("tell", "both", "out")
    done("batch", "both", "-n", "1", "-o", "in.jsonl")  # the second seed waits from here on
    done("ask", "both", "-n", "1", "--out", "asked")
    (prompt,) = (created / "asked").glob("*.prompt.md")
    written = f"Here it is.\n\n```python\n{SEED_SOURCE}\n\nHAND = 1\n```\n"
    prompt.with_name(prompt.name.replace("prompt", "reply")).write_text(written)
    done("tell", "both", "asked")
    done("batch", "both", "-n", "1", "-o", "in.jsonl")
    requests, _ = read_requests(created / "in.jsonl")
    (source,) = [each.params["source"] for each in requests if each.method == "evaluate"]
    assert source.endswith("HAND = 1\n")


def test_telling_twice_and_from_a_single_shard_changes_nothing(evolve: Evolve, created: Path):
    round_of(evolve, created)
    with Store.open(created / "runs" / "evolve.db") as store:
        before = store.progress(store.run("far").id)
    for what in ("out", "out/0001.jsonl"):
        done = evolve("tell", "far", what)
        assert done.returncode == 0
        assert done.stdout.startswith("0 verdicts told")
    with Store.open(created / "runs" / "evolve.db") as store:
        assert store.progress(store.run("far").id) == before


@pytest.mark.slow  # telling what is known is in the test above
def test_telling_a_finished_run_what_it_knows_leaves_it_finished(evolve: Evolve, created: Path):
    round_of(evolve, created)
    with Store.open(created / "runs" / "evolve.db") as store:
        run = store.run("far")
        store.claim(run.id)
        store.release(run.id, "finished", "12 of 12 evaluations")
        assert evolve("tell", "far", "out").returncode == 0
        after = store.run("far")
        assert (after.state, after.reason) == ("finished", "12 of 12 evaluations")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["batch", "far", "-n", "0", "-o", "x"], "-n/--number: 0"),
        (["batch", "far"], "--output"),
        (["batch", "nobody", "-o", "x"], "nobody"),
        (["batch", "far", "-o", "synthetic.py/x"], "synthetic.py"),
        (["tell", "far", "missing"], "missing"),
        (["tell", "far", "synthetic.py"], "neither verdicts"),
        (["tell", "nobody", "synthetic.py"], "neither verdicts"),
    ],
)
def test_bad_input_is_one_line(evolve: Evolve, created: Path, words: list[str], named: str):
    done = evolve(*words)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert named in done.stderr


def test_a_run_that_is_under_way_elsewhere_is_left_alone(evolve: Evolve, created: Path):
    with Store.open(created / "runs" / "evolve.db") as store:
        store.claim(store.run("far").id)
        done = evolve("batch", "far", "-o", "in.jsonl")
        assert done.returncode == 2
        assert "another process" in done.stderr
    assert not (created / "in.jsonl").exists()


SLOW_KERNEL = '''
import torch
from torch import nn
from tvm_ffi.cpp import load_inline

REPEAT = 64
TUNABLE = {"REPEAT": (1, 64)}

CPP = """
void relu(tvm::ffi::TensorView x, tvm::ffi::TensorView y, int64_t repeat) {
  const float* a = static_cast<const float*>(x.data_ptr());
  volatile float* b = static_cast<float*>(y.data_ptr());
  for (int64_t r = 0; r < repeat; ++r)
    for (int64_t i = 0; i < x.numel(); ++i) b[i] = (a[i] > 0 ? a[i] * 2 : 0) + a[i];
}
"""
kernels = load_inline("relu", cpp_sources=CPP, functions="relu", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.relu(x, y, REPEAT)
        return y
'''


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_with_a_real_worker_that_is_killed_in_the_middle(evolve: Evolve, tmp_path: Path):
    from tests.worker.serving import RELU_TASK

    tmp_path.chmod(0o755)
    (tmp_path / "relu.py").write_text(RELU_TASK.source)
    (tmp_path / "slow.py").write_text(SLOW_KERNEL)
    evolve("run", "task=./relu.py", "name=far", "initial=[slow.py]", "--create")
    (tmp_path / "out").mkdir()
    ratios = []
    for _ in range(2):
        assert evolve("batch", "far", "-n", "3", "-o", "in.jsonl").returncode == 0
        first = worker(tmp_path)
        wait_for_an_answer(tmp_path / "out", first)
        first.kill()
        first.wait()
        assert worker(tmp_path).wait(200) == 0
        done = evolve("tell", "far", "out")
        assert done.returncode == 0, done.stderr
        assert "not told" not in done.stdout
        ratios.append(best(tmp_path).ratio)
    assert ratios[1].low > ratios[0].high


def worker(folder: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "evolve.worker", "batch", "in.jsonl", "out",
         "--cache", str(folder / "cache")],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def wait_for_an_answer(out: Path, process: subprocess.Popen) -> None:
    """Until the worker has answered something that it had not answered before."""
    before = answered(out)
    while answered(out) == before and process.poll() is None:
        time.sleep(0.1)


def answered(out: Path) -> int:
    return sum(record.final is not None for record in read_answers(out).records.values())
