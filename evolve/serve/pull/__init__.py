"""`cluster=pull`: workers on other hosts fetch evaluations from the search over HTTP."""
