"""Opponents on their way to be timed beside a candidate: compiled, and checked once."""

from functools import partial

from evolve.core.evaluation import Status
from evolve.worker.base.faults import CandidateFault
from evolve.worker.processes.runner_process import RunnerProcess
from evolve.worker.session.candidate_session import Candidate, CandidateSession
from evolve.worker.session.prepared_task import PreparedCase, PreparedTask


def admit(session: CandidateSession, task: PreparedTask, opponent: Candidate) -> None:
    """Compile an opponent and check it once on every timed case.

    Raises:
        CandidateFault: it fails, or is wrong; a baseline, which is trusted, is never wrong.
    """
    session.compile(opponent, task)
    with session.interruptible(opponent, task.timed) as runner:
        for case in task.timed:
            _admit_to(session, case, opponent, runner)


def _admit_to(
    session: CandidateSession, case: PreparedCase, opponent: Candidate, runner: RunnerProcess
) -> None:
    hidden = session.hidden(partial(case.check, "task", 0))
    outcome = session.outcome(runner, case, hidden)
    name, verdict = case.case.name, outcome.verdict
    if verdict.status is not Status.CORRECT and not opponent.is_ours:
        raise CandidateFault(verdict.status, f"case {name}: {verdict.feedback}")
    opponent.layouts[name] = outcome.places
    opponent.seconds[name] = outcome.seconds
