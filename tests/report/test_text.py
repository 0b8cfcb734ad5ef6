"""Numbers and words as reports print them, at the places where their form changes.

Invariants:
1. A number has as many digits as can matter, whatever its size.
2. What is longer than its limit is cut to it, with a mark; what fits is whole.
3. A file is written whole or not at all.
"""

import math

import pytest
import torch

from evolve.core.errors import UsageError
from evolve.core.measurement import Interval
from evolve.report.audit import weak_task_text, weakness
from evolve.report.charts import Scale, ratio_ticks
from evolve.report.export.operator_text import _attribute, _inner_names
from evolve.report.export.trees import literal, tensor_text
from evolve.report.text import (
    TIMES,
    count_text,
    descriptor_text,
    duration_text,
    make_folder,
    one_line,
    ratio_text,
    span_text,
    time_text,
    write_text,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0994, "0.099"),
        (0.1, "0.10"),
        (0.899, "0.90"),
        (0.9, "0.900"),
        (1.0994, "1.099"),
        (1.1, "1.10"),
        (99.994, "99.99"),
        (100.4, "100"),
    ],
)
def test_a_speedup_has_the_digits_that_matter(value, text):
    assert ratio_text(value) == text + TIMES


def test_the_bounds_of_an_interval_have_no_sign_of_their_own():
    assert span_text(Interval(1.0, 0.95, 123.0)) == "0.950 to 123"


@pytest.mark.parametrize(
    ("ms", "text"), [(0.999, "999 µs"), (1, "1 ms"), (999, "999 ms"), (1000, "1 s")]
)
def test_a_duration_of_a_call_has_its_unit(ms, text):
    assert time_text(ms) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (59.94, "59.9 s"),
        (59.95, "1 min 0 s"),
        (3599.4, "59 min 59 s"),
        (3600, "1 h 0 min"),
        (7259, "2 h 0 min"),
    ],
)
def test_a_time_span_is_said_as_people_do(seconds, text):
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("memory_bytes", 99_999, "99,999 B"),
        ("memory_bytes", 100_000, "0.1 MB"),
        ("compile_s", 2, "2.0 s"),
        ("registers", 1234.0, "1,234"),
        ("error", 0.123456, "0.1235"),
        ("language", "triton", "triton"),
    ],
)
def test_a_descriptor_has_the_unit_of_its_name(name, value, text):
    assert descriptor_text(name, value) == text


def test_a_text_is_cut_to_its_limit():
    assert (one_line("a" * 9, 9), one_line("a" * 10, 9)) == ("a" * 9, "a" * 8 + "…")
    assert (len(one_line("a" * 2000)), len(one_line("a" * 2001))) == (2000, 2000)
    assert [count_text(number, "run") for number in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]


def finding(number: int) -> dict[str, str]:
    return {"detail": f"zeros pass {number}", "passed_by": "wide"}


def test_three_weaknesses_are_named_and_the_rest_counted():
    three = [finding(number) for number in range(3)]
    said = "; ".join(f"zeros pass {number} (case wide)" for number in range(3))
    assert weakness(three) == said
    assert weakness([*three, finding(3), finding(4)]) == f"{said}; and 2 more"
    assert (weakness([]), weak_task_text([])) == ("", "")
    assert weak_task_text(three).startswith(f"The task is WEAK: {said}. ")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.inf, 'float("inf")'),
        (-math.inf, 'float("-inf")'),
        (1.5, "1.5"),
        (None, "None"),
        ("it's", '"it\'s"'),
        ('"', "'\"'"),
        (torch.bfloat16, "torch.bfloat16"),
        ([], "[]"),
        ((), "()"),
        ((1,), "(1,)"),
        ({"a": [True], 2: (1, 2)}, '{"a": [True], 2: (1, 2)}'),
    ],
)
def test_plain_values_are_written_as_python(value, text):
    assert literal(value, "x") == text


@pytest.mark.parametrize(
    ("value", "kind"), [(torch.zeros(1), "tensor"), ([object()], "object"), ({1, 2}, "set")]
)
def test_other_values_are_refused_with_the_remedy(value, kind):
    with pytest.raises(UsageError, match=f"--as torch-op: x is a {kind}, which has no plain text"):
        literal(value, "x")


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (torch.zeros(2, 3), "Like(torch.float32, (2, 3))"),
        (torch.zeros(2, 3).T, "Like(torch.float32, (3, 2), (1, 3))"),
        (torch.zeros(4, 4)[:, ::2], "Like(torch.float32, (4, 2), (4, 2))"),
        (torch.zeros(2, 1, 3).transpose(0, 2), "Like(torch.float32, (3, 1, 2), (1, 3, 3))"),
        (torch.zeros(()), "Like(torch.float32, ())"),
    ],
)
def test_a_tensor_is_written_by_its_metadata(tensor, text):
    assert tensor_text(tensor, "x") == text


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (torch.zeros(1, 3).expand(2, 3), "x is an expanded tensor"),
        (torch.zeros(9).as_strided((3, 3), (2, 1)), "x is an expanded tensor"),
        (torch.zeros(2, 2).to_sparse(), "x is a torch.sparse_coo tensor"),
    ],
)
def test_a_tensor_whose_elements_share_memory_is_refused(tensor, reason):
    with pytest.raises(UsageError, match=reason):
        tensor_text(tensor, "x")


def test_parameters_have_names_that_python_takes():
    names = ["fc.weight", "fc_weight", "0.bias", "class", "op"]
    assert _inner_names(names, "op") == ["fc_weight", "fc_weight_", "p0_bias", "class_", "op_"]
    assert _attribute("layers.0.weight") == 'getattr(self.layers, "0").weight'
    assert _attribute("a.class") == 'getattr(self.a, "class")'


def test_a_scale_has_a_margin_and_ends_at_its_edges():
    scale = Scale.around(1.0, 4.0, 0.0, 10.0)
    assert (scale.low, scale.high) == (pytest.approx(4**-0.06), pytest.approx(4 * 4**0.06))
    assert Scale.around(1.0, 1.0, 0.0, 1.0).high == pytest.approx(1.02)
    plain = Scale(1.0, 4.0, 0.0, 10.0)
    assert [plain.x(number) for number in (0, 5, 10)] == [0, 500, 1000]
    assert [plain.y(ratio) for ratio in (0.5, 1, 2, 4, 9)] == [1000, 1000, pytest.approx(500), 0, 0]
    assert (plain.one, Scale(2.0, 4.0, 0.0, 1.0).one, Scale(0.5, 1.0, 0.0, 1.0).one) == (
        1000,
        None,
        0,
    )
    assert plain.staircase([(0, 1), (5, 2)]) == "M0.0 1000.0L500.0 1000.0L500.0 500.0"
    assert plain.band([(0, 4)], [(0, 1)]) == "M0.0 0.0L0.0 1000.0Z"
    assert (plain.band([], []), plain.staircase([])) == ("", "")
    ticks = plain.x_ticks([0, 2000.0], 0.005, "k")
    assert [(tick.label, tick.place) for tick in ticks] == [("0k", 0), ("2,000k", 100)]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (1, 10, [1, 2, 5, 10]),
        (1, 4, [1, 1.5, 2, 3, 4]),
        (0.1, 100, [0.1, 0.5, 1, 2, 10, 50]),
        (0.001, 1000, [0.001, 0.02, 0.5, 1, 2, 50, 1000]),
        (1, 1.1, [1.0, 1.02, 1.04, 1.06, 1.08, 1.1]),
    ],
)
def test_ratios_are_labelled_at_round_numbers(low, high, ticks):
    assert ratio_ticks(low, high) == pytest.approx(ticks)


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = write_text(tmp_path / "page.html", "é")
    assert (path.read_text("utf-8"), sorted(tmp_path.iterdir())) == ("é", [path])
    with pytest.raises(UsageError, match="is a folder; name a file in it"):
        write_text(tmp_path, "x")
    with pytest.raises(UsageError, match="cannot be written"):
        write_text(tmp_path / "none" / "page.html", "x")
    with pytest.raises(UsageError, match=r"--out: the folder .* cannot be made"):
        make_folder(path / "below", "--out")
    assert make_folder(tmp_path / "a" / "b", "--out").is_dir()
    assert make_folder(tmp_path / "a" / "b", "--out").is_dir()
