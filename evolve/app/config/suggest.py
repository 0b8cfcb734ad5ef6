"""The setting or option that a name which does not exist was probably meant for."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches

from evolve.app.database import store_word

ALIASES = {  # names that other tools use, or that one expects: the remedy in our words
    "api_key": "keys stay in the environment: export OPENAI_API_KEY or that of your provider, or "
    "name another variable, llm.key_variable=NAME",
    "budget": "write termination.evaluations=400, termination.wall_time=10m or termination.usd=5",
    "dtype": "task_config.precision=fp16",
    "gpu": "device=cuda",
    "gpus": "device.ids=[0,1]",
    "iterations": "termination.evaluations=400",
    "max_iterations": "termination.evaluations=400",
    "model_name": "llm.model=provider/name",
    "output": "`evolve best -o FILE` writes the kernel, store.path=FILE names the database",
    "provider": "llm.model=provider/name",
    "seeds": "write initial=[mine.py] for programs to start from, seed=0 for random numbers",
    "time": "termination.wall_time=10m",
    "timeout": "termination.wall_time=10m",
}
OPTION_ALIASES = {
    "device": {
        "gpu": "cuda",
        "nvidia": "cuda",
        "cuda0": "cuda",
        "amd": "hip",
        "rocm": "hip",
        "c++": "cpu",
        "cpp": "cpu",
    },
    "search": {"default": "portfolio", "none": "single", "random": "single"},
}
PART = "_target_"  # of a component: the class to build


def setting_meant(key: str, known: Sequence[str], groups: Collection[str]) -> str:
    """The setting that `key` was meant for, or the remedy; empty if none is similar.

    The group is matched first, then the name within it: of `terminaton.wall_time` the group is
    wrong, of `wall_time` it is missing.

    Args:
        key: dotted name that does not exist.
        known: dotted names of all settings.
        groups: names of the configuration groups.
    """
    head, _, rest = key.partition(".")
    tops = {name.partition(".")[0] for name in known} | {*groups}
    if not rest:
        return _without_group(head, known, tops)
    if (alias := ALIASES.get(rest)) and head in tops:
        return alias
    if rest.endswith(PART):
        return f"a part of your own is added with a plus, +{key}=my_package.MyClass"
    group = head if head in tops else _closest(head, tops)
    inside = [name for each in known for name in _prefixes(each.removeprefix(f"{group}."), each)]
    if near := rest if rest in inside else _closest(rest, inside):
        return f"{group}.{near}"
    return _with_leaf(rest.rpartition(".")[2], known) or (group if group != head else "")


def option_meant(group: str, option: str, options: Sequence[str]) -> str:
    """The word to write in place of `group=option`; empty if nothing is near."""
    if group == "llm" and "/" in option:
        return f"llm.model={option}"
    if group == "store":
        return store_word(option)
    near = OPTION_ALIASES.get(group, {}).get(option.lower()) or _closest(option, options)
    return f"{group}={near}" if near else ""


def _without_group(name: str, known: Sequence[str], tops: Collection[str]) -> str:
    return (
        _with_leaf(name, known)
        or ALIASES.get(name, "")
        or _closest(name, tops)
        or _with_leaf(_closest(name, [each.rpartition(".")[2] for each in known]), known)
    )


def _prefixes(name: str, whole: str) -> list[str]:
    """`seed` and `seed.weight` of `seed.weight`; none if it is the `whole` name itself."""
    parts = name.split(".") if name != whole else []
    return [".".join(parts[: end + 1]) for end in range(len(parts))]


def _with_leaf(leaf: str, known: Sequence[str]) -> str:
    """The first setting with this name in its group."""
    return next((name for name in known if leaf and name.endswith(f".{leaf}")), "")


def _closest(name: str, names: Collection[str]) -> str:
    """The name that is spelled most alike; punctuation and case do not count."""
    plain = {_plain(each): each for each in sorted(names, reverse=True)}
    found = get_close_matches(_plain(name), plain, n=1, cutoff=0.75)
    return plain[found[0]] if found else ""


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
