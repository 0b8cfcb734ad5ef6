"""Running an exported operator's tests, which anything may be written into.

Invariants:
1. Each test is counted once, as passed, failed or skipped, and says why it did not pass.
2. Checks pass if the tests came to an end, there are some, and none failed.
"""

from pathlib import Path

import pytest

from evolve.report.export.check import Checks, run_tests

PASSING = "def test_good(): pass\n"
FAILING = "def test_bad(): assert 1 == 2, 'not equal'\n"
SKIPPED = "import pytest\n@pytest.mark.skip(reason='no device')\ndef test_left_out(): pass\n"
BROKEN = (
    "import pytest\n@pytest.fixture\ndef part(): raise OSError('gone')\ndef test_part(part): pass\n"
)


def checks(folder: Path, source: str) -> Checks:
    (folder / "test_op.py").write_text(source)
    return run_tests(folder)


def test_every_test_is_passed_failed_or_skipped_with_the_reason(tmp_path: Path):
    found = checks(tmp_path, PASSING + FAILING + SKIPPED + BROKEN)
    assert found.fault == ""
    assert {test.name: test.outcome for test in found.tests} == {
        "test_good": "passed",
        "test_bad": "failed",
        "test_left_out": "skipped",
        "test_part": "failed",
    }
    reasons = {test.name: test.reason for test in found.tests}
    assert reasons["test_good"] == ""
    assert "not equal" in reasons["test_bad"]
    assert "no device" in reasons["test_left_out"]
    assert "gone" in reasons["test_part"]
    assert [test.name for test in found.failed] == ["test_bad", "test_part"]
    assert [test.name for test in found.skipped] == ["test_left_out"]


@pytest.mark.parametrize(
    ("source", "passed"),
    [(PASSING, True), (PASSING + SKIPPED, True), (PASSING + FAILING, False), ("", False)],
)
def test_checks_pass_if_there_are_tests_and_none_failed(tmp_path: Path, source: str, passed: bool):
    assert checks(tmp_path, source).passed is passed
