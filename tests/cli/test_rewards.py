"""`evolve rewards` scores a stored run again and compares rewards, without a device:

1. What it prints is what a hand count gives (the story is in tests/trajectories/searched.py).
2. Every name that does not exist, and every number that cannot be, is answered in a line.
"""

import csv
import io
import json
from pathlib import Path

import pytest

from evolve.cli.main import main
from evolve.store import Store
from evolve.trajectories.rewards.agreement import agreement
from tests.trajectories.searched import Searched, source, story, verdict


@pytest.fixture
def database(tmp_path: Path) -> str:
    path = tmp_path / "searches.db"
    with Store.open(path, create=True) as store:
        story(Searched(store))
    return str(path)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["rewards", *words]) == 0
    return capsys.readouterr().out


def test_it_says_how_many_steps_a_reward_can_score(database: str, capsys) -> None:
    out = printed(capsys, "first", "--reward", "kevin@1", "--store", database)
    lines = [line.split() for line in out.splitlines()]
    # 20 steps less two verifications and the user's baseline; unknown: 4, 13, 14
    assert lines[0][:3] == ["run", "first:", "17"]
    assert lines[2][:3] == ["kevin@1", "14", "3"]
    assert lines[2][3] == "0"
    assert lines[2][5] == "4.4"  # 0.3 + 4.1: verified, not the 4.2 of the search


def test_it_says_why_scores_are_not_known(database: str, capsys) -> None:
    """On a CPU `dr_kernel@1` and `cuda_agent@1` know nothing of correct programs."""
    rewards = ("--reward", "dr_kernel@1", "--vs", "cuda_agent@1")
    out = printed(capsys, "first", *rewards, "--store", database)
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line}
    said = [line.partition(" unknown: ") for line in out.splitlines() if " unknown: " in line]
    for name in ("dr_kernel@1", "cuda_agent@1"):
        counts = [int(head.split()[1]) for head, _, _ in said if head.startswith(name)]
        assert sum(counts) == int(rows[name][2]) > 3
    reasons = [f"{head.split(':')[0]}: {why}" for head, _, why in said]
    assert any(each.startswith("dr_kernel@1") and "needs a GPU" in each for each in reasons)
    assert any(each.startswith("cuda_agent@1") and "=compile" in each for each in reasons)


def test_scores_as_csv_are_empty_where_they_are_not_known(database: str, capsys) -> None:
    words = ("--reward", "kevin@1", "--vs", "kernel_smith@1", "--csv", "--store", database)
    rows = list(csv.DictReader(io.StringIO(printed(capsys, *words))))
    by_step = {int(row["step"]): row for row in rows}
    assert set(by_step) == set(range(20)) - {11, 18, 19}
    assert float(by_step[1]["kevin@1"]) == 1.8
    assert by_step[14] == {"step": "14", "kevin@1": "", "kernel_smith@1": ""}
    assert by_step[12]["kernel_smith@1"] == ""  # its parent failed
    assert float(by_step[17]["kevin@1"]) == 0.0  # refuted


def test_whole_steps_come_with_their_scores(database: str, capsys) -> None:
    words = ("--reward", "kevin@1", "--vs", "autotriton@2", "--jsonl", "--store", database)
    rows = [json.loads(line) for line in printed(capsys, *words).splitlines()]
    assert [row["sequence"] for row in rows] == sorted(set(range(20)) - {11, 18, 19})
    assert rows[1]["rewards"] == {"kevin@1": 1.8, "autotriton@2": 0.0}
    assert rows[1]["completion"].startswith("Here is B.")
    assert rows[4]["rewards"] == {"kevin@1": None, "autotriton@2": None}


def test_two_rewards_are_compared_by_rank(database: str, capsys) -> None:
    words = ("--reward", "kernel_smith@1", "--vs", "kevin@1", "--top", "3", "--store", database)
    out = printed(capsys, *words)
    # both score 1, 5, 7, 8, 9, 10, 16 and the failures 2, 3, 6, 15, 17
    assert "over 12 steps that both score" in out
    assert "rank correlation 0." in out
    table = out.partition("ranked most differently")[2].splitlines()[2:]
    # ranks by gain: failures 2 each, 16: 5, 10: 6, 8: 7, 1: 8, 5: 9, 7 and 9: 10.5;
    # by speedup:    failures 2 each, 16: 5, 1: 6, 5: 7, 8: 8, 7: 9, 9: 10, 10: 11
    assert [line.split()[0] for line in table] == ["first:10", "first:1", "first:5"]
    assert "1.025 (0.55)" in table[0]  # 4.1 over 4.0; 6 of 11
    assert "4.4 (1.00)" in table[0]


def test_a_reward_agrees_with_itself(database: str, capsys) -> None:
    out = printed(capsys, "--reward", "kevin@1", "--vs", "kevin@1", "--store", database)
    assert "rank correlation 1.000" in out
    assert "ranked most differently" not in out


def test_shaped_scores_go_by_the_prompt(database: str, capsys) -> None:
    words = ("--reward", "kevin@1+trloo@2", "--csv", "--store", database)
    rows = csv.DictReader(io.StringIO(printed(capsys, *words)))
    scores = {int(row["step"]): row["kevin@1+trloo@2"] for row in rows}
    # B, C, D, E and F answer one prompt: 1.8 - (0 + 0 + 1.805 + 0) / 4
    assert float(scores[1]) == pytest.approx(1.8 - 1.805 / 4)
    assert float(scores[9]) == pytest.approx(4.3)  # alone


def test_a_users_own_reward_reads_sources(database: str, tmp_path: Path, capsys) -> None:
    own = tmp_path / "short.py"
    own.write_text("def reward(step):\n    return -len(step.source) if step.correct else None\n")
    out = printed(capsys, "--reward", f"{own}:reward", "--store", database)
    assert "short.py:reward@" in out
    (row,) = [line for line in out.splitlines() if "reward@" in line and "unknown:" not in line]
    assert row.split()[-3:] == [f"-{len(source('A'))}"] * 3


def test_a_run_without_steps_is_no_error(tmp_path: Path, capsys) -> None:
    path = tmp_path / "empty.db"
    with Store.open(path, create=True) as store:
        Searched(store)
    words = ("--reward", "kevin@1", "--vs", "mtmc@1", "--store", str(path))
    out = printed(capsys, *words)
    assert "0 steps" in out
    assert "too few or too alike to be ranked" in out


def test_one_step_cannot_be_ranked(tmp_path: Path, capsys) -> None:
    path = tmp_path / "one.db"
    with Store.open(path, create=True) as store:
        Searched(store).built_in("A", verdict(1.0))
    words = ("--reward", "kevin@1", "--vs", "mtmc@1", "--store", str(path))
    assert "1 steps are scored by both" in printed(capsys, *words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--reward", "kevin"), "did you mean kevin@1"),
        (("--reward", "kevin@1", "--vs", "nothing@1"), "there is no reward 'nothing@1'"),
        (("--reward", "kevin@1", "--top", "-1"), "--top -1: it cannot be negative"),
        ((), "--reward"),
        (("--reward", "kevin@1", "--csv", "--jsonl"), "--jsonl: not allowed with argument --csv"),
        (("other", "--reward", "kevin@1"), "other"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(database: str, capsys, words, said: str) -> None:
    assert main(["rewards", *words, "--store", database]) == 2
    assert said in capsys.readouterr().err


def test_ranks_of_equal_scores_are_shared() -> None:
    # ranks 0, 1.5, 1.5, 3 against 0, 1, 2, 3: covariance 4.5 / 4, variances 4.5 / 4 and 5 / 4;
    # 4.5 / sqrt(4.5 * 5) = 0.94868
    found = agreement((1.0, 2.0, 2.0, 9.0), (1.0, 2.0, 3.0, 4.0), most=9)
    assert found.correlation == pytest.approx(0.94868, abs=1e-5)
    assert [one.place for one in found.differences] == [1, 2]


def test_steps_that_one_reward_cannot_score_are_left_out() -> None:
    found = agreement((1.0, None, 2.0), (2.0, 5.0, 1.0), most=9)
    assert (found.count, found.correlation) == (2, pytest.approx(-1.0))
    assert [one.place for one in found.differences] == [0, 2]
