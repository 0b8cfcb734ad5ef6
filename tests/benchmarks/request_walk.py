"""The walk of a request through the code, from the words of `evolve eval` to the judge's process.

    python -m tests.benchmarks.request_walk [--root CHECKOUT] [--lines]

A step is a visit to a module, to one of whose functions the request is handed: the words, what was
parsed of them, or an object made of these. Control that comes back to a module and goes on from
there to another one visits it again; a return is a visit to a module that was visited before.
Callbacks of the event loop and questions to the request itself are no steps. The walk ends when the
first message about the request is given to the place of the judge's process.

`--root` counts another checkout in the same way, for a comparison of commits. Processes of the
judge import the package that is installed, so that for an older commit the interpreter needs a
virtual environment in which that checkout comes first (a `.pth` file), and `--here`.
"""

import argparse
import contextlib
import inspect
import io
import os
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
MIN_TEXT = 16  # characters of a made text that is followed; shorter ones are literals of the code
FOLLOWED = (list, dict, tuple)


class Walk:
    """Follows a list of words through calls of the package `evolve` below a root."""

    def __init__(self, root: Path, words: list[str]) -> None:
        self._package = f"{root / 'evolve'}{os.sep}"
        self._kept: list[Any] = []  # so that no identity is used twice
        self._known: set[int] = set()
        self._frames: dict[int, FrameType] = {}
        self._handed: set[int] = set()
        self.functions: list[str] = []
        self.modules: list[str] = []
        self.is_done = False
        self._follow(words, is_given=True)

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        """To be given to `sys.setprofile`."""
        if self.is_done or not frame.f_code.co_filename.startswith(self._package):
            return
        if event == "call" and id(frame) not in self._frames:
            self._frames[id(frame)] = frame
            self._enter(frame)
        elif event == "return" and id(frame) in self._handed:
            self._follow(value)

    def _enter(self, frame: FrameType) -> None:
        code = frame.f_code
        if code.co_name.startswith("<"):  # a comprehension, or a module
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + 2]
        given = {
            name: frame.f_locals[name]
            for name in names
            if name in frame.f_locals and name not in ("self", "cls")  # asked, and not handed on
        }
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(self._package):
            caller = caller.f_back
        is_handed_on = caller is not None and id(caller) in self._handed
        is_begun = not self._handed or code.co_flags & inspect.CO_COROUTINE  # else a callback
        if not (is_handed_on or is_begun) or not any(map(self._is_known, given.values())):
            return
        self._handed.add(id(frame))
        module = self._module(frame)
        if is_handed_on and caller is not None and self.modules[-1] != module:
            self._visit(self._module(caller))
        self._visit(module)
        self.functions.append(f"{module}:{code.co_name}")
        self.is_done = code.co_name == "ask" and bool(
            {"audit", "evaluate"} & {*map(str, given.values())}
        )

    def _visit(self, module: str) -> None:
        if not self.modules or self.modules[-1] != module:
            self.modules.append(module)

    def _module(self, frame: FrameType) -> str:
        path = frame.f_code.co_filename.removeprefix(self._package).removesuffix(".py")
        return path.replace(os.sep, ".")

    def _is_known(self, value: Any) -> bool:
        if id(value) in self._known:
            return True
        if isinstance(value, FOLLOWED):
            members = value.values() if isinstance(value, dict) else value
            return any(id(member) in self._known for member in members)
        return False

    def _follow(self, value: Any, *, is_given: bool = False) -> None:
        """Follow an object that was made of the request, with its own parts."""
        is_text = isinstance(value, str) and (is_given or len(value) >= MIN_TEXT)
        is_made = isinstance(value, (*FOLLOWED, argparse.Namespace)) or is_dataclass(value)
        if id(value) in self._known or not (is_text or is_made):
            return
        self._kept.append(value)
        self._known.add(id(value))
        parts = [getattr(value, at.name) for at in fields(value)] if is_dataclass(value) else value
        if isinstance(parts, list):
            for part in parts:
                self._follow(part, is_given=is_given)


def walk(root: Path) -> Walk:
    """The walk of one request of a checkout, whose package has to be the one on the path."""
    from evolve.cli.main import main

    seed = root / "examples" / "tasks" / "row_sum" / "seeds"
    candidate = str(next(path for path in sorted(seed.glob("*.py")) if "triton" not in path.name))
    words = f"eval {candidate} --task row_sum --device cpu --fidelity check".split()
    found = Walk(root, words)
    with contextlib.redirect_stdout(io.StringIO()):
        sys.setprofile(found)
        try:
            main(words)
        finally:
            sys.setprofile(None)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=ROOT, help="a checkout")
    parser.add_argument("--lines", action="store_true", help="the functions, one a line")
    parser.add_argument("--here", action="store_true", help="in this process and interpreter")
    options = parser.parse_args()
    root = options.root.resolve()
    if not options.here:  # in a process that imports the checkout
        words = [sys.executable, __file__, "--here", "--root", str(root)]
        words += ["--lines"] if options.lines else []
        child = subprocess.run(words, env={**os.environ, "PYTHONPATH": str(root)}, check=False)
        raise SystemExit(child.returncode)
    found = walk(root)
    if options.lines:
        print(*found.functions, sep="\n")
    rooms = len({*found.modules})
    steps = len(found.modules)
    print(f"{steps} steps through {rooms} modules, {steps - rooms} returns; done: {found.is_done}")


if __name__ == "__main__":
    main()
