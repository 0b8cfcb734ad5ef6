"""How thoroughly a candidate is judged: a request's fidelity, resolved once into a frozen plan."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from evolve.core.evaluation import Fidelity, Stage
from evolve.core.measurement import WIDE
from evolve.worker.devices.base import Device

Purpose = Literal["search", "verify"]
"""Each purpose has hidden inputs of its own."""


class Interim(NamedTuple):
    """After so many pairs: Walsh averages left out at either end, or the alpha spent by t."""

    pairs: int
    left_out: int = 0
    alpha: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The steps of an evaluation, and when its times are exact enough.

    Attributes:
        fidelity: the plan's name in requests and records.
        stage: the last stage that a correct candidate has passed.
        purpose: of its hidden inputs.
        own_inputs: how many of the task's own family a candidate is checked on.
        family_inputs: how many of each other family.
        interims: analyses of the times; without any, no time is taken.
        rough_half_width: at which an interval is exact enough whatever the device can do, as is one
            that excludes 1.
        is_brief: whether shorter blocks will do, or fewer long ones.
        is_final: whether others rely on the verdict: fresh processes are asked again, several
            rounds are made ready together, and tools look at it.
        profiles: whether the kernels that run are looked at.
        weighs: whether the memory beside inputs and outputs is measured.
        records: whether calls are timed as CUDA graphs too, where plain calls decide.
    """

    fidelity: Fidelity
    stage: Stage = Stage.TIMING
    purpose: Purpose = "search"
    own_inputs: int = 3
    family_inputs: int = 1
    interims: tuple[Interim, ...] = ()
    rough_half_width: float | None = None
    is_brief: bool = False
    is_final: bool = False
    profiles: bool = False
    weighs: bool = False
    records: bool = False

    @property
    def pairs(self) -> tuple[int, ...]:
        """Numbers of process pairs at which an interim analysis is made."""
        return tuple(interim.pairs for interim in self.interims)


_SCREENING = (Interim(1, alpha=0.025), Interim(3, alpha=0.025))

PLANS: Mapping[Fidelity, Plan] = {
    Fidelity.CHECK: Plan(fidelity=Fidelity.CHECK),
    # It decides on no winner.
    Fidelity.SCREEN: Plan(fidelity=Fidelity.SCREEN, stage=Stage.SCREEN, interims=_SCREENING),
    Fidelity.REWARD: Plan(
        fidelity=Fidelity.REWARD,
        interims=(Interim(1, alpha=0.01), Interim(3, alpha=0.02), Interim(7, alpha=0.02)),
        rough_half_width=0.05,
        is_brief=True,
        profiles=True,
    ),
    Fidelity.SEARCH: Plan(
        fidelity=Fidelity.SEARCH,
        interims=(
            Interim(1, alpha=0.01),
            Interim(2, alpha=0.02),
            Interim(4, alpha=0.01),
            Interim(8),
        ),
        profiles=True,
        weighs=True,
        records=True,
    ),
    Fidelity.VERIFY: Plan(
        fidelity=Fidelity.VERIFY,
        stage=Stage.VERIFY,
        purpose="verify",
        own_inputs=5,
        family_inputs=2,
        interims=(Interim(8, 1), Interim(14, 14), Interim(32, 138)),  # the last if sides are close
        is_final=True,
        profiles=True,
        weighs=True,
        records=True,
    ),
}

LONG_BLOCKS = PLANS[Fidelity.VERIFY]
"""A plan whose blocks are as long as any."""


def plan_for(fidelity: Fidelity, device: Device) -> Plan:
    """The plan of a fidelity on a device; if wide intervals will do, a search has a screen's."""
    plan = PLANS[fidelity]
    if plan.is_final or device.half_width < WIDE:
        return plan
    is_search = fidelity is Fidelity.SEARCH
    return replace(plan, is_brief=True, interims=_SCREENING if is_search else plan.interims)
