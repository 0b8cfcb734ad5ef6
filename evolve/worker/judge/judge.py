"""The judge: holds inputs, references, comparator and clock, and makes evaluations of it all."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from evolve.core.compiled import Compiled
from evolve.core.errors import UsageError
from evolve.core.evaluation import (
    DEVICE_BUSY,
    DEVICE_OOM,
    Evaluation,
    Fidelity,
    Label,
    Stage,
    Status,
)
from evolve.core.protocols import BASELINES
from evolve.core.reference import ReferenceCost
from evolve.core.task import Task
from evolve.worker.base import phases
from evolve.worker.base.faults import CandidateFault, tells_of_a_full_device
from evolve.worker.base.feedback import plain
from evolve.worker.base.infra import InfraFault, OccupiedFault
from evolve.worker.base.interpreter import Started
from evolve.worker.base.shortage import is_no_room, is_short_of_memory
from evolve.worker.build import inductor
from evolve.worker.build.cache import BuildCache
from evolve.worker.devices.base import Device
from evolve.worker.evidence import eager_rounding
from evolve.worker.evidence.peak_memory import scratch_bytes
from evolve.worker.evidence.static_checks import disowned, static_labels, without_guesses
from evolve.worker.evidence.tools import Tools
from evolve.worker.judge.audit import Finding, audit, conditions_of
from evolve.worker.judge.interpreting import NOT_INTERPRETED, beyond_interpreter
from evolve.worker.judge.outcome import Asked, Judged, evaluation
from evolve.worker.judge.progress import Progress, judged_twice
from evolve.worker.judge.reference_cost import reference_cost
from evolve.worker.judge.source_text import explain, require_model, require_text
from evolve.worker.judge.stages import (
    EQUAL_UP_TO,
    check,
    check_non_finite,
    count_torch,
    probe_custom,
    profile_kernels,
    smoke,
)
from evolve.worker.judge.success_feedback import success_feedback
from evolve.worker.judge.unfit import unfit
from evolve.worker.processes.host_locks import HostLock
from evolve.worker.processes.launcher import Launcher
from evolve.worker.processes.runner_process import RunnerProcess
from evolve.worker.reference.task_files import remove_folders
from evolve.worker.reference.task_reads import watch
from evolve.worker.runner.baselines import require_baseline
from evolve.worker.runner.profiling import KernelProfile
from evolve.worker.session import memory_model
from evolve.worker.session.admission import Admission
from evolve.worker.session.candidate_session import Candidate, CandidateSession
from evolve.worker.session.exclusive_device import DeviceLock
from evolve.worker.session.memory_budget import MemoryBudget
from evolve.worker.session.memory_model import room_for, room_to_check, room_to_compile, writers
from evolve.worker.session.plan import Plan, Purpose, plan_for
from evolve.worker.session.prepared_task import PreparedTask
from evolve.worker.timing.comparison import Timekeeper
from evolve.worker.timing.cuda_events import of_reference
from evolve.worker.timing.results import Timing
from evolve.worker.timing.speed_of_light import SpeedOfLight

_VIOLENT = (
    Status.ILLEGAL_ACCESS,
    Status.ASSERT,
    Status.KILLED,
    Status.TIMEOUT,
    Status.OOM,
)
_INFRA_TEXT = 1000  # characters: a system message may contain a candidate's names


class Judge:
    """Judges candidates on one device.

    Args:
        device: Where they run.
        cache: Directory for builds.
        require: The weakest sandbox tier to be content with (`sandbox.require`).
        read: Further paths that candidates may read (`sandbox.read`).
        call_s: Seconds that one forward may take.
        ahead: Zygotes that were started already (`Launcher`).

    Raises:
        UsageError: the host grants less than the required tier.
    """

    def __init__(
        self,
        device: Device,
        cache: Path,
        require: str = "none",
        read: tuple[str, ...] = (),
        call_s: float = 30.0,
        ahead: Sequence[Started] = (),
    ) -> None:
        self.device = device
        watch((*read, str(cache)))
        builds = BuildCache(cache)
        # Torch makes this folder once it works on tensors without values (`extent`), and else in
        # the user's temporary files.
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache / "inductor"))
        # A spare starts before it is known which build it will need. It may enter the folder of
        # all builds, but not list it, and their names are digests of sources.
        shown = (str(cache),) if device.preforked else ()
        self._lock = HostLock(device.name)
        self.launcher = Launcher(device, require, (*read, *shown), ahead=ahead, lock=self._lock)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(self.launcher.close)
            self.launcher.probe()
            on_failure.pop_all()
        self._device_lock = DeviceLock(device, self._lock)
        self.launcher.register = self._device_lock.add
        self.session = CandidateSession(device, self.launcher, builds, self._device_lock, call_s)
        self._budget = MemoryBudget(device.room, device.timing_slots)
        self._timekeeper = Timekeeper(self.session, self._device_lock, self._budget)
        self._tools = Tools(self.session, self._budget)
        self._admission = Admission(device, self._lock, self._budget, self._timekeeper.release)
        self._baselines: dict[tuple[str, str], dict[str, Any]] = {}
        self._speed_of_light = SpeedOfLight(device, self._device_lock)
        self.launcher.start_prefork()

    def close(self) -> None:
        self._tools.close()
        self.launcher.close()
        self.device.close()
        remove_folders()

    def audit(self, task: Task) -> list[dict[str, str]]:
        """Null candidates that the task cannot tell from a kernel; UsageError for a bad file."""

        def audited(warm: PreparedTask) -> tuple[Finding, ...]:
            return self._admission.made(lambda: audit(warm.loaded))

        found = self._admission.within(task, self._room_to_check, audited)
        return [{"name": f.name, "passed_by": f.passed_by, "detail": f.detail} for f in found]

    def conditions(self, task: Task) -> list[str]:
        """Sentences about effects, mode and rules of equality; UsageError for a bad file."""

        def said(warm: PreparedTask) -> list[str]:
            return self._admission.made(lambda: conditions_of(warm.loaded))

        return self._admission.within(task, self._room_to_check, said)

    def noise(self, task: Task, fidelity: Fidelity = Fidelity.SEARCH) -> dict[str, Any]:
        """The reference timed against itself: the resolution of this host, and the cost."""
        start, plan = time.monotonic(), plan_for(fidelity, self.device)

        def timed(warm: PreparedTask) -> Timing:
            timing = Timing()
            self._timekeeper.time(warm, None, {}, plan, timing, {})
            return timing

        timing = self._admission.within(task, self._room_to_check, timed, plan.purpose)
        rows = timing.cases.values()
        total = [sum(row.times_ms["eager"].to_json()[i] for row in rows) for i in range(3)]
        return {
            "reference_ms": total,
            "ratio": timing.ratios["eager"].to_json(),
            "half_width": timing.ratios["eager"].half_width,
            "seconds_per_evaluation": time.monotonic() - start,
            "device_seconds_per_evaluation": timing.device_time_s,
        }

    def events(self, task: Task) -> dict[str, dict[str, float]]:
        """Times of the reference by CUDA events, by timed case (`timing.cuda_events`).

        Raises:
            UsageError: the device has no such events, or the task is bad.
        """
        if not self.device.has_profiler:
            raise UsageError("timing=kernelbench needs CUDA events, so a GPU: take device=cuda")

        def room(warm: PreparedTask) -> int:
            return room_for(warm.cases, self.device, 1, judges=False)

        timed = partial(of_reference, self.session, self._device_lock)
        return self._admission.within(task, room, timed)

    def reference(self, task: Task) -> dict[str, Any]:
        """The reference's time by operation, and the device's limits (`ReferenceCost` as JSON)."""

        def measured(warm: PreparedTask) -> ReferenceCost:
            parts = self.session, self._timekeeper, self._speed_of_light
            return reference_cost(warm, *parts, self.launcher.tier)

        return self._admission.within(task, self._room_to_check, measured).to_json()

    def baselines(self, task: Task, names: Sequence[str]) -> dict[str, Any]:
        """How many times as fast as eager each baseline is, measured once in a session.

        None with a label if one failed. A candidate's ratio to eager over this one is an indirect
        comparison (`Ratio.__truediv__`); a direct one names the baseline as an opponent.

        Raises:
            UsageError: there is no such baseline, or not on this device.
        """
        for name in names:
            if name not in BASELINES:
                raise UsageError(f"baseline {name}: choose of {', '.join(BASELINES)}")
        return {name: self._baseline(task, name) for name in names}

    def compiled(self, task: Task, variants: Sequence[str]) -> dict[str, Any]:
        """The compiled reference under some variants (of `VARIANTS`).

        Returns:
            By variant `Compiled` as JSON under "compiled", or why there is none under "reason".

        Raises:
            UsageError: there is no such variant, or the task is bad.
        """
        for variant in variants:
            inductor.settings(variant)

        def room(warm: PreparedTask) -> int:
            each = room_to_compile(warm.cases, self.device)
            writing = writers(warm.cases, self.device, len(variants)) * each
            looks = eager_rounding.may_round(warm, self.session)
            return max(writing, self._room_to_check(warm)) if looks else writing

        def written(warm: PreparedTask) -> dict[str, Compiled | str]:
            made = self.session.written(warm, variants)
            device = eager_rounding.described(warm, self.session)
            return {
                name: found if isinstance(found, str) else replace(found, device=device)
                for name, found in made.items()
            }

        answers = self._admission.within(task, room, written)
        return {
            name: {"reason": made} if isinstance(made, str) else {"compiled": made.to_json()}
            for name, made in answers.items()
        }

    def _baseline(self, task: Task, name: str) -> dict[str, Any]:
        key = task.revision, name
        if key not in self._baselines:

            def timed(warm: PreparedTask) -> Timing:
                side, timing = self._rival(warm, name, ""), Timing()
                plan = plan_for(Fidelity.SEARCH, self.device)
                self._timekeeper.time(warm, None, {name: side}, plan, timing, {})
                return timing

            timing = self._admission.within(task, self._room_to_check, timed)
            ratio = timing.ratios.get(name)  # of eager, which stands for the candidate
            self._baselines[key] = {
                "ratio": ratio and [1 / ratio.value, 1 / ratio.high, 1 / ratio.low],
                "labels": [[label.name, label.evidence] for label in timing.labels],
            }
        return self._baselines[key]

    def evaluate(
        self,
        task: Task,
        source: str,
        fidelity: Fidelity,
        opponents: Mapping[str, str],
        target_speedups: Mapping[str, float] | None = None,
    ) -> Evaluation:
        """The verdict on one instance; never raises because of the candidate.

        Raises:
            UsageError: the task cannot be judged.
        """
        plan = plan_for(fidelity, self.device)
        asked = Asked(source, plan, opponents, target_speedups or {})

        def judged(warm: PreparedTask) -> Judged:
            return self._judged(warm, asked)

        phases.enter("preparing inputs")
        found = self._admission.within(task, self._room_to_check, judged, plan.purpose)
        verdict = self._evaluated(asked, found)
        is_final = any(label.name == NOT_INTERPRETED for label in verdict.labels)
        if verdict.status is not Status.INFRA or is_final or self.launcher.closed:
            return verdict
        # The cause was no neighbour. The judge's user should know of it.
        why = plain(verdict.feedback, 300)
        print(f"evolve: {task.name} judged again, alone: {why}", file=sys.stderr, flush=True)
        found = self._admission.alone(task, judged, plan.purpose)
        return judged_twice(verdict, self._evaluated(asked, found))

    def _judged(self, warm: PreparedTask, asked: Asked) -> Judged:
        progress = Progress()
        try:
            status, feedback = self._climb(warm, asked, progress)
            warm.has_fitted = True
        except CandidateFault as fault:
            status, feedback = fault.status, explain(fault, asked.source, warm.task.files)
            if why := self._is_beyond(fault, progress):
                progress.labels.append(Label(NOT_INTERPRETED, why))
                said = f"not judged: {why}, and here Triton is interpreted without one. {feedback}"
                return Judged(warm, progress, Status.INFRA, said)
            if self._may_be_others(fault, progress):
                status, feedback = Status.INFRA, f"others had the device's memory: {feedback}"
                if self._budget.holds_all:  # so they are not this judge's, and may stay
                    progress.labels.append(Label(DEVICE_OOM, plain(feedback, _INFRA_TEXT)))
            self._require_health_after(fault)
        except (InfraFault, OSError, torch.OutOfMemoryError, UsageError) as error:
            # The task is known to fit: the candidate may hold the missing memory.
            is_short = is_short_of_memory(error)
            if (isinstance(error, UsageError) and not is_short) or (
                is_short and self._budget.holds_all and memory_model.is_too_large(warm, self.device)
            ):
                raise
            why = plain(str(error), _INFRA_TEXT)
            status, feedback = Status.INFRA, f"the evaluator failed: {why}"
            if isinstance(error, OccupiedFault):
                progress.labels.append(Label(DEVICE_BUSY, why))
            elif is_no_room(error):
                progress.labels.append(Label(DEVICE_OOM, why))
        return Judged(warm, progress, status, feedback)

    def _is_beyond(self, fault: CandidateFault, progress: Progress) -> str:
        """Why it cannot be judged without a GPU; empty if it can, or there is one."""
        candidate = progress.candidate
        if candidate is None or candidate.language.is_timed_on(self.device.kind):
            return ""
        return beyond_interpreter(fault, candidate.source, candidate.language)

    def _with_tools(self, judged: Judged) -> Judged:
        """The same with the tools' findings, if they matter; no memory is held meanwhile."""
        progress = judged.progress
        if progress.tools is None or judged.status is not Status.CORRECT:
            return judged
        try:
            with progress.timed("tools"):
                progress.labels += progress.tools.result()
        except CandidateFault as fault:
            self._require_health_after(fault)
            progress.stage = Stage.CORRECTNESS
            return replace(judged, status=fault.status, feedback=fault.feedback)
        return judged

    def _require_health_after(self, fault: CandidateFault) -> None:
        if fault.status in _VIOLENT:
            with self._lock.shared():
                self.device.require_health()

    def _may_be_others(self, fault: CandidateFault, progress: Progress) -> bool:
        """Whether others may hold the memory that it says is missing on the device.

        A candidate can say so as well: another process has to have been seen there. And who has
        been timed is not believed, or he could draw times until they are good.
        """
        if progress.timing.device_time_s or not tells_of_a_full_device(
            fault, self.device.total_bytes or sys.maxsize
        ):
            return False
        return self._budget.had_concurrent or bool(self.device.others())

    def warm(self, task: Task, purpose: Purpose = "search") -> PreparedTask:
        """The task with its hidden inputs, as evaluations for this purpose use it."""
        return self._admission.warm(task, purpose)

    def _room_to_check(self, warm: PreparedTask) -> int:
        return room_to_check(warm, self.device)

    def _climb(
        self,
        task: PreparedTask,
        asked: Asked,
        progress: Progress,
    ) -> tuple[Status, str]:
        plan = asked.plan
        require_text(asked.source)
        candidate = progress.candidate = Candidate(asked.source)
        progress.labels += static_labels(asked.source)
        require_model(asked.source)
        if why := unfit(candidate.language, candidate.source, self.device):
            raise CandidateFault(Status.INVALID_INTERFACE, why)
        progress.stage = Stage.INTERFACE
        phases.enter("compiling")
        with contextlib.ExitStack() as ends:
            with progress.timed("compile"):
                runner = ends.enter_context(self.session.building(candidate, task))
            progress.stage = Stage.COMPILE
            with progress.timed("smoke"):
                smoke(self.session, runner, candidate, task)
                self.session.keep(candidate, runner)
            progress.stage = Stage.SMOKE
            phases.enter("checking")
            with self.session.unless_aside():
                self._check(runner, candidate, task, plan, progress)
        if not plan.interims:
            return Status.CORRECT, "correct; at this fidelity no time is taken"
        if not candidate.language.is_timed_on(self.device.kind):
            return Status.CORRECT, (
                f"correct; a {candidate.language} program is only interpreted on this device, "
                "so no time was taken and nothing is claimed about its speed"
            )
        if self.device.has_memory_mark and progress.custom and plan.weighs:
            with self._stage("memory", progress):
                progress.scratch_bytes = scratch_bytes(self.session, candidate, task)
        rivals = {name: self._rival(task, name, text) for name, text in asked.opponents.items()}
        candidate.custom = progress.custom
        if self.device.has_profiler and plan.is_final:
            own = [fact for fact in progress.facts if fact.is_own]
            progress.tools = self._tools.look(candidate, task, own)
        phases.enter("timing")
        with progress.timed("timing"):
            self._timekeeper.time(
                task, candidate, rivals, plan, progress.timing, asked.target_speedups
            )
        if disowned(progress.timing.labels):
            progress.custom = False
        with progress.timed("speed_of_light"):
            light = self._speed_of_light.judge(task, candidate, progress.timing)
            progress.measured["speed_of_light"] = round(light.share, 4)
            if light.beats and not plan.is_final:
                self._check_further(candidate, task)
        progress.stage = plan.stage
        return Status.CORRECT, success_feedback(
            progress.timing, light, progress.facts, progress.custom, progress.labels
        )

    def _check(
        self,
        runner: RunnerProcess,
        candidate: Candidate,
        task: PreparedTask,
        plan: Plan,
        progress: Progress,
    ) -> None:
        """Whether it is correct, and the kernels that make it so."""
        profile = None
        with progress.timed("correctness"):
            self.session.construct(runner, task.cases)
            progress.suite = check(self.session, runner, candidate, task, plan)
        progress.labels += [Label(EQUAL_UP_TO, rule) for rule in sorted(candidate.rules)]
        progress.stage = Stage.CORRECTNESS
        with progress.timed("labels"):
            probed = count_torch(self.session, runner, task, self._speed_of_light.cost)
        if self.device.has_profiler and probed.may_be_custom and plan.profiles:
            with progress.timed("profile"):
                profile = profile_kernels(self.session, runner, candidate, task)
        with progress.timed("labels"):
            progress.labels += check_non_finite(self.session, runner, candidate, task)
            progress.custom, labels = probe_custom(
                self.session, runner, candidate, probed, progress.labels, plan
            )
            progress.labels += labels
            if progress.custom:  # measurements replace guesses from the text
                progress.labels = without_guesses(progress.labels)
        if progress.custom and profile is not None:
            self._believe(profile, progress)

    @contextmanager
    def _stage(self, name: str, progress: Progress) -> Iterator[None]:
        """Beside the work of others, and never while something is timed: timing has to wait."""
        with self._lock.shared(), progress.timed(name):
            yield

    def _rival(self, task: PreparedTask, name: str, text: str) -> Candidate:
        """An opponent; one that has the name of a baseline is the reference, run that way."""
        if name not in BASELINES:
            return Candidate(text)
        require_baseline(name, self.device.place)
        return Candidate(json.dumps(task.task.to_json()), kind=name)

    def _believe(self, profile: KernelProfile, progress: Progress) -> None:
        """Evidence that speaks against a candidate counts, although it comes from its process."""
        progress.labels += profile.labels
        progress.facts = profile.facts
        progress.measured |= {"coverage": round(profile.coverage, 4), **profile.compiled}
        progress.custom = not profile.library_made

    def _evaluated(self, asked: Asked, found: Judged) -> Evaluation:
        return evaluation(asked, self._with_tools(found), self.device, self.launcher.tier)

    def _check_further(self, candidate: Candidate, task: PreparedTask) -> None:
        """More seeds, as a verification has them: a time that good is looked at twice."""
        plan = plan_for(Fidelity.VERIFY, self.device)
        again = self.warm(task.task, plan.purpose)
        with self.session.interruptible(candidate, again.cases) as runner:
            check(self.session, runner, candidate, again, plan)
