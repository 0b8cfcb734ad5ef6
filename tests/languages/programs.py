"""Programs of the corpus, by name."""

from pathlib import Path

HONEST = Path(__file__).parents[1] / "redteam" / "honest"
CHEATS = HONEST.with_name("cheats")


def honest(name: str) -> str:
    return (HONEST / f"{name}.py").read_text()
