"""Odd replies of servers that a user runs: vLLM, SGLang, llama.cpp, Ollama and LM Studio."""

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


def at_least(*, window: int, output: int) -> Raw:
    """A refusal of vLLM, which stops counting a prompt at the first token too many."""
    return refused(
        400,
        f"This model's maximum context length is {window} tokens. However, you requested {output} "
        f"output tokens and your prompt contains at least {window + 1 - output} input tokens, for "
        f"a total of at least {window + 1} tokens.",
        type="BadRequestError",
        param="input_tokens",
        code=400,
    )


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
        settings=LARGE,
        holds={"max_tokens": 5176},
    ),
    Case(
        product="vLLM", version="0.20", source="vllm-project/vllm#42474",
        says="400 with the window and a lower bound of the prompt",
        replies=[at_least(window=32768, output=16384), answer()],
        settings=LARGE,
        holds={"max_tokens": 13090},
    ),
    Case(
        product="vLLM", version="0.20", source="vllm-project/vllm#33418",
        says="the prompt alone is longer than the window",
        replies=[at_least(window=4096, output=0)],
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
        settings=LARGE, holds={"max_tokens": 5176},
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
                         type=BAD)],
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
                         code="model_not_found", type=BAD)],
        stops="no such model there: No models loaded",
    ),
]  # fmt: skip

CASES = [*VLLM, *SGLANG, *LLAMA_CPP, *OLLAMA, *LM_STUDIO]
