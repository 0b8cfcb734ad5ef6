"""The worker's command line: `python -m evolve.worker serve`, `... batch IN OUT`, `... host`."""

import argparse
import contextlib
import json
import os
import threading
from pathlib import Path

from evolve.core.devices import CPU, device_kind, device_kinds
from evolve.core.measurement import HALF_WIDTHS
from evolve.worker.devices.cpu_affinity import keep_to_share


def main() -> None:
    """Parse the command line, then serve or judge a file."""
    parser = argparse.ArgumentParser(prog="python -m evolve.worker", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    serve = verbs.add_parser("serve", help="judge candidates; JSON lines on stdin and stdout")
    serve.add_argument("--cache", type=Path, default=default_cache(), help="where builds are kept")
    serve.add_argument("--sandbox-require", default="none", metavar="TIER",
                       choices=("none", "uid", "landlock", "namespaces"))  # fmt: skip
    serve.add_argument("--read", action="append", default=[], metavar="PATH",
                       help="a further path that candidates may read")  # fmt: skip
    serve.add_argument("--half-width", type=_half_width, metavar="W",
                       help="at which an interval is narrow enough, 0.05 for 5 %%")  # fmt: skip
    serve.add_argument("--cuda-include", action="append", default=[], metavar="DIR",
                       help="a folder of headers for CUDA C++, such as CUTLASS's")  # fmt: skip
    serve.add_argument("--cuda-flag", action="append", default=[], metavar="FLAG",
                       help="a further flag of nvcc, as in --cuda-flag=-O3")  # fmt: skip
    serve.add_argument("--call-timeout", type=float, default=30.0, metavar="S",
                       help="seconds that one forward may take")  # fmt: skip
    serve.add_argument("--compiles", action="store_true",
                       help="have PyTorch's compiler ready for references")  # fmt: skip
    serve.add_argument("--device", default="cpu", choices=("auto", *device_kinds()),
                       help="where candidates run")  # fmt: skip
    serve.add_argument("--index", type=int, default=0, metavar="N",
                       help="which GPU, as torch counts them")  # fmt: skip
    serve.add_argument("--share", type=_share, default=(0, 1), metavar="I/N",
                       help="keep to part I of N of the cores")  # fmt: skip
    host = verbs.add_parser("host", help="say as JSON what this interpreter finds of GPUs, tools")
    host.add_argument("--quick", action="store_true", help="only whether there should be a GPU")
    _add_batch(verbs)
    options, rest = parser.parse_known_args()
    if options.verb == "batch":
        raise SystemExit(_batch(options, rest))
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if options.verb == "host":
        from evolve.worker.base.host_facts import examine_host, promises_gpu

        print(json.dumps({"gpu": promises_gpu()} if options.quick else examine_host()))
        return
    keep_to_share(*options.share)
    # Before torch is imported: idle OpenMP threads must sleep, or they would disturb timing.
    os.environ["OMP_WAIT_POLICY"] = "passive"
    if options.device == "auto" or device_kind(options.device).is_gpu:
        see_one_gpu(options.index)
    _serve(options)


def see_one_gpu(index: int) -> None:
    """Have this process, and all that it starts, see the one GPU that it works with.

    HIP reads `CUDA_VISIBLE_DEVICES` too, unless there is a `HIP_VISIBLE_DEVICES`.
    """
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        visible = os.environ.get(name)
        if visible is not None:
            os.environ[name] = ",".join(visible.split(",")[index : index + 1])
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", str(index))


def _half_width(text: str) -> float:
    """A relative half-width, such as 0.05."""
    (least, most), width = HALF_WIDTHS, float(text)
    if not least <= width <= most:
        raise argparse.ArgumentTypeError(f"{text} is not from {least} to {most}")
    return width


def _share(text: str) -> tuple[int, int]:
    """`1/4` as numbers."""
    part, _, parts = text.partition("/")
    if not (part.isdigit() and parts.isdigit() and int(part) < int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is no part of a whole, such as 0/2 and 1/2")
    return int(part), int(parts)


def default_cache() -> Path:
    """The user's cache directory for builds."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "evolve-kernels" / "builds"


def _add_batch(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    batch = verbs.add_parser(
        "batch",
        help="judge a file of requests; the same command goes on after any end",
        description="Judge a file (or folder) of JSON lines of `evolve batch` into a folder for "
        "`evolve tell`. All further options, after IN and OUT, are those of serve. Exit status "
        "0: all is answered; 75: something is left; 1: the judge fails; 2: the words are wrong.",
        allow_abbrev=False,
    )
    batch.add_argument("requests", type=Path, metavar="IN")
    batch.add_argument("answers", type=Path, metavar="OUT")
    batch.add_argument("--deadline", type=float, metavar="S", help="seconds in which to have ended")
    batch.add_argument("--slots", type=int, metavar="N", help="under way at once on each device")
    batch.add_argument("--indices", metavar="0,1,...", help="several GPUs: one judge for each")


def _batch(options: argparse.Namespace, judge_words: list[str]) -> int:
    from evolve.worker.service.batch import judge_batch

    indices = options.indices.split(",") if options.indices else []
    return judge_batch(
        options.requests,
        options.answers,
        deadline_s=options.deadline,
        slots=options.slots,
        judges=[
            [*judge_words, "--index", index, "--share", f"{part}/{len(indices)}"]
            for part, index in enumerate(indices)
        ]
        or [judge_words],
    )


def _serve(options: argparse.Namespace) -> None:
    from evolve.worker.base import heap
    from evolve.worker.base.interpreter import WITH_COMPILER
    from evolve.worker.base.interpreter import start as start_zygote
    from evolve.worker.base.nvcc_flags import add_flags

    # All import torch for seconds, at the same time.
    on_gpu = options.device != "auto" and device_kind(options.device).is_gpu
    told = [{}, WITH_COMPILER] if options.compiles else [{}]
    ahead = [start_zygote(variables) for variables in told] if on_gpu else []
    if options.device == CPU.name:
        heap.keep_freed_memory()
        # Its malloc has to have its variables when it begins; the judge tells it all of them later.
        ahead = [start_zygote(heap.VARIABLES)._replace(variables={})]
    from evolve.worker.base import operation_cost
    from evolve.worker.build import headers
    from evolve.worker.correctness import output_sizes
    from evolve.worker.devices.base import open_device
    from evolve.worker.judge.judge import Judge
    from evolve.worker.service.server import serve

    def prepare() -> None:
        if options.device == CPU.name:
            headers.precompile()
        else:
            output_sizes.prepare()
            operation_cost.prepare()

    threading.Thread(target=prepare, daemon=True).start()  # most of the next steps wait

    def start() -> Judge:
        with contextlib.ExitStack() as on_failure:
            for started in ahead:
                on_failure.callback(started.close)
            add_flags(options.cuda_include, options.cuda_flag)
            device = open_device(options.device)
            on_failure.pop_all()
        device.half_width = options.half_width or device.half_width
        return Judge(
            device,
            options.cache.absolute(),  # its processes work in folders of their own
            options.sandbox_require,
            (*options.read, *options.cuda_include),
            options.call_timeout,
            ahead,
        )

    serve(start)


if __name__ == "__main__":
    main()
