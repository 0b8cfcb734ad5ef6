"""`evolve tasks`: those that ship; `list`, `check`: a suite's; `capture`: a script's; `import`."""

import json
from collections.abc import Sequence

from evolve.app.text import table
from evolve.cli.args import parser
from evolve.core.errors import UsageError
from evolve.tasks import list_tasks


def main(words: Sequence[str]) -> int:
    """Print one line per task."""
    if words[:1] == ["import"]:
        from evolve.cli.commands.look import tasks_import

        return tasks_import.main(words[1:])
    if words[:1] == ["capture"]:
        from evolve.cli.commands.look import tasks_capture

        return tasks_capture.main(words[1:])
    if words[:1] in (["list"], ["check"]):
        from evolve.cli.commands.look import tasks_suite

        verb = tasks_suite.list_suite if words[0] == "list" else tasks_suite.check_suite_tasks
        return verb(words[1:])
    arguments = parser(
        "tasks",
        "List the tasks that ship. `evolve tasks list --suite NAME` lists those of a suite and "
        "`evolve tasks check --suite NAME` tries them; `evolve tasks capture SCRIPT` writes tasks "
        "of your own script; `evolve tasks import DIR` turns a folder of "
        "modules into prompts to train on.",
    )
    arguments.add_argument("--json", action="store_true", help="for machines")
    if words and not words[0].startswith("-"):
        actions = "list, check, capture, import"
        raise UsageError(f"tasks {words[0]}: there is no such action; there are {actions}")
    options = arguments.parse_args(words)
    tasks = list_tasks()
    if options.json:
        print(json.dumps([task._asdict() for task in tasks], indent=1))
    else:
        rows = [(task.name, task.category, task.description) for task in tasks]
        print(table(("TASK", "CATEGORY", "WHAT IT IS"), rows))
        print("\nA file of your own is named by its path: evolve run task=./my_task.py")
    return 0
