"""One verdict from Python: `evolve.evaluate` and `evolve.evaluate_async`.

Invariants:
1. A text or a file is judged; its fault is a status, never an exception.
2. A database that knows the verdict gives it.
3. What cannot be is refused with field, value and remedy.
"""

import asyncio
from pathlib import Path

import pytest

import evolve
from evolve.core.evaluation import Fidelity, Status
from tests.library.conftest import SEARCH, program
from tests.library.test_optimize import Scaled, make_inputs, scaled


def test_a_text_and_a_file_have_the_same_verdict(judge, capfd):
    text = program(1.5)
    Path("mine.py").write_text(text)
    verdicts = [
        evolve.evaluate(given, "./relu.py", device="cpu")
        for given in (text, "mine.py", Path("mine.py"))
    ]
    assert [each.ratios["eager"].value for each in verdicts] == [1.5] * 3
    assert capfd.readouterr().out == ""


def test_a_wrong_program_is_a_status(judge):
    for task in (Scaled, scaled):
        verdict = evolve.evaluate(program(None), task, inputs=make_inputs, device="cpu")
        assert (verdict.status, verdict.feedback) == (Status.WRONG_VALUE, "not equal")


def test_several_programs_are_judged_at_once(judge):
    async def main():
        texts = [program(speedup) for speedup in (1.5, 2.5)]
        return await asyncio.gather(
            *(
                evolve.evaluate_async(each, "./relu.py", device="cpu", fidelity="screen")
                for each in texts
            )
        )

    verdicts = asyncio.run(main())
    assert [each.ratios["eager"].value for each in verdicts] == [1.5, 2.5]
    assert verdicts[0].fidelity is Fidelity.SCREEN


def test_a_weak_task_is_told_of(judge):
    judge("weak")
    events = []
    evolve.evaluate(program(1.5), "./relu.py", device="cpu", on_event=events.append)
    assert events[0] == evolve.Phase(text="starting the judge")
    assert isinstance(events[-1], evolve.Notice)
    assert "a program of zeros passes" in events[-1].text


CUDA = """\
from torch.utils.cpp_extension import load_inline

BUILT = load_inline("kernel", cuda_sources=["__global__ void kernel() {}"])


class ModelNew:
    pass
"""

BAD = {
    "no text": ({"source": 3}, ["source=3", "ModelNew"]),
    "no program": ({"source": "x = 1\n"}, ["source", "ModelNew"]),
    "a file that is not there": ({"source": "gone.py"}, ["source gone.py", "No such file"]),
    "an unknown fidelity": ({"fidelity": "full"}, ["fidelity='full'", "search"]),
    "an unknown device": ({"device": "tpu"}, ["device='tpu'", "cuda"]),
    "an unknown precision": ({"precision": "fp8"}, ["'fp8'", "bf16"]),
    "an unknown baseline": ({"baseline": "compiled"}, ["baseline=compiled", "compile"]),
    **{
        f"{name} of a wrong type: {value!r}": ({name: value}, [f"{name}={value!r}: give "])
        for name in ("store", "on_event", "baseline", "size")
        for value in (5, 0, [1])
    },
    "an unknown task": ({"task": "relo"}, ["unknown task 'relo'"]),
    "a program for another device": (
        {"source": CUDA},
        ["source: CUDA C++ runs on device=cuda", "device=cuda"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("given", BAD)
def test_what_cannot_be_is_refused_with_field_value_and_remedy(judge, given):
    arguments, said = BAD[given]
    with pytest.raises(evolve.UsageError) as error:
        evolve.evaluate(
            **{"source": program(1.5), "task": "./relu.py", "device": "cpu", **arguments}
        )
    assert "\n" not in str(error.value)
    for words in said:
        assert words in str(error.value)


def test_a_database_that_knows_the_verdict_gives_it(judge):
    evolve.optimize("./relu.py", **SEARCH)
    before = Path("judged").read_text()
    known = evolve.evaluate(Path("p2.py"), "./relu.py", device="cpu", store="runs/evolve.db")
    assert known.ratios["eager"].value == 2.5
    assert Path("judged").read_text() == before
    evolve.evaluate(Path("p2.py"), "./relu.py", device="cpu")
    assert Path("judged").read_text() != before
