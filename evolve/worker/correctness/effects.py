"""Effects of a reference besides its outputs, found out by calling it on copies.

A forward may write to its arguments, to buffers and to parameters; it may return its arguments; it
may draw random numbers; it may keep something that is no tensor of its state. Effects that can be
judged are part of the contract. Anything else is refused with the reason, as no candidate could
be judged by it.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from evolve.core.errors import UsageError
from evolve.worker.correctness.differences import first_difference, same
from evolve.worker.correctness.kinds import (
    check_inputs,
    flat_outcome,
    require_outputs,
    require_separate_writes,
)
from evolve.worker.correctness.reference_runs import copied
from evolve.worker.correctness.written import is_written, other_values
from evolve.worker.ipc.pytree import flatten, map_tensors, tensors_of
from evolve.worker.reference.conditions import Conditions, bind, call, is_needed, named_state
from evolve.worker.reference.seeding import seeded
from evolve.worker.reference.task_module import TaskCodeError, task_code

if TYPE_CHECKING:
    from evolve.worker.correctness.cases import LoadedCase

_SEED, _OTHER_SEED = 0xEFFEC7, 0xEFFEC8
_MAX_NAMES = 4
_MAX_SPEC = 60  # characters
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


@dataclass(slots=True, eq=False)
class _Seen:
    """One call: its model, inputs and state afterwards, and its outputs."""

    model: nn.Module
    outputs: list[Tensor]
    spec: str
    inputs: list[Tensor]
    state: dict[str, Tensor]


@torch.no_grad()
def find_effects(case: "LoadedCase", mode: str) -> Effects:
    """The effects of a case's reference, in the mode that the task asks for.

    Raises:
        UsageError: the reference fails, or has an effect that cannot be judged.
    """
    inputs = case.arguments(_SEED)
    unseen = check_inputs(case.task, case.init_inputs(_SEED), inputs)
    conditions, seen = _with_grad(case, Conditions(mode=mode))
    note = ""
    again = _again(case, seen, conditions)
    kept = _kept(case, conditions, _places(seen.outputs) & _places(again), seen)
    if case.check is None and first_difference(seen.outputs, again):
        conditions, note = _deterministic(case, conditions)
        seen = _call(case, conditions)
    if case.check is None:
        _require_no_memory(case, seen, conditions)
    before, given, after = case.made(_SEED, conditions), tensors_of(inputs), _once(seen.state)
    computed = _computed_anew(case, conditions, seen)
    own = named_state(before)
    called = _argument_names(before, inputs)
    changed = [at for at, old in enumerate(given) if not same(old, seen.inputs[at])]
    require_separate_writes(case.task, given, seen.inputs, changed, called)
    written = [name for name, now in after.items() if _is_changed(own, name, now)]
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
        _forward(case, model, inputs, conditions)
    known = named_state(model)
    return tuple(known[name].detach().clone() for name in names)


def _with_grad(case: "LoadedCase", conditions: Conditions) -> tuple[Conditions, _Seen]:
    """A first call, with gradients if the reference does not run without."""
    try:
        return conditions, _call(case, conditions)
    except TaskCodeError as error:
        if not _lacks_grad(error):
            raise
    conditions = replace(conditions, grad=True)
    try:
        return conditions, _call(case, conditions)
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
    if case.made(_SEED, conditions).training and conditions.mode == "constructed":
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
    first = _call(case, conditions)
    for draws in (1, 2):
        if where := _where_different(first, _call(case, conditions, draws)):
            return where
    return ""


def _again(case: "LoadedCase", seen: _Seen, conditions: Conditions) -> list[Tensor]:
    """Outputs of a further call of a model, its state restored, in another random state."""
    return _called_again(case, seen.model, conditions, _SEED, draws=1).outputs


def _called_again(
    case: "LoadedCase", model: nn.Module, conditions: Conditions, seed: int, draws: int = 0
) -> _Seen:
    """A further call of a model that has its first state, on the inputs of this seed.

    Buffers that its calls have registered, or given another shape, stay.
    """
    before = named_state(case.made(_SEED, conditions))
    for name, now in named_state(model).items():
        if _is_changed(before, name, now.detach()):
            bind(model, [name], [before[name].detach()])
    return _seen(case, model, conditions, seed, draws)


def _kept(
    case: "LoadedCase", conditions: Conditions, places: set[int], seen: _Seen
) -> tuple[int, ...]:
    """Outputs in memory that each call returns (`places`) and none overwrites.

    Raises:
        UsageError: a call writes to it.
    """
    if not places:
        return ()
    kept = [at for at, one in enumerate(seen.outputs) if _places([one]) & places]
    first = _call(case, conditions)
    memory = [first.outputs[at] for at in kept]
    inputs = [case.arguments(seed) for seed in (_OTHER_SEED, _SEED)]

    def call_again() -> None:
        for own in inputs:
            _forward(case, first.model, _cloned(own), conditions)

    if is_written(memory, call_again, same):
        raise UsageError(
            f"task {case.task}: two calls of Model.forward return the same memory, so the second "
            "overwrites the outcome of the first. Return a new tensor, .clone() for one."
        )
    return tuple(kept)


def _require_no_memory(case: "LoadedCase", seen: _Seen, conditions: Conditions) -> None:
    """UsageError if a call depends on those before it by something else than its state."""
    model = _call(case, conditions).model
    other = _called_again(case, model, conditions, _OTHER_SEED)
    if other.spec != seen.spec and _forms(other) == _forms(seen):
        raise UsageError(
            f"task {case.task}: Model.forward returns a number or a text that depends on values: "
            f"{seen.spec[:_MAX_SPEC]} for some inputs, {other.spec[:_MAX_SPEC]} for others (T: a "
            "tensor). Return it as a tensor."
        )
    if not _where_different(seen, _called_again(case, copied(model), conditions, _SEED)):
        return
    if where := _where_different(seen, _called_again(case, model, conditions, _SEED)):
        raise UsageError(
            f"task {case.task}: Model.forward remembers something: a second call on the same "
            f"inputs differs in {where}. Keep state in buffers (self.register_buffer) of a fixed "
            "shape, or pass it as an argument."
        )
    raise UsageError(
        f"task {case.task}: a copy of Model (copy.deepcopy) has another outcome than Model, as it "
        "has with hooks that keep the module in a variable. Let forward pass values by returning "
        "them."
    )


def _is_changed(before: Mapping[str, Tensor], name: str, now: Tensor) -> bool:
    """Whether a call has changed a part of the state, which had values for it before."""
    if name not in before or before[name].shape != now.shape:
        return False
    return not same(before[name].detach(), now)


def _computed_anew(case: "LoadedCase", conditions: Conditions, seen: _Seen) -> list[str]:
    """Tensors besides parameters and buffers that each call gives new values, unseen the old.

    Raises:
        UsageError: a call changes one, and its outcome depends on the old values.
    """
    model = case.made(_SEED, conditions)
    old = dict(_attributes(model))
    found = [
        name for name, now in _attributes(seen.model)
        if name in old and not same(old[name], now)
    ]  # fmt: skip
    if not found:
        return []
    for name in found:  # the weight of `weight_norm`, say; it may lie in a parameter's memory
        owner, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(owner), attribute, other_values(old[name]))
    if case.check is not None or _where_different(seen, _seen(case, model, conditions, _SEED, 0)):
        raise UsageError(
            f"task {case.task}: Model.forward changes {_listed(found)}, which "
            f"{'is no buffer' if len(found) == 1 else 'are no buffers'}, so a candidate's cannot "
            "be compared. Make it one: self.register_buffer(name, tensor)."
        )
    return found


def _require_bindable(case: "LoadedCase", seen: _Seen, conditions: Conditions) -> None:
    """UsageError if the model sees its state by other tensors than its parameters and buffers."""
    if not conditions.state:
        return
    model = case.made(_SEED, conditions)
    state = tuple(named_state(model)[name].detach().clone() for name in conditions.state)
    inputs = [*_cloned(case.arguments(_SEED)), state]
    with task_code(case.task, "Model.forward"), seeded(0):
        outputs, _ = flatten(call(model, conditions, inputs))
    expected = [seen.state[name] for name in conditions.state]
    is_same = not first_difference(list(state), expected)
    if case.check is None and (first_difference(outputs, seen.outputs) or not is_same):
        raise UsageError(
            f"task {case.task}: Model.forward uses {_listed(conditions.state)} by another tensor, "
            "such as a view that the constructor keeps. Use the parameter or buffer itself."
        )


def _call(case: "LoadedCase", conditions: Conditions, draws: int = 0) -> _Seen:
    """One call of a new model on new inputs."""
    return _seen(case, case.made(_SEED, conditions), conditions, _SEED, draws)


def _seen(
    case: "LoadedCase", model: nn.Module, conditions: Conditions, seed: int, draws: int
) -> _Seen:
    """One call of a model on new inputs of this seed."""
    given = _cloned(case.arguments(seed))
    outputs, spec = flatten(_forward(case, model, given, conditions, draws))
    state = {name: value.detach() for name, value in named_state(model).items()}
    return _Seen(model, [output.detach() for output in outputs], spec, tensors_of(given), state)


def _forward(
    case: "LoadedCase",
    model: nn.Module,
    inputs: list[Any],
    conditions: Conditions,
    draws: int = 0,
) -> Any:
    with task_code(case.task, "Model.forward"), seeded(draws):
        outcome = call(model, replace(conditions, state=()), inputs)
    require_outputs(case.task, flat_outcome(case.task, outcome)[0])
    return outcome


def _cloned(inputs: list[Any]) -> list[Any]:
    return list(map_tensors(Tensor.clone, inputs))


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


def _places_of_own(seen: _Seen, own: Sequence[Tensor]) -> tuple[int, ...]:
    """The outputs that lie in the memory of such tensors."""
    places = _places(own)
    return tuple(at for at, one in enumerate(seen.outputs) if _places([one]) & places)


def _attributes(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Tensors of a model that are neither parameters nor buffers."""
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor) and value.layout is torch.strided:
                yield (f"{prefix}.{name}" if prefix else name), value.detach()


def _random_attributes(case: "LoadedCase") -> tuple[str, ...]:
    """Plain attributes, and buffers that no state_dict has, that depend on the random state."""
    some, other = (case.constructed(_SEED, draws=draws) for draws in (_SEED, _OTHER_SEED))
    return tuple(
        name for (name, a), (_, b) in zip(_unlisted(some), _unlisted(other), strict=False)
        if not same(a, b)
    )  # fmt: skip


def _unlisted(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from _attributes(model)
    listed = model.state_dict()
    yield from ((name, value) for name, value in named_state(model).items() if name not in listed)


def _forms(seen: _Seen) -> list[torch.Size]:
    return [tensor.shape for tensor in (*seen.inputs, *seen.outputs)]


def _where_different(first: _Seen, again: _Seen) -> str:
    if first.spec != again.spec:
        return "the nesting of its outputs"
    if where := first_difference(first.outputs, again.outputs):
        return where
    if first_difference(first.inputs, again.inputs):
        return "its writes to inputs"
    if first_difference(list(first.state.values()), list(again.state.values())):
        return "its writes to state"
    return ""


def _argument_names(model: nn.Module, inputs: Sequence[Any]) -> list[str]:
    """Names of the tensors of the inputs, by the parameters of forward."""
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
        yield f"writes to {_listed(changed)}: judged after each call"
    if written:
        yield f"writes to {_listed(written)}: judged after each call"
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
    return f"output{'s' if len(outputs) > 1 else ''} {_listed(list(map(str, outputs)))}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MAX_NAMES])
    more = len(names) - _MAX_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
