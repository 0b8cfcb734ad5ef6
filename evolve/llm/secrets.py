"""Keys stay in the environment: they are taken out of every text that is shown, stored or raised.

A configuration names the *variable* that holds a key, never the key. What an endpoint or a library
says about a failed call may still quote it, so such text passes through `scrub`.
"""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

HIDDEN = "[key]"

KEY_VARIABLES = {
    "anthropic": "ANTHROPIC_API_KEY",
    "azure": "AZURE_API_KEY",
    "cerebras": "CEREBRAS_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "fireworks_ai": "FIREWORKS_AI_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "groq": "GROQ_API_KEY",
    "mistral": "MISTRAL_API_KEY",
    "moonshot": "MOONSHOT_API_KEY",
    "nvidia_nim": "NVIDIA_NIM_API_KEY",
    "openai": "OPENAI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "together_ai": "TOGETHERAI_API_KEY",
    "xai": "XAI_API_KEY",
}
"""Where LiteLLM looks for keys, for the providers that most people have."""

_VARIABLES = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_SETTINGS = re.compile(
    r"api[_-]?key|secret|password|credential|authorization|(^|[_-])token$", re.IGNORECASE
)
_SHORTEST = 8  # a shorter value is no key, and would be found all over the text
_PATTERNS = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|r8|nvapi|dapi)[-_][\w*.\-]{6,}"  # also as providers mask them
    r"|\bAIza[\w-]{20,}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{12,}"
    r"|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"
    r"|(?<=earer )[^\s'\",;]{6,}"
    r"|(?<=://)[^\s/@'\"]+:[^\s/@'\"]+(?=@)"
)


def scrub(text: str) -> str:
    """The text without the keys of this process's environment, nor what looks like one."""
    for value in sorted(_values(), key=len, reverse=True):  # one may contain another
        text = text.replace(value, HIDDEN)
    return _PATTERNS.sub(HIDDEN, text)


def secret_setting(settings: Mapping[str, Any]) -> str | None:
    """The first name within nested settings under which a secret would stand."""
    for name, value in settings.items():
        if _SETTINGS.search(name):
            return name
        if isinstance(value, Mapping) and (inner := secret_setting(value)):
            return f"{name}.{inner}"
    return None


def _values() -> Iterator[str]:
    for name, value in os.environ.items():
        if _VARIABLES.search(name) and len(value) >= _SHORTEST:
            yield value
