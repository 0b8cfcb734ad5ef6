"""Evolutionary search for accelerator kernels: a PyTorch reference in, a verified fast kernel out.

Importing this package costs nothing: torch, LiteLLM, Hydra and SQLAlchemy are imported by the
modules that need them, when they need them.
"""

__version__ = "0.1.0"
