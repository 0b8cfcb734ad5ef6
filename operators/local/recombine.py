"""Children of two parents, without a model."""

import ast
import random
from collections.abc import Sequence
from dataclasses import dataclass

from evolve.core.errors import UsageError
from evolve.core.program import Assignment, Program, TunableValue, instance_digest
from evolve.core.protocols import Context, Declined, Proposal
from evolve.core.source.normalise import normalised_digest
from evolve.core.source.pytext import Edit, Module, apply
from evolve.core.source.tunable_sites import declaration
from evolve.core.source.tunables import Space, Tunable, parse
from operators.source.transplantable_functions import Transplant, splice, transplants


@dataclass(frozen=True, slots=True)
class Recombine:
    """Moves whole functions of the second parent into the first.

    The functions are Python functions and classes of the module, and C++ functions in its source
    strings, that both parents define under one name and signature. The child's tunables have the
    choices of both parents, and each starts at the value of one of them. A child that says the
    same as a parent is declined.
    """

    @property
    def parents(self) -> int:
        return 2

    def propose(self, context: Context) -> Proposal | Declined:
        if len(context.parents) < 2:
            return Declined("needs two parents")
        first, second = context.parents[:2]
        receiver = Module(context.facts.source(first.program))
        donor = Module(context.facts.source(second.program))
        found = transplants(receiver, donor)
        if not found:
            return Declined("the parents have no function in common that differs and fits")
        chosen = _some(found, context.rng)
        try:
            source = _widened(splice(receiver, chosen), donor)
            space = parse(source)
        except UsageError as error:
            return Declined(f"the parts do not fit together: {error}")
        if normalised_digest(source) in map(normalised_digest, (receiver.source, donor.source)):
            return Declined("the child says the same as a parent")
        program = Program(source)
        values = [
            parse(receiver.source).complete(first.assignment),
            parse(donor.source).complete(second.assignment),
        ]
        assignment = _mixed(space, values, context.rng)
        if context.facts.seen(instance_digest(program.digest, assignment)):
            return Declined("the child is known already")
        return Proposal(
            program=program,
            assignment=assignment,
            parents=(first.program, second.program),
            note="took " + ", ".join(transplant.name for transplant in chosen),
        )


def _some(found: Sequence[Transplant], rng: random.Random) -> list[Transplant]:
    """At least one transplant, in the order of the receiver's text."""
    chosen = set(rng.sample(range(len(found)), rng.randint(1, len(found))))
    return [transplant for index, transplant in enumerate(found) if index in chosen]


def _mixed(
    space: Space, parents: Sequence[Assignment], rng: random.Random
) -> dict[str, TunableValue]:
    """For each tunable the value of one of the parents that has a valid one, else the default."""
    mixed = space.defaults
    for tunable in space:
        values = [parent[tunable.name] for parent in parents if _allows(tunable, parent)]
        if values:
            mixed[tunable.name] = rng.choice(values)
    return mixed


def _allows(tunable: Tunable, assignment: Assignment) -> bool:
    value = assignment.get(tunable.name)
    return any(choice == value and type(choice) is type(value) for choice in tunable.choices)


def _widened(source: str, donor: Module) -> str:
    """The source with the donor's choices added to those of its own declared tunables."""
    module = Module(source)
    own, theirs = declaration(module), declaration(donor)
    if own is None or theirs is None or not isinstance(own.statement.value, ast.Dict):
        return source
    edits = []
    for key, node in zip(own.choices, own.statement.value.values, strict=True):
        choices, more = own.choices[key], theirs.choices.get(key, ())
        added = [choice for choice in more if choice not in choices]
        if added and type(added[0]) is type(choices[0]):
            edits.append(Edit(*module.span(node), repr(_in_order([*choices, *added]))))
    return apply(source, edits)


def _in_order(choices: list[TunableValue]) -> tuple[TunableValue, ...]:
    """Numbers rising, so that neighbours are near; words as they came."""
    numbers = [choice for choice in choices if not isinstance(choice, str)]
    return tuple(sorted(numbers)) if len(numbers) == len(choices) else tuple(choices)
