"""Compilers, their output, and its cache."""
