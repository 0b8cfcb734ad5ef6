"""Errors and facts that every room needs."""
