"""Nouns and protocols. Standard library only; imports no other package of this project."""
