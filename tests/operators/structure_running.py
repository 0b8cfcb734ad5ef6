"""Run as a script: rewritten programs beside those that they were made of, interpreted.

Standard input holds a line of JSON for each pair (`name`, `task`, `before`, `after`); standard
output gets one with the name and how far their outputs are apart, relative to the largest value.
Rewritten programs run with few programs, so that each takes several tiles.
"""

import json
import sys

import torch

from tests.operators.inductor_running import apart, flat, imported, interpret_libdevice

PROGRAMS = 2


def main() -> None:
    interpret_libdevice()
    for line in sys.stdin:
        pair = json.loads(line)
        print(json.dumps([pair["name"], difference(pair)]), flush=True)


def difference(pair: dict[str, str]) -> float:
    task = {}
    exec(pair["task"], task)
    torch.manual_seed(0)
    arguments = task["get_init_inputs"]()
    before, after = imported(pair["before"]), imported(pair["after"])
    for name in vars(after):
        if name.endswith("_PROGRAMS"):
            setattr(after, name, PROGRAMS)
    model, other = before.ModelNew(*arguments).eval(), after.ModelNew(*arguments).eval()
    other.load_state_dict(model.state_dict())
    inputs = task["get_inputs"]()
    with torch.no_grad():
        expected, found = flat(model(*inputs)), flat(other(*inputs))
    assert len(expected) == len(found)
    return max(apart(*both) for both in zip(expected, found, strict=True))


if __name__ == "__main__":
    main()
