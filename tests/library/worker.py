"""A judge that speaks the worker's protocol: a program's speedup stands in its text.

`# speedup 1.5` is a correct program, any other text a wrong one; `# verified 0.8` is what its
verification gives, if that is another. Each evaluation adds a line to the
file `judged` in the current folder, and each question about the reference's cost a mark to the
file `costed`. With the argument `weak`, the audit finds the task weak; with `no_cost`, the worker
ends at that question.
"""

import json
import re
import sys
from pathlib import Path

from evolve.core.task import Task

HELLO = {"device_class": "cpu: scripted", "slots": 1, "evaluator_version": "scripted-1"}
WEAK = [{"detail": "a program of zeros passes", "passed_by": "default"}]


def reply(number: int, result: object) -> None:
    sys.stdout.write(json.dumps({"v": 1, "id": number, "result": result}) + "\n")
    sys.stdout.flush()


def verdict(params: dict) -> dict:
    with Path("judged").open("a") as file:
        file.write(f"{params['fidelity']}\n")
    found = re.search(r"# speedup ([\d.]+)", params["source"])
    correct = {"status": "correct", "stage": 6, "custom": True, "feedback": "fast"}
    wrong = {"status": "wrong_value", "stage": 3, "feedback": "not equal"}
    if found and params["fidelity"] == "verify":
        found = re.search(r"# verified ([\d.]+)", params["source"]) or found
    speedup = float(found[1]) if found else 0.0
    return {
        **(correct if found else wrong),
        "fidelity": params["fidelity"],
        "task_revision": Task.from_json(params["task"]).revision,
        "device_class": HELLO["device_class"],
        "evaluator_version": HELLO["evaluator_version"],
        "ratios": {"eager": [speedup, speedup * 0.9, speedup * 1.1]} if found else {},
        "cases": [],
        "labels": [],
    }


def reference(params: dict) -> dict:
    with Path("costed").open("a") as file:
        file.write(".")
    if sys.argv[1:] == ["no_cost"]:
        raise SystemExit("the reference took the worker along")
    case = {"name": "default", "time_ms": 2.0, "moved_bytes": 8_000_000, "flops": 0,
            "bytes_per_s": 4e10, "flops_per_s": None, "bound": "memory", "operations": [],
            "others_ms": 2.0}  # fmt: skip
    return {"device": {}, "cases": [case], "flops_per_s": {}, "longest_sum": 0}


def main() -> None:
    answers = {
        "hello": lambda params: HELLO,
        "evaluate": verdict,
        "audit": lambda params: WEAK if sys.argv[1:] == ["weak"] else [],
        "conditions": lambda params: [],
        "reference": reference,
        "compiled": lambda params: {"default": {"reason": "nothing to compile"}},
    }
    for line in sys.stdin:
        request = json.loads(line)
        if request["method"] in answers:
            reply(request["id"], answers[request["method"]](request["params"]))


main()
