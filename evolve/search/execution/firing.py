"""Mechanisms that a run ends too early for: this is said before it starts."""

from collections.abc import Iterable, Iterator

from evolve.core.protocols import Progress, TerminationRule


def too_late(parts: Iterable[tuple[str, object]], termination: TerminationRule) -> Iterator[str]:
    """A line for every setting of a part whose mechanism the run cannot come to.

    Args:
        parts: by the setting that each stands under. One with a mechanism that waits says so by an
            attribute `fires_at`: the first step at which each can fire, by the name of its setting.
        termination: the rule that ends the run.
    """
    for where, part in parts:
        for name, step in getattr(part, "fires_at", {}).items():
            ends = (termination.check(_after(number)) for number in range(1, step + 1))
            if reason := next(filter(None, ends), None):
                yield (
                    f"{where}.{name} has no effect: it would first act at step {step}, and the run "
                    f"ends before ({reason}); lower it, or raise the limit"
                )


def _after(steps: int) -> Progress:
    return Progress(proposals=steps, evaluations=steps, evaluations_at_best=steps)
