"""The device that judges candidates: the setting `device`, and the hardware of this machine."""

import functools
import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evolve.app.cluster import SETTINGS, cluster_of, start_pull
from evolve.app.database import location_of
from evolve.core.devices import CPU, CUDA, DeviceKind, device_kind, device_kinds, kind_of_class
from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.core.measurement import HALF_WIDTHS
from evolve.core.protocols import Evaluator
from evolve.languages.base import Language
from evolve.languages.registry import find_language, languages_in, listed, refusal

if TYPE_CHECKING:
    from evolve.core.run_store import RunStore
    from evolve.evaluation import LocalEvaluator
    from evolve.store import RunRow

_LOGGER = logging.getLogger(__name__)
# No GPU without one: torch need not be asked.
DRIVER_NODES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
IDLE = {"replay": ("slots", "half_width", "python", "ids"), "auto": ("run",)}


def _idle(kind: DeviceKind) -> tuple[str, ...]:
    """Settings of `device` without an effect on a kind of device."""
    return ("run",) if kind.is_gpu else ("run", "ids")


def device_words() -> tuple[str, ...]:
    """The values of `--device`."""
    return ("auto", *device_kinds())


def kind_of(config: Mapping[str, Any]) -> str:
    """The kind of device that judges candidates by `config`, or did if it replays.

    Raises:
        UsageError: settings of `device` that cannot be, or a recorded run that does not exist.
        EvaluatorUnavailable: the worker's interpreter does not answer.
    """
    device = config["device"]
    _check(device)
    cluster = cluster_of(config)
    if device["kind"] == "replay":
        from evolve.store import Store

        with Store.open(location_of(config), read_only=True) as store:
            return kind_of_class(store.judge(store.run(device["run"]).id)[0])
    if cluster != "none":
        return CUDA.name if device["kind"] == "auto" else device_kind(device["kind"]).name
    return kind_here(device["kind"], device["python"])


def as_judged(config: Mapping[str, Any], store: "RunStore", run: "RunRow") -> Mapping[str, Any]:
    """The configuration with the kind of device that the run has been judged on so far.

    Raises:
        UsageError: it names the other kind, where the run's programs do not even run.
    """
    device = config["device"]
    known = store.environment(run.id)
    if not known or device["kind"] == "replay":
        return config
    kind = kind_of_class(known["device_class"])
    if device["kind"] not in ("auto", kind):
        raise UsageError(
            f"device={device['kind']}: run {run.name} has been judged on {known['device_class']}, "
            f"and its fitness means nothing elsewhere; take device={kind}, or start a new run"
        )
    return {**config, "device": {**device, "kind": kind}}


@functools.cache
def kind_here(kind: str, python: str | None = None) -> str:
    """`auto` resolved: a GPU if the worker's torch sees one, else the CPU.

    Raises:
        UsageError: there is no such interpreter.
        EvaluatorUnavailable: the worker's interpreter does not answer.
    """
    require_interpreter(python)
    if kind != "auto":
        return device_kind(kind).name
    if not _has_driver_node():
        return CPU.name
    from evolve.app.doctor.nvidia import why_no_gpu
    from evolve.evaluation.host import examine_host, promises_gpu

    why = "" if promises_gpu(python) else why_no_gpu(examine_host(python))
    if why:
        _LOGGER.warning("device=auto takes the CPU: %s", why)
    return CPU.name if why else CUDA.name


def require_interpreter(python: str | None, setting: str = "device.python=") -> None:
    """Raise UsageError if the interpreter that is to judge does not exist; None is this one.

    `setting` is the word before it, as typed.
    """
    if python is not None and shutil.which(python) is None:
        raise UsageError(
            f"{setting}{python}: there is no such program; give the path of a "
            "Python interpreter with torch installed"
        )


def _has_driver_node() -> bool:
    return any(Path(node).exists() for node in DRIVER_NODES)


def require_language(source: str, what: str, kind: str) -> None:
    """Raise UsageError if a language of a program's kernels cannot run on a kind of device."""
    found = languages_in(source)
    for one in found:
        if why := refusal(one, device_kind(kind)):
            names = listed((each.title for each in found), "and")
            mixed = f"it has kernels in {names}, and " if len(found) > 1 else ""
            raise UsageError(f"{what}: {mixed}{why}")


def require_runnable(source: str, what: str, kind: str, python: str | None) -> None:
    """See that a program can be built and run on a kind of device, with what is installed here.

    Args:
        source: its text.
        what: the program, for messages.
        kind: of the device.
        python: the interpreter that judges, None for this one.

    Raises:
        UsageError: it cannot.
        EvaluatorUnavailable: the worker's interpreter does not answer.
    """
    require_language(source, what, kind)
    for one in languages_in(source):
        if why := _misfit(one, source, kind, python):
            raise UsageError(f"{what} is in {one.title}: {why}")


def _misfit(one: Language, source: str, kind: str, python: str | None) -> str:
    """Why a program cannot be built or run with what is installed here; empty if nothing shows."""
    if not device_kind(kind).is_gpu or not _has_driver_node():
        return "" if python else one.missing_package(source)
    from evolve.evaluation.host import examine_host
    from evolve.worker.base.host_facts import major

    facts = examine_host(python)
    if why := facts["languages"].get(one.name, ""):
        return str(why)
    named = {gpu["capability"] for gpu in facts["torch"]["gpus"]}
    capabilities = sorted(10 * major(each) + int(each.rpartition(".")[2]) for each in named)
    return next(filter(None, (one.unfit_gpu(source, each) for each in capabilities)), "")


async def start_evaluator(config: Mapping[str, Any], *, compiles: bool = False) -> Evaluator:
    """The judge that `device` and `sandbox` ask for, ready to answer.

    Args:
        config: of the run.
        compiles: whether the compiler's output for references will be requested.

    Raises:
        UsageError: a device or a sandbox tier that this host does not offer, or no such recorded
            run.
        EvaluatorUnavailable: a worker does not come up.
    """
    from evolve.evaluation import ReplayEvaluator
    from evolve.store import Store

    device, sandbox = config["device"], config["sandbox"]
    include, flags = config["cuda"]["include"], config["cuda"]["flags"]
    kind = kind_of(config)
    is_gpu = device_kind(kind).is_gpu
    if (include or flags) and not find_language("cuda").runs_on(device_kind(kind)):
        what = f"cuda.include={list(include)}" if include else f"cuda.flags={list(flags)}"
        where = "the CPU" if kind == CPU.name else f"device={kind}"
        raise UsageError(f"{what} has no effect on {where}; leave it out, or take device=cuda")
    if device["kind"] == "replay":
        recorded = Store.open(location_of(config), read_only=True)
        return ReplayEvaluator(recorded, recorded.run(device["run"]).id)
    worker = {
        "half_width": device["half_width"],
        "sandbox_require": sandbox["require"],
        "sandbox_read": sandbox["read"],
        "cuda_include": include,
        "cuda_flags": flags,
    }
    cluster = cluster_of(config)
    if cluster == "pull":
        return await start_pull(config["cluster"], kind)
    if cluster == "ray":
        from evolve.evaluation.cluster import start_cluster

        settings = {name: config["cluster"][name] for name in SETTINGS["ray"]}
        settings |= {"slots": device["slots"], "python": device["python"]}
        return await start_cluster(kind, worker, **settings)
    if not is_gpu and device["ids"] is not None:
        raise UsageError(
            f"device.ids={device['ids']}: there is no GPU that torch sees; leave it out"
        )
    return await start_local(
        kind,
        ids=device["ids"] or (0,),
        slots=device["slots"],
        python=device["python"],
        compiles=compiles,
        **worker,
    )


async def start_local(
    kind: str, *, ids: Sequence[int] = (0,), python: str | None = None, **settings: Any
) -> "LocalEvaluator":
    """`LocalEvaluator.start`; if a GPU is not to be had, the error says all that is known.

    Raises:
        UsageError: a device or a sandbox tier that this host does not offer.
        EvaluatorUnavailable: a worker does not come up.
    """
    if kind == CUDA.name and not _has_driver_node():  # before seconds of importing torch
        from evolve.app.doctor.nvidia import NO_DRIVER

        raise UsageError(f"device=cuda: {NO_DRIVER}")
    from evolve.evaluation import LocalEvaluator

    try:
        return await LocalEvaluator.start(device=kind, ids=ids, python=python, **settings)
    except (UsageError, EvaluatorUnavailable) as error:
        if kind == CUDA.name:
            raise _explained(error, ids, python) from error
        raise


def _explained(
    error: UsageError | EvaluatorUnavailable, ids: Sequence[int], python: str | None
) -> UsageError | EvaluatorUnavailable:
    """Why a worker did not come up on a GPU, as far as the host tells more than the worker."""
    from evolve.app.doctor.nvidia import why_no_gpu, why_not_these
    from evolve.evaluation.host import examine_host

    try:
        facts = examine_host(python)
    except EvaluatorUnavailable:
        return error
    if why := why_no_gpu(facts):
        return UsageError(f"device=cuda: {why}")
    if why := why_not_these(facts, ids):
        return UsageError(why)
    return error


def _check(device: Mapping[str, Any]) -> None:
    """Raise UsageError for settings that cannot be, or have no effect."""
    kind, slots, ids = device["kind"], device["slots"], device["ids"]
    half_width = device["half_width"]
    if slots is not None and slots < 1:
        raise UsageError(f"device.slots={slots}: it must be at least 1; leave it out for what fits")
    least, most = HALF_WIDTHS
    if half_width is not None and not least <= half_width <= most:
        raise UsageError(
            f"device.half_width={half_width}: it must be from {least} to {most}; 0.05 is an "
            "interval of 5 % to either side"
        )
    if ids is not None and (not ids or min(ids) < 0 or len({*ids}) < len(ids)):
        raise UsageError(
            f"device.ids={list(ids)}: name each GPU once, by its number as torch counts them, "
            "e.g. device.ids=[0,1]"
        )
    if kind == "replay" and not device["run"]:
        raise UsageError("device=replay needs device.run=RUN, the run with the verdicts")
    for name in IDLE.get(kind) or _idle(device_kind(kind)):
        if device[name] is not None:
            instead = {"run": ", or take device=replay", "ids": ", or take device=cuda"}
            raise UsageError(
                f"device.{name}={device[name]} has no effect with device={kind}; "
                f"leave it out{instead.get(name, '') if kind != 'replay' else ''}"
            )
