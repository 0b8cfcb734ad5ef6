"""Rewards of single steps, as papers define them.

All go by a whole verdict: a program that is not correct, not custom, or refuted since has failed,
also if a paper's own checker would have let it pass. Every speedup enters as `worth` has it.
"""

import math
import statistics

from evolve.core.evaluation import CaseSamples
from evolve.core.measurement import middle
from evolve.languages.triton import launches_triton
from evolve.trajectories.rewards.reward import Grade, Reward, grade, worth
from evolve.trajectories.step import Step

_EAGER, _COMPILE = "eager", "compile"
_CANDIDATE = "candidate"
_FASTER = 1 / (1 - 0.05)  # ratio of a time that is 5 % below the baseline's


def kernel_smith(step: Step) -> float | None:
    """Time of the parent over time of the child; 0 for a child that fails."""
    found = grade(step)
    if found is not Grade.CORRECT:
        return None if found is None else 0.0
    return worth(step.gain)


def dr_kernel(step: Step) -> float | None:
    """Correctness, speedup up to 3, and the share of device time in the candidate's own kernels.

    R = C + C min(T_ref / T, 3) + C PR, so 0 to 5. The published training code has the factor 0.5
    on each of the three terms, and counts the profiler's host time in PR; here it is device time
    only.
    """
    found = grade(step)
    if found is not Grade.CORRECT or step.evaluation is None:
        return None if found is None else 0.0
    speedup, coverage = worth(step.ratio), step.evaluation.descriptors.get("coverage")
    if speedup is None or not isinstance(coverage, (int, float)):
        return None
    return 1.0 + min(speedup, 3.0) + coverage


def kevin(step: Step) -> float | None:
    """The score of one turn: 0.3 for a correct program, plus its speedup."""
    found = grade(step)
    if found is not Grade.CORRECT:
        return None if found is None else 0.0
    speedup = worth(step.ratio)
    return None if speedup is None else 0.3 + speedup


def autotriton(step: Step) -> float | None:
    """1 for a correct program that defines and launches a Triton kernel, else 0.

    The paper's rule by the syntax tree, and the judge's: custom kernels made the outcome.
    """
    found = grade(step)
    if found is not Grade.CORRECT:
        return None if found is None else 0.0
    return float(launches_triton(step.source)) if step.source else None


def cuda_agent(step: Step) -> float | None:
    """Milestones: -1 failed, 1 correct, 2 more than 5 % faster than eager, 3 also than compile.

    None for a program that is faster than eager if `compile` was not measured.
    """
    found = grade(step)
    if found is not Grade.CORRECT:
        return None if found is None else -1.0
    eager, compiled = worth(step.ratio_to(_EAGER)), worth(step.ratio_to(_COMPILE))
    if eager is None:
        return None
    if eager <= _FASTER:
        return 1.0
    if compiled is None:
        return None
    return 3.0 if compiled > _FASTER else 2.0


def mtmc(step: Step) -> float | None:
    """A ladder: builds or not (0.1, -1), runs right or not (0.5, -0.5), is faster (1).

    Scores of earlier stages are added: no program ends at "builds", so its 0.1 would be lost
    otherwise. Faster than the main parent, or than the baseline if there is none. The decay with
    the number of the step, whose factor is not published, is left out.
    """
    found = grade(step)
    if found is None:
        return None
    if found <= Grade.BUILT_NOT:
        return -1.0
    if found is Grade.WRONG:
        return 0.1 - 0.5
    gain = worth(step.gain if step.parent else step.ratio)
    if gain is None:
        return None
    return 0.1 + 0.5 + (1.0 if gain > 1 else 0.0)


def cuda_l1(step: Step) -> float | None:
    """Speedup as the median of buckets' speedups, rounded towards 1.00; 0 for a failure.

    A bucket is a pair of processes whose blocks were timed in turns, of any evaluation that says
    how fast the program is; its speedup is as the judge takes it, of means without outliers.
    Several cases count by their weights, as a geometric mean. `smoothed` then takes out the
    spikes.
    """
    found = grade(step)
    if found is not Grade.CORRECT:
        return None if found is None else 0.0
    speedup = worth(step.ratio)
    if speedup is None or speedup == 1.0:
        return speedup
    weight_of = _weights(step)
    means = {case: _bucket_means(step, case) for case in weight_of}
    if not means or not all(means.values()):
        return None
    logs = (weight_of[case] * math.log(statistics.median(one)) for case, one in means.items())
    return towards_one(math.exp(math.fsum(logs) / sum(weight_of.values())))


def towards_one(ratio: float) -> float:
    """Two decimals, the rest dropped towards 1.00.

    >>> towards_one(1.239), towards_one(0.941)
    (1.23, 0.95)
    """
    hundredths = round(ratio * 100, 9)
    return (math.floor(hundredths) if ratio > 1 else math.ceil(hundredths)) / 100


def _weights(step: Step) -> dict[str, float]:
    cases = () if step.evaluation is None else step.evaluation.cases
    return {case.name: case.weight for case in cases if case.timed}


def _bucket_means(step: Step, case: str) -> list[float]:
    """Of one case: for every pair of processes the ratio of their blocks' times."""
    means = []
    for judged in step.timings(step.baseline):
        samples = CaseSamples.from_json(judged.samples.get(case))
        for times in (samples.ms, *(other.ms for other in samples.separate)):
            if step.baseline not in times or _CANDIDATE not in times:
                continue
            pairs = zip(times[step.baseline], times[_CANDIDATE], strict=True)
            means += [middle(reference) / middle(candidate) for reference, candidate in pairs]
            break
    return means


TURN_REWARDS = (
    Reward(
        name="kernel_smith@1",
        source="Kernel-Smith, arXiv 2603.28342",
        compute=kernel_smith,
        reads=("gain",),
    ),
    Reward(
        name="dr_kernel@1",
        source="Dr. Kernel, arXiv 2602.05885",
        compute=dr_kernel,
        reads=("ratio", "coverage"),
    ),
    Reward(
        name="kevin@1",
        source="Kevin, arXiv 2507.11948, section 3.2",
        compute=kevin,
        reads=("ratio",),
    ),
    Reward(
        name="autotriton@2",
        source="AutoTriton, arXiv 2507.05687",
        compute=autotriton,
        needs_texts=True,
    ),
    Reward(
        name="cuda_agent@1",
        source="CUDA Agent, arXiv 2602.24286",
        compute=cuda_agent,
        baseline=_COMPILE,
        reads=("compile",),
    ),
    Reward(name="mtmc@1", source="QiMeng-Kernel, arXiv 2511.20100", compute=mtmc, reads=("gain",)),
    Reward(
        name="cuda_l1@2",
        source="CUDA-L1, arXiv 2507.14111",
        compute=cuda_l1,
        needs_samples=True,
        reads=("ratio",),
    ),
)
