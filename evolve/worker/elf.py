"""What a shared library wants from others, read from its file (ELF for 64-bit machines).

The file is a candidate's, so it may say anything: whatever does not read as a library has no names.
Layout: Tool Interface Standard, ELF specification 1.2, and the generic ABI's chapter 5.
"""

import struct
from collections.abc import Iterator

_IDENT = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_TAG = struct.Struct("<qQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_LOAD, _DYNAMIC = 1, 2
_STRTAB, _SYMTAB, _STRSZ = 5, 6, 10
_MOST_SYMBOLS = 1 << 20
_LONGEST = 256  # bytes of a name that are looked at


def imported_symbols(library: bytes) -> frozenset[str]:
    """Names that a library uses and does not define, as the linker at run time sees them."""
    try:
        return frozenset(_undefined(library))
    except (struct.error, ValueError, KeyError, OverflowError):
        return frozenset()


def _undefined(library: bytes) -> Iterator[str]:
    if not library.startswith(_IDENT):
        raise ValueError("not a library for a 64-bit machine")
    header = _HEADER.unpack_from(library)
    first, size, count = header[5], header[9], header[10]
    segments = [_SEGMENT.unpack_from(library, first + size * at) for at in range(count)]
    tags = dict(_tags(library, segments))
    names_at, names_size = _offset(segments, tags[_STRTAB]), tags[_STRSZ]
    names = library[names_at : names_at + names_size]
    at = _offset(segments, tags[_SYMTAB])
    # Nothing says how many there are; linkers put the names behind them.
    end = names_at if names_at > at else len(library)
    for _ in range(min((end - at) // _SYMBOL.size, _MOST_SYMBOLS)):
        name, _, _, section, _, _ = _SYMBOL.unpack_from(library, at)
        if name >= names_size:
            return
        if name and section == 0:
            end = names.find(b"\0", name, name + _LONGEST)
            yield names[name : end if end >= 0 else name + _LONGEST].decode(errors="replace")
        at += _SYMBOL.size


def _tags(library: bytes, segments: list[tuple[int, ...]]) -> Iterator[tuple[int, int]]:
    for kind, _, offset, _, _, size, _, _ in segments:
        if kind == _DYNAMIC:
            yield from _TAG.iter_unpack(library[offset : offset + size // _TAG.size * _TAG.size])


def _offset(segments: list[tuple[int, ...]], address: int) -> int:
    """Where in the file that lies which is at an address when it is loaded."""
    for kind, _, offset, start, _, size, _, _ in segments:
        if kind == _LOAD and start <= address < start + size:
            return offset + address - start
    raise ValueError("an address outside of the file")
