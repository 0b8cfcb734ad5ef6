"""Exit statuses of the `evolve` command."""

OK = 0
FAILED = 1  # our side: device, worker
USAGE = 2  # for the user to correct: the words, the database's place, the disk
RESUMABLE = 75  # EX_TEMPFAIL: schedulers take it as "run me again"
INTERRUPTED = 130
