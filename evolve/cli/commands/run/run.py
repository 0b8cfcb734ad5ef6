"""`evolve run`: from key=value words to a finished search."""

import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evolve.cli import signals
from evolve.cli.commands.run.submitted import start as start_submitted
from evolve.core.errors import OK, RESUMABLE, UsageError

DRY_RUN = "--dry-run"
CREATE = "--create"
HYDRA_FLAGS = frozenset(
    (
        *("-h", "--help", "--hydra-help", "-i", "--info", "-m", "--multirun"),
        *("-c", "--cfg", "-p", "--package", "-cd", "--config-dir"),  # no --resolve: it shows keys
    )
)
ALIASES = {"store": "store.path", "run": "name"}  # flags of the other verbs


def main(words: Sequence[str]) -> int:
    """Compose the configuration that the words describe, and run it (or each of a sweep)."""
    began = [time.monotonic()]  # of the first run; those of a sweep follow it
    check_python()
    rest = [word for word in words if word not in (DRY_RUN, CREATE)]
    check_words(rest)
    if rest and rest[-1] in ("-c", "--cfg"):
        raise UsageError(f"{rest[-1]}: write --cfg job, which prints the configuration")
    from evolve.app.config.compose import run_with_hydra
    from evolve.app.config.submission import FOLDER, launcher_of

    def first(config: Mapping[str, Any]) -> int:
        return start(config, began.pop() if began else None)

    job: Callable[[Mapping[str, Any]], int] = first
    if DRY_RUN in words:
        job = _dry_run
    elif CREATE in words:
        job = create
    submitted = start_submitted if job is first else None
    if launcher_of(rest):
        print(
            f"jobs: their output is in {FOLDER}/.submitit, `evolve list` shows their runs",
            flush=True,
        )
    return run_with_hydra(rest, job, submitted)


def check_python(version: tuple[int, int] = sys.version_info[:2]) -> None:
    """Hydra 1.3 crashes on Python 3.14 while it builds its own --help."""
    if version >= (3, 14):
        raise UsageError(
            f"Python {version[0]}.{version[1]} is too new: Hydra 1.3, which reads the "
            "configuration, crashes there; use Python 3.11, 3.12 or 3.13"
        )


def check_words(words: Sequence[str]) -> None:
    """`check_word` for each, and no key=value that spaces have torn apart."""
    for before, word, after in zip(["", *words], words, [*words[1:], ""], strict=False):
        is_value = bool(after) and "=" not in after and not after.startswith("-")
        if ("=" not in word and after.startswith("=")) or (word.endswith("=") and is_value):
            raise UsageError(
                f"'{word} {after}': write key=value without spaces around the =, "
                f"{word.rstrip('=')}=..."
            )
        check_word(word, before)


def check_word(word: str, before: str = "") -> None:
    """Explain words of other tools before Hydra reports them less clearly.

    Args:
        word: one word of the command line.
        before: the word before it, which may be a flag that takes this one as its value.
    """
    if "=" not in word and not word.startswith("-") and not before.startswith("-"):
        raise UsageError(f"'{word}' is not key=value; for a task write task={word}")
    if word.startswith("="):
        raise UsageError(f"'{word}' names no setting before the =; for a task write task{word}")
    if word.startswith("-") and word.partition("=")[0] not in HYDRA_FLAGS:
        key, _, value = word.lstrip("-").partition("=")
        setting = ALIASES.get(key, key.replace("-", "_"))
        raise UsageError(
            f"{word}: configuration is written without dashes, {setting}={value or '...'}; "
            "the only flags are --dry-run, --create, --cfg job, --help and -m"
        )
    if before in ("-c", "--cfg") and word not in ("job", "hydra", "all"):
        raise UsageError(f"{before} {word}: write --cfg job, which prints the configuration")
    device, _, numbers = word.removeprefix("device=").partition(":")
    if word.startswith("device=") and numbers:
        raise UsageError(
            f"{word}: numbers of GPUs are a setting of their own, "
            f"device={device} device.ids=[{numbers}]"
        )


def start(config: Mapping[str, Any], began: float | None = None) -> int:
    """Create the run that `config` describes, or continue it as `on_exists` says.

    Its wall time counts from `began` on the clock of `time.monotonic` (None: now).
    """
    from evolve.app.launch import launch
    from evolve.cli.console.frontend import Terminal

    outcome = signals.run(launch(config, Terminal(), began))
    return OK if outcome.finished else RESUMABLE


def create(config: Mapping[str, Any]) -> int:
    """Store the run that `config` describes, for a judge elsewhere."""
    from evolve.app import components, launch
    from evolve.app.recall import recalled_lines

    created = launch.create(config)
    run, name = created.run, shlex.quote(created.run.name)
    state = launch.taken_over_text(created.verdicts) or ", nothing judged yet"
    print(f"run {run.name} in {created.location}{state}")
    for line in recalled_lines(run.config):
        print(line)
    for line in created.notes:
        print(line)
    print(f"next        evolve batch {name} -o in.jsonl")
    if components.asks_models(components.build_operators(run.config)):
        print(f"or          evolve ask {name} --out prompts")
    return OK


def _dry_run(config: Mapping[str, Any]) -> int:
    from evolve.app.estimate.dry_run import dry_run
    from evolve.cli.console.frontend import Terminal

    signals.run(dry_run(config, Terminal()))
    return OK
