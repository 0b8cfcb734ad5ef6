"""The judge of outcomes: structure is exact, and values stay in the error budget.

Invariants: nesting, shape and dtype have to be exact; integers are exact; no NaN or infinity where
the truth is finite; feedback names the mistake and gives neither seeds nor expected values; what
the judge is handed can never make it raise.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evolve.core.errors import UsageError
from evolve.core.evaluation import Status
from evolve.worker.correctness.compare import judge, suite_verdict
from evolve.worker.correctness.sensitivity import PERTURBATIONS
from tests.worker.judging import (
    judged,
    loaded_case,
    prepared,
    sequential_sum,
    task_source,
)

ROWS = loaded_case(task_source("torch.softmax(x, -1)", "[torch.randn(12, 320)]"))
EXPECTED = ROWS.expected(ROWS.model(1), ROWS.inputs(1))
SQUARE = loaded_case(task_source("x * 2", "[torch.randn(64, 64)]"))


def softmax(model, x):
    return torch.softmax(x, -1)


def changed(change):
    """Softmax with something done to its output afterwards."""

    def candidate(model, x):
        outcome = torch.softmax(x, -1)
        return change(outcome)

    return candidate


def with_element(place, value):
    def change(outcome):
        outcome.view(-1)[place] = value
        return outcome

    return changed(change)


def test_the_reference_itself_is_correct_with_room_to_spare():
    verdict = judged(ROWS, softmax)
    assert verdict.status is Status.CORRECT
    assert verdict.margin <= 0.25


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda y: (y,), Status.WRONG_TREE),
        (lambda y: [y, y], Status.WRONG_TREE),
        (lambda y: y[:-1], Status.WRONG_SHAPE),
        (lambda y: y.view(-1), Status.WRONG_SHAPE),
        (lambda y: y.double(), Status.WRONG_DTYPE),
        (lambda y: y.half(), Status.WRONG_DTYPE),
    ],
)
def test_nesting_shape_and_dtype_are_exact(change, status):
    assert judged(ROWS, changed(change)).status is status


@pytest.mark.parametrize("place", [0, 319, 320, -1, 1234])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.5, -1e-3])
def test_a_single_wrong_element_anywhere_is_found(place, value):
    assert judged(ROWS, with_element(place, value)).status is Status.WRONG_VALUE


@pytest.mark.parametrize(
    ("case", "candidate", "words"),
    [
        (ROWS, changed(torch.zeros_like), "all zeros"),
        (ROWS, changed(lambda y: torch.full_like(y, 1 / 320)), "all elements equal"),
        (ROWS, changed(lambda y: y * 1.5), "factor of 1.5"),
        (ROWS, changed(lambda y: y + 0.25), "constant offset"),
        (ROWS, changed(lambda y: y.roll(1, -1)), "one place too late"),
        (ROWS, changed(lambda y: y.roll(-1, -1)), "one place too early"),
        (ROWS, with_element(7, float("nan")), "NaN"),
        (SQUARE, lambda model, x: 2 * x.T, "transposed"),
        (SQUARE, lambda model, x: torch.cat([2 * x[:32], 0 * x[32:]]), "the tail: rows 32 to 63"),
        (SQUARE, lambda model, x: torch.cat([2 * x[:62], 0 * x[62:]]), "never written"),
        (SQUARE, lambda model, x: 2 * x * (torch.arange(64) < 48), "columns 48 to 63"),
        (SQUARE, lambda model, x: 2 * x * (torch.arange(64) % 4 > 0)[:, None], "every 4th row"),
        (ROWS, lambda model, x: torch.softmax(x.half(), -1).float(), "precision only"),
    ],
)
def test_feedback_names_the_mistake(case, candidate, words):
    verdict = judged(case, candidate)
    assert verdict.status is Status.WRONG_VALUE
    assert words in verdict.feedback
    assert len(verdict.feedback) < 500


def test_feedback_names_output_shape_and_dtype():
    case = loaded_case(task_source("(x, x + 1)", "[torch.randn(4, 8)]"))
    verdict = judged(case, lambda model, x: (x, x))
    assert "output 1 (4, 8) float32" in verdict.feedback


def test_integers_have_to_be_equal():
    case = loaded_case(task_source("x.argmax(-1)", "[torch.randn(8, 32)]"))
    assert judged(case, lambda model, x: x.argmax(-1)).status is Status.CORRECT
    assert judged(case, lambda model, x: x.argmin(-1)).status is Status.WRONG_VALUE
    assert judged(case, lambda model, x: x.argmax(-1).int()).status is Status.WRONG_DTYPE


def test_booleans_and_complex_numbers_are_judged_too():
    case = loaded_case(task_source("(x > 0, torch.fft.rfft(x))", "[torch.randn(8, 32)]"))
    right = judged(case, lambda model, x: (x > 0, torch.fft.rfft(x)))
    conjugate = judged(case, lambda model, x: (x > 0, torch.fft.rfft(x).conj().resolve_conj()))
    flipped = judged(case, lambda model, x: (x <= 0, torch.fft.rfft(x)))
    assert right.status is Status.CORRECT
    assert conjugate.status is Status.WRONG_VALUE
    assert flipped.status is Status.WRONG_VALUE


SPECTRAL = task_source(
    "torch.fft.irfft(torch.fft.rfft(x) * self.weight, n=x.shape[-1])",
    "[torch.randn(8, 32)]",
    setup="self.weight = nn.Parameter(torch.randn(17, dtype=torch.cfloat))",
)


def test_complex_weights_are_judged_with_both_parts():
    case = loaded_case(SPECTRAL)

    def spectral(model, x, weight):
        return torch.fft.irfft(torch.fft.rfft(x) * weight, n=x.shape[-1])

    def right(model, x):
        return spectral(model, x, model.weight)

    def real_part(model, x):
        return spectral(model, x, model.weight.real)

    def half(model, x):
        return spectral(model, x, torch.view_as_complex(
            torch.view_as_real(model.weight).bfloat16().float()))  # fmt: skip

    statuses = [judged(case, candidate).status for candidate in (right, real_part, half)]
    assert statuses == [Status.CORRECT, Status.WRONG_VALUE, Status.WRONG_VALUE]


def test_infinities_and_nans_of_the_reference_are_expected():
    case = loaded_case(task_source("torch.log(x)", "[torch.randn(8, 32)]"))
    assert judged(case, lambda model, x: torch.log(x)).status is Status.CORRECT
    filled = judged(case, lambda model, x: torch.log(x).nan_to_num())
    assert filled.status is Status.WRONG_VALUE
    masked = loaded_case(task_source("x.masked_fill(x < 0, float('-inf'))", "[torch.randn(8, 32)]"))
    assert judged(masked, lambda model, x: x).status is Status.WRONG_VALUE


def test_an_overflow_in_half_precision_may_be_avoided_but_not_invented():
    case = loaded_case(task_source("x * 1e5 / 1e5", "[torch.rand(64) + 1]"), precision="fp16")
    assert case.reference(case.model(1), case.inputs(1))[0].isinf().all()
    assert judged(case, lambda model, x: x).status is Status.CORRECT
    sane = loaded_case(task_source("x * 2", "[torch.rand(64) + 1]"), precision="fp16")
    assert judged(sane, lambda model, x: x * 1e5).status is Status.WRONG_VALUE


def test_empty_outputs_and_scalars_can_be_judged():
    empty = loaded_case(task_source("x[:0]", "[torch.randn(8)]"))
    assert judged(empty, lambda model, x: x[:0]).status is Status.CORRECT
    scalar = loaded_case(task_source("x.sum()", "[torch.rand(99)]"))
    assert judged(scalar, lambda model, x: x.sum()).status is Status.CORRECT
    assert judged(scalar, lambda model, x: x[:-1].sum()).status is Status.WRONG_VALUE


def test_an_output_of_zeros_has_to_be_zero():
    case = loaded_case(task_source("torch.relu(-x)", "[torch.rand(64)]"))
    assert judged(case, lambda model, x: torch.relu(-x)).status is Status.CORRECT
    assert judged(case, lambda model, x: x).status is Status.WRONG_VALUE


def test_a_small_row_cannot_hide_behind_a_large_one():
    case = loaded_case(
        task_source("x * 3", "[torch.randn(64, 256) * torch.logspace(-4, 4, 64)[:, None]]")
    )
    keep = (torch.arange(64) > 0)[:, None]
    assert judged(case, lambda model, x: x * 3 * keep).status is Status.WRONG_VALUE
    assert judged(case, lambda model, x: x * 3).status is Status.CORRECT


CHECKED = """
def check(output, reference, inputs):
    if output.shape[0] > 5:
        raise IndexError('five at most')
    return bool((output.sort().values == reference.sort().values).all()), 'other elements'
"""


def test_the_tasks_own_check_decides_on_values():
    case = loaded_case(task_source("x * 2", "[torch.randn(5)]", extra=CHECKED))
    assert judged(case, lambda model, x: (x * 2).flip(0)).status is Status.CORRECT
    refused = judged(case, lambda model, x: x)
    assert (refused.status, "other elements" in refused.feedback) == (Status.WRONG_VALUE, True)
    assert judged(case, lambda model, x: (x * 2).half()).status is Status.WRONG_DTYPE


@pytest.mark.parametrize(
    "fails",
    [
        "torch.testing.assert_close(output, reference)",
        "output @ torch.ones(7)",
        "output.no_such_method()",
        "1 // (output.numel() - 6)",
    ],
)
def test_however_the_check_fails_on_an_outcome_it_is_a_wrong_value(fails):
    extra = f"def check(output, reference, inputs):\n    {fails}\n    return True"
    case = loaded_case(task_source("x * 2", "[torch.randn(6)]", extra=extra))
    verdict = judged(case, lambda model, x: x)
    assert verdict.status is Status.WRONG_VALUE
    assert "check() raised" in verdict.feedback


def test_a_check_that_memory_is_short_for_says_nothing_of_the_outcome():
    extra = "def check(output, reference, inputs):\n    raise torch.OutOfMemoryError('full')"
    case = loaded_case(task_source("x * 2", "[torch.randn(6)]", extra=extra))
    with pytest.raises(torch.OutOfMemoryError):
        judged(case, lambda model, x: x * 2)


def test_an_exception_in_the_check_is_a_wrong_value():
    case = loaded_case(task_source("x * 2", "[torch.randn(6)]", extra=CHECKED))
    verdict = judged(case, lambda model, x: x)
    assert verdict.status is Status.WRONG_VALUE
    assert "five at most" in verdict.feedback


def test_the_check_cannot_change_what_is_kept():
    extra = "def check(output, reference, inputs):\n    inputs[0].zero_(); reference.zero_()\n"
    case = loaded_case(task_source("x * 2", "[torch.ones(6)]", extra=extra + "    return True"))
    model, inputs = case.model(1), case.inputs(1)
    expected = case.expected(model, inputs)
    judge(case, [inputs[0] * 2], "T", expected, inputs)
    assert inputs[0].all()
    assert expected.reference[0].all()


def test_the_suites_own_rule_is_looser():
    case = loaded_case(task_source("torch.softmax(x, -1)", "[torch.randn(12, 320)]"))
    model, inputs = case.model(1), case.inputs(1)
    expected = case.expected(model, inputs)
    zeros = [torch.zeros_like(expected.reference[0])]
    half = [torch.softmax(inputs[0].half(), -1).float()]
    assert suite_verdict(half, expected)
    assert judge(case, half, "T", expected, inputs).status is Status.WRONG_VALUE
    assert not suite_verdict(zeros, expected)
    assert not suite_verdict([], expected)
    assert not suite_verdict([zeros[0][:1]], expected)


def test_how_far_an_outcome_moves_is_found_out_for_what_is_not_right_without_and_once():
    outcome = "(CALLS.append(1), torch.softmax(x, -1))[1]"
    case = loaded_case(task_source(outcome, "[torch.randn(12, 320)]", extra="CALLS = []"))
    inputs = case.inputs(1)
    model, calls = case.model(1), case.module.CALLS
    calls.clear()  # those by which its effects were found out
    expected = case.expected(model, inputs)
    assert len(calls) == 2  # as it is, and in fp64
    right = torch.softmax(inputs[0], -1)
    assert judge(case, [right], "T", expected, inputs).status is Status.CORRECT
    assert len(calls) == 2
    for factor in (1.01, float("nan"), 0.0):
        assert judge(case, [right * factor], "T", expected, inputs).status is Status.WRONG_VALUE
        assert len(calls) == 2 + PERTURBATIONS + 1  # and to see whether it rounds to integers


def test_of_a_model_that_its_forward_changes_every_run_is_expected_as_if_it_were_the_first():
    """Else what it has drifted by would be an error of the reference, and allowed to others."""
    case = loaded_case(
        task_source(
            "(self.mean.mul_(0.5).add_(x.mean()), x - self.mean)[1]",
            "[torch.randn(64, 256) + 3]",
            setup="self.register_buffer('mean', torch.ones(()))",
        )
    )
    model, inputs = case.model(1), case.inputs(1)
    ((before,),) = inputs[1:]  # the state, which a call gets behind its arguments
    right = inputs[0] - 0.5 * before - inputs[0].mean()
    expected = case.expected(model, inputs)
    case.expected(model, case.inputs(2))
    mean = expected.reference[1]
    verdicts = [judge(case, [right * f, mean], "T", expected, inputs) for f in (1.0, 1.001)]
    assert [verdict.status for verdict in verdicts] == [Status.CORRECT, Status.WRONG_VALUE]
    assert torch.equal(model.mean, torch.ones(()))


def test_a_model_that_cannot_be_copied_is_judged_by_its_own_outcome():
    held = "import threading; self.lock = threading.Lock()"
    case = loaded_case(task_source("x * 2", "[torch.randn(64, 256)]", setup=held))
    assert judged(case, lambda model, x: x * 2).status is Status.CORRECT
    assert judged(case, lambda model, x: x * 2.01).status is Status.WRONG_VALUE


@pytest.mark.parametrize(
    ("dtype", "off"),
    [(torch.complex128, 1e-9), (torch.complex64, 1e-3), (torch.float64, 1e-9)],
    ids=["complex128", "complex64", "float64"],
)
def test_a_wider_type_is_allowed_no_more_than_its_own_roundings(dtype, off):
    case = loaded_case(task_source(f"x.to({dtype}) * 2", "[torch.randn(64, 256)]"))
    assert judged(case, lambda model, x: x.to(dtype) * 2).status is Status.CORRECT
    assert judged(case, lambda model, x: x.to(dtype) * 2 * (1 + off)).status is Status.WRONG_VALUE


@pytest.mark.parametrize("exponent", [360, 400])
def test_what_overflows_hides_nothing_beside_it(exponent):
    """In fp64 it is so large that all else in its row would be small beside it."""
    inputs = "[torch.cat([torch.ones(64, 1), torch.rand(64, 320) / 400], 1)]"
    case = loaded_case(task_source(f"torch.exp(x * {exponent})", inputs))
    right = judged(case, lambda model, x: torch.exp(x * exponent))
    assert right.status is Status.CORRECT
    zeros = judged(case, lambda model, x: torch.exp(x * exponent) * (torch.arange(321) < 1))
    assert zeros.status is Status.WRONG_VALUE


def test_of_an_outcome_with_nan_what_is_only_ill_conditioned_is_not_called_wrong():
    case = loaded_case(task_source("torch.sin(x * 1e4)", "[torch.rand(64, 256)]"))

    def candidate(model, x):
        outcome = torch.sin(x.double() * (1e4 * (1 + 4e-7))).float()
        outcome[0, 0] = float("nan")
        return outcome

    assert "0.01% of elements wrong" in judged(case, candidate).feedback


def test_what_is_right_only_because_it_is_ill_conditioned_has_all_of_its_budget_used():
    case = loaded_case(task_source("torch.sin(x * 1e4)", "[torch.rand(64, 256)]"))
    otherwise = judged(case, lambda model, x: torch.sin(x.double() * (1e4 * (1 + 1e-5))).float())
    assert otherwise.status is Status.WRONG_VALUE
    near = judged(case, lambda model, x: torch.sin(x.double() * (1e4 * (1 + 4e-7))).float())
    assert (near.status, near.margin) == (Status.CORRECT, 1.0)


@pytest.mark.parametrize(
    "outcome",
    [torch.zeros_like, torch.neg, lambda x: x + torch.randn_like(x)],
    ids=["nothing", "negative", "noise"],
)
def test_who_asks_whether_an_outcome_is_there_at_all_need_not_wait_for_excuses(
    outcome, monkeypatch
):
    """What a kernel leaves that does nothing, for one: each excuse takes runs of the reference."""
    case = loaded_case(task_source("torch.sin(x * 1e4)", "[torch.rand(64, 256)]"))
    _, inputs, expected = prepared(case, "task")
    asked = [outcome(expected.reference[0])], expected.spec, expected, inputs
    monkeypatch.setattr("evolve.worker.correctness.oracle.rounded", None)
    verdict = judge(case, *asked, explain=False, excuse=False)
    assert verdict.status is Status.WRONG_VALUE
    with pytest.raises(UsageError, match="TypeError"):
        judge(case, *asked, explain=False)


def test_a_sum_that_cancels_may_be_off_by_its_own_size():
    """A sequential sum is honest, whatever is left when what is nearly equal is taken away."""
    inputs = "[(a := torch.rand(64, 16384) + 1), a.double().sum(-1).float()]"
    case = loaded_case(
        task_source("x.sum(-1) - y", inputs).replace("forward(self, x)", "forward(self, x, y)")
    )
    verdict = judged(case, lambda model, x, y: sequential_sum(x) - y)
    assert verdict.status is Status.CORRECT, verdict.feedback


@settings(max_examples=60, deadline=None)
@given(
    shape=st.sampled_from([(12, 320), (320, 12), (0,), (), (12, 320, 1), (12, 0)]),
    dtype=st.sampled_from(
        [torch.float32, torch.float16, torch.int64, torch.bool, torch.complex64, torch.uint8]
    ),
    fill=st.sampled_from([0.0, 1.0, float("nan"), float("inf"), -6e4, 1e-45]),
    count=st.integers(0, 2),
)
def test_no_outcome_makes_the_judge_raise_or_pass(shape, dtype, fill, count):
    value = fill if dtype.is_floating_point or dtype.is_complex else 1
    outputs = [torch.full(shape, value, dtype=dtype) for _ in range(count)]
    verdict = judge(ROWS, outputs, "T", EXPECTED, [])
    assert verdict.status in {
        Status.WRONG_TREE, Status.WRONG_SHAPE, Status.WRONG_DTYPE, Status.WRONG_VALUE
    }  # fmt: skip


@pytest.mark.parametrize("outcome", ["torch.nonzero(x == 3)", "torch.bincount(x.long().flatten())"])
def test_integers_whose_number_depends_on_the_values_are_judged(outcome):
    case = loaded_case(task_source(outcome, "[torch.randint(0, 9, (1024,)).float()]"))
    assert judged(case, lambda model, x: model(x)).status is Status.CORRECT
