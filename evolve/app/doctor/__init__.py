"""Findings about GPUs, and the report of a device, for `evolve doctor`."""
