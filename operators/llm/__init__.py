"""Operators that ask a language model."""
