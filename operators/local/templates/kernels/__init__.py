"""Triton text that programs get copies of; never imported by a search."""
