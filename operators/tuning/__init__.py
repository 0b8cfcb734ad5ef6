"""Which instance of a program to try next: what fits a device, and a model of what was measured."""

from operators.tuning.device import Limits
from operators.tuning.expectation import expected
from operators.tuning.resources import fits
from operators.tuning.surrogate import suggest

__all__ = ["Limits", "expected", "fits", "suggest"]
