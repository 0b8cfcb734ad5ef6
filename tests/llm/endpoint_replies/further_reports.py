"""Public reports of the matrix's kinds that were looked for after it was made.

`tests/benchmarks/results/endpoints.md` says what came of each at first.
"""

from evolve.core.model import CallStatus
from evolve.testing.model_server import Raw
from tests.llm.endpoint_replies.shapes import BAD, DRAFT, LARGE, Case, answer, refused


def one_allowed(name: str, sent: float, allowed: str, source: str) -> Case:
    """A sampling parameter of which one value is allowed."""
    return Case(
        product="Moonshot",
        version="Kimi K2.5",
        source=source,
        says=f"one {name} is allowed",
        replies=[
            refused(400, f"invalid {name}: only {allowed} is allowed for this model", type=BAD),
            answer(),
        ],
        settings={name: sent},
        lacks=[name],
    )


CASES = [
    one_allowed("temperature", 0.6, "1", "NousResearch/hermes-agent#12668"),
    one_allowed("top_p", 0.9, "0.95", "iOfficeAI/gemini-cli-pro#30"),
    Case(
        product="Groq", version="2026", source="diegosouzapw/OmniRoute#711",
        says="a bound above the model's, in words that speak of the context window",
        replies=[refused(400, "`max_tokens` must be less than or equal to `8192`, the maximum "
                         "value for `max_tokens` is less than the `context_window` for this model",
                         type=BAD, param="max_tokens"), answer()],
        settings=LARGE, holds={"max_tokens": 8192},
    ),
    Case(
        product="Groq", version="2024", source="skapadia3214/groq-moa#8",
        says="the same with the model's name between",
        replies=[refused(400, "max_tokens for `llama-3.1-8b-instant` must be less than or equal to "
                         "8000", type=BAD), answer()],
        settings=LARGE, holds={"max_tokens": 8000},
    ),
    Case(
        product="a gateway", version="2025", source="neavo/KeywordGacha#111",
        says="the same as a range, outside of an `error`",
        replies=[Raw({"code": 400, "reason": "INVALID_REQUEST_BODY", "message": "max_tokens "
                      "(current value: 16384) must be between 0 and 4000", "metadata": {}}, 400),
                 answer()],
        settings=LARGE, holds={"max_tokens": 4000},
    ),
    Case(
        product="OpenAI", version="2024", source="diffbot/code-gpt-docs#284",
        says="the same in OpenAI's words",
        replies=[refused(400, "max_tokens is too large: 16384. This model supports at most 4096 "
                         "completion tokens, whereas you provided 16384.", type=BAD,
                         param="max_tokens", code="invalid_value"), answer()],
        settings=LARGE, holds={"max_tokens": 4096},
    ),
    Case(
        product="Groq", version="free plan", source="zeeyado/koassistant.koplugin#106",
        says="413: prompt and bound are more than a minute's tokens",
        replies=[refused(413, "Request too large for model `m` on tokens per minute (TPM): Limit "
                         "8000, Requested 17384, please reduce your message size and try again.",
                         type="tokens", code="rate_limit_exceeded"), answer()],
        settings=LARGE, holds={"max_tokens": 6984},
    ),
    Case(
        product="OpenAI", version="first tier", source="geekforbrains/sidekick-cli#44",
        says="429: the prompt alone is more than a minute's tokens, and no waiting helps",
        replies=[refused(429, "Request too large for gpt-4.1 on tokens per min (TPM): Limit 30000, "
                         "Requested 47000. The input or output tokens must be reduced.",
                         type="tokens", code="rate_limit_exceeded")],
        settings=LARGE, stops="llm.context_tokens=30000", calls=2,
    ),
    Case(
        product="GitHub Models", version="2025", source="eslint/tsc-meetings#593",
        says="413 for a prompt above the plan's window",
        replies=[refused(413, "Request body too large for gpt-4o model. Max size: 8000 tokens.",
                         code="tokens_limit_reached")],
        stops="llm.context_tokens=8000", calls=2,
    ),
    Case(
        product="Hugging Face TGI", version="1 to 3", source="huggingface/chat-ui#340",
        says="422 with the window and the prompt's tokens",
        replies=[Raw({"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be "
                      "<= 4096. Given: 3000 `inputs` tokens and 16384 `max_new_tokens`",
                      "error_type": "validation"}, 422), answer()],
        settings=LARGE, holds={"max_tokens": 1080},
    ),
    Case(
        product="Hugging Face TGI", version="1 to 3", source="meta-llama/llama#1103",
        says="422 for a prompt that is too long",
        replies=[Raw({"error": "Input validation error: `inputs` must have less than 4096 tokens. "
                      "Given: 4545", "error_type": "validation"}, 422)],
        stops="llm.context_tokens=4096", calls=2,
    ),
    Case(
        product="Fireworks", version="2026", source="nullclaw/nullclaw#231",
        says="a bound that is allowed in streams only",
        replies=[refused(400, "Requests with max_tokens > 4096 must have stream=true",
                         param="max_tokens", code="BAD_REQUEST", type="error")],
        settings=LARGE, stops="mend llm.max_tokens, llm.stream", calls=3,
    ),
    Case(
        product="DashScope", version="Qwen3", source="datawhalechina/hello-agents#230",
        says="reasoning that is allowed in streams only",
        replies=[refused(400, "parameter.enable_thinking must be set to false for non-streaming "
                         "calls", code="invalid_parameter_error", type=BAD)],
        stops="mend llm.stream", calls=3,
    ),
    Case(
        product="xAI", version="Grok 4", source="BerriAI/litellm#16265",
        says="a parameter that it refuses in another spelling, the error a text",
        replies=[Raw({"code": "Client specified an invalid argument", "error": "Model grok-4 does "
                      "not support parameter reasoningEffort."}, 400), answer()],
        model="openai/o3", settings={"reasoning_effort": "low"}, lacks=["reasoning_effort"],
    ),
    Case(
        product="MiniMax", version="v1", source="ENTERPILOT/GoModel#640, MiniMax error codes",
        says="status 200 with a status of its own",
        replies=[Raw({"choices": None, "base_resp": {"status_code": 1002,
                                                     "status_msg": "rate limit exceeded(RPM)"}}),
                 answer()],
    ),
    Case(
        product="MiniMax", version="v1", source="adrianlyjak/obsidian-aloud-tts#114",
        says="the same where the balance is used up",
        replies=[Raw({"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}})],
        stops="the account's quota is used up: insufficient balance",
    ),
    Case(
        product="MiniMax", version="M3", source="openclaw/openclaw#93767",
        says="marks of reasoning with a name of its own",
        replies=[answer(f"<mm:think>{DRAFT}</mm:think>Here it is.")], reasoning=DRAFT.strip(),
        attempts=1,
    ),
    Case(
        product="MiniMax", version="M3", source="smg-project/smg#2448",
        says="a closing mark without reasoning",
        replies=[answer("</mm:think>Here it is.")], attempts=1,
    ),
    Case(
        product="MiniMax", version="M2.7", source="NousResearch/hermes-agent#47195",
        says="reasoning without a closing mark",
        replies=[answer(f"<mm:think>{DRAFT}", finish="length")], text="", reasoning=DRAFT.strip(),
        attempts=1, status=CallStatus.TRUNCATED,
    ),
    Case(
        product="Z.ai", version="GLM 4.7", source="continuedev/continue#10296",
        says="429 where the balance is used up, in Chinese",
        replies=[refused(429, "余额不足或无可用资源包,请充值。", code="1113")],
        stops="the account's quota is used up",
    ),
]  # fmt: skip
