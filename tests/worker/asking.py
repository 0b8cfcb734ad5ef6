"""Counting what is asked of a device: operations, and those whose outcome is waited for."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from evolve.worker.base.dispatch import DispatchMode

ANSWERS = ("_local_scalar_dense", "equal", "nonzero", "_unique2", "masked_select", "is_nonzero")


class Asked(DispatchMode):
    """Counts operations by name, and those whose outcome a GPU would be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.names = Counter()
        self.answers = 0

    def run(self, operation, arguments, options):
        name = operation.overloadpacket.__name__
        self.names[name] += 1
        masks = name == "index" and any(
            place is not None and place.dtype is torch.bool for place in arguments[1]
        )
        self.answers += masks or name in ANSWERS
        return operation(*arguments, **options)


@contextmanager
def asked() -> Iterator[Asked]:
    """The count of what is asked inside; a list made of a tensor is an answer."""
    with pytest.MonkeyPatch.context() as patch, Asked() as found:
        whole = torch.Tensor.tolist

        def tolist(tensor):
            found.answers += 1
            return whole(tensor)

        patch.setattr(torch.Tensor, "tolist", tolist)
        yield found
