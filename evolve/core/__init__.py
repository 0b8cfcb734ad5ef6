"""Nouns and protocols. Standard library only; imports nothing else of ours."""
