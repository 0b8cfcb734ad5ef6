"""The benchmark of presets on landscapes goes on where it was cut short."""

from tests.benchmarks import json_lines
from tests.benchmarks.bench_landscapes import forecast, jobs, own_budgets, run


def test_what_is_in_the_file_is_not_made_again_and_a_broken_row_is(tmp_path):
    out = tmp_path / "landscapes.jsonl"
    wanted = jobs(["preset:greedy"], [0, 1], 5, ["deceptive"])
    json_lines.add(out, {"job": wanted[0], "score": 0.123, "cpu_s": 720.0})
    with out.open("a") as file:
        file.write('{"job": ["deceptive", "preset:greedy", 1, 5], "sc')
    assert forecast(out, wanted, 2) == ", about 0.2 h on 2 idle cores"
    run(out, wanted, 1)
    kept, made = json_lines.read(out)
    assert kept["score"] == 0.123
    assert tuple(made["job"]) == wanted[1]
    assert 0 <= made["score"] <= 1 and made["cpu_s"] > 0


def test_every_preset_of_a_published_method_is_run_at_its_own_budget():
    assert {"own:k_search", "own:avo", "own:cuda_agent", "own:adaevolve"} <= {*own_budgets()}
