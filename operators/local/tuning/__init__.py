"""The next instance of a program to try: device limits, and a model of the measurements."""

from operators.local.tuning.device import Limits
from operators.local.tuning.expectation import expected
from operators.local.tuning.resources import fits
from operators.local.tuning.surrogate import suggest

__all__ = ["Limits", "expected", "fits", "suggest"]
