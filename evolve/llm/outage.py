"""Whether an endpoint is down: a circuit breaker (Nygard, "Release It!", 2007)."""

import time
from dataclasses import dataclass

THRESHOLD = 5
FIRST_PAUSE_S = 30.0
MAX_PAUSE_S = 300.0


@dataclass(slots=True)
class Circuit:
    """Opens after so many faults in a row; then one call may try after each pause, ever longer.

    A fault is what says nothing about the request: the endpoint was not reached, would not take
    it now, or gave no answer. Any answer, be it a refusal of the request, closes the circuit.
    """

    threshold: int = THRESHOLD
    first_pause_s: float = FIRST_PAUSE_S
    longest_pause_s: float = MAX_PAUSE_S
    faults: int = 0  # in a row
    last: str = ""  # what the newest one said
    _since: float = 0.0
    _pause_s: float = 0.0
    _next_try: float = 0.0

    @property
    def is_open(self) -> bool:
        return self.faults >= self.threshold

    @property
    def down_for_s(self) -> float:
        """Seconds since the first fault of the row; 0 if there is none."""
        return time.monotonic() - self._since if self.faults else 0.0

    @property
    def wait_s(self) -> float:
        """Seconds until a call may try; 0 if one may now."""
        return max(0.0, self._next_try - time.monotonic()) if self.is_open else 0.0

    def admit(self) -> bool:
        """Whether a call may go ahead. An open circuit admits one after each pause."""
        if not self.is_open:
            return True
        if self.wait_s > 0:
            return False
        self._pause_s = min(2 * self._pause_s, self.longest_pause_s)
        self._next_try = time.monotonic() + self._pause_s
        return True

    def fault(self, message: str) -> None:
        """A call failed for no reason of its own."""
        now = time.monotonic()
        if not self.faults:
            self._since = now
        self.faults += 1
        self.last = message
        if self.faults == self.threshold:
            self._pause_s = self.first_pause_s
            self._next_try = now + self._pause_s

    def answer(self) -> None:
        """A call was answered."""
        self.faults, self.last = 0, ""
