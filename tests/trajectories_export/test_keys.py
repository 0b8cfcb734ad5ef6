"""Keys in texts.

- A text holds a key exactly where scrubbing would change it, or has changed it.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolve.llm.secrets import HIDDEN, scrub
from evolve.trajectories.decontamination.keys import environment_keys, holds_key

SECRET = "Zx81-secret-value"
PIECES = (
    "mask_offsets", "half_width", "pk_stride_m", "sk-proj-0123456789abcdef", "gsk_abcdefgh12",
    "hf_AbCdEfGhIjKl", "r8_12345678", "nvapi-123456789", "xai-1234567890", "task-sk-small", "rk-",
    "AIza0123456789abcdefghijk", "AKIA0123456789ABCDEF", "ASIA", "eyJhbGciOi.abc.def", "eyJ",
    "Bearer abcdef123456", "bearer of news", "https://user:word@host/x", "https://host/a:b", SECRET,
    " ", "\n", "'", "-", "_", "x",
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=6).map("".join))
def test_a_text_holds_a_key_exactly_where_scrubbing_would_change_it(text: str):
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SOME_API_KEY", SECRET)
        assert holds_key(text, environment_keys()) == (scrub(text) != text)


@pytest.mark.parametrize("piece", PIECES)
def test_every_piece_by_itself(piece: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    assert holds_key(piece, environment_keys()) == (scrub(piece) != piece)


@pytest.mark.parametrize("piece", PIECES)
def test_a_text_that_held_a_key_is_known_after_scrubbing(
    piece: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    kept = scrub(piece)
    assert scrub(kept) == kept
    assert holds_key(kept, environment_keys()) == (kept != piece)


def test_a_program_that_looks_a_value_up_by_its_key_holds_none():
    assert not holds_key("kernel = _CACHE[key]", ())
    assert HIDDEN not in "_CACHE[key]"


def test_the_environments_own_keys_are_known(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    monkeypatch.setenv("PLAIN", "an ordinary value")
    assert SECRET in environment_keys()
    assert "an ordinary value" not in environment_keys()
