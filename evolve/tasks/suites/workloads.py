"""flashinfer-bench and SOL-ExecBench: a definition, its workloads and their data, all in JSON."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evolve.core.errors import UsageError
from evolve.core.suites import TaskText
from evolve.core.task import Case
from evolve.tasks.beside import MOST_BYTES, encoded
from evolve.tasks.functions import NO_STATE, model_text
from evolve.tasks.suites.checkout import read_data, read_json, require_fetched
from evolve.tasks.suites.listed import ListedSuite, timed_cases

_ENTRY = "run"
_DEFINITIONS = "definitions"
_OWN_FILES = frozenset(("definition.json", "workloads.json"))


class _Workloads(ListedSuite):
    """What both suites have in common: a task is a definition with its workloads."""

    def task(self, label: str, checkout: Path | None) -> TaskText:
        root = self._root(checkout)
        path = self._path(label, root)
        workloads = self._workloads(path)
        definition = {**_read(path), "suite": self.name}
        chosen = _workloads(workloads)
        _require(definition, path, chosen, workloads)
        files: dict[str, str | bytes] = {
            "definition.json": json.dumps(definition),
            "workloads.json": json.dumps(chosen),
            **dict(_blobs(chosen, root)),
        }
        return TaskText(
            _source(definition, next(iter(chosen))),
            category=str(definition.get("op_type") or ""),
            cases=tuple(_cases(chosen)),
            files=encoded(files),
        )

    def _workloads(self, path: Path) -> Path:
        """The file of a definition's workloads."""
        raise NotImplementedError


class FlashinferBench(_Workloads):
    """A FlashInfer Trace data set, or a checkout with one in it."""

    name = "flashinfer_bench"
    variable = "FIB_DATASET_PATH"
    _repository = "https://huggingface.co/datasets/flashinfer-ai/flashinfer-trace"
    _places = (_DEFINITIONS, "flashinfer_trace", "examples")

    def _found(self, root: Path) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for folder in sorted(root.rglob(_DEFINITIONS)):
            for path in sorted(folder.rglob("*.json")):
                found.setdefault(path.stem, path)
        return found

    def _workloads(self, path: Path) -> Path:
        folder = next(parent for parent in path.parents if parent.name == _DEFINITIONS)
        return (folder.parent / "workloads" / path.relative_to(folder)).with_suffix(".jsonl")

    def _level(self, label: str, path: Path) -> str:
        """The kind of operation, whose folder it is in."""
        return "" if path.parent.name == _DEFINITIONS else path.parent.name


class SolExecBench(_Workloads):
    """The problems that the suite's script downloads, and those of its checkout."""

    name = "sol_execbench"
    variable = "SOL_EXECBENCH_PATH"
    _repository = "https://github.com/NVIDIA/SOL-ExecBench"
    _places = ("data/benchmark", "examples", "tests")

    def _found(self, root: Path) -> dict[str, Path]:
        return {
            path.parent.relative_to(root).as_posix().removeprefix("data/benchmark/"): path
            for path in sorted(root.rglob("definition.json"))
        }

    def _workloads(self, path: Path) -> Path:
        return path.with_name("workload.jsonl")

    def _level(self, label: str, path: Path) -> str:
        return path.parent.parent.name


def _read(path: Path) -> dict[str, Any]:
    definition = read_json(path)
    if not isinstance(definition, dict):
        raise UsageError(f"{path} is no JSON object.")
    beside = path.with_name("reference.py")
    if not definition.get("reference") and beside.is_file():
        definition["reference"] = read_data(beside)
    return definition


def _workloads(path: Path) -> dict[str, dict[str, Any]]:
    """By name: those of a file with one in each line, which may be wrapped in a trace."""
    found: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(read_data(path).splitlines(), 1):
        try:
            entry = json.loads(line) if line.strip() else {}
            entry = entry.get("workload") or entry
        except (ValueError, AttributeError) as error:
            raise UsageError(f"{path}, line {number}: no JSON object ({error}).") from error
        if entry:
            found[f"{len(found)}-{str(entry.get('uuid', ''))[:8]}"] = entry
    return found


def _require(
    definition: Mapping[str, Any], path: Path, chosen: Mapping[str, Any], workloads: Path
) -> None:
    for field in ("reference", "axes", "inputs"):
        if not definition.get(field):
            raise UsageError(f"{path} has no {field}; it is no definition of this suite.")
    if f"def {_ENTRY}(" not in definition["reference"]:
        raise UsageError(f"{path}: its reference defines no function {_ENTRY}.")
    if not chosen:
        raise UsageError(f"{workloads} has no workload.")
    for name, one in chosen.items():
        if not _is_workload(one):
            raise UsageError(f"{workloads}: workload {name} has no axes or inputs of this form.")


def _is_workload(one: Mapping[str, Any]) -> bool:
    axes, inputs = one.get("axes"), one.get("inputs")
    if not isinstance(axes, dict) or not isinstance(inputs, dict):
        return False
    sized = all(isinstance(size, int) for size in axes.values())
    return sized and all(
        isinstance(source, dict) and ("path" in source or source.get("type") != "safetensors")
        for source in inputs.values()
    )


def _blobs(chosen: Mapping[str, Any], root: Path) -> Iterator[tuple[str, bytes]]:
    """The safetensors files that workloads name, by the last part of their path."""
    paths = {
        _located(root, Path(source["path"]))
        for workload in chosen.values()
        for source in workload["inputs"].values()
        if source.get("type") == "safetensors"
    }
    if len({path.name for path in paths} | _OWN_FILES) < len(paths) + len(_OWN_FILES):
        raise UsageError("two files of the workloads have the same name.")
    for path in paths:
        require_fetched(path)
    if sum(path.stat().st_size for path in paths) > MOST_BYTES:
        raise UsageError(
            f"the tensors of its workloads have more than {MOST_BYTES >> 20} MiB, which is the "
            "most that a task may carry."
        )
    for path in sorted(paths):
        yield path.name, path.read_bytes()


def _located(root: Path, path: Path) -> Path:
    """A file of a data set, whose place in the checkout may be below the first folders."""
    if path.is_absolute() or ".." in path.parts:
        raise UsageError(f"a workload names {path}, which is not in the data set.")
    for start in range(len(path.parts)):
        found = root.joinpath(*path.parts[start:])
        if found.is_file():
            if not found.resolve().is_relative_to(root.resolve()):
                raise UsageError(f"a workload names {path}, which leads out of the data set.")
            return found
    return root / path


def _cases(chosen: Mapping[str, Any]) -> Iterator[Case]:
    return timed_cases(
        {
            name: ({"WORKLOAD": name}, sum(map(int, one["axes"].values())))
            for name, one in chosen.items()
        }
    )


def _source(definition: Mapping[str, Any], first: str) -> str:
    reference = str(definition["reference"])
    return "\n".join(
        [
            "# SPDX-License-Identifier: Apache-2.0",
            f"# Definition {definition.get('name', '')!r} with its workloads.",
            reference.strip("\n"),
            "\n",
            "from evolve.testing.suite_tasks import workloads as _workloads",
            "",
            f"WORKLOAD = {first!r}",
            "\n",
            model_text(reference, _ENTRY),
            "",
            "def get_inputs():",
            "    return _workloads.inputs_of(globals(), WORKLOAD)",
            "",
            NO_STATE,
            "",
            "suite_check = _workloads.rule_of(globals(), WORKLOAD)",
            "",
        ]
    )
