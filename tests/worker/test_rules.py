"""The judge's version follows from its rules.

Invariants:
1. Another value of a named number, in any package of the worker but `service`, is another version;
   comments, docstrings and layout are not.
2. Another version of a language's compiler is another version too: what an old one refused or
   compiled is no answer for a new one.
3. The version that people see is the first row of the guide's table.
"""

import importlib
import re
import shutil
from pathlib import Path

import pytest

from evolve.worker.base.versions import versions
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.session import provenance
from evolve.worker.session.rules import PACKAGE, ROOMS, rules, rules_digest

GUIDE = Path(__file__).parents[2] / "examples" / "guides" / "judge_versions.md"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of what the rules are read from."""
    shutil.copytree(PACKAGE / "worker", tmp_path / "worker")
    (tmp_path / "core").mkdir()
    shutil.copy(PACKAGE / "core" / "measurement.py", tmp_path / "core")
    return tmp_path


@pytest.fixture(scope="module")
def known() -> dict[str, str]:
    return rules()


def edit(path: Path, pattern: str, replacement: str) -> None:
    text, count = re.subn(pattern, replacement, path.read_text(), count=1, flags=re.MULTILINE)
    assert count, f"{path} has no {pattern}"
    path.write_text(text)


CHANGES = {  # file, and text before and after
    "a tolerance": ("worker/correctness/tolerance.py", "KAPPA = 4.0", "KAPPA = 4.5"),
    "a private number": ("worker/correctness/mismatch.py", "_CLOSE = ", "_CLOSE = 2 * "),
    "a class's attribute": ("worker/devices/cpu/device.py", "  blocks = 6", "  blocks = 7"),
    "a parameter's default": ("worker/judge/judge.py", "s: float = 30.0", "s: float = 9.0"),
    "one of several": ("worker/timing/comparison.py", "_LOOKED_BLOCKS = 24", "_LOOKED_BLOCKS = 25"),
    "a number of the core": ("core/measurement.py", "SLOWER = 0.9", "SLOWER = 0.8"),
    "a limit": ("worker/sandbox/policy.py", "processes: int = 512", "processes: int = 9"),
    "a constant that is new": ("worker/evidence/tools.py", r"\Z", "\nMORE = 1\n"),
}  # fmt: skip


@pytest.mark.sample(1)
@pytest.mark.parametrize("change", CHANGES)
def test_another_value_of_a_rule_is_another_version(change, package, known, monkeypatch):
    path, pattern, replacement = CHANGES[change]
    before = provenance.evaluator_version(CpuDevice())
    assert rules_digest(package) == rules_digest()
    edit(package / path, pattern, replacement)
    assert len(rules(package).items() - known.items()) == 1
    rules_digest.cache_clear()
    digest = rules_digest(package)
    provenance._version.cache_clear()
    monkeypatch.setattr(provenance, "rules_digest", lambda: digest)
    after = provenance.evaluator_version(CpuDevice())
    provenance._version.cache_clear()
    assert (before != after, before.partition("-")[0]) == (True, after.partition("-")[0])


@pytest.mark.parametrize("name", ["cuda-tile", "nvidia-cuda-tileiras", "tilelang"])
def test_another_version_of_a_languages_compiler_is_another_version(name, monkeypatch, tmp_path):
    found = []
    monkeypatch.syspath_prepend(tmp_path)
    for version in ("1.98", "1.99"):
        package = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        package.mkdir()
        (package / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        importlib.invalidate_caches()
        for cached in (versions, provenance._version):
            cached.cache_clear()
        found.append((versions()["languages"], provenance.evaluator_version(CpuDevice())))
        shutil.rmtree(package)
    for cached in (versions, provenance._version):
        cached.cache_clear()
    (old, before), (new, after) = found
    assert f"{name} 1.98" in old
    assert f"{name} 1.99" in new
    assert before != after


def test_comments_docstrings_and_layout_are_no_rules(package):
    path = package / "worker" / "correctness" / "tolerance.py"
    edit(path, r'\A"""', '"""Reworded 17 times. ')
    edit(path, r"^KAPPA = 4.0.*", "# Widened by nothing.\nKAPPA   =   4.0")
    assert rules_digest(package) == rules_digest()


def test_every_package_of_the_worker_but_its_service_has_rules(known):
    packages = {path.parent.name for path in (PACKAGE / "worker").glob("*/__init__.py")}
    assert packages - {*ROOMS} == {"service"}
    assert {*ROOMS} == {name.split(".")[1] for name in known if name.startswith("worker.")}


def test_the_guide_says_what_the_current_version_changed():
    versions = re.findall(r"^\| ([\d.]+) \| \S", GUIDE.read_text(), flags=re.MULTILINE)
    assert versions[0] == provenance.JUDGE_VERSION
    assert len(versions) == len({*versions})
