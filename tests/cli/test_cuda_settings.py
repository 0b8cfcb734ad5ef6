"""Settings of the CUDA compiler.

Invariants:
- on a device that runs no CUDA C++ they are refused, with what to do;
- a worker gets each, and what it refuses comes back in the words of the setting.
"""

import asyncio
from dataclasses import replace

import pytest

from evolve.app.device import start_evaluator, start_local
from evolve.core import devices
from evolve.core.errors import UsageError
from tests.cli.recording import settings


@pytest.mark.parametrize("setting", ["cuda.include=[/usr]", "cuda.flags=[-O3]"])
def test_on_the_cpu_they_are_refused(setting):
    with pytest.raises(UsageError, match="has no effect on the CPU"):
        asyncio.run(start_evaluator(settings("device=cpu", setting)))


@pytest.mark.parametrize("kind", ["hip", "abacus"])
def test_on_a_gpu_that_runs_no_cuda_they_are_refused(monkeypatch, kind):
    kinds = {**devices.device_kinds(), "abacus": replace(devices.HIP, name="abacus")}
    monkeypatch.setattr(devices, "device_kinds", lambda: kinds)
    config = settings("device=cuda", f"device.kind={kind}", "cuda.flags=[-O3]")
    with pytest.raises(UsageError, match=rf"has no effect on device={kind}; .* device=cuda"):
        asyncio.run(start_evaluator(config))


def test_a_list_of_other_things_is_refused_with_an_example():
    with pytest.raises(UsageError, match=r"cuda\.flags=\[-O3,--use_fast_math\]"):
        settings("cuda.flags=[[x]]")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"cuda_flags": ["-ccbin=x"]}, r"cuda\.flags: -ccbin=x is not allowed"),
        ({"cuda_include": ["/no/where"]}, r"cuda\.include: /no/where is no folder"),
    ],
)
def test_what_a_worker_refuses_comes_back_in_the_words_of_the_setting(asked, said):
    with pytest.raises(UsageError, match=said):
        asyncio.run(start_local("cpu", **asked))


@pytest.mark.slow
def test_a_worker_takes_what_is_allowed(tmp_path):
    async def version(**asked):
        judge = await start_local("cpu", **asked)
        try:
            return judge.evaluator_version
        finally:
            await judge.close()

    plain = asyncio.run(version())
    assert asyncio.run(version(cuda_include=[str(tmp_path)], cuda_flags=["-O3"])) != plain
