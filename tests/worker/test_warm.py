"""Warm tasks: what is warm is had at once, whatever else is being loaded."""

import threading
import time

import torch

from evolve.core.evaluation import Fidelity
from evolve.core.task import Task
from evolve.worker.device_cpu import CpuDevice
from evolve.worker.warm import WarmTasks
from tests.worker.serving import RELU_TASK

SLOW = Task(name="slow", source="import time\ntime.sleep(4)\n" + RELU_TASK.source)


def test_a_warm_task_does_not_wait_for_one_that_is_being_loaded():
    tasks = WarmTasks(CpuDevice())
    warm = tasks.get(RELU_TASK, Fidelity.SEARCH)
    loading = threading.Thread(target=tasks.get, args=(SLOW, Fidelity.SEARCH))
    loading.start()
    time.sleep(0.5)
    start = time.monotonic()
    assert tasks.get(RELU_TASK, Fidelity.SCREEN) is warm
    assert time.monotonic() - start < 2
    loading.join()


def test_a_task_asked_for_by_several_is_loaded_once():
    tasks = WarmTasks(CpuDevice())
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(tasks.get(SLOW, Fidelity.SEARCH)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] is found[1] is found[2]


def test_the_task_used_longest_ago_gives_way():
    tasks = WarmTasks(CpuDevice(), tasks=2)
    first = tasks.get(RELU_TASK, Fidelity.SEARCH)
    tasks.get(RELU_TASK, Fidelity.VERIFY)
    assert tasks.get(RELU_TASK, Fidelity.SEARCH) is first
    tasks.get(Task(name="other", source=RELU_TASK.source + "\n# other\n"), Fidelity.SEARCH)
    assert tasks.get(RELU_TASK, Fidelity.SEARCH) is first


def test_where_memory_is_short_what_is_warm_gives_way():
    tasks = WarmTasks(CpuDevice())
    check = tasks.get(RELU_TASK, Fidelity.SEARCH).cases[0].check("task", 0)
    tries = []

    def greedy():
        tries.append(1)
        if len(tries) == 1:
            raise torch.OutOfMemoryError("no room")
        return "made"

    assert tasks.made(greedy) == "made"
    assert tasks.get(RELU_TASK, Fidelity.SEARCH).cases[0].check("task", 0) is not check


def test_what_never_fits_is_refused_and_ends_nothing(worker):
    body = "raise torch.OutOfMemoryError('as a GPU would')"
    source = RELU_TASK.source.replace("return ", f"{body}\n        return ", 1)
    reply = worker.send("audit", task=Task(name="vast", source=source).to_json()).result(60)
    assert reply["error"]["kind"] == "usage"
    assert "vast" in reply["error"]["message"]
    assert worker.ask("audit", task=RELU_TASK.to_json()) is not None
