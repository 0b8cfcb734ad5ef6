"""The wheel, as somebody gets it who has no checkout.

Invariants:
1. It holds our three packages and nothing else at its top level, with configuration and tasks.
2. Its requirements are ranges.
3. In a clean environment without the heavy dependencies, in an empty folder, `evolve doctor` says
   what is missing, and the verbs that need nothing work.
"""

import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `evolve` command of a fresh environment that holds the wheel alone."""
    folder = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(folder)  # our own pip installs: to bring one along takes longer than all else
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python"]
    install = [*pip, "install", "--quiet", "--no-deps", wheel]
    subprocess.run(install, check=True, capture_output=True, timeout=100)
    return folder / "bin" / "evolve"


def evolve(command: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [command, *words], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def files(folder: str) -> Iterator[str]:
    """Files that git would commit under a folder, relative to it."""
    for path in sorted((ROOT / folder).rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield str(path.relative_to(ROOT / folder))


def test_its_top_level_is_exactly_ours(names: list[str]):
    assert {name.partition("/")[0] for name in names} == {
        "evolve",
        "operators",
        "archives",
        "evolve_kernels-0.1.0.dist-info",
    }


def test_configuration_and_tasks_are_inside(names: list[str]):
    assert {f"evolve/conf/{name}" for name in files("conf")} <= {*names}
    assert {f"evolve/tasks/library/{name}" for name in files("examples/tasks")} <= {*names}


@pytest.mark.parametrize("package", ["evolve", "operators", "archives"])
def test_all_of_a_package_is_inside(names: list[str], package: str):
    """Modules, and what is no module: templates, prompts, actions, knowledge, the type marker."""
    assert {f"{package}/{name}" for name in files(package)} <= {*names}


def test_every_folder_with_modules_is_a_package(names: list[str]):
    folders = {name.rpartition("/")[0] for name in names if name.endswith(".py")}
    ours = {one for one in folders if not one.startswith("evolve/tasks/library")}
    assert {f"{folder}/__init__.py" for folder in ours} <= {*names}


def test_prompts_are_found_where_the_wheel_is_unpacked(wheel: Path, tmp_path: Path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = (
        "import operators; from operators.llm.actions import load_actions; "
        "from operators.prompting.templates import render_prompt; "
        "print(operators.__file__, len(load_actions()), render_prompt('edit')[:10])"
    )
    environment = {"PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(tmp_path) in done.stdout
    assert "# Your job" in done.stdout


def test_nothing_generated_is_inside(names: list[str]):
    assert not [name for name in names if name.endswith((".pyc", ".db", ".so"))]


def test_its_requirements_are_ranges(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("METADATA"))
        meta = Parser().parsestr(archive.read(name).decode())
    required = [line for line in meta.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert any(line.startswith("torch<2.16,>=2.11") for line in required)
    assert not [line for line in required if "==" in line.partition(";")[0]]
    assert meta["Requires-Python"] == "<3.14,>=3.11"


@pytest.mark.slow
def test_doctor_says_what_is_missing_from_an_empty_folder(installed: Path, tmp_path: Path):
    done = evolve(installed, tmp_path, "doctor")
    assert done.returncode == 1
    assert "torch" in done.stdout
    assert "Missing for a search" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.sample(1)
@pytest.mark.parametrize("words", [["--help"], ["--version"], ["tasks"], ["eval", "--help"]])
def test_verbs_that_need_nothing_work_without_the_dependencies(
    installed: Path, tmp_path: Path, words: list[str]
):
    done = evolve(installed, tmp_path, *words)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", [["run", "task=softmax"], ["list"], ["resume"]])
def test_verbs_that_need_more_name_the_package(installed: Path, tmp_path: Path, words: list[str]):
    done = evolve(installed, tmp_path, *words)
    assert done.returncode == 1
    assert "not installed here" in done.stderr
    assert "Traceback" not in done.stderr
