"""The `evolve` command: finds the verb, and turns errors into one message and an exit status."""

import difflib
import errno
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import evolve
from evolve.cli.console.logs import show_warnings
from evolve.cli.detached_output import outliving_the_terminal, silence
from evolve.cli.signals import Stopped, stoppable
from evolve.core.errors import (
    FAILED,
    INTERRUPTED,
    OK,
    RESUMABLE,
    USAGE,
    EvolveError,
    StoreError,
    UsageError,
)
from evolve.report.text import one_line
from evolve.store.postgresql.address import shown

LOADING = "evolve-loading"  # name of the thread in which a library is loaded

GROUPS = {
    "run": {
        "run": "search for a fast kernel",
        "resume": "continue a run after any end",
        "bench": "search every task of a suite, one report over all",
        "prompt": "the next request to a model, without sending it",
        "ask": "write a run's next prompts as files, for a person or an agent",
        "batch": "write a run's next evaluations to a file, for a device elsewhere",
        "steer": "change a search that is under way: notes, parents, budget, pause, end",
        "tell": "take results into a run: verdicts, or replies to prompts",
    },
    "look": {
        "list": "the runs of a database",
        "compare": "several searches with equal budgets, or stored runs, side by side",
        "show": "one run, or one of its steps (RUN:SEQ)",
        "report": "write a run's offline HTML report, or that of suites (--suites)",
        "ui": "follow the runs of a database on a page, and steer them (--steer)",
        "cost": "costs of runs, in USD, tokens and device seconds",
        "tasks": "the tasks that ship; `tasks capture`: those of your script; `tasks --help`",
    },
    "judge": {
        "eval": "judge one file with the whole evaluation service",
        "serve": "the evaluation service behind HTTP, with rewards for training",
        "mcp": "judge and runs as tools of coding agents (MCP)",
        "work": "judge here for a search on another host (cluster=pull)",
        "doctor": "check this machine: capabilities, and missing parts",
    },
    "data": {
        "export": "the steps of runs as training data, in a trainer's format",
        "rewards": "score a stored run with any reward, or compare two rewards",
        "lineage": "write the graph of the programs of a run (graphml, json, dot)",
        "knowledge": "the documents that prompts may quote; a new one from a run",
    },
    "keep": {
        "apply": "put winners back into the script that their tasks are from, and time it",
        "best": "write a run's winner as a standalone file, a torch-op or a suite's answer",
        "dispatch": "join the best programs of a run's workloads into one, and judge it",
        "db": "backup, prune, size, upgrade, dump, copy",
        "team": "quotas by user and project, and the audit log",
    },
}

VERBS = {verb: what for verbs in GROUPS.values() for verb, what in verbs.items()}

LONG = {  # work independent of readers of its output; named in messages about a stop
    "run": "the run began",
    "resume": "the run went on",
    "compare": "the first run began",
    "bench": "the first run began",
    "dispatch": "the set was judged",
    "eval": "there was a verdict",
    "export": "the export was complete; the same command goes on with it",
}

# Full, not to be written, broken, or gone from the network, also if no file is named.
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO, errno.ESTALE)

HELP = """\
usage: evolve VERB ...

Give a PyTorch reference, get the fastest correct kernel that a budget can find.

{verbs}

`run`, `resume`, `bench`, `serve` and `mcp` take configuration as key=value words,
all others --flags; `compare` and `work` take both:

  evolve run task=softmax                          search on this machine
  evolve run task=softmax llm.model=anthropic/NAME    with a language model
  evolve run task=./mine.py termination.wall_time=10m archive=topk
  evolve run task=softmax --dry-run                forecast the result of the budget
  evolve resume RUN termination.wall_time=2h       go on, with more time
  evolve best RUN -o kernel.py                     the winner, ready to use
  evolve eval kernel.py --task softmax --json      judge one file

`evolve VERB --help` says more, `evolve run --help` lists the configuration.
Commands that only read take the newest run of the database where none is named.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script.

    Returns:
        0 done, 1 our machinery failed, 2 the request cannot be done, as it stands or on this
        disk, 75 stopped and resumable, 130 by Ctrl-C before a run began or for the second time;
        `eval` returns 1 also for a candidate that is not correct.
    """
    code = _run(list(sys.argv[1:] if argv is None else argv), for_good=argv is None)
    if argv is None and any(thread.name == LOADING for thread in threading.enumerate()):
        # It is amid an import, which Python can neither interrupt nor outlive at its end.
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    return code


def _run(words: list[str], *, for_good: bool) -> int:
    try:
        _print_what_can_be()
        show_warnings()
        code = _dispatch(words, for_good=for_good)
        print(end="", flush=True)
        return code
    except (UsageError, StoreError) as error:
        print(f"evolve: {shown(one_line(str(error)))}", file=sys.stderr)
        return USAGE
    except EvolveError as error:
        print(f"evolve: {shown(one_line(str(error)))}", file=sys.stderr)
        return FAILED
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in (
            "evolve",
            "operators",
            "archives",
        ):
            raise
        print(_missing_package(words[0], error.name), file=sys.stderr)
        return FAILED
    except BrokenPipeError:  # `evolve list | head`
        silence(sys.stdout)
        return OK
    except OSError as error:
        if error.filename is None and error.errno not in DISK:
            raise
        return _refused_by_the_system(error)
    except Stopped as stop:
        print(f"evolve: {stop}: stopped before {LONG[words[0]]}", file=sys.stderr)
        return INTERRUPTED if stop.number == signal.SIGINT else RESUMABLE
    except KeyboardInterrupt:
        return INTERRUPTED


def _dispatch(words: list[str], *, for_good: bool) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(HELP.format(verbs="\n\n".join(map(_listed, GROUPS))))
        return OK
    if words[0] == "--version":
        print(evolve.__version__)
        return OK
    verb, *rest = words
    if verb not in VERBS:
        raise UsageError(f"there is no verb '{verb}'{_guess(verb)}; `evolve --help` lists them")
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise UsageError("the current folder is gone; change into one that exists") from error
    long = verb in LONG
    with (
        outliving_the_terminal() if long else nullcontext(),
        stoppable(for_good=for_good) if long else nullcontext(),
    ):
        code: int = importlib.import_module(_module(verb)).main(rest)
    return code


def _module(verb: str) -> str:
    group = next(group for group, verbs in GROUPS.items() if verb in verbs)
    return f"evolve.cli.commands.{group}.{verb}"


def _listed(group: str) -> str:
    """A group of verbs under its heading."""
    lines = [f"  {verb:<11}{what}" for verb, what in GROUPS[group].items()]
    return "\n".join([f"{group}:", *lines])


def _refused_by_the_system(error: OSError) -> int:
    if error.filename is None:  # perhaps standard output itself
        silence(sys.stdout)
    where = "" if error.filename is None else f"{error.filename}: "
    said = one_line(f"{where}{error.strerror}")
    print(f"evolve: {said}; mend that and try again", file=sys.stderr)
    return USAGE


def _print_what_can_be() -> None:
    """A terminal may lack a character that we print."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _guess(verb: str) -> str:
    close = difflib.get_close_matches(verb, VERBS, n=1)
    return f", did you mean '{close[0]}'?" if close else ""


def _missing_package(verb: str, module: str) -> str:
    return (
        f"evolve: `evolve {verb}` needs the Python package that provides '{module}', which is not "
        "installed here; `pip install evolve-kernels` with its dependencies brings it"
    )


if __name__ == "__main__":
    sys.exit(main())
