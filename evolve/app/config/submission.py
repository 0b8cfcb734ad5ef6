"""`hydra/launcher=...`: runs as jobs of a cluster, by a launcher plug-in of Hydra (submitit)."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from omegaconf import DictConfig

from evolve.core.errors import EvaluatorUnavailable, EvolveError, UsageError

GROUP = "hydra/launcher"
LOCAL, SLURM = "submitit_local", "submitit_slurm"
FOLDER = "runs/jobs"  # of job files and logs; on the disk that submitting host and nodes share
DEFAULTS = {"hydra.sweep.dir": FOLDER}
SLURM_DEFAULTS = {"hydra.launcher.max_num_timeout": "1000000"}  # each resumes where it was stopped
SIGNAL = {"SUBMITIT_PREEMPT_SIGNAL": "USR1"}  # stops a search cleanly; submitit's own kills it

PlainJob = Callable[[Mapping[str, Any]], int]


@dataclass(frozen=True)
class Returned:
    """A job as a function of its composed configuration and the typed words, for another process.

    It returns its exit status, or the error that it ended with: Hydra would print one of its own.
    """

    job: PlainJob
    words: Sequence[str]

    def __call__(self, config: DictConfig) -> int | EvolveError | OSError:
        from evolve.app.config.compose import to_plain

        try:
            return self.job(to_plain(config, self.words))
        except (EvolveError, OSError) as error:
            return error


def is_restarted() -> bool:
    """Whether this process is of a job that the cluster has started again by itself."""
    return os.environ.get("SLURM_RESTART_COUNT", "0") not in ("", "0")


def launcher_of(words: Sequence[str]) -> str:
    """The launcher that the words name; empty without one.

    Raises:
        UsageError: it is named for a single run, where Hydra has no use for it, or cannot work.
    """
    named = [word.partition("=")[2] for word in words if word.partition("=")[0] == GROUP]
    if not named or named[-1] == "basic":
        return ""
    if not {"-m", "--multirun"} & {*words}:
        raise UsageError(f"{GROUP}={named[-1]} has no effect without -m; write `evolve run -m ...`")
    if named[-1] not in (LOCAL, SLURM):
        raise UsageError(f"{GROUP}={named[-1]}: take {LOCAL}, {SLURM} or basic")
    if not _is_installed():
        raise UsageError(
            f"{GROUP}={named[-1]} needs hydra-submitit-launcher; "
            "`pip install 'evolve-kernels[slurm]'` brings it"
        )
    if named[-1] == SLURM and shutil.which("sbatch") is None:
        raise UsageError(
            f"{GROUP}={SLURM}: there is no sbatch here; start this on a host of the Slurm cluster, "
            f"or take {GROUP}={LOCAL}"
        )
    return named[-1]


def with_defaults(overrides: Sequence[str], launcher: str) -> list[str]:
    """The overrides, and those that searches need and that the words leave open."""
    given = {word.lstrip("+").partition("=")[0] for word in overrides}
    defaults = DEFAULTS | (SLURM_DEFAULTS if launcher == SLURM else {})
    return [*overrides, *(f"{key}={value}" for key, value in defaults.items() if key not in given)]


def results(launch: Callable[[], Any]) -> list[int]:
    """The exit statuses of all jobs, once they have ended.

    Args:
        launch: sends them, and returns batches of Hydra's `JobReturn`.

    Raises:
        EvolveError, OSError: the first that a job ended with.
    """
    with patch.dict(os.environ, SIGNAL), _explained():
        returned = [each.return_value for batch in launch() for each in batch]
    errors = [each for each in returned if not isinstance(each, int)]
    if errors:
        raise errors[0]
    return returned


@contextmanager
def _explained() -> Iterator[None]:
    from submitit.core.utils import FailedSubmissionError, UncompletedJobError

    try:
        yield
    except FailedSubmissionError as error:
        raise UsageError(f"the jobs were not accepted: {_last_line(error)}") from error
    except UncompletedJobError as error:
        raise EvaluatorUnavailable(
            f"a job ended without a result: {_last_line(error)}; the logs are in {FOLDER}, and "
            "`evolve resume RUN` goes on"
        ) from error


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _is_installed() -> bool:
    from importlib.util import find_spec

    return find_spec("hydra_plugins") is not None and (
        find_spec("hydra_plugins.hydra_submitit_launcher") is not None
    )
