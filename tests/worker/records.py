"""Objects that no judge can look through, as classes here and as text of a task's file."""

from dataclasses import dataclass, field

import torch


@dataclass
class Lacking:
    x: torch.Tensor
    y: int = field(init=False)


@dataclass
class Node:
    x: torch.Tensor
    me: object = None

    def closed(self):
        self.me = self
        return self


@dataclass(frozen=True)
class Single:
    x: torch.Tensor

    def __copy__(self):
        raise RuntimeError("no copies")
