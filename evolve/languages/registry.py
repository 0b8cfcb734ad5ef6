"""All languages, and that of a source."""

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache

from evolve.core.devices import DeviceKind, device_kinds
from evolve.core.errors import UsageError
from evolve.core.registered import instance_of, loaded
from evolve.languages.base import Language
from evolve.languages.cpp import CPP
from evolve.languages.cuda import CUDA
from evolve.languages.cute import CUTE
from evolve.languages.cutile import CUTILE
from evolve.languages.descriptors import DESCRIPTOR_VERSION
from evolve.languages.gluon import GLUON
from evolve.languages.helion import HELION
from evolve.languages.hip import HIP
from evolve.languages.nvrtc import NVRTC
from evolve.languages.syntax import parsed
from evolve.languages.tilelang import TILELANG
from evolve.languages.torch import TORCH
from evolve.languages.triton import TRITON

GROUP = "evolve.languages"
# A source with marks of several is in the first; prompts ask for the first that a device runs.
_SHIPPED = (TRITON, GLUON, HELION, CUTE, CUTILE, TILELANG, NVRTC, HIP, CUDA, CPP)


@cache
def languages() -> Mapping[str, Language]:
    """Those that kernels can be written in, by name; plain torch is none.

    Raises:
        UsageError: another package registers one that cannot be loaded.
    """
    own = {one.name: one for one in _SHIPPED}
    others = {one.name: one for one in loaded(GROUP, instance_of(Language))}
    return own | others | own  # in this order, and none is replaced


def find_language(name: str) -> Language:
    """The language of this name; `torch` is that of programs without kernels.

    Raises:
        UsageError: there is none.
    """
    known = {**languages(), TORCH.name: TORCH}
    if name not in known:
        raise UsageError(f"language {name!r}: choose one of {', '.join(known)}")
    return known[name]


@lru_cache(maxsize=256)  # a text is asked about by its prompt, its judge and its store
def detect_language(source: str) -> Language:
    """The language of the kernels that a source defines; `torch` if it defines none.

    By the syntax tree: comments and strings say nothing. A text that does not parse defines none.
    """
    tree = parsed(source)
    return next((one for one in languages().values() if one.finds(tree)), TORCH)


def languages_in(source: str) -> tuple[Language, ...]:
    """All languages that a source defines kernels in, that of its verdict first."""
    tree = parsed(source)
    return tuple(one for one in languages().values() if one.finds(tree))


def timed_on(kind: DeviceKind) -> tuple[Language, ...]:
    """Languages of kernels that a kind of device runs, that which prompts ask for first."""
    return tuple(one for one in languages().values() if one.is_timed_on(kind))


def languages_on(kind: DeviceKind) -> tuple[Language, ...]:
    """Languages that programs for a kind of device may be in: `timed_on`, and plain torch."""
    return (*timed_on(kind), TORCH)


def default_languages() -> tuple[Language, ...]:
    """The languages that prompts ask for, on any kind of device."""
    first = (timed_on(kind)[:1] for kind in device_kinds().values())
    asked = {one for found in first for one in found}
    return tuple(one for one in languages().values() if one in asked)


def refusal(one: Language, kind: DeviceKind) -> str:
    """Why programs in a language cannot run on a kind of device, with the remedy; empty if so."""
    if one.runs_on(kind):
        return ""
    where = listed(f"device={name}" for name in one.devices)
    instead = listed(other.title for other in timed_on(kind))
    return f"{one.title} runs on {where}; for device={kind.name} write {instead}"


def listed(words: Iterable[str], last_word: str = "or") -> str:
    """`a, b or c`."""
    *first, last = words
    return f"{', '.join(first)} {last_word} {last}" if first else last


def preloaded() -> tuple[str, ...]:
    """Modules of all languages that processes import before they fork."""
    return tuple(dict.fromkeys(name for one in languages().values() for name in one.preload))


def describe(source: str) -> dict[str, float | str]:
    """Descriptors of a program by name (`descriptors`), with their version."""
    found = detect_language(source)
    return {
        "descriptor_version": float(DESCRIPTOR_VERSION),
        "language": found.name,
        **found.describe(source),
    }
