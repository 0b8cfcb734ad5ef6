"""Run as a script: programs with kernels of ours in the place of a vendor's, interpreted.

Reads a list of cases (`tests.operators.test_templates.Case` as JSON) and answers, for each, how far
the output is from that of torch, relative to the largest value of the latter.
"""

import json
import sys

import torch

from tests.operators.inductor_running import apart, imported


def main() -> None:
    for case in json.load(sys.stdin):
        torch.manual_seed(0)
        tensors = [torch.randn(shape).as_strided(*view) for shape, view in case["tensors"]]
        names = case["names"]
        expected = eval(
            case["reference"], {"torch": torch, **dict(zip(names, tensors, strict=True))}
        )
        with torch.no_grad():
            found = imported(case["program"]).ModelNew()(*tensors)
        print(json.dumps([case["name"], apart(expected, found)]), flush=True)


if __name__ == "__main__":
    main()
