"""Files of a batch.

Invariants:
- what is written is read again, and a task is sent once;
- a damaged line is named and costs nothing but itself; a torn last line is nothing;
- an answer counts for exactly the question that it was given to.
"""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolve.core.errors import UsageError
from evolve.worker.service.batch_files import (
    MAX_FAILURES,
    Answers,
    BatchRequest,
    is_answers,
    read_answers,
    read_requests,
    request_lines,
    to_line,
)
from evolve.worker.service.shards import SHARD_BYTES, Shards
from tests.worker.serving import RELU_TASK

TASK = RELU_TASK.to_json()


def evaluate(name: str, source: str = "class ModelNew: ...", **params) -> BatchRequest:
    given = {"task": TASK, "source": source, "fidelity": "screen", "opponents": {}}
    return BatchRequest(id=name, method="evaluate", params=given | params)


def answer(request: BatchRequest, **said) -> dict:
    return {"id": request.id, "subject": request.subject, "final": True, "seconds": 1.0, **said}


def begun(request: BatchRequest) -> dict:
    return {"begun": request.id, "subject": request.subject}


def test_requests_are_read_as_they_were_written_with_each_task_once(tmp_path):
    requests = [evaluate("a:0"), evaluate("a:1", "other"), BatchRequest(
        id="audit", method="audit", params={"task": TASK})]  # fmt: skip
    lines = list(request_lines(requests))
    (tmp_path / "in.jsonl").write_text("".join(lines))
    assert read_requests(tmp_path / "in.jsonl") == (requests, [])
    assert read_requests(tmp_path) == (requests, [])
    assert sum("SECRET_WORD_OF_THE_TASK" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("nonsense\n", "no JSON"),
        ("[]\n", "no JSON object"),
        ('{"v": 9, "id": "x"}\n', "version 9"),
        ('{"v": 1, "id": 7, "method": "evaluate", "params": {}}\n', "needs an id"),
        ('{"v": 1, "id": "x", "method": "audit", "params": {"task": "ab"}}\n', "no line brings"),
        ('{"v": 1, "id": "x", "method": "audit", "params": {"task": {}}}\n', "malformed"),
        ('{"v": 1, "task": {"name": 1}}\n', "malformed task"),
        ('{"v": 1, "id": "a:0", "method": "doctor", "params": {}}\n', "used twice"),
        ('{"v": 1, "id": "x", "method": "evaluate", "params": {"n": NaN}}\n', "NaN"),
    ],
)
def test_a_line_that_is_no_request_is_named_and_left_out(tmp_path, line, named):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(request_lines([evaluate("a:0")])) + line)
    requests, problems = read_requests(path)
    assert requests == [evaluate("a:0")]
    assert len(problems) == 1
    assert problems[0].startswith("in.jsonl:3: ")
    assert named in problems[0]


def test_a_task_of_another_release_is_refused(tmp_path):
    line = to_line({"task": TASK, "revision": "0" * 64})
    request = to_line({"id": "d", "method": "doctor", "params": {}})
    (tmp_path / "in.jsonl").write_text(line + request)
    _, problems = read_requests(tmp_path / "in.jsonl")
    assert "same release" in problems[0]


def test_a_file_without_requests_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "missing.jsonl"):
        with pytest.raises(UsageError):
            read_requests(path)


def test_an_answer_counts_for_its_own_question_only():
    answers, asked = Answers(), evaluate("a:0")
    answers.take(answer(asked, result={"status": "correct"}))
    assert answers.of(asked).final.result == {"status": "correct"}
    for other in (evaluate("a:1"), evaluate("a:0", "edited"), evaluate("a:0", fidelity="search"),
                  evaluate("a:0", opponents={"elite": "x"})):  # fmt: skip
        assert answers.of(other).final is None


def test_an_answer_counts_however_far_the_run_has_come_since_it_was_asked_for():
    answers = Answers()
    answers.take(
        answer(evaluate("a:0", target_speedups={"eager": 2.0}), result={"status": "correct"})
    )
    assert answers.of(evaluate("a:0", target_speedups={"eager": 3.0})).final is not None


def test_beginnings_without_an_end_and_our_own_faults_are_failures():
    answers, asked = Answers(), evaluate("a:0")
    answers.take(begun(asked))
    assert answers.of(asked).failures == 1
    answers.take(answer(asked, result={"status": "infra"}) | {"final": False})
    assert answers.of(asked).failures == 1
    answers.take(begun(asked))
    answers.take({"dropped": asked.id, "subject": asked.subject})
    assert answers.of(asked).failures == 1 < MAX_FAILURES


def test_the_first_final_answer_stands():
    answers, asked = Answers(), evaluate("a:0")
    for value in (1, 2):
        answers.take(answer(asked, result=value))
    assert answers.of(asked).final.result == 1


RECORDS = [
    begun(evaluate("a:0")),
    answer(evaluate("a:0"), result={"status": "correct"}),
    begun(evaluate("a:1")),
    answer(evaluate("a:1"), error={"kind": "usage", "message": "m"}),
]


@given(cut=st.integers(0, 2000))
@settings(max_examples=40, deadline=None)
def test_a_shard_torn_anywhere_loses_its_last_line_only(tmp_path_factory, cut):
    folder = tmp_path_factory.mktemp("torn")
    text = "".join(map(to_line, RECORDS))
    (folder / "0001.jsonl").write_text(text[:cut])
    found = read_answers(folder)
    assert found.problems == []
    whole = [json.loads(line) for line in text[:cut].splitlines(True) if line.endswith("\n")]
    finals = sum(record.final is not None for record in found.records.values())
    assert finals in (n := sum("final" in line for line in whole), n + 1)


@given(at=st.integers(0, 1500), value=st.integers(0, 255))
@settings(max_examples=60, deadline=None)
def test_a_damaged_byte_never_raises(tmp_path_factory, at, value):
    folder = tmp_path_factory.mktemp("damaged")
    data = bytearray("".join(map(to_line, RECORDS)).encode())
    data[at % len(data)] = value
    (folder / "0001.jsonl").write_bytes(data)
    found = read_answers(folder)
    assert len(found.records) <= 4
    assert len(found.problems) <= 2


def test_shards_stay_below_their_size_and_every_start_has_its_own(tmp_path):
    asked = evaluate("a:0")
    for _ in range(2):
        shards = Shards(tmp_path)
        for _ in range(3):
            shards.write(answer(asked, result={"status": "correct", "samples": "x" * 3_500_000}))
        shards.close()
    files = sorted(path.name for path in tmp_path.glob("*.jsonl"))
    assert files == ["0001.jsonl", "0002.jsonl", "0003.jsonl", "0004.jsonl"]
    assert all((tmp_path / name).stat().st_size <= SHARD_BYTES for name in files)
    assert len(next(iter(read_answers(tmp_path).records.values())).answers) == 6


def test_a_line_that_alone_exceeds_a_shard_goes_without_its_raw_samples(tmp_path):
    shards = Shards(tmp_path)
    long = {"status": "correct", "samples": ["x" * 9_000_000]}
    shards.write(answer(evaluate("a:0"), result=long))
    shards.close()
    result = read_answers(tmp_path).of(evaluate("a:0")).final.result
    assert result == {"status": "correct", "samples": {}}


def test_a_second_batch_on_the_same_folder_is_refused(tmp_path):
    shards = Shards(tmp_path)
    with pytest.raises(UsageError, match="another batch"):
        Shards(tmp_path)
    shards.close()
    Shards(tmp_path).close()


def test_answers_are_told_from_other_files(tmp_path):
    shards = Shards(tmp_path / "out")
    shards.write({"hello": {}})
    shards.close()
    (tmp_path / "in.jsonl").write_text("".join(request_lines([evaluate("a:0")])))
    (tmp_path / "text").write_text("hello\n")
    assert is_answers(tmp_path / "out")
    assert is_answers(tmp_path / "out" / "0001.jsonl")
    assert not is_answers(tmp_path / "in.jsonl")
    assert not is_answers(tmp_path / "text")
