"""What a prompt asks for is found in it, whatever it quotes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.core.model import Message
from evolve.trajectories.views.prompts import job_of, programs_and_job_of
from operators.quoting import quote

DIGEST = "0123456789abcdef"
JOB = "# Your job\n\nJoin them.\n\n# Your answer\n\nOne module."
LINES = st.lists(
    st.sampled_from(
        ["# Your job", "# The parents", f"program {DIGEST[:8]}:", "</quoted", "x = 1", ""]
    )
)


def prompt(*programs: str) -> tuple[Message, ...]:
    shown = "\n\n".join(f"program {DIGEST[:8]}:\n\n{quote(one, 'program')}" for one in programs)
    text = f"# Task\n\n{quote('# Your job', 'task')}\n\n# The parents\n\n{shown}\n\n{JOB}"
    return Message("system", "# Your job\n\nis to write kernels."), Message("user", text)


@given(LINES)
def test_what_is_quoted_is_neither_a_job_nor_a_program_to_work_on(lines: list[str]) -> None:
    asked = prompt("\n".join(lines))
    assert job_of(asked) == JOB
    with_programs = programs_and_job_of(asked, DIGEST)
    assert with_programs.startswith("# The parents\n\nprogram")
    assert with_programs.endswith(JOB)


@pytest.mark.parametrize("find", [job_of, lambda asked: programs_and_job_of(asked, DIGEST)])
def test_of_a_prompt_in_other_words_all_is_taken(find) -> None:
    assert find((Message("user", "Be faster."),)) == "Be faster."
    assert find(()) == ""
