"""A coding agent beside the other models of a run."""

from collections.abc import Sequence

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
from evolve.core.protocols import LiveJudge, TriesPrograms


class CombinedModel:
    """`evolve.core.model.LanguageModel` over two: requests go to the one that has their model.

    Args:
        models: the first one answers requests that name no model.
    """

    def __init__(self, models: Sequence[LanguageModel]) -> None:
        self._models = models
        names = [card.name for card in self.models]
        if len({*names}) < len(names):
            raise UsageError(f"llm: two models are called {names[-1]}; give one another name")

    @property
    def members(self) -> Sequence[LanguageModel]:
        """The models themselves."""
        return self._models

    @property
    def models(self) -> Sequence[ModelCard]:
        return [card for each in self._models for card in each.models]

    @property
    def slots(self) -> int:
        return sum(each.slots for each in self._models)

    def judged_by(self, judge: LiveJudge) -> None:
        """See `evolve.core.protocols.TriesPrograms`."""
        for each in self._models:
            if isinstance(each, TriesPrograms):
                each.judged_by(judge)

    def resolve(self, request: ModelRequest) -> ModelRequest:
        return self._of(request).resolve(request)

    def reserve(self, request: ModelRequest) -> Reservation:
        return self._of(request).reserve(request)

    async def complete(
        self, request: ModelRequest, sample: int = 0, commit: Commit = not_committed
    ) -> ModelReply:
        return await self._of(request).complete(request, sample, commit)

    async def close(self) -> None:
        for each in self._models:
            await each.close()

    def _of(self, request: ModelRequest) -> LanguageModel:
        owners = [each for each in self._models if _has(each, request.model)]
        return owners[0] if owners else self._models[0]


def _has(model: LanguageModel, name: str | None) -> bool:
    return name in {card.name for card in model.models}
