"""`evolve knowledge`: the documents that prompts may quote, and a new one from a run."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evolve.app.database import open_store
from evolve.app.text import table
from evolve.cli.args import add_run, add_store, parser
from evolve.core.errors import UsageError
from evolve.report.text import make_folder, printable, write_text

if TYPE_CHECKING:
    from evolve.core.run_store import RunStore
    from evolve.store import RunRow
    from operators.knowledge import Document
    from operators.knowledge.skill import RunRecord

ACTIONS = """\
  list                  every document with its tags
  show ID               one document
  search WORD ...       documents that hold the words
  search --error wrong_value --device nvidia/hopper ...
                        documents for a diagnosis, as operators ask, with scores
  distill RUN -o FILE   a document from a run's facts, for you to finish
"""

DIAGNOSIS = {  # its parts, with an example of each
    "bottleneck": "memory",
    "error": "wrong_value",
    "category": "softmax",
    "device": "nvidia/hopper",
    "language": "triton",
    "precision": "fp32",
}


def main(words: Sequence[str]) -> int:
    """Show the knowledge base, or write a document for it."""
    arguments = parser("knowledge", f"The knowledge base of prompts.\n\n{ACTIONS}")
    arguments.formatter_class = argparse.RawDescriptionHelpFormatter
    actions = arguments.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, add in (("list", _no_words), ("show", _one_id), ("search", _words)):
        action = actions.add_parser(name, prog=f"evolve knowledge {name}")
        action.add_argument(
            "--folder", action="append", default=[], help="your own documents; may be repeated"
        )
        action.add_argument("--json", action="store_true", help="for machines")
        add(action)
    action = actions.add_parser("distill", prog="evolve knowledge distill")
    add_run(action)
    action.add_argument("-o", "--output", metavar="FILE", required=True, help="a .md file")
    add_store(action)
    options = arguments.parse_args(words)
    act = {"list": _list, "show": _show, "search": _search, "distill": _distill}
    return act[options.action](options)


def _no_words(action: argparse.ArgumentParser) -> None:
    action.description = "List every document, by part."


def _one_id(action: argparse.ArgumentParser) -> None:
    action.description = "Print one document with its sources."
    action.add_argument("id", metavar="ID", help="as `evolve knowledge list` prints it")


def _words(action: argparse.ArgumentParser) -> None:
    action.description = "Find documents by words, or by a diagnosis."
    action.add_argument("words", nargs="*", metavar="WORD", help="to be found in the text")
    for kind, example in DIAGNOSIS.items():
        action.add_argument(
            f"--{kind}", default="", metavar=kind.upper(), help=f"of the diagnosis, e.g. {example}"
        )


def _list(options: argparse.Namespace) -> int:
    from operators.knowledge import Part, load

    order = list(Part)
    documents = sorted(load(options.folder), key=lambda found: (order.index(found.part), found.id))
    _print([(None, document) for document in documents], as_json=options.json)
    return 0


def _show(options: argparse.Namespace) -> int:
    from operators.knowledge import load

    documents = {document.id: document for document in load(options.folder)}
    if options.id not in documents:
        raise UsageError(
            f"there is no document '{options.id}'; `evolve knowledge list` shows their names"
        )
    document = documents[options.id]
    if options.json:
        print(json.dumps(_record(None, document) | {"body": document.body}, indent=1))
        return 0
    print(f"# {document.title}\n")
    print(f"{document.part}; {_tags(document)}; {_tested(document)}")
    if document.checked:
        print("checked against " + ", ".join(f"{n} {v}" for n, v in document.checked.items()))
    print(f"\n{printable(document.body)}\nSources:")
    for source in document.sources:
        print(f"- {source.title}: {source.url}")
    return 0


def _search(options: argparse.Namespace) -> int:
    from operators.knowledge import Diagnosis, load, rank, search
    from operators.knowledge.document import VALUES

    documents = load(options.folder)
    asked = {kind: getattr(options, kind) for kind in VALUES}
    if bool(options.words) == any(asked.values()):
        raise UsageError(
            "search needs either words or a diagnosis (--error, --bottleneck, --category, "
            "--device, --language, --precision); see `evolve knowledge search --help`"
        )
    for kind, value in asked.items():
        allowed = VALUES[kind]
        if value and allowed is not None and value not in allowed:
            raise UsageError(f"--{kind} is one of {', '.join(sorted(allowed))}, got '{value}'")
    found = (
        search(documents, options.words) if options.words else rank(documents, Diagnosis(**asked))
    )
    _print(list(found), as_json=options.json)
    return 0


def _print(found: "Sequence[tuple[float | None, Document]]", *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([_record(value, document) for value, document in found], indent=1))
        return
    if not found:
        print("nothing fits")
        return
    scored = found[0][0] is not None
    rows = [
        (*((f"{value:.2f}",) if value is not None else ()), document.id, document.part,
         _tested(document), _tags(document))
        for value, document in found
    ]  # fmt: skip
    print(table((*(("SCORE",) if scored else ()), "ID", "PART", "TESTED", "TAGS"), rows))


def _record(value: float | None, document: "Document") -> dict[str, object]:
    return {
        "id": document.id,
        "title": document.title,
        "part": document.part,
        "tags": {kind: list(tags) for kind, tags in document.tags.items()},
        "checked": dict(document.checked),
        "tested": document.tested,
        "sources": [{"title": source.title, "url": source.url} for source in document.sources],
        "path": document.path,
        **({} if value is None else {"score": value}),
    }


def _tags(document: "Document") -> str:
    return "; ".join(f"{kind} {' '.join(tags)}" for kind, tags in document.tags.items()) or "any"


def _tested(document: "Document") -> str:
    return {"true": "code run", "false": "from sources"}.get(document.tested, "untested hardware")


def _distill(options: argparse.Namespace) -> int:
    from operators.knowledge import parse, skeleton

    if not options.output.endswith(".md"):
        raise UsageError(f"output {options.output!r} is no Markdown file; let its name end in .md")
    with open_store(options.store) as store:
        text = skeleton(_recorded(store, store.run(options.run)))
    parse(text, options.output)  # unreadable output is not written
    make_folder(Path(options.output).parent, "-o")  # of documents, which a first one begins
    path = write_text(Path(options.output), text)
    print(f"{path}\nEdit it, and let prompts quote it: knowledge.folders=[{path.parent}]")
    return 0


def _recorded(store: "RunStore", run: "RunRow") -> "RunRecord":
    from operators.knowledge.skill import RunRecord

    steps = list(store.steps(run.id))
    judged = [step.sequence for step in steps if step.status is not None]
    if not judged:
        raise UsageError(f"run {run.name} has judged nothing yet; there is nothing to distill")
    evaluation = store.evaluation(run.id, judged[0])
    assert evaluation is not None

    def feedback(sequence: int) -> str:
        found = store.evaluation(run.id, sequence)
        return found.feedback if found else ""

    known = ("torch", "triton", "tvm_ffi", "compiler", "driver", "cuda")
    return RunRecord(
        name=run.name,
        task=run.task,
        baseline=run.baseline,
        device=evaluation.device_class,
        versions={name: evaluation.environment[name] for name in known
                  if evaluation.environment.get(name)},
        steps=steps,
        source=store.source,
        feedback=feedback,
    )  # fmt: skip
