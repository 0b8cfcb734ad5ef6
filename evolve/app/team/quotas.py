"""Quotas of the user and the project of a run: refused before anything is spent, then held."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from evolve.app import components
from evolve.app.database import location_of
from evolve.app.models import build_model, has_model
from evolve.core.errors import UsageError
from evolve.core.records import Allowance
from evolve.core.run_store import RunStore
from evolve.search.quotas import Quotas, device_time_over
from evolve.search.termination import Rule
from evolve.store import RunRow, Store
from evolve.store.database.user import current_user


def termination(store: RunStore, run: RunRow, config: Mapping[str, Any]) -> Rule:
    """The rule that ends a run: its own limits, and the quotas of its user and its project."""
    read = partial(store.allowances, run.user, run.project, run.id)
    quotas = Quotas(read, usd=_spends_usd(config), device_time=_spends_device_time(config))
    return components.build_termination(config) | quotas


def refuse_over_quota(config: Mapping[str, Any], existing: RunRow | None = None) -> None:
    """Raise UsageError if a run's user or project has nothing left to spend, or not to be known.

    Args:
        config: of the run.
        existing: the stored run that is to go on; None if it is new.
    """
    project = config["project"] or ""
    location = location_of(config)
    if not Store.exists(location):
        return
    user = existing.user if existing else current_user()
    with Store.open(location, read_only=True) as store:
        for allowance in store.allowances(user, existing.project if existing else project):
            if _spends_usd(config):
                _refuse_usd(allowance, config)
            if _spends_device_time(config) and (refusal := device_time_over(allowance)):
                raise UsageError(refusal)


def _refuse_usd(allowance: Allowance, config: Mapping[str, Any]) -> None:
    quota, spent = allowance
    if quota.usd is None:
        return
    if spent.usd is None:
        raise UsageError(
            f"the quota of {quota.account}, {quota.usd:g} USD, cannot be held: a model without a "
            f"price was asked, so that the sum is unknown; {_remedy(allowance, '--since')}"
        )
    if spent.usd >= quota.usd:
        raise UsageError(
            f"{quota.account} has spent {spent.usd:.2f} of {quota.usd:.2f} USD; "
            f"{_remedy(allowance, '--usd')}, or run without a model (llm=none)"
        )
    model = build_model(config)
    unpriced = [card.name for card in model.models if not card.priced] if model else []
    if unpriced:
        raise UsageError(
            f"the quota of {quota.account}, {quota.usd:g} USD, cannot be held: {unpriced[0]} has "
            "no known price; give llm.price.prompt=... llm.price.completion=..."
        )


def _remedy(allowance: Allowance, flag: str) -> str:
    kind, name = allowance.quota.account
    return f"change it by `evolve team quota {kind} {name} {flag} ...`"


def _spends_usd(config: Mapping[str, Any]) -> bool:
    return has_model(config) and config["llm"]["kind"] != "replay"


def _spends_device_time(config: Mapping[str, Any]) -> bool:
    return bool(config["device"]["kind"] != "replay")
