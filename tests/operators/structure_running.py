"""Run as a script: rewritten programs beside those that they were made of, interpreted.

Standard input holds a line of JSON for each pair (`name`, `task`, `before`, `after`); standard
output gets one with the name and how far their outputs are apart, relative to the largest value.
Rewritten programs run with few programs, so that each takes several tiles.
"""

import json
import sys
from functools import lru_cache
from typing import Any

import torch

from tests.operators import interpreter
from tests.operators.inductor_running import apart, flat, imported

PROGRAMS = 2


def main() -> None:
    interpreter.prepare()
    for line in sys.stdin:
        pair = json.loads(line)
        print(json.dumps([pair["name"], difference(pair)]), flush=True)


def difference(pair: dict[str, str]) -> float:
    arguments, state, inputs, expected = original(pair["task"], pair["before"])
    after = imported(pair["after"])
    for name in vars(after):
        if name.endswith("_PROGRAMS"):
            setattr(after, name, PROGRAMS)
    model = after.ModelNew(*arguments).eval()
    model.load_state_dict(state)
    with torch.no_grad():
        found = flat(model(*inputs))
    assert len(expected) == len(found)
    return max(apart(*both) for both in zip(expected, found, strict=True))


@lru_cache(maxsize=1)  # rewrites of a program come one after the other
def original(source: str, program: str) -> tuple[list[Any], dict[str, Any], list[Any], list[Any]]:
    """A task's arguments and inputs, with the state of a program's model and its outputs."""
    task: dict[str, Any] = {}
    exec(source, task)
    torch.manual_seed(0)
    arguments = task["get_init_inputs"]()
    model = imported(program).ModelNew(*arguments).eval()
    inputs = task["get_inputs"]()
    with torch.no_grad():
        return arguments, model.state_dict(), inputs, flat(model(*inputs))


if __name__ == "__main__":
    main()
