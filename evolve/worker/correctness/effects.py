"""Effects of a reference besides its outputs, found out by calling it on copies.

A forward may write to its arguments, to buffers and to parameters; it may return its arguments; it
may draw random numbers; it may keep something that is no tensor of its state. Effects that can be
judged are part of the contract. Anything else is refused with the reason, as no candidate could
be judged by it.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from evolve.core.errors import UsageError
from evolve.worker.correctness.calls.dependence import (
    called_again,
    computed_anew,
    require_no_memory,
)
from evolve.worker.correctness.calls.differences import first_difference, same
from evolve.worker.correctness.calls.observed import (
    OTHER_SEED,
    SEED,
    Observed,
    attributes_of,
    cloned,
    forward_of,
    is_changed,
    listed,
    observed_new,
    where_different,
)
from evolve.worker.correctness.calls.written import is_written
from evolve.worker.correctness.kinds import check_inputs, require_separate_writes
from evolve.worker.ipc.pytree import flatten, tensors_of
from evolve.worker.reference.conditions import Conditions, call, is_needed, named_state
from evolve.worker.reference.seeding import seeded
from evolve.worker.reference.task_module import TaskCodeError, task_code

if TYPE_CHECKING:
    from evolve.worker.correctness.cases import LoadedCase

_NO_GRAD = ("does not require grad", "element 0 of tensors", "grad_fn", "requires_grad")
_OWN_GRADIENTS = (
    "Inputs come without gradients: let forward begin with x = x.detach().requires_grad_(), and "
    "return x.grad or torch.autograd.grad(...)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """Effects of calls of a case's reference, and how these are made.

    Attributes:
        conditions: How every model is called.
        changed: Places of the tensors among those of the inputs (the state comes last) that a call
            changes.
        names: Their names in prose.
        aliased: Places of the outputs that share memory with inputs, the state among them.
        kept: Places of the outputs in memory that all calls return, such as a weight's, which no
            call writes to.
        hidden: Plain attributes of the model that are random: a candidate does not get them.
        notes: Sentences about all that.
    """

    conditions: Conditions
    changed: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    aliased: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    hidden: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def hints(self) -> tuple[str, ...]:
        """Sentences about random attributes, for the author of a task or of a kernel."""
        return tuple(
            f"Model.{name} is random and no state_dict has it: ModelNew has the same values only "
            "if its constructor draws the same random numbers in the same order; make it a buffer"
            for name in self.hidden
        )

    @property
    def any(self) -> bool:
        """Whether a call has to be made or judged in another way than usual."""
        return bool(self.changed) or is_needed(self.conditions)


@torch.no_grad()
def find_effects(case: "LoadedCase", mode: str) -> Effects:
    """The effects of a case's reference, in the mode that the task asks for.

    Raises:
        UsageError: the reference fails, or has an effect that cannot be judged.
    """
    inputs = case.arguments(SEED)
    unseen = check_inputs(case.task, case.init_inputs(SEED), inputs)
    conditions, seen = _with_grad(case, Conditions(mode=mode))
    note = ""
    again = _again(case, seen, conditions)
    kept = _kept(case, conditions, _places(seen.outputs) & _places(again), seen)
    if case.check is None and first_difference(seen.outputs, again):
        conditions, note = _deterministic(case, conditions)
        seen = observed_new(case, conditions)
    if case.check is None:
        require_no_memory(case, seen, conditions)
    before, given, after = case.made(SEED, conditions), tensors_of(inputs), _once(seen.state)
    computed = computed_anew(case, conditions, seen)
    own = named_state(before)
    called = _argument_names(before, inputs)
    changed = [at for at, old in enumerate(given) if not same(old, seen.inputs[at])]
    require_separate_writes(case.task, given, seen.inputs, changed, called)
    written = [name for name, now in after.items() if is_changed(own, name, now)]
    conditions = replace(
        conditions, state=tuple(written), trains=before.training, writes=bool(changed or written)
    )
    _require_bindable(case, seen, conditions)
    effects = Effects(
        conditions=conditions,
        changed=(*changed, *range(len(given), len(given) + len(written))),
        names=(*(called[at] for at in changed), *(f"state {n}" for n in written)),
        aliased=_places_of_own(seen, [*seen.inputs, *(seen.state[name] for name in written)]),
        kept=kept,
        hidden=tuple(name for name in _random_attributes(case) if name not in computed),
    )
    notes = _notes(note, [called[at] for at in changed], written, effects)
    return replace(effects, notes=(*notes, *unseen))


def judged_model(model: nn.Module, effects: Effects) -> nn.Module:
    """The reference as the judge calls it: changed tensors follow those returned.

    Its class becomes one derived from its own, so names of parameters, copies and casts stay.
    """
    if not effects.any:
        return model
    own = type(model)

    def forward(self: nn.Module, *arguments: Any) -> Any:
        outcome = call(_Inner(self, own), effects.conditions, arguments)
        tensors = tensors_of(list(arguments))
        return outcome, [tensors[at] for at in effects.changed]

    model.__class__ = type(own.__name__, (own,), {"forward": forward})
    return model


class _Inner:
    """The model's own forward, under its own name for parameters."""

    def __init__(self, model: nn.Module, own: type[nn.Module]) -> None:
        self._model, self._own = model, own

    def __call__(self, *arguments: Any) -> Any:
        return self._own.forward(self._model, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def initial_state(case: "LoadedCase", seed: int, effects: Effects) -> tuple[Tensor, ...]:
    """The state before a call: as two calls on other inputs leave it. Zeros would hide too much."""
    names = effects.conditions.state
    conditions = replace(effects.conditions, state=())
    model = case.made(seed, conditions)
    for inputs in case.argument_sets(seed, 2):
        forward_of(case, model, inputs, conditions)
    known = named_state(model)
    return tuple(known[name].detach().clone() for name in names)


def _with_grad(case: "LoadedCase", conditions: Conditions) -> tuple[Conditions, Observed]:
    """A first call, with gradients if the reference does not run without."""
    try:
        return conditions, observed_new(case, conditions)
    except TaskCodeError as error:
        if not _lacks_grad(error):
            raise
    conditions = replace(conditions, grad=True)
    try:
        return conditions, observed_new(case, conditions)
    except TaskCodeError as error:
        if not _lacks_grad(error):
            raise
        raise TaskCodeError(error.said, _OWN_GRADIENTS) from error


def _lacks_grad(error: TaskCodeError) -> bool:
    return any(words in error.said for words in _NO_GRAD)


def _deterministic(case: "LoadedCase", conditions: Conditions) -> tuple[Conditions, str]:
    """The conditions under which the reference agrees with itself, and a note about them."""
    where = _where_random(case, conditions)
    if not where:
        return conditions, ""
    if case.made(SEED, conditions).training and conditions.mode == "constructed":
        calm = replace(conditions, mode="eval")
        if not _where_random(case, calm):
            return calm, (
                "judged in eval mode: as constructed, in training mode, the reference is random"
            )
    raise UsageError(
        f"task {case.task}: Model.forward is random, or remembers calls: two on the same inputs "
        f"differ in {where}, so no outcome can be compared with it. Give the file a "
        "check(output, reference, inputs) (see evolve.testing.checks), or draw the random numbers "
        "in get_inputs()."
    )


def _where_random(case: "LoadedCase", conditions: Conditions) -> str:
    """The difference between calls that differ in the random state only; empty if none."""
    first = observed_new(case, conditions)
    for draws in (1, 2):
        if where := where_different(first, observed_new(case, conditions, draws)):
            return where
    return ""


def _again(case: "LoadedCase", seen: Observed, conditions: Conditions) -> list[Tensor]:
    """Outputs of a further call of a model, its state restored, in another random state."""
    return called_again(case, seen.model, conditions, SEED, draws=1).outputs


def _kept(
    case: "LoadedCase", conditions: Conditions, places: set[int], seen: Observed
) -> tuple[int, ...]:
    """Outputs in memory that each call returns (`places`) and none overwrites.

    Raises:
        UsageError: a call writes to it.
    """
    if not places:
        return ()
    kept = [at for at, one in enumerate(seen.outputs) if _places([one]) & places]
    first = observed_new(case, conditions)
    memory = [first.outputs[at] for at in kept]
    inputs = [case.arguments(seed) for seed in (OTHER_SEED, SEED)]

    def call_again() -> None:
        for own in inputs:
            forward_of(case, first.model, cloned(own), conditions)

    if is_written(memory, call_again, same):
        raise UsageError(
            f"task {case.task}: two calls of Model.forward return the same memory, so the second "
            "overwrites the outcome of the first. Return a new tensor, .clone() for one."
        )
    return tuple(kept)


def _require_bindable(case: "LoadedCase", seen: Observed, conditions: Conditions) -> None:
    """UsageError if the model sees its state by other tensors than its parameters and buffers."""
    if not conditions.state:
        return
    model = case.made(SEED, conditions)
    state = tuple(named_state(model)[name].detach().clone() for name in conditions.state)
    inputs = [*cloned(case.arguments(SEED)), state]
    with task_code(case.task, "Model.forward"), seeded(0):
        outputs, _ = flatten(call(model, conditions, inputs))
    expected = [seen.state[name] for name in conditions.state]
    is_same = not first_difference(list(state), expected)
    if case.check is None and (first_difference(outputs, seen.outputs) or not is_same):
        raise UsageError(
            f"task {case.task}: Model.forward uses {listed(conditions.state)} by another tensor, "
            "such as a view that the constructor keeps. Use the parameter or buffer itself."
        )


def _once(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without further names of the same memory (tied weights)."""
    seen: dict[int, str] = {}
    for name, value in state.items():
        is_placed = value.layout is torch.strided and value.numel()
        seen.setdefault(value.data_ptr() if is_placed else id(value), name)
    return {name: state[name] for name in seen.values()}


def _places(tensors: Sequence[Tensor]) -> set[int]:
    """Of the memory that some tensors lie in."""
    return {_place(one) for one in tensors if one.layout is torch.strided and one.numel()}


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _places_of_own(seen: Observed, own: Sequence[Tensor]) -> tuple[int, ...]:
    """The outputs that lie in the memory of such tensors."""
    places = _places(own)
    return tuple(at for at, one in enumerate(seen.outputs) if _places([one]) & places)


def _random_attributes(case: "LoadedCase") -> tuple[str, ...]:
    """Plain attributes, and buffers that no state_dict has, that depend on the random state."""
    some, other = (case.constructed(SEED, draws=draws) for draws in (SEED, OTHER_SEED))
    return tuple(
        name for (name, a), (_, b) in zip(_unlisted(some), _unlisted(other), strict=False)
        if not same(a, b)
    )  # fmt: skip


def _unlisted(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from attributes_of(model)
    listed = model.state_dict()
    yield from ((name, value) for name, value in named_state(model).items() if name not in listed)


def _argument_names(model: nn.Module, inputs: Sequence[Any]) -> list[str]:
    """Names of the tensors of the inputs, by the parameters of forward."""
    names = list[str]()
    with suppress(ValueError):  # a function of torch's own has no signature
        names = list(inspect.signature(model.forward).parameters)
    names += [str(number) for number in range(len(names), len(inputs))]
    return [
        f"argument {name}" if value is tensor else f"argument {name}, tensor {number}"
        for name, value in zip(names, inputs, strict=False)
        for number, tensor in enumerate(tensors_of(value))
    ]


def _notes(
    note: str,
    changed: Sequence[str],
    written: Sequence[str],
    effects: Effects,
) -> Iterator[str]:
    if note:
        yield note
    if changed:
        yield f"writes to {listed(changed)}: judged after each call"
    if written:
        yield f"writes to {listed(written)}: judged after each call"
    if effects.aliased:
        yield (
            f"returns {_numbered(effects.aliased)} in the memory of its inputs or of state that it "
            "writes to: a candidate may too"
        )
    if effects.kept:
        yield (
            f"returns {_numbered(effects.kept)} in memory that all calls share, such as a "
            "weight's: a candidate may too"
        )
    if effects.conditions.grad:
        yield "called with gradients recorded, without which it does not run"


def _numbered(outputs: Sequence[int]) -> str:
    return f"output{'s' if len(outputs) > 1 else ''} {listed(list(map(str, outputs)))}"
