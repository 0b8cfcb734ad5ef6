"""Steps read back from a store:

1. Every told step once, in order; none that is under way.
2. What was known before a step is never what was found out after it.
3. Unknown is None: no gain without two ratios, no models without calls.
4. Reading by number gives the same as reading in order; without texts, the same but for them.
"""

from dataclasses import replace

import pytest

from evolve.core.errors import UsageError
from evolve.core.evaluation import Fidelity, Status
from evolve.core.measurement import Ratio
from evolve.core.model import ReplyStatus, TokenTrace
from evolve.store import Store
from evolve.trajectories.flat import flat
from evolve.trajectories.shown import named_programs
from evolve.trajectories.step import Made, Step
from evolve.trajectories.steps import History, steps
from tests.trajectories.searched import Searched, source, story, verdict


def read(search: Searched) -> list[Step]:
    return list(steps(search.store, [search.run.id]))


@pytest.fixture
def told(search: Searched) -> list[Step]:
    story(search)
    return read(search)


def test_every_told_step_comes_once_and_in_order(told: list[Step], search: Searched) -> None:
    assert [step.sequence for step in told] == list(range(20))
    search.store.ask(search.run.id, "tune", ())
    assert [step.sequence for step in read(search)] == list(range(20))


def test_runs_come_one_after_the_other(store: Store) -> None:
    one, two = Searched(store, "one"), Searched(store, "two")
    one.built_in("A", verdict(1.0))
    two.built_in("A", verdict(2.0))
    found = list(steps(store, [two.run.id, one.run.id]))
    assert [step.id for step in found] == ["two:0", "one:0"]
    assert [step.made for step in found] == [Made.PROGRAM, Made.PROGRAM]


def test_a_run_that_is_not_there_is_named(store: Store) -> None:
    with pytest.raises(UsageError, match="no run number 7"):
        next(steps(store, [7]))


def test_it_says_what_came_of_a_step(told: list[Step]) -> None:
    made = {step.sequence: step.made for step in told if step.made is not Made.PROGRAM}
    assert made == {
        4: Made.NOTHING,
        10: Made.INSTANCE,
        11: Made.AGAIN,
        15: Made.NOTHING,
        18: Made.AGAIN,
    }
    assert told[15].reading is ReplyStatus.NO_CODE
    assert told[15].failure == "no_code"
    assert [step.sequence for step in told if not step.is_search] == [11, 18, 19]


def test_a_gain_is_the_quotient_of_both_ratios_with_both_spreads(told: list[Step]) -> None:
    # H: 2.0 over B: 1.5, both +- 1 %; the logs' half-widths add as a hypotenuse
    gain = told[8].gain
    assert gain is not None
    assert gain.value == pytest.approx(2.0 / 1.5)
    assert gain.high == pytest.approx(2.0 / 1.5 * 1.0143, rel=1e-3)
    assert told[0].gain is None  # no parent
    assert told[12].gain is None  # its parent failed
    assert told[13].gain is None  # not timed
    assert told[17].gain is None  # refuted later


def test_a_gain_over_a_verdict_of_another_judge_is_unknown(search: Searched) -> None:
    search.built_in("A", verdict(1.0))
    search.model("B", replace(verdict(2.0), device_class="other"), "A")
    assert read(search)[1].ratio is not None
    assert read(search)[1].gain is None


def test_a_parent_is_known_as_it_was_before_the_step(search: Searched) -> None:
    search.built_in("A", verdict(1.0))
    search.model("B", verdict(1.5), "A")
    search.built_in("A", verdict(3.0), "A", operator="tune", assignment={"BLOCK": 4})
    search.model("C", verdict(2.0), "A")
    search.built_in("A", verdict(5.0), "A", operator="tune", assignment={"BLOCK": 2})
    before, after = read(search)[1], read(search)[3]
    assert before.parent is not None and after.parent is not None
    assert before.parent.evaluation is not None and after.parent.evaluation is not None
    assert before.parent.evaluation.ratios["eager"].value == 1.0
    assert before.parent.code == source("A")
    assert after.parent.evaluation.ratios["eager"].value == 3.0
    assert after.parent.code.startswith("BLOCK = 4\n")


def test_a_failed_parent_is_known_by_its_verdict(told: list[Step]) -> None:
    parent = told[12].parent
    assert parent is not None and parent.evaluation is not None
    assert parent.evaluation.status is Status.WRONG_VALUE
    assert parent.evaluation.feedback == "the judge says wrong_value"


def test_the_best_before_a_step_counts_neither_screens_nor_the_step_itself(
    told: list[Step],
) -> None:
    best = [None if step.best_before is None else step.best_before.value for step in told]
    assert best[:10] == [None, 1.0, 1.5, 1.5, 1.5, 1.5, 1.505, 1.505, 3.0, 3.0]
    assert best[10:12] == [4.0, 4.2]


def test_the_prompt_shows_programs_by_name(told: list[Step]) -> None:
    assert named_programs("a\nprogram 0123abcd:\n\nprogram 0123abcd: no\nprogram x:") == {
        "0123abcd"
    }
    shown = [None if step.shown_best is None else step.shown_best.value for step in told]
    assert shown[8] == 3.0  # G, although its parent B has 1.5
    assert shown[7] == 1.5
    assert shown[0] is None


def test_a_program_that_was_measured_only_later_was_not_shown_as_fast(search: Searched) -> None:
    search.built_in("A", verdict(1.0))
    search.built_in("B", verdict(status=Status.INFRA))
    search.model("C", verdict(2.0), "A", shows="AB")
    search.built_in("B", verdict(9.0), "B", operator="tune", assignment={"BLOCK": 2})
    shown = read(search)[2].shown_best
    assert shown is not None
    assert shown.value == 1.0


def test_models_behind_programs_that_a_prompt_shows_are_counted_where_texts_are_read(
    search: Searched,
) -> None:
    search.model("A", verdict(1.0), asked="open")
    search.model("B", verdict(2.0), "A", asked="closed")
    search.model("C", verdict(1.5), "A", shows="AB", asked="open")
    search.model("D", verdict(1.6), "C", shows="C", asked="open")
    models = [step.models for step in read(search)]
    assert models[2] == models[3] == {"open", "closed"}
    light = list(steps(search.store, [search.run.id], texts=False))
    assert light[2].models == {"open"}


def test_the_best_path_leads_to_the_verified_winner(told: list[Step]) -> None:
    assert [step.sequence for step in told if step.on_best_path] == [0, 1, 8, 9]


def test_without_verification_the_path_leads_to_the_fastest(search: Searched) -> None:
    search.built_in("A", verdict(1.0))
    search.model("B", verdict(2.0), "A")
    search.model("C", verdict(9.0, custom=False), "A")
    assert [step.sequence for step in read(search) if step.on_best_path] == [0, 1]


def test_a_refuted_program_has_no_ratio_and_leads_nowhere(search: Searched) -> None:
    search.built_in("A", verdict(1.0))
    search.model("B", verdict(9.0), "A")
    search.verify("B", verdict(status=Status.HACK))
    found = read(search)[1]
    assert (found.refuted, found.correct, found.ratio) == ("hack", False, None)
    assert [step.sequence for step in read(search) if step.on_best_path] == [0]


def test_a_lucky_measurement_is_pooled_with_those_that_follow(search: Searched) -> None:
    search.built_in("A", verdict(3.0))
    search.built_in("A", verdict(2.0), "A", operator="remeasure")
    first, again = read(search)
    assert first.made is Made.PROGRAM and again.made is Made.AGAIN
    # equal weights on the log scale: sqrt(3 * 2)
    assert first.ratio is not None and again.ratio is not None
    assert first.ratio.value == pytest.approx(6**0.5, rel=1e-4)
    assert first.ratio.low < 2.0 and first.ratio.high > 3.0  # they disagree beyond their error
    assert again.ratio.value == 2.0


def test_the_verified_ratio_takes_the_place_of_the_lucky_one(search: Searched) -> None:
    search.built_in("A", verdict(3.0))
    search.verify("A", verdict(2.0, fidelity=Fidelity.VERIFY))
    search.built_in("A", verdict(3.0), "A", operator="remeasure")
    ratio = read(search)[0].ratio
    assert ratio is not None
    assert ratio.value == 2.0


def test_a_measurement_elsewhere_is_not_pooled(search: Searched) -> None:
    search.built_in("A", verdict(3.0))
    search.built_in("A", replace(verdict(1.0), device_class="other"), "A", operator="remeasure")
    ratio = read(search)[0].ratio
    assert ratio is not None
    assert ratio.value == 3.0


def test_our_own_fault_refutes_nothing(search: Searched) -> None:
    search.built_in("A", verdict(3.0))
    search.verify("A", verdict(status=Status.INFRA))
    search.verify("A", verdict(status=Status.TIMING_UNBOUNDED))
    search.verify("A", verdict(2.0, custom=None))  # nobody could say whose kernels it was
    assert read(search)[0].refuted == ""


def test_models_are_those_of_a_step_and_of_all_its_ancestors(search: Searched) -> None:
    search.built_in("A", verdict(1.0))
    search.model("B", verdict(1.1), "A", asked="open")
    search.model("C", verdict(1.2), "B", asked="closed")
    search.built_in("C", verdict(1.3), "C", operator="tune", assignment={"BLOCK": 2})
    search.model("D", verdict(1.3), "A", asked="open")
    search.built_in("E", verdict(1.3), "DC", operator="recombine")
    assert [sorted(step.models) for step in read(search)] == [
        [],
        ["open"],
        ["closed", "open"],
        ["closed", "open"],
        ["open"],
        ["closed", "open"],
    ]


def test_a_program_from_another_run_brings_its_models_along(store: Store) -> None:
    one, two = Searched(store, "one"), Searched(store, "two")
    one.built_in("A", verdict(1.0))
    one.model("B", verdict(2.0), "A", asked="closed")
    two.built_in("B", verdict(2.0), operator="seed")
    two.model("C", verdict(3.0), "B", asked="open")
    assert [sorted(step.models) for step in read(two)] == [["closed"], ["closed", "open"]]


def test_a_step_without_a_program_has_the_parents_that_its_operator_used(search: Searched) -> None:
    search.built_in("A", verdict(1.0))
    search.model("B", verdict(status=Status.WRONG_VALUE), "A")
    search.model(None, failure="no_code", reading=ReplyStatus.NO_CODE, used="B")
    search.model(None, None, "A", failure="no_code", reading=ReplyStatus.NO_CODE, used="BA")
    found = read(search)
    assert [step.parents for step in found[2:]] == [
        (Searched.digest("B"),),
        (Searched.digest("B"), Searched.digest("A")),
    ]
    assert [step.generation for step in found] == [0, 1, 2, 2]
    parent = found[2].parent
    assert parent is not None and parent.has_failed


def test_generations_count_main_parents(told: list[Step]) -> None:
    assert [told[number].generation for number in (0, 1, 8, 9, 10, 11, 16)] == [
        0, 1, 2, 3, 3, 3, 4,
    ]  # fmt: skip


def test_a_conversation_is_kept_with_its_reply(told: list[Step]) -> None:
    step = told[1]
    assert [message.role for message in step.prompt] == ["system", "user"]
    assert step.reply is not None
    assert step.reply.text.startswith("Here is B.")
    assert step.source == source("B")
    assert step.language == "torch"
    assert told[0].prompt == () and told[0].reply is None


def test_samples_of_one_prompt_share_its_key(told: list[Step]) -> None:
    assert told[1].prompt_key == told[2].prompt_key == told[5].prompt_key  # all show A
    assert told[7].prompt_key not in (told[1].prompt_key, "")
    assert told[0].prompt_key == ""
    assert (told[8].parent_step, told[9].parent_step, told[0].parent_step) == (1, 8, None)


def test_reading_by_number_gives_the_same_steps(search: Searched) -> None:
    story(search)
    history = History(search.store, search.run.id)
    whole = list(history.steps())
    order = [17, 3, 3, 0, 12]
    assert list(history.at(order)) == [whole[number] for number in order]


def test_raw_times_are_read_on_request_only(search: Searched) -> None:
    samples = {"large": {"calls_per_block": 2, "ms": {"candidate": [[1.0, 2.0]]}}}
    search.built_in("A", verdict(2.0, samples=samples))
    history = History(search.store, search.run.id)
    for asked, found in (({}, {}), ({"samples": False}, {}), ({"samples": True}, samples)):
        read_in_ways = (
            *history.steps(**asked),
            *history.at([0], **asked),
            *steps(search.store, [search.run.id], **asked),
        )
        assert [step.evaluation.samples for step in read_in_ways] == [found] * 3


def test_without_texts_all_else_is_the_same(search: Searched) -> None:
    story(search)
    history = History(search.store, search.run.id)
    bare = list(history.steps(texts=False))
    whole = list(history.steps())
    assert all(step.source == "" and step.exchanges == () for step in bare)
    for one, other in zip(bare, whole, strict=True):
        assert (one.status, one.ratio, one.gain, one.made, one.models, one.reading) == (
            other.status, other.ratio, other.gain, other.made, other.models, other.reading,
        )  # fmt: skip


def test_a_pruned_run_is_still_read(search: Searched) -> None:
    story(search)
    search.store.claim(search.run.id)
    search.store.prune(search.run.id, keep=0)
    found = read(search)
    assert len(found) == 20
    assert found[1].evaluation is not None
    assert (found[1].evaluation.feedback, found[1].ratio) == ("", verdict(1.5).ratios["eager"])
    assert found[1].source == source("B")


def test_pages_end_where_the_run_does(store: Store) -> None:
    search = Searched(store)
    for number in range(205):
        search.built_in(f"P{number}", verdict(1.0 + number / 100), operator="tune")
    found = read(search)
    assert [step.sequence for step in found] == list(range(205))
    assert found[-1].on_best_path


def test_a_flat_row_says_unknown_and_carries_its_units(told: list[Step]) -> None:
    row = flat(told[8])
    assert row["step_id"] == "first:8"
    assert (row["status"], row["correct"], row["ratio"]) == ("correct", True, 2.0)
    assert row["times_ms"]["large"][0] == pytest.approx(3.0)
    assert row["parent_times_ms"]["large"][0] == pytest.approx(4.0)
    assert row["cost_usd"] == 0.01
    assert (row["family"], row["licence"], row["is_gain"]) == ("reduction", "unknown", True)
    failed = flat(told[2])
    assert (failed["ratio"], failed["gain"], failed["times_ms"]) == (None, None, {})


def test_a_flat_row_has_what_changed_how_it_was_drawn_and_of_how_many_times(
    search: Searched,
) -> None:
    samples = {"large": {"ms": {"eager": [[6.0]] * 7, "candidate": [[3.0, 3.1]] * 7}}}
    trace = TokenTrace(prompt_ids=(1, 2), ids=(3, 4), logprobs=(-0.5, -0.25))
    search.built_in("A", verdict(1.0))
    search.model("B", verdict(2.0, samples=samples), "A", trace=trace)
    search.model("C", verdict(2.0), "A", trace=trace, mended="I would rather not.")
    first, row, mended = map(flat, steps(search.store, [search.run.id], samples=True))
    assert first["diff"] == ""
    assert row["diff"].splitlines()[:2] == ["--- parent", "+++ child"]
    assert '-    name = "A"\n+    name = "B"' in row["diff"]
    assert (row["seed"], row["reasoning_effort"], row["stop"]) == (None, None, [])
    assert row["pairs"] == {"large": 7}
    assert row["trace"] == {"prompt_ids": (1, 2), "ids": (3, 4), "logprobs": (-0.5, -0.25)}
    assert mended["trace"] is None  # its log-probabilities are given another prompt
    assert [one["role"] for one in mended["prompt"]] == ["system", "user"]


def test_samples_come_only_when_they_are_asked_for(search: Searched) -> None:
    samples = {"large": {"ms": {"eager": [[6.0]], "candidate": [[3.0]]}}}
    search.built_in("A", verdict(Ratio(2.0, 1.9, 2.1), samples=samples))
    [bare] = steps(search.store, [search.run.id])
    [whole] = steps(search.store, [search.run.id], samples=True)
    assert bare.evaluation is not None and whole.evaluation is not None
    assert bare.evaluation.samples == {}
    assert whole.evaluation.samples == samples
