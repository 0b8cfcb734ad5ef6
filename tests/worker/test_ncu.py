"""What Nsight Compute prints, without a GPU: how it is read.

Invariants:
- only kernels that are the candidate's own are told of, those that took longest first;
- where counters are forbidden, or the text is none of the tool's, nothing is said.
"""

from hypothesis import given
from hypothesis import strategies as st

from evolve.worker.evidence.ncu import labels

HEAD = (
    '"ID","Process ID","Kernel Name","dram__throughput.avg.pct_of_peak_sustained_elapsed",'
    '"gpu__time_duration.sum","lts__t_sector_hit_rate.pct",'
    '"sm__throughput.avg.pct_of_peak_sustained_elapsed",'
    '"smsp__thread_inst_executed_per_inst_executed.ratio"'
)
UNITS = '"","","","%","us","%","%",""'
TABLE = "\n".join(
    [
        "==PROF== Connected to process 7",
        HEAD,
        UNITS,
        '"0","7","fill_kernel(float *)","90.0","1,000.0","1","2","32"',
        '"1","7","short","10.0","3.0","50","20","16"',
        '"2","7","long(const float *, float *)","78.4","1,234.5","45.2","33.6","31.5"',
    ]
)


def test_own_kernels_are_told_of_those_that_took_longest_first():
    first, second = labels(TABLE, {"long", "short"})
    assert first.name == "counters"
    assert first.evidence == (
        "long: memory 78 % of its peak, arithmetic 34 %, second-level cache hit 45 %, "
        "32 of 32 lanes active"
    )
    assert second.evidence.startswith("short: memory 10 %")


def test_kernels_of_others_are_left_out():
    assert not list(labels(TABLE, {"elsewhere"}))


def test_where_counters_are_forbidden_nothing_is_said():
    text = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access counters"
    assert not list(labels(text, {"long"}))


@given(st.text() | st.text(alphabet='",\n0ID').map(lambda text: HEAD + "\n" + text))
def test_no_text_is_more_than_labels(text):
    assert all(label.name == "counters" for label in labels(text, {"long", ""}))
