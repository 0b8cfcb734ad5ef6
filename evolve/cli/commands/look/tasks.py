"""`evolve tasks`: the tasks that ship; `evolve tasks import`: a folder of them for training."""

import json
from collections.abc import Sequence

from evolve.app.text import table
from evolve.cli.args import parser
from evolve.tasks import list_tasks


def main(words: Sequence[str]) -> int:
    """Print one line per task."""
    if words[:1] == ["import"]:
        from evolve.cli.commands.look import tasks_import

        return tasks_import.main(words[1:])
    arguments = parser(
        "tasks",
        "List the tasks that ship. `evolve tasks import DIR` turns a folder of modules into "
        "prompts to train on.",
    )
    arguments.add_argument("--json", action="store_true", help="for machines")
    options = arguments.parse_args(words)
    tasks = list_tasks()
    if options.json:
        print(json.dumps([task._asdict() for task in tasks], indent=1))
    else:
        rows = [(task.name, task.category, task.description) for task in tasks]
        print(table(("TASK", "CATEGORY", "WHAT IT IS"), rows))
        print("\nA file of your own is named by its path: evolve run task=./my_task.py")
    return 0
