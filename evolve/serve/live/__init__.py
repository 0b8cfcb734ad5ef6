"""The live page of a database of runs, over HTTP; it can steer a search under way."""
