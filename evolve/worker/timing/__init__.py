"""Comparing times: rounds of interleaved blocks, intervals, rooflines."""
