"""Reading and normalising the source of programs."""
