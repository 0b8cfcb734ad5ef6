"""The scripted server, seen with a plain HTTP client.

Invariants:
1. It counts a completion as delivered when, and only when, it was sent in full to somebody.
2. When it is left, nobody waits any more: not its hangs, not its idle connections.
"""

import http.client
import json
import time

import pytest

from evolve.testing.model_server import Answer, Broken, Hang, ModelServer, Refusal


def connect(server: ModelServer) -> http.client.HTTPConnection:
    host, port = server.api_base.removeprefix("http://").removesuffix("/v1").split(":")
    return http.client.HTTPConnection(host, int(port), timeout=10)


def post(connection: http.client.HTTPConnection, **body) -> http.client.HTTPResponse:
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]} | body
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"x-test": "yes"})
    return connection.getresponse()


def test_replies_follow_the_script_and_the_last_one_is_repeated(serve):
    connection = connect(serve("one", "two"))
    texts = [json.load(post(connection))["choices"][0]["message"]["content"] for _ in range(3)]
    assert texts == ["one", "two", "two"]


def test_a_function_sees_the_request(serve):
    server = serve(lambda asked: f"{asked.prompt} {asked.headers['x-test']} {asked.number}")
    body = json.load(post(connect(server)))
    assert body["choices"][0]["message"]["content"] == "hello yes 0"
    assert body["usage"]["prompt_tokens"] == 2


def test_samples_have_texts_of_their_own(serve):
    body = json.load(post(connect(serve(Answer(samples=("a", "b", "c")))), n=2))
    assert [choice["message"]["content"] for choice in body["choices"]] == ["a", "b"]


def test_a_refusal_has_its_status_and_says_when_to_come_again(serve):
    response = post(connect(serve(Refusal(429, retry_after=1.5))))
    assert (response.status, response.headers["retry-after"]) == (429, "1.5")
    assert json.load(response)["error"]["message"] == "scripted refusal"


def test_a_stream_is_server_sent_events(serve):
    answer = Answer("hello world")
    response = post(connect(serve(answer)), stream=True, stream_options={"include_usage": True})
    *events, end, rest = response.read().decode().split("\n\n")
    assert (end, rest) == ("data: [DONE]", "")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    said = [c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"]]
    assert "".join(said) == "hello world"
    assert chunks[-1]["usage"]["completion_tokens"] == 3


def test_what_is_broken_is_broken(serve):
    server = serve(*Broken)
    for broken in Broken:
        response = post(connect(server))
        try:
            text = response.read()
        except http.client.IncompleteRead:
            assert broken is Broken.TRUNCATED
            continue
        assert broken is not Broken.TRUNCATED
        try:
            choices = json.loads(text)["choices"]
            assert broken in (Broken.NO_CHOICES, Broken.WRONG_SHAPE)
            assert not any("message" in choice for choice in choices)
        except json.JSONDecodeError:
            assert broken not in (Broken.NO_CHOICES, Broken.WRONG_SHAPE)
    assert server.deliveries == 0
    assert sum(server.log.replies.values()) == len(Broken)


@pytest.mark.parametrize("stream", [False, True])
def test_a_completion_that_has_been_read_is_counted_already(serve, stream):
    server = serve("x" * 1000)
    connection = connect(server)
    for number in range(1, 201):
        post(connection, stream=stream).read()
        assert server.deliveries == number


def test_a_completion_that_nobody_waited_for_is_not_delivered(serve):
    server = serve(Answer("late", delay_s=0.3))
    connection = connect(server)
    connection.request("POST", "/v1/chat/completions", "{}")
    connection.close()
    while not server.log.requests or server.log.under_way:
        time.sleep(0.01)
    assert server.deliveries == 0


@pytest.mark.parametrize("script", [Hang(), Answer("x" * 1000, spread_s=600), "idle"])
def test_leaving_the_server_ends_every_wait(script):
    with ModelServer([script]) as server:
        connection = connect(server)
        body = {"stream": True, "messages": []}
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        while not server.log.requests:
            time.sleep(0.01)
        start = time.monotonic()
    assert time.monotonic() - start < 2
