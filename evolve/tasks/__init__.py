"""Tasks by name, path or suite: registry and metadata. The worker executes task files."""

from evolve.tasks.registry import NoTaskError, find_task
from evolve.tasks.shipped import TaskInfo, list_tasks

__all__ = ["NoTaskError", "TaskInfo", "find_task", "list_tasks"]
