"""TensorBoard: event files on disk, written without torch or TensorFlow."""

import importlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evolve.core.digest import canonical_json
from evolve.trackers.tracker import Point, TrackerFailed, require

FLUSH_S = 10


class TensorBoard:
    """`Tracker` that writes a folder of event files for each run.

    Args:
        folder: where `tensorboard --logdir` looks; a run's folder in it has its name.

    Raises:
        UsageError: TensorBoard is not installed.
    """

    def __init__(self, folder: str = "runs/tensorboard") -> None:
        require("tensorboard", "tensorboard")
        self._folder = Path(folder)
        self._writer: Any = None

    def begin(self, name: str, identity: str, config: Mapping[str, Any]) -> None:
        module = importlib.import_module("tensorboard.summary.writer.event_file_writer")
        path = self._folder / name
        try:
            self._writer = module.EventFileWriter(str(path), flush_secs=FLUSH_S)
        except OSError as error:
            raise TrackerFailed(f"{path} cannot be written: {error.strerror}") from error
        self._write(0, [_text("config", canonical_json(config))])

    def add(self, point: Point) -> None:
        self._write(
            point.sequence,
            [{"tag": name, "simple_value": value} for name, value in point.values.items()],
        )

    def end(self) -> None:
        try:
            self._writer.close()
        except OSError as error:
            raise TrackerFailed(str(error)) from error

    def _write(self, step: int, values: list[dict[str, Any]]) -> None:
        proto: Any = importlib.import_module("tensorboard.compat.proto.event_pb2")
        event = proto.Event(wall_time=time.time(), step=step, summary={"value": values})
        try:
            self._writer.add_event(event)
        except OSError as error:
            raise TrackerFailed(str(error)) from error


def _text(tag: str, text: str) -> dict[str, Any]:
    """A value of TensorBoard's text plugin."""
    shown = {"dtype": "DT_STRING", "string_val": [text.encode()], "tensor_shape": {}}
    return {"tag": tag, "metadata": {"plugin_data": {"plugin_name": "text"}}, "tensor": shown}
