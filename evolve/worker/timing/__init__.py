"""Comparing times: sittings of interleaved blocks, intervals, rooflines."""
