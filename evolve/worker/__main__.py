"""The worker's command line: `python -m evolve.worker serve`."""

import argparse
import os
from pathlib import Path


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m evolve.worker", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    serve = verbs.add_parser("serve", help="judge candidates; JSON lines on stdin and stdout")
    serve.add_argument("--cache", type=Path, default=default_cache(), help="where builds are kept")
    serve.add_argument("--sandbox-require", default="none", metavar="TIER",
                       choices=("none", "uid", "landlock", "namespaces"))  # fmt: skip
    serve.add_argument("--read", action="append", default=[], metavar="PATH",
                       help="a further path that candidates may read")  # fmt: skip
    serve.add_argument("--call-timeout", type=float, default=30.0, metavar="S",
                       help="seconds that one forward may take")  # fmt: skip
    options = parser.parse_args()
    # Before torch is imported: idle OpenMP threads sleep, or they would disturb what is timed.
    os.environ["OMP_WAIT_POLICY"] = "passive"
    _serve(options)


def default_cache() -> Path:
    """The user's cache directory for builds."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "evolve-kernels" / "builds"


def _serve(options: argparse.Namespace) -> None:
    from evolve.worker.device_cpu import CpuDevice
    from evolve.worker.referee import Referee
    from evolve.worker.serve import serve

    serve(
        lambda: Referee(
            CpuDevice(),
            options.cache,
            options.sandbox_require,
            tuple(options.read),
            options.call_timeout,
        )
    )


if __name__ == "__main__":
    main()
