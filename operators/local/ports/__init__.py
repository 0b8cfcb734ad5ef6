"""Compiled references in other languages than Triton: their kernels rewritten, products our own."""

from collections.abc import Mapping

from operators.local.ports.base import Port
from operators.local.ports.cute import CUTE
from operators.local.ports.cutile import CUTILE
from operators.local.ports.gluon import GLUON
from operators.local.ports.nvrtc import NVRTC
from operators.local.ports.tilelang import TILELANG

PORTS: Mapping[str, Port] = {port.language: port for port in (GLUON, NVRTC, CUTE, CUTILE, TILELANG)}
"""By the name of the language."""

__all__ = ["PORTS", "Port"]
