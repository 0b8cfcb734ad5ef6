"""Findings and sentences about GPUs of any vendor."""

from collections.abc import Mapping
from typing import Any

from evolve.app.finding import MISSING, OK, Finding

Facts = Mapping[str, Any]
"""The plain data of `evolve.worker.base.host_facts`, or a part of it."""


def why_no_torch(torch: Facts) -> str:
    """Why torch cannot be imported, and the remedy; empty if it can."""
    return "" if torch["version"] else f"torch cannot be imported ({torch['problem']}); install it"


def no_usable_gpu(torch: Facts, tool: str) -> str:
    """That torch finds no GPU although it is built for it, and the vendor's tool to ask."""
    reason = f" ({torch['problem']})" if torch["problem"] else ""
    return f"torch {torch['version']} finds no usable GPU{reason}; see whether `{tool}` does"


def c_compiler(tools: Facts, lacking: str = MISSING) -> Finding:
    """The C compiler; `lacking` is the state without one."""
    found = tools["c compiler"]
    remedy = "none: Triton and the judge need one; apt-get install gcc, or set CC"
    return Finding(OK if found else lacking, "c compiler", found or remedy)
