"""Which steps may become rows: by the rules, and by the runs and tasks that their prompts show."""

from collections.abc import Collection, Iterable, Mapping

from evolve.trajectories.decontamination.exclusions import Reason, Rules
from evolve.trajectories.decontamination.holdout import HeldOut
from evolve.trajectories.exporters.manifest import Source
from evolve.trajectories.step import Step


class Admission:
    """Says why a step becomes no row.

    Args:
        rules: of the export.
        sources: the runs of the export, and the others that their prompts may show.
        tested: the families of the test split.
        texts: of the tasks of these families, by name.
    """

    def __init__(
        self,
        rules: Rules,
        sources: Iterable[Source],
        tested: Collection[str],
        texts: Mapping[str, str],
    ) -> None:
        self._rules = rules
        self._sources = {(one.name, one.task_revision): one for one in sources}
        self._tested = tested
        self._tests = HeldOut(sources=texts)

    def __call__(self, step: Step) -> Reason | None:
        return self._rules.of_step(step) or self._of_shown(step)

    def _of_shown(self, step: Step) -> Reason | None:
        """Why the step may not be trained on for what its prompt shows."""
        shown = [self._sources.get(origin) for origin in step.shown_runs]
        if None in shown:
            return Reason.SHOWS_UNKNOWN
        known = [one for one in shown if one is not None]
        if any(one.excluded for one in known):
            return Reason.SHOWS_EXCLUDED
        if self._sources[step.run, step.task.revision].family in self._tested:
            return None
        if any(one.family in self._tested for one in known):
            return Reason.SHOWS_TEST
        quoted = self._tests.shown_in(message.content for message in step.prompt)
        return None if quoted is None else Reason.SHOWS_TEST
