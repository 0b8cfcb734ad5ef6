"""Programs of the corpus, of prompts and of documents, and how a test loads one."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

from evolve.languages.base import Language

HONEST = Path(__file__).parents[1] / "redteam" / "honest"
CHEATS = HONEST.with_name("cheats")


def honest(name: str) -> str:
    return (HONEST / f"{name}.py").read_text()


def honest_names(language: str) -> list[str]:
    """Each honest program of the corpus in a language for GPUs: what `gpu_LANGUAGE_` precedes."""
    prefix = f"gpu_{language}_"
    return sorted(path.stem.removeprefix(prefix) for path in HONEST.glob(f"{prefix}*.py"))


def example_of(language: Language) -> str:
    """The program in the language's part of a prompt."""
    found = re.search(r"```python\n(.*?)```", language.contract, re.S)
    assert found is not None
    return found[1]


def described(language: Language, *words: str) -> dict[str, tuple[object, ...]]:
    """These descriptors of each honest program of the corpus in a language for GPUs."""
    names = honest_names(language.name)
    found = {name: language.describe(honest(f"gpu_{language.name}_{name}")) for name in names}
    return {name: tuple(each[word] for word in words) for name, each in found.items()}


def python_blocks(document_id: str) -> list[str]:
    """Programs of a knowledge document."""
    from operators.knowledge import load  # needs YAML, which a GPU host of the tests may lack

    (document,) = (each for each in load() if each.id == document_id)
    return [text for info, text in document.blocks() if info.startswith("python")]


def loaded(source: str) -> ModuleType:
    """A program in a file that stays: compilers read its functions there, some when called."""
    path = Path.cwd() / "program.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("program", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCALE_IN_HIP = '''
import torch
from torch import nn
from tvm_ffi.cpp import load_inline

SOURCE = """
#include <hip/hip_runtime.h>
#include <tvm/ffi/extra/c_env_api.h>

__global__ void scale_kernel(const float* in, float* out, int64_t n) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) out[i] = 2 * in[i];
}

void scale(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const int64_t n = x.numel();
  hipStream_t stream =
      static_cast<hipStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  scale_kernel<<<(n + 255) / 256, 256, 0, stream>>>(static_cast<const float*>(x.data_ptr()),
                                                    static_cast<float*>(y.data_ptr()), n);
}
"""
kernels = load_inline("scale", cuda_sources=SOURCE, functions="scale", backend="hip")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.scale(x, y)
        return y
'''
