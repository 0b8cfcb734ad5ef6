"""Candidates that agents submit are under the quotas of the database, as a server's jobs are."""

import asyncio
import time

import pytest
from mcp import Client

from evolve.app.config.compose import compose_other
from evolve.app.mcp.parts import parts_of
from evolve.app.mcp.server import working
from evolve.cli.commands.judge.mcp import McpConfig
from evolve.core.records import Account, Quota
from evolve.store import Store
from evolve.store.database.user import current_user
from tests.agents.mcp_servers import Refused, call
from tests.agents.stub_mcp import start
from tests.agents.test_mcp import good, judged

ME, PROJECT = Account("user", current_user()), Account("project", "kernels")


@pytest.mark.slow  # search/test_quotas has those of runs, test_agent_operator of episodes
def test_what_agents_submit_is_charged_and_refused_at_the_quota(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = compose_other("mcp", McpConfig, ["database=runs.db", "project=kernels"])
    with Store.open("runs.db", create=True) as store:
        store.set_quota(Quota(account=PROJECT, device_time_s=10.0))

        async def session() -> None:
            parts = parts_of(config, print, start=lambda: start(None))
            async with working(parts) as server, Client(server) as client:
                slow = good(2.0) + "# takes 12\n"
                ticket = await call(client, "submit", task="softmax", source=slow)
                assert (await judged(client, ticket["ticket"]))["strict"]
                until = time.monotonic() + 10
                while (await _refused(client)) is None and time.monotonic() < until:
                    await asyncio.sleep(0.2)
                with pytest.raises(Refused, match=f"{PROJECT} has used 12s of 10s device time"):
                    await call(client, "submit", task="softmax", source=good(3.0))

        asyncio.run(session())
        (allowance,) = store.quotas()
        assert allowance.spent.device_time_s == 12.0


async def _refused(client: Client) -> str | None:
    try:
        await call(client, "submit", task="softmax", source=good(2.5))
    except Refused as refused:
        return str(refused)
    return None
