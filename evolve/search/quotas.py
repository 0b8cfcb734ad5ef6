"""Quotas of users and projects as a rule that ends a run."""

import time
from collections.abc import Callable, Iterator, Sequence

from evolve.core.protocols import Progress
from evolve.core.records import Allowance
from evolve.search.termination import Rule, format_duration

FRESH_S = 1.0  # how long the spending of other runs is taken for current


def device_time_over(allowance: Allowance) -> str:
    """Why nothing may start under a quota of device time, with the remedy; empty if it may."""
    quota, spent = allowance
    limit = quota.device_time_s
    if limit is None or spent.device_time_s < limit:
        return ""
    kind, name = quota.account
    used, most = map(format_duration, (spent.device_time_s, limit))
    return (
        f"{quota.account} has used {used} of {most} device time; "
        f"change it by `evolve team quota {kind} {name} --device-time ...`"
    )


class Quotas(Rule):
    """Fires if a run and all others of its user or project have spent a quota together.

    With a quota in USD used up, a run without a model goes on. Runs that spend at the same moment
    may exceed a quota by the calls that they commit within `FRESH_S`.

    Args:
        read: the quotas that the run is under, with the spending of others.
        usd: whether the run spends money (a replay does not).
        device_time: whether it spends device time.
    """

    name = "quota"

    def __init__(
        self, read: Callable[[], Sequence[Allowance]], *, usd: bool = True, device_time: bool = True
    ) -> None:
        self._read = read
        self._usd, self._device_time = usd, device_time
        self._known: Sequence[Allowance] = ()
        self._fresh_until = -1.0

    def used(self, progress: Progress) -> float:
        return max((min(spent / limit, 1.0) for spent, limit, _ in self._used(progress)), default=0)

    def check(self, progress: Progress) -> str | None:
        return next((why for spent, limit, why in self._used(progress) if spent >= limit), None)

    def usage(self, progress: Progress) -> dict[str, float]:
        return {}  # displays show the run's own limits

    def _used(self, progress: Progress) -> Iterator[tuple[float, float, str]]:
        """The spent part of each limit, the limit, and the reason if it is used up."""
        for quota, others in self._allowances():
            if self._usd and quota.usd is not None and progress.usd != 0.0:
                if progress.usd is None or others.usd is None:
                    yield quota.usd, quota.usd, f"the cost of {quota.account} is unknown"
                else:
                    spent = others.usd + progress.usd
                    words = f"{spent:.2f} of {quota.usd:.2f} USD of {quota.account} used"
                    yield spent, quota.usd, words
            if self._device_time and quota.device_time_s is not None:
                own = progress.device_time_s + progress.device_time_reserved_s
                spent, limit = others.device_time_s + own, quota.device_time_s
                limit_words = f"{format_duration(limit)} device time of {quota.account}"
                yield spent, limit, f"{format_duration(spent)} of {limit_words} used"

    def _allowances(self) -> Sequence[Allowance]:
        now = time.monotonic()
        if now >= self._fresh_until:
            self._known, self._fresh_until = self._read(), now + FRESH_S
        return self._known
