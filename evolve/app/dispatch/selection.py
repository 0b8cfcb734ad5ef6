"""The choice among the programs of a set: all below the line is the end of each set's module.

It runs without this package. A set writes its own values in place of those above the line.
"""

import torch

_PROGRAM_FOR: dict = {}
_FALLBACK: int | None = None
_First: type = torch.nn.Module
_OTHERS: tuple = ()

# ---- the same in each set ----


def signature(values):
    """Shape and dtype of tensors, the type of other values: the choice depends on no more."""
    return tuple(
        (tuple(value.shape), value.dtype)
        if isinstance(value, torch.Tensor)
        else signature(value)
        if isinstance(value, (list, tuple))
        else signature(value.values())
        if isinstance(value, dict)
        else type(value).__name__
        for value in values
    )


class ModelNew(_First):
    """The program that was fastest for the shapes and dtypes of a call."""

    _others = ()

    def __init__(self, *args, **kwargs):
        generator = torch.get_rng_state()
        super().__init__(*args, **kwargs)
        after = torch.get_rng_state()
        state = self.state_dict()
        others = []
        for kind in _OTHERS:
            torch.set_rng_state(generator)
            others.append(_with_state(kind, state)(*args, **kwargs))
        torch.set_rng_state(after)
        self._others = tuple(others)  # no submodules: the parameters are those of the first
        self._shared = [None]  # the module that they are shared with; copies of this one know it
        self._share()

    def forward(self, *args, **kwargs):
        number = _PROGRAM_FOR.get(signature((*args, *kwargs.values())), _FALLBACK)
        if number == 0:
            return super().forward(*args, **kwargs)
        if number is None:
            raise ValueError(f"no program for calls like {signature((*args, *kwargs.values()))}")
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
            found = {}
            if isinstance(value, torch.nn.Module):
                found = {f"{name}.{key}": own for key, own in value.state_dict().items()}
            elif isinstance(value, torch.nn.Parameter):
                found = {name: value.detach()}
            for key, own in found.items():
                if key in state and state[key].shape == own.shape:
                    own.copy_(state[key])

    return Filled
