"""Templates by the operation that they compute."""
