"""Dispatch sets: the winners of a run's several workloads as one program."""
