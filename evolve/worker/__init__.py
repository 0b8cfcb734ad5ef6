"""The half that runs beside the device: stdlib, torch, triton, numpy and `evolve.core` only."""
