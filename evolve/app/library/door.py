"""The functions that a Python program or a notebook calls to search and to judge."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from evolve.app.config.compose import compose
from evolve.app.database import place
from evolve.app.device import device_words, kind_here
from evolve.app.launch import launch
from evolve.app.library.blocking import blocking
from evolve.app.library.evaluation import Place, judge, request_for
from evolve.app.library.events import Callback, EventFrontend
from evolve.app.library.result import Result
from evolve.app.library.words import Inputs, as_words, limits, task_word, together
from evolve.core.errors import UsageError
from evolve.core.evaluation import Evaluation, Fidelity
from evolve.core.program import without_model
from evolve.report.audit import weak_task_text
from evolve.store.location import DEFAULT_STORE, folder_of
from evolve.tasks.files import read_text
from evolve.worker.base.scratch import ScratchFolder

TASKS = "tasks"  # folder beside a database with the texts of tasks that were classes or functions


async def optimize_async(
    task: str | os.PathLike[str] | type | Callable[..., Any],
    *,
    inputs: Inputs = None,
    init_inputs: Inputs = None,
    search: str | None = None,
    budget: str | Mapping[str, Any] | None = None,
    model: str | None = None,
    store: str | os.PathLike[str] = DEFAULT_STORE,
    name: str | None = None,
    device: str | None = None,
    settings: Mapping[str, Any] | None = None,
    on_event: Callback | None = None,
) -> Result:
    """Search for the fastest correct kernel of a task within a budget.

    Args:
        task: a shipped task's name, the path of a task file, `kernelbench:1/40`, a function, or a
            `torch.nn.Module` class. The text of a function or class and all that it uses becomes
            a task file beside the database.
        inputs: if `task` is a class or a function: a function without arguments that returns the
            list of the arguments of `forward` or of the function, or a dict by name for the latter.
        init_inputs: the list of arguments of a class's constructor; None: it takes none.
        search: a preset (`conf/search`), such as `quick` or `kernel_smith`; None: the default.
        budget: wall time, such as `"10m"`, or limits by name, such as
            `{"usd": 5, "evaluations": 200}` (`termination.*` of the configuration); limits that it
            does not name keep their defaults, None lifts one.
        model: `provider/name`, which LiteLLM calls; None: the built-in operators alone.
        store: path of the database, or the URL of a PostgreSQL server.
        name: of the run. A run that the database has is resumed. None: a new run, named after the
            task.
        device: `cpu` or `cuda`; None: a GPU if there is one.
        settings: further settings of `evolve run` by dotted name, `{"seed": 1}`.
        on_event: is called with each `Event`, in the thread of the search. An exception that it
            raises ends the search and comes out here.

    Returns:
        The run as it stands at the end, also if the search was stopped before its end.

    Raises:
        UsageError: an argument that cannot be, named with its value and a remedy.
        EvaluatorUnavailable: no judge comes up on this machine.
    """
    began = time.monotonic()
    frontend = EventFrontend(on_event)
    _require_text(search=search, model=model, name=name, device=device)
    location = _location(store)
    folder = folder_of(location) / TASKS
    given = {
        "task": task_word(task, inputs, init_inputs, folder),
        "search": search,
        "llm.model": model,
        **{f"store.{name}": value for name, value in place(location).items()},
        "name": name,
        "on_exists": "resume" if name and "on_exists" not in (settings or {}) else None,
        "device": device,
    }
    given = {key: value for key, value in given.items() if value is not None} | limits(budget)
    config = compose(as_words(together(given, settings)))
    await launch(config, frontend, began)
    assert frontend.place is not None
    return Result(*frontend.place)


async def evaluate_async(
    source: str | os.PathLike[str],
    task: str | os.PathLike[str] | type | Callable[..., Any],
    *,
    inputs: Inputs = None,
    init_inputs: Inputs = None,
    fidelity: str = "search",
    baseline: str = "eager",
    device: str = "auto",
    size: str | None = None,
    precision: str = "task",
    accumulation: str = "ieee",
    store: str | os.PathLike[str] | None = None,
    on_event: Callback | None = None,
) -> Evaluation:
    """Judge one program with the whole evaluation service, in its sandbox.

    Args:
        source: the text of a program that defines `ModelNew`, or the path of its file.
        task: as in `optimize`.
        inputs: as in `optimize`.
        init_inputs: as in `optimize`.
        fidelity: how far to go: `check` (correctness only), `screen` (a few timings), `reward`,
            `search`, or `verify` (all of it in fresh processes).
        baseline: the opponent besides `eager`: `compile`, `file:mine.py`, ...
        device: `cpu`, `cuda`, or `auto`: a GPU if there is one.
        size: which entry of the task's `SIZES`: `tiny`, `cpu`, `gpu`; None: the device's.
        precision: dtype of floating inputs and parameters: `fp32`, `fp16`, `bf16`; `task`: as the
            task makes them.
        accumulation: the arithmetic that the program may use: `ieee`, `tf32`, `half`.
        store: a database, from which a verdict that it knows is taken; None: it is judged.
        on_event: is called with each `Notice` and `Phase`.

    Returns:
        The verdict. A program's fault is a status of it, never an exception.

    Raises:
        UsageError: an argument that cannot be, or a task that cannot be judged.
        EvaluatorUnavailable: no judge comes up on this machine.
    """
    frontend = EventFrontend(on_event)
    location = None if store is None else _location(store)
    _require_text(baseline=baseline, size=size)
    _require("fidelity", fidelity, tuple(each.value for each in Fidelity))
    _require("device", device, device_words())
    place = Place(device=kind_here(device))
    text = _program(source)
    with ScratchFolder("module") as folder:
        request = request_for(
            text,
            task_word(task, inputs, init_inputs, folder),
            place,
            fidelity=fidelity,
            baseline=baseline,
            size=size,
            precision=precision,
            accumulation=accumulation,
        )
    verdict = await judge(request, place, frontend, location)
    if weak := weak_task_text(verdict.findings):
        frontend.warn(weak)
    return verdict.evaluation


optimize = blocking(optimize_async)
evaluate = blocking(evaluate_async)


def _require(field: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{field}={value!r}: choose one of {', '.join(allowed)}")


def _require_text(**given: object) -> None:
    for field, value in given.items():
        if not (value is None or isinstance(value, str)):
            raise UsageError(f"{field}={value!r}: give a str, or leave it out")


def _location(store: str | os.PathLike[str]) -> str:
    if not isinstance(store, str | os.PathLike):
        raise UsageError(f"store={store!r}: give the path of a database, or a PostgreSQL URL")
    return os.fspath(store)


def _program(source: str | os.PathLike[str]) -> str:
    """The text of a program that is given as such, or as the path of its file.

    Raises:
        UsageError: it is neither, or defines no `ModelNew`.
    """
    if not isinstance(source, str | os.PathLike):
        raise UsageError(
            f"source={source!r}: give the text of a program with a class ModelNew, or its path"
        )
    is_path = not isinstance(source, str) or (source.endswith(".py") and "\n" not in source)
    text = read_text(Path(source), "source") if is_path else str(source)
    if missing := without_model(text):
        raise UsageError(f"source {missing}")
    return text
