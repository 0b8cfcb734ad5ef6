"""The report of a run: one HTML file that needs nothing else, now or in ten years.

Markup stands in templates only, with automatic escaping; Python hands over plain values. Text of
candidates passes `printable` first. A content security policy in the page forbids every request,
and every script but its own.
"""

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evolve import __version__
from evolve.core.run_store import RunStore
from evolve.report.run import (
    acceptance_rates,
    archive_map,
    best_lineage,
    cases,
    cost_report,
    headline,
    reproduce,
)
from evolve.report.run.facts import RunFacts, gather
from evolve.report.run.lineage_picture import lineage_picture
from evolve.report.run.progress_chart import progress_chart
from evolve.report.run.whole_change import whole_change
from evolve.report.text import baseline_name, count_text, descriptor_text, printable, write_text

if TYPE_CHECKING:
    import jinja2

TEMPLATES = Path(__file__).parents[1] / "templates"
MAX_SOURCE_CHARS = 80_000
MAX_FEEDBACK_CHARS = 4_000
SECTIONS = (
    ("change", "What changed"),
    ("cases", "Cases"),
    ("progress", "Progress"),
    ("path", "Way to the best"),
    ("lineage", "Lineage"),
    ("archive", "Archive"),
    ("funnel", "Proposals"),
    ("operators", "Operators"),
    ("budget", "Cost"),
    ("kernel", "Kernel"),
    ("reproduce", "Reproduce"),
    ("machine", "Machine"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The champion's source as shown: `lines` of a bounded part, `cut` characters left out."""

    digest: str
    lines: list[str]
    cut: int
    assignment: list[tuple[str, str]]
    descriptors: list[tuple[str, str]]


def write_report(store: RunStore, run_name: str | None, path: str | Path) -> Path:
    """Write the report of a run (None: the newest) and return its path.

    The same store gives the same bytes.

    Raises:
        UsageError: no such run, or the path cannot be written.
    """
    return write_text(Path(path), render(gather(store, run_name)))


def render(facts: RunFacts) -> str:
    """The report as HTML text."""
    environment = page_environment()
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    heat_map = archive_map.heat_map(facts.slots) if facts.slots else None
    return environment.get_template("report.html.j2").render(
        version=__version__,
        style=styles("report.css"),
        script=trusted(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        sections=SECTIONS,
        run=facts.run,
        task=facts.run.task,
        task_lines=_lines(facts.run.task.source),
        baseline=baseline_name(facts.baseline),
        verified=facts.champion is not None and facts.champion.verified,
        headline=headline.headline(facts),
        caveats=headline.caveats(facts),
        key_facts=cost_report.key_facts(facts),
        feedback=_lines(facts.example.feedback[:MAX_FEEDBACK_CHARS]) if facts.example else [],
        cases=cases.case_lines(facts),
        comparisons=cases.comparison_lines(facts),
        chart=progress_chart(facts.steps, facts.baseline),
        change=whole_change(
            [entry.step for entry in facts.path if not entry.verifies],
            facts.sources,
            facts.baseline,
        ),
        shapes=facts.shapes,
        best_path=best_lineage.shown(facts),
        episodes=facts.episodes,
        lineage=lineage_picture(
            facts.steps,
            facts.baseline,
            list(dict.fromkeys(str(entry.step.program) for entry in facts.path)),
            facts.slots.values(),
        ),
        heat_map=heat_map,
        ranked=archive_map.ranked(facts.slots),
        archive_size=len(facts.slots),
        funnel=acceptance_rates.funnel(facts),
        operators=cost_report.operator_lines(facts),
        budget=cost_report.budget_lines(facts),
        kernel=_kernel(facts),
        commands=reproduce.commands(facts),
        machine=reproduce.environment_lines(facts),
        config=reproduce.config_lines(facts.run.config),
    )


def _kernel(facts: RunFacts) -> Kernel | None:
    if facts.champion is None:
        return None
    source = facts.sources[facts.champion.program]
    return Kernel(
        digest=facts.champion.program,
        lines=_lines(source),
        cut=max(len(source) - MAX_SOURCE_CHARS, 0),
        assignment=[(name, str(value)) for name, value in facts.champion.assignment.items()],
        descriptors=[
            (name, descriptor_text(name, value))
            for name, value in sorted(facts.champion.evaluation.descriptors.items())
        ],
    )


def _lines(source: str) -> list[str]:
    shown = source[:MAX_SOURCE_CHARS].replace("\r\n", "\n")
    return [best_lineage.shortened(line) for line in shown.split("\n")]


def styles(*names: str) -> Any:
    """Style sheets of the templates' folder, one after another, as markup."""
    return trusted("".join((TEMPLATES / name).read_text(encoding="utf-8") for name in names))


def page_environment() -> "jinja2.Environment":
    """The environment of all pages' templates: escaping is automatic, undefined names raise."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters["count"] = count_text
    environment.filters["grouped"] = "{:,}".format
    return environment


def _finalize(value: Any) -> Any:
    """Every expression of a template passes here; markup made by our own macros stays."""
    return value if hasattr(value, "__html__") else printable(str(value))


def trusted(text: str) -> Any:
    """Text of our own that templates take as markup."""
    import markupsafe

    return markupsafe.Markup(text)
