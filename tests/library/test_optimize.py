"""A search from Python: `evolve.optimize` and `evolve.optimize_async`.

Invariants:
1. A call returns the stored run with its winner, also where an event loop is running, and prints
   nothing.
2. Events come in the order: what precedes the run, its start, each verdict, its end.
3. What ended early (an exception of the callback, Ctrl-C, a budget) goes on by the same name; no
   verdict is asked for twice.
4. A class and a function are tasks like a file.
"""

import asyncio
import signal
import threading
from pathlib import Path

import hydra
import pytest
import torch
from hydra.core.global_hydra import GlobalHydra

import evolve
from evolve.app.config.locate import config_dir
from evolve.store import Store
from tests.library.conftest import SEARCH, program

SCALE = 3.0


class Scaled(torch.nn.Module):
    def forward(self, x):
        return x.relu() * SCALE


def make_inputs():
    return [torch.ones(3)]


def judged() -> list[str]:
    return Path("judged").read_text().split()


def test_a_search_returns_its_winner_and_prints_nothing(judge, capfd):
    result = evolve.optimize("./relu.py", **SEARCH)
    assert (result.speedup, result.interval) == (2.5, (2.25, 2.75))
    assert (result.is_gain, result.verified, result.finished) == (True, True, True)
    assert result.baseline == "eager"
    assert "MARK = 'p2'" in result.source
    assert capfd.readouterr().out == ""


def test_after_a_verification_the_best_is_the_winner_as_verified(judge):
    """On a GPU the first program is verified at once."""
    Path("p0.py").write_text("# verified 0.8\n" + program(2.5, "lucky"))
    Path("p1.py").write_text(program(1.2, "honest"))
    events = []
    given = {**SEARCH, "settings": {"initial": ["p0.py", "p1.py"]}, "budget": {"evaluations": 2}}
    result = evolve.optimize("./relu.py", **{**given, "device": "cuda"}, on_event=events.append)
    judged = [event for event in events if isinstance(event, evolve.Judged)]
    assert [event.verifies for event in judged][:3] == [False, True, False]
    assert [event.is_best for event in judged][:3] == [True, False, True]
    assert result.speedup == 1.2


ODD = ["a\tb", "a\nb", "~a", "a\\b", "a\\", 'a"b', "a\\\"b'", "a, b", "null", "1", "é"]


@pytest.mark.slow
def test_texts_arrive_as_they_are(judge):
    for number, name in enumerate(ODD):
        Path(f"{name}.py").write_text(Path("p2.py").read_text())
        given = {**SEARCH, "settings": {"initial": [f"./{name}.py"]}, "budget": {"evaluations": 1}}
        result = evolve.optimize("./relu.py", **given, store=name, name=f"run{number}")
        assert (result.store, result.speedup) == (Path(name), 2.5)


def test_a_search_waits_where_a_loop_is_running(judge):
    async def cell():
        return evolve.optimize("./relu.py", **SEARCH)

    assert asyncio.run(cell()).speedup == 2.5


def test_an_async_search_leaves_the_loop_to_others(judge):
    ticks = []

    async def tick():
        while True:
            ticks.append(1)
            await asyncio.sleep(0.01)

    async def main():
        other = asyncio.create_task(tick())
        result = await evolve.optimize_async("./relu.py", **SEARCH)
        other.cancel()
        return result

    assert asyncio.run(main()).speedup == 2.5
    assert len(ticks) > 5


def test_events_come_in_order(judge):
    events = []
    result = evolve.optimize(Path("relu.py"), **SEARCH, on_event=events.append)
    kinds = [type(event) for event in events]
    start = kinds.index(evolve.Started)
    assert {*kinds[:start]} == {evolve.Notice, evolve.Phase}
    assert events[start] == evolve.Started(run=result.run, store="runs/evolve.db")
    assert {*kinds[start + 1 : -1]} == {evolve.Judged}
    assert events[-1] == evolve.Ended(run=result.run, reason=result.reason, finished=True)
    verdicts = [event for event in events if isinstance(event, evolve.Judged)]
    assert [each.speedup and each.speedup.value for each in verdicts if not each.verifies] == [
        1.2, None, 2.5, 1.1,
    ]  # fmt: skip
    assert [each.sequence for each in verdicts if each.is_best] == [0, 2]
    assert verdicts[1].feedback == "not equal"
    assert verdicts[-1].verifies


def test_a_budget_ends_a_search(judge):
    result = evolve.optimize("./relu.py", **SEARCH | {"budget": {"evaluations": 2}})
    assert judged().count("search") == 2
    assert result.reason == "2 of 2 evaluations used"
    assert result.speedup == 1.2


def test_a_limit_of_none_lifts_the_default(judge):
    budget = {"evaluations": 1, "wall_time": None, "usd": None}
    evolve.optimize("./relu.py", **SEARCH | {"budget": budget})
    with Store.open("runs/evolve.db", read_only=True) as store:
        limits = store.run(None).config["termination"]
    assert (limits["evaluations"], limits["wall_time"], limits["stagnation"]) == (1, None, None)


def test_a_larger_budget_goes_on_by_the_same_name(judge):
    first = evolve.optimize("./relu.py", name="relu", **SEARCH | {"budget": {"evaluations": 2}})
    second = evolve.optimize("./relu.py", name="relu", **SEARCH)
    assert (first.run, second.run) == ("relu", "relu")
    assert judged().count("search") == 4
    assert (first.speedup, second.speedup) == (1.2, 2.5)
    assert len(evolve.Result("runs/evolve.db").history) == len(second.history)


def test_an_exception_of_the_callback_ends_a_search_that_can_be_resumed(judge):
    def fail(event):
        if isinstance(event, evolve.Judged) and event.sequence == 1:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        evolve.optimize("./relu.py", name="relu", **SEARCH, on_event=fail)
    assert not evolve.Result("runs/evolve.db", "relu").finished
    result = evolve.optimize("./relu.py", name="relu", **SEARCH)
    assert (result.finished, result.speedup) == (True, 2.5)
    assert [row.status for row in result.history][:4].count("correct") == 3


@pytest.fixture
def heeds_ctrl_c():
    """Whatever started the tests: a shell's background job ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_ends_a_search_that_can_be_resumed(judge):
    def interrupt(event):
        if isinstance(event, evolve.Judged) and event.sequence == 0:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        evolve.optimize(
            "./relu.py", name="relu", **SEARCH | {"budget": {"evaluations": 4}}, on_event=interrupt
        )
    result = evolve.optimize("./relu.py", name="relu", **SEARCH)
    assert (result.finished, result.speedup) == (True, 2.5)


def test_a_class_is_a_task(judge):
    result = evolve.optimize(Scaled, inputs=make_inputs, name="scaled", **SEARCH)
    assert result.task.name == "Scaled"
    assert "SCALE = 3.0" in result.task.source
    assert "class Model(torch.nn.Module)" in result.task.source
    again = evolve.optimize(Scaled, inputs=make_inputs, name="scaled", **SEARCH)
    assert again.run == "scaled"
    assert len(list(Path("runs/tasks").rglob("*.py"))) == 1


def scaled(x, scale=SCALE):
    return x.relu() * scale


def test_a_function_is_a_task(judge):
    result = evolve.optimize(scaled, inputs=make_inputs, name="function", **SEARCH)
    assert (result.task.name, result.speedup) == ("scaled", 2.5)
    assert "def reference(x, scale=SCALE)" in result.task.source
    assert "return reference(x, scale)" in result.task.source
    again = evolve.evaluate(program(1.5), str(next(Path("runs/tasks").rglob("*.py"))), device="cpu")
    assert again.ratios["eager"].value == 1.5  # the file serves the command line too


def test_a_callers_own_hydra_application_keeps_its_state(judge):
    with hydra.initialize_config_dir(str(config_dir()), version_base="1.3"):
        evolve.optimize("./relu.py", **SEARCH)
        assert GlobalHydra.instance().is_initialized()


BAD = {
    "settings that are a list": ({"settings": ["seed=1"]}, ["settings=['seed=1']", "a dict"]),
    "a task of another kind": ({"task": 3}, ["task=3", "torch.nn.Module class"]),
    "a function of C": ({"task": torch.relu}, ["relu", "written with def"]),
    "a function without inputs": ({"task": scaled}, ["inputs is not given", "scaled"]),
    "an instance": ({"task": Scaled()}, ["task=Scaled()", "not an instance"]),
    "no module": ({"task": dict}, ["task=dict", "no torch.nn.Module"]),
    "a class without inputs": ({"task": Scaled}, ["inputs is not given", "inputs=make_inputs"]),
    "inputs of a file": ({"inputs": make_inputs}, ["inputs=", "has no effect", "relu.py"]),
    "an unknown task": ({"task": "relo"}, ["unknown task 'relo'", "by its path"]),
    "a number as budget": ({"budget": 60}, ["budget=60", "{'evaluations': 60}"]),
    "an unknown limit": ({"budget": {"evals": 6}}, ["termination.evals", "no such setting"]),
    "a limit of the wrong type": ({"budget": {"evaluations": "many"}}, ["evaluations=many"]),
    "an unknown search": ({"search": "quik"}, ["search=quik", "quick"]),
    "an unknown device": ({"device": "tpu"}, ["device=tpu", "cpu"]),
    "an unknown setting": ({"settings": {"sead": 1}}, ["sead", "seed"]),
    "a setting given twice": ({"settings": {"device": "cpu"}}, ["settings['device']", "leave one"]),
    "a value that is no setting": ({"settings": {"seed": object}}, ["seed=", "no setting"]),
    "a bad name": ({"name": "a b"}, ["name=a b", "letters"]),
    **{
        f"{name} of a wrong type: {value!r}": ({name: value}, [f"{name}={value!r}: give "])
        for name in ("store", "on_event", "search", "model", "name", "device")
        for value in (5, 0, [1])
    },
    "a folder as store": ({"store": "."}, ["store.path=.", "folder"]),
}  # fmt: skip


@pytest.mark.parametrize("given", BAD)
def test_what_cannot_be_is_refused_with_field_value_and_remedy(judge, given):
    arguments, said = BAD[given]
    with pytest.raises(evolve.UsageError) as error:
        evolve.optimize(**{"task": "./relu.py", **SEARCH, **arguments})
    assert "\n" not in str(error.value)
    for words in said:
        assert words in str(error.value)
    assert not Path("judged").exists()


def test_another_task_by_the_same_name_is_refused(judge):
    evolve.optimize("./relu.py", name="relu", **SEARCH)
    with pytest.raises(evolve.UsageError, match="relu"):
        evolve.optimize(Scaled, inputs=make_inputs, name="relu", **SEARCH)
