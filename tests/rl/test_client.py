"""The client against a real server: what a trainer is told, whatever happens between.

Invariants:
- outcomes come in the order of the submissions, one each;
- a lost connection, a full queue or a restart of the server only takes time;
- what is nobody's fault is masked, never worth 0.
"""

import asyncio
import threading
import time

import pytest

from evolve.core.errors import UsageError
from evolve.rl import Client, MaskedRows, Outcome, PinMismatch, TooManyMasked
from evolve.rl import client as rl_client
from evolve.rl.outcome import worth_of
from evolve.serve import messages
from evolve.serve.bodies import MAX_BODY
from tests.serve.serving import candidate, serving, submission

TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rl")
    with serving(folder, token=TOKEN, attempts=1, retry_s=0.05) as running:
        yield running


@pytest.fixture
def client(server):
    return Client(server.url, token=TOKEN, rewards=["kevin@1"])


def test_outcomes_come_in_order_with_rewards(client):
    words = ["speedup 2.0", "wrong_value", "speedup 3.0"]
    outcomes = client.judge([submission(word) for word in words])
    assert [outcome.rewards["kevin@1"] for outcome in outcomes] == pytest.approx([2.3, 0.0, 3.3])
    assert [outcome.correct for outcome in outcomes] == [True, False, True]
    assert outcomes[0].speedup == pytest.approx((2.0, 1.98, 2.02))
    assert outcomes[0].evaluator_version == "stub-1"
    assert not any(outcome.is_masked for outcome in outcomes)


def test_more_candidates_than_fit_into_one_request_are_all_judged(client):
    outcomes = client.judge([submission(f"speedup {1 + n / 100}") for n in range(150)])
    assert [round(outcome.speedup[0], 2) for outcome in outcomes] == [
        round(1 + n / 100, 2) for n in range(150)
    ]


def test_nothing_to_judge_is_nothing(client):
    assert client.judge([]) == []


def test_our_own_fault_is_masked_after_another_try(server, client):
    before = server.ask.get("/metrics").text
    (outcome,) = client.judge([submission("fail")])
    assert (outcome.fault, outcome.rewards) == ("infra", {})
    assert outcome.is_masked
    assert _submitted(server.ask.get("/metrics").text) - _submitted(before) == 2


def _submitted(metrics: str) -> int:
    return int(metrics.split("\nevolve_serve_submitted_total ")[1].split()[0])


def test_the_feedback_is_a_whole_message_for_the_next_turn(client):
    (outcome,) = client.judge([submission("wrong_value", "next")])
    assert outcome.next_turn.startswith("# Your last program")
    assert "stub: wrong_value" in outcome.next_turn


def test_who_judges_can_be_asked_and_pinned(server, client):
    about = asyncio.run(client.about())
    pins = {"evaluator": about["evaluator_version"], "device_class": about["device_class"]}
    pinned = Client(server.url, token=TOKEN, rewards=["kevin@1"], pins=pins)
    assert pinned.judge([submission()])[0].status == "correct"


@pytest.mark.parametrize(
    "wanted", [{"pins": {"evaluator": "other"}}, {"rewards": ["kevin@2"]}], ids=str
)
def test_another_judge_or_reward_than_pinned_is_an_error(server, wanted):
    with pytest.raises(PinMismatch, match="409"):
        Client(server.url, token=TOKEN, **wanted).judge([submission()])


def test_a_token_that_is_wrong_is_said_at_once(server):
    with pytest.raises(UsageError, match="EVOLVE_SERVE_TOKEN"):
        Client(server.url, token="wrong-wrong-wrong").judge([submission()])


def test_an_address_that_is_none_is_said_at_once(server):
    client = Client(f"{server.url}/v1", token=TOKEN, rewards=["kevin@1"], patience_s=5)
    with pytest.raises(UsageError, match=r"404.*without a path"):
        client.judge([submission()])
    with pytest.raises(UsageError, match="without a path"):
        asyncio.run(client.about())


def test_a_submission_that_cannot_be_is_said_at_once(client):
    with pytest.raises(UsageError, match="no task of that name"):
        client.judge([submission(task="nosuch")])


def test_a_server_that_is_nowhere_is_masked_when_patience_ends():
    client = Client("http://127.0.0.1:9", rewards=["kevin@1"], patience_s=0.3)
    (outcome,) = client.judge([submission()])
    assert (outcome.fault, outcome.is_masked) == ("unreachable", True)
    assert "0.3 s" in outcome.message


@pytest.mark.slow
def test_a_restart_of_the_server_is_not_noticed(tmp_path):
    found = []
    with serving(tmp_path, slots=1, latency_s=0.2) as first:
        client = Client(first.url, rewards=["kevin@1"])
        bodies = [submission(f"speedup {n}.5", marker=f"m{n}") for n in range(1, 7)]
        asking = threading.Thread(target=lambda: found.extend(client.judge(bodies)))
        asking.start()
        time.sleep(0.6)
        first.kill()
        with serving(tmp_path, port=first.port):
            asking.join(timeout=60)
    assert [outcome.speedup[0] for outcome in found] == [n + 0.5 for n in range(1, 7)]


@pytest.mark.slow
def test_jobs_that_a_server_has_lost_are_submitted_again(tmp_path):
    found = []
    with serving(tmp_path, slots=1, latency_s=0.5) as first:
        client = Client(first.url, rewards=["kevin@1"])
        bodies = [submission(marker=f"m{n}") for n in range(3)]
        asking = threading.Thread(target=lambda: found.extend(client.judge(bodies)))
        asking.start()
        time.sleep(0.3)
        first.kill()
        for path in tmp_path.glob("serve.db*"):
            path.unlink()
        with serving(tmp_path, port=first.port):
            asking.join(timeout=60)
    assert [outcome.status for outcome in found] == ["correct"] * 3


@pytest.mark.slow
def test_a_full_queue_only_takes_time(tmp_path):
    with serving(tmp_path, slots=2, latency_s=0.05, queue=64) as server:
        client = Client(server.url, rewards=["kevin@1"])
        outcomes = client.judge([submission(marker=f"m{n}") for n in range(130)])
        assert {outcome.status for outcome in outcomes} == {"correct"}


def test_a_program_that_is_too_long_to_be_read_has_failed_and_stops_nothing(client):
    words = {"task": "rmsnorm"}
    outcomes = client.judge(
        [
            {**words, "source": candidate("speedup 2.0") + "#" * 400_000},
            {**words, "completion": f"```python\n{candidate()}```\n" + "so be it " * 2_000_000},
            {**words, "source": ""},
            {**words, "completion": ""},
            {**words, "source": candidate("speedup 2.0")},
        ]
    )
    assert [outcome.rewards["kevin@1"] for outcome in outcomes] == pytest.approx(
        [0.0, 0.0, 0.0, 0.0, 2.3]
    )
    assert not any(outcome.is_masked for outcome in outcomes)


@pytest.mark.slow  # 19 MB of source; many candidates in several requests are in another test
def test_candidates_that_do_not_fit_into_one_body_go_in_several(client):
    padding = "#" * 390_000 + "\N{SNOWMAN}\n"
    bodies = [{"task": "rmsnorm", "source": f"# {n}\n{padding}{candidate()}"} for n in range(50)]
    assert sum(len(body["source"]) for body in bodies) > MAX_BODY
    assert {outcome.status for outcome in client.judge(bodies)} == {"correct"}


def test_half_of_a_character_is_no_reason_to_stop(client):
    (outcome,) = client.judge([submission("speedup 2.0", marker="\ud83d")])
    assert outcome.correct


def test_the_client_keeps_to_what_the_server_takes():
    assert rl_client.MAX_TEXT == messages.MAX_TEXT
    assert rl_client.MAX_AT_ONCE <= messages.MAX_BATCH
    # one submission has three texts at most, of up to six bytes a character
    assert max(rl_client.MAX_BYTES, 3 * 6 * rl_client.MAX_TEXT) < MAX_BODY


def test_a_baseline_of_the_client_is_that_of_every_row(server):
    client = Client(server.url, token=TOKEN, rewards=["cuda_agent@1"], baseline="compile")
    (outcome,) = client.judge([submission("speedup 2.0", baseline="eager")])
    assert outcome.rewards == {"cuda_agent@1": 3.0}


def outcome(worth: float | None = None, fault: str = "") -> Outcome:
    rewards = {} if fault else {"kevin@1": worth}
    return Outcome(job="j", fault=fault, rewards=rewards)


@pytest.mark.parametrize(
    ("turns", "best", "worth"),
    [
        ([outcome(1.0), outcome(3.0), outcome(2.0)], True, 3.0),
        ([outcome(1.0), outcome(3.0), outcome(2.0)], False, 2.0),
        ([outcome(3.0), outcome(fault="infra")], True, None),  # it may have been the best
        ([outcome(fault="infra"), outcome(2.0)], False, None),  # and it took a turn away
        ([outcome(3.0), outcome(None)], True, None),
        ([outcome(None), outcome(2.0)], False, 2.0),
    ],
)
def test_an_episode_is_worth_what_is_known_of_it(turns, best, worth):
    assert worth_of(turns, "kevin@1", best=best) == worth


def test_masked_rows_stop_training_above_one_in_a_hundred():
    rows = MaskedRows()
    assert rows.count(100, infra_masked=1, unscored=0)["infra_masked"] == 0.01
    with pytest.raises(TooManyMasked, match="3 of 200 rows"):
        rows.count(200, infra_masked=3, unscored=0)


def test_rows_without_a_score_are_counted_apart_and_stop_training_above_a_half():
    rows = MaskedRows()
    assert rows.count(10, infra_masked=0, unscored=5) == {"infra_masked": 0.0, "unscored": 0.5}
    with pytest.raises(TooManyMasked, match=r"unscored: 6 of 10 rows.*take another reward"):
        rows.count(10, infra_masked=0, unscored=6)


def test_a_step_may_come_in_several_calls():
    rows = MaskedRows(step_rows=200)
    for step in range(3):
        for masked in (1, 0, 1, 0):
            rows.count(50, infra_masked=masked, unscored=0, step=step)
    with pytest.raises(TooManyMasked, match="3 of 200 rows"):
        rows.count(50, infra_masked=3, unscored=0, step=3)


def test_candidates_that_differ_only_in_their_text_are_judged_apart(client):
    one, other = client.judge(
        [{"task": "rmsnorm", "source": candidate(word)} for word in ("speedup 2.0", "speedup 4.0")]
    )
    assert (one.speedup[0], other.speedup[0]) == (2.0, 4.0)
