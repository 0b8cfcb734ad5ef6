"""`evolve work`: this host's devices judge for a search on another host."""

import argparse
import math
from collections.abc import Sequence

from evolve.app.config.schema import JudgeConfig
from evolve.cli import signals
from evolve.cli.args import parser
from evolve.cli.console.terminal import notify
from evolve.core.errors import UsageError

DESCRIPTION = """\
Judge for a search on another host, which was started with cluster=pull. Only this side connects,
so it may be behind a firewall. Both sides need the same token, at least 16 characters that only
their owner may read:

  umask 077; openssl rand -hex 24 > token          # once; copy it to all hosts
  evolve run task=softmax device=cuda cluster=pull cluster.token_file=token
  evolve work --server http://HOST:8700 --token-file token device=cuda device.ids=[0,1]

Each device is a worker. The search and the worker may be restarted in any order; verdicts of the
meantime are delivered. key=value words are those of `evolve run`: device.*, sandbox.* and cuda.*.

Exit status 0: stopped, or no search for --idle; 1: the judge failed; 2: refused: another token,
device, version or judge version than the search has, or no search was ever there for --idle.
"""


def main(words: Sequence[str]) -> int:
    """Work until a signal says to stop, or there is no search for too long."""
    options = _parse(words)
    idle_s = _idle(options.idle)
    from evolve.app.cluster import work
    from evolve.app.config.compose import compose_other

    try:
        signals.run(
            work(
                compose_other("work", JudgeConfig, options.words),
                server=options.server,
                token_file=options.token_file,
                idle_s=idle_s,
                metrics=options.metrics,
                say=notify,
            )
        )
    except signals.Stopped:
        notify("stopped; other workers get the evaluations under way")
    return 0


def _parse(words: Sequence[str]) -> argparse.Namespace:
    arguments = parser("work", DESCRIPTION)
    arguments.formatter_class = argparse.RawDescriptionHelpFormatter
    arguments.add_argument("words", nargs="*", metavar="key=value", help="device=cuda, ...")
    arguments.add_argument(
        "--server", required=True, metavar="URL", help="the address that `evolve run` prints"
    )
    arguments.add_argument(
        "--token-file",
        metavar="FILE",
        help="its first line is the token (default: EVOLVE_CLUSTER_TOKEN)",
    )
    arguments.add_argument(
        "--idle", metavar="TIME", help="end after so long without a search (default: never)"
    )
    arguments.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="answer Prometheus there, which has to show the token (default: nowhere)",
    )
    return arguments.parse_intermixed_args(words)


def _idle(text: str | None) -> float:
    from evolve.search.termination import parse_duration

    if text is None:
        return math.inf
    try:
        return parse_duration(text)
    except UsageError as error:
        raise UsageError(f"--idle {text}: {error}") from error
