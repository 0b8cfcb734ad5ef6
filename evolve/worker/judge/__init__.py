"""One candidate's way through all stages to a verdict."""
