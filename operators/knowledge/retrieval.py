"""Which documents help with a diagnosis, and how much of them fits into a prompt.

The score of a document is the sum over the kinds of tags of

    weight(kind) * closeness / sqrt(number of tags of that kind in the document)

with weight 10 for the error, 6 for the category, 5 for the bottleneck, 4 for the device, 2 for the
precision and 1 for the language. The root makes a document about everything lose against one about
this; an error has no root, since one cure serves several. Closeness is 1 if the document has the
diagnosis's tag and 0 if it has not; for devices, which are paths, it is the square of the share of
the diagnosis's path that a tag covers, so that `nvidia` counts a quarter for `nvidia/hopper`. A
document about something else (it names errors, bottlenecks or categories, and not the diagnosis's)
keeps half for each such kind, and so does one about kinds of operations if the diagnosis knows
none. One that names languages, devices or precisions, but none that fits, is left out, and so is
one without any match.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from evolve.languages.cpp import CPP
from operators.knowledge.document import Document, Evidence, Part

WEIGHTS = {
    "error": 10.0,
    "category": 6.0,
    "bottleneck": 5.0,
    "device": 4.0,
    "precision": 2.0,
    "language": 1.0,
}
_EXCLUSIVE = ("device", "language", "precision")  # of no use elsewhere
_BLOCK = re.MULTILINE | re.DOTALL
_IN_HEADINGS = (
    ("amd", r"\b(?:AMD|CDNA|MI\d{3}\w*)\b"),
    ("nvidia/blackwell", r"\bBlackwell\b"),
    ("nvidia/hopper", r"\bHopper\b"),
    ("cpu", r"\bCPUs?\b"),
    ("nvidia", r"\bGPUs?\b"),
    ("amd", r"\bGPUs?\b"),
)
_PRECISIONS = (
    ("half", r"\b[Hh]alf precision\b|\b(?:b?float|fp|bf)16\b"),
    ("fp8", r"\b(?:float|fp|FP)8\b"),
    ("int8", r"\b(?:int|INT)8\b"),
)
_MAIN = re.compile(r"^int main\(\) \{\n.*?^\}\n", _BLOCK)
_CHARACTERS_PER_TOKEN = 4  # of English and code, roughly

_FAMILIES = (
    ("cpu", r"^cpu\b"),
    ("nvidia/blackwell", r"\b(?:g?b[23]00|blackwell|sm_?1[02]\d)\b"),
    ("nvidia/hopper", r"\b(?:gh200|h[128]00|h20|hopper|sm_?90a?)\b"),
    ("nvidia/ada", r"\b(?:l4|l40s?|rtx 40\d0|ada|sm_?89)\b"),
    ("nvidia/ampere", r"\b(?:a100|a10g?|a40|a30|rtx 30\d0|a6000|ampere|sm_?8[067])\b"),
    ("amd/cdna4", r"\b(?:mi35\dx?|gfx950)\b"),
    ("amd/cdna3", r"\b(?:mi30\d[ax]?|mi325x?|gfx942)\b"),
    ("amd/cdna2", r"\b(?:mi2\d0x?|gfx90a)\b"),
    ("nvidia", r"\b(?:nvidia|cuda|geforce|tesla|quadro)\b"),
    ("amd", r"\b(?:amd instinct|radeon|rocm|hip)\b"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The known facts of a program's problem; an empty field is unknown.

    `error` is a status of the judge, `category` the kind of operation that takes a program's time,
    `device` a path as `device_path` gives it, `precision` that of its operands.
    """

    bottleneck: str = ""
    error: str = ""
    category: str = ""
    device: str = ""
    language: str = ""
    precision: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """A document, or its leading sections, as they go into a prompt.

    `text` has the title, the mark of untested hardware and the Markdown, without sources.
    `complete` says whether nothing was cut.
    """

    document: Document
    score: float
    text: str
    complete: bool

    @property
    def untested(self) -> bool:
        """Nothing of it was run on its hardware."""
        return self.document.tested is Evidence.UNTESTED_HARDWARE


def device_path(name: str) -> str:
    """The family of a device, from the name by a driver or an evaluation's device class.

    >>> device_path("cuda: NVIDIA H200"), device_path("cpu: AMD EPYC, 2 cores"), device_path("?")
    ('nvidia/hopper', 'cpu', '')
    """
    lower = name.lower()
    return next((path for path, pattern in _FAMILIES if re.search(pattern, lower)), "")


def score(document: Document, diagnosis: Diagnosis) -> float:
    """How well a document fits, as the module says; 0 if it does not."""
    total, share = 0.0, 1.0
    for kind, weight in WEIGHTS.items():
        wanted, tags = getattr(diagnosis, kind), document.tags.get(kind, ())
        if not tags:
            continue
        if not wanted:
            share *= 0.5 if kind == "category" else 1.0
            continue
        close = max(_closeness(kind, tag, wanted) for tag in tags)
        if close == 0.0 and kind in _EXCLUSIVE:
            return 0.0
        share *= 1.0 if close else 0.5
        total += weight * close / (1 if kind == "error" else len(tags) ** 0.5)
    return total * share


def _closeness(kind: str, tag: str, wanted: str) -> float:
    if kind != "device":
        return float(tag == wanted)
    has, wants = tag.split("/"), wanted.split("/")
    shared = min(len(has), len(wants))
    return (shared / max(len(has), len(wants))) ** 2 if has[:shared] == wants[:shared] else 0.0


def rank(documents: Iterable[Document], diagnosis: Diagnosis) -> list[tuple[float, Document]]:
    """The documents with a score, best first; equals by part, then by id.

    A category that no document has says nothing: all of them would be about something else.
    """
    documents = tuple(documents)
    known = {tag for document in documents for tag in document.tags.get("category", ())}
    if diagnosis.category not in known:
        diagnosis = replace(diagnosis, category="")
    scored = ((round(score(document, diagnosis), 6), document) for document in documents)
    order = list(Part)
    return sorted(
        (pair for pair in scored if pair[0] > 0),
        key=lambda pair: (-pair[0], order.index(pair[1].part), pair[1].id),
    )


def retrieve(
    documents: Iterable[Document], diagnosis: Diagnosis, *, limit: int, budget_tokens: int
) -> tuple[Excerpt, ...]:
    """The best documents for a diagnosis, whole or cut after a section. Pure.

    Args:
        documents: a library.
        diagnosis: the known facts; without any tag nothing is found.
        limit: the most documents.
        budget_tokens: limit of all texts together, at four characters a token.
    """
    chosen: list[Excerpt] = []
    left = budget_tokens
    for value, document in rank(documents, diagnosis):
        if len(chosen) == limit:
            break
        if excerpt := _excerpt(document, value, left, diagnosis):
            chosen.append(excerpt)
            left -= tokens_of(excerpt.text)
    return tuple(chosen)


def tokens_of(text: str) -> int:
    """An estimate that needs no tokenizer."""
    return -(-len(text) // _CHARACTERS_PER_TOKEN)


def _excerpt(document: Document, value: float, budget: int, diagnosis: Diagnosis) -> Excerpt | None:
    """As many leading sections as fit; None unless the first real one does."""
    sections = document.sections
    for count in range(len(sections), 0, -1):
        told = "".join(part for part in sections[:count] if _concerns(part, diagnosis))
        body = _plain(told, diagnosis.language).rstrip()
        text = f"{_heading(document, diagnosis.device)}{body}\n"
        if tokens_of(text) <= budget and count >= min(2, len(sections)):
            complete = count == len(sections)
            return Excerpt(document=document, score=value, text=text, complete=complete)
    return None


def is_proven(document: Document, device: str) -> bool:
    """Whether its examples were run on the kind of device.

    On a CPU our tests run them. Elsewhere it takes figures of such a device, unless there is no
    code for GPUs in it.
    """
    if document.figures(device):
        return True
    if document.tested is Evidence.UNTESTED_HARDWARE:
        return False
    return device == "cpu" or not document.is_for_gpus


def _heading(document: Document, device: str) -> str:
    untested = document.tested is Evidence.UNTESTED_HARDWARE
    mark = "(Untested: nothing of this was run on that hardware.)\n\n" if untested else ""
    figures = document.figures(device)
    said = f"(Measured: {figures})\n\n" if figures else mark
    return f"# {document.title}\n\n{said}"


def _concerns(section: str, diagnosis: Diagnosis) -> bool:
    """Whether a section's heading names no other family of devices, and no other precision."""
    heading = section.partition("\n")[0] if section.startswith("## ") else ""
    families = [family for family, pattern in _IN_HEADINGS if re.search(pattern, heading)]
    narrow = [kind for kind, pattern in _PRECISIONS if re.search(pattern, heading)]
    device, precision = diagnosis.device, diagnosis.precision
    here = not families or not device or any(map(device.startswith, families))
    return here and (not narrow or not precision or precision in narrow)


def _plain(text: str, language: str) -> str:
    """Without the parts for our tests: words that tell them to run a block, checks, simulations.

    And without kernels in Triton if programs are written in C++.
    """
    example = partial(_example, language=language)
    text = re.sub(r"^```cpp run\n(.*?)^```\n", _without_main, text, flags=_BLOCK)
    return re.sub(r"^```python\b[^\n]*\n(.*?)^```\n", example, text, flags=_BLOCK)


def _without_main(found: re.Match[str]) -> str:
    """A C++ example without its `main`, and without the headers that only `main` uses."""
    code = _MAIN.sub("", found[1])
    checks = {"cstdio": "printf", "vector": "std::vector", "cmath": "std::"}
    for header, used in checks.items():
        if used not in code:
            code = code.replace(f"#include <{header}>\n", "")
    return f"```cpp\n{code.rstrip()}\n```\n"


def _example(found: re.Match[str], language: str) -> str:
    if language == CPP.name and re.search(r"\btriton\b|\btl\.", found[1]):
        return ""
    if not found[0].startswith("```python run"):
        return found[0]
    if not re.search(r"\b(?:torch|triton|tvm_ffi)\b", found[1]):
        return ""
    code = re.sub(r"^assert [^\n]*\n(?:[ \t)][^\n]*\n)*", "", found[1], flags=re.MULTILINE)
    return f"```python\n{code.rstrip()}\n```\n"


def search(documents: Sequence[Document], words: Sequence[str]) -> list[tuple[float, Document]]:
    """Documents that hold any of the words, best first.

    A word counts 4 in the title or id, 2 in a tag, 1 in the text; documents with more of the words
    come before those with fewer.
    """
    found = []
    for document in documents:
        counts = [_hit(document, word.lower()) for word in words]
        if any(counts):
            found.append((sum(map(bool, counts)), sum(counts), document))
    found.sort(key=lambda hit: (-hit[0], -hit[1], hit[2].id))
    return [(total, document) for _, total, document in found]


def _hit(document: Document, word: str) -> float:
    if word in document.title.lower() or word in document.id:
        return 4.0
    if any(word in tag for tags in document.tags.values() for tag in tags):
        return 2.0
    return float(word in document.body.lower())
