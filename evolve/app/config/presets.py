"""Search presets: which one a run has, and how it gives way to options that are typed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evolve.app.config.grammar import value_text
from evolve.app.config.locate import config_dir

METHOD = {"archive", "selection", "operators", "schedule"}
"""Groups that say how a search works; one of them among the words chooses a method of its own."""

PORTFOLIO = "portfolio"
SINGLE = "single"


def search_of(words: Sequence[str]) -> str:
    """The preset that the words name; the portfolio, or, if they choose a part, one method."""
    if name := _named(words):
        return name
    groups = {
        word.lstrip("+~").replace("@", ".").partition("=")[0].partition(".")[0] for word in words
    }
    return SINGLE if groups & METHOD else PORTFOLIO


def _named(words: Sequence[str]) -> str:
    """The value of `search=`, without quotes; empty without one."""
    names = [word.partition("=")[2] for word in words if is_search(word)]
    return names[-1].strip("'\"") if names else ""


def is_search(word: str) -> bool:
    """Whether a word names a preset."""
    return word.lstrip("+").startswith("search=")


def is_shipped(name: str) -> bool:
    """Whether `conf/search` has a preset of this name."""
    return _file_of(name).is_file()


def _file_of(name: str) -> Path:
    return config_dir() / "search" / f"{name}.yaml"


@dataclass(frozen=True, slots=True)
class Preset:
    """A file of `conf/search`: the options that it chooses, and values: by group, or by name."""

    options: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


def preset_of(words: Sequence[str]) -> Preset:
    """The preset that `search=NAME` names; an empty one if none or several are named."""
    import yaml

    file = _file_of(_named(words))
    if not file.is_file():
        return Preset()
    values = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    options = {}
    for entry in values.pop("defaults", []):
        for group, option in entry.items() if isinstance(entry, dict) else ():
            options[group.removeprefix("override ").lstrip("/")] = option
    return Preset(options, values)


def without_retyped(words: Sequence[str]) -> list[str]:
    """The words, with the preset spelled out if an option is typed for a group of its values.

    Hydra would put the preset's values for one class on top of the option's for another, whichever
    was typed.
    """
    preset = preset_of(words)
    parts = {group.partition("@")[0] for group in preset.options if "@" in group}
    typed = {word.partition("=")[0] for word in words} & (preset.values.keys() | parts)
    if not typed:
        return list(words)
    spelled = [
        f"{group}={value_text(option, group)}"
        for group, option in preset.options.items()
        if group.partition("@")[0] not in typed
    ]
    for group, values in preset.values.items():
        if group not in typed:
            named = isinstance(values, Mapping)
            each = {f"{group}.{k}": v for k, v in values.items()} if named else {group: values}
            spelled += [f"++{name}={value_text(value, name)}" for name, value in each.items()]
    others = (word for word in words if not is_search(word))
    return [f"search={SINGLE}", *spelled, *others]
