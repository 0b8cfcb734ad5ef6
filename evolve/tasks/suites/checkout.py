"""A user's checkout of a suite: its folder, its commit, and files that are not really there."""

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from evolve.core.errors import UsageError
from evolve.tasks.files import read_text

_LFS = "version https://git-lfs.github.com/spec/"


class CheckoutSuite:
    """A suite that is read from a user's checkout of a repository.

    `_places` are paths, or patterns of them, of which a checkout has one.
    """

    name: str
    variable: str
    levels: tuple[str, ...] = ()
    _repository: str
    _places: tuple[str, ...]

    @property
    def _remedy(self) -> str:
        """How to get it, as the start of a sentence."""
        return f"Run `git clone {self._repository}`"

    def _root(self, checkout: Path | None) -> Path:
        """The checkout's folder: the given one, or that of the environment variable.

        Raises:
            UsageError: none is named, or it is no checkout of the suite.
        """
        remedy = f"{self._remedy} and set {self.variable} to its folder."
        chosen = checkout or os.environ.get(self.variable)
        if not chosen:
            raise UsageError(f"suite {self.name}: no checkout is named. {remedy}")
        root = Path(chosen).expanduser()
        if not root.is_dir():
            raise UsageError(f"suite {self.name}: there is no folder {root}. {remedy}")
        if not any(any(root.glob(place)) for place in self._places):
            raise UsageError(
                f"suite {self.name}: {root} has no {' or '.join(self._places)}; in other commits "
                f"they may be elsewhere. {remedy}"
            )
        return root


def read_data(path: Path) -> str:
    """The text of a file of a checkout.

    Raises:
        UsageError: it cannot be read, or Git LFS has not fetched it.
    """
    require_fetched(path)
    return read_text(path)


def read_json(path: Path) -> Any:
    """The value of a JSON file of a checkout.

    Raises:
        UsageError: it cannot be read, or is no JSON.
    """
    text = read_data(path)
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{path} is no JSON ({error}).") from error


def read_yaml(path: Path) -> Any:
    """The value of a YAML file of a checkout.

    Raises:
        UsageError: it cannot be read, or is no YAML.
    """
    import yaml  # brought by OmegaConf; imported here to keep `import evolve` cheap

    text = read_data(path)
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(f"{path} is no YAML ({error}).") from error


def product(values: Iterable[Any]) -> float:
    """Of the positive numbers among the values: how large a shape is."""
    return math.prod((one for one in values if isinstance(one, int | float) and one > 0), start=1.0)


def require_fetched(path: Path) -> None:
    """UsageError for a file that is missing, or a pointer of Git LFS in its place."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_LFS))
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from error
    if start == _LFS.encode():
        raise UsageError(
            f"{path} is a pointer of Git LFS, not the data. Run `git lfs pull --include "
            f"'*{path.name}'` in the checkout."
        )


def commit_of(folder: Path) -> str:
    """The commit that a checkout is at; empty if it is not the root of a Git repository.

    A copy within another repository has a history that says nothing of the suite.
    """
    return _head(folder / ".git") if (folder / ".git").exists() else ""


def _head(git: Path) -> str:
    try:
        if git.is_file():  # a worktree or a submodule names the place
            git = git.parent / git.read_text().removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return head
        name = head.removeprefix("ref:").strip()
        common = git / "commondir"
        root = git / common.read_text().strip() if common.is_file() else git
        if (root / name).is_file():
            return (root / name).read_text().strip()
        packed = (root / "packed-refs").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split()[0] for line in packed if line.endswith(f" {name}")), "")
