"""Operators that need no language model."""
