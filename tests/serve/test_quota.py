"""A server under a quota of device time in a database that it shares with searches.

Invariants:
1. Its device time is charged to its user and project; a crash loses that of a few seconds.
2. Without anything left it refuses jobs, and judges those that wait once the quota is raised.
3. The command does not start over quota, nor with settings that have no effect.
"""

import time
from pathlib import Path

import pytest

from evolve.cli.commands.judge.serve import _quota, compose
from evolve.core.errors import UsageError
from evolve.core.records import Account, Quota
from evolve.serve.quota import DeviceQuota
from evolve.store import Store
from evolve.store.database.user import current_user
from tests.serve.serving import serving, submission

ME = Account("user", current_user())


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    path = tmp_path / "shared.db"
    with Store.open(path, create=True) as store:
        store.set_quota(Quota(account=ME, device_time_s=10.0))
    return path


def spent(path: Path) -> dict[str, float]:
    with Store.open(path, read_only=True) as store:
        return {quota.account.kind: spent.device_time_s for quota, spent in store.quotas()}


@pytest.mark.slow
def test_a_server_charges_and_stops_and_goes_on_when_the_quota_is_raised(tmp_path, shared):
    with serving(tmp_path, slots=1, quotas=str(shared)) as server:
        words = ("takes 6", "slow 0.7")
        jobs = [server.submit(*words, marker=f"job{n}", wait_s=0)["id"] for n in range(8)]
        deadline = time.monotonic() + 20
        while spent(shared)["user"] < 12 and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(1.5)  # for the one that was being judged
        judged = len(server.judged())
        refused = server.ask.post("/v1/jobs", json=submission(marker="another"))
        assert refused.status_code == 403
        assert f"{ME} has used" in refused.json()["detail"]
        assert f"`evolve team quota {ME} --device-time" in refused.json()["detail"]
        time.sleep(1.0)
        assert len(server.judged()) == judged < 8
        with Store.open(shared) as store:
            store.set_quota(Quota(account=ME, device_time_s=600.0))
            store.set_quota(Quota(account=Account("project", "training"), device_time_s=600.0))
        assert server.submit(marker="another")["state"] == "done"
        answers = [server.ask.get(f"/v1/jobs/{job}", params={"wait_s": 20}) for job in jobs]
        assert {answer.json()["state"] for answer in answers} == {"done"}
        server.stop()
    assert spent(shared) == {"user": 48.0, "project": 48.0}


def test_a_server_over_quota_does_not_start(shared):
    with Store.open(shared) as store:
        store.charge("", 10.0)
    quota = DeviceQuota(Store.open(shared), "training")
    with pytest.raises(UsageError, match=f"{ME} has used 10s of 10s device time"):
        quota.start()
    quota.close()


def test_a_project_without_quotas_is_refused():
    with pytest.raises(UsageError, match="has no effect without quotas=DATABASE"):
        _quota(compose(["project=kernels"]))
