"""From a user's script to tasks of the parts that take its time, and back with their winners.

The script and its modules are the user's own code: they run in processes of their own, with
the user's rights, as `python script.py` would run them.
"""
