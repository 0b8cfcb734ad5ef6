"""Compiled references in other languages, on a GPU; of packages those that are installed.

Invariants: a program computes what its reference does, whatever its tunables are set to; a product
of float32, by parts in bf16, is as exact as torch's; the judge finds a program correct, and its
kernels its own.

What compiles and computes the same without a GPU is in `tests/operators/test_ports.py` and
`test_port_gates.py`. TileLang's compiler takes some ten seconds a kernel, so that of languages of
packages there are few cases.
"""

import random

import pytest
import torch

for name in ("yaml", "jinja2"):
    pytest.importorskip(name, reason="the operators need it")

from evolve.core.compiled import Compiled  # noqa: E402
from evolve.core.evaluation import Status  # noqa: E402
from evolve.core.source import tunables  # noqa: E402
from evolve.core.task import Task  # noqa: E402
from evolve.languages.registry import find_language  # noqa: E402
from operators.local.inductor import PRECISIONS, convert  # noqa: E402
from operators.local.ports import PORTS  # noqa: E402
from operators.local.templates import Products  # noqa: E402
from tests.gpu.test_compiler_seeds import written  # noqa: E402
from tests.operators.port_cases import (  # noqa: E402
    packed_products,
    products,
    stretched_products,
    tiled_products,
    with_room,
)
from tests.operators.templates_cases import tolerance  # noqa: E402
from tests.operators.templates_running import answers  # noqa: E402

IN_BOTH = (
    *("softmax", "softmax_long", "softmax_few", "softmax_first", "layernorm", "rmsnorm"),
    *("batchnorm", "groupnorm", "gelu", "norm", "linear"),
)
ONLY_GLUON = ("cumsum",)
OF_PACKAGES = tuple(
    name
    for name in PORTS
    if any(package.module != "triton" for package in find_language(name).packages)
)
IN_LANGUAGES = [(name, one) for one in PORTS if one not in OF_PACKAGES for name in IN_BOTH]
IN_LANGUAGES += [(name, "gluon") for name in ONLY_GLUON]
FEW = [("softmax", "default"), ("layernorm", "looped"), ("linear", "default")]
FEW_PRODUCTS = ("by columns", "batch", "bfloat16: bias")


@pytest.fixture(autouse=True)
def only_with_its_package(request):
    about = getattr(request.node, "callspec", None)
    language = about.params.get("language") if about else None
    if language in OF_PACKAGES and (why := find_language(language).missing()):
        pytest.skip(why)


@pytest.fixture(autouse=True)
def only_on_hopper(request):
    is_gluon = "gluon" in request.node.name
    if is_gluon and torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("its products are for Hopper")


def instances(source: str, seed: str, count: int = 3) -> list[str]:
    """The program as it is, and with tunables drawn at random."""
    rng, space = random.Random(seed), tunables.parse(source)
    return [source, *(tunables.render(source, space.sample(rng)) for _ in range(count))]


@pytest.mark.parametrize("variant", ["default", "looped"])
@pytest.mark.parametrize(("name", "language"), IN_LANGUAGES)
def test_a_seed_in_a_language_computes_what_its_reference_does(name, language, variant, tmp_path):
    found = written(name, variant, PORTS[language])
    for number, source in enumerate(instances(found.source, name)):
        found.require_equal(source, tmp_path / f"program_{number}.py")


@pytest.mark.parametrize("language", OF_PACKAGES)
@pytest.mark.parametrize(("name", "variant"), FEW)
def test_a_seed_in_a_packages_language_computes_what_its_reference_does(
    name, variant, language, tmp_path
):
    found = written(name, variant, PORTS[language])
    for number, source in enumerate(instances(found.source, name, count=1)):
        found.require_equal(source, tmp_path / f"program_{number}.py")


@pytest.mark.parametrize("language", OF_PACKAGES)
def test_products_in_a_packages_language_compute_what_torch_does(language):
    cases = [each for each in products(language, 9) if each["name"] in FEW_PRODUCTS]
    assert len(cases) == len(FEW_PRODUCTS)
    found = answers([{**each, "source": each["source"]} for each in cases], "cuda")
    assert {name for name, off in found.items() if not off < tolerance(name, 2e-5)} == set()


@pytest.mark.parametrize("language", [name for name in PORTS if name not in OF_PACKAGES])
@pytest.mark.parametrize("scale", [1, 9])
def test_products_in_a_language_compute_what_torch_does(language, scale):
    cases = []
    for case in products(language, scale):
        for number, source in enumerate(instances(case["source"], case["name"])):
            name = f"{case['name']}, {number}"
            is_coarse = "PARTS = 2" in source
            cases.append((is_coarse, case | {"name": name, "source": source}))
    found = answers([case for _, case in cases], "cuda")
    wrong = {
        case["name"]: found[case["name"]]
        for is_coarse, case in cases
        if not found[case["name"]] < tolerance(case["name"], 2e-5 if is_coarse else 4e-6)
    }
    assert wrong == {}


@pytest.mark.parametrize("scale", [1, 9])
def test_products_in_gluon_with_tiles_by_tma_compute_what_torch_does(scale):
    cases = [
        case | {"name": f"{case['name']}, {number}", "source": source}
        for case in tiled_products(scale)
        for number, source in enumerate(instances(case["source"], case["name"]))
    ]
    found = answers(cases, "cuda")
    assert {name for name, off in found.items() if not off < tolerance(name, 0.0)} == set()


def test_products_in_gluon_of_parts_by_tma_compute_what_torch_does():
    cases = [
        case | {"name": f"{case['name']}, {number}", "source": source}
        for case in packed_products()
        for number, source in enumerate([case["source"], *with_room(case, 5)])
    ]
    found = answers(cases, "cuda")
    assert {name: off for name, off in found.items() if not off < tolerance(name, 4e-6)} == {}


def test_two_products_in_gluon_of_stretched_parts_compute_what_torch_does():
    cases = [
        case | {"name": f"{case['name']}, {number}", "source": source}
        for case in stretched_products()
        for number, source in enumerate([case["source"], *with_room(case, 5)])
    ]
    found = answers(cases, "cuda")
    assert {name: off for name, off in found.items() if not off < tolerance(name, 2e-5)} == {}


JUDGED = {
    "softmax": ("torch.randn(4096, 1000)", "torch.softmax(x, dim=1)"),
    "product": ("torch.randn(512, 768), torch.randn(768, 640)", "x @ y"),
}


@pytest.mark.parametrize("language", PORTS)
@pytest.mark.parametrize("name", JUDGED)
def test_the_judge_finds_it_correct_and_its_kernels_its_own(worker, name, language):
    inputs, result = JUDGED[name]
    source = f"""
import torch

class Model(torch.nn.Module):
    def forward(self, {"x, y" if name == "product" else "x"}):
        return {result}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
    task, port = Task(name=name, source=source), PORTS[language]
    (answer,) = worker.ask("compiled", task=task.to_json(), variants=["default"]).values()
    compiled = Compiled.from_json(answer["compiled"])
    program = convert(
        source, name, compiled, Products(PRECISIONS, how=port.products), PRECISIONS, port.rewrite
    )
    verdict = worker.evaluate(program, task, fidelity="reward")
    print(verdict.labels, verdict.descriptors, verdict.feedback, verdict.durations_s, sep="\n")
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.custom
    assert verdict.descriptors["language"] == language
