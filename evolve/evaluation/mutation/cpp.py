"""Mutants of C++ and CUDA kernels in module-level strings, token by token."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from evolve.core.source import cpptext
from evolve.core.source.pytext import Edit, Module
from evolve.evaluation.mutation.cpptokens import Code, Token
from evolve.evaluation.mutation.mutant import Change, Kind

_COMPARED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_SWAPPED = {"+": "-", "-": "+", "*": "/", "/": "*"}
_ASSIGNED = {"+=": "-=", "-=": "+=", "*=": "/=", "/=": "*="}
_RENAMED = {"max": "min", "min": "max", "fmaxf": "fminf", "exp": "exp2", "expf": "exp2f",
            "log": "log2", "sqrt": "cbrt", "tanh": "sin", "rsqrtf": "sqrtf"}  # fmt: skip
_AXES = {"x": "y", "y": "x", "z": "x"}
_CLAUSE = re.compile(r"\s*reduction\s*\([^)]*\)")
_ATOMICS = {"atomicAdd": "+="}

Span = tuple[Kind, int, int, str]  # offsets into the C++ text, and what stands there instead


def cpp_changes(module: Module) -> Iterator[Change]:
    """Every change of the module's C++ and CUDA texts."""
    for text in module.texts:
        if cpptext.is_code(text.value):
            for kind, start, end, new in _Source(Code(text.value)).spans():
                yield Change(kind, (Edit(text.offsets[start], text.offsets[end], new),))


@dataclass(frozen=True)
class _Source:
    code: Code

    def spans(self) -> Iterator[Span]:
        yield from self._pragmas()
        for index, token in enumerate(self.code.tokens):
            if token.fixed or index == 0:
                continue
            if token.is_number:
                yield from self._number(index, token)
            elif token.is_name:
                yield from self._name(index, token)
            else:
                yield from self._symbol(index, token)

    def _at(self, index: int) -> Token:
        tokens = self.code.tokens
        return tokens[index] if 0 <= index < len(tokens) else Token("", 0, 0)

    def _replace(self, kind: Kind, first: int, last: int, text: str) -> Span:
        return kind, self._at(first).start, self._at(last).end, text

    def _pragmas(self) -> Iterator[Span]:
        for match in self.code.pragmas:
            line, start = match[0], match.start()
            clause = _CLAUSE.search(line)
            if clause:
                yield (Kind.SYNCHRONISATION, start + clause.start(), start + clause.end(), "")
            if re.search(r"omp\s+(barrier|critical|atomic|ordered)\b", line):
                yield Kind.SYNCHRONISATION, start, match.end(), ""
            if re.search(r"omp\s+for\b", line):
                yield Kind.SYNCHRONISATION, match.end(), match.end(), " nowait"

    def _symbol(self, index: int, token: Token) -> Iterator[Span]:
        before, text = self._at(index - 1), token.text
        if text in _COMPARED and (self.code.spaced(index) or token.clause == 1):
            yield self._replace(Kind.BOUNDARY, index, index, _COMPARED[text])
            if token.clause == 1:
                yield from self._loop_end(index)
        elif text in _SWAPPED and before.ends_operand and self._is_binary(index):
            kind = self._kind_of(index)
            new = "+" if text == "*" and kind is Kind.INDEXING else _SWAPPED[text]
            yield self._replace(kind, index, index, new)
        elif text == "-" and not before.ends_operand and not self._at(index + 1).is_number:
            if self._at(index + 1).text == "INFINITY":
                yield self._replace(Kind.INITIALISATION, index, index + 1, "0.0f")
            else:
                yield self._replace(Kind.ARITHMETIC, index, index, "")
        elif text in _ASSIGNED and token.clause is None:
            yield from self._accumulation(index, token)
        elif text == "?":
            yield from self._guard(index, token)
        elif text == "[" and before.is_name and before.text not in ("return", "delete"):
            yield from self._subscript(index)
        elif text == "=":
            yield from self._initialiser(index)

    def _is_binary(self, index: int) -> bool:
        """`*` between blanks multiplies; beside a type it points."""
        return self._at(index).text in "+-/" or self.code.spaced(index)

    def _kind_of(self, index: int) -> Kind:
        code, token = self.code, self._at(index)
        sides = {self._at(index - 1).text, self._at(index + 1).text}
        if token.clause == 1:
            return Kind.BOUNDARY
        if "[" in token.place or token.clause is not None or sides & code.pointers:
            return Kind.INDEXING
        if sides & code.floats or self._at(index - 1).is_float or self._at(index + 1).is_float:
            return Kind.ARITHMETIC
        return Kind.INDEXING if sides & code.integers else Kind.ARITHMETIC

    def _loop_end(self, index: int) -> Iterator[Span]:
        """`i < n` becomes `i < n - 1`."""
        last = index
        while self._at(last + 1).clause == 1 and self._at(last + 1).text not in (";", "&&", "||"):
            last += 1
        if last > index:
            end = self._at(last).end
            yield Kind.BOUNDARY, end, end, " - 1"

    def _accumulation(self, index: int, token: Token) -> Iterator[Span]:
        target, last = self._lvalue(index), self._statement_end(index)
        name = self._at(target).text
        kind = Kind.INDEXING if name in self.code.integers | self.code.pointers else Kind.ARITHMETIC
        yield self._replace(kind, index, index, _ASSIGNED[token.text])
        if name in self.code.integers or last is None:
            return
        yield self._replace(kind, index, index, "=")
        left, right = self.code.between(target, index - 1), self.code.between(index + 1, last)
        short = f"{left} = (float)(_Float16)({left} {token.text[0]} ({right}))"
        yield self._replace(Kind.PRECISION, target, last, short)

    def _lvalue(self, index: int) -> int:
        """First token of what is assigned to."""
        at = index - 1
        while at > 0 and (len(self._at(at).place) > len(self._at(index).place)
                          or self._at(at).text in ("]", "[", ".", "->")
                          or self._at(at - 1).text in (".", "->")):  # fmt: skip
            at -= 1
        return at

    def _statement_end(self, index: int) -> int | None:
        depth = len(self._at(index).place)
        for at in range(index + 1, len(self.code.tokens)):
            token = self._at(at)
            if token.text in (";", "=", "+=") and len(token.place) <= depth:
                return at - 1 if token.text == ";" else None
            if len(token.place) < depth:
                return at - 1
        return None

    def _guard(self, index: int, token: Token) -> Iterator[Span]:
        """A condition that always holds, as when a mask is left out."""
        start = index
        depth = len(token.place)
        while start > 0:
            before = self._at(start - 1)
            outside = len(before.place) < depth
            if outside or (len(before.place) == depth and before.text in "=,;{:?"):
                break
            if before.text in ("return", "+=", "-=", "*=", "/="):
                break
            start -= 1
        if start < index:
            condition = {self._at(at).text for at in range(start, index)}
            indexed = condition & self.code.integers and not condition & self.code.floats
            kind = Kind.BOUNDARY if indexed else Kind.ARITHMETIC
            yield self._replace(kind, start, index - 1, "true")

    def _subscript(self, index: int) -> Iterator[Span]:
        closing = self.code.closing(index)
        if closing is None or closing == index + 1 or self._declares(index):
            return
        end = self._at(closing).start
        yield Kind.INDEXING, end, end, " + 1"

    def _declares(self, index: int) -> bool:
        """Whether `name[` is a declaration: a type stands before the name."""
        type_ = self._at(index - 2)
        is_type = type_.is_name and type_.text not in ("return", "case")
        return is_type or type_.text in ("*", "&")

    def _initialiser(self, index: int) -> Iterator[Span]:
        value, after = self._at(index + 1), self._at(index + 2)
        if value.text == "{" and after.text == "}":
            yield self._replace(Kind.INITIALISATION, index, index + 2, "")
        elif value.text == "0" and self._at(index).clause == 0:
            yield self._replace(Kind.BOUNDARY, index + 1, index + 1, "1")
        elif value.text == "(":
            yield from self._compensation(index + 1)

    def _compensation(self, index: int) -> Iterator[Span]:
        """No `(a - b) - c` of a compensated sum (Kahan, 1965)."""
        words = [self._at(at) for at in range(index, index + 8)]
        if [word.text for word in words if not word.is_name] == ["(", "-", ")", "-", ";"]:
            yield self._replace(Kind.PRECISION, index, index + 6, "0.0f")

    def _number(self, index: int, token: Token) -> Iterator[Span]:
        before, after = self._at(index - 1), self._at(index + 1)
        if token.is_float:
            digits = token.text.rstrip("fF")
            suffix = token.text[len(digits) :]
            starts = before.text in ("=", ":") and after.text in (";", ",")
            kind = Kind.INITIALISATION if starts else Kind.ARITHMETIC
            value = float(digits.replace("'", ""))
            yield self._replace(kind, index, index, f"{value * 1.01 if value else 1.0!r}{suffix}")
            if len(digits) > 6:
                yield self._replace(Kind.PRECISION, index, index, f"{value:.3e}{suffix}")
        elif token.clause == 0 or before.text in ("<", "[", "{", ","):
            return
        elif before.text in (*_SWAPPED, *_COMPARED) and after.text not in (">",):
            kind = Kind.ARITHMETIC if self._kind_of(index - 1) is Kind.ARITHMETIC else Kind.INDEXING
            yield self._replace(kind, index, index, f"({token.text} + 1)")

    def _name(self, index: int, token: Token) -> Iterator[Span]:
        before, after = self._at(index - 1), self._at(index + 1)
        if token.text == "double":
            yield self._replace(Kind.PRECISION, index, index, "float")
        elif token.text == "float" and after.is_name and self._sums(index + 1):
            yield self._replace(Kind.PRECISION, index, index, "_Float16")
        elif token.text == "thread_local":
            yield self._replace(Kind.SYNCHRONISATION, index, index, "")
        elif token.text in ("__syncthreads", "__syncwarp"):
            yield self._replace(Kind.SYNCHRONISATION, index, index + 2, "")
        elif token.text in _AXES and before.text == "." and self._at(index - 2).text in (
            "blockIdx", "threadIdx"):  # fmt: skip
            yield self._replace(Kind.INDEXING, index, index, _AXES[token.text])
        elif token.text == "size" and after.text == "(":
            closing = self.code.closing(index + 1)
            if closing is not None:
                axis = "1" if self.code.between(index + 2, closing - 1) == "0" else "0"
                yield self._replace(Kind.INDEXING, index + 2, closing - 1, axis)
        elif token.text == "if" and after.text == "(":
            yield from self._condition(index)
        else:
            yield from self._call(index, token)

    def _sums(self, index: int) -> bool:
        """Whether something is added to a name later on."""
        name = self._at(index).text
        pattern = rf"\b{re.escape(name)}(?:\[[^;]*?\])?\s*\+="
        return bool(re.search(pattern, self.code.bare[self._at(index).end :]))

    def _condition(self, index: int) -> Iterator[Span]:
        closing = self.code.closing(index + 1)
        if closing is not None:
            for always in ("true", "false"):
                yield self._replace(Kind.BOUNDARY, index + 2, closing - 1, always)

    def _call(self, index: int, token: Token) -> Iterator[Span]:
        opening = self._opening(index)
        if opening is None:
            return
        arguments = self.code.arguments(opening)
        if token.text in _ATOMICS and len(arguments) == 2:
            closing = arguments[1][1] + 1
            place, value = (self.code.between(*argument) for argument in arguments)
            text = f"*({place}) {_ATOMICS[token.text]} {value}"
            yield self._replace(Kind.SYNCHRONISATION, index, closing, text)
        if token.text == "min" and len(arguments) == 2:
            first = index - 2 if self._at(index - 1).text == "::" else index
            text = f"({self.code.between(*arguments[0])})"
            yield self._replace(Kind.BOUNDARY, first, arguments[1][1] + 1, text)
        elif token.text in _RENAMED:
            yield self._replace(Kind.ARITHMETIC, index, index, _RENAMED[token.text])
        if "exp" in token.text and arguments:
            yield from self._unshifted(*arguments[0])

    def _opening(self, index: int) -> int | None:
        """The `(` of a call of the name at `index`, after template arguments if any."""
        if self._at(index + 1).text == "(":
            return index + 1
        if self._at(index + 1).text == "<" and not self.code.spaced(index + 1):
            for at in range(index + 2, index + 8):
                if self._at(at).text == ">":
                    return at + 1 if self._at(at + 1).text == "(" else None
        return None

    def _unshifted(self, first: int, last: int) -> Iterator[Span]:
        """No maximum taken off before the exponential."""
        for at in range(first + 1, last):
            subtracts = self._at(at).text == "-" and self._at(at - 1).ends_operand
            if subtracts and self._at(at + 1).is_name:
                yield self._replace(Kind.PRECISION, at, at + 1, "")
