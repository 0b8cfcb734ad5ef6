"""Parts of a program's source that operators choose, move or protect."""
