"""Calls of a reference on copies of its inputs: their traces, and how they differ."""
