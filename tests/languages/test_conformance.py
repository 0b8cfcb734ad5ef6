"""Every language passes `evolve.testing.languages`; a package adds one by an entry point."""

import re
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from evolve.core import registered
from evolve.core.devices import CPU, CUDA, HIP
from evolve.core.errors import UsageError
from evolve.languages import registry
from evolve.languages.base import Language
from evolve.languages.cpp import CPP as CPP_LANGUAGE
from evolve.languages.cuda import CUDA as CUDA_LANGUAGE
from evolve.languages.cute import CUTE as CUTE_LANGUAGE
from evolve.languages.cutile import CUTILE as CUTILE_LANGUAGE
from evolve.languages.descriptors import describe_cpp
from evolve.languages.gluon import GLUON as GLUON_LANGUAGE
from evolve.languages.helion import HELION as HELION_LANGUAGE
from evolve.languages.hip import HIP as HIP_LANGUAGE
from evolve.languages.nvrtc import NVRTC as NVRTC_LANGUAGE
from evolve.languages.registry import detect_language, find_language, languages, timed_on
from evolve.languages.syntax import calls
from evolve.languages.tilelang import TILELANG as TILELANG_LANGUAGE
from evolve.languages.triton import TRITON as TRITON_LANGUAGE
from evolve.testing.languages import LanguageConformance
from tests.languages.programs import SCALE_IN_HIP, honest


class TestTriton(LanguageConformance):
    language = TRITON_LANGUAGE
    kernel = honest("gpu_triton_launch_bound")


class TestGluon(LanguageConformance):
    language = GLUON_LANGUAGE
    kernel = honest("gpu_gluon_tensor_cores")


class TestHelion(LanguageConformance):
    language = HELION_LANGUAGE
    kernel = honest("gpu_helion_matmul")


class TestCute(LanguageConformance):
    language = CUTE_LANGUAGE
    kernel = honest("gpu_cute_matmul")


class TestCutile(LanguageConformance):
    language = CUTILE_LANGUAGE
    kernel = honest("gpu_cutile_matmul")


class TestTilelang(LanguageConformance):
    language = TILELANG_LANGUAGE
    kernel = honest("gpu_tilelang_matmul")


class TestNvrtc(LanguageConformance):
    language = NVRTC_LANGUAGE
    kernel = honest("gpu_nvrtc_rowsum")


class TestCuda(LanguageConformance):
    language = CUDA_LANGUAGE
    kernel = honest("gpu_cuda_inline")


class TestHip(LanguageConformance):
    language = HIP_LANGUAGE
    kernel = SCALE_IN_HIP


class TestCpp(LanguageConformance):
    language = CPP_LANGUAGE
    kernel = honest("softmax_online")


ABACUS = Language(
    name="abacus",
    title="beads",
    devices=("cpu",),
    finds=lambda tree: "abacus.wire" in calls(tree),
    describe=lambda source: {**describe_cpp(source), "kernels": float(source.count("wire"))},
    contract="- Kernels in beads: as text, given to `abacus.wire`.",
)


def test_every_language_has_its_conformance_test():
    tested = {each.language for each in LanguageConformance.__subclasses__()}
    assert {*languages().values()} <= tested


def test_the_first_language_of_a_device_is_what_prompts_ask_for():
    assert [timed_on(kind)[0].name for kind in (CPU, CUDA, HIP)] == ["cpp", "triton", "triton"]


def test_an_unknown_language_gets_the_known_ones_named():
    with pytest.raises(UsageError, match=r"language 'rust': choose one of triton, .*cpp, torch"):
        find_language("rust")


@pytest.fixture
def with_abacus(monkeypatch: pytest.MonkeyPatch):
    point = EntryPoint("counts_by_wire", f"{__name__}:ABACUS", registry.GROUP)
    monkeypatch.setattr(registered, "entry_points", lambda group: [point])
    languages.cache_clear()
    detect_language.cache_clear()
    yield
    languages.cache_clear()
    detect_language.cache_clear()


@pytest.mark.usefixtures("with_abacus")
class TestAbacus(LanguageConformance):
    """A language of another package."""

    language = ABACUS
    kernel = "import abacus\nkernel = abacus.wire('x')\nclass ModelNew: ...\n"


def test_no_file_of_the_program_but_its_own_knows_a_language_by_name():
    """The name as a text says that a branch is elsewhere."""
    root = Path(registry.__file__).parents[2]
    compared = re.compile(rf'language [!=]= "({"|".join(languages())})"')
    found = {
        str(path.relative_to(root))
        for folder in ("evolve", "operators", "archives")
        for path in (root / folder).rglob("*.py")
        if compared.search(path.read_text())
    }
    assert not found
