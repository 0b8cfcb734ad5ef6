"""The remedy for a refusal that a person has to mend, with the name of the setting."""

import re
from collections.abc import Iterator

from evolve.llm.faults import Fault, FaultKind
from evolve.llm.quirks import window_in
from evolve.llm.settings import ModelSettings

_NAMES = {  # settings by the words of endpoints
    "temperature": "temperature",
    "top_p": "top_p",
    "reasoning_effort|reasoning effort|thinking": "reasoning_effort",
    "max_tokens|max_completion_tokens|max_output_tokens": "max_tokens",
    "stream|streaming": "stream",
    "logprobs|return_token_ids": "trace",
}
_AFFORDABLE = re.compile(r"can only afford (\d+)")


def remedy(fault: Fault, settings: ModelSettings, tries: int) -> str:
    """The fault and the setting that mends it, without a full stop.

    Args:
        fault: the refusal.
        settings: of the model.
        tries: how many requests in a row were refused like this.
    """
    message = fault.message
    match fault.kind:
        case FaultKind.AUTHENTICATION:
            return f"the key is missing or refused: {message}; {_key(settings)}"
        case FaultKind.QUOTA:
            less = _AFFORDABLE.search(message)
            other = f", or set llm.max_tokens={less[1]} or less" if less else ""
            return f"the account's quota is used up: {message}; raise it{other}"
        case FaultKind.NO_SUCH_MODEL:
            return f"no such model there: {message}; mend llm.model or llm.api_base"
        case FaultKind.SET_UP:
            page = f"https://docs.litellm.ai/docs/providers/{settings.provider}"
            return f"it cannot be asked: {message}; {page} says what LiteLLM needs for it"
        case FaultKind.TOO_LONG:
            return f"{tries} prompts in a row are too long: {message}; {_window(fault, settings)}"
    named = ", ".join(_named(fault, settings)) or "llm.options, llm.temperature or the like"
    return f"{tries} requests in a row were refused as bad: {message}; mend {named}"


def _key(settings: ModelSettings) -> str:
    if settings.is_keyless:
        return "name the variable that holds one: llm.key_variable=NAME"
    where = settings.expected_variable
    return f"export a valid one as {where}" if where else "export what is missing"


def _window(fault: Fault, settings: ModelSettings) -> str:
    window, set_to = window_in(f"{fault.message} {fault.body}"), settings.context_tokens
    if set_to is not None and (window is None or set_to <= window):
        return f"set llm.context_tokens below {set_to}, or a smaller llm.max_tokens"
    size = window or "the tokens that it takes"
    return f"set llm.context_tokens={size}, to which prompts are then cut, or let it hold more"


def _named(fault: Fault, settings: ModelSettings) -> Iterator[str]:
    """The settings that a refusal speaks of."""
    for option in settings.options:
        if re.search(rf"\b{re.escape(option)}\b", fault.words):
            yield f"llm.options.{option}"
    for pattern, name in _NAMES.items():
        if re.search(rf"\b({pattern})\b", fault.words, re.IGNORECASE):
            yield f"llm.{name}"
