"""A judge without a device: speaks the worker's protocol and does what a candidate's text says.

`# speedup 2.5`, `# wrong`, `# compile_error`, `# die` (the worker ends), `# die_once` (only the
first time), `# fail` (it says that it cannot), `# fail_once`, `# untimed` (correct, without a
time), `# untimed_once`, `# slow 0.5` (seconds), `# takes 9` (device seconds), `# nan` (a verdict
with one), `# unprofiled`. An opponent with a speedup of its own is that much faster. Every
evaluation that is answered adds its marker (or a digest of the question) to the file `judged`,
every audit the task's name to `audited`, every start a line to `starts`.
"""

import hashlib
import json
import os
import re
import sys
import threading
import time
from pathlib import Path

SLOTS, LATENCY_S = int(sys.argv[1]), float(sys.argv[2])
HELLO = {
    "device_class": os.environ.get("CUDA_STUB_CLASS", "stub"),  # as a node has it
    "slots": SLOTS,
    "evaluator_version": os.environ.get("STUB_VERSION", "stub-1"),
    "sandbox": "none",
}
WRITING = threading.Lock()


def say(number: int | None, **fields: object) -> None:
    with WRITING:
        sys.stdout.write(json.dumps({"v": 1, "id": number, **fields}) + "\n")
        sys.stdout.flush()


def verdict(params: dict) -> dict:
    source = params["source"]
    status = next((word for word in ("wrong_value", "compile_error") if f"# {word}" in source), "")
    speedup = speedup_of(source)
    sides = {"eager": 1.0} | {name: speedup_of(text) for name, text in params["opponents"].items()}
    times_ms = {side: around(1 / faster) for side, faster in sides.items()}
    times_ms["candidate"] = around(1 / speedup)
    ratios = {} if status else {side: around(speedup / faster) for side, faster in sides.items()}
    case = {"name": "only", "weight": 1.0, "timed": True, "passed": not status}
    case |= {"times_ms": {} if status else times_ms, "ratios": ratios}
    return {
        "status": status or "correct",
        "stage": {"": 6, "wrong_value": 3, "compile_error": 1}[status],
        "fidelity": params["fidelity"],
        "task_revision": "stub",
        "device_class": HELLO["device_class"],
        "evaluator_version": HELLO["evaluator_version"],
        "ratios": ratios,
        "cases": [case],
        "custom": None if status else True,
        "suite": None,
        "labels": [],
        "environment": {},
        "samples": {},
        "durations_s": {},
        "device_time_s": float((re.search(r"# takes ([\d.]+)", source) or "00")[1]),
        "feedback": f"stub: {status}" if status else "",
        "descriptors": {"coverage": float("nan") if "# nan" in source else 0.5}
        if not status and "# unprofiled" not in source
        else {},
    }


def speedup_of(source: str) -> float:
    found = re.search(r"# speedup ([\d.]+)", source)
    return float(found[1]) if found else 1.5 if source else 1.0


def around(value: float) -> list[float]:
    return [value, 0.99 * value, 1.01 * value]


def evaluate(number: int, params: dict) -> None:
    source = params["source"]
    marker = (re.search(r"# marker (\w+)", source) or ["", ""])[1] or digest(params)
    slow = re.search(r"# slow ([\d.]+)", source)
    time.sleep(float(slow[1]) if slow else LATENCY_S)
    if "# die_once" in source and is_first("died", marker):
        os._exit(3)
    if "# die_always" in source:
        os._exit(3)
    if "# fail_once" in source and not is_first("failed", marker):
        source = source.replace("# fail", "")
    if "# fail" in source:
        say(number, error={"kind": "unavailable", "message": "the stub fails"})
        return
    with Path("judged").open("a") as file:
        file.write(f"{marker}\n")
    found = verdict(params)
    if "# untimed" in source and ("_once" not in source or is_first("untimed", marker)):
        found |= {"status": "timing_unbounded", "ratios": {}}
    for word in ("infra", "device_oom"):
        if f"# {word}" in source:
            told = {"labels": [[word, "8 GiB"]], "feedback": "8 GiB"}
            found |= {"status": "infra", "ratios": {}, **told}
    say(number, result=found)


def digest(params: dict) -> str:
    """A marker for a candidate that has none: the same for the same question."""
    asked = [params["source"], params["fidelity"], params.get("repeat")]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]


def is_first(what: str, marker: str) -> bool:
    """Whether this happens to a candidate for the first time."""
    try:
        os.close(os.open(f"{what}-{marker}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def audit(number: int, params: dict) -> None:
    with Path("audited").open("a") as file:
        file.write(f"{params['task']['name']}\n")
    weak = "WEAK" in params["task"]["source"]
    if "BROKEN" in params["task"]["source"]:
        say(number, error={"kind": "usage", "message": "the task has no Model"})
    else:
        say(number, result=[{"candidate": "zeros", "case": "only"}] if weak else [])


def main() -> None:
    with Path("starts").open("a") as file:
        file.write(f"{os.getpid()}\n")
    for line in sys.stdin:
        request = json.loads(line)
        number, method, params = request["id"], request["method"], request["params"]
        if method == "hello":
            say(number, result=HELLO)
        elif method == "audit":
            audit(number, params)
        elif method == "conditions":
            say(number, result=[])
        elif method == "reference":
            say(number, result={"device": {}, "cases": [], "flops_per_s": {}, "longest_sum": 0})
        elif method == "compiled":
            say(number, result={"default": {"reason": "the stub compiles nothing"}})
        elif method == "evaluate":
            threading.Thread(target=evaluate, args=(number, params), daemon=True).start()


main()
