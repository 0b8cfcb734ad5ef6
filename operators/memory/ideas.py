"""The steps that led to the best programs of finished runs, and models' summaries of the runs."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from evolve.core.measurement import Ratio
from evolve.core.protocols import Attempt
from evolve.core.recalled import Kind, Recalled
from evolve.core.run_store import RunStore
from evolve.store.champion import Champion, champion
from operators.memory.past import Past, language_of
from operators.prompting.composition import SUMMARY, summary_of
from operators.prompting.prompt_context import ratio_text
from operators.quoting import shortened

MAX_CHARS = 400  # of a note
MAX_SKILL_CHARS = 1200
_GAINS = 3  # of a run
_LINE = 32  # ancestors of the best program that are looked at
_SUMMARIES = 4  # newest ones, of which some may be empty


def ideas(store: RunStore, pasts: Sequence[Past]) -> Iterator[Recalled]:
    """The best program of every run, then of all runs the steps that gained most."""
    gains: list[tuple[Ratio, Recalled]] = []
    for past in pasts:
        winner = champion(store, past.run)
        if winner is None:
            continue
        line = store.line(past.run.id, winner.program, _LINE)
        language = language_of(store, winner.program)
        yield _best(past, winner, line[-1:], language)
        gains += sorted(_gains(past, line, language), key=lambda found: -found[0].low)[:_GAINS]
    for _, idea in sorted(gains, key=lambda found: -found[0].low):
        yield idea


def _best(past: Past, winner: Champion, own: Sequence[Attempt], language: str) -> Recalled:
    verified = "verified" if winner.verified else "not verified"
    maker = f", made by {own[0].operator}" if own else ""
    values = ", ".join(f"{name}={value}" for name, value in sorted(winner.assignment.items()))
    note = shortened(own[0].note, MAX_CHARS) if own else ""
    return Recalled(
        kind=Kind.IDEA,
        about=(
            f"best program, {ratio_text(winner.ratio, past.run.baseline)}, {verified}: "
            f"{past.where}{maker}"
        ),
        words="\n".join(part for part in (note, values) if part),
        language=language,
        runs=past.origin,
    )


def _gains(past: Past, line: Sequence[Attempt], language: str) -> Iterator[tuple[Ratio, Recalled]]:
    """Steps of a line that were faster than the one before by their whole interval, with a note."""
    for before, after in pairwise(line):
        if before.ratio is None or after.ratio is None or not after.note:
            continue
        gain = after.ratio / before.ratio
        if gain.is_gain:
            spread = f"95 % interval {gain.low:.2f} to {gain.high:.2f}, indirect"
            about = f"{gain.value:.2f}x as fast as what it was made from ({spread}): {past.where}"
            note = shortened(after.note, MAX_CHARS)
            yield (
                gain,
                Recalled(
                    kind=Kind.IDEA, about=about, words=note, language=language, runs=past.origin
                ),
            )


def skills(store: RunStore, pasts: Sequence[Past]) -> Iterator[Recalled]:
    """The last summary of every run whose models wrote some (operator `summarise`)."""
    for past in pasts:
        found = store.exchanges(past.run.id, SUMMARY, SUMMARY, _SUMMARIES)
        summary = next(filter(None, map(summary_of, found)), "")
        if summary:
            about = f"summary that a model wrote of {past.where}"
            words = shortened(summary, MAX_SKILL_CHARS)
            yield Recalled(kind=Kind.SKILL, about=about, words=words, runs=past.origin)
