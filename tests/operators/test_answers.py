"""What operators make of replies.

Invariants:
1. No reply makes an operator raise, and what comes of it is a proposal that parses, one more
   request, or a failure with a reason.
2. An unusable answer may be corrected as often as the operator allows, and no more; a cut, empty or
   unchanged one is not asked for again.
3. A proposal names the programs that it was made from, and what the model said of it.
4. Reading a reply twice, or later, gives the same.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolve.core.evaluation import Status
from evolve.core.model import CallStatus, ModelCard, ModelRequest, ReplyStatus
from evolve.core.protocols import MAX_ROUNDS, Declined, Failed, Proposal
from evolve.core.source.tunables import parse
from operators import (
    Contrastive,
    Crossover,
    Edit,
    Repair,
    RewriteFull,
    Summarise,
    Template,
    Universal,
)
from operators.prompting.inspirations import contrasting
from operators.prompting.replies import three_parts
from tests.operators.history import (
    PLAIN,
    History,
    answer,
    constants_set,
    fenced,
    interpreted,
    prompt_of,
    request_of,
    run_of,
)
from tests.operators.scripted import TEMPLATE, ScriptedModel, edits_between
from tests.operators.test_prompts import OPERATORS, asked, small_run

BETTER = constants_set(PLAIN, BLOCK=128)
WIDER = PLAIN.replace("tile(x):", "tile(x, y=1):")


PIECES = st.sampled_from(
    [fenced(PLAIN), fenced(BETTER), edits_between(PLAIN, BETTER), fenced(TEMPLATE + BETTER),
     "ACTION: 1", "LIMIT: memory", "## Design\n", "```python\n", "<<<<<<< SEARCH\n", "<think>",
     "words\n", "=======\n", ">>>>>>> REPLACE\n", "\ud800", "\0", "class ModelNew: x = (\n"]
)  # fmt: skip


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", OPERATORS)
@given(
    st.lists(st.one_of(st.text(), st.lists(PIECES, max_size=5).map("".join)), min_size=MAX_ROUNDS,
             max_size=MAX_ROUNDS),
    st.booleans(),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_no_reply_makes_an_operator_raise(name, texts, cut):
    operator, history = OPERATORS[name], small_run()
    context = history.context(history.elites()[: operator.parents], seed=3)
    status = CallStatus.TRUNCATED if cut else CallStatus.COMPLETED
    asked_for = asked(operator, history, seed=3)
    exchanges = []
    for text in texts:
        exchanges.append(answer(asked_for, text, status))
        reading = operator.interpret(context, exchanges)
        assert reading == operator.interpret(context, exchanges)
        if not isinstance(reading.outcome, ModelRequest):
            break
        asked_for = reading.outcome
    if isinstance(reading.outcome, Proposal):
        parse(reading.outcome.program.source)
        again = reading.outcome.is_reevaluation  # a program that is measured again
        assert reading.status is (ReplyStatus.STEP if again else ReplyStatus.PROGRAM)
        assert reading.outcome.parents or again or name == "world_model"  # a first one of an intent
    elif isinstance(reading.outcome, Failed):
        assert reading.outcome.reason
    else:
        assert len(exchanges) == MAX_ROUNDS


def test_a_proposal_names_its_parent_and_what_the_model_said_of_it():
    history = run_of(PLAIN)
    reading = interpreted(RewriteFull(), history, f"Larger blocks.\n\n{fenced(BETTER)}")
    assert reading.status is ReplyStatus.PROGRAM
    assert reading.outcome.program.source == BETTER
    assert reading.outcome.parents == (history.attempts[0].program,)
    assert reading.outcome.note == "Larger blocks. It is faster."


@pytest.mark.parametrize(
    ("operator", "text", "status"),
    [
        (RewriteFull(), "words", ReplyStatus.NO_CODE),
        (RewriteFull(), fenced("x = 1\n"), ReplyStatus.NO_MODEL),
        (RewriteFull(), fenced("class ModelNew:\n    (\n"), ReplyStatus.SYNTAX_ERROR),
        (RewriteFull(), edits_between(PLAIN, BETTER), ReplyStatus.DIFF),
        (RewriteFull(), fenced(BETTER + 'TUNABLE = {"X": (1,)}\n'), ReplyStatus.BAD_TUNABLES),
        (Edit(), edits_between(BETTER, PLAIN), ReplyStatus.EDIT_FAILED),
        (Edit(), "words", ReplyStatus.NO_CODE),
        (Edit(edit_scope="strict"), edits_between(PLAIN, WIDER), ReplyStatus.OUT_OF_SCOPE),
        (Template(), fenced(BETTER), ReplyStatus.BAD_TUNABLES),
        (Template(instances=8), fenced(TEMPLATE + constants_set(BETTER, STAGES=2)),
         ReplyStatus.BAD_TUNABLES),
    ],
)  # fmt: skip
def test_what_a_model_can_correct_it_is_asked_to_correct_once(operator, text, status):
    history = run_of(PLAIN)
    first = interpreted(operator, history, text)
    assert first.status is status
    mend = first.outcome
    assert isinstance(mend, ModelRequest)
    assert [message.role for message in mend.messages] == ["system", "user", "assistant", "user"]
    assert mend.purpose == "repair"
    again = interpreted(operator, history, text, text)
    assert (again.status, type(again.outcome)) == (status, Failed)
    assert status in again.outcome.reason
    good = TEMPLATE + constants_set(BETTER, UNROLL=2, STAGES=2)
    if operator == Template():
        mended = interpreted(operator, history, text, fenced(good))
    else:
        mended = interpreted(operator, history, text, fenced(BETTER))
    if not isinstance(operator, Template) or operator == Template():
        assert isinstance(mended.outcome, Proposal)


@pytest.mark.parametrize(
    ("text", "call", "status"),
    [
        (fenced(PLAIN), CallStatus.COMPLETED, ReplyStatus.UNCHANGED),
        (fenced("# only a comment\n" + PLAIN), CallStatus.COMPLETED, ReplyStatus.UNCHANGED),
        ("<think>nothing", CallStatus.COMPLETED, ReplyStatus.EMPTY),
        (f"```python\n{BETTER}", CallStatus.TRUNCATED, ReplyStatus.TRUNCATED),
    ],
)
def test_what_asking_again_would_not_help_is_a_failure_at_once(text, call, status):
    reading = interpreted(RewriteFull(), run_of(PLAIN), text, status=call)
    assert (reading.status, type(reading.outcome)) == (status, Failed)


@pytest.mark.parametrize("more", ["", "Then the", "<<<<<<< SEARCH\nUNROLL = 1\n=======\nUNR"])
def test_of_edits_that_were_cut_none_is_made(more):
    reading = interpreted(
        Edit(), run_of(PLAIN), edits_between(PLAIN, BETTER) + more, status=CallStatus.TRUNCATED
    )
    assert (reading.status, type(reading.outcome)) == (ReplyStatus.TRUNCATED, Failed)


def test_a_correction_is_asked_for_only_where_the_conversation_fits_into_the_context():
    history = run_of(PLAIN + f"# {'pad ' * 4000}\n")
    wrong = "words " * 1000
    for context_tokens, outcome in ((None, ModelRequest), (40_000, ModelRequest), (13_000, Failed)):
        card = ModelCard(name="m", context_tokens=context_tokens, output_tokens=4_000)
        context = history.context(history.elites(), model=card)
        asked_for = request_of(RewriteFull(), context)
        reading = RewriteFull().interpret(context, [answer(asked_for, wrong)])
        assert isinstance(reading.outcome, outcome), context_tokens


def test_without_mends_an_unusable_answer_is_a_failure_at_once():
    reading = interpreted(RewriteFull(mends=0), run_of(PLAIN), "words")
    assert isinstance(reading.outcome, Failed)


def test_a_failure_names_the_programs_that_the_answer_was_to_be_made_from():
    history = History()
    history.add(PLAIN)
    history.add(BETTER, status=Status.WRONG_VALUE)
    reading = interpreted(Repair(share=1.0, mends=0), history, "words")
    assert reading.outcome.parents == (history.attempts[1].program,)


def test_more_mends_are_more_rounds_up_to_the_limit_of_a_ticket():
    texts = ["words"] * MAX_ROUNDS
    reading = interpreted(RewriteFull(mends=9), run_of(PLAIN), *texts)
    assert isinstance(reading.outcome, Failed)


def test_an_edit_is_made_in_the_text_that_the_prompt_showed():
    """Also when the parent's best instance has become another one meanwhile."""
    history = History()
    source = PLAIN.replace("BLOCK = 16", 'TUNABLE = {"BLOCK": (16, 32, 64)}\nBLOCK = 16')
    history.add(source, assignment={"BLOCK": 32})
    before = history.context(history.elites())
    request = request_of(Edit(), before)
    reply = (
        "<<<<<<< SEARCH\nBLOCK = 32\nUNROLL = 1\n=======\nBLOCK = 32\nUNROLL = 2\n>>>>>>> REPLACE"
    )
    history.add(source, assignment={"BLOCK": 64})
    reading = Edit().interpret(history.context(history.elites()), [answer(request, reply)])
    assert "BLOCK = 32\nUNROLL = 2" in reading.outcome.program.source


def test_a_crossover_tells_which_parent_is_measurably_better_at_what():
    history = run_of(PLAIN, constants_set(PLAIN, BLOCK=32))
    prompt = prompt_of(asked(Crossover(), history))
    best = history.attempts[1].program[:8]
    assert f"- program {best} is the fastest over all cases." in prompt
    reading = interpreted(Crossover(), history, fenced(constants_set(PLAIN, BLOCK=64, UNROLL=2)))
    assert reading.outcome.parents == (history.attempts[1].program, history.attempts[0].program)


def test_a_crossover_of_one_program_with_itself_is_declined():
    history = run_of(PLAIN)
    assert isinstance(Crossover().propose(history.context(history.elites() * 2)), Declined)


# Contrastive


def graded(count: int = 40) -> History:
    """Programs of eight speeds, five of each."""
    history = History()
    for number in range(count):
        source = constants_set(PLAIN, BLOCK=2 ** (number % 8)) + f"x{number} = 1\n"
        history.add(source)
    return history


def test_exemplars_come_from_distinct_buckets_and_the_fastest_is_first():
    history = graded()
    pairs = set()
    for seed in range(60):
        request = request_of(Contrastive(), history.context(seed=seed))
        first, second = prompt_of(request).split("Verdict: correct, ")[1:3]
        fast, slow = float(first[:4]), float(second[:4])
        assert fast > slow
        pairs.add((fast, slow))
    assert len(pairs) > 5


def test_a_small_temperature_draws_the_fastest_buckets_only():
    history = graded()
    cold = Contrastive(bucket_temperature=0.001)
    drawn = {
        tuple(text[:4] for text in prompt_of(request_of(cold, history.context(seed=seed))).split(
            "Verdict: correct, ")[1:3])
        for seed in range(20)
    }  # fmt: skip
    assert len(drawn) == 1


def test_the_softmax_prefers_faster_buckets_by_as_much_as_it_says():
    """Two buckets of three: the probability of each first draw follows from the temperature."""
    history = History()
    for block in (128, 64, 32):
        history.add(constants_set(PLAIN, BLOCK=block))
    draws = 3000
    slowest_left_out = 0
    for seed in range(draws):  # neighbours differ by 0.35 in log speedup
        rng = random.Random(seed)
        chosen = contrasting(history.elites(), 2, rng, width=0.1, temperature=0.35)
        slowest_left_out += all(elite.fitness.value > 0 for elite in chosen)
    weights = [1.0, 2.718281828**-1, 2.718281828**-2]
    total = sum(weights)
    p = [w / total for w in weights]
    expected = p[0] * p[1] / (1 - p[0]) + p[1] * p[0] / (1 - p[1])
    assert slowest_left_out / draws == pytest.approx(expected, abs=0.03)


def test_programs_of_one_speed_are_no_contrast():
    history = run_of(PLAIN, PLAIN + "x = 1\n")
    assert isinstance(Contrastive().propose(history.context()), Declined)


def test_a_three_part_answer_is_read_by_its_parts():
    text = f"## Analysis\nA is faster.\n\n## Design\nBlocks of 128.\n\n## Code\n{fenced(BETTER)}"
    parts = three_parts(text)
    assert [*parts] == ["analysis", "design", "code"]
    assert parts["design"] == "Blocks of 128."
    reading = interpreted(Contrastive(), run_of(PLAIN, constants_set(PLAIN, BLOCK=64)), text)
    assert reading.outcome.note.startswith("design: Blocks of 128.")


# Summaries


def test_a_summary_merges_the_last_one_with_the_trials_since():
    history = small_run()
    operator = Summarise(every=2)
    first = asked(operator, history)
    assert first.purpose == "summarise"
    history.exchange("summarise", answer(first, "- blocks of 64 were best"))
    history.add(constants_set(PLAIN, BLOCK=256), operator="edit", note="wide")
    history.add(constants_set(PLAIN, BLOCK=8), operator="edit", note="narrow")
    second = prompt_of(asked(operator, history))
    assert "blocks of 64 were best" in second
    assert "narrow" in second
    assert "larger blocks" not in second


def test_a_summary_is_followed_by_a_program_that_knows_it():
    history = small_run()
    reading = interpreted(Summarise(every=1), history, "- use 64")
    assert reading.status is ReplyStatus.STEP
    assert "- use 64" in prompt_of(reading.outcome)
    done = interpreted(Summarise(every=1), history, "- use 64", fenced(BETTER))
    assert isinstance(done.outcome, Proposal)


@pytest.mark.parametrize(
    ("call", "text", "status"),
    [
        (CallStatus.TRUNCATED, "- use half", ReplyStatus.TRUNCATED),
        (CallStatus.COMPLETED, "<think>hm</think>\n", ReplyStatus.EMPTY),
    ],
)
def test_half_a_summary_is_none_and_the_program_is_asked_for_without_it(call, text, status):
    history, operator = small_run(), Summarise(every=1)
    history.exchange("summarise", answer(asked(operator, history), "- blocks of 64 were best"))
    history.add(constants_set(PLAIN, BLOCK=256), operator="edit")
    exchange = answer(asked(operator, history), text, call)
    history.exchange("summarise", exchange)
    context = history.context(history.elites()[:1], operator="summarise")
    reading = operator.interpret(context, [exchange])
    assert reading.status is status
    assert reading.outcome.purpose == "propose"
    for prompt in (prompt_of(reading.outcome), prompt_of(asked(RewriteFull(), history))):
        assert "- blocks of 64 were best" in prompt
        assert "- use half" not in prompt


def test_one_summary_is_asked_for_at_a_time_whatever_comes_of_it():
    history = small_run()
    operator = Summarise(every=5, samples=3)
    first = asked(operator, history)
    assert (first.purpose, first.samples) == ("summarise", 1)
    history.asked("summarise", first)
    for number in range(5):
        context = history.context(history.elites()[:1], operator="summarise")
        assert isinstance(operator.propose(context), Declined)
        history.add(constants_set(PLAIN, STAGES=number + 2), operator="edit")
    assert asked(operator, history).purpose == "summarise"


# Universal


def test_a_models_diagnosis_picks_the_documents_and_is_quoted():
    from operators.knowledge import Knowledge

    operator = Universal(diagnosis="model", knowledge=Knowledge(limit=2))
    history = small_run()
    asked_first = asked(operator, history)
    assert "# Notes that may help" not in prompt_of(asked_first)
    reading = interpreted(operator, history, "LIMIT: memory\nWHY: bytes\nCHANGE: fuse")
    assert reading.status is ReplyStatus.STEP
    prompt = prompt_of(reading.outcome)
    assert "Picked for: limit memory" in prompt
    assert "CHANGE: fuse" in prompt
    done = interpreted(operator, history, "LIMIT: memory", fenced(constants_set(PLAIN, BLOCK=128)))
    assert done.outcome.note.startswith("memory ")


def test_a_diagnosis_that_names_no_known_limit_is_still_quoted():
    operator = Universal(diagnosis="model")
    reading = interpreted(operator, small_run(), "LIMIT: the moon")
    assert "the moon" in prompt_of(reading.outcome)


def test_memories_are_drawn_by_their_weights():
    history = small_run()
    operator = Universal(memory={"clean": 1, "both": 3})
    drawn = [
        request_of(operator, history.context(history.elites()[:1], seed=seed)).memo["memory"]
        for seed in range(400)
    ]
    assert {*drawn} == {"clean", "both"}
    assert drawn.count("both") / 400 == pytest.approx(0.75, abs=0.08)


def test_the_scripted_model_of_these_tests_answers_in_every_form():
    rng = random.Random(0)
    model = ScriptedModel(ruined=0.0)
    for name, operator in OPERATORS.items():
        assert model.text(asked(operator, small_run()), rng), name
