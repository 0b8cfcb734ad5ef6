"""Winners to export: small tasks, with kernels for them that are quick to build."""

from evolve.core.task import Case, Task
from evolve.tasks.shipped import library_folder

HEADER = "import torch\nfrom torch import nn\n\n\n"

MANY = '''\
ROWS = 6


class Model(nn.Module):
    """Outputs in a tree, None, a list and an integer among the inputs, a buffer, a submodule."""

    def __init__(self, width: int, scale: float = 2.0):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, width, bias=False))
        self.register_buffer("offset", torch.arange(width).float())
        self.scale = scale

    def forward(self, x, mask, parts, times: int, extra=None, *, twice: bool = False):
        y = self.layers(x) * self.scale + self.offset
        y = y if mask is None else y * mask
        return {"sum": (y + parts[0] + parts[1]) * times, "rest": (x, [y.argmax(-1), None])}


def get_inputs():
    parts = [torch.randn(ROWS, 8), torch.randn(ROWS, 8)]
    return [torch.randn(ROWS, 8), None, parts, 3]


def get_init_inputs():
    return [8]
'''
"""A reference with everything that an operator's schema has to find a place for."""

BATCH_NORM = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(16)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(8, 16)]


def get_init_inputs():
    return []
"""

LINEAR = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16))

    def forward(self, x):
        return x @ self.weight.t()


def get_inputs():
    return [torch.randn(8, 16)]


def get_init_inputs():
    return []
"""


def example(reference: str, name: str = "example", **fields) -> Task:
    """A task of that reference, whose text leaves the imports out."""
    return Task(name=name, source=HEADER + reference, **fields)


def as_kernel(reference: str) -> str:
    """The reference itself as a winner: what it computes is right by definition."""
    model = reference.partition("def get_inputs")[0]
    return HEADER + model.replace("class Model", "class ModelNew")


def elementwise(forward: str, *, inputs: str = "torch.randn(8, 16)") -> str:
    """A reference of one statement over `x`."""
    return (
        f"class Model(nn.Module):\n    def forward(self, x):\n        {forward}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
    )


def shipped(name: str, seed: str, odd: dict[str, int]) -> tuple[Task, str]:
    """A shipped task at its tiny size with a second case, and the text of one of its seeds."""
    folder = library_folder() / name
    cases = (Case(name="main"), Case(name="odd", constants=odd, timed=False))
    task = Task(name=name, source=(folder / "task.py").read_text(), size="tiny", cases=cases)
    return task, (folder / "seeds" / seed).read_text()
