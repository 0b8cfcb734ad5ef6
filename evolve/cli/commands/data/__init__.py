"""Verbs that export data."""
