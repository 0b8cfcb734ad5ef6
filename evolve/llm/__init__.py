"""Language models through LiteLLM, behind `evolve.core.model.LanguageModel`.

- `LiteLLM`: one model or several, with retries, deadlines, rate limits and prices.
- `CommandModel`: a program of the user's instead, such as a coding agent with a subscription.
- `ReplayModel`: recorded answers instead.

Nothing here imports LiteLLM before a call is made.
"""

from evolve.llm.models import LiteLLM
from evolve.llm.programs.command import CommandModel
from evolve.llm.replay import ReplayModel
from evolve.llm.settings import ModelSettings

__all__ = ["CommandModel", "LiteLLM", "ModelSettings", "ReplayModel"]
