"""Compiled references in another language than Triton, as initial programs of a search."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product

from evolve.core.compiled import VARIANTS, WHOLE, Compiled
from evolve.core.devices import device_kind_of
from evolve.core.program import Program
from evolve.core.protocols import Context, Declined, Failed, Proposal
from evolve.core.source.normalise import normalised_digest
from evolve.core.task import Task
from evolve.languages.base import Language
from evolve.languages.registry import find_language
from operators.checks import check_choice
from operators.local.inductor import NotConvertible, convert, precisions
from operators.local.ports import PORTS
from operators.local.templates import Products, has_products, is_for_gpu
from operators.local.templates.operations.matmul import Launches

_TILED = ", tiles by TMA"
_TWO = f"{_TILED}, two products of parts"


class PortedSeed:
    """Proposes each of the run's compiled references, rewritten in a language, once.

    Reductions and pointwise kernels are the compiler's; products of matrices, which it leaves to
    libraries, are kernels of this project. On a GPU only.

    Args:
        language: of `PORTS`.
        variants: settings of the compiler whose code to take, of `VARIANTS`.

    Raises:
        UsageError: there is no such language or variant.
    """

    parents = 0
    is_seed = True

    def __init__(
        self, language: str = "gluon", variants: Sequence[str] = ("default", "looped", "unsplit")
    ) -> None:
        check_choice("operators.*.language", language, [*PORTS])
        for variant in variants:
            check_choice("operators.*.variants", variant, [v for v in VARIANTS if v != WHOLE])
        self.language = language
        self.variants = tuple(variants)

    def propose(self, context: Context) -> Proposal | Declined | Failed:
        """The next one; a failure if a kernel cannot be rewritten."""
        where = context.device.get("device_class", "")
        if where and not (kind := device_kind_of(where)).is_gpu:
            return Declined(f"{self.language} runs on a GPU only, and device={kind.name} is none")
        number = context.facts.proposals(context.operator)
        found = next(islice(self._programs(context.task, context.device), number, None), None)
        return found or Declined("every compiled reference has been proposed")

    def _programs(self, task: Task, device: Mapping[str, str]) -> Iterator[Proposal | Failed]:
        """All in order; programs that differ in comments or layout alone are proposed once."""
        if why := _missing(find_language(self.language), device):
            yield Failed(f"the judge's interpreter cannot run {self.language}: {why}")
            return
        seen: set[str] = set()
        failed: list[Compiled] = []
        port = PORTS[self.language]
        all_kinds = {"": port.products, _TILED: port.tiled, _TWO: port.stretched}
        kinds = {kind: products for kind, products in all_kinds.items() if products}
        wanted = [one for one in task.compiled if one.variant in self.variants and is_for_gpu(one)]
        for (kind, products), compiled in product(kinds.items(), wanted):
            if compiled in failed:
                continue
            about = f"variant {compiled.variant}{kind}"
            try:
                source = self._ported(task, compiled, device, products)
            except NotConvertible as error:
                failed.append(compiled)
                yield Failed(f"{about} in {self.language}: {error}")
                continue
            if (digest := normalised_digest(source)) not in seen:
                seen.add(digest)
                yield Proposal(program=Program(source), note=f"{about}, in {self.language}")

    def _ported(
        self, task: Task, compiled: Compiled, device: Mapping[str, str], launches: Launches
    ) -> str:
        port, capability = PORTS[self.language], device.get("capability", "")
        major = int(capability.partition(".")[0] or port.products_on.start)
        if has_products(compiled) and major not in port.products_on:
            newer = "x" if len(port.products_on) == 1 else "0 or newer"
            raise NotConvertible(
                f"its products are for GPUs of capability {port.products_on.start}.{newer}, and "
                f"this one has {capability}"
            )
        known = precisions(task.accumulation, device.get("arch", ""))
        substitute = Products(known, how=launches)
        return convert(task.source, task.name, compiled, substitute, known, port.rewrite)


def _missing(language: Language, device: Mapping[str, str]) -> str:
    """The package that the judge's interpreter lacks, with the remedy; empty if none is known."""
    if "languages" not in device:
        return ""
    listed = (one.partition(" ") for one in device["languages"].split(", "))
    return language.missing_among({**device, **{name: version for name, _, version in listed}})
