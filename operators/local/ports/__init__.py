"""Compiled references in other languages than Triton: their kernels rewritten, products our own."""

from collections.abc import Mapping

from operators.local.ports.base import Port
from operators.local.ports.gluon import GLUON
from operators.local.ports.nvrtc import NVRTC

PORTS: Mapping[str, Port] = {port.language: port for port in (GLUON, NVRTC)}
"""By the name of the language."""

__all__ = ["PORTS", "Port"]
