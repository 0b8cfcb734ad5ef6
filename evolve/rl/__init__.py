"""Clients of `evolve serve` for training loops: plain, for TRL, for verl.

They run where the trainer runs, and need httpx and, of this project, only `evolve.core`.
"""

from evolve.rl.client import Client
from evolve.rl.masking import MaskedRows, TooManyMasked
from evolve.rl.outcome import Outcome, PinMismatch

__all__ = ["Client", "MaskedRows", "Outcome", "PinMismatch", "TooManyMasked"]
