"""Measurements of a reference before a candidate is timed beside it: they plan the blocks."""

from functools import partial

from evolve.core.evaluation import Status
from evolve.worker.base.faults import CandidateFault
from evolve.worker.base.infra import InfraFault
from evolve.worker.devices.base import Device
from evolve.worker.devices.window import Layout, size_in_bytes
from evolve.worker.ipc.signals import MAX_ADDRESSES
from evolve.worker.processes.runner_process import Needs, RunnerProcess
from evolve.worker.session.candidate_session import CandidateSession
from evolve.worker.session.exclusive_device import DeviceLock
from evolve.worker.session.memory_model import block_outputs, require_more, working_bytes
from evolve.worker.session.plan import LONG_BLOCKS
from evolve.worker.session.prepared_task import PreparedCase, PreparedTask, usual_number

_TRIALS = 3
_TRIAL_CALLS = 4  # at most
_TRIAL_SHARE = 0.25  # of a block


class ReferenceProfile:
    """Measures each task's reference once."""

    def __init__(self, session: CandidateSession, device_lock: DeviceLock) -> None:
        self._session = session
        self._device_lock = device_lock

    def layouts(self, task: PreparedTask) -> dict[str, Layout]:
        """The reference's outputs, by case; with its time per call that is found out once, alone.

        An overestimate here makes blocks too short for every later candidate.
        """
        with task.measuring:
            while not task.layouts:
                device = self._session.device
                block = block_outputs(task, device, LONG_BLOCKS)
                start = partial(self._session.reference, task, Needs(block))
                try:
                    with self._device_lock.only(start) as runner:
                        task.layouts = {
                            case.case.name: self._measure(runner, task, case) for case in task.timed
                        }
                except CandidateFault as fault:  # nothing but the reference has run
                    if note_shortage(fault, task, device):
                        continue
                    why = f"the reference failed in its process: {fault.feedback}"
                    raise InfraFault(why) from fault
        return task.layouts

    def _measure(self, runner: RunnerProcess, task: PreparedTask, case: PreparedCase) -> Layout:
        """One call, and how many of them make a block."""
        device, call_s = self._session.device, self._session.call_s
        spare = max(device.block_bytes, device.pool_bytes - working_bytes(task.timed, device))
        runner.reserve(8 * case.input_bytes, call_s)
        with device.share(runner, case.inputs("task", 0)) as inputs:
            layout = runner.call(case.index, inputs, call_s).tensors
        size = sum(map(size_in_bytes, layout))
        told = MAX_ADDRESSES // max(1, len(layout))  # a process says where each output lies
        most = min(case.most_calls(size, device.block_bytes, spare), device.calls[1], told)
        seconds = self._seconds(runner, case, min(_TRIAL_CALLS, most))
        wanted = int(device.block_s * _TRIAL_SHARE / max(seconds, 1e-6))
        if wanted > _TRIAL_CALLS:  # of calls that short much is the first one's
            seconds = self._seconds(runner, case, min(wanted, most))
        task.reference_s[case.index] = seconds
        task.calls[case.index] = usual_number(min(case.calls(seconds, size, spare), told))
        return layout

    def _seconds(self, runner: RunnerProcess, case: PreparedCase, calls: int) -> float:
        """Of one call of the reference, by its own account: plans the length of blocks."""
        device, call_s = self._session.device, self._session.call_s
        tried = []
        for _ in range(_TRIALS):
            with device.share(runner, case.block(-1, calls)) as inputs:
                runner.stage(inputs, call_s)
                tried.append(runner.run(case.index, call_s).seconds / calls)
            runner.drop(call_s)
        return min(tried)


def note_shortage(fault: CandidateFault, task: PreparedTask, device: Device) -> bool:
    """More memory for the judge's processes if one has run out of the GPU's; whether it is more."""
    is_short = fault.status is Status.OOM and "CUDA" in fault.feedback
    return is_short and require_more(task.timed, device)
