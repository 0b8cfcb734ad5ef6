"""Programs in another language: which one is asked for, how often, and what becomes of the answer.

Invariants: a language that the device runs, whose package is installed and that the parent is not
in, each once for a parent;
the contract of the prompt is that language's; the archive keeps programs in both where language is
an axis.
"""

from dataclasses import replace

import pytest

from archives import MapElites
from evolve.app import components
from evolve.core.devices import CUDA
from evolve.core.model import CallStatus, Exchange, ModelReply, ModelRequest
from evolve.core.program import Program
from evolve.core.protocols import Declined, Proposal
from evolve.languages.base import Package
from evolve.languages.gluon import GLUON
from evolve.languages.nvrtc import NVRTC
from evolve.languages.registry import describe, timed_on
from evolve.languages.triton import TRITON
from evolve.testing.facts import MemoryFacts
from evolve.testing.parts import make_context, make_elite
from operators import Edit, Translate
from operators.knowledge import load
from operators.llm import rewrite
from tests.composing import composed
from tests.languages.programs import honest

GPU = {"device_class": "cuda: NVIDIA H100"}
CPU = {"device_class": "cpu: test, 2 cores"}
PARENT = Program(honest("gpu_triton_split_k"))
CHILD = Program(honest("gpu_gluon_tensor_cores"))
OTHERS = {one for one in timed_on(CUDA) if one is not TRITON and not one.missing_package()}


def context(device: dict[str, str] = GPU, done: tuple[str, ...] = (), ticket: int = 0):
    facts = MemoryFacts()
    facts.judge(PARENT)
    for number, name in enumerate(done):
        child = Program(f"{CHILD.source}\nNUMBER = {number}\n")
        facts.judge(child, parents=[PARENT.digest], note=f"into {name}; it is shorter")
    elite = make_elite(PARENT.digest)
    return make_context(facts, [elite], device=device, sequence=ticket)


def asked(operator: Translate, *given, **named) -> ModelRequest:
    request = operator.propose(context(*given, **named))
    assert isinstance(request, ModelRequest), request
    return request


def test_each_language_of_the_device_but_the_parents_has_its_turn():
    into = {asked(Translate(), ticket=ticket).memo["into"] for ticket in range(40)}
    assert into == {one.name for one in OTHERS}


def test_the_prompt_has_the_contract_of_the_language_that_is_asked_for():
    text = asked(Translate(language="gluon")).messages[-1].content
    assert GLUON.contract in text
    assert TRITON.contract not in text
    assert "which is in Triton, in Gluon" in text
    assert "its kernels in Gluon" in text


def test_a_parent_is_translated_into_each_language_once():
    first, *rest = sorted(one.name for one in OTHERS)
    done = tuple(rest)
    assert {asked(Translate(), done=done, ticket=n).memo["into"] for n in range(9)} == {first}
    assert isinstance(Translate().propose(context(done=(first, *rest))), Declined)


def test_a_request_without_an_answer_yet_counts_too():
    given = context()
    request = Translate(language="gluon").propose(given)
    assert isinstance(request, ModelRequest)
    given.facts.asked(given.operator, request)
    assert isinstance(Translate(language="gluon").propose(given), Declined)


def test_the_prompt_quotes_the_notes_on_the_language_to_their_end():
    """Those on the operation are about programs that exist, and more fitting by their tags."""
    settings = composed("task=x", "operators=[translate]", "operators.translate.language=gluon")
    operator = components.build_operators(settings)["translate"].operator
    text = asked(operator).messages[-1].content
    (notes,) = (one for one in load() if one.id == "gluon-kernels")
    assert notes.body.strip().splitlines()[-1] in text


@pytest.mark.parametrize(
    "operator", [Translate(language="triton"), Translate(language="gluon")], ids=["own", "done"]
)
def test_a_language_that_is_named_is_the_only_one(operator):
    assert isinstance(operator.propose(context(done=("gluon",))), Declined)


def test_a_language_whose_package_is_missing_is_not_drawn(monkeypatch):
    package = Package(module="nowhere_to_be_found", distribution="nowhere")
    lacking = replace(NVRTC, packages=(package,))
    monkeypatch.setattr(rewrite, "timed_on", lambda kind: [TRITON, GLUON, lacking])
    assert {asked(Translate(), ticket=ticket).memo["into"] for ticket in range(9)} == {"gluon"}


def test_a_device_with_one_language_has_nothing_to_translate_into():
    facts, source = MemoryFacts(), honest("softmax_online")
    facts.judge(Program(source))
    elite = make_elite(Program(source).digest)
    assert isinstance(Translate().propose(make_context(facts, [elite], device=CPU)), Declined)


@pytest.mark.parametrize("parent", [PARENT, CHILD, Program("import torch\n")])
def test_edits_need_a_parent_in_their_language_or_in_torch_alone(parent):
    facts = MemoryFacts()
    facts.judge(parent)
    given = make_context(facts, [make_elite(parent.digest)], device=GPU, operator="mine")
    found = Edit(language="gluon").propose(given)
    assert isinstance(found, Declined) == (parent is PARENT)
    if isinstance(found, Declined):
        assert "operators.mine.language=gluon" in found.reason
        assert "add operators=[...,translate]" in found.reason
    assert isinstance(Edit().propose(given), ModelRequest)


def test_an_answer_is_proposed_with_the_language_in_its_note():
    operator, state = Translate(language="gluon"), context()
    request = operator.propose(state)
    assert isinstance(request, ModelRequest)
    text = f"It is shorter.\n\n```python\n{CHILD.source}```\n"
    reply = ModelReply(status=CallStatus.COMPLETED, text=text)
    outcome = operator.interpret(state, [Exchange(request, reply)]).outcome
    assert isinstance(outcome, Proposal)
    assert outcome.program.source.strip() == CHILD.source.strip()
    assert outcome.parents == (PARENT.digest,)
    assert outcome.note.startswith("into gluon; It is shorter")


def test_an_archive_with_language_as_an_axis_keeps_programs_in_both():
    archive = MapElites(axes={"language": [one.name for one in timed_on(CUDA)]})
    for program, speedup in ((PARENT, 3.0), (CHILD, 1.5)):
        told = {"language": describe(program.source)["language"]}
        elite = make_elite(program.digest, speedup=speedup, descriptors=told)
        assert archive.offer(elite)
    assert {elite.program for elite in archive.slots().values()} == {PARENT.digest, CHILD.digest}
