"""How alike two task files are: equal up to layout and sizes, close, or shown in a text."""

import ast
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from evolve.core.digest import framed_digest
from evolve.trajectories.decontamination.tokens import imported_names, tokens_of

_SHINGLE = 3  # neighbouring tokens of a tree that are compared as one
_SHOWN = 0.8  # share of a reference's windows that a text has if it shows the reference
_MAKERS = ("get_inputs", "get_init_inputs", "get_input_groups")
_FRAME = re.compile(r"class|def|super\(|import|from|@|pass$|try:|else:")
_DOCSTRINGS = (re.compile(r'"""[\s\S]*?"""'), re.compile(r"'''[\s\S]*?'''"))
_BLANKS = str.maketrans("", "", " \t\r")


@dataclass(frozen=True, slots=True)
class Shape:
    """The parts of a task file that are compared.

    Attributes:
        digest: of the shingles; equal in every process.
        shingles: of the models' tokens (`.tokens`), each with its number among equal ones. They
            hold neither names of variables nor numbers, nor anything of the functions that make
            inputs, so that a size is no difference.
        windows: of the lines of its model.
    """

    digest: str
    shingles: frozenset[int]
    windows: frozenset[int]


def shape_of(source: str) -> Shape:
    """The shape of a task file; of one that is no Python, by its text alone."""
    try:
        tree = ast.parse(source)
        models = list(_models(tree))
        tokens = list(tokens_of(models, imported_names(tree))) or source.split()
        model = "\n".join(ast.get_source_segment(source, one) or "" for one in models) or source
    except (SyntaxError, ValueError, RecursionError):
        tokens, model = source.split(), source
    last = max(0, len(tokens) - _SHINGLE)
    seen: Counter[str] = Counter()
    shingles = []
    for at in range(last + 1):
        shingle = "\0".join(tokens[at : at + _SHINGLE])
        seen[shingle] += 1
        shingles.append(f"{shingle}\0{seen[shingle]}")
    return Shape(
        digest=framed_digest("model", *sorted(shingles)),
        shingles=frozenset(map(hash, shingles)),
        windows=_telling_windows(_without_docstrings(model)),
    )


def _without_docstrings(text: str) -> str:
    for docstring in _DOCSTRINGS:
        text = docstring.sub("", text)
    return text


@lru_cache(maxsize=64)  # the first message of a prompt is that of all others
def windows(text: str) -> frozenset[int]:
    """A hash of every three neighbouring lines, without blanks, comments and empty lines."""
    return frozenset(map(hash, _threes(text)))


def _telling_windows(text: str) -> frozenset[int]:
    """Without those of three lines that only say that there is a class with functions."""
    return frozenset(hash(three) for three in _threes(text) if not all(map(_FRAME.match, three)))


def _threes(text: str) -> Iterable[tuple[str, str, str]]:
    lines = text.translate(_BLANKS).split("\n")
    bare = [kept for line in lines if (kept := line.partition("#")[0])]
    return zip(bare, bare[1:], bare[2:], strict=False)


def _models(tree: ast.Module) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    """The classes and functions that make no inputs."""
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef) and statement.name not in _MAKERS:
            yield statement


@dataclass(frozen=True, slots=True)
class Near:
    """A reference and its distance, 0 (same) to 1 (nothing in common)."""

    name: str
    distance: float


class Similarity:
    """References to compare with: parts common to most of them count little.

    Args:
        references: source of each by its name.
    """

    def __init__(self, references: Mapping[str, str]) -> None:
        self._shapes = {name: shape_of(source) for name, source in references.items()}
        self._digests = {self._shapes[name].digest: name for name in sorted(references)[::-1]}
        held = Counter(
            one for shape in self._shapes.values() for one in shape.shingles | shape.windows
        )
        self._weights = {one: math.log1p(len(self._shapes) / count) for one, count in held.items()}
        self._unseen = math.log1p(len(self._shapes) + 1)
        self._showing = _inverted(self._shapes)
        self._enough = {
            name: _SHOWN * self._weight(shape.windows) for name, shape in self._shapes.items()
        }

    def same(self, source: str) -> str | None:
        """The first reference at no distance: other in layout, sizes and names of variables."""
        return self._digests.get(shape_of(source).digest)

    def nearest(self, source: str, limit: int = 3) -> list[Near]:
        """The closest references, nearest first, by weighted Jaccard distance of syntax trees."""
        shape = shape_of(source)
        found = [Near(name, self._distance(shape, other)) for name, other in self._shapes.items()]
        return sorted(found, key=lambda near: (near.distance, near.name))[:limit]

    def shown_in(self, text: str) -> str | None:
        """The reference whose model a text shows nearly whole; None if it shows none."""
        shown, bare = windows(text), _without_docstrings(text)
        found = self._showing.keys() & (shown if bare == text else shown | windows(bare))
        weights: defaultdict[str, float] = defaultdict(float)
        for window in found:
            for name in self._showing[window]:
                weights[name] += self._weights[window]
        enough = [name for name, weight in weights.items() if weight >= self._enough[name]]
        return min(enough, default=None)

    def _distance(self, one: Shape, other: Shape) -> float:
        both = self._weight(one.shingles & other.shingles)
        either = self._weight(one.shingles | other.shingles)
        return 1 - both / either if either else 0.0

    def _weight(self, shingles: Iterable[int]) -> float:
        return math.fsum(self._weights.get(one, self._unseen) for one in shingles)


def _inverted(shapes: Mapping[str, Shape]) -> Mapping[int, Sequence[str]]:
    """The references that have a window, by window."""
    found: dict[int, list[str]] = {}
    for name, shape in shapes.items():
        for window in shape.windows:
            found.setdefault(window, []).append(name)
    return found
