"""Run as a script: programs on the judge's input families, under Triton's interpreter.

Reads cases with a name, a program, a task and families (none: all that apply), as JSON, and prints
for each the judge's status by family, of its comparison alone.
"""

import json
import sys

from tests.operators import interpreter
from tests.operators.inductor_running import imported
from tests.worker.judging import judged, loaded_case


def main() -> None:
    interpreter.prepare()
    for case in json.load(sys.stdin):
        program = imported(case["source"]).ModelNew()
        task = loaded_case(case["task"])
        found = {
            family: judged(task, lambda model, *inputs, p=program: p(*inputs), family).status
            for family in case["families"] or task.families()
        }
        print(json.dumps([case["name"], found]), flush=True)


if __name__ == "__main__":
    main()
