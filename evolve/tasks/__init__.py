"""Tasks by name, path or suite: registry and metadata. The worker executes task files."""

from evolve.tasks.shipped import TaskInfo, list_tasks
from evolve.tasks.registry import find_task

__all__ = ["TaskInfo", "find_task", "list_tasks"]
