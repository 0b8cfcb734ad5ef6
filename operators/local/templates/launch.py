"""A launch of a kernel, with its tunables, in the place of a call of a vendor's library."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from operators.local.inductor.blocks import Blocks
from operators.local.inductor.kernels import Kernel
from operators.local.templates import library


@dataclass(frozen=True, slots=True)
class Launch:
    """The arguments with which a program launches a kernel.

    Attributes:
        kernel: its name.
        grid: an expression over tunables, by their names in the kernel's signature.
        pointers: the first arguments.
        constants: compile-time constants that do not change, by name.
        tunables: the others, by name.
        before: statements, e.g. that make room for parts of the result.
        after: statements, e.g. that give back the room.
        shared: tunables of another launch in the place of the same call.
        definitions: the kernel's own text; empty for one of the library.
    """

    kernel: str
    grid: str
    pointers: tuple[ast.expr, ...]
    constants: Mapping[str, object]
    tunables: Mapping[str, Blocks]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    definitions: Mapping[str, str] = field(default_factory=dict)

    @property
    def signature(self) -> tuple[object, ...]:
        """Two launches that agree in this are best with the same tunables."""
        return self.kernel, self.grid, tuple(self.constants.items()), tuple(self.tunables.items())

    @property
    def family(self) -> tuple[object, ...]:
        """If launches are many, those that agree in this share their tunables.

        What blocks may be depends on how wide a row is that is held whole, on whether the elements
        of a row lie beside each other, and on the divisors of a run of taps; and precisions differ
        by task. A convolution of few tiles begins with smaller ones.
        """
        view = self.constants.get("VIEW")
        lies_beside = isinstance(view, tuple) and view[2] == 1
        divided = self.tunables.get("BLOCK_K") if "RUN" in self.constants else None
        rounding = self.tunables.get("INPUT_PRECISION")
        tile = [self.tunables[name].first for name in ("BLOCK_M", "BLOCK_N")] if divided else []
        return self.kernel, self.constants.get("WIDTH"), lies_beside, divided, rounding, *tile

    def statements(self, prefix: str) -> Iterator[ast.stmt]:
        """With tunables as constants of the module, their names begun with the prefix."""
        for text in self.before:
            yield ast.parse(self._with_constants(text, prefix)).body[0]
        options = [f"{name}={value!r}" for name, value in self.constants.items()]
        options += [f"{name}={prefix}{name.upper()}" for name in (*self.tunables, *self.shared)]
        passed = [ast.unparse(pointer) for pointer in self.pointers]
        grid = self._with_constants(self.grid, prefix)
        text = f"{self.kernel}[{grid}]({', '.join([*passed, *options])})"
        yield ast.parse(text).body[0]
        yield from (ast.parse(text).body[0] for text in self.after)

    def described(self, prefix: str) -> Kernel:
        """As a program's list of kernels has it."""
        definitions = dict(self.definitions) or library.definitions(self.kernel)
        return Kernel(
            name=self.kernel,
            definitions=definitions,
            names=frozenset(name for text in definitions.values() for name in library.names(text)),
            positions=(),
            grid=self.grid,
            blocks={f"{prefix}{name.upper()}": blocks for name, blocks in self.tunables.items()},
        )

    def _with_constants(self, text: str, prefix: str) -> str:
        own = {*self.tunables, *self.shared}

        def renamed(word: re.Match[str]) -> str:
            return f"{prefix}{word[0].upper()}" if word[0] in own else word[0]

        return re.sub(r"\w+", renamed, text)


def powers(low: int, high: int, size: int, first: int) -> Blocks:
    """Powers of two between two, none of them twice as large as a size, and one to begin with."""
    most = max(low, 1 << max(size - 1, 0).bit_length())
    choices = tuple(1 << k for k in range(low.bit_length() - 1, min(high, most).bit_length()))
    return Blocks(choices, min(choices, key=lambda choice: abs(choice - first)))


def one_of(*choices: int | str, first: int | str) -> Blocks:
    """Given choices."""
    return Blocks(choices, first)


def room(name: ast.expr, size: object, like: ast.expr, dtype: str) -> str:
    """A statement that makes room for numbers of this size where another tensor is."""
    place = f"device={ast.unparse(like)}.device, dtype=torch.{dtype}"
    return f"{ast.unparse(name)} = torch.empty({size}, {place})"
