"""Products whose work is cut evenly among programs (stream-K).

Invariants: whatever the shapes, the tiles and the number of programs, each tile is stored once and
is the whole sum; what follows a product is not put into a tail that only some tiles would go
through; a product too short to be cut is done as ever.
"""

import pytest

from operators.local.templates import How
from tests.operators.differences import collected
from tests.operators.even_cases import EVEN_CASES
from tests.operators.output_code import matrix, program, relu, room
from tests.operators.templates_cases import product, tolerance
from tests.operators.templates_running import answers, interpreted


@pytest.fixture(scope="module")
def differences(request) -> dict[str, float]:
    names = collected(request, "name")
    cases = [each for each in EVEN_CASES if each["name"] in names]
    return answers(interpreted(cases), "cpu", TRITON_INTERPRET="1")


@pytest.mark.slow  # tiles that are whole; test_templates has those that are not
@pytest.mark.sample(1)
@pytest.mark.parametrize("name", [each["name"] for each in EVEN_CASES])
def test_every_tile_is_the_whole_sum(differences, name):
    assert differences[name] < tolerance(name, 2e-6)


def test_what_follows_an_even_product_keeps_its_own_kernel():
    lines = [
        room("buf0", matrix(37, 29)),
        "extern_kernels.mm(a, b, out=buf0)",
        "buf1 = buf0",
        "del buf0",
        "triton_poi_fused_relu_0.run(buf1, 1073, stream=s)",
    ]
    tensors = {"a": matrix(37, 400), "b": matrix(400, 29)}
    source = program(tensors, lines, "buf1", relu(1073), how=How.EVEN)
    assert "matmul_stream_kernel[" in source
    assert "relu_kernel[" in source


def test_a_short_product_is_not_cut():
    short = product("short", matrix(64, 200), matrix(200, 64), how=How.EVEN)
    assert "matmul_kernel[" in short["source"]
