"""`evolve serve`: the judge behind HTTP, for training loops and other clients."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import MISSING

from evolve.app.config.schema import JudgeConfig
from evolve.cli import signals
from evolve.cli.args import print_settings
from evolve.cli.console.terminal import notify
from evolve.core.errors import UsageError, needing
from evolve.serve import HTTP_PACKAGES
from evolve.serve.token import LOOPBACK_NAMES, is_loopback, read_token

if TYPE_CHECKING:
    from evolve.serve.quota import DeviceQuota
    from evolve.serve.service import Service

TOKEN_VARIABLE = "EVOLVE_SERVE_TOKEN"


class References(Enum):
    """Which references a request may bring."""

    known = "known"
    any = "any"


@dataclass
class ServeConfig(JudgeConfig):
    """The types of conf/serve.yaml, which describes each field."""

    host: str = MISSING
    port: int = MISSING
    token_file: str | None = None
    jobs: str = MISSING
    tasks: list[str] = field(default_factory=list)
    references: References = References.known
    rewards: list[str] = field(default_factory=list)
    queue: int = MISSING
    queue_time: str = MISSING
    attempts: int = MISSING
    keep: str = MISSING
    quotas: str | None = None
    project: str | None = None


def main(words: Sequence[str]) -> int:
    """Serve until a signal says to stop; the exit status is 0 then."""
    if {"-h", "--help"} & {*words}:
        return print_settings("serve")
    config = compose(words)
    token = read_token(config["token_file"], os.environ, variable=TOKEN_VARIABLE)
    require_token(config["host"], token)
    with suppress(signals.Stopped):
        signals.run(_serve(config, token))
    return 0


def compose(words: Sequence[str]) -> dict[str, Any]:
    """The configuration that `key=value` words give, as plain data.

    Raises:
        UsageError: a word, a key or a value that cannot be.
    """
    from evolve.app.config.compose import compose_other

    return compose_other("serve", ServeConfig, words)


def require_token(host: str, token: str | None) -> None:
    """Raise UsageError if a server without a token could be reached from other machines."""
    if token is None and not is_loopback(host):
        raise UsageError(
            f"host={host}: a server that other machines reach needs a token, since its clients "
            f"have code run here; set token_file=FILE or {TOKEN_VARIABLE}, or leave host out"
        )


async def _serve(config: Mapping[str, Any], token: str | None) -> None:
    with needing("evolve serve", "serve", HTTP_PACKAGES):
        from evolve.serve.http import listen, run, url_of
    from evolve.app.device import kind_of
    from evolve.core.devices import device_kind
    from evolve.serve.app import create_app
    from evolve.serve.catalogue import Catalogue

    if config["device"]["kind"] == "replay":
        raise UsageError("device=replay judges nothing new; take device=auto, cpu or cuda")
    size = device_kind(kind_of(config)).size
    catalogue = Catalogue(
        config["tasks"], size=lambda: size, any_reference=config["references"] == "any"
    )
    service = _service(config)
    try:
        with listen(config["host"], config["port"]) as listener:
            await service.start()
            app = create_app(service, catalogue, token=token, hosts=() if token else LOOPBACK_NAMES)
            for line in _welcome(service, url_of(listener), token):
                print(line, flush=True)
            await run(app, listener, service)
    finally:
        await service.close()


def _service(config: Mapping[str, Any]) -> "Service":
    from evolve.app.device import start_evaluator
    from evolve.search.termination import parse_duration
    from evolve.serve.jobs import Jobs
    from evolve.serve.service import Service, Settings
    from evolve.trajectories.rewards import reward, reward_names

    for name in ("queue", "attempts"):
        if config[name] < 1:
            raise UsageError(f"{name}={config[name]}: it must be at least 1")
    settings = Settings(
        queue=config["queue"],
        queue_s=parse_duration(config["queue_time"]),
        attempts=config["attempts"],
        keep_s=parse_duration(config["keep"]),
    )
    rewards = {one.name: one for one in map(reward, (*reward_names(), *config["rewards"]))}
    jobs, quota = Jobs(Path(config["jobs"])), _quota(config)
    return Service(jobs, lambda: start_evaluator(config), rewards, settings, notify, quota)


def _quota(config: Mapping[str, Any]) -> "DeviceQuota | None":
    from evolve.serve.quota import DeviceQuota
    from evolve.store import Store

    location, project = config["quotas"], config["project"]
    if location is None:
        if project is not None:
            raise UsageError(f"project={project} has no effect without quotas=DATABASE; add that")
        return None
    return DeviceQuota(Store.open(location), project or "")


def _welcome(service: "Service", url: str, token: str | None) -> Iterator[str]:
    judge = service.judge.known
    yield f"judge   {judge.device_class}, {judge.slots} at once, version {judge.evaluator_version}"
    yield f"jobs    {service.jobs.path}"
    if token is None:
        yield "token   none: every process on this machine may have code judged here"
    yield f"serving {url}"
