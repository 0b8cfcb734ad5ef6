"""The first lines of a report: what was won, what that means, and what to be careful about."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from evolve.core.evaluation import CaseResult, Fidelity, Status
from evolve.core.measurement import CLEARLY_SLOWER, FAR_WIDTHS
from evolve.report.audit import findings_of, weak_task_text
from evolve.report.lineage import speedup
from evolve.report.run.facts import RunFacts
from evolve.report.text import baseline_name, count_text, ratio_text, span_text, time_text
from evolve.store.champion import Champion

_STRONGEST = "namespaces"  # of the sandbox tiers


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """`figure` is the large print; `outcome` is one of gain, even, slower, none."""

    outcome: str
    figure: str
    claim: str
    span: str
    meaning: str


def headline(facts: RunFacts) -> Headline:
    """The outcome of the run, told as it is: a gain, none, or nothing yet."""
    if facts.champion is None:
        return _without_champion(facts)
    champion, ratio, against = facts.champion, facts.champion.ratio, baseline_name(facts.baseline)
    span = f"95 % interval {span_text(ratio)}"
    if ratio.is_gain:
        outcome, claim = "gain", f"the speed of {against}"
    elif ratio.high < 1:
        outcome, claim = "slower", f"the speed of {against}: slower, no gain was found"
    else:
        outcome, claim = "even", f"the speed of {against}: no measurable gain"
    return Headline(
        outcome=outcome,
        figure=ratio_text(ratio.value),
        claim=claim,
        span=span,
        meaning=_meaning(champion, facts.baseline, outcome) + _reservation(facts),
    )


def _meaning(champion: Champion, baseline: str, outcome: str) -> str:
    against = baseline_name(baseline)
    if outcome == "even":
        return (
            f"The interval contains 1, so this search did not show that its best correct kernel "
            f"is faster than {against} on this machine."
        )
    if outcome == "slower":
        return f"The fastest correct kernel of this search is slower than {against}; keep that one."
    cases = [case for case in champion.evaluation.cases if case.timed]
    percent = 100 / champion.ratio.value
    share = f"A call takes {percent:.{0 if percent >= 10 else 1}f} % of the time it takes {against}"
    if len(cases) == 1 and {"candidate", baseline} <= {*cases[0].times_ms}:
        times = cases[0].times_ms
        share += (
            f" ({time_text(times['candidate'].value)} instead of "
            f"{time_text(times[baseline].value)})"
        )
    elif len(cases) > 1:
        share += f", weighted over {count_text(len(cases), 'timed case')}"
    proof = " It was measured again after it had been chosen." if champion.verified else ""
    return (
        f"{share}, both measured in turns on the same machine; the whole interval lies above 1."
        f"{proof}"
    )


def _reservation(facts: RunFacts) -> str:
    weak = findings_of(facts.run.config)
    return " The task is weak, so this does not count as a strict result." if weak else ""


def _without_champion(facts: RunFacts) -> Headline:
    judged = [step for step in facts.proposals if step.status is not None]
    reasons = Counter(
        "correct, but without a kernel of its own"
        if step.status is Status.CORRECT and not step.custom
        else "correct, but not timed in full"
        if step.status is Status.CORRECT
        else str(step.status).replace("_", " ")
        for step in judged
    )
    if not judged:
        figure, meaning = "No result yet", "Nothing has been evaluated in this run."
    else:
        common = ", ".join(f"{reason} ({count:,})" for reason, count in reasons.most_common(3))
        figure = "No correct kernel"
        meaning = (
            f"None of {count_text(len(judged), 'evaluation')} gave a kernel that is correct, "
            f"custom and timed. Most frequent outcomes: {common}."
        )
    return Headline(outcome="none", figure=figure, claim="", span="", meaning=meaning)


def slower_cases(facts: RunFacts) -> list[CaseResult]:
    """The champion's timed cases whose interval does not reach 1."""
    if facts.champion is None:
        return []
    return [
        case
        for case in facts.champion.evaluation.cases
        if facts.baseline in case.ratios and case.ratios[facts.baseline].high < 1
    ]


def caveats(facts: RunFacts) -> list[str]:
    """What a careful reader should know before quoting the headline; full sentences."""
    found = [*_of_run(facts), *_of_task(facts)]
    if facts.champion:
        found = [*_of_champion(facts, facts.champion), *found]
    weak = weak_task_text(findings_of(facts.run.config))
    return [*([weak] if weak else []), *facts.opponent.troubles(), *found]


def _of_champion(facts: RunFacts, champion: Champion) -> Iterator[str]:
    slower = slower_cases(facts)
    if slower and champion.ratio.high >= 1:  # else the headline says it already
        names = ", ".join(case.name for case in slower)
        yield (
            f"{count_text(len(slower), 'case')} slower than {baseline_name(facts.baseline)}: "
            f"{names}. The headline averages over cases; look at the table."
        )
    if not champion.verified:
        timed = sum(1 for step in facts.steps if speedup(step, facts.baseline))
        chosen = (
            f" It is the best of {timed:,} noisy measurements, so its true speedup is probably a "
            "little lower."
        )
        yield "The winner was not verified in fresh processes." + (chosen if timed > 1 else "")
    target = float((champion.evaluation.environment or {}).get("half_width", 1.0))
    is_wide = champion.ratio.half_width > FAR_WIDTHS * target
    if is_wide and champion.ratio.high >= CLEARLY_SLOWER:
        yield (
            f"The interval is wide: ±{100 * champion.ratio.half_width:.1f} %, the aim is "
            f"±{100 * target:.3g} %. A busy machine is the usual cause."
        )
    evidence: dict[str, list[str]] = {}
    for label in champion.evaluation.labels:
        evidence.setdefault(label.name, []).append(label.evidence)
    for name, found in evidence.items():
        more = f" and {len(found) - 1:,} more" if len(found) > 1 else ""
        yield f"The winner carries the label {name}: {found[0][:300]}{more}"
    if champion.evaluation.suite is False:
        yield "The task's own suite rule rejects the winner, though our checks accept it."


def _of_task(facts: RunFacts) -> Iterator[str]:
    untimed = sum(
        1
        for step in facts.proposals
        if step.status is Status.CORRECT and step.custom and not step.ratios
    )
    if untimed:
        yield (
            f"{count_text(untimed, 'correct program')} without a time, such as Triton kernels on a "
            "CPU, which only interprets them; they cannot win."
        )
    sandbox = facts.environment.get("sandbox")
    if sandbox and sandbox != _STRONGEST:
        yield f"Candidates ran in the sandbox tier “{sandbox}”; this host allows no stronger one."


def _of_run(facts: RunFacts) -> Iterator[str]:
    progress = facts.progress
    if facts.run.state != "finished":
        state = "has not ended" if facts.run.state == "running" else f"was {facts.run.state}"
        yield f"The run {state}; what follows is what has been recorded so far."
    if progress.screens:
        yield (
            f"Cheap screens ({progress.screens:,}) are not counted as evaluations and never decide "
            "the winner."
        )
    infra = sum(1 for step in facts.steps if step.status is Status.INFRA)
    if infra:
        yield f"Our own machinery failed in {count_text(infra, 'evaluation')}; no score was given."
    if progress.usd is None:
        yield "The cost of model calls is unknown, because a model has no price."
    failed = _failed_verifications(facts)
    if failed:
        yield (
            f"{count_text(failed, 'leading program')} did not pass verification in fresh processes "
            "and took no part in the headline."
        )


def _failed_verifications(facts: RunFacts) -> int:
    return sum(
        1
        for step in facts.steps
        if step.fidelity is Fidelity.VERIFY
        and step.status not in (None, Status.CORRECT, Status.INFRA)
    )
