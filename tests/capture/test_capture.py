"""From a script to tasks: shares of its time, and files that the judge takes.

Invariants:
1. Equal layers are one part with all of their calls; a ceiling is 1 / (1 - share).
2. A written task makes the module as the script did, and draws arguments of the recorded kinds.
3. A part that a file cannot stand for is named with the reason, and so is a script that fails.
4. The next commands are printed, for a task whose winner the script can use if there is one; a
   shell and the commands read their words as they are meant.
"""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch

from evolve.app.config.compose import compose
from evolve.capture.processes import Script, started
from evolve.capture.tasks import select, shares_of, write_tasks
from evolve.cli.main import main
from evolve.core.errors import USAGE, UsageError
from evolve.tasks import find_task
from evolve.worker.correctness.cases import load_task
from tests.capture.scripts_running import SCRIPTS, capture

GUIDE = SCRIPTS.parents[2] / "examples" / "guides" / "capture.md"


@pytest.fixture(scope="module")
def transformer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("transformer")
    words = ["--min-share", "0.01", str(SCRIPTS / "transformer.py"), "--", "--steps", "3"]
    return folder, capture(folder, *words)


@pytest.fixture(scope="module")
def various(tmp_path_factory):
    folder = tmp_path_factory.mktemp("various")
    script = str(SCRIPTS / "various.py")
    text = capture(folder, "--json", "--min-share", "0.0001", script, "--", "--compile")
    parts = json.loads(text)["parts"]
    return {one["constructor"]: one for one in parts} | {
        one["name"].rpartition(".")[2]: one for one in parts
    }


def row(text: str, name: str) -> tuple[int, float, float]:
    """Calls, share in per cent and ceiling of the part whose line begins so."""
    found = re.search(rf"^{re.escape(name)}.*? +(\d+) +([\d.]+) % +([\d.]+) ", text, re.MULTILINE)
    return int(found[1]), float(found[2]), float(found[3])


def test_equal_layers_are_one_part_with_all_their_calls(transformer):
    _, text = transformer
    assert row(text, "Layer(")[0] == 3 * 4
    assert row(text, "RMSNorm(64)")[0] == 3 * (2 * 4 + 1)
    assert row(text, "scaled_dot_product_attention")[0] == 3 * 4


def commands_of(guide: Path) -> list[list[str]]:
    """The words of the three commands of a guide: capture, run and apply."""
    (block,) = re.findall(r"^```\n(evolve tasks capture.*?)^```", guide.read_text(), re.M | re.S)
    return [shlex.split(line, comments=True) for line in block.splitlines()]


@pytest.mark.slow  # a whole guide's script; the tests of the commands' words below are quick
@pytest.mark.parametrize("words", [["--train"], []])
def test_the_next_commands_name_the_task_that_the_guide_goes_on_with(
    tmp_path, monkeypatch, capsys, words
):
    """The guide's first command, as it is printed there, by the script that it names."""
    guide = GUIDE.read_text()
    (script,) = re.findall(r"small transformer\]\((\S+)\)", guide)
    shutil.copy(GUIDE.parent / script, tmp_path)
    monkeypatch.chdir(tmp_path)
    first, search, put_back = commands_of(GUIDE)
    assert main([*first[1:], *words]) == 0
    printed = capsys.readouterr().out.strip().splitlines()[-2:]
    task = search[2].removeprefix("task=./")
    assert put_back[put_back.index("--winner") + 1].startswith(f"{task}=")
    if words:
        (task,) = re.findall(r"With `--train`.*`(tasks/\w+\.py)`", guide)
    script_words = shlex.join(["train.py", *first[first.index("--") :], *words])
    assert printed == [
        f"Search: evolve run task=./{task}",
        f"Put the winner back: evolve apply --winner {task}=RUN {script_words}",
    ]


def test_the_guides_show_the_same_commands():
    capturing, applying = map(commands_of, (GUIDE, GUIDE.with_name("apply.md")))
    assert capturing == applying


IN_PLACE = """
import sys
import torch

def own(x):
    x.mul_(0.5)
    return torch.relu(x).softmax(-1)

x = torch.randn(64, 64, requires_grad="--train" in sys.argv)
for _ in range(3):
    y = own(x * 1)
    if x.requires_grad:
        y.sum().backward()
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["my dir", "plain", "it's (1)", "a,b;c", "$HOME {é}", 'a"b#'])
def test_the_next_commands_survive_a_shell_whatever_a_folder_is_called(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    (folder / "script.py").write_text(IN_PLACE)
    words = [str(folder / "script.py"), "--", "--note", "two words"]
    search, put_back = capture(folder / "tasks", "--select", "own", *words).splitlines()[-2:]
    task = str(folder / "tasks" / "own.py")
    evolve, run, *settings = shlex.split(search.removeprefix("Search: "))
    assert (evolve, run, compose(settings)["task"]) == ("evolve", "run", task)
    expected = ["evolve", "apply", "--winner", f"{task}=RUN", *words]
    assert shlex.split(put_back.removeprefix("Put the winner back: ")) == expected


def test_a_winner_that_cannot_be_put_back_is_searched_with_a_word_on_why(tmp_path):
    (tmp_path / "script.py").write_text(IN_PLACE)
    words = ["--select", "own", str(tmp_path / "script.py"), "--", "--train"]
    search, why = capture(tmp_path / "tasks", *words).splitlines()[-2:]
    assert search == f"Search: evolve run task={tmp_path}/tasks/own.py"
    assert why.startswith("The winner cannot be put back: gradients flow")
    assert "it writes to an argument" in why


def test_a_part_has_the_share_of_all_it_calls_and_the_ceiling_of_amdahl(transformer):
    _, text = transformer
    layer = row(text, "Layer(")
    inner = [row(text, name)[1] for name in ("Attention(",
             "RMSNorm(64)", "NewGELU(1)", "Linear(64, 256)", "Linear(256, 64)")]  # fmt: skip
    assert layer[1] > 0.9 * sum(inner)
    for name in ("NewGELU(1)", "scaled_dot_product_attention"):
        _, share, ceiling = row(text, name)
        assert ceiling == pytest.approx(1 / (1 - share / 100), abs=0.02)


def test_the_whole_model_becomes_a_task_only_if_it_is_named(transformer):
    folder, text = transformer
    assert "Transformer(" in text
    assert not (folder / "transformer.py").exists()
    assert (folder / "layer.py").exists()


def test_tasks_have_the_shapes_and_arguments_of_the_calls(transformer):
    folder, _ = transformer
    case = load_task(find_task(str(folder / "attention.py"))).cases[0]
    x, causal = case.own_inputs(1)
    assert (x.shape, causal, case.mode) == ((8, 128, 64), True, "eval")
    other = case.own_inputs(2)[0]
    assert not torch.equal(x, other)
    assert other.std() == pytest.approx(float(x.std()), rel=0.1)
    q, *_ = (
        load_task(find_task(str(folder / "scaled_dot_product_attention.py"))).cases[0].own_inputs(1)
    )
    assert q.shape == (8, 4, 128, 16)
    assert q.stride() == (128 * 192, 16, 192, 1)  # a view of the projection


def test_a_task_computes_what_the_module_of_the_script_does(transformer, monkeypatch):
    folder, _ = transformer
    monkeypatch.syspath_prepend(str(SCRIPTS))
    layers = __import__("layers")
    case = load_task(find_task(str(folder / "layer.py"))).cases[0]
    model = case.constructed(3)
    own = layers.Layer(layers.Config())
    own.load_state_dict(model.state_dict())
    inputs = case.own_inputs(4)
    with torch.no_grad():
        torch.testing.assert_close(model(*inputs), own(*inputs))


@pytest.mark.parametrize(
    "name",
    [
        "Model",
        "Cached",
        "Each",
        "Half",
        "InPlace",
        "TransformerEncoderLayer",
        "softmax",
    ],
)
def test_modules_as_users_write_them_become_tasks(various, name):
    parts = various
    assert parts[name]["fault"] == ""
    file = load_task(find_task(parts[name]["task"]))
    for case in file.cases:
        case.constructed(1)(*case.own_inputs(1))
    assert len(file.cases) == len(parts[name]["workloads"])


def test_a_call_in_inference_mode_becomes_a_task(various):
    assert find_task(various["Softplus"]["task"]).cases[0].name == "5"


def test_values_that_mean_something_are_kept_and_others_are_drawn(various):
    case = load_task(find_task(various["InPlace"]["task"])).cases[0]
    x, index = case.own_inputs(5)
    assert index.tolist() == [1, 0]
    _, mask, value = load_task(find_task(various["Fill"]["task"])).cases[0].own_inputs(5)
    assert torch.equal(mask, torch.ones(4, 64).tril().bool())
    assert value == float("-inf")
    assert not torch.equal(x, case.own_inputs(6)[0])


def test_cases_are_weighted_by_time(various):
    task = find_task(various["softmax"]["task"])
    seconds = {one["shapes"]: one["seconds"] for one in various["softmax"]["workloads"]}
    assert sum(case.weight for case in task.cases) == pytest.approx(1, abs=1e-3)
    for case in task.cases:
        share = seconds[case.name] / sum(seconds.values())
        assert case.weight == pytest.approx(share, abs=1e-3)


def test_a_compiled_module_is_one_part(various):
    assert various["Sequential"]["workloads"]
    assert "ReLU" not in various


def test_a_part_that_no_file_can_stand_for_says_why(various):
    parts = various
    assert "something is set up later" in parts["SetLater"]["fault"]
    assert "argument 1 is a Log" in parts["Opaque"]["fault"]
    assert "under autocast" in parts["Linear(64, 3)"]["fault"]
    assert parts["SetLater"]["task"] is parts["Opaque"]["task"] is None


BAD = {
    "1 / 0": "raised ZeroDivisionError at line 1 of",
    "raise SystemExit(3)": "ended with exit status 3",
    "x =": "raised SyntaxError",
    "import os\nprint('last words', flush=True)\nos._exit(0)": "It printed last: last words",
}


def test_a_script_that_fails_is_named_with_its_fault(tmp_path):
    (tmp_path / "script.py").touch()
    script = Script(name=str(tmp_path / "script.py"))
    with started(script) as run:
        for text, said in BAD.items():
            (tmp_path / "script.py").write_text(text)
            with pytest.raises(UsageError, match="must exit with status 0") as raised:
                run({"purpose": "time"})
            assert said in str(raised.value)


@pytest.mark.slow  # three runs of scripts for messages
def test_a_script_with_nothing_to_capture_is_refused(tmp_path):
    (script := tmp_path / "script.py").write_text("print('no model here')")
    small = "import torch, time\ntorch.nn.ReLU()(torch.ones(2))\ntime.sleep(0.3)"
    with started(Script(name=str(script))) as run:
        with pytest.raises(UsageError, match="called no torch"):
            shares_of(Script(name=str(script)), run)
        script.write_text(small)
        with pytest.raises(UsageError, match="the largest is ReLU with"):
            select(shares_of(Script(name=str(script)), run), 0.05, [])
        with pytest.raises(UsageError, match="--select Relu: no part is called so"):
            select(shares_of(Script(name=str(script)), run), 0.05, ["Relu"])


def test_a_script_whose_calls_differ_from_run_to_run_gets_no_task(tmp_path):
    (tmp_path / "script.py").write_text(
        "import torch, time\ntorch.nn.ReLU()(torch.ones(time.time_ns() % 9973 + 1))"
    )
    script = Script(name=str(tmp_path / "script.py"))
    with started(script) as run:
        (share,) = select(shares_of(script, run), 0, [])
        written = write_tasks(script, run, [share], tmp_path / "tasks")
    assert "seed its random numbers" in written[share.part].fault


def test_a_module_runs_with_its_relative_imports(tmp_path, monkeypatch):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "parts.py").write_text("from torch.nn import Tanh\n")
    (tmp_path / "package" / "train.py").write_text(
        "import sys, torch\nfrom .parts import Tanh\n"
        "assert sys.argv[1:] == ['-v'] and __name__ == '__main__'\nTanh()(torch.randn(999))\n"
        "model = torch.nn.Sequential(*[torch.nn.Linear(9, 9) for _ in range(9)])\n"
        "model(torch.randn(9)).sum().backward()\n"
    )
    monkeypatch.chdir(tmp_path)
    text = capture(Path("tasks"), "--min-share", "0.001", "-m", "package.train", "--", "-v")
    assert re.search(r"^Sequential\(Linear\(9, 9\), .*… \[gradients\] +1 ", text, re.MULTILINE)
    assert find_task("tasks/tanh.py").cases[0].name == "999"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("nowhere.py", "there is no such file"),
        (".", "is a folder"),
        ("", "name a script, or a module by -m"),
        ("a.py -m b", "name a script, or a module by -m"),
        ("a.py --steps 3", "--steps"),
    ],
)
def test_words_that_name_no_script_are_refused_at_once(words, said, capsys):
    assert main(["tasks", "capture", *words.split()]) == USAGE
    assert said in capsys.readouterr().err
