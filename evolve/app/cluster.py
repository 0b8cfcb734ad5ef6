"""Judges on other hosts: the settings of `cluster`, and a worker for a search on another host."""

import asyncio
import itertools
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import evolve
from evolve.core.errors import EvaluatorUnavailable, UsageError, needing
from evolve.serve import HTTP_PACKAGES
from evolve.serve.token import read_token

if TYPE_CHECKING:
    from evolve.serve.pull.evaluator import PullEvaluator
    from evolve.serve.pull.worker import PullWorker

LEASES_S = (1.0, 600.0)
SETTINGS = {
    "ray": ("address", "accelerator", "judges"),
    "pull": ("listen", "token_file", "lease"),
}
"""The settings of each kind of cluster; of another kind they have no effect."""

THERE: dict[str, dict[str, Any]] = {
    "device": {"ids": None, "slots": None, "half_width": None, "python": None},
    "sandbox": {"require": "none", "read": []},
    "cuda": {"include": [], "flags": []},
}
"""Settings of the host that a worker runs on, with the value that sets nothing."""


def cluster_of(config: Mapping[str, Any]) -> str:
    """The kind of cluster that judges; `none` for this machine, as in `evolve serve` and `work`.

    Raises:
        UsageError: settings that have no effect.
    """
    if "cluster" not in config:
        return "none"
    cluster, device = config["cluster"], config["device"]
    kind = str(cluster["kind"])
    for owner, names in SETTINGS.items():
        for name in names if owner != kind else ():
            if cluster[name] is not None:
                raise UsageError(
                    f"cluster.{name}={cluster[name]} has no effect without cluster={owner}; add "
                    "that, or leave it out"
                )
    if kind != "none" and device["kind"] == "replay":
        raise UsageError(f"cluster={kind} has no effect with device=replay; leave one of them out")
    if kind == "ray":
        _check_ray(cluster, device)
    if kind == "pull":
        _check_pull(config)
    return kind


def _check_ray(cluster: Mapping[str, Any], device: Mapping[str, Any]) -> None:
    if device["ids"] is not None:
        raise UsageError(
            f"device.ids={list(device['ids'])} has no effect with cluster=ray, where Ray chooses; "
            "cluster.judges=N says how many"
        )
    if cluster["judges"] is not None and cluster["judges"] < 1:
        raise UsageError(
            f"cluster.judges={cluster['judges']}: it must be at least 1; leave it out for all"
        )
    if device["kind"] == "cpu" and cluster["accelerator"] is not None:
        raise UsageError(
            f"cluster.accelerator={cluster['accelerator']} has no effect with device=cpu; leave it "
            "out, or take device=cuda"
        )


def _check_pull(config: Mapping[str, Any]) -> None:
    for group, idle in THERE.items():
        for name, nothing in idle.items():
            if config[group][name] != nothing:
                raise UsageError(
                    f"{group}.{name}={config[group][name]} has no effect with cluster=pull; give "
                    "it to `evolve work`"
                )


async def start_pull(cluster: Mapping[str, Any], kind: str) -> "PullEvaluator":
    """The judge of `cluster=pull`, once a worker has come.

    Args:
        cluster: its settings.
        kind: of device, which workers have to have.

    Raises:
        UsageError: settings that cannot be.
    """
    host, port = _address(cluster["listen"])
    lease_s = _lease(cluster["lease"])
    with needing("cluster=pull", "serve", HTTP_PACKAGES):
        from evolve.serve.pull.evaluator import PullEvaluator
    token = _token(cluster["token_file"], "cluster.token_file")
    return await PullEvaluator.start(kind=kind, host=host, port=port, token=token, lease_s=lease_s)


def _token(path: str | None, field: str) -> str:
    from evolve.serve.pull.protocol import TOKEN_VARIABLE

    token = read_token(path, os.environ, variable=TOKEN_VARIABLE, field=field)
    if token is None:
        raise UsageError(
            f"{field} is not set: search and workers need the same token; make one by "
            "`umask 077; openssl rand -hex 24 > token`, or set "
            f"{TOKEN_VARIABLE}"
        )
    return token


def _address(listen: str | None) -> tuple[str, int]:
    host, _, port = (listen or "").rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise UsageError(
            f"cluster.listen={listen}: it is HOST:PORT, e.g. 127.0.0.1:8700, or [::1]:8700"
        )
    return host, int(port)


def _lease(text: str | None) -> float:
    from evolve.search.termination import parse_duration

    least, most = LEASES_S
    lease_s = parse_duration(text or "")
    if not least <= lease_s <= most:
        raise UsageError(f"cluster.lease={text}: it must be from {least:g}s to {most / 60:g}m")
    return lease_s


async def work(
    config: Mapping[str, Any],
    *,
    server: str,
    token_file: str | None,
    idle_s: float,
    metrics: str | None,
    say: Callable[[str], None],
) -> None:
    """Judge for searches at an address, one after the other, until cancelled.

    Args:
        config: `device`, `sandbox` and `cuda` of this worker.
        server: the address of the search.
        token_file: has the token that it asks for (None: the environment has it).
        idle_s: ends it when no search has been there for so long; may be infinite.
        metrics: HOST:PORT where Prometheus is answered; None: nowhere.
        say: takes lines for people.

    Raises:
        UsageError: the search refuses this worker, or was never there in that time.
        EvaluatorUnavailable: no judge comes up, or none is left.
    """
    from evolve.app.device import start_evaluator
    from evolve.evaluation import LocalEvaluator
    from evolve.serve.pull.client import NoSearch, SearchClient
    from evolve.serve.pull.protocol import VERSION
    from evolve.serve.pull.worker import PullWorker

    if config["device"]["kind"] == "replay":
        raise UsageError("device=replay judges nothing new; take device=auto, cpu or cuda")
    url = _url(server)
    token = _token(token_file, "--token-file")
    where = f"--token-file {token_file}" if token_file else "the environment"
    async with AsyncExitStack() as stack:
        client = SearchClient(url, token, where, idle_s, say)
        stack.push_async_callback(client.close)
        try:
            await client.ask("/v1/check", {"protocol": VERSION, "version": evolve.__version__})
            evaluator = await start_evaluator(config)
            stack.push_async_callback(evaluator.close)
            assert isinstance(evaluator, LocalEvaluator)
            host = stack.enter_context(_own_name())
            workers = [
                PullWorker(client, place, f"{host} {place.name}", say) for place in evaluator.places
            ]
            if metrics is not None:
                from evolve.serve.metrics.workers import endpoint

                answering = endpoint(metrics, workers, token)
                stack.callback(answering.close)
                answering.open()
                say(f"metrics at {answering.url}")
            await _serve(workers, say)
        except NoSearch as error:
            if not client.was_there:
                raise UsageError(
                    f"{error}; check the address and whether the search runs"
                ) from error
            say(str(error))


async def _serve(workers: "Sequence[PullWorker]", say: Callable[[str], None]) -> None:
    """Until all have ended. If the judge of one fails, the others go on."""
    running = {asyncio.create_task(worker.run()) for worker in workers}
    try:
        while running:
            ended, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                error = task.exception()
                if error and not (running and isinstance(error, EvaluatorUnavailable)):
                    raise error
                say(str(error))
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _url(server: str) -> str:
    scheme, mark, rest = server.partition("://")
    if not mark or scheme not in ("http", "https"):
        raise UsageError(
            f"--server {server}: it begins with http:// or https://, e.g. http://{rest or server}"
        )
    if not rest or "@" in rest:
        raise UsageError(
            "--server: give http://HOST:PORT as the search prints it; a token belongs into "
            "--token-file"
        )
    return server.rstrip("/")


@contextmanager
def _own_name() -> Iterator[str]:
    """A name that no other worker of this host has, and that the next one gets after a crash.

    It is bound as an abstract socket, which the kernel lets go of with the process.
    """
    host = socket.gethostname()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mark:
        for number in itertools.count(1):
            try:
                mark.bind(f"\0evolve-work-{number}")
            except OSError:
                continue
            yield host if number == 1 else f"{host}#{number}"
            return
