"""What an endpoint's refusals teach about the form that it takes.

Invariants:
1. A refusal changes only what its words name, and nothing if they name nothing.
2. A bound leaves room for the prompt, and is at least 1.
3. The same refusal teaches nothing twice.
"""

import pytest

from evolve.llm.faults import Fault, FaultKind
from evolve.llm.quirks import Quirks, learned, window_in

SENT = {
    "max_tokens": 1000,
    "temperature": 0.5,
    "top_p": 0.9,
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go."}],
}


def taught(words: str, quirks=Quirks(), kind=FaultKind.BAD_REQUEST, sent=SENT, estimate=500):  # noqa: B008
    return learned(quirks, Fault(kind, words), sent, estimate)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("temperature is not supported", {"left_out": frozenset({"temperature"})}),
        ("use only one of temperature and top_p", {"left_out": frozenset({"top_p"})}),
        ("max_tokens is not supported", {"limit": "max_completion_tokens"}),
        ("max_completion_tokens: unknown parameter", {"limit": "max_tokens"}),
        ("max_tokens: 1000 > 800", {"max_answer": 800}),
        ("max_output_tokens must be from 1 (inclusive) to 801 (exclusive)", {"max_answer": 800}),
        ("system role is not allowed here", {"merges_system": True}),
    ],
)
def test_a_refusal_changes_what_its_words_name(words, found):
    assert taught(words) == Quirks(**found)
    assert taught(words, Quirks(**found)) is None


@pytest.mark.parametrize(
    "words", ["no", "max_tokens: 9 > 4", "temperature must be nice", "seed is not supported", ""]
)
def test_other_words_change_nothing(words):
    assert taught(words) is None


def test_only_a_request_with_a_system_message_is_sent_without_one():
    plain = SENT | {"messages": SENT["messages"][1:]}
    assert taught("system role is not allowed here", sent=plain) is None


@pytest.mark.parametrize("kind", [FaultKind.LOST, FaultKind.QUOTA, FaultKind.FILTERED])
def test_faults_of_other_kinds_teach_nothing(kind):
    assert taught("temperature is not supported", kind=kind) is None


def test_a_window_leaves_room_for_an_answer_to_this_prompt():
    words = "maximum context length is 2000 tokens (1200 in the messages)"
    found = taught(words, kind=FaultKind.TOO_LONG)
    assert (found.window, found.prompt_ratio) == (2000, 2.4)
    assert found.bound(1000, 500) == 2000 - 1200 - 16
    assert taught(words) is None  # it is not too long
    assert taught(words, kind=FaultKind.TOO_LONG, estimate=10) == Quirks(
        window=2000, prompt_ratio=120.0
    )
    again = taught(words, found, FaultKind.TOO_LONG)
    assert again.prompt_ratio == pytest.approx(2.4 * 1.2)
    full = "maximum context length is 1300 tokens (1290 in the messages)"
    assert taught(full, kind=FaultKind.TOO_LONG) is None


@pytest.mark.parametrize(
    ("text", "window"),
    [("n_ctx: 4096", 4096), ("9000 tokens > 8192 maximum", 8192), ("none", None)],
)
def test_a_window_is_read_from_an_endpoints_words(text, window):
    assert window_in(text) == window


@pytest.mark.parametrize(
    ("quirks", "bound"),
    [
        (Quirks(), 1000),
        (Quirks(max_answer=400), 400),
        (Quirks(window=1000), 1000 - 500 - 16),
        (Quirks(window=1000, prompt_ratio=0.5), 1000 - 250 - 16),
        (Quirks(window=510), 1),
        (Quirks(window=1000, max_answer=10), 10),
    ],
)
def test_a_bound_leaves_room_for_the_prompt(quirks, bound):
    assert quirks.bound(1000, 500) == bound
    assert quirks.arguments(SENT, 500)["max_tokens"] == bound


def test_a_request_is_sent_in_the_form_that_is_taken():
    assert Quirks().arguments(SENT, 500) == SENT
    sent = Quirks(limit="max_completion_tokens").arguments(SENT, 500)
    assert "max_tokens" not in sent
    assert sent["extra_body"] == {"max_completion_tokens": 1000}
    body = SENT | {"extra_body": {"top_k": 3}}
    left = Quirks(left_out=frozenset({"top_k", "top_p"})).arguments(body, 500)
    assert (left["extra_body"], "top_p" in left) == ({}, False)


def test_the_systems_message_goes_in_front_of_the_users():
    quirks = Quirks(merges_system=True)
    system, user = SENT["messages"]
    assert quirks.messages(SENT["messages"]) == [{"role": "user", "content": "Be brief.\n\nGo."}]
    assert quirks.messages([system]) == [{"role": "user", "content": "Be brief."}]
    assert quirks.messages([user]) == [user]
    reply = {"role": "assistant", "content": "Yes."}
    merged = quirks.messages([system, reply])
    assert merged == [{"role": "user", "content": "Be brief."}, reply]


@pytest.mark.parametrize(
    ("quirks", "said"),
    [
        ({"left_out": frozenset({"b", "a"})}, "a is left out, b is left out"),
        ({"limit": "max_tokens"}, "the bound on an answer is sent as max_tokens"),
        ({"max_answer": 4}, "an answer may have 4 tokens"),
        ({"window": 9}, "prompt and answer together may have 9 tokens"),
        ({"merges_system": True}, "the system's message goes in front of the user's"),
        ({"prompt_ratio": 2.0}, "an answer is given less room"),
    ],
)
def test_the_news_are_what_has_changed(quirks, said):
    assert Quirks(**quirks).news(Quirks()) == said
