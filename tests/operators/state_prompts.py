"""Whole prompts of the states of `prompt_states`."""

from operators import RewriteFull
from tests.operators.history import prompt_of, request_of
from tests.operators.prompt_states import (
    CPU,
    H100,
    matmul_relu_h100,
    rmsnorm_cpu,
    softmax_h100,
)

MATMUL, SOFTMAX, RMSNORM = matmul_relu_h100(), softmax_h100(), rmsnorm_cpu()
STATES = {"matmul": (MATMUL, H100), "softmax": (SOFTMAX, H100), "rmsnorm": (RMSNORM, CPU)}


def prompt(state: str, operator=None, **context) -> str:
    """The whole of a request: both messages."""
    history, device = STATES[state]
    operator = operator or RewriteFull()
    parents = history.elites()[: operator.parents]
    request = request_of(operator, history.context(parents, device=device, **context))
    return f"{request.messages[0].content}\n\n{prompt_of(request)}"
