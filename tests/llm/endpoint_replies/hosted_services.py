"""Odd replies of services: OpenRouter, Azure OpenAI, Bedrock, Gemini, Anthropic and others."""

from collections.abc import Mapping
from typing import Any

from evolve.core.model import CallStatus
from evolve.testing.model_server import Raw
from tests.llm.endpoint_replies.shapes import (
    BAD,
    DRAFT,
    GOOD,
    LARGE,
    STREAM,
    Case,
    answer,
    bare,
    pieces,
    refused,
)

AZURE = {"options": {"api_version": "2024-10-21"}}
CLAUDE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "content": [
        {"type": "thinking", "thinking": DRAFT, "signature": "s"},
        {"type": "text", "text": GOOD},
    ],
    "usage": {"input_tokens": 1000, "output_tokens": 500},
}
CONVERSE = {
    "output": {
        "message": {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": DRAFT, "signature": "s"}}},
                {"text": GOOD},
            ],
        }
    },
    "stopReason": "end_turn",
    "usage": {"inputTokens": 1000, "outputTokens": 500, "totalTokens": 1500},
    "metrics": {"latencyMs": 1},
}
THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": DRAFT}]}
BEDROCK = "bedrock/converse/us.anthropic.claude-m"
USAGE = {"promptTokenCount": 1000, "candidatesTokenCount": 500, "totalTokenCount": 1500}


def candidate(*parts: Mapping[str, Any], finish: str = "STOP", **more: Any) -> Raw:
    """A reply of Gemini's `generateContent`."""
    content = {"role": "model", "parts": [dict(part) for part in parts]}
    first = {"content": content if parts else {"role": "model"}, "finishReason": finish, "index": 0}
    return Raw({"candidates": [first], "usageMetadata": USAGE, "modelVersion": "m"} | more)


def exhausted(delay: str) -> dict[str, Any]:
    """Gemini's 429, with its `RetryInfo`."""
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
    said = "You exceeded your current quota, please check your plan."
    return {"code": 429, "message": said, "status": "RESOURCE_EXHAUSTED", "details": [info]}


def gemini_error(message: str) -> Raw:
    """Gemini's 400."""
    return Raw({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}, 400)


def claude_error(status: int, kind: str, message: str, **more: Any) -> Raw:
    """An error of Anthropic."""
    return Raw({"type": "error", "error": {"type": kind, "message": message} | more}, status)


def bedrock_error(message: str, status: int = 400, headers: Mapping[str, str] | None = None) -> Raw:
    """An error of Bedrock."""
    return Raw({"message": message}, status, headers or {})


OPENROUTER = [
    Case(
        product="OpenRouter", version="v1", source="Aider-AI/aider#3550",
        says="status 200 with an error in the place of choices",
        replies=[Raw({"error": {"message": "Rate limit exceeded: free models. ", "code": 429,
                                "metadata": {"headers": {"X-RateLimit-Limit": "20"}}},
                      "user_id": "u"}), answer()],
        model="openrouter/m",
    ),
    Case(
        product="OpenRouter", version="v1", source="maximhq/bifrost#5425",
        says="an error inside of a choice, behind half an answer",
        replies=[answer("Half an", finish="error", error={"code": 502, "message": "Upstream died"},
                        usage={"prompt_tokens": None, "completion_tokens": None,
                               "total_tokens": 0})],
        model="openrouter/m", text="Half an", attempts=1, status=CallStatus.TRUNCATED,
    ),
    Case(
        product="OpenRouter", version="v1", source="openrouter.ai/docs/errors",
        says="an error inside of a choice, and no text",
        replies=[answer(None, finish="error", error={"code": 503, "message": "No provider"},
                        usage=None), answer()],
        model="openrouter/m",
    ),
    Case(
        product="OpenRouter", version="v1, streamed", source="openrouter.ai/docs/errors",
        says="an error as the first event, behind comments",
        replies=[Raw(': OPENROUTER PROCESSING\n\ndata: {"error":{"code":429,"message":"Slow down"}}'
                     '\n\n', headers={"content-type": "text/event-stream"}),
                 pieces({"content": GOOD})],
        model="openrouter/m", settings=STREAM,
    ),
    Case(
        product="OpenRouter", version="v1, streamed", source="openrouter.ai/docs/errors",
        says="an error behind half an answer, its code a word",
        replies=[Raw([{"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
                       "choices": [{"index": 0, "delta": {"content": "Half"}}]},
                      {"error": {"code": "server_error", "message": "Provider disconnected"},
                       "choices": [{"index": 0, "delta": {"content": ""},
                                    "finish_reason": "error"}]}], events=True), answer()],
        model="openrouter/m", settings=STREAM, text="", attempts=1, status=CallStatus.UNKNOWN,
    ),
    Case(
        product="OpenRouter", version="v1", source="diegosouzapw/OmniRoute#3044",
        says="the provider's error as a text inside of its own",
        replies=[refused(400, "Provider returned error", code=400,
                         metadata={"provider_name": "P", "raw": '{"error":{"message":"temperature '
                                   'is not supported by this model"}}'}), answer()],
        model="openrouter/m", settings={"temperature": 0.7}, lacks=["temperature"],
    ),
    Case(
        product="OpenRouter", version="v1", source="open-webui/computer#293",
        says="429 of the provider, its words in `metadata.raw`",
        replies=[refused(429, "Provider returned error", code=429,
                         metadata={"raw": "m is temporarily rate-limited upstream."}), answer()],
        model="openrouter/m",
    ),
    Case(
        product="OpenRouter", version="v1", source="Gitlawb/openclaude#1125",
        says="402 where the credit does not cover `max_tokens`",
        replies=[refused(402, "This request requires more credits, or fewer max_tokens. You "
                         "requested up to 32000 tokens, but can only afford 27342.", code=402)],
        model="openrouter/m", stops="llm.max_tokens=27342 or less",
    ),
    Case(
        product="OpenRouter", version="v1", source="openrouter.ai/docs/errors, Retry-After",
        says="402 with Retry-After, while calls under way hold the credit",
        replies=[refused(402, "In-flight budget reached", {"retry-after": "0.1"}, code=402),
                 answer()],
        model="openrouter/m",
    ),
]  # fmt: skip
AZURE_OPENAI = [
    Case(
        product="Azure OpenAI", version="2024-10-21", source="Aider-AI/aider#4707",
        says="a temperature other than 1 is refused",
        replies=[refused(400, "Unsupported value: 'temperature' does not support 0.7 with this "
                         "model. Only the default (1) value is supported.", param="temperature",
                         type=BAD, code="unsupported_value"), answer()],
        model="azure/m", settings=AZURE | {"temperature": 0.7}, lacks=["temperature"],
    ),
    Case(
        product="Azure OpenAI", version="2024-10-21, v1", source="gollm#33, Azure reasoning models",
        says="`max_tokens` is refused, `max_completion_tokens` is wanted",
        replies=[refused(400, "Unsupported parameter: 'max_tokens' is not supported with this "
                         "model. Use 'max_completion_tokens' instead.", param="max_tokens",
                         type=BAD, code="unsupported_parameter"), answer()],
        model="azure/m", settings=AZURE, holds={"max_completion_tokens": 1000},
        lacks=["max_tokens"],
    ),
    Case(
        product="Azure OpenAI", version="2024-10-21", source="icereed/paperless-gpt#814",
        says="429 with Retry-After",
        replies=[Raw({"error": {"code": "429", "message": "Your requests have exceeded the token "
                      "rate limit. Please retry after 1 seconds."}}, 429,
                     {"retry-after-ms": "50", "x-ratelimit-reset-tokens": "55"}), answer()],
        model="azure/m", settings=AZURE,
    ),
    Case(
        product="Azure OpenAI", version="2024-10-21", source="Azure docs, content filtering",
        says="400 of the filter",
        replies=[refused(400, "The response was filtered due to the prompt triggering Azure "
                         "OpenAI's content management policy.", code="content_filter",
                         innererror={"code": "ResponsibleAIPolicyViolation"})],
        model="azure/m", settings=AZURE, text="", attempts=1, status=CallStatus.REFUSED,
    ),
    Case(
        product="Azure OpenAI", version="2024-10-21, v1", source="Azure docs, deployments",
        says="no such deployment",
        replies=[refused(404, "The API deployment for this resource does not exist.",
                         code="DeploymentNotFound")],
        model="azure/m", settings=AZURE, stops="no such model there",
    ),
]  # fmt: skip
BEDROCK_CASES = [
    Case(
        product="Bedrock", version="Converse", source="AWS docs, Converse, ReasoningContentBlock",
        says="reasoning in a block of its own",
        replies=[Raw(CONVERSE)], reasoning=DRAFT, attempts=1, model=BEDROCK,
    ),
    Case(
        product="Bedrock", version="Converse", source="aws-samples/bedrock-access-gateway#191",
        says="`temperature` and `top_p` exclude each other",
        replies=[bedrock_error("The model returned the following errors: `temperature` and `top_p` "
                               "cannot both be specified for this model. Please use only one.",
                               headers={"x-amzn-errortype": "ValidationException"}),
                 Raw(CONVERSE)],
        model=BEDROCK, settings={"temperature": 0.5, "top_p": 0.9}, reasoning=DRAFT,
        holds={"inferenceConfig": {"temperature": 0.5, "maxTokens": 1000}},
    ),
    Case(
        product="Bedrock", version="Converse, Opus 4.7",
        source="Boise-State-Development/agentcore-public-stack#201",
        says="`temperature` is refused",
        replies=[bedrock_error("The model returned the following errors: `temperature` is "
                               "deprecated for this model."), Raw(CONVERSE)],
        model=BEDROCK, settings={"temperature": 0.5}, reasoning=DRAFT,
        holds={"inferenceConfig": {"maxTokens": 1000}},
    ),
    Case(
        product="Bedrock", version="Converse, InvokeModel", source="charmbracelet/crush#946",
        says="400 for a bound above the model's",
        replies=[bedrock_error("The maximum tokens you requested exceeds the model limit of 8192. "
                               "Try again with a lower one."), Raw(CONVERSE)],
        model=BEDROCK, settings=LARGE, reasoning=DRAFT,
        holds={"inferenceConfig": {"maxTokens": 8192}},
    ),
    Case(
        product="Bedrock", version="Converse", source="anthropics/claude-code#1466",
        says="429 that speaks of too many tokens is a rate limit",
        replies=[bedrock_error("Too many tokens, please wait before trying again.", 429),
                 Raw(CONVERSE)],
        model=BEDROCK, reasoning=DRAFT,
    ),
    Case(
        product="Bedrock", version="Converse", source="anthropics/claude-code#1466",
        says="a model that needs an inference profile",
        replies=[bedrock_error("Invocation of model ID m with on-demand throughput isn't "
                               "supported. Retry your request with the ID or ARN of an inference "
                               "profile that contains this model.")],
        model=BEDROCK, stops="no such model there.*inference profile",
    ),
]  # fmt: skip
GEMINI = [
    Case(
        product="Gemini", version="v1beta", source="ai.google.dev, thinking",
        says="parts marked as `thought`",
        replies=[candidate({"text": DRAFT, "thought": True}, {"text": GOOD})],
        model="gemini/m", reasoning=DRAFT, attempts=1,
    ),
    Case(
        product="Gemini", version="v1beta", source="google.rpc.RetryInfo, gemini-cli#6454",
        says="429 with `retryDelay` in the body, in words of a used-up quota",
        replies=[Raw({"error": exhausted("0.1s")}, 429), candidate({"text": GOOD})],
        model="gemini/m",
    ),
    Case(
        product="Gemini", version="v1beta, v1", source="google-gemini/gemini-cli#14811",
        says="the same in a list",
        replies=[Raw([{"error": exhausted("0.1s")}], 429), candidate({"text": GOOD})],
        model="gemini/m",
    ),
    Case(
        product="Gemini", version="v1beta", source="envoyproxy/ai-gateway#2107",
        says="`MAX_TOKENS` without a part",
        replies=[candidate(finish="MAX_TOKENS")],
        model="gemini/m", text="", attempts=1, status=CallStatus.TRUNCATED,
    ),
    Case(
        product="Gemini", version="v1beta, v1", source="ai.google.dev, API errors",
        says="400 for a key that is not valid",
        replies=[gemini_error("API key not valid. Please pass a valid API key.")],
        model="gemini/m", stops="the key is missing or refused",
    ),
    Case(
        product="Gemini", version="v1beta, v1", source="ai.google.dev, API errors",
        says="400 for a prompt that is too long",
        replies=[gemini_error("The input token count (1100000) exceeds the maximum number of "
                              "tokens allowed (1048576).")],
        model="gemini/m", stops="llm.context_tokens=1048576", calls=2,
    ),
    Case(
        product="Gemini", version="v1beta, Gemma", source="ai.google.dev, Gemma on Gemini API",
        says="400 for a system instruction",
        replies=[gemini_error("Developer instruction is not enabled for models/gemma-3"),
                 candidate({"text": GOOD})],
        model="gemini/m", system=True, lacks=["system_instruction"],
    ),
]  # fmt: skip
ANTHROPIC = [
    Case(
        product="Anthropic", version="2023-06-01", source="docs.anthropic.com, extended thinking",
        says="reasoning in a block of its own",
        replies=[Raw(CLAUDE)], reasoning=DRAFT, attempts=1, model="anthropic/m",
    ),
    Case(
        product="Anthropic", version="2023-06-01", source="anthropics/claude-code#24451",
        says="400 for a bound above the model's",
        replies=[claude_error(400, BAD, "max_tokens: 16384 > 8192, which is the maximum allowed "
                              "number of output tokens for m"), Raw(CLAUDE)],
        model="anthropic/m", settings=LARGE, reasoning=DRAFT,
        holds={"max_tokens": 8192},
    ),
    Case(
        product="Anthropic", version="Opus 4.7, 4.8", source="The-PR-Agent/pr-agent#2456",
        says="`temperature` is refused",
        replies=[claude_error(400, BAD, "`temperature` is deprecated for this model."),
                 Raw(CLAUDE)],
        model="anthropic/m", settings={"temperature": 0.5}, reasoning=DRAFT,
        lacks=["temperature"],
    ),
    Case(
        product="Anthropic", version="2023-06-01", source="docs.anthropic.com, errors",
        says="529",
        replies=[claude_error(529, "overloaded_error", "Overloaded"), Raw(CLAUDE)],
        model="anthropic/m", reasoning=DRAFT,
    ),
    Case(
        product="Anthropic", version="2023-06-01", source="docs.anthropic.com, errors (SSE)",
        says="status 200 with that error",
        replies=[claude_error(200, "overloaded_error", "Overloaded"), Raw(CLAUDE)],
        model="anthropic/m", reasoning=DRAFT,
    ),
    Case(
        product="Anthropic", version="2023-06-01", source="learn.microsoft.com, dev-proxy, 529",
        says="429 of a spending limit, which no waiting helps",
        replies=[claude_error(429, "rate_limit_error", "This request would exceed your limit.",
                              details={"error_code": "enforced_spend_limit_reached"})],
        model="anthropic/m", stops="the account's quota is used up",
    ),
]  # fmt: skip
DEEPSEEK = [
    Case(
        product="DeepSeek", version="V3, R1", source="deepseek-ai/DeepSeek-V3#69",
        says="400 for a bound above the model's",
        replies=[refused(400, "Invalid max_tokens value, the valid range of max_tokens is "
                         "[1, 8192]",
                         type=BAD, code="invalid_request_error"), answer()],
        model="deepseek/m", settings=LARGE, holds={"max_tokens": 8192},
    ),
    Case(
        product="DeepSeek", version="V3.1, V3.2", source="api-docs.deepseek.com, thinking mode",
        says="reasoning in `reasoning_content`",
        replies=[answer(reasoning_content=DRAFT)], model="deepseek/m", reasoning=DRAFT, attempts=1,
    ),
    Case(
        product="DeepSeek", version="V3.1, V3.2", source="evalstate/fast-agent#621",
        says="400 with the window and the prompt's tokens",
        replies=[refused(400, "This model's maximum context length is 32768 tokens. However, you "
                         "requested 46384 tokens (30000 in the messages, 16384 in the completion).",
                         type=BAD, code="invalid_request_error"), answer()],
        model="deepseek/m", settings=LARGE, holds={"max_tokens": 2752},
    ),
    Case(
        product="DeepSeek", version="V3.1, V3.2", source="continuedev/continue#11787",
        says="402 where the balance is used up",
        replies=[refused(402, "Insufficient Balance", type="unknown_error",
                         code="invalid_request_error")],
        model="deepseek/m", stops="quota is used up: Insufficient Balance",
    ),
    Case(
        product="DeepSeek", version="V3.1, V3.2", source="api-docs.deepseek.com, error codes",
        says="400 for a model that does not exist",
        replies=[refused(400, "Model Not Exist", type=BAD,
                         code="invalid_request_error")],
        model="deepseek/m", stops="no such model there",
    ),
    Case(
        product="DeepSeek", version="V3.1, V3.2", source="api-docs.deepseek.com, finish_reason",
        says="`insufficient_system_resource` behind half an answer",
        replies=[answer("Half an", finish="insufficient_system_resource")],
        model="deepseek/m", text="Half an", attempts=1, status=CallStatus.TRUNCATED,
    ),
]  # fmt: skip
MISTRAL = [
    Case(
        product="Mistral", version="v1, Magistral, Medium 3.5", source="agentjido/req_llm#742",
        says="content as a list of parts",
        replies=[answer([THOUGHT, {"type": "text", "text": GOOD}])],
        model="mistral/m", reasoning=DRAFT, attempts=1,
    ),
    Case(
        product="Mistral", version="the same behind a gateway", source="BerriAI/litellm#16911",
        says="the same, spoken to as OpenAI",
        replies=[answer([THOUGHT, {"type": "text", "text": GOOD}])],
        reasoning=DRAFT, attempts=1,
    ),
    Case(
        product="Mistral", version="v1, streamed", source="agentjido/req_llm#742",
        says="the same in pieces",
        replies=[pieces({"content": [THOUGHT]},
                        {"content": "Here "}, {"content": [{"type": "text", "text": "it is."}]})],
        settings=STREAM, reasoning=DRAFT, attempts=1,
    ),
    Case(
        product="Mistral", version="Magistral by itself", source="pydantic/pydantic-ai#2713",
        says="its marks in the text",
        replies=[answer(f"[THINK]{DRAFT}[/THINK]{GOOD}")], reasoning=DRAFT.strip(), attempts=1,
    ),
    Case(
        product="Mistral", version="v1", source="editor-code-assistant/eca#231",
        says="422 for a parameter that it does not know",
        replies=[Raw({"object": "error", "message": {"detail": [
            {"type": "extra_forbidden", "loc": ["body", "seed"],
             "msg": "Extra inputs are not permitted", "input": 7}]},
            "type": BAD, "param": None, "code": None}, 422), answer()],
        lacks=["seed"],
    ),
    Case(
        product="Mistral", version="v1", source="continuedev/continue#6185",
        says="429 in the words of a bad request",
        replies=[bare(429, "Service tier capacity exceeded for this model.",
                      type=BAD), answer()],
        model="mistral/m",
    ),
    Case(
        product="Mistral", version="v1", source="docs.mistral.ai, errors",
        says="400 with the window and the prompt's tokens",
        replies=[bare(400, "Prompt contains 40000 tokens and 0 draft tokens, too large for model "
                      "with 32768 maximum context length", type=BAD)],
        model="mistral/m", stops="llm.context_tokens=32768", calls=2,
    ),
]  # fmt: skip

CASES = [
    *OPENROUTER, *AZURE_OPENAI, *BEDROCK_CASES, *GEMINI, *ANTHROPIC, *DEEPSEEK, *MISTRAL,
]  # fmt: skip
