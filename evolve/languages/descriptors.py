"""The kind of a source's kernel, in a few words with fixed choices (MAP-Elites axes).

`memory_access`, `parallelism`, `compute_pattern` and `precision_path` take the choices of this
module. Rules over names and directives, comments and literals left out: cheap, deterministic, and
wrong now and then. The version is stored with the values, so that bins never drift under a run.
"""

import ast
import re

from evolve.core.source import cpptext
from evolve.languages.syntax import parsed

DESCRIPTOR_VERSION = 2

MEMORY_ACCESS = ("scalar", "vector", "blocked")
PARALLELISM = ("serial", "threads", "simd", "threads+simd")
COMPUTE_PATTERN = ("elementwise", "reduction", "two_pass", "tiled", "online")
PRECISION_PATH = ("fp64", "fp32", "tf32", "half")

_THREADS = re.compile(r"\bomp\s+parallel|\bstd::j?thread\b|\bstd::async\b|\bpthread_create\b")
_SIMD = re.compile(
    r"\bomp\s+(?:parallel\s+)?(?:for\s+)?simd\b|\b_mm\d*_|\b__m(?:128|256|512)|\bv(?:ld1|fma)q?_"
    r"|\bvector_size\b|\bsimd<|\bivdep\b"
)
_BLOCKED = re.compile(r"\b\w*(?:block|tile|panel|chunk|strip)\w*\b", re.I)
_TILED = re.compile(r"\b\w*(?:tile|panel)\w*\b|\bBLOCK_[MNK]\b|\bB[MNK]\b", re.I)
# A running value scaled down when a larger maximum turns up, or a running mean moved by a share.
# Repetitions are bounded: hostile text would make them take the square of its length.
_ONLINE = re.compile(
    r"\*=?\s{0,9}(?:std::|tl\.)?\w{0,40}exp\w{0,40}\(\s{0,9}\w{1,40}\s{0,9}-\s{0,9}\w{1,40}\s{0,9}\)"
    r"|\bmean\w*\s*\+=|\bwelford\w*|\bm_new\b",
    re.I,
)
_LOOP_HEADER = re.compile(r"\bfor\s*\([^{;)]{0,200};[^;]{0,200};[^){]{0,200}\)")
MAX_TEXT = 1 << 18  # characters that are looked at
_SUM = re.compile(r"\w\s{0,9}(?:\[[^\][]{0,200}\]\s{0,9}){0,4}\+=")
_EXTREME = re.compile(r"\bf?(?:max|min)f?\s*\(|reduction\s*\(\s*(?:max|min)\b")
_CENTRED = re.compile(r"\b\w*(?:centred|centered|deviation|variance|squares)\w*\b", re.I)
_WIDE = re.compile(r"\b(?:float|double|u?int|u?short|half|(?:__)?(?:nv_)?bfloat16_?)[248]\b")
_WARP = re.compile(r"\b__(?:shfl|reduce)_\w+|\bwmma::|\bcooperative_groups\b|\bcg::")
_HALF = re.compile(r"\btl\.b?float16\b|\b__half\b|\b_Float16\b|\bbfloat16\b|\b__bf16\b|\.half\(\)")
_TF32 = re.compile(r"allow_tf32\s*=\s*True|input_precision\s*=\s*[\"']tf32[\"']")
_DOUBLE = re.compile(r"\bdouble\s+\w+\s*(?:=|\[|;)|\btl\.float64\b")


def describe_cpp(source: str) -> dict[str, float | str]:
    """Of the C++ in a module's strings; `kernels` counts its functions."""
    text = cpptext.mask(_cpp_of(source)[:MAX_TEXT])
    threads, simd = bool(_THREADS.search(text)), bool(_SIMD.search(text))
    parallelism = "+".join(word for word, on in (("threads", threads), ("simd", simd)) if on)
    blocked = bool(_BLOCKED.search(text))
    steps = _LOOP_HEADER.sub("", text)
    sums, extremes = bool(_SUM.search(steps)), bool(_EXTREME.search(steps))
    reductions = sums + extremes + (sums and bool(_CENTRED.search(steps)))
    return {
        "memory_access": "blocked" if blocked else "vector" if simd else "scalar",
        "parallelism": parallelism or "serial",
        "compute_pattern": pattern(text, reductions, bool(_TILED.search(text))),
        "precision_path": precision(text),
        "kernels": float(len(cpptext.functions(text))),
    }


def describe_cuda(source: str) -> dict[str, float | str]:
    """Of the CUDA C++ in a module's strings; `kernels` counts those.

    Blocked is what goes through shared memory, a vector a load of several elements. Threads that
    exchange values within a warp count as `simd` too.
    """
    text = cpptext.mask(_cpp_of(source)[:MAX_TEXT])
    access = "blocked" if "__shared__" in text else "vector" if _WIDE.search(text) else "scalar"
    parallelism = "threads+simd" if _WARP.search(text) else "threads"
    return {
        **describe_cpp(source),
        "memory_access": access,
        "parallelism": parallelism if "threadIdx" in text else "serial",
        "kernels": float(len(re.findall(r"\b__global__\b", text))),
    }


def _cpp_of(source: str) -> str:
    """The C++ in a module's string constants."""
    strings = (node.value for node in ast.walk(parsed(source)) if isinstance(node, ast.Constant))
    return "\n".join(text for text in strings if isinstance(text, str) and cpptext.is_code(text))


def without_comments(source: str) -> str:
    """A module's text without its comments, as far as it is looked at."""
    return re.sub(r"#[^\n]*", "", source[:MAX_TEXT])


def pattern(text: str, reductions: int, tiled: bool) -> str:
    """`compute_pattern` of a text that reduces in so many ways."""
    if _ONLINE.search(text):
        return "online"
    if tiled:
        return "tiled"
    if reductions > 1:
        return "two_pass"
    return "reduction" if reductions else "elementwise"


def precision(text: str) -> str:
    """`precision_path` of a text."""
    for path, mark in (("half", _HALF), ("tf32", _TF32), ("fp64", _DOUBLE)):
        if mark.search(text):
            return path
    return "fp32"
