"""The whole service in a process of its own, over stub workers; arguments as JSON."""

import json
import os
import sys
from pathlib import Path

from evolve.cli import signals
from evolve.evaluation import LocalEvaluator
from evolve.serve.app import create_app
from evolve.serve.catalogue import Catalogue
from evolve.serve.http import listen, run
from evolve.serve.jobs import Jobs
from evolve.serve.quota import DeviceQuota
from evolve.serve.service import Service, Settings
from evolve.store import Store
from evolve.trajectories.rewards import reward, reward_names

WORKER = Path(__file__).with_name("stub_worker.py")


async def serve(options: dict) -> None:
    command = [sys.executable, "-SE", str(WORKER), str(options["slots"]), str(options["latency_s"])]

    async def start() -> LocalEvaluator:
        workers = {f"stub {n}": command for n in range(options["workers"])}
        evaluator = LocalEvaluator(workers, dict(os.environ))
        await evaluator.up()
        return evaluator

    Path("own.py").write_text("def worth(step):\n    return 7.0 if step.correct else 1 / 0\n")
    own = reward("own.py:worth")
    rewards = {name: reward(name) for name in reward_names()} | {own.name: own}
    jobs = Jobs(Path("serve.db"))
    location = options["settings"].pop("quotas", None)
    quota = DeviceQuota(Store.open(location), "training") if location else None
    service = Service(jobs, start, rewards, Settings(**options["settings"]), print, quota)
    catalogue = Catalogue(
        options["tasks"], size=lambda: "tiny", any_reference=options["references"] == "any"
    )
    hosts = () if options["token"] else ("127.0.0.1", "localhost")
    with listen("127.0.0.1", options["port"]) as listener:
        await service.start()
        print(f"serving {listener.getsockname()[1]}", flush=True)
        app = create_app(service, catalogue, token=options["token"], hosts=hosts)
        await run(app, listener, service)


# As the command does: what a shell starts in the background ignores SIGINT by itself.
signals.run(serve(json.loads(sys.argv[1])))
