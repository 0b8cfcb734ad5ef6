"""Compiled references with our kernels where the compiler calls vendors' libraries."""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache, partial
from itertools import islice, product

from evolve.core.compiled import EXACT_CONVOLUTIONS, VARIANTS, WHOLE, Compiled
from evolve.core.program import Program
from evolve.core.protocols import Context, Declined, Failed, Proposal
from evolve.core.task import Task
from operators.checks import check_choice
from operators.local.inductor import NotConvertible, convert, precisions
from operators.local.templates import How, Products, has_products
from operators.local.tuning import Limits

_SAME_LAYOUT = "same_layout"
_CUTS = "store_parts"  # in the text of a program that cuts anything; others are of another kind


class _Kind(Enum):
    """How products of a program are computed, whether they have tails, and its note."""

    TWO = How.LONG, True, ", operands cut beforehand for two products"
    WIDE = How.WIDE, True, ", operands cut beforehand, outputs of few filters side by side"
    CUT = How.PACKED, True, ", operands cut beforehand"
    SHORT_TWO = How.STRETCHED, True, ", operands cut beforehand for two products in shorter sums"
    CUT_BEFORE_TAILS = How.LONG, False, ", operands cut beforehand, no tails"
    TAILS = How.PLAIN, True, " with tails"
    PLAIN = How.PLAIN, False, ""
    EVEN = How.EVEN, True, ", work cut evenly"

    def __init__(self, how: How, fused: bool, note: str) -> None:
        self.how = how
        self.fused = fused
        self.note = note


_ORDER = (
    (_Kind.TWO, False),
    (_Kind.WIDE, False),
    (_Kind.CUT, False),
    (_Kind.SHORT_TWO, False),
    (_Kind.CUT_BEFORE_TAILS, False),
    (_Kind.TAILS, False),
    (_Kind.TWO, True),
    (_Kind.TAILS, True),
    (_Kind.PLAIN, False),
    (_Kind.EVEN, False),
)
"""Kinds as they are proposed, the likeliest first, and whether convolutions are exact then.

Others round as those of eager do.

`TWO` has two products of parts for each very long sum, `CUT` three, which are as exact as float32.
The judge may refuse `SHORT_TWO`. Of KernelBench's levels 1 and 2 on an H200 `CUT` was faster than
those below it for most; `CUT_BEFORE_TAILS` is if tails are long and sums short, for a product's
block has registers for few threads.
"""


class TemplateSeed:
    """Proposes, for each compiled reference that calls a library, programs that call none.

    Products of matrices, convolutions, attention, large windows, normalisations, scans and losses
    become Triton kernels with open tunables, with and without the compiler's pointwise kernels in
    their tails; its other fusions stay. On a GPU only.

    Args:
        variants: settings of the compiler whose code to take, of `VARIANTS`.

    Raises:
        UsageError: there is no such variant.
    """

    parents = 0
    is_seed = True

    def __init__(
        self, variants: Sequence[str] = ("default", "same_layout", "products", WHOLE)
    ) -> None:
        for variant in variants:
            check_choice("operators.*.variants", variant, VARIANTS)
        self.variants = tuple(variants)

    def propose(self, context: Context) -> Proposal | Declined | Failed:
        """The next one; a failure if it needs parts that only the compiler has."""
        number = context.facts.proposals(context.operator)
        found = next(islice(self._programs(context.task, context.device), number, None), None)
        return found or Declined("every compiled reference that calls a library has been proposed")

    def _programs(self, task: Task, device: Mapping[str, str]) -> Iterator[Proposal | Failed]:
        """All of them, kind by kind; equal ones once.

        It is known which of a task's eager convolutions round float32 to tf32. Our kernels do the
        same, since the judge measures errors by the reference's own; one variant rounds none.
        Operands are cut in the reference's layout, if the compiler has code for that.
        """
        seen: set[str] = set()
        failed: list[Compiled] = []
        arch = device.get("arch", "")
        exact = precisions(task.accumulation, arch)
        is_rounded = device.get("eager_convolutions") == "tf32"
        as_eager = precisions("tf32", arch) if is_rounded else exact
        kept = frozenset(device.get(EXACT_CONVOLUTIONS, "").split(";"))
        count = Limits.of(device).multiprocessors
        wanted = [c for c in task.compiled if c.variant in self.variants and has_products(c)]
        variants = {compiled.variant for compiled in wanted}
        for (kind, is_exact), compiled in product(_ORDER, wanted):
            if compiled in failed:
                continue
            if kind.how.is_packed and compiled.variant == "default" and _SAME_LAYOUT in variants:
                continue  # which copies images to a layout that parts have anyway
            about = exact, exact if is_exact else as_eager, kept, count
            converted = partial(_converted, task.source, task.name, compiled)
            source = converted(kind, *about)
            if kind is _Kind.TWO and source == converted(_Kind.CUT, *about):
                kind = _Kind.CUT  # no sum is long enough
            note = f"variant {compiled.variant}, own kernels{kind.note}"
            if isinstance(source, NotConvertible):
                failed.append(compiled)
                yield Failed(f"variant {compiled.variant}: {source}")
            elif source not in seen and (_CUTS in source or not kind.how.is_packed):
                seen.add(source)
                yield Proposal(program=Program(source), note=note)


@lru_cache(maxsize=256)  # every proposal goes through all that came before it
def _converted(
    source: str,
    name: str,
    compiled: Compiled,
    kind: _Kind,
    allowed: tuple[str, ...],
    convolutions: tuple[str, ...],
    kept: frozenset[str],
    multiprocessors: int,
) -> str | NotConvertible:
    products = Products(
        allowed,
        convolutions=convolutions,
        exact=kept,
        multiprocessors=multiprocessors,
        how=kind.how,
        fused=kind.fused,
    )
    try:
        return convert(source, name, compiled, products, allowed)
    except NotConvertible as error:
        return error
