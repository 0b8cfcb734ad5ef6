"""The verbs, in the groups that `evolve --help` lists."""
