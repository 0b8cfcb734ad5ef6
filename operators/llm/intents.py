"""A tree of intents: changes that may make a program faster, and the results of those tried.

K-Search (arXiv 2602.19128, gh:caoshiyi/K-Search k_search/kernel_generators/world_model_manager.py)
calls it a world model. A model updates it by small edits; the next intent follows from its scores
alone.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from evolve.core.digest import canonical_json
from evolve.core.program import Assignment
from evolve.core.protocols import Elite
from operators.prompting.fences import Blocks
from operators.quoting import one_line

ROOT = "root"
_TITLE, _WHY = 200, 400  # characters
_SCORE, _DIFFICULTY, _RATING = 0.6, 2, 5.0  # of the fallback intent
_SOLVED_SHOWN, _OPEN_SHOWN = 8, 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One hypothesis, and the best program that follows it.

    Attributes:
        id: its name in edits.
        parent: id of the intent whose program it changes.
        title, why: the change, and the reason for it.
        score: from 0 to 1, how promising it is as the next step.
        difficulty: from 1 to 5.
        rating: from 0 to 10, of the whole path from the root.
        program, assignment, speedup: of the best program; an open intent has an empty digest.
        failed: series of attempts without a correct program.
    """

    id: str
    parent: str
    title: str
    why: str = ""
    score: float = 0.0
    difficulty: int = 3
    rating: float = 0.0
    program: str = ""
    assignment: Assignment = field(default_factory=dict)
    speedup: float | None = None
    failed: int = 0

    @property
    def is_open(self) -> bool:
        return not self.program


Intents = Mapping[str, Intent]
"""A tree by the ids of its intents, the root among them."""


def root_only(start: Elite | None) -> dict[str, Intent]:
    """A tree of the root only: the program to start from, or the reference."""
    root = Intent(id=ROOT, parent="", title="the reference")
    if start is not None:
        root = replace(
            root,
            title="the program to start from",
            program=start.program,
            assignment=dict(start.assignment),
            speedup=round(math.exp(start.fitness.value), 4),
        )
    return {ROOT: root}


def dumps(tree: Intents) -> str:
    """The tree as JSON, for the memo of a request."""
    return canonical_json([asdict(intent) for intent in tree.values()])


def loads(text: str) -> dict[str, Intent]:
    """The tree that `dumps` wrote."""
    return {each["id"]: Intent(**each) for each in json.loads(text)}


def frontier(tree: Intents, most_difficult: int) -> list[Intent]:
    """The open intents whose parent has a program, the next one first.

    Sorted by score (higher first), difficulty (lower first), rating (higher first). Intents above
    `most_difficult` are left out while there are others. Failed ones come last (K-Search leaves it
    to the model to lower their score).
    """
    others = [each for each in tree.values() if each.is_open and each.id != ROOT]
    ready = [one for one in others if one.parent == ROOT or not tree[one.parent].is_open]
    easy = [each for each in ready if each.difficulty <= most_difficult]
    key = lambda each: (each.failed, -each.score, each.difficulty, -each.rating, each.id)  # noqa: E731
    return sorted(easy or ready, key=key)


def path(tree: Intents, intent: Intent) -> list[Intent]:
    """From the root to the intent."""
    line = [intent]
    while line[-1].parent:
        line.append(tree[line[-1].parent])
    return line[::-1]


def read_ops(reply: str) -> list[Mapping[str, Any]] | None:
    """The edits in a reply: a JSON object with a list `ops`. None if there is none."""
    fenced = [block.text for block in Blocks(reply, lambda text: _ops_in(text) is not None)]
    found = map(_ops_in, [*fenced, reply[reply.find("{") : reply.rfind("}") + 1]])
    return next((ops for ops in found if ops is not None), None)


def _ops_in(text: str) -> list[Mapping[str, Any]] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    ops = found.get("ops") if isinstance(found, Mapping) else None
    return [op for op in ops if isinstance(op, Mapping)] if isinstance(ops, list) else None


def apply_ops(tree: Intents, ops: Iterable[Mapping[str, Any]], most_new: int) -> dict[str, Intent]:
    """The tree after the edits; edits of unknown intents are ignored.

    `update_node` changes an intent, `insert_node` adds one, `split_node` changes one and adds its
    children, `delete_node` removes an open one without children. At most `most_new` are added.
    Edits cannot change an intent's program, speedup or failures.
    """
    after = dict(tree)
    fresh = _new_ids(after)
    left = most_new
    for op in ops:
        name = str(op.get("id", ""))
        if op.get("op") == "delete_node":
            if name in after and after[name].is_open and name not in _parents(after):
                del after[name]
            continue
        if name in after and name != ROOT:
            after[name] = _changed(after[name], op)
        for parent, given in _additions(op):
            if parent in after and left and str(given.get("title", "")).strip():
                new = Intent(id=next(fresh), parent=parent, title="")
                after[new.id] = _changed(new, given)
                left -= 1
    return after


def _additions(op: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if op.get("op") == "insert_node":
        yield str(op.get("parent", ROOT)), op
    if op.get("op") == "split_node":
        children = op.get("children")
        for child in children if isinstance(children, list) else ():
            if isinstance(child, Mapping):
                yield str(op.get("id", "")), child


def _changed(intent: Intent, given: Mapping[str, Any]) -> Intent:
    """The intent with the valid fields of an edit, clipped to their ranges."""
    texts = {"title": _TITLE, "why": _WHY}
    bounds = {"score": (0.0, 1.0), "difficulty": (1.0, 5.0), "rating": (0.0, 10.0)}
    found: dict[str, Any] = {
        name: one_line(str(given[name]), most)
        for name, most in texts.items()
        if str(given.get(name) or "").strip()
    }
    for name, (low, high) in bounds.items():
        value = given.get(name)
        if isinstance(value, int | float) and math.isfinite(value):
            found[name] = min(max(float(value), low), high)
    if "difficulty" in found:
        found["difficulty"] = round(found["difficulty"])
    return replace(intent, **found)


def _new_ids(tree: Intents) -> Iterator[str]:
    last = max((int(name[1:]) for name in tree if name != ROOT), default=0)
    while True:
        last += 1
        yield f"i{last}"


def _parents(tree: Intents) -> set[str]:
    return {intent.parent for intent in tree.values()}


def with_fallback(tree: Intents, most_difficult: int) -> dict[str, Intent]:
    """The tree, with a generic intent below the best program if no open intent is untried.

    K-Search adds the same one (score 0.6, difficulty 2).
    """
    if any(not each.failed for each in frontier(tree, most_difficult)):
        return dict(tree)
    best = max(solved(tree), key=lambda each: each.speedup or 0.0, default=tree[ROOT])
    new = Intent(
        id=next(_new_ids(tree)),
        parent=best.id,
        title="make what limits the program most take less time",
        score=_SCORE,
        difficulty=_DIFFICULTY,
        rating=_RATING,
    )
    return {**tree, new.id: new}


def solved(tree: Intents) -> list[Intent]:
    """The intents with a program; the root too if the search started from one."""
    return [each for each in tree.values() if not each.is_open]


def listing(tree: Intents, active: Intent | None, most_difficult: int) -> str:
    """The tree in a prompt: the path to the active intent, the best solved, the next open ones."""
    kept = {each.id for each in (path(tree, active) if active else ())} | {ROOT}
    best = sorted(solved(tree), key=lambda each: -(each.speedup or 0.0))
    kept |= {each.id for each in best[:_SOLVED_SHOWN]}
    kept |= {each.id for each in frontier(tree, most_difficult)[:_OPEN_SHOWN]}
    return "\n".join(_line(tree[name]) for name in tree if name in kept)


def _line(intent: Intent) -> str:
    state = f"solved, {intent.speedup:.2f}x" if intent.speedup else "open"
    if intent.program and not intent.speedup:
        state = "solved"
    if intent.failed:
        state = f"{state}, failed {intent.failed} times"
    numbers = f"score {intent.score:g}, difficulty {intent.difficulty}, rating {intent.rating:g}"
    below = f" below {intent.parent}" if intent.parent else ""
    said = f"{intent.id}{below} [{state}] {intent.title}"
    if intent.id == ROOT:
        return said
    return f"{said} ({numbers}){f': {intent.why}' if intent.why else ''}"


def is_spent(speeds: Sequence[float | None], base: float | None, window: int) -> bool:
    """Whether attempts at an intent should end.

    They end after `window` attempts in a row without a new best one, or if none of the `window`
    since the first correct one is faster than the parent's program.

    Args:
        speeds: speedups of the attempts, oldest first; None for one that is not correct.
        base: speedup of the parent's program; None without one.
        window: a number of attempts.
    """
    best, idle, behind = -math.inf, 0, 0
    for speed in speeds:
        idle = 0 if speed is not None and speed > best else idle + 1
        best = max(best, speed or -math.inf)
        if base is not None and math.isfinite(best):
            behind = 0 if best > base else behind + 1
    return idle >= window or behind >= window
