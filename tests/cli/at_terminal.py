"""Searches as commands start them: at a terminal, with an exit status."""

import time
from collections.abc import Mapping
from typing import Any

from evolve.app import launch as launching
from evolve.app import session
from evolve.cli.console.frontend import Terminal
from evolve.core.errors import OK, RESUMABLE
from evolve.core.protocols import Evaluator
from evolve.search.execution.pipeline import Outcome
from evolve.store import RunRow, Store


async def search(
    store: Store, run: RunRow, config: Mapping[str, Any], judge: Evaluator, **timing: Any
) -> int:
    return _status(await session.search(store, run, config, judge, Terminal(), **timing))


async def launch(config: Mapping[str, Any]) -> int:
    return _status(await launching.launch(config, Terminal(), time.monotonic()))


def _status(outcome: Outcome) -> int:
    return OK if outcome.finished else RESUMABLE
