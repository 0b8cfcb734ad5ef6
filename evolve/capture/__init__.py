"""From a user's script to tasks, and back: what takes its time, and winners in place of it.

The script and what it imports are the user's own code: they run in processes of their own, with
the user's rights, as `python script.py` would run them.
"""
