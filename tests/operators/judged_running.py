"""Run as a script: programs on the judge's input families, under Triton's interpreter.

Reads cases with a name, a program and a task, as JSON, and prints for each the judge's status by
family, of its comparison alone.
"""

import json
import sys

from tests.operators import interpreter
from tests.operators.inductor_running import imported
from tests.worker.judging import loaded_case, verdicts


def main() -> None:
    interpreter.prepare()
    for case in json.load(sys.stdin):
        program = imported(case["source"]).ModelNew()
        found = verdicts(loaded_case(case["task"]), lambda model, *inputs, p=program: p(*inputs))
        print(json.dumps([case["name"], found]), flush=True)


if __name__ == "__main__":
    main()
