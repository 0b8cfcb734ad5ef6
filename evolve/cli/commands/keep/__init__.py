"""Verbs that keep results."""
