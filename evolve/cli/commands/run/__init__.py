"""Verbs that run a search, or take part in one."""
