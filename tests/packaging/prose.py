"""How often words of a private dialect stand in prose: comments, docstrings, messages and guides.

`python -m tests.packaging.prose` prints a table; with `--by-file` it lists the densest files,
with `--lines` each line with a hit.
"""

import argparse
import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORDS = {
    "what": frozenset({"what", "whatever"}),
    "where": frozenset({"where", "wherever"}),
    "who": frozenset({"who", "whose", "whom", "whoever"}),
    "nobody": frozenset({"nobody", "anybody", "somebody"}),
    "ours": frozenset({"ours", "theirs"}),
}
_WORD = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")
_CODE = re.compile(r"^```.*?^```|^    \S[^\n]*$|`[^`\n]*`|https?://\S+", re.DOTALL | re.MULTILINE)
_MIN_WORDS = 3  # of a string that is a message, and not a name or a setting


@dataclass(slots=True)
class Count:
    """Words of prose, and hits in them by group of `WORDS`."""

    words: int = 0
    hits: Counter[str] = field(default_factory=Counter)

    def add(self, text: str) -> None:
        """Count one piece of prose, without the code that it quotes."""
        found = [word.lower() for word in _WORD.findall(text)]
        self.words += len(found)
        for name, group in WORDS.items():
            self.hits[name] += sum(word in group for word in found)

    def rate(self, name: str) -> float:
        """Hits per 10,000 words."""
        return 1e4 * self.hits[name] / self.words if self.words else 0.0


def sources(root: Path = ROOT) -> list[Path]:
    """Files whose prose is counted."""
    modules = [
        p for name in ("evolve", "operators", "archives") for p in (root / name).rglob("*.py")
    ]
    guides = [*(root / "examples" / "guides").glob("*.md"), root / "README.md"]
    return sorted([*modules, *guides])


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Pieces of prose of a file, each with the number of its first line."""
    text = path.read_text()
    if path.suffix == ".md":
        yield 1, _CODE.sub(lambda code: "\n" * code.group().count("\n"), text)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            yield token.start[0], _CODE.sub("", token.string.lstrip("# "))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            cleaned = re.sub(r"`[^`]*`", "", node.value)
            if len(_WORD.findall(cleaned)) >= _MIN_WORDS and "def " not in cleaned:
                yield node.lineno, cleaned


def measure(paths: list[Path]) -> Count:
    """Count the prose of these files together."""
    count = Count()
    for path in paths:
        for _, text in prose(path):
            count.add(text)
    return count


def _print_lines(paths: list[Path]) -> None:
    banned = frozenset().union(*WORDS.values())
    for path in paths:
        for first, text in prose(path):
            for offset, line in enumerate(text.splitlines()):
                if banned & {word.lower() for word in _WORD.findall(line)}:
                    print(f"{path.relative_to(ROOT)}:{first + offset}: {line.strip()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, help="files (default: all)")
    parser.add_argument("--by-file", action="store_true", help="hits of each file, most first")
    parser.add_argument("--lines", action="store_true", help="each line with a hit")
    given = parser.parse_args()
    paths = [path.resolve() for path in given.paths] or sources()
    if given.lines:
        _print_lines(paths)
    if given.by_file:
        counts = {path: measure([path]) for path in paths}
        for path, count in sorted(counts.items(), key=lambda item: -item[1].hits.total()):
            print(f"{count.hits.total():4d} of {count.words:5d}  {path.relative_to(ROOT)}")
    total = measure(paths)
    print(
        f"{total.words} words; per 10,000: " + ", ".join(f"{n} {total.rate(n):.1f}" for n in WORDS)
    )


if __name__ == "__main__":
    main()
