"""Warm tasks: what is warm is had at once, whatever else is being loaded."""

import threading
import time

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
