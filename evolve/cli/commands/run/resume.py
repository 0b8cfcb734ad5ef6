"""`evolve resume`: continue a stored run after any end."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from evolve.app.database import place
from evolve.cli import signals
from evolve.cli.commands.run.run import check_python, check_word
from evolve.core.errors import OK, RESUMABLE, UsageError
from evolve.store.location import DEFAULT_STORE

HELP = """\
usage: evolve resume [RUN] [key=value ...]

Continue a run of the database (default: the newest) after any end, kill -9
included. Without settings it continues as before. These settings may differ from
the stored ones; changes of termination, llm, agent and trackers are kept:

  termination.*   the budget:           termination.wall_time=2h
  llm.*           the model:            llm.model=provider/name
  agent.*         the coding agent:     agent.verdicts=12
  device.*        the judge's device:   device.ids=[0,1]  device.python=/path/to/python
  cluster.*       hosts that judge:     cluster=pull cluster.token_file=F
  sandbox.*       the confinement:      sandbox.require=namespaces
  trackers.*      curves:               trackers=tensorboard
  store.path      the database file (default: %s)
  store.url       or a PostgreSQL server

Any other difference is refused and printed. If the limits are used up, only the
remaining work is done: cancelled programs, and the verification of the winner.

Exit status 0: finished; 75: run the command again (stopped, the judge failed, or
no time was left to verify the winner); 130: Ctrl-C before the search began, or
twice; 1: the judge does not start; 2: refused.
"""

_PLACES = ("store.path=", "store.url=")


def main(words: Sequence[str]) -> int:
    """Continue the run that the words name."""
    if {"-h", "--help"} & {*words}:
        print(HELP % DEFAULT_STORE, end="")
        return 0
    began = time.monotonic()
    check_python()
    names = [word for word in words if "=" not in word]
    overrides = [word for word in words if "=" in word]
    for word in words:
        if word not in names or word.startswith("-"):
            check_word(word)
    if len(names) > 1:
        raise UsageError(f"resume takes one run, got {', '.join(names)}; settings are key=value")
    return signals.run(_resume(names[0] if names else None, overrides, began))


async def _resume(name: str | None, overrides: Sequence[str], began: float) -> int:
    from evolve.app import components
    from evolve.app.config.upgrade import completed
    from evolve.app.device import as_judged, start_evaluator
    from evolve.app.launch import needs_compiled, prepare_created
    from evolve.app.models import key_notes
    from evolve.app.session import search
    from evolve.app.team.quotas import refuse_over_quota
    from evolve.cli.console.frontend import Terminal
    from evolve.report.audit import findings_of
    from evolve.store import Store

    with Store.open(_location(overrides)) as store:
        run = completed(store.run(name))
        config = as_judged(overridden(run.config, overrides), store, run)
        config = {**config, "store": {**config["store"], **place(store.location)}}
        for notice in store.notices:
            print(notice)
        components.build_all(config, run=run.name)
        refuse_over_quota(config, run)
        for note in key_notes(config, is_new=False):
            print(note)
        store.claim(run.id)  # before a judge starts: another process may continue the run
        store.release(run.id, run.state, run.reason)
        terminal = Terminal()
        with terminal.doing("starting the judge", plain=False):
            evaluator = await start_evaluator(config, compiles=needs_compiled(run, config))
        try:
            print(f"resuming {run.name} in {store.location}")
            run = await prepare_created(store, run, config, evaluator, terminal)
            config = {**config, "audit": findings_of(run.config)}
            outcome = await search(store, run, config, evaluator, terminal, began=began)
            return OK if outcome.finished else RESUMABLE
        finally:
            await evaluator.close()


def _location(overrides: Sequence[str]) -> str:
    named = [word.partition("=")[2] for word in overrides if word.startswith(_PLACES)]
    return named[-1].strip("'\"") if named else DEFAULT_STORE


def overridden(stored: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The stored configuration with the changes that the words make.

    Hydra composes the words alone, so that options of groups, types and names are checked as in
    `evolve run`; then each key that a word names is taken over.

    Raises:
        UsageError: a word that Hydra refuses, or a change that is not allowed.
    """
    if not overrides:
        return dict(stored)
    from evolve.app.config.compose import compose
    from evolve.app.config.diff import MAY_DIFFER, difference

    given = compose(["task=stored", *overrides])
    result = dict(stored)
    refused = []
    for word in overrides:
        key = word.partition("=")[0].lstrip("+~")
        group = key.partition(".")[0]
        if group not in MAY_DIFFER:
            refused += difference(word, _at(stored, key), _at(given, key))
        elif key == group:
            result[group] = given[group]
        else:
            result = _with(result, key.split("."), _at(given, key))
    if refused:
        raise UsageError(
            f"resume refuses to change the identity of the run: {'; '.join(refused)}. "
            "Only termination.*, llm.*, device.*, cluster.*, sandbox.*, trackers.*, store.path and "
            "store.url may differ"
        )
    return result


def _with(config: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """A copy of the configuration with the value at the path."""
    name, *rest = path
    return {**config, name: _with(config.get(name) or {}, rest, value) if rest else value}


def _at(config: Mapping[str, Any], key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
