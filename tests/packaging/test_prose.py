"""Prose is plain technical English: words of a private dialect become rarer, never more frequent.

The goal is at most what 20, where 33, who 19, nobody 1 and ours 1 per 10,000 words. `LIMITS` holds
the rates reached so far: lower a number as soon as the prose allows it, and never raise one.
`python -m tests.packaging.prose --by-file` shows the files to begin with.
"""

import pytest

from tests.packaging.prose import ROOT, WORDS, Count, measure, sources

GOAL = {"what": 20.0, "where": 33.0, "who": 19.0, "nobody": 1.0, "ours": 1.0}
LIMITS = {"what": 20.0, "where": 25.5, "who": 17.0, "nobody": 0.5, "ours": 1.0}
"""Hits per 10,000 words of all prose."""


@pytest.fixture(scope="module")
def everything() -> Count:
    return measure(sources())


@pytest.fixture(scope="module")
def pages() -> Count:
    guides = sorted((ROOT / "examples" / "guides").glob("*.md"))
    return measure([*guides, ROOT / "README.md", ROOT / "SECURITY.md"])


@pytest.mark.parametrize("name", WORDS)
def test_prose_has_no_more_of_these_words_than_before(everything: Count, name: str):
    assert everything.rate(name) <= LIMITS[name]


@pytest.mark.parametrize("name", WORDS)
def test_the_numbers_follow_the_prose(everything: Count, name: str):
    """What has been gained is not lost again: a number well above the prose has to be lowered."""
    assert LIMITS[name] <= max(GOAL[name], 1.15 * everything.rate(name) + 0.5)


@pytest.mark.parametrize("name", WORDS)
def test_pages_for_users_reach_the_goal(pages: Count, name: str):
    assert pages.rate(name) <= GOAL[name]


def test_a_word_in_code_is_no_prose(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("Read `where` in the table.\n\n```\nwho what where\n```\n")
    module = tmp_path / "module.py"
    module.write_text('"""Says what it is, and whose."""\n\nwhere = "what"  # of nobody\n')
    assert measure([page]).hits.total() == 0
    counted = measure([module])
    assert {name: counted.hits[name] for name in WORDS} == {
        **dict.fromkeys(("what", "who", "nobody"), 1),
        **dict.fromkeys(("where", "ours"), 0),
    }
