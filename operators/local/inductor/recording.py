"""Programs of many launches replay them as a CUDA graph.

A launch takes the host 10 to 30 us, so that of a network of hundreds of kernels on few images a GPU
waits for the host. Inputs are copied to where the graph reads them, outcomes from where it leaves
them, both of which is little for such a network. If a graph is being recorded around it anyway, the
launches are part of that one. An exported operator (`evolve best --as torch-op`) sets
`replays_graph` to False, since it is given its parameters anew in each call.
"""

import ast
import re
import textwrap
from collections.abc import Sequence

MANY = 24  # launches; the programs of KernelBench's levels 1 and 2 have fewer

_RECORDED = '''
replays_graph = True  # False where parameters may be others in each call

def __call__(self, *inputs):
    """The result of `forward`, by a CUDA graph of its launches: the host is slower."""
    if not self.replays_graph or torch.cuda.is_current_stream_capturing():
        return super().__call__(*inputs)
    graphs = self.__dict__.setdefault("_graphs", {})
    key = tuple((one.shape, one.dtype) for one in inputs)
    if key not in graphs:
        graphs[key] = self._recorded([one.detach().clone() for one in inputs])
    graph, copies, outcome = graphs[key]
    for copy, one in zip(copies, inputs):
        copy.copy_(one.detach())
    graph.replay()
    return CLONED

def _recorded(self, inputs):
    super().__call__(*inputs)  # kernels are compiled before they are recorded
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outcome = super().__call__(*inputs)
    return graph, inputs, outcome

def _apply(self, *arguments, **options):
    self.__dict__.pop("_graphs", None)  # parameters move
    return super()._apply(*arguments, **options)
'''
_WAITS = re.compile(r"aten\.\w*(linalg|nonzero|unique|masked_select|_local_scalar|bincount)")
"""Operations for which the host waits, so that they cannot be recorded."""

_CLONED = {
    r"output\[0\]": "outcome.clone()",
    r"\((output\[\d+\], )*output\[\d+\],?\)": "tuple(one.clone() for one in outcome)",
    r"\[(output\[\d+\], )*output\[\d+\]\]": "[one.clone() for one in outcome]",
}


def recording(methods: Sequence[str], outcomes: Sequence[str]) -> list[str]:
    """Methods to add to a module so that its launches are recorded; none if they are few.

    Args:
        methods: those it has, `forward` and the methods it calls.
        outcomes: the results, in terms of `output[0]` and so on, of every case.
    """
    launched = max(sum(map(_is_launch, ast.walk(ast.parse(textwrap.dedent(m))))) for m in methods)
    cloned = {text for form, text in _CLONED.items() for o in outcomes if re.fullmatch(form, o)}
    if launched < MANY or len(cloned) != 1 or any(map(_WAITS.search, methods)):
        return []
    text = _RECORDED.replace("CLONED", cloned.pop()).strip()
    return [textwrap.indent(text, " " * 4)]


def _is_launch(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)
