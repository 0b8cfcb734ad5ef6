"""The kind of operation of a reference, for tasks without a category."""

import ast
import re
from collections.abc import Iterator

_BY_NAME = (  # the first match wins: the operation that dominates a mixture's time comes first
    ("attention", r"scaled_dot_product_attention|\w*[aA]ttention\w*"),
    ("convolution", r"[cC]onv(?:_?[tT]ranspose)?[123]d"),
    ("matmul", r"(?:Bil|L|bil|l)inear|matmul|mm|bmm|mv|addmm|baddbmm|einsum|tensordot|MatMult"),
    ("scan", r"cumsum|cumprod|logcumsumexp|cummax|cummin"),
    ("sorting", r"topk|sort|argsort|kthvalue|msort"),
    ("pooling", r"\w*Pool[123]d|\w*_pool[123]d"),
    ("loss", r"\w+Loss|cross_entropy|nll_loss|kl_div|\w+_loss"),
    ("softmax", r"[sS]oftmax(?:2d)?|[lL]og_?[sS]oftmax"),
    ("normalization", r"\w*Norm(?:[123]d)?|\w+_norm|normalize|rsqrt|std|var"),
    ("embedding", r"Embedding(?:Bag)?|embedding"),
    ("indexing", r"gather|scatter\w*|index_select|index_add|take|nonzero"),
    ("reduction", r"sum|mean|amax|amin|max|min|argmax|argmin|prod|logsumexp|any|all|norm"),
    ("elementwise", r"\w+"),
)
PRODUCTS = ("matmul", "convolution", "attention")
"""Categories of operations that are made of products of matrices."""

_SOFTMAX = re.compile(r"softmax|Softmax").fullmatch
_PRODUCT = re.compile(r"matmul|bmm|einsum|MatMult").fullmatch  # of two activations, seldom weights


def operation_of(category: str, source: str) -> str:
    """A task's category, or a guess from its source if that is empty or a suite's level.

    Args:
        category: as the task says it; `level1` is a folder of KernelBench and no operation.
        source: the reference; it is read, not executed.

    >>> operation_of("level1", "f = lambda x: x.cumsum(1)")
    'scan'
    """
    if category and not re.fullmatch(r"level\d+", category):
        return category
    try:
        names = {*_names(ast.parse(source))}
    except (SyntaxError, ValueError):
        return ""
    if any(map(_SOFTMAX, names)) and any(map(_PRODUCT, names)):
        return "attention"
    for kind, pattern in _BY_NAME:
        if any(re.fullmatch(pattern, name) for name in names):
            return kind
    return ""


def _names(tree: ast.Module) -> Iterator[str]:
    """Functions, methods and classes that are called, and the operator of matrix products."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                yield node.func.attr
            elif isinstance(node.func, ast.Name):
                yield node.func.id
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            yield "MatMult"
