"""Weights & Biases: offline unless it is told otherwise, and told nothing of this machine."""

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evolve.trackers.tracker import Point, TrackerFailed, require

# Before the import, which reads it: no reports of errors are sent anywhere.
_ENVIRONMENT = {"WANDB_ERROR_REPORTING": "false"}


class WandB:
    """`Tracker` over the `wandb` package.

    Offline, a run is a folder that `wandb sync` uploads. The key for `online` stays where wandb
    looks for it: WANDB_API_KEY, or the file of `wandb login`.

    Args:
        project: where runs are shown together.
        entity: the user or team whose project it is; None is the key's own.
        online: whether points are sent as they come.
        folder: where wandb keeps its files.

    Raises:
        UsageError: wandb is not installed.
    """

    def __init__(
        self,
        project: str = "evolve",
        entity: str | None = None,
        online: bool = False,
        folder: str = "runs",
    ) -> None:
        require("wandb", "wandb")
        self._project = project
        self._entity = entity
        self._mode = "online" if online else "offline"
        self._folder = folder
        self._wandb: Any = None
        self._run: Any = None

    def begin(self, name: str, identity: str, config: Mapping[str, Any]) -> None:
        for variable, value in _ENVIRONMENT.items():
            os.environ.setdefault(variable, value)
        self._wandb = importlib.import_module("wandb")
        try:
            Path(self._folder).mkdir(parents=True, exist_ok=True)
            self._run = self._wandb.init(
                project=self._project,
                entity=self._entity,
                name=name,
                id=identity,
                resume="allow" if self._mode == "online" else None,
                mode=self._mode,
                dir=self._folder,
                config=dict(config),
                settings=self._wandb.Settings(**_QUIET),
            )
            self._run.define_metric("step")
            self._run.define_metric("*", step_metric="step")
        except (self._wandb.Error, OSError) as error:
            raise TrackerFailed(str(error)) from error

    def add(self, point: Point) -> None:
        try:
            self._run.log({"step": point.sequence, **point.values})
        except (self._wandb.Error, OSError) as error:
            raise TrackerFailed(str(error)) from error

    def end(self) -> None:
        try:
            self._run.finish()
        except (self._wandb.Error, OSError) as error:
            raise TrackerFailed(str(error)) from error


# A missing network delays a run only briefly. No console output, source code, git state,
# command line, packages, host name or load of the machine.
_QUIET = {
    "init_timeout": 30.0,
    "finish_timeout": 60.0,
    "finish_timeout_raises": True,
    "silent": True,
    "console": "off",
    "save_code": False,
    "disable_code": True,
    "disable_git": True,
    "disable_job_creation": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
    "host": "",
}
