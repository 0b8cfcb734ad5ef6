"""Imports of a shared library, and the places of its symbols in the file (ELF, 64 bits).

The file is a candidate's, so it may say anything: a malformed file has no names. Layout: Tool
Interface Standard, ELF specification 1.2, and the generic ABI's chapter 5.
"""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_IDENT = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_TAG = struct.Struct("<qQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_LOAD, _DYNAMIC = 1, 2
_FUNCTION = 2  # type of a symbol
_STRTAB, _SYMTAB, _STRSZ = 5, 6, 10
_MAX_SYMBOLS = 1 << 20
_MAX_NAME = 256  # bytes of a name that are looked at
_UNREADABLE = (struct.error, ValueError, KeyError, OverflowError)


class _Symbol(NamedTuple):
    name: bytes
    is_function: bool
    section: int  # 0: another library's
    address: int
    size: int


def imported_symbols(library: bytes) -> frozenset[str]:
    """Names that a library uses and does not define, as the linker at run time sees them."""
    try:
        found = [symbol.name for symbol in _symbols(library) if symbol.section == 0]
    except _UNREADABLE:
        return frozenset()
    return frozenset(name.decode(errors="replace") for name in found)


def places_of(path: Path, prefix: bytes) -> list[tuple[int, int]]:
    """Of functions that a library defines by names that begin so: first byte in its file, end."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
            segments = _segments(whole)
            return sorted(
                (start := _offset(segments, symbol.address), start + symbol.size)
                for symbol in _symbols(whole)
                if symbol.is_function and symbol.section and symbol.name.startswith(prefix)
            )
    except (*_UNREADABLE, OSError):
        return []


def _symbols(library: bytes | mmap.mmap) -> Iterator[_Symbol]:
    """Those that have names, as the linker at run time sees them."""
    segments = _segments(library)
    tags = dict(_tags(library, segments))
    names_at, names_size = _offset(segments, tags[_STRTAB]), tags[_STRSZ]
    names = library[names_at : names_at + names_size]
    at = _offset(segments, tags[_SYMTAB])
    # Nothing says how many there are; linkers put the names behind them.
    end = names_at if names_at > at else len(library)
    for _ in range(min((end - at) // _SYMBOL.size, _MAX_SYMBOLS)):
        name, kind, _, section, address, size = _SYMBOL.unpack_from(library, at)
        if name >= names_size:
            return
        if name:
            end = names.find(b"\0", name, name + _MAX_NAME)
            text = names[name : end if end >= 0 else name + _MAX_NAME]
            yield _Symbol(text, kind & 0xF == _FUNCTION, section, address, size)
        at += _SYMBOL.size


def _segments(library: bytes | mmap.mmap) -> list[tuple[int, ...]]:
    if library[: len(_IDENT)] != _IDENT:
        raise ValueError("not a library for a 64-bit machine")
    header = _HEADER.unpack_from(library)
    first, size, count = header[5], header[9], header[10]
    return [_SEGMENT.unpack_from(library, first + size * at) for at in range(count)]


def _tags(library: bytes | mmap.mmap, segments: list[tuple[int, ...]]) -> Iterator[tuple[int, int]]:
    for kind, _, offset, _, _, size, _, _ in segments:
        if kind == _DYNAMIC:
            yield from _TAG.iter_unpack(library[offset : offset + size // _TAG.size * _TAG.size])


def _offset(segments: list[tuple[int, ...]], address: int) -> int:
    """The offset in the file of an address in memory."""
    for kind, _, offset, start, _, size, _, _ in segments:
        if kind == _LOAD and start <= address < start + size:
            return offset + address - start
    raise ValueError("an address outside of the file")
