"""The report.

1. It is one file that asks the network for nothing, and stays under 2 MB for 1,000 programs.
2. Whatever candidates, tasks or users write is text: no markup, no script, nothing invisible.
3. It never claims more than was measured: no gain, a slower case, no winner are said as such.
4. The same store gives the same bytes.
"""

import base64
import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from evolve.core.errors import UsageError
from evolve.core.evaluation import CaseResult, Fidelity, Label, Status
from evolve.core.lineage import OPPONENT
from evolve.core.program import Program
from evolve.core.protocols import Failed, Proposal
from evolve.core.task import Task
from evolve.report.run.html import SECTIONS, write_report
from evolve.report.text import TIMES
from evolve.store import Store
from tests.composing import composed
from tests.report.filling import CONFIG, ENVIRONMENT, Filling, evaluation, ratio, source
from tests.report.page import Page, read

NAMES = [name for name, _ in SECTIONS]


def report(filled: Filling, folder: Path) -> str:
    return write_report(filled.store, filled.name, folder / "r.html").read_text(encoding="utf-8")


@pytest.fixture
def page(searched: Filling, tmp_path: Path) -> Page:
    return read(report(searched, tmp_path))


def one_program(store: Store, log_speedup: float, config=CONFIG, **fields) -> Filling:
    filled = Filling(store=store, config=config)
    verdict = replace(
        evaluation(filled.task, Status.CORRECT, Fidelity.SEARCH, log_speedup), **fields
    )
    filled.step("seed", Proposal(program=Program(source(0, 1))), verdict, "0")
    return filled


def assert_offline(page: Page) -> None:
    for tag, name, value in page.attributes:
        assert name not in {"src", "srcset", "action", "formaction", "poster", "data"}, tag
        if name in {"href", "xlink:href"}:
            assert value.startswith("#")
    assert not {tag for tag, _ in page.tags} & {"link", "iframe", "object", "embed", "img", "base"}
    assert "@import" not in "".join(page.styles)
    assert "url(" not in "".join(page.styles)
    assert not re.search(r"\b(fetch|XMLHttpRequest|import|WebSocket)\b", "".join(page.scripts))


def test_a_report_asks_the_network_for_nothing(page: Page) -> None:
    assert_offline(page)


def test_the_page_forbids_every_request_and_every_script_but_its_own(page: Page) -> None:
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv"))
    digest = base64.b64encode(hashlib.sha256("".join(page.scripts).encode()).digest()).decode()
    assert policy.startswith("default-src 'none'")
    assert f"script-src 'sha256-{digest}'" in policy


def test_a_report_opens_with_what_changed_in_the_words_of_the_operators(
    searched: Filling, tmp_path: Path
) -> None:
    text = report(searched, tmp_path)
    change = text[text.index('id="change"') : text.index('id="cases"')]
    assert "added" in change
    assert "Split the sum over independent lanes" in change
    assert '<span class="add">' in change
    assert '<span class="del">' in change


def test_a_report_shows_the_best_programs_in_each_case(searched: Filling, tmp_path: Path) -> None:
    text = report(searched, tmp_path)
    begin = text.index("Speedups of the best programs by case")
    table = text[begin : text.index("</table>", begin)]
    assert all(f">{name}</th>" in table for name in ("4096x1024", "512x4096", "64x96"))
    assert 'class="loss"' in table


def test_a_report_is_whole(page: Page) -> None:
    assert page.unbalanced == []
    assert [name for name in page.ids if name in NAMES] == NAMES
    assert len(page.ids) == len(set(page.ids))
    references = [value for _, name, value in page.attributes if name == "aria-labelledby"]
    assert {word for value in references for word in value.split()} <= set(page.ids)


def test_numbers_have_their_units_and_one_form(page: Page) -> None:
    for name, value in (("memory_bytes", "10.5 MB"), ("tiling", "8"), ("error", "0.1")):
        assert f"{name} {value}" in " ".join(page.text.split())


def test_every_drawing_and_table_has_a_name_for_those_who_cannot_see_it(page: Page) -> None:
    for tag, found in page.tags:
        if tag == "svg":
            assert {"aria-label", "aria-labelledby", "aria-hidden"} & set(found)
        if found.get("role") in ("region", "group"):
            assert "tabindex" in found  # what scrolls can be scrolled by keyboard


def test_the_headline_has_the_verified_number_with_its_interval(
    page: Page, searched: Filling
) -> None:
    sequence = searched.store.progress(searched.run.id).proposals - 1
    verified = searched.store.evaluation(searched.run.id, sequence)
    assert verified is not None
    measured = verified.ratios["eager"]
    assert f"{measured.value:.2f}" in page.text
    assert f"95 % interval {measured.low:.2f} to {measured.high:.2f}, verified" in page.text
    assert "AMD EPYC 7763, 2 cores" in page.text
    assert "PyTorch eager" in page.text


def test_the_same_store_gives_the_same_bytes(searched: Filling, tmp_path: Path) -> None:
    assert report(searched, tmp_path) == report(searched, tmp_path)


@pytest.mark.slow
def test_a_thousand_programs_fit_into_two_megabytes(store: Store, tmp_path: Path) -> None:
    filled = Filling(store=store).search(1040, tuning=0.0)
    html = report(filled, tmp_path)
    programs = {s.program for s in store.steps(filled.run.id) if s.program}
    assert len(programs) >= 1000
    assert len(html.encode()) < 2_000_000
    assert read(html).unbalanced == []
    assert html.count('class="node') <= 600


def test_enormous_sources_and_long_paths_are_cut_and_said_to_be(
    store: Store, tmp_path: Path
) -> None:
    filled = Filling(store=store)
    parents: tuple[str, ...] = ()
    for number in range(60):
        lines = "".join(f"x{number} = '{line}<&>'\n" for line in range(2000))
        program = Program(f'"""{lines}{"y" * 50_000}"""')
        verdict = evaluation(filled.task, Status.CORRECT, Fidelity.SEARCH, 0.02 * number)
        filled.step("improve", Proposal(program=program, parents=parents), verdict, "0")
        parents = (program.digest,)
    html = report(filled, tmp_path)
    assert len(html.encode()) < 2_000_000
    text = read(html).text
    assert "20 steps left out" in text
    assert "more lines left out" in text
    assert "more characters left out" in text


HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    '" onmouseover="alert(3)\' --><svg onload=alert(4)>{{ 7*7 }}]]>\u202e\u2066\u200b\x00\x1b'
)


@pytest.fixture
def hostile(store: Store, tmp_path: Path) -> str:
    task = Task(name=f"task{HOSTILE}", source=f'"""{HOSTILE}"""', category=HOSTILE)
    filled = Filling(store=store, name=f"run{HOSTILE}", task=task)
    parents: tuple[str, ...] = ()
    for number in range(3):
        verdict = evaluation(task, Status.CORRECT, Fidelity.SEARCH, 0.3 * number)
        cases = tuple(replace(case, name=HOSTILE) for case in verdict.cases)
        verdict = replace(
            verdict,
            cases=cases,
            labels=(Label(HOSTILE, HOSTILE),),
            feedback=HOSTILE,
            descriptors={HOSTILE: HOSTILE},
            environment={HOSTILE: HOSTILE, "device": HOSTILE},
            ratios={**verdict.ratios, HOSTILE: ratio(0.1, 0.01)},
        )
        program = Program(f'{number}\n"""{HOSTILE}"""\nclass ModelNew: ...\n')
        proposal = Proposal(
            program=program, parents=parents, note=HOSTILE, assignment={HOSTILE: HOSTILE + "!"}
        )
        filled.step(HOSTILE, proposal, verdict, f"{HOSTILE}=1|{HOSTILE}2={HOSTILE}")
        parents = (program.digest,)
    filled.step(HOSTILE, Failed(HOSTILE))
    store.release(filled.run.id, "interrupted", HOSTILE)
    return report(filled, tmp_path)


def test_what_candidates_write_is_only_text(hostile: str) -> None:
    page = read(hostile)
    assert page.unbalanced == []
    assert_offline(page)
    assert len(page.scripts) == 1
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert "49" not in page.headings
    assert "<img src=x onerror=alert(2)>" in page.text  # shown as what it is


def test_nothing_in_a_report_is_invisible_or_reorders_it(hostile: str) -> None:
    assert not re.search("[\x00-\x08\x0b-\x1f\u200b-\u200f\u202a-\u202e\u2060-\u206f]", hostile)
    assert "&lt;U+202E&gt;" in hostile


def test_a_slower_case_is_marked_and_comes_with_a_caveat(store: Store, tmp_path: Path) -> None:
    filled = Filling(store=store)
    verdict = evaluation(filled.task, Status.CORRECT, Fidelity.SEARCH, 0.8)
    filled.step("seed", Proposal(program=Program(source(0, 1))), verdict, "0")
    text = read(report(filled, tmp_path)).text
    assert "▼ slower" in text
    assert "1 case slower than PyTorch eager: 64x96" in text


@pytest.mark.parametrize(
    ("log_speedup", "claim"),
    [
        (0.005, "no measurable gain"),
        (-0.3, "slower, no gain was found"),
        (1.0, "the whole interval lies above 1"),
    ],
)
def test_the_headline_claims_what_the_interval_shows(
    store: Store, tmp_path: Path, log_speedup: float, claim: str
) -> None:
    text = read(report(one_program(store, log_speedup), tmp_path)).text
    assert claim in text
    assert ("interval lies above 1" in text) == (log_speedup == 1.0)


def test_the_headline_is_against_the_baseline_that_the_user_named(
    store: Store, tmp_path: Path
) -> None:
    filled = Filling(store=store, config={**CONFIG, "baseline": "file:mine.py"})
    verdict = evaluation(filled.task, Status.CORRECT, Fidelity.SEARCH, 1.0)
    ratios = {**verdict.ratios, "file:mine.py": ratio(0.2, 0.01)}
    proposal = Proposal(program=Program(source(0, 1)))
    filled.step("seed", proposal, replace(verdict, ratios=ratios), "0")
    text = read(report(filled, tmp_path)).text
    assert f"1.22{TIMES} the speed of mine.py" in text
    assert f"2.72{TIMES} (2.66 to 2.77) the speed of PyTorch eager" in text
    assert "baseline=file:mine.py" in text


def test_a_baseline_that_fails_the_check_itself_is_said_with_the_case(
    store: Store, tmp_path: Path
) -> None:
    filled = Filling(store=store, config={**CONFIG, "baseline": "file:mine.py"})
    case = CaseResult(name="512x4096", weight=1.0, timed=True, passed=False)
    wrong = replace(
        evaluation(filled.task, Status.WRONG_VALUE, Fidelity.SEARCH),
        cases=(case,),
        feedback="case 512x4096:\n  element (3, 1) is off by 2.0",
    )
    filled.step(OPPONENT, Proposal(program=Program(source(0, 1))), wrong)
    text = read(report(filled, tmp_path)).text
    assert "The baseline mine.py fails the check itself (wrong value, case 512x4096)" in text
    assert "element (3, 1) is off by 2.0" in text


def test_a_baseline_that_dropped_out_of_timing_is_said_with_the_reason(
    store: Store, tmp_path: Path
) -> None:
    filled = Filling(store=store, config={**CONFIG, "baseline": "file:mine.py"})
    verdict = replace(
        evaluation(filled.task, Status.CORRECT, Fidelity.SEARCH, 1.0),
        feedback="file:mine.py was not timed: it hung",
    )
    filled.step("seed", Proposal(program=Program(source(0, 1))), verdict)
    text = read(report(filled, tmp_path)).text
    assert "mine.py dropped out of the timing of 1 correct kernel" in text
    assert "it hung" in text


def test_a_winner_that_was_not_verified_is_called_so(store: Store, tmp_path: Path) -> None:
    text = read(report(one_program(store, 1.0), tmp_path)).text
    assert "not verified in fresh processes" in text


def test_labels_of_the_winner_are_caveats(store: Store, tmp_path: Path) -> None:
    label = Label("beats_reference_cost", "2 % of the bytes")
    text = read(report(one_program(store, 1.0, labels=(label,)), tmp_path)).text
    assert label.name in text
    assert label.evidence in text


def test_a_weak_task_is_the_first_thing_said_of_the_result(store: Store, tmp_path: Path) -> None:
    found = {"name": "zeros", "passed_by": "4096x1024", "detail": "zeros is judged correct"}
    filled = one_program(store, 1.0, config={**CONFIG, "audit": [found]})
    text = read(report(filled, tmp_path)).text
    assert "this does not count as a strict result" in text
    caveats = text.partition("Read with care")[2].split()
    assert caveats[:4] == ["The", "task", "is", "WEAK:"]
    assert "zeros is judged correct (case 4096x1024)" in text


def test_kernels_that_are_only_interpreted_are_not_called_slow_or_fast(
    store: Store, tmp_path: Path
) -> None:
    text = read(report(one_program(store, 1.0, ratios={}, cases=()), tmp_path)).text
    assert "1 correct program without a time" in text
    assert "correct, but not timed in full (1)" in text


def test_programs_without_a_time_are_counted_apart_from_all_others(
    store: Store, tmp_path: Path
) -> None:
    filled = one_program(store, 1.0)
    untimed = replace(evaluation(filled.task, Status.CORRECT, Fidelity.SEARCH), ratios={}, cases=())
    others = [
        evaluation(filled.task, Status.WRONG_VALUE, Fidelity.SEARCH),
        replace(untimed, custom=False),
    ]
    for number, verdict in enumerate([*others, untimed, untimed], start=1):
        filled.step("improve", Proposal(program=Program(source(number, 1))), verdict)
    assert "2 correct programs without a time" in read(report(filled, tmp_path)).text


@pytest.mark.parametrize(
    ("tier", "is_weaker"), [("namespaces", False), ("landlock", True), ("", False)]
)
def test_a_weaker_sandbox_than_the_strongest_is_a_caveat(
    store: Store, tmp_path: Path, tier: str, is_weaker: bool
) -> None:
    environment = {**ENVIRONMENT, "sandbox": tier}
    text = read(report(one_program(store, 1.0, environment=environment), tmp_path)).text
    assert ("this host allows no stronger one" in text) == is_weaker


def test_a_run_without_a_correct_kernel_says_why(store: Store, tmp_path: Path) -> None:
    filled = Filling(store=store)
    for number in range(3):
        verdict = evaluation(filled.task, Status.WRONG_VALUE, Fidelity.SEARCH)
        filled.step("seed", Proposal(program=Program(source(number, 1))), verdict)
    text = read(report(filled, tmp_path)).text
    assert "No correct kernel" in text
    assert "wrong value (3)" in text
    assert "evolve best" not in text


def test_plain_torch_is_no_kernel_of_its_own(store: Store, tmp_path: Path) -> None:
    text = read(report(one_program(store, 1.0, custom=False), tmp_path)).text
    assert "No correct kernel" in text
    assert "without a kernel of its own (1)" in text


def test_a_run_that_has_only_just_begun_has_a_report(store: Store, tmp_path: Path) -> None:
    page = read(report(Filling(store=store), tmp_path))
    assert "No result yet" in page.text
    assert [name for name in page.ids if name in NAMES] == NAMES


def test_a_program_that_waits_for_its_judge_is_not_drawn_as_a_wrong_one(
    store: Store, tmp_path: Path
) -> None:
    filled = one_program(store, 0.3)
    assert "not judged" not in report(filled, tmp_path)
    ticket = store.ask(filled.run.id, "improve", ())
    store.propose(ticket, Proposal(program=Program(source(1, 1))))
    drawn = [a["class"] for _, a in read(report(filled, tmp_path)).tags if "data-node" in a]
    assert drawn == ["node winner way", "node unjudged"]
    assert ">not judged</span>" in report(filled, tmp_path)


def test_an_archive_without_axes_is_a_ranked_list(store: Store, tmp_path: Path) -> None:
    page = read(report(Filling(store=store, axes=False).search(40), tmp_path))
    assert any(found.get("class") == "ranked" for _, found in page.tags)


def test_an_archive_with_axes_is_a_map(page: Page) -> None:
    assert any(found.get("class") == "heat" for _, found in page.tags)


def test_keys_in_the_configuration_stay_hidden(searched: Filling, tmp_path: Path) -> None:
    html = report(searched, tmp_path)
    assert "sk-very-secret" not in html
    assert "(hidden)" in html


def test_commands_are_quoted_for_the_shell(hostile: str) -> None:
    assert "evolve best &#39;run&lt;/script&gt;" in hostile


@pytest.mark.parametrize("words", [("search=seeds",), ("archive=topk",), ()])
def test_a_search_is_repeated_by_its_preset(store: Store, tmp_path: Path, words) -> None:
    config = composed("task=rmsnorm", *words)
    html = report(Filling(store=store, config=config).search(5), tmp_path)
    preset = {"search=seeds": "seeds", "archive=topk": "single"}.get("".join(words), "portfolio")
    assert f"evolve run task=rmsnorm search={preset} seed=0" in html


def test_an_unknown_run_and_a_missing_folder_are_refused(searched: Filling, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        write_report(searched.store, "nobody", tmp_path / "r.html")
    with pytest.raises(UsageError, match="cannot be written"):
        write_report(searched.store, None, tmp_path / "missing" / "r.html")
    assert list(tmp_path.iterdir()) == []
