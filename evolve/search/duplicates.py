"""Finds proposals that a run holds already, before they reach the judge."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from evolve.core.errors import UsageError
from evolve.core.evaluation import Fidelity
from evolve.core.program import Program
from evolve.core.protocols import Archive, Failed, Proposal, Trial
from evolve.core.run_store import RunStore
from evolve.core.source.tunables import parse, render
from evolve.store.tables.attempts import DUPLICATE


@dataclass(frozen=True, slots=True)
class DuplicateCheck:
    """Compares proposals with the recorded ones of a run, and with the archive.

    Attributes:
        store: where the proposals are recorded.
        run: the run, by number.
        archive: may refuse a text that is too near to a held program (`Archive`).
    """

    store: RunStore
    run: int
    archive: Archive

    def checked(self, proposal: Proposal) -> Proposal | Failed:
        """The proposal, or why the judge need not see it.

        A program that differs from a known one in layout, comments and tunable values only is that
        one: its instance with these values is judged.
        """
        try:
            render(proposal.program.source, proposal.assignment)
        except UsageError as error:
            return Failed(f"it cannot be rendered: {error}", proposal.parents)
        instance, trials = self._as_instance(proposal)
        if not instance.is_reevaluation and (why := self._duplicate(instance, trials)):
            rest = "" if instance is proposal else "; it differs in layout or comments only"
            return Failed(f"{DUPLICATE}{why}{rest}", proposal.parents)
        return instance

    def _as_instance(self, proposal: Proposal) -> tuple[Proposal, Sequence[Trial]]:
        """The same proposal, as an instance of the known program that it is but for values.

        With the trials of its program.
        """
        program = proposal.program
        trials = self.store.trials(self.run, program.digest)
        if trials:
            return proposal, trials
        near = self.store.near_duplicate_of(self.run, program)
        if near is None:
            return proposal, ()
        values = parse(program.source).complete(proposal.assignment)
        note = f"program {near[:12]} with other values" if values else f"program {near[:12]}"
        instance = replace(
            proposal,
            program=Program(self.store.source(near)),
            assignment=values,
            note="; ".join(part for part in (note, proposal.note) if part),
        )
        return instance, self.store.trials(self.run, near)

    def _duplicate(self, proposal: Proposal, trials: Sequence[Trial]) -> str:
        """Why the proposal is nothing new; empty if it is.

        A screened instance may be asked for again at full fidelity.
        """
        program = proposal.program
        if not trials:
            near = self._near(program.source)
            return f"program {near[:12]} is too near for the archive" if near else ""
        space = parse(program.source)
        known = any(
            space.complete(trial.assignment) == space.complete(proposal.assignment)
            and (trial.fidelity is not Fidelity.SCREEN or proposal.fidelity is Fidelity.SCREEN)
            for trial in trials
        )
        return f"program {program.digest[:12]} was tried with the same values" if known else ""

    def _near(self, source: str) -> str | None:
        """A held program that the archive does not tell the text from (`Archive`)."""
        near = getattr(self.archive, "near_duplicate_of", None)
        if near is None:
            return None
        describes = getattr(self.archive, "describes", {})
        found: str | None = near({name: describe(source) for name, describe in describes.items()})
        return found
