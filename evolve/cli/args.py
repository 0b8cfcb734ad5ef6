"""The common part of verbs with --flags: the parser, the database option, and RUN:SEQ."""

import argparse
import re
from typing import NoReturn

from evolve.core.errors import UsageError
from evolve.store.location import DEFAULT_STORE

RUN_FACTS = ("name", "state", "reason", "created", "user", "host", "project")
"""What `--json` says of a run in any verb: attributes of `RunRow`."""

_SETTING = re.compile(r"unrecognized arguments: (?P<name>\w+)=(?P<value>\S+)")
_MAX_DIGITS = 18  # of a step's number, which has 64 bits in the database


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are `UsageError`s: one line, and where to read more."""

    def error(self, message: str) -> NoReturn:
        if setting := _SETTING.fullmatch(message):
            message += f", this verb takes flags: --{setting['name']} {setting['value']}"
        raise UsageError(f"{message}; see `{self.prog} --help`")


def parser(verb: str, description: str) -> Parser:
    """The parser of `evolve VERB`."""
    return Parser(prog=f"evolve {verb}", description=description)


def print_settings(verb: str, text: str = "") -> int:
    """The help of a verb with key=value words: `text`, or its usage, and its settings."""
    from evolve.app.config.locate import config_dir

    settings = (config_dir() / f"{verb}.yaml").read_text(encoding="utf-8")
    print((text or f"usage: evolve {verb} [key=value ...]\n\n") + settings, end="")
    return 0


def add_store(target: argparse.ArgumentParser, name: str = "--store") -> None:
    """The option that names the database; `name` without dashes makes it an argument."""
    target.add_argument(
        name,
        nargs=None if name.startswith("-") else "?",
        default=DEFAULT_STORE,
        metavar="STORE",
        help="the database, or postgresql://... (default: %(default)s in the current folder)",
    )


def add_device(target: argparse.ArgumentParser, text: str) -> None:
    """The option that names the device."""
    from evolve.app.device import device_words

    target.add_argument("--device", choices=device_words(), default="auto", help=text)


def add_rules(target: argparse.ArgumentParser) -> None:
    """Options that keep tasks out of training data."""
    target.add_argument(
        "--held-out",
        action="append",
        metavar="WHAT",
        help="tasks never to train on: kernelbench (the default), a file or folder of tasks, or "
        "none; repeat for more",
    )
    target.add_argument(
        "--licences-allowed",
        action="append",
        default=[],
        metavar="SPDX",
        help="keep tasks under these only (patterns as in BSD-*); by default all but those that "
        "forbid training",
    )
    target.add_argument(
        "--test-share",
        metavar="X",
        type=float,
        default=0.1,
        help="of the task families, for a test split (default: %(default)s)",
    )


def add_count(target: argparse.ArgumentParser, *names: str, default: int, text: str) -> None:
    """An option that is a number of at least 1."""
    text += " (default: %(default)s)"
    target.add_argument(*names, metavar="N", type=_at_least_one, default=default, help=text)


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: take a whole number of at least 1")
    return int(text)


def add_run(target: argparse.ArgumentParser, what: str = "name of the run") -> None:
    """The argument that names a run."""
    target.add_argument(
        "run",
        nargs="?",
        metavar="RUN",
        type=_name,
        help=f"{what} (default: the newest of the database)",
    )


def _name(text: str) -> str:
    """A name that the database can be asked for: bytes of another encoding cannot be in it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise argparse.ArgumentTypeError("it is not UTF-8 text") from error
    return text


def split_step(run: str | None) -> tuple[str | None, int | None]:
    """`NAME:SEQ` as a name and a sequence number; the newest run if the name is empty.

    Raises:
        UsageError: SEQ is not a number that a step could have.
    """
    if run is None or ":" not in run:
        return run, None
    name, _, number = run.rpartition(":")
    if not (number.isascii() and number.isdigit() and len(number) < _MAX_DIGITS):
        raise UsageError(f"RUN:SEQ needs the number of a step after the colon, got '{run}'")
    return name or None, int(number)
