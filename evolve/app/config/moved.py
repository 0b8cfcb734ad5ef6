"""Classes that stored configurations name by the modules they used to be in."""

from collections.abc import Mapping
from typing import Any

_ROOMS = {
    "operators.llm": (
        *("contrastive", "crossover", "edit", "macro_micro", "repair", "rewrite", "summarise"),
        *("template", "universal"),
    ),
    "operators.local": (
        *("compiler_seed", "recombine", "remeasure", "seed", "structural", "template_seed", "tune"),
    ),
}
_MOVED = {f"operators.{name}": f"{room}.{name}" for room, names in _ROOMS.items() for name in names}


def with_present_classes(config: Any) -> Any:
    """A configuration, or part of one, whose `_target_`s are where the classes are now."""
    if isinstance(config, Mapping):
        return {
            key: _present(value) if key == "_target_" else with_present_classes(value)
            for key, value in config.items()
        }
    return [with_present_classes(one) for one in config] if isinstance(config, list) else config


def _present(target: str) -> str:
    module, _, name = target.rpartition(".")
    return f"{_MOVED.get(module, module)}.{name}"
