"""Records whose optional facts are left out.

Invariant: a fact that is left out is none, nothing or unknown, except for those listed here.
"""

import dataclasses
import importlib
import pkgutil

import evolve.core
from evolve.core.evaluation import Fidelity
from evolve.core.model import Sampling
from evolve.core.run_store.steering import SteeringKind

STATED = {
    "Attempt.fidelity": Fidelity.SEARCH,
    "Case.timed": True,
    "Case.weight": 1.0,
    "Context.baseline": "eager",
    "DeviceKind.evaluation_s": 10.0,
    "Elite.evaluations": 1,
    "EvaluationRequest.fidelity": Fidelity.SEARCH,
    "ModelCard.weight": 1.0,
    "ModelReply.attempts": 1,
    "ModelRequest.purpose": "propose",
    "ModelRequest.samples": 1,
    "ModelRequest.sampling": Sampling(),
    "OperationCost.calls": 1,
    "Proposal.fidelity": Fidelity.SEARCH,
    "Steering.state": SteeringKind.CONTINUE,
    "Step.fidelity": Fidelity.SEARCH,
    "Task.accumulation": "ieee",
    "Task.precision": "task",
    "Task.size": "cpu",
}


def defaults():
    """Every default of a dataclass in the package, by class and field."""
    for module in pkgutil.walk_packages(evolve.core.__path__, "evolve.core."):
        for kind in vars(importlib.import_module(module.name)).values():
            if isinstance(kind, type) and dataclasses.is_dataclass(kind):
                yield from _of_record(kind)


def _of_record(kind: type):
    for field in dataclasses.fields(kind):
        if field.default is not dataclasses.MISSING:
            yield f"{kind.__name__}.{field.name}", field.default
        elif field.default_factory is not dataclasses.MISSING:
            yield f"{kind.__name__}.{field.name}", field.default_factory()


def test_a_fact_that_is_left_out_is_none_unless_it_is_stated_here():
    assert {name: value for name, value in defaults() if value} == STATED
