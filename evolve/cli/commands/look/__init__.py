"""Verbs that show what is stored."""
