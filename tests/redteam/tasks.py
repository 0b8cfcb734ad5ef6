"""The small tasks that the red team's candidates are written for.

Each has a timed case and, where shapes matter, an odd one that is only checked.
"""

from evolve.core.task import Case, Task

_HEAD = """
import torch
from torch import nn
from torch.nn import functional as F
"""

_PLAIN = """
class Model(nn.Module):
    def forward(self, {arguments}):
        return {outcome}

def get_inputs():
    return {inputs}

def get_init_inputs():
    return []
"""

MAIN = Case(name="main")


def _odd(**constants: int) -> tuple[Case, ...]:
    return (MAIN, Case(name="odd", constants=constants, timed=False))


def _plain(name: str, constants: str, outcome: str, inputs: str, arguments: str = "x") -> str:
    return _HEAD + constants + _PLAIN.format(arguments=arguments, outcome=outcome, inputs=inputs)


_GATE = ("torch.relu(x) * 2 + x", "[torch.randn(ROWS, COLUMNS)]")

_LINEAR = """
ROWS, IN, OUT = 64, 96, 80

class Model(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x):
        return self.linear(x)

def get_inputs():
    return [torch.randn(ROWS, IN)]

def get_init_inputs():
    return [IN, OUT]
"""

_LAYERNORM = """
ROWS, COLUMNS = 64, 384

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return self.norm(x)

def get_inputs():
    return [torch.randn(ROWS, COLUMNS) + 0.5]

def get_init_inputs():
    return [COLUMNS]
"""

_WEIGHTED = """
ROWS, COLUMNS = 64, 384

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(features))

    def forward(self, x):
        return torch.relu(x) * self.gain, self.gain

def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]

def get_init_inputs():
    return [COLUMNS]
"""

SOURCES: dict[str, tuple[str, tuple[Case, ...]]] = {
    "gate": (_plain("gate", "ROWS, COLUMNS = 256, 512", *_GATE), _odd(ROWS=37, COLUMNS=53)),
    "long_gate": (  # on any machine long enough for looks into the process (`stack_sampling`)
        _plain("gate", "ROWS, COLUMNS = 1024, 1024", *_GATE),
        (MAIN,),
    ),
    "wide_gate": (  # a call takes a GPU longer than launching it takes the host
        _plain("gate", "ROWS, COLUMNS = 2048, 2048", *_GATE),
        (MAIN,),
    ),
    "tiny": (_plain("tiny", "ROWS, COLUMNS = 8, 16", *_GATE), (MAIN,)),
    "softmax": (
        _plain("softmax", "ROWS, COLUMNS = 128, 512", "torch.softmax(x, -1)", _GATE[1]),
        _odd(ROWS=19, COLUMNS=131),
    ),
    "rowsum": (
        _plain("rowsum", "ROWS, COLUMNS = 96, 1024", "x.sum(-1)", _GATE[1]),
        _odd(ROWS=7, COLUMNS=301),
    ),
    "energy": (  # large beside a few thousand partial results
        _plain("energy", "ROWS, COLUMNS = 2048, 2048", "(x * x).sum()", _GATE[1]),
        _odd(ROWS=37, COLUMNS=53),
    ),
    "matmul": (
        _plain(
            "matmul",
            "M, K, N = 96, 128, 80",
            "a @ b",
            "[torch.randn(M, K), torch.randn(K, N)]",
            "a, b",
        ),
        _odd(M=17, K=65, N=33),
    ),
    "product": (  # long enough, too
        _plain(
            "product",
            "M, K, N = 512, 512, 384",
            "a @ b",
            "[torch.randn(M, K), torch.randn(K, N)]",
            "a, b",
        ),
        (MAIN,),
    ),
    "attention": (
        _plain(
            "attention",
            "HEADS, LENGTH, WIDTH = 4, 96, 32",
            "torch.softmax(q @ k.transpose(-1, -2) / WIDTH**0.5, -1) @ v",
            "[torch.randn(HEADS, LENGTH, WIDTH) for _ in range(3)]",
            "q, k, v",
        ),
        _odd(HEADS=2, LENGTH=33),
    ),
    "pair": (
        _plain(
            "pair",
            "ROWS, COLUMNS = 64, 256",
            '(x * 2 + 1, {"largest": x.amax(-1)})',
            _GATE[1],
        ),
        _odd(ROWS=5, COLUMNS=67),
    ),
    "pick": (
        _plain(
            "pick",
            "ROWS, COLUMNS = 64, 128",
            "x.gather(1, labels[:, None])[:, 0] * 2",
            "[torch.randn(ROWS, COLUMNS), torch.randint(COLUMNS, (ROWS,))]",
            "x, labels",
        ),
        (MAIN,),
    ),
    "copy": (_plain("copy", "ROWS, COLUMNS = 64, 256", "x.clone()", _GATE[1]), (MAIN,)),
    "long_copy": (_plain("copy", "ROWS, COLUMNS = 1024, 1024", "x.clone()", _GATE[1]), (MAIN,)),
    "passed": (  # the argument itself, and a copy of it
        _plain("passed", "ROWS, COLUMNS = 64, 256", "(x, x.clone())", _GATE[1]),
        (MAIN,),
    ),
    "weighted": (_HEAD + _WEIGHTED, (MAIN,)),  # a parameter itself among the outputs
    "half": (
        _plain(
            "half",
            "ROWS, COLUMNS = 64, 256",
            "torch.relu(x) * 0.5 + x",
            "[torch.randn(ROWS, COLUMNS).bfloat16()]",
        ),
        (MAIN,),
    ),
    "linear": (_HEAD + _LINEAR, _odd(ROWS=7)),
    "layernorm": (_HEAD + _LAYERNORM, _odd(ROWS=5, COLUMNS=77)),
}

TASKS = {
    name: Task(name=name, source=source, cases=cases) for name, (source, cases) in SOURCES.items()
}
