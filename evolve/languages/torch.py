"""Plain torch: the language of programs without kernels of their own."""

from evolve.languages.base import Language
from evolve.languages.descriptors import describe_cpp

TORCH = Language(
    name="torch",
    title="plain torch",
    devices=(),
    finds=lambda tree: False,
    describe=describe_cpp,
)
