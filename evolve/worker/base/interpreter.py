"""Starting a zygote's process, which imports torch for seconds, without importing torch here."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from evolve.worker.base import nvcc_flags
from evolve.worker.sandbox.packages import package_folders

_PASSED_ON = ("PATH", "LANG", "LC_ALL", "CC", "CXX", "CUDA_HOME", "LD_LIBRARY_PATH",
              nvcc_flags.VARIABLE)  # fmt: skip
COMPILER = "EVOLVE_IMPORTS_COMPILER"
WITH_COMPILER = {COMPILER: "1"}
"""Variables of a zygote that imports PyTorch's compiler too, which takes each process seconds."""
_START = (  # isolated; folders of packages lie where they do among our own
    "import os, sys; own = sys.path; ours = sys.argv[3].split(os.pathsep); "
    "sys.path = [path for path in ours if path in {*own, *sys.argv[4:]}]; "
    "sys.path += [path for path in (*own, sys.argv[1]) if path not in sys.path]; "
    "from evolve.worker.runner.zygote import serve; serve(int(sys.argv[2]))"
)


class Started(NamedTuple):
    """A process that imports the modules of runners, and waits at the other end of the socket.

    `variables` are the ones it has got so far.
    """

    process: "subprocess.Popen[bytes]"
    socket: socket.socket
    variables: Mapping[str, str]

    def kill(self) -> None:
        """End it; the socket stays open, and has reached its end."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        self.socket.close()


def start(variables: Mapping[str, str]) -> Started:
    """Start one with these variables beside the few that are passed on."""
    ours, theirs = socket.socketpair()
    root = str(Path(__file__).absolute().parents[3])
    with theirs:
        process = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-B",
                "-u",
                "-c",
                _START,
                root,
                str(theirs.fileno()),
                os.pathsep.join(sys.path),
                *package_folders(),
            ],
            env=environment(variables),
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
    return Started(process, ours, variables)


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of the zygote and, but for their directories, of all runners."""
    cores = str(len(os.sched_getaffinity(0)))
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": "/nonexistent",
        "OMP_NUM_THREADS": cores,
        "OMP_WAIT_POLICY": "passive",
        "OPENBLAS_NUM_THREADS": "1",
        # Importing tvm_ffi would ask the driver for its devices, which starts threads. Supported
        # versions of torch have its additions to old ones.
        "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1",
        **kept,
        **nvcc_flags.variables(),
        **variables,
    }
