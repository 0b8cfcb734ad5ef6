"""Verbs that show stored data."""
