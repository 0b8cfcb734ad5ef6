"""`evolve eval` answers from the database what it knows, with a real worker.

Invariants:
1. The same text, task, fidelity and judge are answered from the store, and it is said.
2. `--again` judges; so does any change of the text, also in a folder that --repro wrote.
"""

import json
from pathlib import Path

import pytest

from evolve.core.evaluation import Evaluation
from evolve.store import Store
from evolve.tasks import find_task
from tests.cli.test_judging import TINY, ZEROS
from tests.search.conftest import make_search


def remember(folder: Path, verdict: dict) -> None:
    """A database whose run `then` has had this verdict on ZEROS."""
    task = find_task("softmax", size="tiny")
    fields = {name: verdict[name] for name in verdict if name not in ("audit", "known")}
    marked = {**fields, "feedback": "as it was then", "fidelity": "search"}
    with Store.open(folder / "runs" / "evolve.db", create=True) as store:
        config = {"baseline": "eager", "audit": []}
        run = store.create_run(name="then", task=task, config=config, seed=0)
        search = make_search(store, run)
        search.tell(search.offer(ZEROS), Evaluation.from_json(marked))


@pytest.mark.slow
def test_a_known_verdict_is_given_until_it_is_asked_for_again(evolve, tmp_path: Path):
    (tmp_path / "zeros.py").write_text(ZEROS)
    words = ("eval", "zeros.py", *TINY[:-1], "search")
    first = json.loads(evolve(*words, "--json").stdout)
    assert first["known"] is False
    remember(tmp_path, first)

    known = json.loads(evolve(*words, "--json").stdout)
    assert (known["known"], known["feedback"]) == (True, "as it was then")
    assert "--again" in evolve(*words).stdout

    again = json.loads(evolve(*words, "--json", "--again").stdout)
    assert again["known"] is False
    assert "all zeros" in again["feedback"]

    evolve("eval", "then:0", "--repro", "case")
    (tmp_path / "case" / "candidate.py").write_text(ZEROS + "\n# edited\n")
    edited = json.loads(evolve("eval", "case", "--json").stdout)
    assert edited["known"] is False
