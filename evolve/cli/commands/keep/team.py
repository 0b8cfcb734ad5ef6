"""`evolve team`: quotas by user and project, and the audit log."""

import argparse
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from evolve.app.database import open_store
from evolve.app.text import table
from evolve.cli.args import add_store, parser
from evolve.core.errors import UsageError
from evolve.core.records import Account, Allowance, Quota
from evolve.report.text import one_line
from evolve.search.termination import format_duration, parse_duration

KINDS = ("user", "project")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}:\d{2})?")


def main(words: Sequence[str]) -> int:
    """Show or set quotas, or show the log."""
    options = _parse(words)
    options.action(options)
    return 0


def _parse(words: Sequence[str]) -> argparse.Namespace:
    arguments = parser("team", "Quotas by user and project, and the audit log.")
    verbs = arguments.add_subparsers(required=True, metavar="ACTION")

    quota = verbs.add_parser(
        "quota",
        help="list the quotas, or set one: a limit on the sum over all runs of a user or project",
    )
    quota.add_argument("kind", nargs="?", choices=KINDS, help="whose quota to set")
    quota.add_argument("name", nargs="?", metavar="NAME", help="of the user or the project")
    quota.add_argument("--usd", metavar="N", help="for calls of models; `none`: no limit")
    quota.add_argument(
        "--device-time", metavar="TIME", help="of exclusive device time, e.g. 20h; or `none`"
    )
    quota.add_argument(
        "--since", metavar="DATE", help="count runs created since, e.g. 2026-11-01 (UTC)"
    )
    quota.set_defaults(action=_quota)

    log = verbs.add_parser(
        "log", help="starts, ends and changes with time, user and host, newest last"
    )
    log.add_argument("run", nargs="?", metavar="RUN", help="of one run only (default: all)")
    log.add_argument("-n", "--number", type=int, default=50, help="entries (default: 50)")
    log.set_defaults(action=_log)

    for verb in (quota, log):
        verb.add_argument("--json", action="store_true", help="for machines")
        add_store(verb)
    return arguments.parse_args(words)


def _quota(options: argparse.Namespace) -> None:
    given = {"usd": options.usd, "device_time": options.device_time, "since": options.since}
    if options.kind is None:
        if named := [f"--{name.replace('_', '-')}" for name, value in given.items() if value]:
            raise UsageError(f"{named[0]} is of a quota: `evolve team quota user NAME {named[0]}`")
        _list(options)
        return
    if not options.name:
        raise UsageError(f"quota {options.kind}: name the {options.kind}")
    if not any(given.values()):
        raise UsageError("set at least one of --usd, --device-time, --since; --usd none: no limit")
    account = Account(options.kind, options.name)
    with open_store(options.store, read_only=False) as store:
        known = {each.quota.account: each.quota for each in store.quotas()}
        quota = _changed(known.get(account, Quota(account=account)), options)
        if quota.usd is None and quota.device_time_s is None and account not in known:
            raise UsageError(f"{account} has no quota yet; give --usd or --device-time")
        store.set_quota(quota)
    _list(options)


def _changed(quota: Quota, options: argparse.Namespace) -> Quota:
    """The quota with the limits that were given; the others stay."""
    if options.usd is not None:
        quota = replace(quota, usd=None if options.usd == "none" else _usd(options.usd))
    if (text := options.device_time) is not None:
        try:
            seconds = None if text == "none" else parse_duration(text)
        except UsageError as error:
            raise UsageError(f"--device-time {text}: {error}, or none for no limit") from error
        quota = replace(quota, device_time_s=seconds)
    if options.since is not None:
        if not _DATE.fullmatch(options.since):
            raise UsageError(f"--since {options.since}: write a date in UTC, e.g. 2026-11-01")
        quota = replace(quota, since=options.since)
    return quota


def _usd(text: str) -> float:
    try:
        usd = float(text)
    except ValueError:
        usd = math.nan
    if not 0 < usd < math.inf:
        raise UsageError(f"--usd {text}: write an amount above zero, or none for no limit")
    return usd


def _list(options: argparse.Namespace) -> None:
    with open_store(options.store) as store:
        quotas = store.quotas()
    if options.json:
        print(json.dumps([_record(each) for each in quotas], indent=1))
    elif quotas:
        print(table(("OF", "NAME", "USD", "DEVICE TIME", "SINCE"), [_row(each) for each in quotas]))
    else:
        print("no quota is set: `evolve team quota user NAME --usd 20 --device-time 8h` sets one")


def _row(each: Allowance) -> tuple[str, ...]:
    quota, spent = each
    usd = "unknown" if spent.usd is None else f"{spent.usd:.2f}"
    used = format_duration(spent.device_time_s)
    return (
        *quota.account,
        usd if quota.usd is None else f"{usd} of {quota.usd:.2f}",
        used
        if quota.device_time_s is None
        else f"{used} of {format_duration(quota.device_time_s)}",
        quota.since or "-",
    )


def _record(each: Allowance) -> dict[str, Any]:
    quota, spent = each
    return {
        **quota.account._asdict(),
        "usd": quota.usd,
        "device_time_s": quota.device_time_s,
        "since": quota.since or None,
        "spent": asdict(spent),
    }


def _log(options: argparse.Namespace) -> None:
    if options.number < 1:
        raise UsageError(f"--number {options.number}: it must be at least 1")
    with open_store(options.store) as store:
        entries = store.audit_log(options.number, options.run)
    if options.json:
        print(json.dumps([asdict(entry) for entry in entries], indent=1))
    elif entries:
        rows = [
            (
                entry.time,
                entry.user,
                entry.host,
                entry.action,
                entry.run,
                one_line(entry.detail, 80),
            )
            for entry in entries
        ]
        print(table(("TIME", "USER", "HOST", "ACTION", "RUN", "DETAIL"), rows))
    else:
        print("the log holds nothing" + (f" about {options.run}" if options.run else ""))
