"""Bad input: exit status 2, one clear line on standard error, no traceback, nothing written.

What each line must say is what was wrong, where, and what to do. Cases that need a judge are in
`test_judging.py`. Most are said by the command in this process, which saves each its imports; other
files have it say such lines in a process of its own.
"""

import os
import sqlite3
from pathlib import Path

import pytest

from evolve.cli.args import split_step
from evolve.cli.commands.run import run
from evolve.cli.commands.run.run import check_python
from evolve.cli.main import main
from evolve.core.errors import UsageError

LONG = "x" * 300  # more than file systems take

# The words of the command, and what the message must name.
CASES = {
    "unknown verb": (["runn"], ["runn", "run"]),
    "verb with a typo in a flag": (["list", "--jsonn"], ["--jsonn", "evolve list --help"]),
    "no task": (["run"], ["task"]),
    "bare word": (["run", "softmax"], ["task=softmax"]),
    "unknown task": (["run", "task=softmaxx"], ["softmaxx", "softmax"]),
    "task file that is missing": (["run", "task=./nope.py"], ["nope.py"]),
    "task that is a device": (["run", "task=/dev/null"], ["/dev/null", "regular file"]),
    "task file that is empty": (["run", "task=./empty.py"], ["empty.py"]),
    "task that does not parse": (["run", "task=./broken.py"], ["broken.py", "line 1"]),
    "task without a seed": (
        ["run", "task=./lonely.py", "operators.inductor=null"],
        ["initial=[", "language model"],
    ),
    "unknown suite problem": (["run", "task=kernelbench:9/9"], ["kernelbench:9/9"]),
    "initial that is missing": (["run", "task=softmax", "initial=[nope.py]"], ["nope.py"]),
    "initial that is empty": (["run", "task=softmax", "initial=[empty.py]"], ["empty.py"]),
    "initial without a ModelNew": (
        ["run", "task=softmax", "initial=[lonely.py]"],
        ["lonely.py", "ModelNew"],
    ),
    "unknown baseline": (
        ["run", "task=softmax", "baseline=fastest"],
        ["fastest", "compile", "file:"],
    ),
    "baseline file that is missing": (
        ["run", "task=softmax", "baseline=file:nope.py"],
        ["nope.py"],
    ),
    "baseline file without a path": (
        ["run", "task=softmax", "baseline=file:"],
        ["baseline=file:", "mine.py"],
    ),
    "baseline file without a ModelNew": (
        ["run", "task=softmax", "baseline=file:lonely.py", "--dry-run"],
        ["baseline lonely.py", "ModelNew"],
    ),
    "baseline file that does not parse": (
        ["run", "task=softmax", "baseline=file:torn.py"],
        ["baseline torn.py", "line 1"],
    ),
    "dry run of a name that is taken": (
        ["run", "task=softmax", "name=demo", "--dry-run"],
        ["demo", "on_exists"],
    ),
    "one file for a list": (["run", "task=softmax", "initial=x.py"], ["initial=[x.py]"]),
    "task with a space and an accent": (
        ["run", "task=./my tâsk.py"],
        ["""'task="./my tâsk.py"'"""],
    ),
    "no slots": (["run", "task=softmax", "device.slots=0"], ["device.slots=0", "at least 1"]),
    "an interval without a width": (
        ["run", "task=softmax", "device.half_width=0"],
        ["device.half_width=0", "from 0.001 to 0.5"],
    ),
    "no such interpreter": (["run", "task=softmax", "device.python=./no"], ["device.python=./no"]),
    "a path that candidates cannot read": (
        ["run", "task=softmax", "sandbox.read=[./no]"],
        ["sandbox.read", "./no"],
    ),
    "added setting": (["run", "task=softmax", "+budget=3"], ["budget", "no such setting"]),
    "added limit": (
        ["resume", "demo", "++termination.foo=3"],
        ["termination.foo", "no such setting"],
    ),
    "added to a bench": (["bench", "suite=shipped", "+budget=3"], ["budget"]),
    "added to a bench's own": (["serve", "+budget=3"], ["budget"]),
    "setting taken away": (["run", "task=softmax", "~seed=0"], ["seed"]),
    "unknown setting": (["run", "task=softmax", "budget=3"], ["budget"]),
    "unknown option": (["run", "task=softmax", "archive=queue"], ["queue", "topk"]),
    "word for a number": (["run", "task=softmax", "archive.capacity=abc"], ["archive.capacity"]),
    "number out of range": (["run", "task=softmax", "archive.capacity=0"], ["archive.capacity"]),
    "bad duration": (["run", "task=softmax", "termination.wall_time=soon"], ["wall_time"]),
    "device with a number": (
        ["run", "task=softmax", "device=cuda:0"],
        ["device=cuda device.ids=[0]"],
    ),
    "devices with numbers": (
        ["resume", "demo", "device=cuda:0,1"],
        ["device=cuda device.ids=[0,1]"],
    ),
    "one GPU twice": (
        ["run", "task=softmax", "device=cuda", "device.ids=[1,1]"],
        ["device.ids=[1, 1]", "once"],
    ),
    "no GPU at all": (["run", "task=softmax", "device=cuda", "device.ids=[]"], ["device.ids=[]"]),
    "GPU below zero": (["run", "task=softmax", "device=cuda", "device.ids=[-1]"], ["[-1]"]),
    "number instead of a list": (
        ["run", "task=softmax", "device=cuda", "device.ids=0"],
        ["device.ids=[0]"],
    ),
    "numbers of GPUs on the CPU": (
        ["run", "task=softmax", "device=cpu", "device.ids=[0]"],
        ["device.ids=[0]", "device=cuda"],
    ),
    "device of another name": (["run", "task=softmax", "device=gpu"], ["gpu", "cuda"]),
    "program for the CPU on a GPU": (
        ["run", "task=softmax", "device=cuda", "initial=[for_cpu.py]"],
        ["initial for_cpu.py", "C++", "device=cpu"],
    ),
    "baseline for a GPU on the CPU": (
        ["run", "task=softmax", "device=cpu", "baseline=file:for_gpu.py"],
        ["baseline for_gpu.py", "CUDA C++", "device=cuda"],
    ),
    "candidate for a GPU on the CPU": (
        ["eval", "for_gpu.py", "--task", "softmax", "--device", "cpu"],
        ["candidate for_gpu.py", "CUDA C++", "device=cuda"],
    ),
    "candidate for the CPU on a GPU": (
        ["eval", "for_cpu.py", "--task", "softmax", "--device", "cuda"],
        ["candidate for_cpu.py", "C++", "device=cpu"],
    ),
    "replay of nothing": (["run", "task=softmax", "device=replay"], ["device.run"]),
    "setting without an effect": (["run", "task=softmax", "device.run=demo"], ["device.run"]),
    "a flag where settings belong": (["run", "--task", "softmax"], ["task="]),
    "every operator left out": (
        [
            *("run", "task=softmax"),
            *(
                f"operators.{name}=null"
                for name in ("seed", "inductor", "template_seed", "tune", "recombine")
            ),
        ],
        ["operators"],
    ),
    "name that is a path": (["run", "task=softmax", "name=../x"], ["name=../x", "letters"]),
    "name that is too long for a file": (
        ["run", "task=softmax", f"name={'a' * 201}"],
        ["201 bytes", "200"],
    ),
    "seed that is too large": (["run", "task=softmax", f"seed={2**63}"], [str(2**63), "64 bits"]),
    "database with a long name": (["list", "--store", LONG], [LONG, "too long"]),
    "place with a long name": (["run", "task=softmax", f"store.path={LONG}"], [LONG, "too long"]),
    "task with a long name": (["run", f"task={LONG}.py"], [LONG]),
    "candidate with a long name": (["eval", LONG, "--task", "softmax"], [LONG, "too long"]),
    "run in a newer schema": (["run", "task=softmax", "store.path=newer.db"], ["newer.db"]),
    "run in a file that is no database": (
        ["run", "task=softmax", "store.path=lonely.py"],
        ["lonely.py"],
    ),
    "keeping less than nothing": (["db", "prune", "demo", "--keep", "-5"], ["--keep -5"]),
    "name that is taken": (["run", "task=softmax", "name=demo"], ["demo", "on_exists"]),
    "resume of nobody": (["run", "task=softmax", "on_exists=resume"], ["on_exists", "name="]),
    "warm start from no database": (
        ["run", "task=softmax", "warm_start=nope.db:demo"],
        ["nope.db"],
    ),
    "warm start from another task": (
        ["run", "task=softmax", "warm_start=demo"],
        ["warm_start=demo", "synthetic", "softmax"],
    ),
    "warm start from an empty name": (["run", "task=softmax", "warm_start="], ["FILE.db:RUN"]),
    "warm start from no run": (["run", "task=softmax", "warm_start=nobody"], ["nobody", "demo"]),
    "other settings on resume": (
        ["resume", "demo", "archive.capacity=3"],
        ["archive.capacity", "10000", "3"],
    ),
    "other settings by name": (
        ["run", "task=./synthetic.py", "search=single", "name=demo", "on_exists=resume", "seed=5"],
        ["seed", "5"],
    ),
    "another device by name": (
        ["run", "task=./synthetic.py", "name=demo", "on_exists=resume", "device=cuda"],
        ["device=cuda", "has been judged on", "device=cpu"],
    ),
    "unknown run to resume": (["resume", "nobody"], ["nobody", "demo"]),
    "two runs to resume": (["resume", "demo", "other"], ["one run"]),
    "no database to resume from": (["resume", "store.path=nope.db"], ["nope.db"]),
    "unknown run": (["show", "nobody"], ["nobody", "demo"]),
    "unknown step": (["show", "demo:99999"], ["99999"]),
    "step with too many digits": (["show", "demo:" + "9" * 30], ["number of a step"]),
    "name that is no text": (["show", "demo\udcff"], ["UTF-8", "evolve show --help"]),
    "database that is a device": (["list", "--store", "/dev/null"], ["/dev/null", "regular file"]),
    "step that is no number": (["show", "demo:last"], ["demo:last"]),
    "no database": (["list", "--store", "nope.db"], ["nope.db"]),
    "file that is no database": (["list", "--store", "empty.py"], ["empty.py"]),
    "text that is no database": (["list", "--store", "lonely.py"], ["lonely.py"]),
    "database below a file": (
        ["run", "task=softmax", "store.path=empty.py/x.db"],
        ["empty.py/x.db"],
    ),
    "database that is the root": (["run", "task=softmax", "store.path=/"], ["store.path=/"]),
    "newer schema": (["list", "--store", "newer.db"], ["newer.db"]),
    "candidate that is missing": (["eval", "nope.py", "--task", "softmax"], ["nope.py"]),
    "candidate that is empty": (["eval", "empty.py", "--task", "softmax"], ["empty.py"]),
    "candidate that is a folder": (["eval", ".", "--task", "softmax"], ["directory"]),
    "candidate without a task": (["eval", "lonely.py"], ["--task"]),
    "unknown fidelity": (
        ["eval", "lonely.py", "--task", "softmax", "--fidelity", "most"],
        ["most", "search"],
    ),
    "repro into a full folder": (["eval", "demo:0", "--repro", "."], ["not empty"]),
    "output that cannot be written": (["best", "demo", "-o", "none/k.py"], ["none/k.py"]),
    "output that is the root": (["best", "demo", "-o", "/"], ["-o /", "folder"]),
    "file that is the root": (["best", "demo", "-o", "/", "--as", "module"], ["'/'", "folder"]),
    "graph of an unknown kind": (["lineage", "demo", "-o", "g.png"], ["g.png", ".graphml"]),
    "backup onto a file": (["db", "backup", "empty.py"], ["empty.py"]),
    "pruning of nobody in particular": (["db", "prune"], ["RUN"]),
    "care of no kind": (["db"], ["ACTION"]),
}


@pytest.fixture
def folder(tmp_path: Path, recorded: Path) -> Path:
    """The folder of the command, with files that are wrong in one way each."""
    (tmp_path / "empty.py").touch()
    (tmp_path / "broken.py").write_text("def get_inputs(:\n")
    (tmp_path / "torn.py").write_text("class ModelNew(:\n")
    functions = "def get_inputs(): ...\ndef get_init_inputs(): ...\n"
    (tmp_path / "lonely.py").write_text(f"class Model: ...\n{functions}")
    (tmp_path / "for_cpu.py").write_text("class ModelNew: ...\nload('k', cpp_sources=CODE)\n")
    (tmp_path / "for_gpu.py").write_text("class ModelNew: ...\nload('k', cuda_sources=CODE)\n")
    (tmp_path / "synthetic.py").write_text(_task_of(recorded))
    (tmp_path / "newer.db").write_bytes(recorded.read_bytes())
    _make_newer(tmp_path / "newer.db")
    return tmp_path


def _task_of(database: Path) -> str:
    from evolve.store import Store

    with Store.open(database, read_only=True) as store:
        return store.run("demo").task.source


def _make_newer(database: Path) -> None:
    connection = sqlite3.connect(database)
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.execute(f"PRAGMA user_version = {version + 1}")
    connection.commit()
    connection.close()


def files(folder: Path) -> set[Path]:
    """What lies in a folder, but for what SQLite keeps beside a file while it is open."""
    return {path for path in folder.rglob("*") if not path.name.endswith(("-wal", "-shm"))}


@pytest.mark.sample(20)
@pytest.mark.parametrize(("words", "named"), CASES.values(), ids=CASES.keys())
def test_bad_input_is_one_clear_line(
    folder: Path, words: list[str], named: list[str], monkeypatch, capsys
):
    monkeypatch.chdir(folder)
    before = files(folder)
    code = main(words)
    said, message = capsys.readouterr()
    assert code == 2, (said, message)
    assert message.startswith("evolve: ")
    assert len(message.splitlines()) == 1
    for name in named:
        assert name in message
    assert said == ""
    assert files(folder) == before


@pytest.mark.parametrize("step", ["demo:²", "demo:-1", "demo:1e3", "demo:", "demo: 1"])
def test_a_step_is_a_plain_number(step: str):
    with pytest.raises(UsageError, match="number of a step"):
        split_step(step)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["=softmax"], "task=softmax"),
        (["task=softmax", "-x"], "x=..."),
        (["--task=softmax"], "task=softmax"),
        (["task=softmax", "--cfg"], "--cfg job"),
        (["--cfg", "nope", "task=softmax"], "--cfg job"),
    ],
)
def test_words_that_are_no_settings_are_explained_before_anything_is_composed(words, says):
    with pytest.raises(UsageError) as refused:
        run.main(words)
    assert says in str(refused.value)


def test_a_python_that_is_too_new_is_refused_in_one_sentence():
    with pytest.raises(UsageError, match=r"Python 3\.14 is too new.*3\.13"):
        check_python((3, 14))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_named(evolve, folder: Path):
    (folder / "runs").chmod(0o500)
    try:
        done = evolve("run", "task=softmax", "store.path=runs/new.db")
    finally:
        (folder / "runs").chmod(0o700)
    assert done.returncode == 2
    assert "runs/new.db" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_closes_the_pipe_is_no_error(evolve, recorded: Path, tmp_path: Path):
    import subprocess
    import sys

    from tests.cli.conftest import ROOT

    done = subprocess.run(
        f"{sys.executable} -m evolve.cli.main db dump | head -1",
        shell=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
