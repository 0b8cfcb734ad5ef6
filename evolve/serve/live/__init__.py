"""The live page of a database of runs: read-only, over HTTP."""
