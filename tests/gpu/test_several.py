"""The search's client on all GPUs of the host, of which there may be one.

Invariants:
- every GPU has a judge, all of one kind, and verdicts come from each;
- timing on one GPU does not wait for, or disturb, timing on another;
- a GPU that does not exist is an error that the user can mend.
"""

import asyncio
import time
from dataclasses import replace

import pytest
import torch

from evolve.core.errors import UsageError
from evolve.core.evaluation import Fidelity, Status
from evolve.core.protocols import EvaluationRequest
from evolve.evaluation import LocalEvaluator
from evolve.evaluation.host import examine_host
from tests.gpu.programs import RIGHT, SMALL, TASK, torch_program


def asked(source: str, number: int, fidelity: Fidelity) -> EvaluationRequest:
    """A request on an instance of its own, so that nothing is shared but the task."""
    source = f"{source}\nNUMBER = {number}\n"
    task = SMALL if fidelity is Fidelity.CHECK else TASK
    return EvaluationRequest(task=task, instance=str(number), source=source, fidelity=fidelity)


async def judged(ids: list[int], requests: list[EvaluationRequest], folder) -> list:
    """The verdicts, and the seconds that they took after the judges were up and warm."""
    judge = await LocalEvaluator.start(device="cuda", ids=ids, cache=folder)
    try:
        assert judge.slots >= len(ids)
        first = replace(requests[0], fidelity=Fidelity.SCREEN)
        warm = [replace(first, source=RIGHT + f"#{n}\n") for n in range(2 * len(ids))]
        await asyncio.gather(*map(judge.evaluate, warm))
        start = time.monotonic()
        verdicts = await asyncio.gather(*map(judge.evaluate, requests))
        return [verdicts, time.monotonic() - start]
    finally:
        await judge.close()


def test_all_gpus_give_verdicts_from_one_queue(tmp_path):
    ids = list(range(torch.cuda.device_count()))
    wrong = torch_program("return torch.zeros_like(x)")
    requests = [asked((RIGHT, wrong)[n % 2], n, Fidelity.CHECK) for n in range(4 * len(ids))]
    verdicts, _ = asyncio.run(judged(ids, requests, tmp_path))
    assert [verdict.status for verdict in verdicts] == (
        [Status.CORRECT, Status.WRONG_VALUE] * (2 * len(ids))
    )
    assert len({verdict.device_class for verdict in verdicts}) == 1


@pytest.mark.timeout(400)
@pytest.mark.skipif("torch.cuda.device_count() < 2", reason="needs two GPUs")
def test_two_gpus_time_side_by_side_and_agree(tmp_path):
    requests = [asked(RIGHT, n, Fidelity.SEARCH) for n in range(4)]
    alone, alone_s = asyncio.run(judged([0], requests, tmp_path))
    both, both_s = asyncio.run(judged([0, 1], requests, tmp_path))
    print(f"4 evaluations: {alone_s:.1f} s on one GPU, {both_s:.1f} s on two")
    assert both_s < 0.75 * alone_s
    ratios = [verdict.ratios["eager"] for verdict in (*alone, *both)]
    assert max(ratio.low for ratio in ratios) < 1.02 * min(ratio.high for ratio in ratios)


def test_a_gpu_that_does_not_exist_is_the_users_to_mend():
    with pytest.raises(UsageError, match="device=cuda"):
        asyncio.run(LocalEvaluator.start(device="cuda", ids=[99]))


def test_the_host_tells_of_every_gpu_that_torch_sees():
    facts = examine_host()
    assert len(facts["torch"]["gpus"]) == torch.cuda.device_count()
    assert facts["torch"]["gpus"][0]["name"] == torch.cuda.get_device_name(0)
    uuids = {f"GPU-{gpu['uuid']}" for gpu in facts["torch"]["gpus"]}
    listed = {gpu["uuid"] for gpu in facts["driver"]["gpus"]}
    assert not listed or uuids <= listed
