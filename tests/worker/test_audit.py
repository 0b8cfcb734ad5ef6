"""The null-candidate audit: a task that lets no work pass for work is found out.

Invariants: a task whose outcome hardly depends on its inputs, weights or precision has a finding
that names the null candidate and the case; sound tasks have none; one without an outcome is
refused; large inputs take seconds.
"""

import time

import pytest
import torch

from evolve.core.errors import UsageError
from evolve.core.task import Case, Task
from evolve.worker.correctness.cases import load_task
from evolve.worker.judge.audit import audit
from tests.worker.judging import task_source


def findings(source, **fields):
    return audit(load_task(Task(name="probe", source=source, **fields)))


def names(source, **fields):
    return {finding.name for finding in findings(source, **fields)}


@pytest.mark.parametrize(
    "source",
    [
        task_source("torch.softmax(x, -1)", "[torch.randn(8, 512)]"),
        task_source("x @ y", "[torch.rand(48, 64), torch.rand(64, 32)]", arguments="x, y"),
        task_source("self.norm(x)", "[torch.randn(8, 512)]", setup="self.norm = nn.LayerNorm(512)"),
        task_source(
            "F.cross_entropy(x, y, reduction='none')",
            "[torch.randn(8, 100), torch.randint(0, 100, (8,))]",
            arguments="x, y",
        ),
        task_source(
            "F.cross_entropy(x, y)",
            "[torch.randn(8, 100), torch.randint(0, 100, (8,))]",
            arguments="x, y",
        ),
        task_source("x.argmax(-1)", "[torch.randn(16, 512)]"),
        task_source("torch.relu(x)", "[torch.randn(16, 512)]"),
        task_source("(x.sum(), x * 2)", "[torch.randn(16, 512)]"),
        task_source("x.cumsum(-1)", "[torch.rand(8, 512)]"),
    ],
)
def test_a_sound_task_has_no_findings(source):
    assert names(source) == set()


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (task_source("torch.relu(-x)", "[torch.rand(64)]"), "zeros"),
        (task_source("x * 1", "[torch.randn(64)]"), "copy of the input"),
        (task_source("(x > 9).float()", "[torch.rand(64)]"), "output for other inputs"),
        (task_source("F.sigmoid(x + 40)", "[torch.rand(64)]"), "constant mean"),
        (
            task_source("torch.cat([x, 0 * x])", "[torch.randn(64)]"),
            "first half only",
        ),
        (
            task_source(
                "x + 1e-9 * self.w",
                "[torch.randn(64)]",
                setup="self.w = nn.Parameter(torch.randn(64))",
            ),
            "other weights",
        ),
        (task_source("x.sum()", "[torch.rand(1 << 18)]"), "operands rounded to tf32"),
    ],
)
def test_a_weak_task_is_found_out_by_name(source, name):
    assert name in names(source)


def test_shorter_arithmetic_that_the_task_allows_is_no_weakness():
    source = task_source("x @ y", "[torch.randn(48, 64), torch.randn(64, 32)]", arguments="x, y")
    assert names(source, accumulation="tf32") == set()
    assert names(source, accumulation="half") == set()
    assert names(source, precision="bf16") == set()


CAST = """
def cast(layer, x):
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        return layer(x)
"""


def test_operands_as_short_as_those_of_the_reference_are_no_weakness():
    setup = "self.layer = nn.Linear(96, 64)"
    source = task_source("cast(self.layer, x)", "[torch.randn(32, 96)]", setup=setup, extra=CAST)
    assert names(source) == set()
    both = source.replace("return cast(self.layer, x)", "return cast(self.layer, x), self.layer(x)")
    assert names(both) == set()


READS = """
def as_read(tensor, bits):
    \"\"\"Operands as tensor cores read them; exact in any other type.\"\"\"
    if tensor.dtype is not torch.float32:
        return tensor
    return (tensor.view(torch.int32) >> bits << bits).view(torch.float32)
"""


@pytest.mark.parametrize(
    ("outcome", "inputs"),
    [
        ("as_read(x, 13) @ as_read(self.w, 13)", "[torch.rand(64, 96)]"),
        ("torch.relu(as_read(x, 13) @ as_read(self.w, 13))", "[torch.randn(64, 96)]"),
    ],
)
def test_a_reference_whose_products_read_tf32_is_sound(outcome, inputs):
    """As convolutions of a GPU do unless told otherwise; a shorter type is found out."""
    source = task_source(
        outcome, inputs, setup="self.w = nn.Parameter(torch.randn(96, 32))", extra=READS
    )
    assert names(source) == set()
    (case,) = load_task(Task(name="probe", source=source)).cases
    assert len(case.families()) > 1


def test_a_reference_that_reads_operands_shorter_still_is_none_to_judge_by():
    source = task_source(
        "as_read(x, 19) @ as_read(self.w, 19)", "[torch.rand(64, 96)]",
        setup="self.w = nn.Parameter(torch.randn(96, 32))", extra=READS,
    )  # fmt: skip
    assert names(source) == {"reference"}


def test_an_outcome_that_rounding_spoils_is_none_to_judge_by():
    """Its products are read in full: it is off by far less than operands in TF32 would make it."""
    outcome = "(x.double() + 0).to(x.dtype) @ self.w * 0 + ((x + 30000.0) - 30000.0)"
    source = task_source(
        outcome, "[torch.rand(64, 96)]", setup="self.w = nn.Parameter(torch.randn(96, 96))"
    )
    assert names(source) == {"reference"}


def test_a_finding_names_the_case_that_it_concerns():
    source = task_source("x * SCALE", "[torch.randn(64)]", extra="SCALE = 2")
    cases = (Case(name="double"), Case(name="same", constants={"SCALE": 1}))
    (finding,) = findings(source, cases=cases)
    assert (finding.name, finding.passed_by) == ("copy of the input", "same")
    assert "copy of the input" in finding.detail


def test_a_reference_that_is_random_by_itself_is_refused():
    source = task_source("x + torch.rand(64)", "[torch.randn(64)]")
    with pytest.raises(UsageError, match=r"Model.forward is random.*Give the file a check"):
        findings(source)


def test_a_check_that_accepts_anything_is_found_out():
    extra = "def check(output, reference, inputs):\n    return True"
    assert "zeros" in names(task_source("x * 2", "[torch.randn(64)]", extra=extra))


def test_a_random_reference_is_no_weakness_where_the_task_itself_checks_samples():
    extra = (
        "def check(output, reference, inputs):\n"
        "    return bool(((output - inputs[0]).abs() <= 1).all() and (output != inputs[0]).any())"
    )
    source = task_source("x + torch.rand(4096)", "[3 * torch.randn(4096)]", extra=extra)
    assert "reference" not in names(source)
    assert "zeros" not in names(source)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("ok = (output == reference).all()", "refused"),
        ("return output == reference", "RuntimeError"),
        ("return True, 'so', 'so'", "ValueError"),
        ("return output.nothing", "AttributeError"),
    ],
)
def test_a_check_that_does_not_accept_the_reference_itself_is_refused(body, why):
    extra = f"def check(output, reference, inputs):\n    {body}"
    with pytest.raises(UsageError, match=rf"task probe: check\(\) does not accept .*{why}"):
        findings(task_source("x * 2", "[torch.randn(64)]", extra=extra))


@pytest.mark.parametrize(
    ("outcome", "words"),
    [("x * float('nan')", "no finite element"), ("(x * 2, x[:0])", "output 1 .*no elements")],
)
def test_an_outcome_with_nothing_to_judge_by_is_refused(outcome, words):
    with pytest.raises(UsageError, match=f"task probe: .*{words}"):
        findings(task_source(outcome, "[torch.randn(64)]"))


@pytest.mark.slow  # a cost, on which no finding hangs
@pytest.mark.quiet
def test_an_audit_takes_no_longer_than_sixty_runs_of_the_reference_in_float64():
    """Two seconds for sixteen megabytes of inputs, where a run takes 70 ms."""
    source = task_source("torch.softmax(x, -1)", "[torch.randn(1024, 4096)]")
    loaded = load_task(Task(name="probe", source=source))
    x = torch.randn(1024, 4096)
    torch.softmax(x.double(), -1)
    start = time.process_time()
    for _ in range(10):
        torch.softmax(x.double(), -1)
    usual = (time.process_time() - start) / 10
    start = time.process_time()
    assert audit(loaded) == ()
    assert time.process_time() - start < 60 * usual
