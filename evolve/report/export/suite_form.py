"""A winner in the form in which its task's suite takes answers."""

import ast
import base64
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from evolve.core.errors import UsageError
from evolve.core.evaluation import CaseResult
from evolve.core.records import RunRow
from evolve.core.task import Task
from evolve.languages.registry import detect_language
from evolve.languages.triton import TRITON
from evolve.report.suite.results import CANDIDATE, EAGER
from evolve.store.champion import Champion

AUTHOR = "evolve"
_ON_DEVICE = """

import torch as _torch

_MODEL = ModelNew().to("cuda" if _torch.cuda.is_available() else "cpu")
"""
_UNKNOWN = "NaN"  # as the suites write it: an evaluation here keeps no largest error
Files = dict[str, str]


def suite_files(run: RunRow, winner: Champion, module: str) -> Files:
    """Text of each file by its relative path.

    Args:
        run: of a task of a suite.
        winner: of the run.
        module: the winner as a module with `ModelNew` that needs nothing of this project.

    Raises:
        UsageError: the task is of no suite, or of one whose answers are modules with `ModelNew`.
    """
    suite, _, label = run.task.name.partition(":")
    form = _FORMS.get(suite) if label else None
    if form is None:
        raise UsageError(
            f"--as suite: task {run.task.name} is of no suite with answers of a form of its own "
            f"({', '.join(_FORMS)}); write the winner with --as module"
        )
    return form(run, winner, module)


def _trace_set(run: RunRow, winner: Champion, module: str) -> Files:
    """FlashInfer Trace: a Solution, and a Trace for each workload that was timed."""
    definition = _stored(run.task, "definition.json")
    workloads = _stored(run.task, "workloads.json")
    name = f"{AUTHOR}-{run.name}-{winner.sequence}"
    kind = definition.get("op_type") or "other"
    place = f"{AUTHOR}/{kind}/{definition['name']}"
    lines = [
        json.dumps(
            {
                "definition": definition["name"],
                "workload": workloads[case.name],
                "solution": name,
                "evaluation": _evaluation(run, winner, case),
            }
        )
        for case in winner.evaluation.cases
        if case.name in workloads and {CANDIDATE, EAGER} <= {*case.times_ms}
    ]
    solution = _solution(name, definition, winner, module, run.task.name)
    files = {f"solutions/{place}/{name}.json": json.dumps(solution, indent=2) + "\n"}
    return files | ({f"traces/{place}/{name}.jsonl": "\n".join(lines) + "\n"} if lines else {})


def _solution(
    name: str, definition: Mapping[str, Any], winner: Champion, module: str, task: str
) -> dict[str, Any]:
    arguments = ", ".join(definition["inputs"])
    entry = (
        f"{module}{_ON_DEVICE}\n\ndef run({arguments}):\n"
        f"    with _torch.no_grad():\n        return _MODEL({arguments})\n"
    )
    is_triton = detect_language(module) is TRITON
    is_sol = task.startswith("sol_execbench:")
    language: dict[str, Any] = {"language": "triton" if is_triton else "python"}
    if is_sol:
        language = {"languages": ["triton" if is_triton else "pytorch"]}
    return {
        "name": name,
        "definition": definition["name"],
        "author": AUTHOR,
        "spec": {
            **language,
            "target_hardware": ["LOCAL" if is_sol else _hardware(winner)],
            "entry_point": "main.py::run",
            "dependencies": [],
            "destination_passing_style": False,
        },
        "sources": [{"path": "main.py", "content": entry}],
        "description": f"Found by a search; step {winner.sequence} of its run.",
    }


def _evaluation(run: RunRow, winner: Champion, case: CaseResult) -> dict[str, Any]:
    facts = winner.evaluation.environment
    ratio = case.ratios[EAGER]
    return {
        "status": "PASSED",
        "environment": {
            "hardware": _hardware(winner),
            "libs": {name: facts[name] for name in ("torch", "triton") if name in facts},
        },
        "timestamp": run.created,
        "log": f"Interleaved with the reference in pairs of processes; the 95 % interval of the "
        f"speedup is {ratio.low:.4g} to {ratio.high:.4g}.",
        "correctness": {"max_relative_error": _UNKNOWN, "max_absolute_error": _UNKNOWN},
        "performance": {
            "latency_ms": case.times_ms[CANDIDATE].value,
            "reference_latency_ms": case.times_ms[EAGER].value,
            "speedup_factor": ratio.value,
        },
    }


def _hardware(winner: Champion) -> str:
    evaluation = winner.evaluation
    return evaluation.environment.get("device") or evaluation.device_class


def _stored(task: Task, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(base64.b64decode(task.files[name]))
    return found


def _submission(run: RunRow, winner: Champion, module: str) -> Files:
    """GPU MODE: `custom_kernel` of one argument."""
    call = "def custom_kernel(data):\n    with _torch.no_grad():\n        return _MODEL(data)\n"
    return {"submission.py": f"{module}{_ON_DEVICE}\n\n{call}"}


def _named_function(run: RunRow, winner: Champion, module: str) -> Files:
    """TritonBench, KernelBench-X: a file of the task's name with the function that tests call."""
    entry, signature, arguments = _entry(run.task)
    call = (
        f"def {entry}({signature}):\n    with _torch.no_grad():\n"
        f"        return _MODEL({arguments})\n"
    )
    path = run.task.name.partition(":")[2]
    return {f"{path}.py": f"{module}{_ON_DEVICE}\n\n{call}"}


def _entry(task: Task) -> tuple[str, str, str]:
    """The function that the task's `Model` calls: its name, its signature, and all its values."""
    functions = {
        node.name: node.args
        for node in ast.parse(task.source).body
        if isinstance(node, ast.FunctionDef)
    }
    (entry,) = (
        node.func.id
        for node in ast.walk(_method(task, "forward").body[-1])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    )
    if entry not in functions:  # it is assigned: its arguments are not in the text
        return entry, "*args, **kwargs", "args, kwargs"
    return entry, _signature(functions[entry]), ", ".join(_names(functions[entry]))


def _named_model(file: str) -> Callable[[RunRow, Champion, str], Files]:
    """Suites whose answers are a class `Model`, called by the reference's parameter names."""

    def form(run: RunRow, winner: Champion, module: str) -> Files:
        lines = ["class Model(ModelNew):", '    """By the names of the reference."""']
        for method in ("__init__", "forward"):
            try:
                arguments = _method(run.task, method).args
            except LookupError:
                continue
            _, *names = _names(arguments)
            lines += [
                "",
                f"    def {method}({_signature(arguments)}):",
                f"        return super().{method}({', '.join(names)})",
            ]
        return {file: f"{module}\n\n" + "\n".join(lines) + "\n"}

    return form


def _method(task: Task, name: str) -> ast.FunctionDef:
    """A method of the task's `Model`.

    Raises:
        LookupError: it has none of this name.
    """
    for node in ast.parse(task.source).body:
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == name:
                    return method
    raise LookupError(name)


def _names(arguments: ast.arguments) -> Iterator[str]:
    """Names of all parameters in their order."""
    yield from (one.arg for one in (*arguments.posonlyargs, *arguments.args))
    yield from (one.arg for one in (arguments.vararg,) if one)
    yield from (one.arg for one in arguments.kwonlyargs)
    yield from (one.arg for one in (arguments.kwarg,) if one)


def _signature(arguments: ast.arguments) -> str:
    """The text of parameters; annotations may have names that a winner does not import."""
    for one in ast.walk(arguments):
        if isinstance(one, ast.arg):
            one.annotation = None
    return ast.unparse(arguments)


_FORMS: dict[str, Callable[[RunRow, Champion, str], Files]] = {
    "atrex": _named_model("generated_kernel.py"),
    "flashinfer_bench": _trace_set,
    "gpu_mode": _submission,
    "kernelbench_hard": _named_model("solution.py"),
    "kernelbench_x": _named_function,
    "sol_execbench": _trace_set,
    "tritonbench_g": _named_function,
    "tritonbench_t": _named_function,
}
