"""The reasoning that models write into their answers is no part of the answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.core.source.thoughts import split_thought

DRAFT = "A draft:\n```python\nx = 0\n```\nNo."
GOOD = "Here:\n```python\nx = 1\n```\n"
MARKS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>\n", "\n</thought>\n"),
    ("<antThinking>", "</antThinking>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|channel>thought\n", "<channel|>"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ("analysisWe start. ", "assistantfinal"),
    ("Here is my thought process: ", "Here is my response: "),
    ("", "\n</think>\n"),
)
UNFINISHED = [opening for opening, _ in MARKS if opening not in ("", "<reasoning>")][:-2]


@pytest.mark.parametrize(("opening", "closing"), MARKS)
def test_reasoning_between_marks_is_taken_out(opening, closing):
    thought, answer = split_thought(f"{opening}{DRAFT}{closing}{GOOD}")
    assert answer.strip() == GOOD.strip()
    assert DRAFT in thought


@pytest.mark.parametrize("opening", UNFINISHED)
def test_reasoning_that_does_not_end_leaves_no_answer(opening):
    thought, answer = split_thought(f"{opening}{DRAFT}")
    assert answer == ""
    assert DRAFT in thought


def test_reasoning_between_parts_of_an_answer_is_taken_out_too():
    assert split_thought(f"One.\n<think>{DRAFT}</think>\n{GOOD}")[1] == f"One.\n\n{GOOD}"
    assert split_thought(f"{GOOD}<think>\n{DRAFT}")[1] == GOOD


@pytest.mark.parametrize(
    "reply",
    [
        GOOD,
        f"Models write <think> before {GOOD}",
        f"```python\nMARK = '''\n<think>\n'''\n```\n{GOOD}",
        f"<reasoning>{GOOD}",
        "analysis of the kernel: assistant",
        "[x] done\n<b>bold</b>",
    ],
)
def test_what_only_looks_like_a_mark_stays(reply):
    assert split_thought(reply) == ("", reply)


def test_a_mark_that_the_reasoning_mentions_does_not_end_it():
    reply = f"<think>\nThe answer goes after </think> as always. {DRAFT}\n</think>\n{GOOD}"
    thought, answer = split_thought(reply)
    assert answer == f"\n{GOOD}"
    assert DRAFT in thought


PIECES = st.sampled_from([*(mark for pair in MARKS for mark in pair), "```\n", "\n", "words", " "])


@given(st.lists(PIECES, max_size=24).map("".join))
def test_whatever_is_written_the_answer_is_part_of_it_and_has_no_more_to_give(reply):
    thought, answer = split_thought(reply)
    assert len(thought) + len(answer) <= len(reply) + 64
    assert not split_thought(answer)[0] or "<" in answer or "[" in answer or "◁" in answer


@pytest.mark.parametrize(
    "piece", ["\n", "<think></think>", "<think>", "</think>\n", "<reasoning>\n", "```\n", "<|"]
)
@pytest.mark.timeout(20)
def test_long_replies_are_split_in_a_moment(piece):
    split_thought(piece * (400_000 // len(piece)))
