"""A kernel of the compiler in a language of Python, where blocks or lists have the operators."""

import ast
import math
from collections.abc import Iterable, Mapping
from typing import ClassVar

from operators.local.inductor import NotConvertible
from operators.local.ports.elements import OPERATORS, ElementKernel, Text, joined

_INFINITY = "INFINITY"
FORMULAS = {"div_rn": "({} / {})", "fma": "({} * {} + {})"}
"""Functions of Triton's that are operators in these languages."""


class PythonKernel(ElementKernel):
    """A kernel whose functions of several values are written out, by the formulas of Triton's."""

    operators: ClassVar[Mapping[type, str]] = {
        **OPERATORS,
        ast.FloorDiv: "//",
        ast.Invert: "~",
        ast.Not: "~",
    }
    infinity: ClassVar[str] = _INFINITY
    divided = FORMULAS["div_rn"]

    def literal(self, value: object) -> str:
        if isinstance(value, float) and not math.isfinite(value):
            if math.isnan(value):
                raise NotConvertible("the constant nan")
            return self.infinity if value > 0 else f"-{self.infinity}"
        return repr(value)

    def loop(self, name: str, limits: list[str], inner: list[str]) -> list[str]:
        return [f"for {name} in range({', '.join(limits)}):", *(f"    {line}" for line in inner)]

    def unpacked(self, function: str, names: list[str], given: list[Text]) -> list[str]:
        return getattr(self, f"_{function}")(names, *given)

    def _let(self, name: str, text: str, *given: Text) -> tuple[list[str], Text]:
        lines = self.assigned(name, joined(text, *given, kind="float32"))
        return lines, self.named(name)

    def _scaled(self) -> str:
        """exp({} - {}) of a value and the maximum of the row, which may have none."""
        lowest, power = self.literal(float("-inf")), self.call("exp", "float32", "{0} - {1}")
        return self.chosen.format(f"({{1}} == {lowest})", "1.0", power)

    def _online_softmax_combine(
        self, names: list[str], top: Text, total: Text, value: Text
    ) -> list[str]:
        one = Text(self.literal(1.0), 0, "float32")
        return self._online_softmax_combine_with_sum(names, top, total, value, one)

    def _online_softmax_combine_with_sum(
        self, names: list[str], top: Text, total: Text, other: Text, other_total: Text
    ) -> list[str]:
        lines, most = self._let(names[0], self.call("maximum", "float32", "{0}", "{1}"), top, other)
        own = joined(self._scaled(), top, most)
        others = joined(self._scaled(), other, most)
        more, _ = self._let(names[1], "{} * {} + {} * {}", total, own, other_total, others)
        return [*lines, *more]

    def _online_softmax_reduce(self, names: list[str], top: Text, total: Text) -> list[str]:
        lines = self.assigned(names[0], self.reduced(top, "max2"))
        scale = joined(self._scaled(), top, self.named(names[0]))
        parts = joined("({} * {})", total, scale, kind="float32")
        return [*lines, *self.assigned(names[1], self.reduced(parts, "sum"))]

    def _welford_reduce(
        self, names: list[str], value: Text, mean: Text, squares: Text, weight: Text, _: Text
    ) -> list[str]:
        first, count = self._let(names[2], "{} + 1.0", weight)
        second, next_mean = self._let(names[0], "{0} + ({1} - {0}) / {2}", mean, value, count)
        text = "{0} + ({1} - {2}) * ({1} - {3})"
        third, _ = self._let(names[1], text, squares, value, mean, next_mean)
        return [*first, *second, *third]

    def _welford_combine(
        self,
        names: list[str],
        mean: Text,
        squares: Text,
        weight: Text,
        other: Text,
        other_squares: Text,
        other_weight: Text,
    ) -> list[str]:
        lines, total = self._let(names[2], "{} + {}", weight, other_weight)
        no_share = self.chosen.format("({1} == 0.0)", "0.0", "{0} / {1}")
        more, share = self._let(f"{names[0]}_share", no_share, other_weight, total)
        none_apart = self.chosen.format("({0} == {1})", "0.0", "{1} - {0}")
        further, apart = self._let(f"{names[0]}_apart", none_apart, mean, other)
        means, _ = self._let(names[0], "{} + {} * {}", mean, apart, share)
        text = "{0} + {1} + {2} * {2} * {3} * {4}"
        all_squares, _ = self._let(names[1], text, squares, other_squares, apart, weight, share)
        return [*lines, *more, *further, *means, *all_squares]

    def _welford(self, names: list[str], mean: Text, squares: Text, weight: Text) -> list[str]:
        lines = self.assigned(names[2], self.reduced(weight, "sum"))
        total = self.named(names[2])
        weighted = self.reduced(joined("({} * {})", weight, mean, kind="float32"), "sum")
        lines += self.assigned(names[0], joined("{} / {}", weighted, total, kind="float32"))
        middle = self.named(names[0])
        text = "({0} + {1} * ({2} - {3}) * ({2} - {3}))"
        apart = joined(text, squares, weight, mean, middle, kind="float32")
        return [*lines, *self.assigned(names[1], self.reduced(apart, "sum"))]


def constants_of(texts: Iterable[str]) -> list[str]:
    """Definitions of the module's constants that kernels use."""
    return [f'{_INFINITY} = float("inf")'] if any(_INFINITY in text for text in texts) else []
