"""The benchmark of languages, as far as it goes without a GPU.

Invariants:
- the best program of a language is one that is right, whose kernels are its own, and that was timed
  to the end; a verified one goes before all others;
- a table says what was right and what each candidate costs, and why a language is missing;
- programs of a language are in that language and call no library; defaults come first;
- attention in Gluon compiles for an H100 whatever its tunables are, with tiles by TMA and tensor
  cores of warp groups (in cuTile and TileLang: `tests/operators/test_port_gates.py`);
- what has a line is not judged again.
"""

from pathlib import Path

import pytest
import torch

from evolve.core.evaluation import Evaluation, Fidelity, Stage, Status
from evolve.core.measurement import Ratio
from evolve.core.source import tunables
from evolve.core.task import Task
from evolve.languages.registry import detect_language
from tests.benchmarks import bench_languages, json_lines, language_programs
from tests.benchmarks.bench_languages import described
from tests.benchmarks.language_programs import Place, candidates, places
from tests.benchmarks.language_table import best, table
from tests.operators.compiling import compiled, launches
from tests.operators.test_ported_seed import PRODUCT, on_gpu, task_of

PLACE = {place.operation: place for place in reversed(places("cuda"))}
OPERATION, SIZE = PLACE["softmax, fp32"].key


def row(language: str, ratio: float | None, **about: object) -> dict[str, object]:
    return {
        "kind": "verdict",
        "operation": OPERATION,
        "size": SIZE,
        "language": language,
        "program": f"program of {ratio}",
        "assignment": {},
        "digest": f"{language} {ratio}",
        "fidelity": "search",
        "status": "correct" if ratio else "wrong_value",
        "ratio": ratio and [ratio, ratio * 0.99, ratio * 1.01],
        "ms": ratio and 2 / ratio,
        "eager_ms": ratio and 2.0,
        "light": ratio and ratio / 4,
        "compile_s": 3.0,
        "judge_s": 5.0,
        "device_s": 1.0,
        "early": False,
        "feedback": "off by | much",
    } | about


ROWS = [
    {"kind": "conditions", "text": "cuda: a device"},
    {"kind": "baseline", "operation": OPERATION, "size": SIZE, "ratio": [1.25, 1.2, 1.3]},
    row("triton", 2.0),
    row("triton", 3.0, early=True),
    row("triton", None),
    row("gluon", 1.5),
    row("gluon", 1.0, fidelity="verify"),
    row("nvrtc", None, compile_s=0.0),
    {"kind": "skipped", "language": "helion", "why": "helion is not installed"},
    {"kind": "skipped", "language": "gluon", "why": "was there in another call"},
]


SMALL = Place("softmax, fp32", "64 x 128", "softmax", "fp32", {"ROWS": 64, "COLUMNS": 128})
BASELINE = {"kind": "baseline", "operation": SMALL.operation, "size": SMALL.size, "ratio": [1] * 3}


def test_the_best_program_was_timed_to_the_end_and_a_verified_one_goes_first():
    assert best(ROWS, "triton")["ratio"][0] == 2.0
    assert best(ROWS, "gluon")["fidelity"] == "verify"
    assert best(ROWS, "nvrtc") is None


def test_a_table_has_costs_and_counts_and_says_why_a_language_is_missing():
    lines = table(ROWS, list(PLACE.values())).splitlines()
    (triton,) = [line for line in lines if line.startswith("| triton")]
    assert triton == (
        "| triton | program of 2.0 | 1 | 2.00 [1.98, 2.02] | 1.60 [1.54, 1.67] | 50% "
        "| 2 of 3 | 3.0 | 5.0 | 1.0 |"
    )
    assert "| torch.compile |  | 1.6 | 1.25 [1.20, 1.30] | 1 |  |  |  |  |  |" in lines
    (nvrtc,) = [line for line in lines if line.startswith("| nvrtc")]
    assert "none is right: wrong_value, off by / much" in nvrtc
    assert "| 0 of 1 |  | 5.0 | 1.0 |" in nvrtc
    assert "helion was not judged: helion is not installed" in lines
    assert not any(line.startswith("gluon was not judged") for line in lines)
    assert {line.count("|") for line in lines if line.startswith("|")} == {11}


def test_a_table_without_torch_compile_has_empty_cells_for_it():
    rows = [row for row in ROWS if row["kind"] != "baseline"]
    for given in (rows, [*rows, BASELINE | {"ratio": None, "operation": OPERATION, "size": SIZE}]):
        lines = table(given, list(PLACE.values())).splitlines()
        assert "| torch eager |  | 2 | 1 |  |  |  |  |  |  |" in lines
        assert not any(line.startswith("| torch.compile") for line in lines)
        assert "| triton | program of 2.0 | 1 | 2.00 [1.98, 2.02] |  | 50%" in "\n".join(lines)


@pytest.mark.parametrize(("custom", "given"), [(True, [2.0, 1.9, 2.1]), (False, None)])
def test_only_a_program_with_kernels_of_its_own_has_a_ratio(custom, given):
    verdict = Evaluation(
        status=Status.CORRECT,
        stage=Stage.TIMING,
        fidelity=Fidelity.SEARCH,
        task_revision="",
        device_class="",
        evaluator_version="",
        custom=custom,
        ratios={"eager": Ratio(2.0, 1.9, 2.1)},
        durations_s={"compile": 4.0, "smoke": 1.0, "timing": 9.0, "timing_turn": 7.0},
    )
    found = described(verdict)
    assert found["ratio"] == given
    assert (found["compile_s"], found["judge_s"]) == (4.0, 3.0)


def found(language: str, operation: str, task: Task) -> list[language_programs.Candidate]:
    return candidates(language, PLACE[operation], task, 2, 3)


@pytest.mark.parametrize("language", ["triton", "gluon", "nvrtc", "cute", "cutile", "tilelang"])
@pytest.mark.parametrize(
    ("operation", "task"),
    [("product, fp32", task_of(PRODUCT)), ("softmax, fp32", on_gpu("softmax"))],
)
def test_programs_are_in_their_language_and_call_no_library(language, operation, task):
    made = found(language, operation, task)
    assert len({each.digest for each in made}) == len(made) > 1
    assert made[0].assignment == {}
    assert any(each.assignment for each in made)
    assert {detect_language(each.source).name for each in made} == {language}
    assert not any("extern_kernels" in each.source for each in made)


def test_a_language_without_programs_of_operators_has_those_of_the_red_team():
    (one,) = found("helion", "softmax, fp32", PLACE["softmax, fp32"].task)
    assert one.program == "red team: gpu_helion_softmax"
    assert found("helion", "product, bf16", PLACE["product, bf16"].task) == []


GLUON = (Path(language_programs.__file__).parent / "attention" / "gluon.py").read_text()


@pytest.mark.parametrize("features", [64, 128])
@pytest.mark.parametrize("assignment", [*tunables.parse(GLUON).assignments()], ids=str)
def test_attention_in_gluon_compiles_for_an_h100(assignment, features):
    source = tunables.render(GLUON, assignment)
    tensor = torch.empty(2, 2, 512, features, dtype=torch.bfloat16, device="meta")
    (launch,) = launches(source, [tensor] * 3)
    ptx = compiled(launch)["ptx"]
    assert "wgmma.mma_async" in ptx
    assert "cp.async.bulk.tensor.2d.shared::cta.global" in ptx
    assert ".local" not in ptx


@pytest.mark.slow  # two real judges; tables and programs are in the tests above
@pytest.mark.timeout(600)
def test_what_has_a_line_is_not_judged_again(tmp_path, monkeypatch, capsys):
    out = tmp_path / "lines.jsonl"
    json_lines.add(out, BASELINE)
    monkeypatch.setattr(bench_languages, "places", lambda _: [SMALL])
    monkeypatch.setitem(language_programs.VARIANTS, "cpu", ())  # the task's own programs do
    command = ["", "--device", "cpu", "--languages", "cpp,gluon", "--within", "550"]
    command += ["--programs", "1", "--instances", "1", "--out", str(out)]
    monkeypatch.setattr("sys.argv", command)
    bench_languages.main()
    bench_languages.main()
    rows = json_lines.read(out)
    (verdict,) = [row for row in rows if row["kind"] == "verdict"]
    assert verdict["status"] == "correct"
    assert verdict["ratio"]
    assert verdict["language"] == "cpp"
    assert [row["language"] for row in rows if row["kind"] == "skipped"] == ["gluon"] * 2
    assert "| cpp | seed 0 |" in capsys.readouterr().out
