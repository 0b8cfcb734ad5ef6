"""Text of kernels and functions that programs get copies of."""
