"""How twelve products reply where a plain client goes wrong: the rows of the guide's matrix.

The forms are those of the named documentation, source or issue thread; names and numbers are made
up. A source `owner/repository#number` is an issue or pull request on GitHub.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evolve.core.model import CallStatus
from evolve.testing.model_server import Raw

GOOD = "Here it is."
DRAFT = "A draft:\n```python\nx = 0\n```\n"


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a product says, and what has to come of it.

    Attributes:
        product: as the guide's table names it.
        version: of which the source speaks, or of its interface.
        says: the row of the table.
        source: where this is documented or reported.
        replies: what the server says, one after another; the last is repeated.
        model: as LiteLLM spells it.
        settings: of the endpoint, beside the model's.
        text, reasoning: of the answer.
        status: of the reply.
        attempts: how often the request is sent.
        holds, lacks: parts of the last request's body.
        stops: words of the error that ends the run; empty if it goes on.
        calls: how many calls it takes to stop.
    """

    product: str
    version: str
    says: str
    source: str
    replies: Sequence[Raw]
    model: str = "openai/m"
    settings: Mapping[str, Any] = field(default_factory=dict)
    system: bool = False
    text: str = GOOD
    reasoning: str = ""
    status: CallStatus = CallStatus.COMPLETED
    attempts: int = 2
    holds: Mapping[str, Any] = field(default_factory=dict)
    lacks: Sequence[str] = ()
    stops: str = ""
    calls: int = 1


def answer(content: Any = GOOD, finish: str = "stop", usage: Any = True, **message: Any) -> Raw:
    """A completion of OpenAI's API."""
    counts = {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500}
    message = {"role": "assistant", "content": content} | message
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish, "message": message}
    if error := choice["message"].pop("error", None):
        choice["error"] = error
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return Raw(body | {"usage": counts if usage is True else usage}, delivers=True)


def pieces(*deltas: Mapping[str, Any], finish: str = "stop") -> Raw:
    """A streamed completion of OpenAI's API."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    events = [
        head | {"choices": [{"index": 0, "delta": dict(each), "finish_reason": None}]}
        for each in deltas
    ]
    usage = {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500}
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": usage}
    return Raw([*events, head | last, "[DONE]"], events=True, delivers=True)


def refused(
    status: int, message: Any, headers: Mapping[str, str] | None = None, **more: Any
) -> Raw:
    """An error of OpenAI's API."""
    return Raw({"error": {"message": message} | more}, status, headers or {})


def bare(status: int, message: Any, **more: Any) -> Raw:
    """An error that is not inside of an `error`."""
    return Raw(
        {"object": "error", "message": message, "param": None, "code": status} | more, status
    )


STREAM = {"stream": True}
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


VLLM = [
    Case(
        product="vLLM", version="0.8 to 0.10", source="vllm-project/vllm#20409",
        says="400 with the window and the prompt's tokens",
        replies=[
            bare(400, "This model's maximum context length is 8192 tokens. However, you requested "
                 "19384 tokens (3000 in the messages, 16384 in the completion). Please reduce the "
                 "length of the messages or completion.", type="BadRequestError"),
            answer(),
        ],
        settings={"max_tokens": 16384},
        holds={"max_tokens": 5176},
    ),
    Case(
        product="vLLM", version="0.20", source="vllm-project/vllm#42474",
        says="400 with the window and a lower bound of the prompt",
        replies=[
            refused(400, "This model's maximum context length is 32768 tokens. However, you "
                    "requested 16384 output tokens and your prompt contains at least 16385 input "
                    "tokens, for a total of at least 32769 tokens.", type="BadRequestError",
                    param="input_tokens", code=400),
            answer(),
        ],
        settings={"max_tokens": 16384},
        holds={"max_tokens": 13090},
    ),
    Case(
        product="vLLM", version="0.20", source="vllm-project/vllm#33418",
        says="the prompt alone is longer than the window",
        replies=[
            refused(400, "This model's maximum context length is 4096 tokens. However, you "
                    "requested 0 output tokens and your prompt contains at least 4097 input "
                    "tokens, for a total of at least 4097 tokens.", type="BadRequestError",
                    param="input_tokens", code=400),
        ],
        stops="llm.context_tokens=4096", calls=2,
    ),
    Case(
        product="vLLM", version="0.16 on", source="vllm-project/vllm#50624",
        says="reasoning in `reasoning`, no longer in `reasoning_content`",
        replies=[answer(reasoning=DRAFT)], reasoning=DRAFT, attempts=1,
    ),
    Case(
        product="vLLM", version="0.16 on, streamed", source="vllm-project/vllm#50624",
        says="the same in pieces",
        replies=[pieces({"role": "assistant", "content": ""}, {"reasoning": DRAFT},
                        {"content": GOOD})],
        reasoning=DRAFT, attempts=1, settings=STREAM, model="hosted_vllm/m",
    ),
    Case(
        product="vLLM", version="0.10 on", source="vllm-project/vllm#6862",
        says="a chat template without a system role",
        replies=[bare(400, "System role not supported", type="BadRequestError"), answer()],
        system=True,
    ),
    Case(
        product="vLLM", version="0.10 on", source="suitenumerique/conversations#197",
        says="the same in other words",
        replies=[refused(400, "Conversation roles must alternate user/assistant/user/assistant/...",
                         type="BadRequestError", code=400), answer()],
        system=True,
    ),
    Case(
        product="vLLM", version="0.6", source="voideditor/void#128",
        says="a parameter that it does not know",
        replies=[bare(400, "[{'type': 'extra_forbidden', 'loc': ('body', 'seed'), 'msg': 'Extra "
                      "inputs are not permitted', 'input': 7}]", type="BadRequestError"), answer()],
        lacks=["seed"],
    ),
]  # fmt: skip
SGLANG = [
    Case(
        product="SGLang", version="0.4, 0.5", source="sgl-project/sglang, tokenizer_manager.py",
        says="400 with the window and the prompt's tokens",
        replies=[
            bare(400, "Requested token count exceeds the model's maximum context length of 8192 "
                 "tokens. You requested a total of 19384 tokens: 3000 tokens from the input "
                 "messages and 16384 tokens for the completion.", type="BadRequestError"),
            answer(),
        ],
        settings={"max_tokens": 16384}, holds={"max_tokens": 5176},
    ),
    Case(
        product="SGLang", version="0.4, 0.5", source="QwenLM/Qwen3#1321",
        says="the prompt alone is longer than the window",
        replies=[bare(400, "The input (61709 tokens) is longer than the model's context length "
                      "(40960 tokens).", type="BadRequestError")],
        stops="llm.context_tokens=40960", calls=2,
    ),
    Case(
        product="SGLang", version="0.4, 0.5", source="sgl-project/sglang#4048",
        says="the same for the memory of its cache",
        replies=[bare(400, "Input length (160062 tokens) exceeds the maximum allowed length (59862 "
                      "tokens).", type="BadRequestError")],
        stops="llm.context_tokens=59862", calls=2,
    ),
    Case(
        product="SGLang", version="0.4, 0.5", source="sgl-project/sglang, reasoning parser",
        says="reasoning in `reasoning_content`",
        replies=[answer(reasoning_content=DRAFT)], reasoning=DRAFT, attempts=1,
    ),
    Case(
        product="SGLang", version="0.5, no parser", source="sgl-project/sglang, reasoning parser",
        says="reasoning in the text, the opening mark in the template",
        replies=[answer(f"{DRAFT}\n</think>\n{GOOD}")], text=f"\n{GOOD}", reasoning=DRAFT.strip(),
        attempts=1,
    ),
]  # fmt: skip
LLAMA_CPP = [
    Case(
        product="llama.cpp", version="b6400 (500), b7062 (400)", source="ggml-org/llama.cpp#15780",
        says="500 for a prompt that is too long",
        replies=[refused(500, "the request exceeds the available context size. try increasing the "
                         "context size or enable context shift", code=500, n_ctx=8192,
                         type="exceed_context_size_error", n_prompt_tokens=14429)],
        stops="llm.context_tokens=8192", calls=2,
    ),
    Case(
        product="llama.cpp", version="b7062", source="ggml-org/llama.cpp#17284",
        says="400 for a prompt that is too long",
        replies=[refused(400, "request (20014 tokens) exceeds the available context size (16384 "
                         "tokens), try increasing it", code=400, n_ctx=16384,
                         type="exceed_context_size_error", n_prompt_tokens=20014)],
        stops="llm.context_tokens=16384", calls=2,
    ),
    Case(
        product="llama.cpp", version="2026",
        source="nextai-translator/raycast-openai-translator#34",
        says="500 where the chat template refuses the roles",
        replies=[refused(500, "\n------------\nWhile executing CallExpression at line 19\nError: "
                         "Jinja Exception: Conversation roles must alternate user/assistant/...",
                         code=500, type="server_error"), answer()],
        system=True,
    ),
    Case(
        product="llama.cpp", version="2025 on", source="ggml-org/llama.cpp, server README",
        says="503 while the model is loaded",
        replies=[refused(503, "Loading model", code=503, type="unavailable_error"), answer()],
    ),
    Case(
        product="llama.cpp", version="gpt-oss, no parser", source="ggml-org/llama.cpp#15181",
        says="channels of gpt-oss in the text",
        replies=[answer(f"<|channel|>analysis<|message|>{DRAFT}<|end|><|start|>assistant"
                        f"<|channel|>final<|message|>{GOOD}")],
        reasoning=DRAFT.strip(), attempts=1,
    ),
]  # fmt: skip
OLLAMA = [
    Case(
        product="Ollama", version="0.32, 0.33", source="ollama/ollama, llm/llama_server.go",
        says="400 for a prompt that is too long, without a number",
        replies=[refused(400, "the input length exceeds the context length", param=None, code=None,
                         type="invalid_request_error")],
        stops="llm.context_tokens", calls=2,
    ),
    Case(
        product="Ollama", version="0.32, 0.33, /api/chat", source="ollama/ollama, llama_server.go",
        says="the error of llama.cpp as a text inside of its own",
        replies=[Raw({"error": '{"error":{"code":400,"message":"request (9000 tokens) exceeds the '
                      'available context size (4096 tokens), try increasing it","type":'
                      '"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096}}'}, 400)],
        model="ollama_chat/m", stops="llm.context_tokens=4096", calls=2,
    ),
    Case(
        product="Ollama", version="0.13 on", source="ollama/ollama#15288",
        says="all of the answer in `reasoning`",
        replies=[answer("", reasoning="It is x.")], text="", reasoning="It is x.", attempts=1,
        status=CallStatus.EMPTY,
    ),
    Case(
        product="Ollama", version="0.13 on, /api/chat", source="promptfoo/promptfoo#10954",
        says="the budget is spent in `thinking`, `done_reason` is `length`",
        replies=[Raw({"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": True,
                      "message": {"role": "assistant", "content": "", "thinking": "Hm"},
                      "done_reason": "length", "prompt_eval_count": 10, "eval_count": 32})],
        model="ollama_chat/m", text="", reasoning="Hm", attempts=1, status=CallStatus.TRUNCATED,
    ),
    Case(
        product="Ollama", version="0.15", source="ollama/ollama#14093",
        says="500 where its runner has crashed",
        replies=[refused(500, "model runner has unexpectedly stopped, this may be due to resource "
                         "limitations or an internal error", type="api_error"), answer()],
    ),
    Case(
        product="Ollama", version="cloud models", source="ollama/ollama#15934",
        says="503 with the error as a text",
        replies=[Raw({"error": "Server overloaded, please retry shortly (ref: 06d81c91)"}, 503),
                 answer()],
    ),
    Case(
        product="Ollama", version="0.32, 0.33", source="ollama/ollama, server/routes.go",
        says="404 for a model that is not pulled",
        replies=[refused(404, "model 'm' not found", type="not_found_error")],
        stops="no such model there: model 'm' not found",
    ),
]  # fmt: skip
LM_STUDIO = [
    Case(
        product="LM Studio", version="0.4.21", source="lmstudio-ai/lmstudio-bug-tracker#2322",
        says="status 200 with an error for a prompt that is too long",
        replies=[Raw({"error": "Trying to keep the first 9000 tokens when context the overflows. "
                      "However, the model is loaded with context length of only 4096 tokens, which "
                      "is not enough."})],
        stops="llm.context_tokens=4096", calls=2, model="lm_studio/m",
    ),
    Case(
        product="LM Studio", version="0.4, streamed",
        source="lmstudio-ai/lmstudio-bug-tracker#2256",
        says="the same as the first event",
        replies=[Raw('event: error\ndata: {"error":{"message":"The number of tokens to keep from '
                     'the initial prompt is greater than the context length (n_keep: 9000>= n_ctx: '
                     '4096)"}}\n\n', headers={"content-type": "text/event-stream"})],
        settings=STREAM, stops="llm.context_tokens=4096", calls=2,
    ),
    Case(
        product="LM Studio", version="0.3", source="lmstudio-ai/lmstudio-bug-tracker#2339",
        says="status 200, tokens counted, and no text",
        replies=[answer("")], text="", attempts=1, status=CallStatus.EMPTY,
    ),
    Case(
        product="LM Studio", version="0.3, 0.4", source="lmstudio-ai docs, OpenAI compatibility",
        says="no model is loaded",
        replies=[refused(404, "No models loaded. Please load a model in the developer page.",
                         code="model_not_found", type="invalid_request_error")],
        stops="no such model there: No models loaded",
    ),
]  # fmt: skip
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
                         type="invalid_request_error", code="unsupported_value"), answer()],
        model="azure/m", settings=AZURE | {"temperature": 0.7}, lacks=["temperature"],
    ),
    Case(
        product="Azure OpenAI", version="2024-10-21, v1", source="gollm#33, Azure reasoning models",
        says="`max_tokens` is refused, `max_completion_tokens` is wanted",
        replies=[refused(400, "Unsupported parameter: 'max_tokens' is not supported with this "
                         "model. Use 'max_completion_tokens' instead.", param="max_tokens",
                         type="invalid_request_error", code="unsupported_parameter"), answer()],
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
        replies=[Raw({"message": "The model returned the following errors: `temperature` and "
                      "`top_p` cannot both be specified for this model. Please use only one."}, 400,
                     {"x-amzn-errortype": "ValidationException"}), Raw(CONVERSE)],
        model=BEDROCK, settings={"temperature": 0.5, "top_p": 0.9}, reasoning=DRAFT,
        holds={"inferenceConfig": {"temperature": 0.5, "maxTokens": 1000}},
    ),
    Case(
        product="Bedrock", version="Converse, Opus 4.7",
        source="Boise-State-Development/agentcore-public-stack#201",
        says="`temperature` is refused",
        replies=[Raw({"message": "The model returned the following errors: `temperature` is "
                      "deprecated for this model."}, 400), Raw(CONVERSE)],
        model=BEDROCK, settings={"temperature": 0.5}, reasoning=DRAFT,
        holds={"inferenceConfig": {"maxTokens": 1000}},
    ),
    Case(
        product="Bedrock", version="Converse, InvokeModel", source="charmbracelet/crush#946",
        says="400 for a bound above the model's",
        replies=[Raw({"message": "The maximum tokens you requested exceeds the model limit of "
                      "8192. Try again with a lower one."}, 400), Raw(CONVERSE)],
        model=BEDROCK, settings={"max_tokens": 16384}, reasoning=DRAFT,
        holds={"inferenceConfig": {"maxTokens": 8192}},
    ),
    Case(
        product="Bedrock", version="Converse", source="anthropics/claude-code#1466",
        says="429 that speaks of too many tokens is a rate limit",
        replies=[Raw({"message": "Too many tokens, please wait before trying again."}, 429),
                 Raw(CONVERSE)],
        model=BEDROCK, reasoning=DRAFT,
    ),
    Case(
        product="Bedrock", version="Converse", source="anthropics/claude-code#1466",
        says="a model that needs an inference profile",
        replies=[Raw({"message": "Invocation of model ID m with on-demand throughput isn't "
                      "supported. Retry your request with the ID or ARN of an inference profile "
                      "that contains this model."}, 400)],
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
        replies=[Raw({"error": {"code": 400, "message": "API key not valid. Please pass a valid "
                                "API key.", "status": "INVALID_ARGUMENT"}}, 400)],
        model="gemini/m", stops="the key is missing or refused",
    ),
    Case(
        product="Gemini", version="v1beta, v1", source="ai.google.dev, API errors",
        says="400 for a prompt that is too long",
        replies=[Raw({"error": {"code": 400, "message": "The input token count (1100000) exceeds "
                                "the maximum number of tokens allowed (1048576).",
                                "status": "INVALID_ARGUMENT"}}, 400)],
        model="gemini/m", stops="llm.context_tokens=1048576", calls=2,
    ),
    Case(
        product="Gemini", version="v1beta, Gemma", source="ai.google.dev, Gemma on Gemini API",
        says="400 for a system instruction",
        replies=[Raw({"error": {"code": 400, "message": "Developer instruction is not enabled for "
                                "models/gemma-3", "status": "INVALID_ARGUMENT"}}, 400),
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
        replies=[Raw({"type": "error", "error": {"type": "invalid_request_error", "message":
                      "max_tokens: 16384 > 8192, which is the maximum allowed number of output "
                      "tokens for m"}}, 400), Raw(CLAUDE)],
        model="anthropic/m", settings={"max_tokens": 16384}, reasoning=DRAFT,
        holds={"max_tokens": 8192},
    ),
    Case(
        product="Anthropic", version="Opus 4.7, 4.8", source="The-PR-Agent/pr-agent#2456",
        says="`temperature` is refused",
        replies=[Raw({"type": "error", "error": {"type": "invalid_request_error", "message":
                      "`temperature` is deprecated for this model."}}, 400), Raw(CLAUDE)],
        model="anthropic/m", settings={"temperature": 0.5}, reasoning=DRAFT,
        lacks=["temperature"],
    ),
    Case(
        product="Anthropic", version="2023-06-01", source="docs.anthropic.com, errors",
        says="529",
        replies=[Raw({"type": "error", "error": {"type": "overloaded_error",
                                                 "message": "Overloaded"}}, 529), Raw(CLAUDE)],
        model="anthropic/m", reasoning=DRAFT,
    ),
    Case(
        product="Anthropic", version="2023-06-01", source="docs.anthropic.com, errors (SSE)",
        says="status 200 with that error",
        replies=[Raw({"type": "error", "error": {"type": "overloaded_error",
                                                 "message": "Overloaded"}}), Raw(CLAUDE)],
        model="anthropic/m", reasoning=DRAFT,
    ),
    Case(
        product="Anthropic", version="2023-06-01", source="learn.microsoft.com, dev-proxy, 529",
        says="429 of a spending limit, which no waiting helps",
        replies=[Raw({"type": "error", "error": {
            "type": "rate_limit_error", "message": "This request would exceed your limit.",
            "details": {"error_code": "enforced_spend_limit_reached"}}}, 429)],
        model="anthropic/m", stops="the account's quota is used up",
    ),
]  # fmt: skip
DEEPSEEK = [
    Case(
        product="DeepSeek", version="V3, R1", source="deepseek-ai/DeepSeek-V3#69",
        says="400 for a bound above the model's",
        replies=[refused(400, "Invalid max_tokens value, the valid range of max_tokens is "
                         "[1, 8192]",
                         type="invalid_request_error", code="invalid_request_error"), answer()],
        model="deepseek/m", settings={"max_tokens": 16384}, holds={"max_tokens": 8192},
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
                         type="invalid_request_error", code="invalid_request_error"), answer()],
        model="deepseek/m", settings={"max_tokens": 16384}, holds={"max_tokens": 2752},
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
        replies=[refused(400, "Model Not Exist", type="invalid_request_error",
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
        replies=[answer([{"type": "thinking", "thinking": [{"type": "text", "text": DRAFT}]},
                         {"type": "text", "text": GOOD}])],
        model="mistral/m", reasoning=DRAFT, attempts=1,
    ),
    Case(
        product="Mistral", version="the same behind a gateway", source="BerriAI/litellm#16911",
        says="the same, spoken to as OpenAI",
        replies=[answer([{"type": "thinking", "thinking": [{"type": "text", "text": DRAFT}]},
                         {"type": "text", "text": GOOD}])],
        reasoning=DRAFT, attempts=1,
    ),
    Case(
        product="Mistral", version="v1, streamed", source="agentjido/req_llm#742",
        says="the same in pieces",
        replies=[pieces({"content": [{"type": "thinking",
                                      "thinking": [{"type": "text", "text": DRAFT}]}]},
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
            "type": "invalid_request_error", "param": None, "code": None}, 422), answer()],
        lacks=["seed"],
    ),
    Case(
        product="Mistral", version="v1", source="continuedev/continue#6185",
        says="429 in the words of a bad request",
        replies=[bare(429, "Service tier capacity exceeded for this model.",
                      type="invalid_request_error"), answer()],
        model="mistral/m",
    ),
    Case(
        product="Mistral", version="v1", source="docs.mistral.ai, errors",
        says="400 with the window and the prompt's tokens",
        replies=[bare(400, "Prompt contains 40000 tokens and 0 draft tokens, too large for model "
                      "with 32768 maximum context length", type="invalid_request_error")],
        model="mistral/m", stops="llm.context_tokens=32768", calls=2,
    ),
]  # fmt: skip

CASES: list[Case] = [
    *VLLM, *SGLANG, *LLAMA_CPP, *OLLAMA, *LM_STUDIO, *OPENROUTER,
    *AZURE_OPENAI, *BEDROCK_CASES, *GEMINI, *ANTHROPIC, *DEEPSEEK, *MISTRAL,
]  # fmt: skip
