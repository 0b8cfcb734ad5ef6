"""What kind of kernel a source holds, in a few words with fixed choices (MAP-Elites axes).

Plain text rules over comment-free source: cheap, deterministic, and wrong now and then. The
version is stored with the values, so that bins never drift under a run.
"""

import re

from evolve.core.program import Language, detect_language

DESCRIPTOR_VERSION = 1

MEMORY_ACCESS = ("scalar", "vector", "blocked")
PARALLELISM = ("serial", "threads", "simd", "threads+simd")
COMPUTE_PATTERN = ("elementwise", "reduction", "two_pass", "tiled", "online")
PRECISION_PATH = ("fp64", "fp32", "tf32", "half")

_CPP_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_PY_COMMENT = re.compile(r"#(?!\s*(?:pragma|include|define))[^\n]*")
_THREADS = re.compile(r"omp\s+parallel|std::j?thread|parallel_for|pthread_create|std::async")
_SIMD = re.compile(
    r"omp\s+(?:parallel\s+for\s+|for\s+)?simd|_mm(?:256|512)?_|__m(?:128|256|512)|\bv(?:ld1|fma)q?_"
    r"|vector_size|std::experimental::(?:native_)?simd|\bvec_t\b|GCC\s+ivdep"
)
_ONLINE = re.compile(r"\bonline\b|welford|running_?(?:max|sum|mean)|m_new|new_max|\bm_i\b", re.I)
_TILED = re.compile(
    r"\b(?:tile|block|[ijkmn][bcr])_?(?:size|[mnkij])?\b\s*(?:=|\+=)|\b(?:BM|BN|BK|TILE\w*|"
    r"BLOCK_[MNK])\b|tl\.dot|mma|wmma",
)
_CPP_REDUCTION = re.compile(
    r"reduction\s*\(|\b(?:sum|acc|total|s|mx|maxv?|mean|var)\w*\s*(?:\+=|=\s*(?:std::)?f?max)"
)
_TRITON_REDUCTION = re.compile(r"tl\.(?:sum|max|min|reduce|argmax|argmin|cumsum|associative_scan)")
_CPP_FUNCTION = re.compile(
    r"^[ \t]*(?:template\s*<[^>]*>\s*)?[\w:<>,&\* ]+?[ \*&]\w+\s*\([^;{}]*\)\s*\{", re.M
)
_CPP_KEYWORD = re.compile(r"^\s*(?:if|for|while|switch|else|return)\b")


def describe(source: str) -> dict[str, float | str]:
    """Descriptors of a program by name; choices are the tuples of this module."""
    language = detect_language(source)
    text = _PY_COMMENT.sub(
        "", _CPP_COMMENT.sub("", source) if language is not Language.TRITON else source
    )
    common: dict[str, float | str] = {
        "descriptor_version": float(DESCRIPTOR_VERSION),
        "language": language.value,
        "precision_path": _precision(text),
    }
    if language is Language.TRITON:
        return common | _describe_triton(text)
    return common | _describe_cpp(text)


def _describe_cpp(text: str) -> dict[str, float | str]:
    threads, simd = bool(_THREADS.search(text)), bool(_SIMD.search(text))
    tiled = bool(_TILED.search(text))
    parallelism = "+".join(w for w, on in (("threads", threads), ("simd", simd)) if on) or "serial"
    return {
        "memory_access": "blocked" if tiled else "vector" if simd else "scalar",
        "parallelism": parallelism,
        "compute_pattern": _pattern(text, len(_CPP_REDUCTION.findall(text)), tiled),
        "kernels": float(_cpp_functions(text)),
    }


def _cpp_functions(text: str) -> int:
    found = _CPP_FUNCTION.findall(text)
    return sum(not _CPP_KEYWORD.match(head) for head in found)


def _describe_triton(text: str) -> dict[str, float | str]:
    tiled = bool(re.search(r"tl\.dot|make_block_ptr|make_tensor_descriptor", text))
    kernels = len(re.findall(r"@triton\.jit\b", text))
    return {
        "memory_access": "blocked" if tiled else "vector" if "tl.arange" in text else "scalar",
        "parallelism": "threads+simd" if "tl.program_id" in text else "simd",
        "compute_pattern": _pattern(text, len(_TRITON_REDUCTION.findall(text)), tiled),
        "kernels": float(kernels),
    }


def _pattern(text: str, reductions: int, tiled: bool) -> str:
    if _ONLINE.search(text):
        return "online"
    if tiled:
        return "tiled"
    if reductions >= 2:
        return "two_pass"
    return "reduction" if reductions else "elementwise"


def _precision(text: str) -> str:
    if re.search(r"tl\.(?:float16|bfloat16)|__half|_Float16|bfloat16|\.half\(\)|float16", text):
        return "half"
    if re.search(r"allow_tf32\s*=\s*True|input_precision\s*=\s*[\"']tf32", text):
        return "tf32"
    return "fp64" if re.search(r"\bdouble\b|tl\.float64|float64", text) else "fp32"
