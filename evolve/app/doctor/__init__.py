"""Parts of `evolve doctor` that the command has no use for before it is asked."""
