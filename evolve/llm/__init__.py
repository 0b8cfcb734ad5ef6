"""Language models through LiteLLM, behind `evolve.core.model.LanguageModel`.

- `LiteLLM`: one model or several, with retries, deadlines, rate limits and prices.
- `ReplayModel`: recorded answers instead.

Nothing here imports LiteLLM before a call is made.
"""

from evolve.llm.models import LiteLLM
from evolve.llm.replay import ReplayModel
from evolve.llm.settings import ModelSettings

__all__ = ["LiteLLM", "ModelSettings", "ReplayModel"]
