"""LiteLLM: the only module that imports it, and only once a call is made (seconds, 170 MB).

It is imported by name: a type checker that followed it would read two thousand modules.
"""

import asyncio
import importlib
import logging
import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

from evolve.core.model import CallStatus, ModelReply, ModelRequest, TokenTrace, Usage
from evolve.core.source.thoughts import split_thought
from evolve.llm.faults import Fault, FaultKind, classify, one_line
from evolve.llm.prices import prompt_estimate
from evolve.llm.quirks import Quirks
from evolve.llm.secrets import scrub
from evolve.llm.settings import ModelSettings
from evolve.llm.text import storable
from evolve.llm.wire import Sending, install, sending

LOADING = "evolve-loading"  # name of the thread; a command ends without it (`evolve.cli.main`)
CONNECT_S = 20.0
MAX_TOKENS = 10**9
"""Of one call: an endpoint that counts more counts wrongly, and is charged as reserved."""

MAX_COST_USD = 1e4
"""Of one call: an endpoint that charges more is misread, and the call is charged by its tokens."""

_CRASHES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What LiteLLM raises by mistake, on replies that it does not expect."""

_log = logging.getLogger(__name__)

# Set before the import, which reads them: no list is fetched, no .env file of the folder is read
# into the environment, nothing is printed.
_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_OFFLINE_MODE": "True",
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOG": "ERROR",
}


@cache
def load() -> Any:
    """LiteLLM, set up to keep to itself.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    litellm: Any = importlib.import_module("litellm")
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    litellm.num_retries = None
    litellm.input_callback = [_marker()]
    install()
    importlib.import_module("openai.resources")  # else it comes with the first call: a second
    _rehearse(litellm)
    return litellm


def _rehearse(litellm: Any) -> None:
    """One call that reaches no network, for what LiteLLM makes at its first: 0.1 to 0.4 s.

    A call is charged from right before it is sent: killed meanwhile, it would be paid for unasked.
    """
    message = {"role": "user", "content": "?"}
    litellm.completion(
        model="openai/none", messages=[message], api_key="none", mock_response="!", max_retries=0
    )


def _marker() -> Any:
    """Notes in `sending` that LiteLLM has come as far as sending a request."""
    base: Any = importlib.import_module("litellm.integrations.custom_logger").CustomLogger

    class Marker(base):
        def log_pre_api_call(self, model: str, messages: object, kwargs: object) -> None:
            sending.get(Sending()).sent = True

    return Marker()


async def ready() -> None:
    """Load LiteLLM in a thread, so that nothing else has to wait for it.

    Nor does the end of the process: asyncio would wait for a thread of its own.
    """
    if load.cache_info().currsize:
        return
    loaded: Future[Any] = Future()
    loaded.set_running_or_notify_cancel()  # it cannot be cancelled any more

    def work() -> None:
        try:
            loaded.set_result(load())
        except BaseException as error:  # noqa: BLE001 it is raised where this is awaited
            loaded.set_exception(error)

    threading.Thread(target=work, name=LOADING, daemon=True).start()
    await asyncio.wrap_future(loaded)


async def close() -> None:
    """Close the connections that LiteLLM keeps, if it was ever loaded."""
    if load.cache_info().currsize:
        await load().close_litellm_async_clients()


async def send(
    settings: ModelSettings, arguments: Mapping[str, Any], timeout_s: float
) -> ModelReply | Fault:
    """One attempt without retries, also of the SDK's: the answer, or why there is none.

    Cancelling it closes the connection.

    Args:
        settings: how the model is reached.
        arguments: of LiteLLM's call, by `arguments_of`.
        timeout_s: seconds for all of it.
    """
    litellm = load()
    openai = importlib.import_module("openai")
    passed_on = [*(arguments.get("allowed_openai_params") or ()), *_passed_on(settings.provider)]
    timeout = _timeout(settings.deadline_s)
    arguments = dict(arguments) | {"timeout": timeout, "allowed_openai_params": passed_on}
    state = Sending()
    sending.set(state)
    start = time.monotonic()
    try:
        async with asyncio.timeout(timeout_s):
            response = await _answer(litellm, arguments)
    except TimeoutError:
        kind = FaultKind.LOST if state.sent else FaultKind.UNREACHABLE
        return Fault(kind, f"no answer within {timeout_s:.0f} s")
    except (openai.OpenAIError, *_CRASHES) as error:  # the base of all that LiteLLM raises
        return classify(error, sent=state.sent)
    if response is None:
        return Fault(FaultKind.LOST, "the stream ended before the answer did")
    reply = read(litellm, settings, response, time.monotonic() - start)
    return _broken_off(reply, state.failure) if state.failure else reply


def _broken_off(reply: ModelReply, failure: str) -> ModelReply:
    """An answer that an error of the endpoint ended: what was said so far, and charged."""
    status = CallStatus.TRUNCATED if reply.text.strip() else CallStatus.EMPTY
    why = f"the endpoint failed while it answered: {one_line(failure)}"
    return replace(reply, status=status, error=why)


@cache
def _passed_on(provider: str) -> list[str]:
    """Parameters that LiteLLM has to be told to pass on to the SDK.

    For some OpenAI-compatible providers it drops `max_retries=0` (nvidia_nim, deepinfra, zai and
    eleven more in 1.106), and the SDK then sends every request up to three times.
    """
    litellm = load()
    if provider not in litellm.openai_compatible_providers:
        return []
    known = litellm.get_supported_openai_params("any", custom_llm_provider=provider) or ()
    return [] if "max_retries" in known else ["max_retries"]


def _timeout(seconds: float) -> Any:
    """Being connected takes no longer than `CONNECT_S`: a host that swallows packets is down.

    The same for every call, because LiteLLM opens new connections for every other value; the
    deadline itself is kept by `send`.
    """
    httpx = importlib.import_module("httpx")
    return httpx.Timeout(seconds, connect=min(seconds, CONNECT_S))


async def _answer(litellm: Any, arguments: Mapping[str, Any]) -> Any:
    """The response; None for a stream that broke off without an error."""
    try:
        response = await litellm.acompletion(**arguments)
    except litellm.UnsupportedParamsError as error:  # raised before anything is sent
        _say_once(arguments["model"], classify(error, sent=False).message)
        response = await litellm.acompletion(**arguments, drop_params=True)
    return await _whole(litellm, response, arguments) if arguments.get("stream") else response


async def _whole(litellm: Any, stream: Any, arguments: Mapping[str, Any]) -> Any:
    """A stream put together, without what LiteLLM makes up.

    It ends a stream that was cut off with a `stop`, and counts tokens itself where the endpoint
    did not.
    """
    chunks = [chunk async for chunk in stream]
    if stream.received_finish_reason is None and stream.intermittent_finish_reason is None:
        return None
    response = litellm.stream_chunk_builder(chunks, messages=arguments["messages"])
    logprobs = [
        token
        for chunk in chunks
        for choice in chunk.choices
        for token in getattr(getattr(choice, "logprobs", None), "content", None) or ()
    ]
    response.choices[0].logprobs = SimpleNamespace(content=logprobs)
    if not any(getattr(chunk, "usage", None) for chunk in stream.chunks):  # as they came in
        response.usage = None
    return response


@cache
def _say_once(model: str, complaint: str) -> None:
    _log.warning("%s does not take all parameters, these are left out: %s", model, complaint)


def arguments_of(
    settings: ModelSettings, request: ModelRequest, sample: int, quirks: Quirks
) -> dict[str, Any]:
    """Arguments of LiteLLM's call. Equal requests with a seed get seeds of their own."""
    sampling = request.sampling
    given: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "reasoning_effort": sampling.reasoning_effort,
        "seed": None if sampling.seed is None else sampling.seed + sample,
        "stop": list(sampling.stop) or None,
        "max_tokens": request.max_tokens or settings.max_tokens,
        "api_base": settings.api_base,
        "api_key": _key(settings),
    }
    if settings.stream:
        given |= {"stream": True, "stream_options": {"include_usage": True}}
    if settings.trace:
        given |= {"logprobs": True, "extra_body": {"return_token_ids": True}}
    if "extra_body" in given and "extra_body" in settings.options:
        given["extra_body"] |= settings.options["extra_body"]
    arguments = {
        "model": settings.model,
        "messages": [
            {"role": message.role, "content": message.content} for message in request.messages
        ],
        "max_retries": 0,
        "num_retries": 0,
        **settings.options,
        **{name: value for name, value in given.items() if value is not None},
    }
    return quirks.arguments(arguments, prompt_estimate(request.messages))


def _key(settings: ModelSettings) -> str | None:
    """The key to send; None leaves it to LiteLLM, which knows each provider's variable."""
    if settings.key_variable is not None:
        return os.environ.get(settings.key_variable, "")
    return "none" if settings.is_keyless else None


def read(litellm: Any, settings: ModelSettings, response: Any, latency_s: float) -> ModelReply:
    """A LiteLLM response in our words."""
    choice = next(iter(response.choices), None)
    thought, text = split_thought(storable(choice.message.content or "") if choice else "")
    usage = _usage(getattr(response, "usage", None), is_answered=bool(text))
    common: dict[str, Any] = {
        "usage": usage,
        "cost_usd": _cost(litellm, settings, getattr(response, "usage", None), usage),
        "latency_s": latency_s,
        "model": str(getattr(response, "model", None) or settings.model),
    }
    if choice is None:
        return ModelReply(status=CallStatus.EMPTY, error="the answer holds no choice", **common)
    finish = str(choice.finish_reason or "")
    refusal = "" if text.strip() else str(_beside(choice.message, "refusal") or "")
    kept = storable(getattr(choice.message, "reasoning_content", None) or "")
    reasoning = "\n".join(filter(None, (kept, thought)))
    status, why = _status(text, finish, refusal, reasoning)
    return ModelReply(
        status=status,
        text=text or storable(refusal),
        reasoning=reasoning,
        finish_reason=finish,
        error=why,
        trace=_trace(response, choice),
        **common,
    )


def _beside(part: Any, name: str) -> Any:
    """A field of a choice or message that LiteLLM has no place of its own for; None without it."""
    fields = getattr(part, "provider_specific_fields", None)
    return fields.get(name) if isinstance(fields, Mapping) else None


def _status(text: str, finish: str, refusal: str, reasoning: str) -> tuple[CallStatus, str]:
    before = " before its first word, while it reasoned" if reasoning and not text.strip() else ""
    if finish == "length":
        return CallStatus.TRUNCATED, f"the answer reached max_tokens{before}"
    if finish == "content_filter" or refusal:
        return CallStatus.REFUSED, "the model or a filter refused to answer"
    if not text.strip():
        beside = ", but reasoning beside it" if reasoning else ""
        return CallStatus.EMPTY, f"the answer holds no text{beside}"
    return CallStatus.COMPLETED, ""


def _usage(counted: Any, *, is_answered: bool) -> Usage | None:
    """The endpoint's counts; None if they cannot be, or one is missing: LiteLLM writes zeros."""
    if counted is None or not counted.prompt_tokens:
        return None
    prompt, said = counted.prompt_tokens, counted.completion_tokens or 0
    if min(prompt, said) < 0 or (is_answered and not said):
        return None
    said = max(said, (counted.total_tokens or 0) - prompt)  # some leave reasoning out
    if max(prompt, said) > MAX_TOKENS:
        return None
    return Usage(
        prompt=prompt,
        completion=said,
        cached=_detail(counted, "prompt_tokens_details", "cached_tokens", most=prompt),
        reasoning=_detail(counted, "completion_tokens_details", "reasoning_tokens", most=said),
    )


def _detail(counted: Any, group: str, name: str, *, most: int) -> int | None:
    """A part of a count; None if it is not given, or cannot be."""
    value = getattr(getattr(counted, group, None), name, None)
    return int(value) if value is not None and 0 <= value <= most else None


def _cost(litellm: Any, settings: ModelSettings, counted: Any, usage: Usage | None) -> float | None:
    """By the user's price, else as OpenRouter says that it charged, else by LiteLLM's.

    LiteLLM's knows of tiers and cache writes, and not which provider OpenRouter took.

    Of the counts that were found possible, and None rather than an error: the answer is paid for.
    """
    if usage is None:
        return None
    if settings.own_price is not None:
        return settings.own_price.cost(usage)
    if settings.provider == "openrouter" and (charged := _charged(counted)) is not None:
        return charged
    if settings.listing is None or settings.ceiling is None:
        return None
    left = usage.prompt - (usage.cached or 0)
    written = _detail(counted, "prompt_tokens_details", "cache_creation_tokens", most=left)
    vetted = litellm.Usage(
        prompt_tokens=usage.prompt,
        completion_tokens=usage.completion,
        total_tokens=usage.total,
        reasoning_tokens=usage.reasoning,
        prompt_tokens_details={"cached_tokens": usage.cached, "cache_creation_tokens": written},
    )
    try:
        if settings.listing.name in litellm.model_cost:  # it raises bare exceptions where it is not
            return sum(litellm.cost_per_token(model=settings.model, usage_object=vetted))
        said = "LiteLLM has no price of it"
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        said = scrub(str(error)).partition("\n")[0]
    _log.warning("%s: the cost of a call is not known: %s", settings.model, said)
    return None


def _charged(counted: Any) -> float | None:
    """`usage.cost` in USD; None if it is not given, or cannot be."""
    cost = getattr(counted, "cost", None)
    return float(cost) if isinstance(cost, int | float) and 0 <= cost < MAX_COST_USD else None


def _trace(response: Any, choice: Any) -> TokenTrace | None:
    content = getattr(getattr(choice, "logprobs", None), "content", None) or ()
    trace = TokenTrace(
        prompt_ids=_integers(getattr(response, "prompt_token_ids", None)),
        ids=_integers(_beside(choice, "token_ids")),
        logprobs=tuple(float(token.logprob) for token in content),
    )
    return trace if trace != TokenTrace() else None


def _integers(values: Any) -> tuple[int, ...]:
    """A list of token ids; empty if it is anything else."""
    known = isinstance(values, list) and all(isinstance(value, int) for value in values)
    return tuple(values) if known else ()
