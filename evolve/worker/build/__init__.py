"""Compilers, what they make, and where it is kept."""
