"""Invariants, on both back ends.

1. A run names the user, the host and the project that started it.
2. Quotas count all runs of a user or project, replays left out, from the date that they name on.
3. The audit log has user, host and time of each action; the database refuses to change it.
"""

import os
import pwd
import socket

import pytest
from sqlalchemy import text

from evolve.core.model import CallStatus, Message, ModelReply, ModelRequest, Reservation
from evolve.core.records import Account, Quota
from evolve.store import RunRow, Store
from tests.store.facts import TASK, SmallArchive, new_run, take_step
from tests.store.servers import ON_A_SERVER

BACK_ENDS = ("sqlite", ON_A_SERVER)
ME = pwd.getpwuid(os.geteuid()).pw_name
MINE, KERNELS = Account("user", ME), Account("project", "kernels")


def started(store: Store, name: str, **config: object) -> RunRow:
    """A run of the project `kernels`."""
    return store.create_run(name=name, task=TASK, config={"project": "kernels", **config}, seed=0)


def spend(store: Store, run: int, usd: float | None) -> None:
    asked = ModelRequest(messages=(Message("user", f"Faster by {usd}."),), purpose="propose")
    (ticket,) = store.request(run, "write", (), asked, "m/one")
    call = store.begin_call(ticket, Reservation(tokens=9, usd=usd))
    reply = ModelReply(status=CallStatus.COMPLETED, text="So.", cost_usd=usd)
    store.end_call(call, reply)


def test_a_run_names_who_started_it(store: Store) -> None:
    run = started(store, "named")
    assert (run.user, run.host, run.project) == (ME, socket.gethostname(), "kernels")
    assert store.run("named") == run
    assert new_run(store).project == ""


def test_a_quota_counts_what_all_runs_of_the_user_and_the_project_have_spent(store: Store) -> None:
    store.set_quota(Quota(account=MINE, usd=5.0))
    store.set_quota(Quota(account=KERNELS, usd=2.0, device_time_s=60.0))
    mine, other = started(store, "mine").id, new_run(store, "other").id
    spend(store, mine, 0.5)
    spend(store, other, 0.25)
    take_step(store, mine, SmallArchive(), 1)
    user, project = store.quotas()
    assert (user.quota.account, project.quota.account) == (MINE, KERNELS)
    assert user.spent.usd == pytest.approx(0.75)
    assert project.spent.usd == pytest.approx(0.5)
    assert project.spent.device_time_s == pytest.approx(0.25)
    user, project = store.allowances(ME, "kernels", but=mine)
    assert (user.spent.usd, project.spent.usd) == (pytest.approx(0.25), 0.0)
    assert store.allowances("nobody", "nothing") == []


def test_a_call_under_way_counts_as_reserved(store: Store) -> None:
    store.set_quota(Quota(account=MINE, usd=5.0))
    asked = ModelRequest(messages=(Message("user", "Faster."),), purpose="propose")
    (ticket,) = store.request(started(store, "mine").id, "write", (), asked, "m/one")
    store.begin_call(ticket, Reservation(tokens=9, usd=1.5))
    assert store.quotas()[0].spent.usd == pytest.approx(1.5)


def test_a_replay_spends_nothing(store: Store) -> None:
    store.set_quota(Quota(account=MINE, usd=5.0, device_time_s=9.0))
    replay = {"llm": {"kind": "replay"}, "device": {"kind": "replay"}}
    run = started(store, "again", **replay).id
    spend(store, run, 0.5)
    take_step(store, run, SmallArchive(), 1)
    assert store.quotas()[0].spent == store.quotas()[0].spent.__class__()


def test_an_unpriced_call_makes_the_sum_unknown(store: Store) -> None:
    store.set_quota(Quota(account=MINE, usd=5.0))
    spend(store, started(store, "mine").id, None)
    assert store.quotas()[0].spent.usd is None


def test_a_quota_counts_the_runs_that_begin_with_its_date_or_later(store: Store) -> None:
    run = started(store, "mine")
    spend(store, run.id, 0.5)
    for since, counted in (("2020-01-01", 0.5), (run.created, 0.5), ("2999-01-01", 0.0)):
        store.set_quota(Quota(account=MINE, usd=5.0, since=since))
        assert store.quotas()[0].spent.usd == pytest.approx(counted)


def test_device_time_of_a_server_counts_for_its_user_and_project(store: Store) -> None:
    for account in (MINE, KERNELS, Account("project", "other")):
        store.set_quota(Quota(account=account, device_time_s=9.0))
    store.charge("kernels", 2.0)
    store.charge("kernels", 0.5)
    spent = {str(quota.account): used.device_time_s for quota, used in store.quotas()}
    assert spent == {str(MINE): 2.5, "project kernels": 2.5, "project other": 0.0}
    store.set_quota(Quota(account=MINE, device_time_s=9.0, since="2999-01-01"))
    assert store.allowances(ME, "")[0].spent.device_time_s == 0.0


def test_a_quota_without_limits_is_none(store: Store) -> None:
    store.set_quota(Quota(account=MINE, usd=5.0))
    store.set_quota(Quota(account=MINE))
    assert store.quotas() == []


def test_the_audit_log_tells_who_did_what(store: Store) -> None:
    run = started(store, "mine")
    store.log("resumed", run.name, "by hand")
    store.set_quota(Quota(account=MINE, usd=5.0))
    store.claim(run.id)
    store.prune(run.id)
    entries = store.audit_log(10)
    assert [entry.action for entry in entries] == ["started", "resumed", "quota", "pruned"]
    assert {(entry.user, entry.host) for entry in entries} == {(ME, socket.gethostname())}
    assert entries[2].detail == f"user {ME}: 5 USD"
    assert [entry.action for entry in store.audit_log(2, run.name)] == ["resumed", "pruned"]


@pytest.mark.parametrize("change", ["UPDATE audit_log SET detail = ''", "DELETE FROM audit_log"])
def test_the_audit_log_cannot_be_changed(store: Store, change: str) -> None:
    started(store, "mine")
    before = store.audit_log(10)
    with pytest.raises(Exception, match="append-only"):
        store._database.write(lambda connection: connection.execute(text(change)))
    assert store.audit_log(10) == before != []


def test_a_copy_brings_quotas_and_the_log_along(store: Store, tmp_path) -> None:
    started(store, "mine")
    store.set_quota(Quota(account=MINE, usd=5.0))
    with Store.open(tmp_path / "copy.db", create=True) as target:
        store.copy_to(target)
        assert target.quotas() == store.quotas()
        *copied, last = target.audit_log(10)
        assert copied == store.audit_log(10)
        assert (last.action, last.detail) == ("copied", f"from {store.location}")
