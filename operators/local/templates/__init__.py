"""Parametric kernels for operations that PyTorch's compiler leaves to vendors' libraries.

`Products` puts them into a compiled program, in the place of the calls of those libraries.
"""

from operators.local.templates.operations.matrices import How
from operators.local.templates.products import Products, has_products, is_for_gpu

__all__ = ["How", "Products", "has_products", "is_for_gpu"]
