"""A warm task, and memory on the device for its evaluation."""

from collections.abc import Callable

import torch

from evolve.core.errors import UsageError
from evolve.core.task import Task
from evolve.worker.base import shortage
from evolve.worker.base.feedback import plain
from evolve.worker.base.infra import InfraFault
from evolve.worker.base.shortage import is_short_of_memory
from evolve.worker.devices.base import Device
from evolve.worker.processes.host_locks import HostLock
from evolve.worker.session.cache import Made
from evolve.worker.session.memory_budget import MemoryBudget
from evolve.worker.session.memory_model import room_for
from evolve.worker.session.plan import Purpose
from evolve.worker.session.prepared_task import PreparedTask, PreparedTasks

_WHY = 160  # characters of the message


class Admission:
    """Admits evaluations of a task, as many at once as there is room for.

    Args:
        device: That they use.
        lock: Of the device; room is taken before it is.
        room: On the device.
        release: Lets go of processes that are kept for others to be quicker.
    """

    def __init__(
        self, device: Device, lock: HostLock, room: MemoryBudget, release: Callable[[], None]
    ) -> None:
        self._device = device
        self._lock = lock
        self._budget = room
        self._release = release
        self._tasks = PreparedTasks(device, tasks=max(4, 2 * device.slots))

    def warm(self, task: Task, purpose: Purpose = "search") -> PreparedTask:
        """The task with its hidden inputs, as evaluations for this purpose use it.

        Raises:
            UsageError: the task cannot be used.
        """
        with self._lock.shared(), torch.no_grad():
            return self._tasks.get(task, purpose)

    def made(self, make: Callable[[], Made]) -> Made:
        """The result of `make`, if necessary by evicting warm tasks from memory."""
        with self._lock.shared():
            return self._tasks.made(make)

    def within(
        self,
        task: Task,
        room: Callable[[PreparedTask], int],
        work: Callable[[PreparedTask], Made],
        purpose: Purpose = "search",
    ) -> Made:
        """The result of `work` with the warm task, and so much memory for it.

        An evaluation that fails for want of memory, or by a fault of the judge, is repeated alone.

        Raises:
            UsageError: the task cannot be used, or does not fit even so.
        """
        try:
            warm = self.warm(task, purpose)
            if self._device.room and not warm.is_measured:
                with self._budget.taken(room_for(warm.cases, self._device, 0)):
                    self._measure(warm)
            amount = room(warm)
            with self._budget.taken(amount), torch.no_grad():
                if 0 < self._device.room < amount:
                    self._let_go()
                    with shortage.alone():
                        return work(warm)
                return work(warm)
        except (torch.OutOfMemoryError, InfraFault, OSError):
            pass
        except UsageError as error:
            if not is_short_of_memory(error):
                raise
        return self.alone(task, work, purpose)

    def alone(
        self, task: Task, work: Callable[[PreparedTask], Made], purpose: Purpose = "search"
    ) -> Made:
        """The same with all of the room, so beside nothing else that needs any."""
        try:
            with self._budget.taken(self._device.room), torch.no_grad(), shortage.alone():
                self._let_go()
                warm = self.warm(task, purpose)
                self._measure(warm)
                return work(warm)
        except (torch.OutOfMemoryError, UsageError) as error:
            if not is_short_of_memory(error):
                raise
            raise UsageError(
                f"task {task.name}, size {task.size}, does not fit into the memory of "
                f"{self._device.device_class}: take a smaller size (SIZES in the file, "
                "task_config.size=cpu or tiny), or free what others hold there "
                f"({plain(str(error), _WHY)})"
            ) from error

    def _measure(self, warm: PreparedTask) -> None:
        """Find out the size of its outputs, at the cost of computing the expected ones."""
        with self._lock.shared(), torch.no_grad():
            for case in warm.cases:
                case.measure()

    def _let_go(self) -> None:
        """Of caches that make others quicker: an evaluation with all of the room may need them."""
        self._release()
        with self._lock.shared():
            self._tasks.let_go()
