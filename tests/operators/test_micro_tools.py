"""Tools that read verdicts: each finds what it is for, and speaks where that is the limit."""

from dataclasses import replace

import pytest

from evolve.core.evaluation import Label, Status
from evolve.core.task import Task
from operators import Universal
from operators.knowledge import Bottleneck, Diagnosis
from operators.prompting.micro_tools import TOOLS, findings
from tests.operators.history import PLAIN, History, failing, prompt_of, request_of
from tests.operators.prompt_states import H100, SOFTMAX, SOFTMAX_KERNEL, history_of, plant, verdict

SPILLED = {"spill_bytes": 64.0}
TRAFFIC = (
    "all launches together: operands of 27 GB, each once, at 2010 GB/s, {}% of this device's "
    "memory rate"
)
MANY = "\n".join(
    f"kernel 'k{n}': grid 8, 25% of the time, 9 us in 3 launches, 32 registers" for n in (1, 2)
)


def said(*, descriptors=None, feedback="", counters="", limit="", category="") -> list[str]:
    labels = (Label("counters", counters),) if counters else ()
    found = replace(failing(Status.CORRECT, feedback), descriptors=descriptors or {}, labels=labels)
    return findings(found, Diagnosis(bottleneck=limit, category=category))


@pytest.mark.parametrize(
    ("facts", "limit", "words"),
    [
        ({"descriptors": SPILLED}, "compute", "64 bytes of a thread"),
        (
            {"descriptors": {"occupancy": 0.25, "registers": 168.0, "shared_bytes": 98304.0}},
            "latency",
            "Occupancy is 25%, by 168 registers a thread and 98304 bytes of shared memory",
        ),
        ({"descriptors": {"occupancy": 0.1}}, "parallelism", "by few or small blocks"),
        ({"counters": "pack: memory 70 % of its peak, 9 of 32 lanes active"}, "latency", "Only 9"),
        (
            {"descriptors": {"tensor_cores": "no", "shared_bytes": 0.0}, "category": "matmul"},
            "memory",
            "no shared memory is used",
        ),
        ({"feedback": MANY}, "launch", "makes 6 launches"),
        (
            {"descriptors": {"tensor_cores": "no"}, "category": "matmul"},
            "compute",
            "without tensor cores",
        ),
        ({"feedback": TRAFFIC.format(69)}, "memory", "at 69% of the memory rate"),
        (
            {"feedback": TRAFFIC.format(20), "counters": "pack: memory 85 % of its peak"},
            "memory",
            "Memory is at 85% of its peak for operands that account for 20%",
        ),
        ({"descriptors": {"memory_access": "scalar"}}, "memory", "one element at a time"),
        (
            {"descriptors": {"language": "cpp", "parallelism": "serial"}},
            "memory",
            "One thread does all the work",
        ),
    ],
)
def test_a_tool_says_what_it_finds_where_it_has_to_do_with_the_limit(facts, limit, words):
    (text,) = [each for each in said(**facts, limit=limit) if words in each]
    assert text[-1] == "."
    assert text in said(**facts)  # of a limit that nobody knows, all tools speak


@pytest.mark.parametrize(
    ("facts", "limit"),
    [
        ({"descriptors": {"tensor_cores": "no"}, "category": "matmul"}, "memory"),
        ({"feedback": TRAFFIC.format(69)}, "compute"),
        ({"descriptors": {"memory_access": "scalar"}}, "compute"),
        ({"descriptors": SPILLED}, "launch"),
        ({"feedback": MANY}, "memory"),
    ],
)
def test_a_tool_is_silent_where_something_else_is_the_limit(facts, limit):
    assert said(**facts, limit=limit) == []


def test_nothing_is_found_where_all_is_well():
    fine = {"occupancy": 0.9, "spill_bytes": 0.0, "tensor_cores": "tf32", "memory_access": "vector"}
    assert said(descriptors=fine, category="matmul") == []
    assert said() == findings(None, Diagnosis()) == []


def test_each_limit_has_tools_and_no_limit_has_them_all():
    for limit in Bottleneck:
        count = sum(limit.value in tool.limits for tool in TOOLS)
        assert 0 < count < len(TOOLS)


def test_a_prompt_has_what_tools_find_only_where_it_is_asked_for():
    history = history_of(Task(name="softmax", source=SOFTMAX, size="gpu"))
    words = f"  memory-bound: 64% of this device's memory rate (1840 GB/s)\n{TRAFFIC.format(80)}"
    found = verdict(0.9, 0.3, 0.6, "memory", words, spill_bytes=64.0, tensor_cores="no")
    plant(history, SOFTMAX_KERNEL, found, note="as written")
    context = history.context(history.elites(), device=H100)
    asked = prompt_of(request_of(Universal(tools=True), context))
    heading = "# What tools find in its verdict, for the limit memory"
    assert heading in asked
    assert asked.index("Registers spill: 64") < asked.index("at 80% of the memory rate")
    assert heading not in prompt_of(request_of(Universal(), context))
    nothing = History()
    nothing.add(PLAIN)
    first = request_of(Universal(tools=True), nothing.context(nothing.elites()))
    assert "What tools find" not in prompt_of(first)
