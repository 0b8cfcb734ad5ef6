"""UNTRUSTED: all that runs in a process beside a candidate. It imports nothing of the judge."""
