"""A worker that speaks the protocol and misbehaves on demand.

The source of a candidate says what happens when it is evaluated, and what the feedback is; the
first argument says what happens at the start and at the end. Every start adds a line to `starts`
(with the name of the place after it, where a second argument gives one).
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

HELLO = {"device_class": "scripted", "slots": 2, "evaluator_version": "scripted-1"}
PLACE = sys.argv[2] if len(sys.argv) > 2 else ""
STARTS = Path(f"starts{PLACE}")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def reply(number: int | None, result: object) -> None:
    say(json.dumps({"v": 1, "id": number, "result": result}))


def refuse(number: int | None, kind: str, message: str) -> None:
    say(json.dumps({"v": 1, "id": number, "error": {"kind": kind, "message": message}}))


def verdict(params: dict, feedback: str = "") -> dict:
    return {
        "status": "correct",
        "stage": 6,
        "fidelity": params["fidelity"],
        "task_revision": "revision",
        "device_class": "scripted",
        "evaluator_version": "scripted-1",
        "ratios": {},
        "cases": [],
        "labels": [],
        "feedback": feedback,
    }


def die(words: str) -> None:
    sys.stderr.write(words + "\n")
    sys.stderr.flush()
    os._exit(3)


def child(**options: object) -> None:
    """A sleeping child that keeps standard output and error open; its pid goes to `child`."""
    process = subprocess.Popen(["sleep", "60"], **options)
    Path("child").write_text(str(process.pid))


def starts() -> int:
    return STARTS.read_text().count("\n")


def chatter() -> None:
    sys.stderr.write("x" * (1 << 20))


def warn() -> None:
    sys.stderr.write("\na library says\nevolve: judged again, alone: \x1b[2Jfor want of memory\n")
    sys.stderr.flush()


def phase(number: int, text: str) -> None:
    say(json.dumps({"v": 1, "id": number, "phase": text}))


def phases(number: int) -> None:
    """Say what the call is at, and stay there until a file `go` is there."""
    phase(number, "timing, 3 of 7 pairs")
    while not Path("go").exists():
        time.sleep(0.02)


def garbage() -> None:
    say("Welcome to some library!\n[]\n{}\n" + '{"id": "x", "result": 1}\n\xff')


def leave_behind(**options: object) -> None:
    if starts() == 1:
        child(**options)
        die("I leave somebody behind")


BEFORE_THE_REPLY = {
    "warn": warn,
    "die": lambda: die("so long"),
    "die_once": lambda: die("so long") if starts() == 1 else None,
    "chatter": chatter,
    "garbage": garbage,
    "litter": leave_behind,
    "orphan": lambda: leave_behind(start_new_session=True),
    "late": lambda: time.sleep(0.3),
    "where": lambda: time.sleep(0.05),
}


FEEDBACK = {
    "huge": lambda argument, params: "x" * int(argument),
    "seeds": lambda argument, params: str(params["task"]["seeds"]),
    "where": lambda argument, params: PLACE,
}


def evaluate(number: int, params: dict) -> None:
    word, _, argument = params["source"].partition(" ")
    BEFORE_THE_REPLY.get(word, lambda: None)()
    if word == "phases":
        phases(number)
    match word:
        case "hang":
            Path("hanging").touch()
        case "hang_once" if starts() == 1:
            pass
        case "die_at" if argument == PLACE:
            die("so long")
        case "fail_once" if starts() == 1:
            refuse(number, "unavailable", "KeyError: 7")
        case "fail":
            refuse(number, "unavailable", "KeyError: 7")
        case "usage":
            refuse(number, "usage", "the task has no Model")
        case _:
            text = FEEDBACK[word](argument, params) if word in FEEDBACK else argument
            reply(number, verdict(params, text))
    if word == "twice":
        reply(number, verdict(params, "again"))


def compiled(number: int, task: str, mode: str) -> None:
    """A mode is the end of the names of tasks that it dies of."""
    if task.endswith(mode):
        die("the compiler took me along")
    reply(number, {"default": {"reason": "nothing to compile"}})


EVALUATE = {  # by mode, where that says what happens
    "broken": lambda number, params: refuse(number, "unavailable", "the device has failed"),
    "breaks": lambda number, params: die("the device is gone"),
}


AUDIT = {  # by the name of the task
    "exits": lambda number: die("the task did it"),
    "patient": lambda number: reply(number, []) if starts() > 1 else None,
    "sound": lambda number: reply(number, []),
}
NO_COST = {"device": {}, "cases": [], "flops_per_s": {}, "longest_sum": 0}
OTHERS = {
    "audit": lambda number, task, mode: AUDIT.get(task, lambda number: None)(number),
    "conditions": lambda number, task, mode: reply(number, []),
    "reference": lambda number, task, mode: reply(number, NO_COST),
    "compiled": compiled,
    "doctor": lambda number, task, mode: die("no doctor"),
}
KINDS = {"another": {"device_class": "another"}}


def main() -> None:
    with STARTS.open("a") as file:
        file.write(f"{os.getpid()}\n")
    mode = sys.argv[1]
    if mode == "refuse":
        refuse(None, "usage", "sandbox.require=namespaces: not here")
        sys.exit(2)
    if mode == "fall" or (mode == "fall_later" and starts() > 1):
        die("no device")
    for line in sys.stdin:
        request = json.loads(line)
        if request["method"] == "evaluate":
            EVALUATE.get(mode, evaluate)(request["id"], request["params"])
        elif request["method"] == "hello" and mode != "mute":
            reply(request["id"], HELLO | KINDS.get(mode, {}))
        elif request["method"] in OTHERS:
            task = request["params"].get("task", {"name": ""})["name"]
            phase(request["id"], "waiting for another judge on this machine")
            phase(request["id"], "")  # as before the wait
            OTHERS[request["method"]](request["id"], task, mode)
    if mode in ("leaves_a_child", "stays"):
        child()
    if mode == "stays":
        time.sleep(60)


main()
