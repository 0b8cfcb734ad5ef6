"""An allocator that keeps a runner's tensors in memory that its referee can read.

torch takes blocks from it in megabytes and keeps its own caching allocator in front, so that
allocation costs what it always costs. It is C because torch calls it without the interpreter lock.
"""

import os
import shutil
import subprocess
from pathlib import Path

from evolve.core.errors import EvaluatorUnavailable

SOURCE = r"""
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define STEP ((size_t)2 << 20)
#define MOST (1 << 17)

static uintptr_t base;
static size_t steps;
static unsigned char used[MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void evolve_pool(uint64_t address, uint64_t size) {
  base = address;
  steps = size / STEP < MOST ? size / STEP : MOST;
}

void* evolve_allocate(size_t size, int device, void* stream) {
  size_t wanted = (size + STEP - 1) / STEP, free_steps = 0;
  void* found = NULL;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < steps && !found; ++i) {
    free_steps = used[i] ? 0 : free_steps + 1;
    if (free_steps == wanted) {
      memset(used + i + 1 - wanted, 1, wanted);
      found = (void*)(base + (i + 1 - wanted) * STEP);
    }
  }
  pthread_mutex_unlock(&lock);
  return found;
}

void evolve_free(void* block, size_t size, int device, void* stream) {
  pthread_mutex_lock(&lock);
  memset(used + ((uintptr_t)block - base) / STEP, 0, (size + STEP - 1) / STEP);
  pthread_mutex_unlock(&lock);
}
"""


def build_allocator(folder: Path) -> str:
    """The path of the compiled allocator, in `folder`.

    Raises:
        EvaluatorUnavailable: there is no C compiler, or it fails.
    """
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise EvaluatorUnavailable(
            "device=cuda needs a C compiler, as Triton does: install one (apt-get install gcc), "
            "or set CC to its path"
        )
    library = folder / "pool.so"
    built = subprocess.run(
        [compiler, "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library), "-lpthread"],
        input=SOURCE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if built.returncode:
        raise EvaluatorUnavailable(f"{compiler} cannot build a library: {built.stderr[:400]}")
    library.chmod(0o755)
    return str(library)
