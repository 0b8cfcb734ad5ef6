"""Judges on a real Ray cluster, whose nodes die in the middle of evaluations.

Invariants:
- each GPU of the type that is asked for is one judge, which Ray shows by its name;
- evaluations of a lost node are judged elsewhere, once; without any node they wait for one;
- several searches share each GPU, none is left without, and none feels another's candidates;
- a node whose verdicts cannot be compared is not used, and it is said;
- no key of the search's process is in that of a judge.
"""

import asyncio
import contextlib
from pathlib import Path

import pytest

from evolve.core.errors import UsageError
from evolve.core.evaluation import Status
from evolve.evaluation.cluster import RayEvaluator
from tests.evaluation.cluster.conftest import WORDS, lines, request, until

# They take minutes; test_elastic.py (the pool) and test_judge.py (the actor) cover most of it.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
KEY = "sk-very-secret-0123456789abcdef"


@contextlib.asynccontextmanager
async def judges(nodes, count: int | None = None, at_least: int = 1):
    """A search's judges, of which so many have come up."""
    evaluator = await RayEvaluator.start(
        nodes.address, WORDS, is_gpu=True, accelerator=nodes.accelerator, judges=count
    )
    try:
        await until(lambda: evaluator.devices >= at_least, f"{at_least} judges did not come up")
        yield evaluator
    finally:
        await evaluator.close()


def named(nodes) -> set[str]:
    import ray

    stem = f"judge-{nodes.accelerator}-"
    every = ray.util.list_named_actors(all_namespaces=True)
    return {each["name"] for each in every if each["name"].startswith(stem)}


def test_each_gpu_is_a_judge_with_a_name_and_all_of_them_judge(nodes):
    nodes.add(gpus=2)

    async def run():
        async with judges(nodes, at_least=2) as evaluator:
            asked = [evaluator.evaluate(request(f"m{n}")) for n in range(12)]
            verdicts = await asyncio.gather(*asked)
            return verdicts, evaluator.slots, named(nodes)

    verdicts, slots, names = asyncio.run(run())
    assert {verdict.status for verdict in verdicts} == {Status.CORRECT}
    assert slots == 4
    assert names == {f"judge-{nodes.accelerator}-{n}" for n in (0, 1)}
    assert lines("starts").total() == 2
    assert set(lines("judged").values()) == {1}


def test_what_a_dead_node_had_is_judged_elsewhere_once_and_without_a_node_it_waits(nodes, capfd):
    async def run():
        first, second = nodes.add(), nodes.add()
        async with judges(nodes, at_least=2) as evaluator:
            slow = [request(f"slow{n}", "slow 4") for n in range(4)]
            calls = [asyncio.create_task(evaluator.evaluate(each)) for each in slow]
            await asyncio.sleep(1)  # two at each
            await asyncio.to_thread(nodes.kill, first)
            verdicts = await asyncio.gather(*calls)
            assert {verdict.status for verdict in verdicts} == {Status.CORRECT}
            assert set(lines("judged").values()) == {1}
            assert evaluator.devices == 1

            await asyncio.to_thread(nodes.kill, second)
            await until(lambda: not evaluator.devices, "its loss was not noticed")
            waiting = asyncio.create_task(evaluator.evaluate(request("late")))
            await asyncio.sleep(0.5)
            assert not waiting.done()
            nodes.add()
            assert (await waiting).status is Status.CORRECT

    asyncio.run(run())
    said = capfd.readouterr().err
    assert "gets no more candidates: its node, or its process there, was lost" in said


def test_more_searches_than_seats_share_the_judges_and_none_feels_anothers_candidates(nodes):
    nodes.add(gpus=2)

    async def run():
        async with contextlib.AsyncExitStack() as stack:
            searches = []
            for _ in range(5):
                searches.append(await stack.enter_async_context(judges(nodes)))
            await until(
                lambda: [each.devices for each in searches] == [1] * 5,
                "shares differ",
            )
            before = lines("starts").total()
            killer = searches[0].evaluate(request("killer", "die_always"))
            others = [each.evaluate(request(f"of{n}", "slow 1")) for n, each in enumerate(searches)]
            verdicts = await asyncio.gather(killer, *others[1:])
            others[0].close()
            return verdicts, lines("starts").total() - before

    (killer, *others), started_again = asyncio.run(run())
    assert killer.status is Status.INFRA
    assert {verdict.status for verdict in others} == {Status.CORRECT}
    assert started_again == 1  # the killer's own, for its second try


def test_a_node_of_another_device_class_is_not_used_and_the_search_goes_on(nodes, capfd):
    nodes.add()

    async def run():
        async with judges(nodes) as evaluator:
            nodes.add(CUDA_STUB_CLASS="another")
            await until(lambda: len(lines("starts")) == 2, "its worker did not start")
            await asyncio.sleep(1)
            assert (await evaluator.evaluate(request("fine"))).device_class == "stub"
            assert evaluator.devices == 1

    asyncio.run(run())
    assert "is not used: " in (said := capfd.readouterr().err)
    assert "is another: times on them cannot be compared" in said


def test_no_key_of_the_search_is_in_a_judges_process_even_if_the_job_gives_it_to_all(
    nodes, monkeypatch
):
    import ray

    monkeypatch.setenv("SCRIPTED_API_KEY", KEY)
    nodes.add()
    ray.init(
        nodes.address,
        namespace="other",
        log_to_driver=False,
        runtime_env={"env_vars": {"SCRIPTED_API_KEY": KEY}},
    )

    async def run():
        async with judges(nodes) as evaluator:
            assert (await evaluator.evaluate(request("fine"))).status is Status.CORRECT
            assert holders("ray::Judge")
            assert not any(KEY in environment(pid) for pid in holders("ray::Judge"))
            return [environment(pid) for pid in holders("stub_worker.py")]

    workers = asyncio.run(run())
    assert workers
    assert not any(KEY in each for each in workers)
    assert not any("OMP_NUM_THREADS" in each for each in workers)  # Ray's, for its own tasks


def holders(*names: str) -> list[str]:
    """Processes whose command line has one of the names."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_text()
            if any(name in command for name in names):
                found.append(folder.name)
    return found


def environment(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return ""


def test_a_search_waits_for_judges_that_are_to_come_and_says_so(nodes, capfd):
    async def run():
        starting = asyncio.create_task(
            RayEvaluator.start(
                nodes.address, WORDS, is_gpu=True, accelerator=nodes.accelerator, judges=1
            )
        )
        await asyncio.sleep(6)
        assert not starting.done()
        nodes.add()
        evaluator = await starting
        assert (await evaluator.evaluate(request("fine"))).status is Status.CORRECT
        await evaluator.close()

    asyncio.run(run())
    assert "waiting for a GPU of the cluster" in capfd.readouterr().err


def test_a_cluster_without_such_a_gpu_is_refused_with_what_it_has(nodes):
    nodes.add()

    async def run(accelerator):
        await RayEvaluator.start(nodes.address, WORDS, is_gpu=True, accelerator=accelerator)

    with pytest.raises(
        UsageError, match=rf"accelerator=H100: the cluster has .*{nodes.accelerator}"
    ):
        asyncio.run(run("H100"))
