"""`evolve team`, and quotas in the commands that spend.

Invariants:
- over a quota a run is refused with status 2 and one line that names the remedy, and nothing of it
  is stored; a resume is too;
- quotas are listed with the spending, and changed limit by limit;
- the log names the user, and changes of quotas are in it.
"""

import json
from pathlib import Path

import pytest

from evolve.core.records import Account, Quota
from evolve.store import Store
from evolve.store.database.user import current_user

ME = current_user()


@pytest.fixture
def over(recorded: Path) -> Path:
    """The run `demo`, whose user has used up a quota of device time by it."""
    with Store.open(recorded) as store:
        used = store.progress(store.run("demo").id).device_time_s
        store.set_quota(Quota(account=Account("user", ME), device_time_s=used))
    return recorded


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "words",
    [
        ("run", "task=softmax", "device=cpu"),
        ("run", "task=softmax", "device=cpu", "--dry-run"),
        ("resume", "demo", "termination.evaluations=99", "device=cpu"),
        ("bench", "suite=shipped", "problems=[softmax]", "device=cpu"),
        ("compare", "--search", "seeds", "task=softmax", "device=cpu", "termination.evaluations=9"),
    ],
    ids=lambda words: words[0] + words[-1][:3],
)
def test_a_user_over_quota_is_refused_before_anything_begins(evolve_here, over, words):
    refused = evolve_here(*words)
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert f"user {ME} has used" in line
    assert f"`evolve team quota user {ME} --device-time ...`" in line
    with Store.open(over) as store:
        assert [run.name for run in store.runs()] == ["demo"]


def test_a_project_has_a_quota_of_its_own(evolve_here, recorded):
    with Store.open(recorded) as store:
        config = dict(store.run("demo").config) | {"project": "kernels"}
        run = store.create_run(name="other", task=store.run("demo").task, config=config, seed=0)
    assert run.project == "kernels"
    evolve_here("team", "quota", "project", "kernels", "--device-time", "1h")
    shown = json.loads(evolve_here("team", "quota", "--json").stdout)
    assert shown[0]["name"] == "kernels"
    assert shown[0]["spent"] == {"usd": 0.0, "device_time_s": 0.0}
    assert evolve_here("cost", "--by", "project,user").stdout.count(ME) == 1


def test_a_project_is_named_like_a_run(evolve_here):
    refused = evolve_here("run", "task=softmax", "device=cpu", "project='a b'", "--create")
    assert refused.returncode == 2
    assert "project=a b: it may have letters" in refused.stderr


def test_quotas_are_set_limit_by_limit_and_logged(evolve_here, recorded):
    assert "no quota is set" in evolve_here("team", "quota").stdout
    evolve_here("team", "quota", "user", "ada", "--usd", "20", "--device-time", "8h")
    shown = evolve_here("team", "quota", "user", "ada", "--usd", "30", "--since", "2026-11-01")
    assert "0.00 of 30.00" in shown.stdout
    assert "of 8h" in shown.stdout
    evolve_here("team", "quota", "user", "ada", "--usd", "none", "--device-time", "none")
    assert "no quota is set" in evolve_here("team", "quota").stdout
    log = json.loads(evolve_here("team", "log", "--json").stdout)
    quotas = [entry for entry in log if entry["action"] == "quota"]
    assert [entry["user"] for entry in quotas] == [ME] * 3
    assert quotas[1]["detail"] == "user ada: 30 USD and 28800 device seconds since 2026-11-01"


def test_the_log_of_a_run_is_shown(evolve_here, recorded):
    shown = evolve_here("team", "log", "demo").stdout
    assert [line.split()[3] for line in shown.splitlines()[1:]] == ["started", "finished"]
    assert ME in shown
    assert f"by {ME} on" in evolve_here("show", "demo").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("user",), "name the user"),
        (("user", "ada"), "set at least one of"),
        (("user", "ada", "--usd", "-1"), "--usd -1: write an amount"),
        (("user", "ada", "--usd", "nan"), "--usd nan: write an amount"),
        (("user", "ada", "--device-time", "soon"), "--device-time soon"),
        (("user", "ada", "--since", "today", "--usd", "1"), "--since today"),
        (("user", "ada", "--since", "2026-11-01"), "no quota yet"),
        (("group", "ada", "--usd", "1"), "invalid choice"),
        (("--usd", "1"), "--usd is of a quota"),
    ],
)
def test_a_bad_quota_is_refused_with_the_remedy(evolve_here, recorded, words, said):
    refused = evolve_here("team", "quota", *words)
    assert refused.returncode == 2
    assert said in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
