"""Our kernels for operations that Inductor leaves to vendors' libraries.

These are products of matrices and convolutions (`extern_kernels`), attention, and pooling over
large windows. Each call of the output code becomes a launch of a template, with tunables of its
own; Inductor's fusions around it stay unchanged.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from evolve.core.compiled import Compiled, CompiledCase
from operators.local.inductor.kernels import Kernel
from operators.local.inductor.names import free_name
from operators.local.inductor.reading import OutputCode, Statement
from operators.local.templates.calls import CALLS, Calls, Settings
from operators.local.templates.fusion import fuse
from operators.local.templates.launch import Launch
from operators.local.templates.tensors import Tensors

_GPU = "torch.cuda._DeviceGuard("  # in code for the CPU nothing is guarded
_OWN_TUNABLES = 8  # launches that differ; where there are more, all of a family share them


def is_for_gpu(compiled: Compiled) -> bool:
    """Whether the code was written for one."""
    return any(_GPU in case.code for case in compiled.cases)


def has_products(compiled: Compiled) -> bool:
    """Whether the code, written for a GPU, has a call that a template may do."""
    code = "".join(case.code for case in compiled.cases)
    return is_for_gpu(compiled) and any(call in code for call in CALLS)


@dataclass(frozen=True, slots=True)
class Products(Settings):
    """Replaces the calls of a case; an `operators.local.inductor.Substitute`.

    Attributes:
        fused: whether pointwise kernels go into the tails of our kernels if possible.
    """

    fused: bool = field(default=False, kw_only=True)
    _names: dict[str, str] = field(default_factory=dict, init=False)
    _losses: dict[str, int] = field(default_factory=dict, init=False)

    def __call__(
        self, case: CompiledCase, code: OutputCode, taken: set[str]
    ) -> tuple[OutputCode, dict[str, Kernel]]:
        """The code without the calls that a template can do, and the kernels."""
        tensors = Tensors(case.arguments, code.statements)
        calls = Calls(code.statements, tensors, self, self._losses)
        found = [(each, calls.replacement(each.node)) for each in code.statements]
        if self.fused:
            found = fuse(found, code.kernels, tensors, self._names)
        names = _Prefixes([one for _, new in found if new for one in new.launches], taken)
        statements: list[Statement] = []
        kernels: dict[str, Kernel] = {}
        for statement, new in found:
            if new is None:
                statements.append(statement)
                continue
            prefix = names[new.launches] if new.launches else ""
            written = [*new.before, *(n for one in new.launches for n in one.statements(prefix))]
            written += new.after
            operations = [statement.operations, *[()] * len(written)][: len(written)]
            statements += map(Statement, written, operations)
            for one in new.launches:
                own = one.described(prefix)
                known = kernels.setdefault(f"{prefix}{one.kernel}", own)
                if _choices(own) > _choices(known):  # of all that share tunables, the largest
                    kernels[f"{prefix}{one.kernel}"] = own
        return replace(code, statements=tuple(statements)), kernels


def _choices(kernel: Kernel) -> int:
    return sum(len(blocks.choices) for blocks in kernel.blocks.values())


class _Prefixes:
    """Of names of tunables. Launches that agree have one, and if there are many all of a family.

    Args:
        launches: all of the program.
        taken: names of its kernels, to which those of tunables are added.
    """

    def __init__(self, launches: Sequence[Launch], taken: set[str]) -> None:
        self._are_many = len({one.signature for one in launches if one.tunables}) > _OWN_TUNABLES
        self._taken = taken
        self._known: dict[tuple[object, ...], str] = {}

    def __getitem__(self, launches: Sequence[Launch]) -> str:
        key = tuple(one.family if self._are_many else one.signature for one in launches)
        if key not in self._known:
            tuned = next((one for one in launches if one.tunables), launches[0])
            name = free_name(tuned.kernel.removesuffix("_kernel"), self._taken)
            self._taken.add(name)
            self._known[key] = f"{name.upper()}_"
        return self._known[key]
