"""PostgreSQL: a server for many hosts, each run written by one process."""
