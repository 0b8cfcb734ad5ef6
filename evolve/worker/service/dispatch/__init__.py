"""Calls to workers: a process each, its place, and one queue before all places."""
