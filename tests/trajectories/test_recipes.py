"""Recipes make rows of steps:

1. Every step that was looked at is in a row or counted with a reason; the counts are a hand count's
   (the story is in tests/trajectories/searched.py, step by step).
2. What no recipe may override (`admit`) is asked of every step of every row.
3. The same runs give the same rows in the same order.
"""

from dataclasses import replace

import pytest

from evolve.core.errors import UsageError
from evolve.core.evaluation import Fidelity, Status
from evolve.core.measurement import Ratio
from evolve.core.model import CallStatus
from evolve.trajectories.step import Outcome, Step
from evolve.trajectories.views.recipes import RECIPES, find_recipe
from evolve.trajectories.views.rows import Conversation, Example, Preference, PromptOnly
from tests.trajectories.rows import numbers, removed, rows
from tests.trajectories.searched import Searched, verdict


def test_kernel_smith_keeps_correct_translations_and_gains(told: Searched) -> None:
    found, tally = rows(told, "kernel_smith@2", "supervised")
    assert numbers(found) == [1, 5, 7, 8, 9]
    assert removed(tally) == {
        "not of the search itself": 3,  # 11, 18, 19
        "no model made it": 2,  # 0, 10
        "no program came of it": 2,  # 4, 15
        "no verdict, or one that says nothing": 1,  # 14
        "refuted by a later evaluation": 1,  # 17
        "not correct": 3,  # 2, 3, 6
        "gain over its parent not known": 2,  # 12, 13
        "no gain over its parent beyond the error": 1,  # 16
    }
    assert (tally.steps, tally.rows) == (20, 5)
    assert sum(removed(tally).values()) + len(found) == 20
    first = found[0]
    assert isinstance(first, Example)
    assert first.completion.startswith("Here is B.")
    assert first.score == pytest.approx(1.5)


def test_a_correct_first_translation_is_kept_however_slow_and_is_called_no_gain(
    search: Searched,
) -> None:
    search.model("A", verdict(0.5))
    search.model("B", verdict(status=Status.COMPILE_ERROR))
    [row], _ = rows(search, "kernel_smith@2", "supervised")
    assert (row.step.sequence, row.score, row.outcome) == (0, 0.5, Outcome.FIRST)


def test_a_first_version_whose_time_is_not_known_has_no_score_and_is_left_out(
    search: Searched,
) -> None:
    search.model("A", verdict(status=Status.TIMING_UNBOUNDED))
    search.model("B", verdict(status=Status.WRONG_VALUE))
    search.model("C", verdict(status=Status.TIMING_UNBOUNDED), "B", operator="repair")
    for recipe in ("kernel_smith@2", "repair@3"):
        found, tally = rows(search, recipe, "supervised")
        assert found == []
        assert removed(tally)["not timed"] >= 1


@pytest.mark.parametrize(
    ("speedup", "outcome"),
    [
        (Ratio(1.2, 1.1, 1.3), Outcome.GAIN),
        (Ratio(1.2, 1.0, 1.4), Outcome.FIRST),  # the interval has to lie above 1
        (Ratio(0.5, 0.4, 0.6), Outcome.FIRST),
    ],
)
def test_a_gain_has_an_interval_above_1(search: Searched, speedup: Ratio, outcome: Outcome) -> None:
    """A first version is compared with the baseline."""
    search.model("A", verdict(speedup))
    [row], _ = rows(search, "kernel_smith@2", "supervised")
    assert (row.score, row.outcome) == (speedup.value, outcome)


def test_a_gain_over_a_slow_parent_and_a_repair_are_told_apart(search: Searched) -> None:
    search.model("A", verdict(0.5))
    search.model("B", verdict(0.8), "A")  # a gain, and slower than the baseline
    search.model("C", verdict(status=Status.WRONG_VALUE), "A")
    search.model("D", verdict(0.6), "C", operator="repair")
    steps = {row.step.sequence: row for row in rows(search, "kto@1", "labelled")[0]}
    assert {n: row.outcome for n, row in steps.items()} == {
        0: Outcome.FIRST, 1: Outcome.GAIN, 2: None, 3: Outcome.REPAIR,
    }  # fmt: skip
    scores = {n: row.score for n, row in steps.items()}
    assert scores == {0: 0.5, 1: pytest.approx(1.6), 2: None, 3: 0.6}


def test_kernel_smith_prompts_are_the_best_steps_that_showed_nothing_faster(
    told: Searched,
) -> None:
    found, tally = rows(told, "kernel_smith@2", "prompt")
    assert numbers(found) == [1, 9]
    assert removed(tally)["not on the path to the best program"] == 5  # 5, 7, 12, 13, 16
    assert removed(tally)["its prompt showed a faster program"] == 1  # 8
    row = found[1]
    assert isinstance(row, PromptOnly)
    assert row.step.parent is not None
    assert row.step.parent.program == told.digest("H")
    assert row.prompt == row.step.prompt


def test_a_first_step_and_a_small_gain_are_no_prompts(search: Searched) -> None:
    search.model("A", verdict(1.0))
    search.model("B", verdict(Ratio(1.04, 1.03, 1.05)), "A")
    found, tally = rows(search, "kernel_smith@2", "prompt")
    assert found == []
    assert removed(tally) == {"a first step": 1, "gain over its parent below 1.05": 1}


def test_pairs_are_siblings_whose_intervals_are_apart(told: Searched) -> None:
    found, tally = rows(told, "siblings@1", "preference")
    [pair] = found  # of A: B and E are as fast as each other; of B: G beats H
    assert isinstance(pair, Preference)
    assert [step.sequence for step in pair.steps] == [7, 8]
    assert pair.chosen.startswith("Here is G.")
    assert pair.rejected.startswith("Here is H.")
    assert pair.prompt == pair.steps[0].prompt  # the earlier one, which cannot show the other
    assert pair.margin == pytest.approx(0.4055, abs=1e-4)  # ln(3.0 / 2.0)
    assert removed(tally)["no sibling that differs beyond the error"] == 5
    assert removed(tally)["not timed"] == 1


def test_each_sibling_is_in_one_pair_at_most(search: Searched) -> None:
    search.built_in("A", verdict(1.0))
    for name, speed in zip("BCDE", (1.2, 2.0, 1.5, 3.0), strict=True):
        search.model(name, verdict(speed), "A")
    found, _ = rows(search, "siblings@1", "preference")
    assert [[step.sequence for step in row.steps] for row in found] == [[4, 1], [2, 3]]


def test_no_pair_across_operators_or_judges(search: Searched) -> None:
    search.built_in("A", verdict(1.0))
    search.model("B", verdict(1.2), "A")
    search.model("C", verdict(2.0), "A", operator="edit")
    judged = verdict(3.0)
    object.__setattr__(judged, "device_class", "another")
    search.model("D", judged, "A")
    assert rows(search, "siblings@1", "preference")[0] == []


def test_no_pair_of_answers_to_prompts_that_show_other_programs(search: Searched) -> None:
    """A cross with one partner is no answer where another one was shown."""
    for name in "AXY":
        search.built_in(name, verdict(1.0))
    for name, speed, partner in (("B", 1.2, "X"), ("C", 3.0, "Y"), ("D", 2.0, "X")):
        search.model(name, verdict(speed), f"A{partner}", shows=f"A{partner}", operator="crossover")
    [pair], tally = rows(search, "siblings@1", "preference")
    assert [step.sequence for step in pair.steps] == [5, 3]
    assert removed(tally)["no sibling that differs beyond the error"] == 1


@pytest.mark.parametrize("difference", ["job", "form"])
def test_no_pair_of_answers_to_other_jobs(difference: str, search: Searched) -> None:
    search.built_in("A", verdict(1.0))
    for name, speed, asked in (("B", 1.2, "step X"), ("C", 3.0, "step Y"), ("D", 2.0, "step X")):
        search.model(name, verdict(speed), "A", shows="A", **{difference: asked})
    [pair], _ = rows(search, "siblings@1", "preference")
    assert [step.sequence for step in pair.steps] == [3, 1]


def test_what_may_not_be_trained_on_takes_no_sibling_along(search: Searched) -> None:
    search.built_in("A", verdict(1.0))
    for name, speed in (("B", 1.2), ("C", 2.0), ("D", 3.0)):
        search.model(name, verdict(speed), "A", shows="A")
    found, _ = rows(
        search, "siblings@1", "preference", lambda step: "no" if step.sequence == 3 else None
    )
    assert [[step.sequence for step in row.steps] for row in found] == [[2, 1]]


def test_kto_labels_leave_the_middle_out(told: Searched) -> None:
    found, tally = rows(told, "kto@1", "labelled")
    labels = {row.step.sequence: row.label for row in found if isinstance(row, Example)}
    wanted = {1, 5, 7, 8, 9, 12}  # 12 is a repair
    failed = {2, 3, 6, 15, 16, 17}
    assert labels == dict.fromkeys(wanted, True) | dict.fromkeys(failed, False)
    assert removed(tally)["neither wanted nor unwanted"] == 1  # 13


def test_a_conversation_leads_from_the_first_to_the_best(told: Searched) -> None:
    [row], tally = rows(told, "multi_turn@1", "conversation")
    assert isinstance(row, Conversation)
    assert [step.sequence for step in row.steps] == [9, 8, 1]
    roles = [message.role for message in row.messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user", "assistant"]
    assert row.labels == (True, True, True)
    assert "1.50x as fast as PyTorch eager" in row.messages[3].content
    assert "the judge says correct" in row.messages[3].content
    assert tally.rows == 1


@pytest.mark.parametrize(
    ("recipe", "kind"), [("kernel_smith@2", "supervised"), ("kernel_smith@2", "prompt")]
)
def test_a_mended_reply_answers_the_prompt_that_was_to_be_answered(
    recipe: str, kind: str, search: Searched
) -> None:
    search.model("A", verdict(1.0))
    search.model("B", verdict(2.0), "A", mended="I would rather not.")
    row = rows(search, recipe, kind)[0][-1]
    assert row.step.sequence == 1
    assert [message.role for message in row.prompt] == ["system", "user"]
    if kind == "supervised":
        assert row.completion.startswith("Here is B.")


def test_a_pair_has_no_answer_that_could_not_be_used_in_its_prompt(search: Searched) -> None:
    search.built_in("A", verdict(1.0))
    search.model("B", verdict(1.2), "A", mended="I would rather not.")
    search.model("C", verdict(2.0), "A")
    [pair], _ = rows(search, "siblings@1", "preference")
    assert [message.role for message in pair.prompt] == ["system", "user"]


def test_a_conversation_has_a_label_for_every_answer_also_of_mended_turns(
    search: Searched,
) -> None:
    search.model("A", verdict(1.0), mended="I would rather not.")
    search.model("B", verdict(2.0), "A", mended="Nor now.")
    [row], _ = rows(search, "multi_turn@1", "conversation")
    roles = [message.role for message in row.messages]
    assert roles == ["system", "user", "assistant", "user", "assistant"]
    assert row.labels == (True, True)
    assert not any("I would rather not" in message.content for message in row.messages)


def test_labels_that_do_not_fit_the_answers_are_an_error(search: Searched) -> None:
    search.model("A", verdict(1.0))
    [row], _ = rows(search, "multi_turn@1", "conversation")
    with pytest.raises(ValueError, match=r"shorter|longer"):
        _ = replace(row, labels=(True, True)).learned


def test_every_turn_asks_in_the_words_and_the_form_of_its_own_step(search: Searched) -> None:
    search.model("A", verdict(1.0), job="Write a first version.")
    search.model("B", verdict(2.0), "A", shows="A", job="Change one thing.", form="SEARCH/REPLACE")
    [row], _ = rows(search, "multi_turn@1", "conversation")
    turn = row.messages[3].content
    assert "1.00x as fast as PyTorch eager" in turn
    assert turn.endswith("# Your job\n\nChange one thing.\n\n# Your answer\n\nSEARCH/REPLACE")
    assert "# Task" not in turn  # which the conversation has shown already
    assert "Meanwhile" not in turn


def test_a_turn_shows_the_program_if_it_is_not_that_of_the_turn_before(search: Searched) -> None:
    search.model("A", verdict(1.0))
    search.built_in("X", verdict(1.5), "A")
    search.model("B", verdict(2.0), "X", shows="X", job="Change one thing.")
    [row], _ = rows(search, "multi_turn@1", "conversation")
    turn = row.messages[3].content
    begins = turn.index("Meanwhile the program has become")
    assert turn.index("1.00x as fast") < begins < turn.index('name = "X"')
    assert turn.index('name = "X"') < turn.index("1.50x as fast") < turn.index("Change one thing.")


def test_a_turn_that_joins_programs_shows_all_of_them(search: Searched) -> None:
    search.model("A", verdict(1.0))
    search.built_in("X", verdict(1.0))
    search.model("B", verdict(2.0), "AX", shows="AX", job="Join them.")
    [row], _ = rows(search, "multi_turn@1", "conversation")
    turn = row.messages[3].content
    assert turn.index('name = "A"') < turn.index('name = "X"') < turn.index("Join them.")
    assert "# Task" not in turn


def test_turns_whose_worth_cannot_be_told_are_not_learned_from(search: Searched) -> None:
    search.model("A", verdict(status=Status.WRONG_VALUE))
    search.model("B", verdict(1.0), "A")
    search.model("C", verdict(Ratio(1.01, 0.9, 1.1)), "B")
    search.model("D", verdict(2.0), "C")
    [row], _ = rows(search, "multi_turn@1", "conversation")
    assert row.labels == (False, True, None, True)
    answers = zip(row.messages, row.learned, strict=True)
    assert [learned for one, learned in answers if one.role == "assistant"] == [
        False, True, False, True,
    ]  # fmt: skip


def test_turns_whose_reply_was_cut_or_lost_are_not_learned_from(search: Searched) -> None:
    search.model("A", verdict(1.0))
    search.model("B", verdict(1.5), "A", status=CallStatus.TRUNCATED)
    search.model("C", verdict(2.0), "B", reply=" ")
    search.model("D", verdict(3.0), "C")
    [row], _ = rows(search, "multi_turn@1", "conversation")
    assert row.labels == (True, None, None, True)
    assert [one.completion.splitlines()[0] for one in row.by_turn()] == ["Here is A.", "Here is D."]


def test_a_conversation_that_teaches_nothing_is_none(search: Searched) -> None:
    search.built_in("A", verdict(1.0))
    search.model("B", verdict(Ratio(1.01, 0.9, 1.1)), "A")
    found, tally = rows(search, "multi_turn@1", "conversation")
    assert found == []
    assert removed(tally)["no turn of the path is known to be wanted"] == 2


def test_what_was_made_without_a_model_stands_in_the_next_turn(search: Searched) -> None:
    search.built_in("A", verdict(1.0))
    search.model("B", verdict(1.5), "A")
    search.built_in("B", verdict(2.0), "B", operator="tune", assignment={"BLOCK": 4})
    search.model("C", verdict(3.0), "B")
    [row], _ = rows(search, "multi_turn@1", "conversation")
    assert isinstance(row, Conversation)
    turn = row.messages[3].content
    assert turn.index("1.50x") < turn.index("BLOCK = 4") < turn.index("2.00x")


def test_repairs_are_of_parents_that_had_failed(told: Searched) -> None:
    found, tally = rows(told, "repair@3", "supervised")
    assert numbers(found) == [12]
    assert [row.score for row in found] == [row.steps[0].ratio.value for row in found]
    assert removed(tally)["its parent had not failed"] == 7


def test_failed_directions_are_told_with_what_came_of_them(told: Searched) -> None:
    [row], _ = rows(told, "failed_directions@2", "supervised")
    assert isinstance(row, Example)
    assert [step.sequence for step in row.steps] == [2, 3, 6]
    assert row.completion == (
        "- try C: it fails (wrong_value).\n"
        "- try D: it fails (hack).\n"
        "- try F: it fails (not made by kernels of its own)."
    )
    assert 'name = "A"' in row.prompt[0].content


def test_a_direction_that_was_tried_again_is_told_of_once(search: Searched) -> None:
    search.built_in("A", verdict(1.0))
    for name, note in (("B", "try tiling"), ("C", "try fusion"), ("D", "try tiling"), ("E", "")):
        search.model(name, verdict(0.5), "A", note=note or "try nothing")
    [row], tally = rows(search, "failed_directions@2", "supervised")
    assert row.completion == (
        "- try fusion: it is slower.\n- try tiling: it is slower.\n- try nothing: it is slower."
    )
    assert removed(tally)["the same direction is told"] == 1


def test_the_stop_of_a_note_does_not_end_the_sentence_of_its_direction(search: Searched) -> None:
    search.built_in("A", verdict(1.0))
    notes = ("Rows in parallel.", "rsqrt; then a sum. ", "Wider loads:", "Rows in parallel", " . ")
    for name, note in zip("BCDEF", notes, strict=True):
        search.model(name, verdict(0.5), "A", note=note)
    [row], tally = rows(search, "failed_directions@2", "supervised")
    assert row.completion == (
        "- rsqrt; then a sum: it is slower.\n- Wider loads: it is slower.\n"
        "- Rows in parallel: it is slower."
    )
    assert removed(tally)["the same direction is told"] == 1
    assert removed(tally)["does not say what was tried"] == 1


def test_directions_that_are_not_told_of_are_counted(search: Searched) -> None:
    failed = verdict(status=Status.WRONG_VALUE)
    search.built_in("A", verdict(1.0))
    for number in range(10):  # two more than are told of
        search.model(f"B{number}", failed, "A")
    search.model("C", verdict(2.0), "A")
    search.model("D", failed, "C")
    search.model("E", failed)
    found, tally = rows(search, "failed_directions@2", "supervised")
    assert [len(row.steps) for row in found] == [8]
    assert removed(tally) == {
        "no model made it": 1,
        "a first step": 1,
        "a gain, or not known to be none": 1,
        "newer ones are told": 2,
        "fewer than 3 from its parent": 1,
    }
    assert sum(removed(tally).values()) + 8 == tally.steps


def test_what_may_not_be_trained_on_is_in_no_row_of_any_recipe(told: Searched) -> None:
    def admit(step: Step) -> str | None:
        return "held out" if step.program in map(told.digest, "BG") else None

    for recipe in RECIPES:
        for kind in recipe.views:
            found, tally = rows(told, recipe.name, kind, admit)
            shown = {step.sequence for row in found for step in row.steps}
            assert shown.isdisjoint({1, 7}), recipe.name
            if recipe.name in ("kernel_smith@2", "siblings@1", "kto@1", "multi_turn@1"):
                assert removed(tally)["held out"] >= 1, recipe.name


def test_a_path_with_a_step_left_out_is_no_conversation(told: Searched) -> None:
    found, tally = rows(
        told, "multi_turn@1", "conversation", lambda step: "no" if step.sequence == 8 else None
    )
    assert found == []
    assert removed(tally)["another step of its path was left out"] == 3


def test_cut_and_lost_replies_are_not_learned_from(search: Searched) -> None:
    search.model("A", verdict(1.0), status=CallStatus.TRUNCATED)
    search.model("B", verdict(1.0), reply="")
    found, tally = rows(search, "kernel_smith@2", "supervised")
    assert found == []
    assert removed(tally) == {"the reply was cut off": 1, "no text of a reply is stored": 1}


@pytest.mark.parametrize("mark", ["<|im_end|>", "<\uff5cend\u2581of\u2581sentence\uff5c>"])
def test_replies_that_hold_marks_of_turns_are_not_learned_from(search: Searched, mark: str) -> None:
    """A trainer would take them for the end of the answer."""
    search.model("A", verdict(1.0), reply=f"```python\nfast()\n```{mark}\nand more")
    search.model("B", verdict(2.0), "A", reply="```cpp\nif (a<b || c>d) x = a<<|b|;\n```")
    found, tally = rows(search, "kernel_smith@2", "supervised")
    assert numbers(found) == [1]
    assert removed(tally) == {"the reply holds marks of a chat template": 1}


def test_the_same_runs_give_the_same_rows(told: Searched) -> None:
    for recipe in RECIPES:
        for kind in recipe.views:
            assert rows(told, recipe.name, kind)[0] == rows(told, recipe.name, kind)[0]


def test_only_what_was_measured_again_is_verified(search: Searched) -> None:
    search.model("A", verdict(1.0))
    search.model("B", verdict(2.0), "A")
    search.verify("A", verdict(1.0, fidelity=Fidelity.VERIFY))
    assert numbers(rows(search, "kernel_smith@2+verified@1", "supervised")[0]) == [0]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("kernel_smith", "did you mean kernel_smith@2"),
        ("nonsense", "there are kernel_smith@2"),
        ("kto@1+uniq", "there is no filter 'uniq', did you mean unique@1"),
    ],
)
def test_a_recipe_that_does_not_exist_is_answered_with_those_that_do(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        find_recipe(name)


def test_a_kind_that_a_recipe_cannot_make_names_those_that_can(told: Searched) -> None:
    with pytest.raises(UsageError, match=r"makes no preference rows.*siblings@1"):
        rows(told, "kto@1", "preference")
