"""`evolve tell`: take results from elsewhere into a run.

The kind of a file or folder is recognised by its content, so that one verb takes all kinds.
"""

import argparse
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evolve.app.database import open_store
from evolve.app.text import speedup_text
from evolve.cli.args import add_store, parser
from evolve.core.errors import UsageError
from evolve.report.audit import weak_task_text
from evolve.report.text import count_text, one_line

if TYPE_CHECKING:
    from evolve.evaluation.batch import Verdicts
    from evolve.search.engine import Search

MAX_SHOWN = 20  # problems printed one by one

Teller = Callable[["Search", Path], Iterator[str]]


def main(words: Sequence[str]) -> int:
    """Tell the run the results that the words name."""
    options = _parse(words)
    path = Path(options.what)
    teller = _teller(path)
    from evolve.app.attach import attach

    with open_store(options.store, read_only=False) as store:
        run = store.run(options.run)
        with attach(store, run) as search:
            for line in teller(search, path):
                print(line)
    return 0


def _parse(words: Sequence[str]) -> argparse.Namespace:
    arguments = parser(
        "tell",
        "Take results from elsewhere into a run: the folder (or one shard) of verdicts that "
        "`python -m evolve.worker batch` left, or the folder of `evolve ask` with replies beside "
        "the prompts. Telling again changes nothing.",
    )
    arguments.add_argument("run", metavar="RUN", help="name of the run")
    arguments.add_argument("what", metavar="PATH", help="a folder or file")
    add_store(arguments)
    return arguments.parse_args(words)


def _teller(path: Path) -> Teller:
    """The reader of the files there.

    Raises:
        UsageError: nothing is there, or nothing that can be read.
    """
    from evolve.app.manual.files import is_requests
    from evolve.app.manual.replies import tell_replies
    from evolve.worker.service.batch_files import is_answers

    tellers: Mapping[Callable[[Path], bool], Teller] = {
        is_answers: tell_verdicts,
        is_requests: tell_replies,
    }
    if not path.exists():
        raise UsageError(f"there is no file or folder {path}; check the path")
    for is_it, teller in tellers.items():
        if is_it(path):
            return teller
    raise UsageError(
        f"{path} holds neither verdicts nor replies; name the folder that `python -m evolve.worker "
        "batch` or `evolve ask` wrote to"
    )


def tell_verdicts(search: "Search", path: Path) -> Iterator[str]:
    """Verdicts of a batch; reports their effect, and the unusable ones."""
    from evolve.evaluation.batch import read_verdicts
    from evolve.search.verdicts import tell_verdicts as tell

    found = read_verdicts(path)
    yield from _compiled(found, search)
    if cost := found.references.get(search.run.task.revision):
        search.store.record_reference(search.run.id, cost.to_json())
    outcome = tell(search, found)
    yield f"{count_text(outcome.told, 'verdict')} told, {outcome.added} into the archive"
    if outcome.known:
        yield f"{count_text(outcome.known, 'verdict')} known already"
    yield from _refusals(found, search)
    for problem in outcome.problems[:MAX_SHOWN]:
        yield f"not told: {one_line(problem)}"
    if len(outcome.problems) > MAX_SHOWN:
        yield f"not told: {len(outcome.problems) - MAX_SHOWN:,} more"
    yield from _standing(search, outcome.waiting)


def _compiled(found: "Verdicts", search: "Search") -> Iterator[str]:
    """Keep the compiled reference of the task with the run; report the missing variants."""
    from evolve.app.compiler_seeds import usable

    answers = found.compiled.get(search.run.task.revision, {})
    if not answers or search.run.task.compiled:
        return
    compiled, reasons = usable(search.run.task, search.run.config, answers)
    search.store.record_compiled(search.run.id, compiled)
    yield f"{count_text(len(compiled), 'variant')} of the compiled reference, to start from"
    for reason in reasons:
        yield f"variant {one_line(reason)}"


def _refusals(found: "Verdicts", search: "Search") -> Iterator[str]:
    """The judge's refusals, a line per reason; the findings of the task's audit are kept."""
    reasons: dict[str, list[str]] = {}
    for name, reason in found.refused.items():
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        yield (
            f"refused: {shown}: {one_line(reason)}; mend it, and judge into a new folder, for "
            "this one holds the answer"
        )
    findings = found.audits.get(search.run.task.revision)
    if findings is not None:
        search.store.record_audit(search.run.id, findings)
    if weak := weak_task_text(findings or ()):
        yield weak


def _standing(search: "Search", waiting: int) -> Iterator[str]:
    """The state of the run, and the next command."""
    from evolve.store.champion import champion

    winner, name = champion(search.store, search.run), shlex.quote(search.run.name)
    if winner is not None:
        proof = "verified" if winner.verified else "not verified"
        yield f"best so far {speedup_text(winner.ratio)} over {search.baseline}, {proof}"
    if waiting:
        yield f"{count_text(waiting, 'step')} still without a verdict; `evolve batch` asks again"
    yield f"next        evolve batch {name} -o in.jsonl (or, at the end, with --verify)"
