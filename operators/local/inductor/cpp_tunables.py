"""Tunables in C++ of Inductor beside the chunks of parallel loops.

Each is a constant of the program, by default one with the behaviour that Inductor wrote. Lines are
rewritten if they are known word for word; all others stay.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

CHOICES: Mapping[str, tuple[int, ...]] = {
    "CHUNK": (1, 4, 16, 64),
    "STREAM": (0, 1),
    "PREFETCH": (0, 4096),
    "LANES": (1, 4),
}

CHUNK = (
    "constexpr int CHUNK = 16;  // iterations of a parallel loop that a thread takes at a time\n"
)

STREAM = """
constexpr int STREAM = 0;  // 1: results go past the caches, which need not fetch what they replace

template <typename Vector, typename T>
inline void stream_store(const Vector& value, T* at) {
  if constexpr (STREAM && std::is_same_v<Vector, at::vec::Vectorized<float>>) {
    if (reinterpret_cast<uintptr_t>(at) % sizeof(Vector) == 0) {
#if defined(CPU_CAPABILITY_AVX512)
      return _mm512_stream_ps(at, value);
#elif defined(CPU_CAPABILITY_AVX2)
      return _mm256_stream_ps(at, value);
#endif
    }
  }
  value.store(at);
}

inline void finish_stores() {  // for other threads to see them
#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
  if constexpr (STREAM) _mm_sfence();
#endif
}
"""

PREFETCH = """
constexpr int PREFETCH = 0;  // bytes that loops ask memory for ahead of what they read

template <typename T>
inline void read_ahead(const T* at) {
  if constexpr (PREFETCH > 0) __builtin_prefetch(reinterpret_cast<const char*>(at) + PREFETCH);
}
"""

LANES = """
constexpr int LANES = 1;  // accumulators of a reduction, which need not wait for one another
"""

_STORE = re.compile(r"(\w+)\.store\((\w+) \+ static_cast<int64_t>\((.*)\)\);")
_LOAD = re.compile(
    r"auto tmp\d+ = at::vec::\w+<[^()]*>::loadu\((\w+ \+ static_cast<int64_t>\((.*)\)), "
    r"static_cast<int64_t>\(\d+\)\);"
)
_LOOP = re.compile(r"for\(int64_t (x\d+)=0; \1<(\d+); \1\+=(\d+)\)")
_GUARD = (
    r"if\(C10_(?:UN)?LIKELY\({0} >= static_cast<int64_t>\(\d+L?\)"
    r" && {0} < static_cast<int64_t>\((\d+)L?\)\)\)"
)
_VECTOR = "at::vec::Vectorized<float>"
_WAYS = (  # to add a vector to an accumulator, to join two, and its initial value
    (
        r"{0} \+ tmp\d+|sum_masked_reduce\({0}, tmp\d+, .*\)",
        "{0} + {1}",
        f"{_VECTOR}(0)",
    ),
    (
        r"at::vec::maximum\({0}, tmp\d+\)|max_masked_reduce\({0}, tmp\d+, .*\)",
        "at::vec::maximum({0}, {1})",
        f"{_VECTOR}(-std::numeric_limits<float>::infinity())",
    ),
    (
        r"at::vec::minimum\({0}, tmp\d+\)|min_masked_reduce\({0}, tmp\d+, .*\)",
        "at::vec::minimum({0}, {1})",
        f"{_VECTOR}(std::numeric_limits<float>::infinity())",
    ),
    (
        r"welford_combine\({0}, tmp\d+, .*\)",
        "welford_combine({0}, {1})",
        f"Welford<{_VECTOR}>()",
    ),
)
_DECLARED = re.compile(r"([\w:]+(?:<.+>)?) (\w+) = (.*);")  # the last of a name is in scope


def declaration(source: str) -> str:
    """The statement that opens those constants that a C++ text defines."""
    defined = (name for name in CHOICES if f"constexpr int {name} = " in source)
    choices = ", ".join(f'"{name}": {CHOICES[name]}' for name in defined)
    return f"TUNABLE = {{{choices}}}"


def constants(functions: str) -> str:
    """The constants that functions need, and their companions."""
    return (
        CHUNK
        + (STREAM if "stream_store(" in functions else "")
        + (PREFETCH if "read_ahead(" in functions else "")
        + (LANES if "[LANES]" in functions else "")
    )


def opened(lines: Sequence[str]) -> list[str]:
    """The lines of a function's body, one statement each, with tunable expressions."""
    return list(_with_lanes(_with_prefetches(_with_streams(lines))))


# --- stores and loads -----------------------------------------------------------------------------


def _with_streams(lines: Sequence[str]) -> list[str]:
    """Whole vectors that go if the function reads nothing are stored by `stream_store`."""
    found = [_stream(line, lines) for line in lines]
    if found == list(lines):
        return found
    ends = _parallel_ends(found)
    fenced = [text for at, line in enumerate(found) for text in [*_fence(at in ends), line]]
    return [*fenced, *_fence(True)]


def _fence(is_due: bool) -> list[str]:
    return ["finish_stores();"] if is_due else []


def _stream(line: str, lines: Sequence[str]) -> str:
    match = _STORE.fullmatch(line.strip())
    if match is None or not _is_balanced(match[3]) or not _is_only_stored(match[2], lines):
        return line
    return f"stream_store({match[1]}, {match[2]} + static_cast<int64_t>({match[3]}));"


def _is_only_stored(pointer: str, lines: Sequence[str]) -> bool:
    """Whether each mention of a pointer is that of a vector's store to it."""
    mentions = re.findall(rf"(\w+\.store\()?\b{pointer}\b", "\n".join(lines))
    return all(mentions)


def _parallel_ends(lines: Sequence[str]) -> set[int]:
    """The lines that close parallel regions."""
    starts = (
        at for at, line in enumerate(lines) if line.strip().startswith("#pragma omp parallel")
    )
    return {end for at in starts if (end := closing(lines, at + 1)) is not None}


def _with_prefetches(lines: Sequence[str]) -> list[str]:
    """Whole vectors that are loaded have those asked for that come later."""
    found = []
    for line in lines:
        found.append(line)
        match = _LOAD.fullmatch(line.strip())
        if match and _is_balanced(match[2]):
            found.append(f"read_ahead({match[1]});")
    return found


def _is_balanced(text: str) -> bool:
    """Whether no parenthesis closes that a text does not open."""
    depth = 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return False
    return depth == 0


def closing(lines: Sequence[str], start: int) -> int | None:
    """The line that closes the scope that a line opens; None if it opens none."""
    if start >= len(lines) or lines[start].strip() != "{":
        return None
    depth = 0
    for at in range(start, len(lines)):
        text = lines[at].strip()
        depth += text.endswith("{") - text.startswith("}")
        if depth == 0:
            return at
    return None


# --- reductions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Reduction:
    """An accumulator of a loop; `joined` makes one value of two, by their names."""

    name: str
    kind: str
    first: str  # of nothing
    joined: str


def _with_lanes(lines: Sequence[str]) -> Iterator[str]:
    """Loops that reduce take their vectors by turns into accumulators of their own."""
    at = 0
    while at < len(lines):
        match, end = _LOOP.fullmatch(lines[at].strip()), closing(lines, at + 1)
        body = lines[at + 2 : end]
        reductions = []
        if match and end is not None and _is_guarded(body, match[1], int(match[2])):
            reductions = [] if _is_shared_out(lines, at) else _reductions(body, lines[:at])
        if match and end is not None and reductions:
            yield from _by_turns(body, reductions, *match.groups())
            at = end + 1
        else:
            yield lines[at]
            at += 1


def _is_shared_out(lines: Sequence[str], at: int) -> bool:
    """Whether threads share a loop's iterations: nothing may stand between it and its pragma."""
    loops = 0
    for line in reversed(lines[:at]):
        if pragma := re.match(r"#pragma omp for\b(?:.*collapse\((\d+)\))?", line.strip()):
            return loops < int(pragma[1] or 1)
        if line.strip().startswith("for("):
            loops += 1
        elif line.strip() != "{":
            return False
    return False


def _is_guarded(body: Sequence[str], index: str, count: int) -> bool:
    """Whether a loop's body does nothing for an index beyond the last."""
    guard, at = re.compile(_GUARD.format(index)), 0
    while at < len(body):
        match, end = guard.fullmatch(body[at].strip()), closing(body, at + 1)
        if match is None or end is None or int(match[1]) > count:
            return False
        at = end + 1
    return not any(line.strip().startswith(("for(", "#pragma")) for line in body)


def _reductions(body: Sequence[str], before: Sequence[str]) -> list[_Reduction]:
    """The reductions of a loop's body; an accumulator with other uses stays the only one."""
    declared = {
        match[2]: match.groups() for line in before if (match := _DECLARED.fullmatch(line.strip()))
    }
    found = []
    for name, (kind, _, first) in declared.items():
        if kind not in (_VECTOR, f"Welford<{_VECTOR}>"):
            continue  # of integers, say, though another loop has floating ones of that name
        uses = [line.strip() for line in body if re.search(rf"\b{name}\b", line)]
        joined = _joined(name, first, uses)
        if joined is not None:
            found.append(_Reduction(name, kind, first, joined))
    return found


def _joined(name: str, first: str, uses: Sequence[str]) -> str | None:
    """How two of an accumulator's values are joined, by how the loop adds to it."""
    for added, joined, nothing in _WAYS:
        statement = re.compile(f"{name} = (?:{added.format(re.escape(name))});")
        if uses and first == nothing and all(map(statement.fullmatch, uses)):
            return joined
    return None


def _by_turns(
    body: Sequence[str], reductions: Sequence[_Reduction], index: str, count: str, step: str
) -> Iterator[str]:
    for each in reductions:
        yield f"{each.kind} {each.name}_lanes[LANES];"
        yield f"for(auto& value : {each.name}_lanes) value = {each.first};"
        yield f"{each.name}_lanes[0] = {each.name};"
    yield f"for(int64_t {index}_first=0; {index}_first<{count}; {index}_first+={step}*LANES)"
    yield "{"
    yield "#pragma GCC unroll 16"
    yield "for(int lane=0; lane<LANES; lane+=1)"
    yield "{"
    yield f"int64_t {index} = {index}_first + {step}*lane;"
    names = "|".join(each.name for each in reductions)
    yield from (re.sub(rf"\b({names})\b", r"\1_lanes[lane]", line) for line in body)
    yield from ("}", "}")
    for each in reductions:
        joined = each.joined.format(each.name, f"{each.name}_lanes[lane]")
        yield f"{each.name} = {each.name}_lanes[0];"
        yield f"for(int lane=1; lane<LANES; lane+=1) {each.name} = {joined};"
