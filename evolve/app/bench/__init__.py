"""A search for every task of a suite."""
