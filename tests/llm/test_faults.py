"""Every fault of an endpoint, over real HTTP.

Invariants:
1. What was surely not billed is sent again until the deadline; what may have been is not.
2. The status says what happened; a fault of an endpoint is never an answer.
3. Nobody below us retries: the server sees as many requests as the reply has attempts.
"""

import asyncio
import socket
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from evolve.core.errors import ModelUnavailable, UsageError
from evolve.core.model import CallStatus, Usage
from evolve.testing.model_server import Answer, Broken, Hang, Refusal
from tests.llm.conftest import ask, endpoint, request

NOBODY = "http://127.0.0.1:9/v1"  # the discard port: nobody listens


@pytest.mark.slow
def test_an_answer_comes_with_its_tokens_and_its_model(serve):
    answer = Answer("here you are", reasoning="let me see", cached_tokens=1)
    server = serve(answer)
    reply = ask(endpoint(server), "make it fast")
    assert (reply.status, reply.text, reply.reasoning) == (
        CallStatus.COMPLETED,
        "here you are",
        "let me see",
    )
    assert reply.usage == Usage(prompt=3, completion=6, cached=1, reasoning=3)
    assert (reply.finish_reason, reply.attempts, reply.model) == ("stop", 1, "scripted")
    assert reply.cost_usd is None  # nobody knows a price of this model
    assert 0 < reply.latency_s < 20


@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
def test_a_refusal_for_now_is_sent_again(serve, status):
    server = serve(Refusal(status), Refusal(status), "at last")
    reply = ask(endpoint(server))
    assert (reply.status, reply.text, reply.attempts) == (CallStatus.COMPLETED, "at last", 3)
    assert len(server.log.requests) == 3
    assert server.deliveries == 1


def test_retry_after_is_waited_for(serve):
    server = serve(Refusal(429, retry_after=0.5), "at last")
    reply = ask(endpoint(server))
    assert reply.attempts == 2
    assert reply.latency_s >= 0.5


@pytest.mark.parametrize(
    ("written", "least", "most"),
    [
        (timedelta(hours=2), 3600, 3601),
        (timedelta(minutes=30), 1500, 1800),
        ("1e999", 3600, 3601),
        ("86400", 3600, 3601),
    ],
)
def test_retry_after_may_be_a_date_and_has_an_end(serve, written, least, most):
    if isinstance(written, timedelta):
        written = format_datetime(datetime.now(UTC) + written, usegmt=True)
    with pytest.raises(ModelUnavailable) as caught:
        ask(endpoint(serve(Refusal(429, retry_after=written))))
    assert least <= caught.value.retry_after_s <= most


@pytest.mark.parametrize("written", ["soon", "nan", "-3", "", "Mon, 99 Foo 2020", "0"])
def test_a_retry_after_that_says_nothing_is_as_none(serve, written):
    reply = ask(endpoint(serve(Refusal(429, retry_after=written), "at last")))
    assert (reply.status, reply.attempts) == (CallStatus.COMPLETED, 2)


def test_retry_after_holds_the_other_calls_of_the_endpoint_too(serve):
    server = serve(Refusal(429, retry_after=0.5), "done")
    model = endpoint(server, slots=1)

    async def both():
        first = asyncio.create_task(model.complete(request("first"), 0))
        await asyncio.sleep(0.2)
        start = time.monotonic()
        await model.complete(request("second"), 0)
        waited = time.monotonic() - start
        await first
        return waited

    ask(endpoint(serve("warm")))  # imports LiteLLM
    assert asyncio.run(both()) > 0.2


def test_a_retry_that_would_come_after_the_deadline_is_not_waited_for(serve):
    server = serve(Refusal(429, retry_after=60))
    start = time.monotonic()
    with pytest.raises(ModelUnavailable, match="rate limit after 1 attempts") as caught:
        ask(endpoint(server, deadline_s=30))
    assert time.monotonic() - start < 30
    assert caught.value.retry_after_s >= 60
    assert server.deliveries == 0


def test_while_an_endpoint_wants_to_be_left_alone_for_long_nobody_waits_in_silence(serve):
    server = serve(Refusal(429, retry_after=3600, message="the day's tokens are used up"))
    model = endpoint(server, deadline_s=5, slots=2)

    async def several():
        calls = (model.complete(request(str(number)), 0) for number in range(6))
        return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 30)

    errors = asyncio.run(several())
    assert all(isinstance(error, ModelUnavailable) for error in errors)
    assert all("the day's tokens are used up" in str(error) for error in errors)
    assert min(error.retry_after_s for error in errors) > 3500
    assert len(server.log.requests) <= 2


@pytest.mark.parametrize(
    ("broken", "stream"),
    [
        (Broken.MALFORMED, False),
        (Broken.WRONG_SHAPE, False),
        (Broken.TRUNCATED, False),
        (Broken.TRUNCATED, True),
        (Broken.CUT_OFF, True),
        (Broken.ERROR_INSIDE, True),
    ],
)
def test_an_answer_that_arrives_damaged_is_unknown_and_never_asked_for_again(serve, broken, stream):
    server = serve(broken, "a second answer")
    reply = ask(endpoint(server, stream=stream))
    assert reply.status is CallStatus.UNKNOWN, reply
    assert reply.text == ""
    assert reply.usage is None
    assert reply.error
    assert "Traceback" not in reply.error
    assert len(server.log.requests) == 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("stream", [False, True])
def test_a_hanging_endpoint_ends_at_the_deadline_as_unknown(serve, stream):
    server = serve(Hang())
    ask(endpoint(serve("warm")))
    reply = ask(endpoint(server, deadline_s=1, stream=stream))
    assert reply.status is CallStatus.UNKNOWN
    assert "1 s" in reply.error
    assert 0.9 < reply.latency_s < 3
    assert len(server.log.requests) == 1


@pytest.mark.parametrize("status", [408, 504])
def test_a_gateway_that_gave_up_waiting_leaves_the_outcome_unknown(serve, status):
    server = serve(Refusal(status), "a second answer")
    assert ask(endpoint(server)).status is CallStatus.UNKNOWN
    assert len(server.log.requests) == 1


def test_an_answer_without_a_choice_is_empty(serve):
    reply = ask(endpoint(serve(Broken.NO_CHOICES)))
    assert reply.status is CallStatus.EMPTY
    assert "no choice" in reply.error


@pytest.mark.parametrize("text", ["", "  \n", None])
def test_an_answer_without_text_is_empty(serve, text):
    assert ask(endpoint(serve(Answer(text)))).status is CallStatus.EMPTY


def test_an_answer_that_reached_its_limit_is_truncated(serve):
    reply = ask(endpoint(serve(Answer("def ker", finish_reason="length"))))
    assert (reply.status, reply.text) == (CallStatus.TRUNCATED, "def ker")


def test_a_filtered_answer_is_refused(serve):
    reply = ask(endpoint(serve(Answer("I can", finish_reason="content_filter"))))
    assert reply.status is CallStatus.REFUSED


def test_a_page_instead_of_a_completion_is_nobodys_answer(serve):
    server = serve(Broken.WRONG_TYPE, "at last")
    reply = ask(endpoint(server))
    assert (reply.status, reply.attempts) == (CallStatus.COMPLETED, 2)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "provider",
    ["anthropic", "azure", "deepseek", "gemini", "groq", "hosted_vllm", "mistral", "nvidia_nim",
     "ollama_chat", "openrouter", "together_ai", "zai"],
)  # fmt: skip
def test_no_provider_has_retries_of_its_own(serve, provider, monkeypatch):
    monkeypatch.setenv("ANY_KEY", "planted-key-12345")
    monkeypatch.setenv("AZURE_API_VERSION", "2024-10-21")
    for reply, error in ((Refusal(503), "is down"), (Broken.TRUNCATED, None)):
        server = serve(reply)
        model = endpoint(server, model=f"{provider}/any", key_variable="ANY_KEY")
        if error is None:
            assert ask(model).status is CallStatus.UNKNOWN
            assert len(server.log.requests) == 1
        else:
            with pytest.raises(ModelUnavailable, match=error):
                ask(model)
            assert len(server.log.requests) == 5


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("openai/gpt-4o-mini", "the key is missing or refused.*export a valid one as OPENAI_API"),
        ("anthropic/claude-x", "the key is missing or refused.*as ANTHROPIC_API_KEY"),
        ("gemini/gemini-x", "the key is missing or refused.*as GEMINI_API_KEY"),
        ("azure/x", "the key is missing or refused.*as AZURE_API_KEY"),
    ],
)
def test_what_is_missing_here_is_said_before_anything_is_sent(model, words, monkeypatch):
    for name in ("OPENAI", "ANTHROPIC", "GEMINI", "GOOGLE", "AZURE"):
        monkeypatch.delenv(f"{name}_API_KEY", raising=False)
    with pytest.raises(UsageError, match=words):
        ask(endpoint(NOBODY, model=model, api_base=None))


def test_two_megabytes_arrive_whole(serve):
    text = "kernel\n" * 300_000
    assert ask(endpoint(serve(text))).text == text


def test_text_that_is_no_unicode_can_be_stored(serve):
    reply = ask(endpoint(serve(Answer("half \ud83d, whole \ud83d\ude00", reasoning="\udc00"))))
    assert reply.text == "half \ufffd, whole \U0001f600"
    assert reply.reasoning == "\ufffd"
    assert reply.text.encode()


def test_a_stream_is_put_together(serve):
    answer = Answer("piece by piece", reasoning="hm", spread_s=0.3, cached_tokens=2)
    reply = ask(endpoint(serve(answer), stream=True))
    assert (reply.status, reply.text, reply.reasoning) == (
        CallStatus.COMPLETED,
        "piece by piece",
        "hm",
    )
    assert reply.usage == Usage(prompt=3, completion=5, cached=2, reasoning=1)
    assert reply.latency_s >= 0.25


@pytest.mark.slow  # a hanging endpoint ends at it too
def test_a_stream_that_is_too_slow_ends_at_the_deadline(serve):
    ask(endpoint(serve("warm")))
    reply = ask(endpoint(serve(Answer("x" * 64, spread_s=30)), stream=True, deadline_s=1))
    assert reply.status is CallStatus.UNKNOWN
    assert reply.latency_s < 3


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_without_counts_has_no_usage(serve, stream):
    reply = ask(endpoint(serve(Answer("text", usage=False)), stream=stream))
    assert (reply.text, reply.usage, reply.cost_usd) == ("text", None, None)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("prompt", "said"), [(-5, 3), (3, -5), (10**30, 3), (3, 10**30), (-5, -5)])
def test_counts_that_cannot_be_are_no_counts(serve, prompt, said, stream):
    counts = {"prompt_tokens": prompt, "completion_tokens": said, "total_tokens": prompt + said}
    price = {"prompt": 1, "completion": 1}
    reply = ask(endpoint(serve(Answer("text", usage=counts)), stream=stream, price=price))
    assert (reply.text, reply.usage, reply.cost_usd) == ("text", None, None)


@pytest.mark.parametrize("cached", [-1, 10**30])
def test_parts_that_are_more_than_the_whole_are_not_known(serve, cached):
    counts = {
        "prompt_tokens": 9,
        "completion_tokens": 3,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": cached},
    }
    reply = ask(endpoint(serve(Answer("text", usage=counts))))
    assert reply.usage == Usage(prompt=9, completion=3)


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (Refusal(401), r"the key is missing or refused.*llm.key_variable=NAME"),
        (Refusal(403), "the key is missing or refused"),
        (Refusal(402), "quota is used up.*evolve resume"),
        (Refusal(429, code="insufficient_quota"), "quota is used up"),
        (Refusal(404, code="model_not_found"), "no such model there.*llm.model"),
    ],
)
def test_what_a_person_has_to_mend_is_said_with_its_remedy(serve, refusal, words):
    server = serve(refusal)
    with pytest.raises(UsageError, match=words):
        ask(endpoint(server))
    assert len(server.log.requests) == 1


@pytest.mark.parametrize(
    ("refusal", "status", "word"),
    [
        (Refusal(400, code="context_length_exceeded"), CallStatus.FAILED, "too long"),
        (Refusal(413), CallStatus.FAILED, "too long"),
        (Refusal(400, message="content_policy_violation"), CallStatus.REFUSED, "filtered"),
        (Refusal(400, message="temperature: 9 is above 2"), CallStatus.FAILED, "9 is above 2"),
        (Refusal(422), CallStatus.FAILED, "bad request"),
    ],
)
def test_a_request_that_is_refused_for_itself_is_not_sent_again(serve, refusal, status, word):
    server = serve(refusal, "a second answer")
    reply = ask(endpoint(server))
    assert reply.status is status
    assert word in reply.error
    assert len(server.log.requests) == 1


@pytest.mark.parametrize("status", [400, 403, 422, 429])
def test_a_request_that_a_filter_refuses_costs_nothing(serve, status):
    server = serve(Refusal(status, message="content_policy_violation"))
    reply = ask(endpoint(server, price={"prompt": 1.0, "completion": 2.0}))
    assert reply.status is CallStatus.REFUSED
    assert (reply.usage, reply.cost_usd) == (Usage(prompt=0, completion=0), 0.0)


def test_where_filtered_requests_are_billed_one_is_charged_as_reserved(serve, monkeypatch):
    monkeypatch.setenv("AZURE_API_KEY", "no-key")
    server = serve(Refusal(400, message="content_policy_violation"))
    model = endpoint(server, model="azure/scripted", options={"api_version": "2024-06-01"})
    reply = ask(model)
    assert len(server.log.requests) == 1
    assert reply.status is CallStatus.REFUSED
    assert (reply.usage, reply.cost_usd) == (None, None)


def test_bad_requests_in_a_row_are_the_configurations_fault(serve):
    model = endpoint(serve(Refusal(400, message="top_k is unknown")))

    async def three():
        for _ in range(3):
            last = await model.complete(request(), 0)
        return last

    with pytest.raises(UsageError, match=r"3 requests in a row.*top_k is unknown.*llm.options"):
        asyncio.run(three())


def test_an_endpoint_that_nobody_listens_at_is_down_and_says_so():
    model = endpoint(NOBODY)

    async def twice():
        for _ in range(2):
            with pytest.raises(ModelUnavailable, match="is down: 5 faults in a row") as e:
                await model.complete(request(), 0)
        return e.value.retry_after_s

    assert 25 < asyncio.run(twice()) <= 30


@pytest.mark.slow  # an endpoint without a listener is in another test here
def test_a_host_that_swallows_packets_is_not_reached_and_nothing_is_unknown(monkeypatch):
    monkeypatch.setattr("evolve.llm.client.CONNECT_S", 0.3)
    with socket.socket() as deaf, socket.socket() as first, socket.socket() as second:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for caller in (first, second):  # the queue is full: further calls wait to be connected
            caller.setblocking(False)
            caller.connect_ex(deaf.getsockname())
        model = endpoint(f"http://127.0.0.1:{deaf.getsockname()[1]}/v1")
        with pytest.raises(ModelUnavailable, match="is down"):
            ask(model)


@pytest.mark.slow  # search/test_outages has one that is down
def test_an_endpoint_that_is_down_is_left_alone_and_found_again(serve):
    replies = [Refusal(503)] * 5
    server = serve(lambda asked: replies[asked.number] if asked.number < 5 else "up again")
    model = endpoint(server, pause_s=0.4)

    async def outage():
        with pytest.raises(ModelUnavailable, match="is down"):
            await model.complete(request(), 0)
        for _ in range(20):
            with pytest.raises(ModelUnavailable):
                await model.complete(request(), 0)
        assert len(server.log.requests) == 5
        await asyncio.sleep(0.5)
        first, *others = await asyncio.gather(
            *(model.complete(request(), 0) for _ in range(4)), return_exceptions=True
        )
        assert first.text == "up again"
        assert all(isinstance(other, ModelUnavailable) for other in others)
        return await model.complete(request(), 0)

    assert asyncio.run(outage()).text == "up again"


def test_a_cancelled_call_is_given_up_at_once(serve):
    server = serve(Hang())
    ask(endpoint(serve("warm")))

    async def give_up():
        call = asyncio.create_task(endpoint(server).complete(request(), 0))
        while not server.log.requests:
            await asyncio.sleep(0.01)
        start = time.monotonic()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        took = time.monotonic() - start
        while server.log.under_way:  # the server sees that the client is gone
            await asyncio.sleep(0.01)
        return took

    assert asyncio.run(asyncio.wait_for(give_up(), 10)) < 0.5


def test_a_call_that_only_waits_to_be_sent_again_is_given_up_as_not_accepted(serve):
    server = serve(Refusal(429, retry_after=15))
    ask(endpoint(serve("warm")))

    async def give_up():
        call = asyncio.create_task(endpoint(server).complete(request(), 0))
        while not server.log.requests or server.log.under_way:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # the refusal has arrived
        call.cancel()
        await call

    with pytest.raises(ModelUnavailable, match="waited to be sent"):
        asyncio.run(asyncio.wait_for(give_up(), 10))
    assert server.deliveries == 0


def test_no_more_calls_are_under_way_than_there_are_slots(serve):
    server = serve(Answer("done", delay_s=0.1))
    model = endpoint(server, slots=4)

    async def many():
        return await asyncio.gather(*(model.complete(request(str(i)), 0) for i in range(12)))

    assert {reply.text for reply in asyncio.run(many())} == {"done"}
    assert server.log.most_at_once == 4
