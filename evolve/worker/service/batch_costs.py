"""How long a request of a batch may take, by those before it."""

from collections import deque
from collections.abc import Sequence

from evolve.worker.service.batch_files import BatchRequest

MARGIN = 1.2  # times the longest of the recent requests of the kind
RECENT = 20


class Costs:
    """Wall seconds of requests, by kind; waiting for the device included."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], deque[float]] = {}

    def add(self, request: BatchRequest, seconds: float) -> None:
        for kind in self._kinds(request):
            self._seen.setdefault(kind, deque(maxlen=RECENT)).append(seconds)

    def expected_s(self, request: BatchRequest) -> float:
        """Its expected seconds, by requests like it; 0 before anything is known."""
        kinds = self._kinds(request)
        seen = next((self._seen[kind] for kind in kinds if kind in self._seen), ())
        return MARGIN * max(seen, default=0.0)

    @staticmethod
    def _kinds(request: BatchRequest) -> Sequence[tuple[str, ...]]:
        """The closest first: of the same task and fidelity, of the same fidelity, any."""
        about = request.subject
        like = (request.method, str(about.get("fidelity", "")))
        return (*like, str(about.get("task", ""))), like, ()
