"""Templates for recurrent layers, whose programs wait for each other after each step.

Invariants:
- programs that run at once, in any order, compute what torch's cells do;
- there are never more of them than a device has multiprocessors, nor more weights than it holds;
- a state is read after the wait for it, and not ahead of it.
"""

import json
import re
from pathlib import Path

import pytest
import torch

from evolve.core.compiled import Compiled
from evolve.core.source import tunables
from operators.local.inductor import NotConvertible, convert
from operators.local.templates import Products
from tests.operators.compiling import compiled, launches
from tests.operators.differences import differences_by
from tests.operators.recurrence_cases import GATES, layer

FIXTURE = Path(__file__).parent / "template_fixtures" / "recurrent_lstm.json"


@pytest.fixture(scope="module")
def differences() -> dict[str, float]:
    return differences_by("recurrence_running", TRITON_INTERPRET="1")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh", "relu"])
def test_programs_that_wait_for_each_other_compute_what_torchs_cells_do(differences, kind):
    assert differences[kind] < 2e-6


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize(
    ("batch", "hidden", "directions"), [(10, 256, 2), (1, 33, 1), (200, 64, 2)]
)
def test_programs_are_no_more_than_multiprocessors_and_hold_what_fits(
    kind, batch, hidden, directions
):
    (units,) = (
        tunable.choices
        for tunable in tunables.parse(layer(kind, batch, hidden, directions)["source"])
        if tunable.name.endswith("_BLOCK_H")
    )
    blocks = -(-batch // 64)
    assert max(-(-hidden // block) for block in units) * directions * blocks <= 132
    slots = 1 if kind == "tanh" else 4
    assert max(units) * slots * hidden * 6 <= 200_000  # bytes in shared memory, cut in three


@pytest.mark.parametrize(("hidden", "multiprocessors"), [(2048, 132), (256, 8)])
def test_what_a_device_cannot_hold_at_once_is_no_program(hidden, multiprocessors):
    with pytest.raises(NotConvertible):
        layer("lstm", 10, hidden, multiprocessors=multiprocessors)["source"]


def test_a_state_is_read_after_the_wait_for_it():
    fixture = json.loads(FIXTURE.read_text())
    source = convert(fixture["task"], "t", Compiled.from_json(fixture["compiled"]), Products())
    shapes = (3, 5, 6), (4, 3, 4), (4, 3, 4)
    found = launches(source, [torch.empty(shape, device="meta") for shape in shapes])
    kernels = [launch for launch in found if launch[0].__name__ == "lstm_kernel"]
    assert len(kernels) == 2
    ttgir = compiled(kernels[0])["ttgir"]
    _, loop = re.split(r"= scf\.for ", ttgir)
    before, after = loop.split("scf.while")
    uncached = re.compile(r"cache_?modifier = cg", re.IGNORECASE)  # Triton 3.9 writes it apart
    assert uncached.search(after)
    assert not uncached.search(before)
    assert "async_copy" not in ttgir
    assert after.index("tt.store") < after.index("barrier") < after.index("release")
