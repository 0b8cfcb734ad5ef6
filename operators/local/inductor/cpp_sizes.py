"""Sizes in C++ of Inductor as named constants: an edit changes a loop and its addresses together.

`X1_SIZE` is what loops over `x1` run up to. It stands there, in guards of `x1`, and in addresses as
the stride of another index if elements along `x1` lie side by side: `x1 + X1_SIZE*x0`. Other
numbers stay as they are, also those that are equal by chance, and products of sizes. Numbers below
64 have no names, for many are the width of a vector.
"""

import re
from collections.abc import Mapping

from operators.local.inductor.names import free_name

_LEAST = 64
_INDEX = r"(?:\d+L?\*)?x\d+\w*"
_FOUND = re.compile(
    r"(?P<loop>for\(int64_t (?P<over>x\d+)(?:_first)?=0; \w+<)(?P<size>\d+)(?=;)"
    r"|(?P<guard>\b(?P<of>x\d+)\w* < (?:static_cast<int64_t>\()?)(?P<bound>\d+)L?\b"
    rf"|(?<!\w)(?P<sum>{_INDEX}(?: \+ {_INDEX})+)"
    r"(?:(?P<gap>\), static_cast<int64_t>\()(?P<width>\d+)L?(?=\)))?"  # of rows from there on
    r"|(?P<buffer>std::make_unique<\w+ \[\]>\()(?P<room>\d+)L?(?=\))"
)
_TERM = re.compile(r"(?:(\d+)L?\*)?((x\d+)\w*)")


def named(functions: str) -> tuple[str, str]:
    """The constants, and the text of functions with their names in the place of sizes."""
    words = set(re.findall(r"\w+", functions))
    names: dict[tuple[str, int], str] = {}
    for found in _FOUND.finditer(functions):
        key = found["over"], int(found["size"] or 0)
        if key[1] >= _LEAST and key not in names:
            names[key] = free_name(f"{found['over'].upper()}_SIZE", words)
            words.add(names[key])
    constants = "".join(
        f"constexpr int64_t {name} = {size};  // of loops over {index}\n"
        for (index, size), name in names.items()
    )
    return constants, _Writer(names).text(functions)


class _Writer:
    """Puts names in the place of sizes.

    Args:
        names: by index and size.
    """

    def __init__(self, names: Mapping[tuple[str, int], str]) -> None:
        self._names = names
        self._sizes: dict[str, int] = {}  # of the loops around, by index

    def text(self, functions: str) -> str:
        return _FOUND.sub(self._written, functions)

    def _written(self, found: re.Match[str]) -> str:
        if index := found["over"]:
            self._sizes[index] = int(found["size"])
            return found["loop"] + self._names.get((index, self._sizes[index]), found["size"])
        if index := found["of"]:
            name = self._name(index, found["bound"])
            return f"{found['guard']}{name}" if name else found[0]
        if found["buffer"]:
            fitting = [
                name for (_, size), name in self._names.items() if size == int(found["room"])
            ]
            return f"{found['buffer']}{fitting[0]}" if len(fitting) == 1 else found[0]
        return self._address(found)

    def _name(self, index: str, number: str) -> str:
        """Of a number that is the size of the loop over an index; empty if it is another."""
        is_size = self._sizes.get(index) == int(number)
        return self._names.get((index, int(number)), "") if is_size else ""

    def _address(self, found: re.Match[str]) -> str:
        """A sum of indices with their strides; and, if it follows, the width of a row."""
        beside = [term[3] for term in _TERM.finditer(found["sum"]) if term[1] is None]
        names: dict[str, str] = {}

        def stride(term: re.Match[str]) -> str:
            if term[1] is None:
                return term[0]
            others = (self._name(index, term[1]) for index in beside if index != term[3])
            name = next(filter(None, others), "")
            names[term[1]] = name
            return f"{name}*{term[2]}" if name else term[0]

        text = _TERM.sub(stride, found["sum"])
        if found["gap"] is None:
            return text
        width = names.get(found["width"], "")
        rest = found[0].removeprefix(found["sum"])
        return f"{text}{found['gap']}{width}" if width else f"{text}{rest}"
