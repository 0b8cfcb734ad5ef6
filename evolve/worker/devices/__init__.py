"""Devices under test, and how a block of calls is timed on one."""
