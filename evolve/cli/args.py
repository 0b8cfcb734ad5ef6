"""The common part of verbs with --flags: the parser, the database option, and RUN:SEQ."""

import argparse
import re
from typing import NoReturn

from evolve.core.errors import UsageError
from evolve.store.location import DEFAULT_STORE

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


def add_store(target: argparse.ArgumentParser, name: str = "--store") -> None:
    """The option that names the database; `name` without dashes makes it an argument."""
    target.add_argument(
        name,
        nargs=None if name.startswith("-") else "?",
        default=DEFAULT_STORE,
        metavar="STORE",
        help="the database, or postgresql://... (default: %(default)s in the current folder)",
    )


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
