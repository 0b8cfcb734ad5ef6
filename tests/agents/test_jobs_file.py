"""The file of jobs of `evolve mcp`, of which each of several servers takes its own."""

from contextlib import ExitStack

import pytest

from evolve.app.mcp.judging import free_jobs


@pytest.mark.parametrize("name", ["mcp", "my-jobs", "a-b-c"])
def test_servers_at_a_time_take_numbered_files_beside_the_first(tmp_path, name):
    with ExitStack() as stack:
        taken = []
        for _ in range(3):
            jobs = free_jobs(tmp_path / f"{name}.db")
            stack.callback(jobs.close)
            taken.append(jobs.path.name)
    assert taken == [f"{name}.db", f"{name}-2.db", f"{name}-3.db"]
