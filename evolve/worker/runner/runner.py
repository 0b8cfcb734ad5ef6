"""The runner: the process that executes one candidate, or the reference, and serves its judge.

It has no authority. It runs commands on the inputs it gets, and says where the outputs lie in its
memory; the judge reads them there and measures the time from outside. A candidate shares this
process and may rewrite all of this module: nothing that it can say here counts as more than a place
to look at.

Commands (tuples, the first item names them) and what is answered:
    open_gpu    get ready to use the GPU -> ACK
    use_pool    put all tensors into the memory sent, `limit` bytes of it:
                `("use_pool", size, limit, library)` -> DONE
    load        execute a source; what it builds goes to a folder of the process, `may_build`, or
                comes from the folder `build`; with `stub`, custom kernels do nothing from then on:
                `("load", kind, text, build, may_build, stub)` -> ACK
    construct   build the model of a case: `("construct", case, seed, size, tree, conditions)`
                -> ACK
    trap_torch  be ready to count what torch computes in the next call -> ACK
    call        one forward: `("call", case, size, tree, may_leave)` -> OUTPUT; before it, if
                it may leave the device to compile kernels, for each of them ASIDE and BACK, which
                is answered by a command without a meaning
    account     what torch computed in the last call, after `trap_torch`: `("account",)` -> TEXT
    open_profiler
                get ready for the next -> ACK
    observe     a forward under a profiler: `("observe", case, size, tree)` -> TEXT
    events      time forwards by events: `("events", case, size, tree, trials)` -> TEXT
    isolated    a forward in a separate process, under a tool:
                `("isolated", case, size, tree, tool)` -> TEXT
    write       have a compiler write down the reference, into the variant's folder, for inputs of
                which it is told all but the values: `("write", case, size, tree, variant)` -> ACK
    use_inputs  map the memory sent, where inputs come from then on: `("use_inputs", size)` -> DONE
    use_signals map the page sent (`signals`), and spin so long for a signal before sleeping:
                `("use_signals", seconds)` -> ACK
    stage       prepare for the inputs of a block: `("stage", size, trees)` -> ACK
    run         the block, one forward for each: `("run", case, kind, turns)` -> DONE; `nothing` has
                none, `empty` such as only make an output; with `turns`, so many, each once its
                inputs are given
    record      record forwards as a CUDA graph: `("record", case, size, trees)` -> ACK
    block       get ready for a timed window on a GPU:
                `("block", case, kind, layout, trees, sequence)` -> ACK; it begins and ends by
                signals, and an error in it is answered here
    reserve     touch so many bytes of heap: `("reserve", size)` -> ACK
    drop        let go of inputs and outputs -> ACK
"""

import contextlib
import gc
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from evolve.core.protocols import BASELINES
from evolve.worker.build import cache as buildcache
from evolve.worker.build import inductor
from evolve.worker.ipc import messages, tensor_buffer
from evolve.worker.ipc.messages import ErrorKind
from evolve.worker.ipc.pytree import map_tensors, tensors_of
from evolve.worker.ipc.task_classes import PROGRAM_MODULE
from evolve.worker.reference.conditions import Bound, Conditions, wrapped
from evolve.worker.runner import (
    baselines,
    cuda_events,
    cuda_graph,
    errors,
    interpreted,
    jit,
    models,
    precompile,
    probes,
    profiling,
    tool_process,
)
from evolve.worker.runner import memory as access
from evolve.worker.runner.memory_cuda import CudaAccess
from evolve.worker.runner.outputs import EmptyCall, addresses, plain_tensors
from evolve.worker.sandbox.policy import Report

_WINDOW_S = 60.0  # until the judge has given up


def run(channel: socket.socket, report: Report) -> None:
    """Serve commands until the judge goes away; called in the confined process."""
    _forget_surroundings(channel)
    reasons = "\n".join(f"{name}: {reason}" for name, reason in report.reasons.items())
    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    messages.send_ready(channel, int(report.mask), reasons, folder)
    os.close(folder)
    runner = Runner()
    while True:
        try:
            command, fds = messages.receive_command(channel)
        except EOFError:
            return
        try:
            runner.execute(channel, command, fds)
        except BaseException as error:  # noqa: BLE001 - the boundary around candidate code
            messages.send_error(channel, errors.kind_of(error), runner.explain(error))
        finally:
            for fd in fds:
                os.close(fd)


def _forget_surroundings(channel: socket.socket) -> None:
    """Own directories for every cache, no descriptor but the channel and standard ones."""
    here = str(Path.cwd())
    for name in ("HOME", "TMPDIR", "TVM_FFI_CACHE_DIR", "TRITON_HOME",
                 "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "XDG_CACHE_HOME"):  # fmt: skip
        os.environ[name] = here
    os.environ["LOGNAME"] = "evolve"  # torch asks for a name, and this user may have none
    os.environ.setdefault("TRITON_CACHE_DIR", here)
    tempfile.tempdir = None
    kept = channel.fileno()
    os.closerange(3, kept)
    os.closerange(kept + 1, 1 << 16)
    sys.argv = [models.FILENAME]


class Runner:
    """State of one runner: the source loaded, a model per case, the last command's results."""

    def __init__(self) -> None:
        self._access: access.Access = access.CpuAccess()
        self._make: Callable[..., torch.nn.Module] | None = None
        self._models: dict[int, torch.nn.Module] = {}
        self._given: dict[int, dict[str, Any]] = {}  # their arguments, for `tool_process`
        self._build: str | None = None
        self._writes = False  # whether calls are meant to write to their inputs
        self._many_kernels = ""  # the text of a program that has them
        self._staged: list[Any] = []
        self._layouts: dict[int, list[Any]] = {}  # inputs of blocks, by the layout's number
        self._recording: cuda_graph.Recording | None = None
        self._held: list[Any] = []
        self._computed = probes.Account()
        self._trap = contextlib.ExitStack()
        self._stubs = contextlib.ExitStack()
        self._compiling = jit.Compiling()

    def execute(self, channel: socket.socket, command: tuple[Any, ...], fds: list[int]) -> None:
        name, *arguments = command
        getattr(self, f"_{name}")(channel, *arguments, *fds)

    def explain(self, error: BaseException) -> str:
        """The error, and the limit that was exceeded if memory ran out."""
        text = errors.explain(error, models.FILENAME)
        limit = self._access.limit if errors.kind_of(error) is ErrorKind.OOM else 0
        return (
            f"{text}\n(the judge gives this program {limit >> 20} MiB for tensors)"
            if limit
            else text
        )

    def _open_gpu(self, channel: socket.socket, all_queues: bool) -> None:
        self._access = CudaAccess(all_queues)
        messages.send_ack(channel)

    def _use_pool(
        self, channel: socket.socket, size: int, limit: int, library: str, fd: int
    ) -> None:
        assert isinstance(self._access, CudaAccess)
        messages.send_done(channel, 0.0, [self._access.use_pool(fd, size, limit, library)])

    def _use_inputs(self, channel: socket.socket, size: int, fd: int) -> None:
        assert isinstance(self._access, CudaAccess)
        self._layouts.clear()
        self._recording = None
        messages.send_done(channel, 0.0, [self._access.use_inputs(fd, size)])

    def _use_signals(self, channel: socket.socket, spin_s: float, fd: int) -> None:
        assert isinstance(self._access, CudaAccess)
        self._access.use_signals(fd, spin_s)
        messages.send_ack(channel)

    def _load(
        self,
        channel: socket.socket,
        kind: str,
        text: str,
        build: str | None,
        may_build: bool,
        stub: bool,
    ) -> None:
        if stub:
            self._forget()
        own = Path.cwd() / buildcache.BUILD
        if may_build or own.is_dir():  # a copy made since is not shown to this process
            build = str(own)
        if kind == "candidate":
            self._build = build
            interpreted.take_first_configurations()
            if inductor.is_wanted_by(text):  # or the first call would take as long
                with contextlib.suppress(ImportError, AttributeError, OSError, RuntimeError):
                    inductor.prepare()  # a candidate that needs it will meet the reason
            buildcache.install(text, build, may_build)
        if stub:
            self._stubs.enter_context(probes.stub_custom())
        if kind == "reference":
            self._make = models.reference(text, self._access.place)
        elif kind in BASELINES:
            baselines.prepare(build, may_build)
            self._make = baselines.run_as(kind, models.reference(text, self._access.place))
        else:
            self._many_kernels = text if precompile.is_worth_it(text) else ""
            self._make = models.candidate(text, self._access.place)
        messages.send_ack(channel)

    def _construct(
        self,
        channel: socket.socket,
        case: int,
        seed: int,
        size: int,
        tree: bytes,
        conditions: Conditions,
        fd: int = -1,
    ) -> None:
        arguments = tensor_buffer.unpack(tree, self._access.open(fd, size)) if tree else None
        assert self._make is not None
        for kept in (self._models, self._given):  # their memory may be needed
            kept.pop(case, None)
        model = self._make(case, seed, arguments, conditions)
        self._models[case] = wrapped(model, conditions)
        self._writes = self._writes or conditions.writes
        if arguments is not None:
            state = model.state_dict()
            self._given[case] = {
                "init": map_tensors(torch.clone, arguments["init"]),
                "state": {name: state[name] for name in arguments["state"] if name in state},
                "seed": seed,
                "conditions": asdict(conditions),
                "place": str(self._access.place),
                "build": self._build,
            }
        self._access.finish()
        messages.send_ack(channel)

    def _trap_torch(self, channel: socket.socket) -> None:
        self._trap.close()
        on_gpu = self._access.place.type == "cuda"
        self._computed = self._trap.enter_context(probes.count_aten(on_gpu))
        messages.send_ack(channel)

    def _call(
        self,
        channel: socket.socket,
        case: int,
        size: int,
        tree: bytes,
        may_leave: bool,
        fd: int = -1,
    ) -> None:
        memory = self._access.open(fd, size)
        inputs = tensor_buffer.unpack(tree, memory)
        is_compiled = may_leave and self._compile_ahead(channel, case, inputs)
        # The last output stays alive, so that memory handed out twice shows.
        self._held = self._held[-1:]
        with torch.no_grad(), self._trap, contextlib.ExitStack() as around:
            if may_leave and not is_compiled:
                around.enter_context(self._compiled_aside(channel))
            self._computed.forget()  # what made the inputs, as sparse ones are
            start = time.perf_counter()
            output = self._models[case](*inputs)
            self._access.finish()
            seconds = time.perf_counter() - start
            self._held.append((memory, output))
            # Still counted: the methods that are called here may be the candidate's.
            tensors, spec = plain_tensors(output)
            messages.send_output(channel, seconds, memory.data_ptr(), spec.encode(), tensors)

    def _account(self, channel: socket.socket) -> None:
        messages.send_text(channel, self._computed.to_json())

    def _compile_ahead(self, channel: socket.socket, case: int, inputs: Sequence[Any]) -> bool:
        """Have all kernels of a large program compiled at once, by a model that is then let go."""
        given = self._given.get(case)
        if not self._many_kernels or given is None or inductor.is_wanted_by(self._many_kernels):
            return False  # operators can be registered once only
        noted = self._noted(case, given, inputs)
        if self._access.place.type == "cuda":
            torch.cuda.empty_cache()  # of that model
        if noted:
            self._tell_aside(channel)
            try:
                noted.compile()
            finally:
                messages.come_back(channel)
        return noted.is_all

    def _noted(self, case: int, given: dict[str, Any], inputs: Sequence[Any]) -> precompile.Noted:
        """Errors of the candidate show when it is called."""
        module, noted = sys.modules[PROGRAM_MODULE], precompile.Noted()
        with contextlib.suppress(Exception):
            make = models.candidate(self._many_kernels, self._access.place)
            conditions = Conditions(**given["conditions"])
            model = wrapped(make(case, given["seed"], given, conditions), conditions)
            noted = precompile.noted(partial(model, *inputs))
        sys.modules[PROGRAM_MODULE] = module
        return noted

    def _tell_aside(self, channel: socket.socket) -> None:
        self._access.finish()
        messages.send_aside(channel)

    def _compiled_aside(self, channel: socket.socket) -> contextlib.AbstractContextManager[None]:
        tell, come_back = partial(self._tell_aside, channel), partial(messages.come_back, channel)
        return self._compiling.told(tell, come_back)

    def _open_profiler(self, channel: socket.socket) -> None:
        profiling.open_profiler(self._access.finish)
        messages.send_ack(channel)

    def _observe(
        self, channel: socket.socket, case: int, size: int, tree: bytes, fd: int = -1
    ) -> None:
        inputs = tensor_buffer.unpack(tree, self._access.open(fd, size))
        model = self._models[case]
        with torch.no_grad():
            messages.send_text(
                channel, profiling.observe(lambda: model(*inputs), self._access.finish)
            )

    def _events(
        self, channel: socket.socket, case: int, size: int, tree: bytes, trials: int, fd: int = -1
    ) -> None:
        inputs = tensor_buffer.unpack(tree, self._access.open(fd, size))
        model = self._models[case]
        with torch.no_grad():
            messages.send_text(channel, cuda_events.observe(lambda: model(*inputs), trials))

    def _isolated(
        self,
        channel: socket.socket,
        case: int,
        size: int,
        tree: bytes,
        tool: tuple[str, ...],
        fd: int = -1,
    ) -> None:
        inputs = tensor_buffer.unpack(tree, self._access.open(fd, size))
        # Views would be saved with all that they are views of, and nothing be out of bounds.
        call = map_tensors(torch.clone, self._given[case] | {"inputs": inputs})
        messages.send_text(
            channel, tool_process.observe(tool, str(Path.cwd() / models.FILENAME), call)
        )

    def _write(
        self, channel: socket.socket, case: int, size: int, tree: bytes, variant: str
    ) -> None:
        model = self._models[case]
        _, given = tensor_buffer.Outline(tree, size).without_values(self._access.place)
        arguments: Sequence[Any] = given
        if isinstance(model, Bound):
            model, arguments = model.unbound(given)
        inductor.write(case, model, arguments, variant)
        messages.send_ack(channel)

    def _stage(
        self, channel: socket.socket, size: int, trees: tuple[bytes, ...], fd: int = -1
    ) -> None:
        memory = self._access.stage(fd, size, self._writes)
        self._held = []
        self._staged = [tensor_buffer.unpack(tree, memory) for tree in trees]
        messages.send_ack(channel)

    def _record(
        self, channel: socket.socket, case: int, size: int, trees: tuple[bytes, ...]
    ) -> None:
        assert isinstance(self._access, CudaAccess)
        self._recording = None  # its memory is needed
        memory = self._access.open(-1, size)
        calls = [tensor_buffer.unpack(tree, memory) for tree in trees]
        self._recording = cuda_graph.Recording(self._models[case], calls, self._access.lent_pool)
        messages.send_ack(channel)

    def _run(self, channel: socket.socket, case: int, kind: str, turns: int, fd: int = -1) -> None:
        model = EmptyCall(self._held[0]) if kind == "empty" else self._models[case]
        staged = [] if kind == "nothing" else self._staged
        outputs: list[Any] = []
        with torch.no_grad():
            start = time.perf_counter()
            if turns:
                outputs = self._take_turns(model, staged, turns, fd)
            else:
                for inputs in staged:
                    outputs.append(model(*inputs))
            self._access.finish()
            seconds = time.perf_counter() - start
        self._held = outputs or self._held
        messages.send_done(channel, seconds, [at for output in outputs for at in addresses(output)])

    def _take_turns(
        self, model: torch.nn.Module, staged: list[Any], turns: int, fd: int
    ) -> list[Any]:
        assert isinstance(self._access, access.CpuAccess)
        page, places = self._access.turns(fd), list[int]()
        outputs: list[Any] = []
        for number in range(1, turns + 1):
            page.await_given(number)
            if staged:
                outputs.append(model(*staged[number - 1]))
                places = addresses(outputs[-1])
            page.done(number, places)
        return outputs

    def _block(
        self,
        channel: socket.socket,
        case: int,
        kind: str,
        layout: int,
        trees: tuple[bytes, ...],
        sequence: int,
    ) -> None:
        access = self._access
        assert isinstance(access, CudaAccess)
        self._held = []
        if trees:
            self._layouts[layout] = [tensor_buffer.unpack(tree, access.inputs) for tree in trees]
        staged = self._layouts[layout] if kind == "calls" else []
        model, outputs = self._models[case], []
        messages.send_ack(channel)
        if not access.await_go(sequence, _WINDOW_S):
            return
        calls = access.calls(sequence, _WINDOW_S)
        with torch.no_grad(), _no_collections():
            start = time.perf_counter()
            access.await_inputs(sequence)
            if kind == "nothing":
                access.wake()
            elif kind == "graph" and self._recording is not None:
                self._recording.replay()
                outputs = self._recording.outputs
                for output in outputs:
                    calls.tell(addresses(output))
            for inputs in staged:
                calls.await_next()
                outputs.append(model(*inputs))
                calls.tell(addresses(outputs[-1]))
            count = calls.end()
            access.finish()
            seconds = time.perf_counter() - start
        access.signal_done(sequence, count, seconds)
        self._held = outputs

    def _forget(self) -> None:
        """Let go of the program that was loaded: its memory may be needed.

        Its last outputs are overwritten: a call that writes nothing may be given their memory.
        """
        for memory, output in self._held:
            inputs = memory.untyped_storage().data_ptr()
            for tensor in tensors_of(output):
                if tensor.untyped_storage().data_ptr() == inputs:
                    continue  # a reference may return its argument
                whole = torch.empty(0, dtype=torch.uint8, device=tensor.device)
                whole.set_(tensor.untyped_storage()).fill_(255)
        self._held, self._staged, self._make = [], [], None
        self._models.clear()
        self._given.clear()
        sys.modules.pop(PROGRAM_MODULE, None)
        gc.collect()

    def _reserve(self, channel: socket.socket, size: int) -> None:
        self._access.reserve(size)
        messages.send_ack(channel)

    def _drop(self, channel: socket.socket) -> None:
        self._held, self._staged = [], []
        self._access.drop()
        messages.send_ack(channel)


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """Python looks for garbage before or after, on all sides: it may take a millisecond."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
