"""Verbs about the evaluation service."""
