"""The registry of tasks.

Invariants:
- Finding a task reads text and never executes it.
- A shipped task is found from a checkout; every one has a description, a category, all sizes.
- Whatever is wrong with a name, a file or its cases is one `UsageError` that says where and what
  to do; nothing else is ever raised.
- A task's revision follows its cases and not its seeds.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.core.errors import UsageError
from evolve.core.task import Case
from evolve.languages.cpp import CPP
from evolve.languages.registry import detect_language
from evolve.tasks import find_task, list_tasks
from evolve.tasks.cases import parse_cases

PARTS = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
SOURCE = f'"""Doubles."""\nCATEGORY = "toy"\n{PARTS}raise SystemExit("a task file was executed")\n'


@pytest.fixture
def task_file(tmp_path: Path) -> Path:
    path = tmp_path / "double.py"
    path.write_text(SOURCE)
    return path


def test_every_shipped_task_says_what_it_is_and_can_be_found():
    listed = list_tasks()
    assert {"softmax", "rmsnorm"} <= {info.name for info in listed}
    for info in listed:
        assert info.description and info.category
        assert find_task(info.name, size="tiny").category == info.category


def test_a_path_gives_the_file_with_its_cases_and_seeds_and_runs_none_of_it(task_file: Path):
    (task_file.parent / "cases.yaml").write_text("- {name: wide, constants: {N: 7}, weight: 2}")
    (task_file.parent / "seeds").mkdir()
    (task_file.parent / "seeds" / "plain.py").write_text("raise SystemExit('a seed was executed')")
    task = find_task(str(task_file))
    assert (task.name, task.source, task.category) == ("double", SOURCE, "toy")
    assert task.cases == (Case(name="wide", constants={"N": 7}, weight=2.0),)
    assert task.seeds == ("raise SystemExit('a seed was executed')",)


def test_cases_named_after_the_file_go_before_those_of_the_folder(task_file: Path):
    (task_file.parent / "cases.yaml").write_text("- name: folder")
    (task_file.parent / "double.cases.yaml").write_text("- name: own")
    assert [case.name for case in find_task(str(task_file)).cases] == ["own"]


def test_a_folder_with_a_task_file_is_named_after_the_folder(tmp_path: Path):
    folder = tmp_path / "triple"
    folder.mkdir()
    (folder / "task.py").write_text(SOURCE)
    assert find_task(str(folder)).name == "triple"


def test_seeds_in_languages_that_the_device_does_not_run_are_left_out():
    seeds = find_task("softmax", languages=[CPP]).seeds
    assert seeds and {detect_language(seed) for seed in seeds} == {CPP}


def test_the_revision_follows_cases_and_size_but_not_seeds(task_file: Path):
    plain = find_task(str(task_file))
    (task_file.parent / "seeds").mkdir()
    (task_file.parent / "seeds" / "mine.py").write_text("class ModelNew: ...")
    seeded = find_task(str(task_file))
    (task_file.parent / "cases.yaml").write_text("- name: main")
    assert seeded.seeds and seeded.revision == plain.revision
    assert find_task(str(task_file)).revision != plain.revision
    assert find_task(str(task_file), size="tiny").revision != find_task(str(task_file)).revision


def test_a_kernelbench_problem_is_found_by_level_and_number(tmp_path: Path, monkeypatch):
    level = tmp_path / "KernelBench" / "level1"
    level.mkdir(parents=True)
    (level / "4_other.py").write_text("x = 1")
    (level / "40_LayerNorm.py").write_text(SOURCE)
    (level / "cases.yaml").write_text("- name: not-for-suites")
    task = find_task("kernelbench:1/40", checkout=tmp_path)
    assert (task.name, task.source, task.category) == ("kernelbench:1/40", SOURCE, "level1")
    assert task.cases == ()
    monkeypatch.setenv("KERNELBENCH_PATH", str(tmp_path))
    assert find_task("kernelbench:1/40").revision == task.revision


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("softmx", ["softmx", "Did you mean softmax?", "rmsnorm", "./my_task.py"]),
        ("./nowhere.py", ["nowhere.py", "Check the path"]),
        ("kernelbench:1-40", ["kernelbench:LEVEL/ID"]),
        ("kernelbench:1/40", ["KERNELBENCH_PATH", "git clone"]),
        ("", ["task is empty", "task=softmax"]),
    ],
)
def test_a_task_that_cannot_be_found_is_answered_with_the_remedy(spec, words, monkeypatch):
    monkeypatch.delenv("KERNELBENCH_PATH", raising=False)
    with pytest.raises(UsageError) as error:
        find_task(spec)
    assert all(word in str(error.value) for word in words)


def test_a_file_beside_the_user_that_lacks_its_path_is_pointed_at(task_file: Path, monkeypatch):
    monkeypatch.chdir(task_file.parent)
    with pytest.raises(UsageError, match=r"write task=\./double\.py"):
        find_task("double")


@pytest.mark.parametrize(
    ("spec", "word"), [("kernelbench:2/1", "level1"), ("kernelbench:1/7", "among 1 problems")]
)
def test_a_missing_level_or_problem_is_named_with_what_is_there(spec, word, tmp_path: Path):
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "1_first.py").write_text(SOURCE)
    with pytest.raises(UsageError, match=word):
        find_task(spec, checkout=tmp_path)


def test_a_checkout_without_levels_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="KERNELBENCH_PATH"):
        find_task("kernelbench:1/1", checkout=tmp_path)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b" \n\t\n", "empty"),
        (b"def broken(:\n", "line 1"),
        (b"x = 1\n\xff\xfe\n", "UTF-8"),
        (b"x = 1\x00", "not valid Python"),
    ],
)
def test_a_task_file_that_cannot_be_read_is_refused(content, word, task_file: Path):
    task_file.write_bytes(content)
    with pytest.raises(UsageError, match=word):
        find_task(str(task_file))


def test_a_byte_order_mark_is_no_part_of_a_task(task_file: Path):
    plain = find_task(str(task_file))
    task_file.write_text(SOURCE, encoding="utf-8-sig")
    assert find_task(str(task_file)) == plain


@pytest.mark.parametrize(
    ("stated", "asked", "allowed"),
    [("tf32", "ieee", "tf32"), ("tf32", "half", "half"), ("ieee", "tf32", "tf32")],
)
def test_a_file_may_say_what_arithmetic_it_allows_as_the_judge_reads_it(
    task_file: Path, stated, asked, allowed
):
    task_file.write_text(f'ACCUMULATION = "{stated}"\n{SOURCE}')
    assert find_task(str(task_file), accumulation=asked).accumulation == allowed


@pytest.mark.parametrize(
    ("option", "value", "choices"),
    [
        ("size", "huge", "tiny, cpu, gpu"),
        ("precision", "fp8", "bf16"),
        ("accumulation", "x", "ieee"),
    ],
)
def test_an_unknown_option_names_the_field_and_the_choices(option, value, choices):
    with pytest.raises(UsageError, match=rf"task_config\.{option} is '{value}'.*{choices}"):
        find_task("softmax", **{option: value})


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("- name: a\n- name: [", 2, "YAML"),
        ("name: a", 1, "list of cases"),
        ("# nothing\n", 1, "list of cases"),
        ("- name: a\n- 3", 2, "mapping"),
        ("- name: a\n\n- {name: b, wieght: 2}", 3, "weight"),
        ("- {constants: {N: 1}}", 1, "name"),
        ("- name: 3", 1, "quotes"),
        ("- {name: a, weight: 0}", 1, "positive"),
        ("- {name: a, weight: .nan}", 1, "positive"),
        ("- {name: a, timed: 1}", 1, "true or false"),
        ("- {name: a, constants: [1]}", 1, "NAME: value"),
        ("- {name: a, constants: {N: [1]}}", 1, "number or a string"),
        ("- {name: a, constants: {n-1: 1}}", 1, "Python name"),
        ("- name: a\n- name: a", 2, "second case"),
        ("- {name: a, timed: false}", 1, "no case is timed"),
    ],
)
def test_bad_cases_are_refused_with_their_line(text, line, word):
    with pytest.raises(UsageError, match=rf"cases\.yaml, line {line}: .*{word}"):
        parse_cases(text, Path("cases.yaml"))


@given(st.text(alphabet="-:{}[],#&*!|>'\"%@`? \nnamecostrwighd0123.", max_size=80))
def test_any_text_gives_cases_or_a_usage_error(text):
    try:
        cases = parse_cases(text, Path("cases.yaml"))
    except UsageError:
        return
    assert cases and all(isinstance(case.name, str) for case in cases)


def test_finding_a_task_imports_no_torch():
    code = (
        "import sys; from evolve.tasks import find_task; find_task('softmax'); "
        "print('torch' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", code]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
