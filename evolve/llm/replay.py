"""Recorded answers instead of a model: a search runs again offline, call by call."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from evolve.core.errors import UsageError
from evolve.core.model import (
    Commit,
    LanguageModel,
    ModelCard,
    ModelReply,
    ModelRequest,
    Reservation,
    not_committed,
)

Lookup = Callable[[str, int], ModelReply | None]
"""The recorded reply to a request, by its key and the number of its sample."""


class ReplayModel:
    """`evolve.core.model.LanguageModel` that answers from a record, without an endpoint.

    Args:
        recorded: the models as they were configured; they resolve and reserve as they did then.
        lookup: where the answers are.
        source: what to call the record in messages.
    """

    def __init__(self, recorded: LanguageModel, lookup: Lookup, *, source: str) -> None:
        self._recorded = recorded
        self._lookup = lookup
        self._source = source

    @property
    def models(self) -> Sequence[ModelCard]:
        return self._recorded.models

    @property
    def slots(self) -> int:
        return self._recorded.slots

    def resolve(self, request: ModelRequest) -> ModelRequest:
        return self._recorded.resolve(request)

    def reserve(self, request: ModelRequest) -> Reservation:
        return self._recorded.reserve(request)

    async def complete(
        self, request: ModelRequest, sample: int = 0, commit: Commit = not_committed
    ) -> ModelReply:
        """The recorded answer, sent no more. Raises UsageError if there is none."""
        reply = self._lookup(request.key, sample)
        if reply is None:
            raise UsageError(
                f"llm=replay: {self._source} holds no answer to sample {sample} of request "
                f"{request.key[:12]} ({request.purpose}, {request.model}): either none ever came, "
                "and the record ends here, or what is asked now differs from what was asked then; "
                "replay with the recorded run's seed, task, operators, archive and selection"
            )
        commit()
        return replace(reply, attempts=0)

    async def close(self) -> None:
        await self._recorded.close()
