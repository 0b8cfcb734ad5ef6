"""Seconds of compilers, as `bench_compile` takes them.

Invariants: an instance is compiled in a process of its own; a compiler that fails is named in the
table and ends nothing.
"""

import pytest

from tests.benchmarks import bench_compile


@pytest.mark.slow  # two processes compile for 12 s; no quick test runs this benchmark
def test_seconds_of_a_compiler_are_measured_and_its_failure_is_a_row(monkeypatch):
    line = bench_compile.row("gluon", "softmax", 1)
    _, language, program, used, between, clock, _ = map(str.strip, line.split("|"))
    assert (language, program) == ("gluon", "softmax")
    assert 0 < float(used) < 60
    assert float(clock) > 0
    assert between == f"{used} to {used}"
    monkeypatch.setitem(bench_compile.PROGRAMS, "no such program", "none")
    failed = bench_compile.row("gluon", "no such program", 1)
    assert failed.startswith("| gluon | none | failed: ")
    assert failed.count("|") == line.count("|") == 6
