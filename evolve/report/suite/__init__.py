"""The page of a suite."""
