"""The text of a dispatch set: several programs in one module, each under names of its own."""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evolve.core.source.pytext import Module
from evolve.core.source.renaming import defined, renamed, without_future

REFERENCE = "reference"
"""The name of the task's reference among the parts of a set."""

_OPERATOR = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*\Z")
_NAMESPACE = re.compile(r"\bTORCH_LIBRARY(?:_FRAGMENT|_IMPL)?\s*\(\s*(\w+)")
_OWN = {"torch": "torch"}  # what the text below imports


def registered(source: str) -> set[str]:
    """Operators and namespaces that a module may register with PyTorch, for the whole process."""
    texts = [
        node.value
        for node in ast.walk(Module(source).tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    found = {text for text in texts if _OPERATOR.match(text)}
    return found | {f"{name}::" for text in texts for name in _NAMESPACE.findall(text)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of the table: what calls look like, the program for them, and a remark."""

    signature: str
    program: int
    remark: str


def set_text(
    header: Sequence[str],
    programs: Sequence[str],
    rows: Sequence[Row],
    fallback: str,
) -> str:
    """The module of a set; its `ModelNew` has the first program's parameters.

    Args:
        header: lines on where it comes from.
        programs: modules with `ModelNew`, without open tunables.
        rows: by which of them calls are served.
        fallback: a module with `Model` for all other calls; empty: those raise ValueError.
    """
    parts = {f"{number}": text for number, text in enumerate(programs, 1)}
    if fallback:
        parts[REFERENCE] = fallback
    merged, has_future = _merged(parts)
    others = [f"ModelNew{merged[f'{number}'].suffix}" for number in range(2, len(programs) + 1)]
    if fallback:
        others.append(f"Model{merged[REFERENCE].suffix}")
    table = "".join(f"    {row.signature}: {row.program},  # {row.remark}\n" for row in rows)
    texts = [
        "\n".join(f"# {line}".rstrip() for line in header),
        *(["from __future__ import annotations"] if has_future else []),
        "import torch",
        *(f"# ---- {_title(name)} ----\n\n{part.text.strip()}" for name, part in merged.items()),
        "# ---- the choice ----",
        _DISPATCH.format(
            table=table,
            others="".join(f"{name}, " for name in others),
            first=f"ModelNew{merged['1'].suffix}",
            fallback=len(programs) if fallback else None,
        ).strip(),
    ]
    return "\n\n\n".join(texts) + "\n"


@dataclass(frozen=True, slots=True)
class _Part:
    text: str
    suffix: str


def _title(name: str) -> str:
    return "the task's reference" if name == REFERENCE else f"program {name}"


def _merged(parts: Mapping[str, str]) -> tuple[dict[str, _Part], bool]:
    """Parts under names that no other has; imports that mean the same everywhere stay."""
    stripped = {name: without_future(text) for name, text in parts.items()}
    texts = {name: text for name, (text, _) in stripped.items()}
    names = {name: defined(text) for name, text in texts.items()}
    everywhere: dict[str, set[str]] = {name: {full} for name, full in _OWN.items()}
    for found in names.values():
        for name, full in found.items():
            everywhere.setdefault(name, set()).add(full)
    merged = {}
    for part, text in texts.items():
        suffix = _suffix(part, [*texts.values()])
        own = {
            name: name + suffix
            for name in names[part]
            if len(everywhere[name]) > 1 or "" in everywhere[name]
        }
        merged[part] = _Part(renamed(text, own), suffix)
    return merged, any(has for _, has in stripped.values())


def _suffix(name: str, texts: Sequence[str]) -> str:
    """An end of names that no name has yet."""
    suffix = f"_{name}"
    while any(re.search(rf"\w{suffix}\b", text) for text in texts):
        suffix = f"_{suffix}"
    return suffix


_DISPATCH = '''
def _signature(values):
    """What the choice looks at: shape and dtype of tensors, the type of other values."""
    return tuple(
        (value.shape, value.dtype)
        if isinstance(value, torch.Tensor)
        else _signature(value)
        if isinstance(value, (list, tuple))
        else _signature(value.values())
        if isinstance(value, dict)
        else type(value).__name__
        for value in values
    )


_PROGRAM_FOR = {{
{table}}}
_FALLBACK = {fallback}


class ModelNew({first}):
    """The program that was fastest for the shapes and dtypes of a call."""

    _others = ()

    def __init__(self, *args, **kwargs):
        generator = torch.get_rng_state()
        super().__init__(*args, **kwargs)
        after = torch.get_rng_state()
        state = self.state_dict()
        others = []
        for kind in ({others}):
            torch.set_rng_state(generator)
            others.append(_with_state(kind, state)(*args, **kwargs))
        torch.set_rng_state(after)
        self._others = tuple(others)  # no submodules: the parameters are those of the first
        self._shared = [None]  # the module that they are shared with; copies of this one know it
        self._share()

    def forward(self, *args, **kwargs):
        number = _PROGRAM_FOR.get(_signature((*args, *kwargs.values())), _FALLBACK)
        if number == 0:
            return super().forward(*args, **kwargs)
        if number is None:
            raise ValueError(f"no program for calls like {{_signature((*args, *kwargs.values()))}}")
        if self._shared[0] is not self:
            self._share()
        return self._others[number - 1].forward(*args, **kwargs)

    def train(self, mode=True):
        for other in self._others:
            other.train(mode)
        return super().train(mode)

    def _apply(self, function, *args, **kwargs):
        for other in self._others:
            other._apply(function, *args, **kwargs)
        super()._apply(function, *args, **kwargs)
        if self._others:
            self._share()
        return self

    def _share(self):
        """Parameters and buffers of the first program are those of all others too."""
        self._shared[0] = self
        for other in self._others:
            owners = dict(other.named_modules())
            for path, module in self.named_modules():
                owner = owners.get(path)
                if owner is None:
                    continue
                for kept, given in (
                    (owner._parameters, module._parameters),
                    (owner._buffers, module._buffers),
                ):
                    for name, value in given.items():
                        mine = kept.get(name)
                        if mine is not None and value is not None and mine.shape == value.shape:
                            kept[name] = value


def _with_state(kind, state):
    """The class, whose instances have these weights from the first moment on: some pack them."""

    class Filled(kind):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            found = {{}}
            if isinstance(value, torch.nn.Module):
                found = {{f"{{name}}.{{key}}": own for key, own in value.state_dict().items()}}
            elif isinstance(value, torch.nn.Parameter):
                found = {{name: value.detach()}}
            for key, own in found.items():
                if key in state and state[key].shape == own.shape:
                    own.copy_(state[key])

    return Filled
'''
